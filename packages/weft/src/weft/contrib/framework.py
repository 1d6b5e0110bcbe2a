"""`wf.contrib.framework`, of the package weftml-contrib."""

from weft import _lazy
from weft_contrib.framework import *

_lazy.hint(__name__)

"""`wf.contrib.data`, of the package weftml-contrib."""

from weft import _lazy
from weft_contrib.data import *

_lazy.hint(__name__)

"""`wf.contrib.lookup`, of the package weftml-contrib."""

from weft import _lazy
from weft_contrib.lookup import *

_lazy.hint(__name__)

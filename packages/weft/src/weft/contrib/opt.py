"""`wf.contrib.opt`, of the package weftml-contrib."""

from weft import _lazy
from weft_contrib.opt import *

_lazy.hint(__name__)

"""`wf.contrib.compiler`, of the package weftml-contrib."""

from weft import _lazy
from weft.contrib.compiler import jit as jit

_lazy.hint(__name__)

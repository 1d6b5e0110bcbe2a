"""`wf.math.special`: Bessel functions and other special functions."""

from weft import _lazy
from weft_graph.ops.bessel import *
from weft_graph.ops.integrals import *

_lazy.hint(__name__)

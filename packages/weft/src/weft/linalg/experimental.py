"""`wf.linalg.experimental`: iterative solvers of linear equations."""

from weft import _lazy
from weft_graph.linear_operators.conjugate_gradient import *

_lazy.hint(__name__)

"""`wf.linalg.experimental`: linear equations by iterations."""

from weft import _lazy
from weft_graph.linear_operators.conjugate_gradient import *

_lazy.hint(__name__)

"""`wf.losses`: functions to minimise."""

from weft import _lazy
from weft_graph.losses import *

_lazy.hint(__name__)

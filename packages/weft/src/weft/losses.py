"""`wf.losses`: loss functions."""

from weft import _lazy
from weft_graph.losses import *

_lazy.hint(__name__)

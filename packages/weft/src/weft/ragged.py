"""`wf.ragged`: ragged tensors."""

from weft import _lazy
from weft_graph.ragged.constants import *
from weft_graph.ragged.crosses import *
from weft_graph.ragged.functions import *
from weft_graph.ragged.value import *

_lazy.hint(__name__)

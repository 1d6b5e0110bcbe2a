"""`wf.random.experimental`: generators, and derivation of seeds."""

from weft import _lazy
from weft_graph.ops.stateful_random import index_shuffle as index_shuffle
from weft_graph.ops.stateless_random import (
    stateless_fold_in as stateless_fold_in,
    stateless_shuffle as stateless_shuffle,
    stateless_split as stateless_split,
)
from weft_graph.variables.generator import *

_lazy.hint(__name__)

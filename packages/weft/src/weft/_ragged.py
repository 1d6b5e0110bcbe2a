"""Names of `wf` that belong to ragged tensors; they load when first used."""

from weft_graph.ragged.filling import *
from weft_graph.ragged.spec import *
from weft_graph.ragged.tensor import *

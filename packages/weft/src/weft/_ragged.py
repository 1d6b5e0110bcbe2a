"""Lazily loaded names of `weft`: ragged tensors."""

from weft_graph.ragged.filling import *
from weft_graph.ragged.spec import *
from weft_graph.ragged.tensor import *

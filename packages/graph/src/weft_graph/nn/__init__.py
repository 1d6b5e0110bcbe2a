"""The public `nn` namespace: single-node functions and the compositions of this package."""

from weft_graph.nn.namespace import *

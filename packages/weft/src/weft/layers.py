"""`wf.layers`: layers that create their variables."""

from weft import _lazy
from weft_graph.layers.base import *
from weft_graph.layers.convolutional import *
from weft_graph.layers.core import *
from weft_graph.layers.normalization import *
from weft_graph.layers.pooling import *
from weft_graph.layers.separable import *

_lazy.hint(__name__)

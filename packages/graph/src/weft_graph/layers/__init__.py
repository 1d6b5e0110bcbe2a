"""The public `layers` namespace: functions that create their variables."""

from weft_graph.layers.base import *
from weft_graph.layers.convolutional import *
from weft_graph.layers.core import *
from weft_graph.layers.normalization import *
from weft_graph.layers.pooling import *
from weft_graph.layers.separable import *

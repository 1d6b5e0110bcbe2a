"""`tf.contrib.slim`: the layers, variables and losses that slim programs use."""

from weft_contrib.arg_scope import *
from weft_contrib.framework import *
from weft_contrib.layers import *
from weft_contrib.slim import (
    learning as learning,
    losses as losses,
    model_analyzer as model_analyzer,
    nets as nets,
)

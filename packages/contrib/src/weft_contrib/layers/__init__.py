"""`tf.contrib.layers`: layers as functions, whose arguments `arg_scope` can set."""

from weft_contrib import utils as utils
from weft_contrib.initializers import *
from weft_contrib.layers.convolution import *
from weft_contrib.layers.dense import *
from weft_contrib.layers.normalization import *
from weft_contrib.layers.optimizers import *
from weft_contrib.layers.summaries import *
from weft_graph.layers.regularizers import (
    apply_regularization as apply_regularization,
    l1_l2_regularizer as l1_l2_regularizer,
    l1_regularizer as l1_regularizer,
    l2_regularizer as l2_regularizer,
    sum_regularizer as sum_regularizer,
)

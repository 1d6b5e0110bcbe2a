"""`wf.contrib.layers`, of the package weftml-contrib."""

from weft import _lazy
from weft_contrib import utils as utils
from weft_contrib.layers import *
from weft_contrib.layers import (
    apply_regularization as apply_regularization,
    l1_l2_regularizer as l1_l2_regularizer,
    l1_regularizer as l1_regularizer,
    l2_regularizer as l2_regularizer,
    sum_regularizer as sum_regularizer,
)

_lazy.hint(__name__)

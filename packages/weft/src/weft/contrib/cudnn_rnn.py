"""`wf.contrib.cudnn_rnn`, of the package weftml-contrib."""

from weft import _lazy
from weft_contrib.cudnn_rnn import *

_lazy.hint(__name__)

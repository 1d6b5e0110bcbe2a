"""`wf.contrib.rnn`, of the package weftml-contrib."""

from weft import _lazy
from weft_contrib.rnn import *

_lazy.hint(__name__)

"""`wf.contrib.seq2seq`, of the package weftml-contrib."""

from weft import _lazy
from weft_contrib.seq2seq import *

_lazy.hint(__name__)

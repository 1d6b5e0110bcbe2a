"""`wf.contrib.crf`, of the package weftml-contrib."""

from weft import _lazy
from weft_contrib.crf import *

_lazy.hint(__name__)

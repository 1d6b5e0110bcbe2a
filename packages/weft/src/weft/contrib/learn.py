"""`wf.contrib.learn`, of the package weftml-contrib."""

from weft import _lazy
from weft_contrib.learn import preprocessing as preprocessing

_lazy.hint(__name__)

"""`wf.contrib.training`, of the package weftml-contrib."""

from weft import _lazy
from weft_contrib.training import *

_lazy.hint(__name__)

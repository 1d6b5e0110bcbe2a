"""`wf.contrib.losses`, of the package weftml-contrib."""

from weft import _lazy
from weft_contrib.losses import *

_lazy.hint(__name__)

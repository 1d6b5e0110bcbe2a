"""`wf.contrib.slim`, of the package weftml-contrib."""

from weft import _lazy
from weft_contrib.slim import *
from weft_contrib.slim import (
    learning as learning,
    losses as losses,
    model_analyzer as model_analyzer,
    nets as nets,
)

_lazy.hint(__name__)

"""`wf.errors`: error classes and codes."""

from weft_tensor.errors import *

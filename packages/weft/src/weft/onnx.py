"""`wf.onnx`: models of ONNX."""

from weft import _lazy
from weft_io.onnx import *

_lazy.hint(__name__)

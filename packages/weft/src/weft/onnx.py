"""`wf.onnx`: import and export of ONNX models."""

from weft import _lazy
from weft_io.onnx import *

_lazy.hint(__name__)

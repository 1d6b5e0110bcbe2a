"""Import and export of ONNX models."""

from __future__ import annotations

try:
    import onnx  # noqa: F401  # the modules below import it; here it is missed in words
except ModuleNotFoundError as error:
    raise ImportError("wf.onnx requires the package onnx: pip install 'weftml-io[onnx]'") from error

from weft_io.onnx.backend import Backend
from weft_io.onnx.exporter import export
from weft_io.onnx.importer import ImportedModel, import_model
from weft_io.onnx.registry import exporter, importer
from weft_io.resources.tensor_sequence import TensorSequence

__all__ = [
    "Backend",
    "ImportedModel",
    "TensorSequence",
    "export",
    "exporter",
    "import_model",
    "importer",
]

"""Frozen graphs on small devices: `Interpreter` runs what `weft_lite.convert` wrote."""

from weft_lite.interpreter import Interpreter, SignatureRunner

__all__ = ["Interpreter", "SignatureRunner"]

"""Frozen graphs on small devices: `Interpreter` runs files written by `weft_lite.convert`."""

from weft_lite.interpreter import Interpreter, SignatureRunner

__all__ = ["Interpreter", "SignatureRunner"]

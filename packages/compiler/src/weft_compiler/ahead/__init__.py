"""Ahead-of-time compilation: models as objects and C headers that need no Python."""

from weft_compiler.ahead.compiled import Compiled, compile_graph

__all__ = ["Compiled", "compile_graph"]

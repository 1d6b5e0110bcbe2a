"""Ahead-of-time compilation of models to object files and C headers, which need no Python."""

from weft_compiler.ahead.compiled import Compiled, compile_graph

__all__ = ["Compiled", "compile_graph"]

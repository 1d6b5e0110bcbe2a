"""Models compiled ahead of time: objects and C headers, with nothing of Python in them."""

from weft_compiler.ahead.compiled import Compiled, compile_graph

__all__ = ["Compiled", "compile_graph"]

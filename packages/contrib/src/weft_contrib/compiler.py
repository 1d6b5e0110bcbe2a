"""`tf.contrib.compiler.jit`: selection of the nodes to compile."""

from __future__ import annotations

__all__ = ["experimental_jit_scope"]

from weft_graph.ir.jit_scope import jit_scope as experimental_jit_scope

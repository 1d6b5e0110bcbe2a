"""Compilation hints of programs: scopes that request or forbid compiling nodes."""

from __future__ import annotations

__all__ = ["jit_scope"]

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from weft_graph.ir.default_graph import get_default_graph
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_graph.ir.node import Node

COMPILED: Final = "_XlaCompile"
"""TensorFlow's attribute that requests or forbids compiling a node."""

CHECKED: Final = "_jit_check"
"""Attribute of nodes whose compiled values are compared with those of kernels."""

_SEPARATE: Final = "_XlaSeparateCompiledGradients"


@contextmanager
def jit_scope(
    compile_ops: bool | Callable[[Any], bool] = True, separate_compiled_gradients: bool = False
) -> Iterator[None]:
    """Set whether nodes created inside, and their gradients, are compiled.

    It overrides the settings of `ConfigProto` and of the environment, except `WEFT_JIT=off`. Of
    nested scopes, the inner one takes effect.

    Args:
      compile_ops: True to compile the nodes, or a predicate of their NodeDefs.
      separate_compiled_gradients: accepted and ignored; regions follow from data dependencies.
    Raises: InvalidTypeError: `compile_ops` is neither a bool nor a function.

    Examples:
      >>> x = wf.placeholder(wf.float32, [2])
      >>> with wf.xla.experimental.jit_scope():
      ...     y = wf.tanh(x) * 2.0
      ...     with wf.xla.experimental.jit_scope(compile_ops=False):
      ...         z = wf.exp(y) + 1.0  # with kernels
      >>> wf.Session().run(z, {x: [0.0, 0.0]})
      array([2., 2.], dtype=float32)
    """
    if not isinstance(compile_ops, bool) and not callable(compile_ops):
        raise errors.InvalidTypeError(
            f"compile_ops must be a bool or a function of a NodeDef, got {compile_ops!r}"
        )
    attrs: dict[str, Any] = {COMPILED: compile_ops}
    if separate_compiled_gradients:
        attrs[_SEPARATE] = True
    if callable(compile_ops):
        attrs[COMPILED] = _make_predicate(compile_ops)
    with get_default_graph().scopes.with_attrs(attrs):
        yield


def _make_predicate(compile_ops: Callable[[Any], bool]) -> Callable[[Node], bool]:
    def is_compiled(node: Node) -> bool:
        return bool(compile_ops(node.node_def))

    return is_compiled


def compile_hints(node: Node) -> dict[str, Any]:
    """Return the compilation hints of a node, for nodes derived from it, such as its gradient."""
    return {COMPILED: node.attrs[COMPILED]} if COMPILED in node.attrs else {}

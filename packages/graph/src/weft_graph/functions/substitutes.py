"""Functions equivalent to an op, which may replace their calls.

The body says what the op means, so a marked function needs no gradient of its own and no rule in
converters: only who has a kernel of the op looks at the mark. It is an attribute of the function,
so it is saved and loaded with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from weft_graph.functions.function import Function
from weft_graph.ir.builder import argument_types
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.op_signature import OpDef
from weft_tensor import errors

_MARK: Final = "_same_as_op"

HasKernel = Callable[[str], bool]


def mark(op: str, **attrs: Any) -> dict[str, Any]:
    """Return attributes of a function that computes the same as an op with these attributes.

    The op takes the inputs of the function and gives its outputs, in their order.
    """
    return {_MARK: op, **{f"{_MARK}_{key}": value for key, value in attrs.items()}}


def op_instead_of(function: Function, has_kernel: HasKernel) -> tuple[OpDef, dict[str, Any]] | None:
    """Return the op that a function is marked with, and its attributes; None where it cannot run.

    A mark may come from a file: one that names no op, or one of another signature, counts for
    nothing.
    """
    op = function.attrs.get(_MARK)
    if not isinstance(op, str) or function.effects or not has_kernel(op):
        return None
    try:
        op_def = lookup_op(op)
        attrs = {
            key: attr.check(function.attrs.get(f"{_MARK}_{key}", attr.default))
            for key, attr in op_def.attrs.items()
        }
    except errors.OpError:
        return None
    fits = (
        not op_def.stateful
        and argument_types(op_def.inputs, attrs) == function.input_types
        and argument_types(op_def.outputs, attrs) == function.output_types
    )
    return (op_def, attrs) if fits else None

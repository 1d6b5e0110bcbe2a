"""Functions equivalent to an op, which may replace their calls.

A marked function needs neither a gradient nor rules in converters, because its body defines the op.
Only a runtime with a kernel of the op uses the mark. The mark is an attribute of the function, so
it is saved and loaded with it.
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
    """Return the attributes that mark a function as equivalent to an op.

    The op has the inputs and outputs of the function, in the same order.
    """
    return {_MARK: op, **{f"{_MARK}_{key}": value for key, value in attrs.items()}}


def op_instead_of(function: Function, has_kernel: HasKernel) -> tuple[OpDef, dict[str, Any]] | None:
    """Return the op of a function's mark with its attributes; None if it has no kernel.

    A mark may come from a file. It is ignored if it names an unknown op or one of another
    signature.
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

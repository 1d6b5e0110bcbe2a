"""Every op by its own name, its inputs and attributes by theirs: `raw_ops.Switch(data=x, pred=p)`.

For what no function stands for: the control-flow primitives, and ops of other packages.
"""

from __future__ import annotations

__all__ = ["__dir__", "__getattr__"]

from collections.abc import Callable
from typing import Any

from weft_graph.ir.builder import create
from weft_graph.ir.named_results import named_results
from weft_graph.ir.op_def import OpDef, lookup_op, registered_ops
from weft_tensor import errors
from weft_tensor.arguments import unknown_argument


def __getattr__(name: str) -> Callable[..., Any]:
    if not name[:1].isupper():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    try:
        op_def = lookup_op(name)
    except errors.NotFoundError as error:
        raise AttributeError(error.message, name=name) from None
    function = _function(op_def)
    globals()[name] = function
    return function


def __dir__() -> list[str]:
    return [name for name in registered_ops() if name[0].isupper()]


def _function(op_def: OpDef) -> Callable[..., Any]:
    def call(*, name: str | None = None, **given: Any) -> Any:
        inputs = [given.pop(arg.name) for arg in op_def.inputs if arg.name in given]
        if len(inputs) != len(op_def.inputs):
            wanted = ", ".join(arg.name for arg in op_def.inputs)
            raise errors.InvalidTypeError(f"{op_def.name} takes the inputs {wanted} by name")
        for argument in given.keys() - op_def.attrs.keys():
            if argument[0] != "_":
                raise unknown_argument(op_def.name, argument, op_def.attrs)
        node = create(op_def.name, inputs, given, name)
        if not op_def.outputs:
            return node
        if len(op_def.outputs) == 1:
            several = op_def.outputs[0].is_list
            return list(node.outputs) if several else node.outputs[0]
        return named_results(node)

    call.__name__ = call.__qualname__ = op_def.name
    call.__doc__ = op_def.doc
    return call

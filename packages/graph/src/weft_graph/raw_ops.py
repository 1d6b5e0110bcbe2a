"""Functions for all ops, with inputs and attributes by name: `raw_ops.Switch(data=x, pred=p)`.

They are for ops without a public function: control-flow primitives, and ops of other packages.
Names and required arguments are those of `tf.raw_ops`.
"""

from __future__ import annotations

__all__ = ["__dir__", "__getattr__"]

import inspect
from collections.abc import Callable
from typing import Any, Final

from weft_graph.ir.builder import create
from weft_graph.ir.later_attrs import has_no_effect, later_attrs
from weft_graph.ir.named_results import named_results
from weft_graph.ir.op_def import lookup_op, registered_ops
from weft_graph.ir.op_signature import REQUIRED, OpDef
from weft_tensor import errors
from weft_tensor.arguments import unknown_argument

_REDUCTIONS = ("All", "Any", "EuclideanNorm", "Max", "Mean", "Min", "Prod", "Sum")
_RENAMED: Final[dict[str, dict[str, str]]] = {
    **{op: {"reduction_indices": "axis"} for op in _REDUCTIONS},
    "ExpandDims": {"dim": "axis"},
    "Select": {"t": "x", "e": "y"},
    "Split": {"split_dim": "axis"},
    "SplitV": {"split_dim": "axis"},
    "Squeeze": {"squeeze_dims": "axis"},
    "Where": {"input": "condition"},
}
"""Arguments whose names in programs differ from those in graphs, as in TensorFlow."""


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
    later = later_attrs(op_def.name)
    renamed = _RENAMED.get(op_def.name, {})
    attrs = {renamed.get(name, name): name for name in op_def.attrs}
    inputs = [renamed.get(arg.name, arg.name) for arg in op_def.inputs]

    def call(*, name: str | None = None, **arguments: Any) -> Any:
        values = [_require_argument(op_def.name, arguments, argument) for argument in inputs]
        for argument in arguments.keys() & later.keys():
            _check_later(op_def.name, argument, arguments.pop(argument))
        for argument in arguments.keys() - attrs.keys():
            if argument[0] != "_":
                raise unknown_argument(op_def.name, argument, [*inputs, *attrs])
        attr_values = {
            attrs.get(argument, argument): value for argument, value in arguments.items()
        }
        node = create(op_def.name, values, attr_values, name)
        if not op_def.outputs:
            return node
        if len(op_def.outputs) == 1:
            is_list = op_def.outputs[0].is_list
            return list(node.outputs) if is_list else node.outputs[0]
        return named_results(node)

    call.__name__ = call.__qualname__ = op_def.name
    call.__doc__ = op_def.doc
    call.__signature__ = _signature(op_def, renamed, later)  # type: ignore[attr-defined] # of help()
    return call


def _require_argument(op: str, arguments: dict[str, Any], argument: str) -> Any:
    if argument not in arguments:
        raise errors.InvalidTypeError(f"{op} requires the argument {argument!r}, by name")
    return arguments.pop(argument)


def _check_later(op: str, argument: str, value: Any) -> None:
    if not has_no_effect(op, argument, value):
        raise errors.UnimplementedError(
            f"{op}: {argument}={value!r} is not supported; only values with the behavior of "
            "TensorFlow 1.15 are"
        )


def _signature(op_def: OpDef, renamed: dict[str, str], later: dict[str, Any]) -> inspect.Signature:
    """Return all arguments by name, without attributes inferred from inputs."""
    implied = {
        attr for arg in op_def.inputs for attr in (arg.type_attr, arg.number_attr, arg.list_attr)
    }
    defaults = {arg.name: REQUIRED for arg in op_def.inputs}
    defaults |= {name: attr.default for name, attr in op_def.attrs.items() if name not in implied}
    defaults |= later
    parameters = [
        inspect.Parameter(
            renamed.get(name, name),
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if default is REQUIRED else default,
        )
        for name, default in (defaults | {"name": None}).items()
        if name[0] != "_"
    ]
    return inspect.Signature(parameters)

"""Checks of a node read from a file before it may join a graph."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from weft_graph.ir.builder import argument_types
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec
from weft_graph.ir.op_signature import ArgDef, OpDef
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.nesting import format_value
from weft_tensor.shape import Dims

_INTERNAL_NAME: Final = re.compile(r"_[A-Za-z0-9_.\\/>-]*")
NODE_NAME: Final = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")

MAX_OUTPUTS: Final = 1_000_000
"""Limit of a node's outputs, because attributes of hostile files can request any number."""


class Signature:
    """The input and output types of a node with an op and attributes.

    Attributes:
      inputs: element types without references; list arguments are flattened.
      refs: for each input, True if it must be a reference.
      outputs: element types.
    """

    __slots__ = ("inputs", "outputs", "refs")

    def __init__(self, op_def: OpDef, attrs: dict[str, Any]) -> None:
        _check_count(op_def.inputs, attrs, "inputs")
        _check_count(op_def.outputs, attrs, "outputs")
        inputs: list[DType] = []
        refs: list[bool] = []
        for arg in op_def.inputs:
            types = _types(arg, attrs)
            inputs += types
            refs += [arg.is_ref] * len(types)
        self.inputs = tuple(inputs)
        self.refs = tuple(refs)
        self.outputs = tuple(argument_types(op_def.outputs, attrs))

    def check(self, inputs: Sequence[Output], op: str, node: str) -> None:
        """Check that inputs match the signature.

        Raises:
          InvalidArgumentError: there are too many or too few.
          InvalidTypeError: an element type differs, or a reference is required.
        """
        if len(inputs) != len(self.inputs):
            raise errors.InvalidArgumentError(
                f"{op} takes {len(self.inputs)} inputs "
                f"({', '.join(dtype.name for dtype in self.inputs)}), got {len(inputs)}",
                op=op,
                node=node,
            )
        for i, source in enumerate(inputs):
            actual, expected = source.dtype, self.inputs[i]
            if actual is not expected and actual.base_dtype is not expected:
                raise errors.InvalidTypeError(
                    f"input {i} of {op} must be {expected.name}, got {source.name} of "
                    f"{actual.name}",
                    op=op,
                    node=node,
                )
            if self.refs[i] and not actual.is_ref:
                raise errors.InvalidTypeError(
                    f"input {i} of {op} must be a reference to a variable, got {source.name}",
                    op=op,
                    node=node,
                )


def _types(arg: ArgDef, attrs: dict[str, Any]) -> list[DType]:
    if arg.list_attr is not None:
        return list(attrs[arg.list_attr])
    dtype: Any = attrs[arg.type_attr] if arg.type_attr is not None else arg.dtype
    return [dtype] * (1 if arg.number_attr is None else attrs[arg.number_attr])


def _check_count(args: Iterable[ArgDef], attrs: dict[str, Any], label: str) -> None:
    for arg in args:
        number = 0 if arg.number_attr is None else attrs[arg.number_attr]
        if not 0 <= number <= MAX_OUTPUTS:
            raise errors.InvalidArgumentError(
                f"the attribute {arg.number_attr} must be from 0 to {MAX_OUTPUTS}, got {number} "
                f"{label}"
            )


def check_attrs(op_def: OpDef, attrs: dict[str, Any], internal: bool = False) -> dict[str, Any]:
    """Return the canonical form of a node's attributes, checked against the declaration.

    Args:
      internal: allow attributes that only planning adds.
    Raises:
      InvalidArgumentError: one is missing, undeclared, or has an invalid value.
    """
    declared = op_def.attrs
    for name in declared:
        if name not in attrs:
            raise errors.InvalidArgumentError(f"{op_def.name} requires the attribute {name}")
    checked: dict[str, Any] = {}
    for name, value in attrs.items():
        attr = declared.get(name)
        if attr is None and not name.startswith("_"):
            raise errors.InvalidArgumentError(
                f"{op_def.name} has no attribute {name!r}; it has {sorted(declared)}"
            )
        if attr is not None and attr.type.endswith(("type", "type)")):
            _check_types(name, value if isinstance(value, tuple) else (value,))
        checked[name] = (
            _check_undeclared(name, value, internal) if attr is None else attr.check(value)
        )
    return checked


def _check_undeclared(name: str, value: Any, internal: bool) -> Any:
    """Return the canonical form of an attribute that is not declared.

    Untrusted graphs may have any value under unused names.
    """
    if name in _PLANNED and not internal:
        raise errors.InvalidArgumentError(f"the attribute {name} is reserved for planning")
    if name == "_class" and isinstance(value, str | bytes):
        value = (value,)
    required = _UNDECLARED_ATTRS.get(name)
    if required is not None and not required[1](value):
        raise errors.InvalidArgumentError(
            f"attribute {name} must be {required[0]}, got {format_value(value)}"
        )
    return value


def _is_text(value: Any) -> bool:
    if isinstance(value, bytes):
        try:
            value.decode()
        except UnicodeDecodeError:
            return False
    return isinstance(value, str | bytes)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _are(value: Any, has_type: Callable[[Any], bool]) -> bool:
    return isinstance(value, tuple) and all(has_type(item) for item in value)


_PLANNED: Final = frozenset({"_depth", "_guard", "_origins", "_reads_only", "_used"})

_UNDECLARED_ATTRS: Final[dict[str, tuple[str, Callable[[Any], bool]]]] = {
    "_class": ("a list of names", lambda value: _are(value, _is_text)),
    "_depth": ("an integer of at least 0", _is_count),
    "_gradient_op_type": ("a name", _is_text),
    "_guard": ("an integer of at least 0", _is_count),
    "_origins": ("a list of names", lambda value: _are(value, _is_text)),
    "_reads_only": ("a Boolean", lambda value: isinstance(value, bool)),
    "_used": ("a list of integers of at least 0", lambda value: _are(value, _is_count)),
}
"""Conditions of undeclared attributes that weft reads."""


def _check_types(name: str, values: tuple[Any, ...]) -> None:
    """Reject element types given as names or numbers, which only programs may use."""
    for value in values:
        if not isinstance(value, DType):
            raise errors.InvalidArgumentError(
                f"attribute {name} must be of element types, got {value!r}"
            )


def check_name(name: str, internal: bool = False) -> None:
    """Reject invalid node names.

    Args:
      internal: allow a leading underscore, as in names of nodes that planning adds.
    Raises: InvalidArgumentError: the name is invalid.
    """
    if NODE_NAME.fullmatch(name) is None and not (internal and _INTERNAL_NAME.fullmatch(name)):
        raise errors.InvalidArgumentError(
            f"{name!r} is not a valid name of a node: it must start with a letter, digit or dot "
            "and continue with letters, digits and _ . / > -"
        )


def infer_shapes(
    op_def: OpDef, inputs: tuple[Output, ...], attrs: dict[str, Any], node: str
) -> Sequence[Dims]:
    """Run the op's shape rule, which must exist, on a node.

    Rules assume nodes built by programs; attributes of untrusted files may raise any exception in
    them.

    Raises: InvalidArgumentError: the rule rejects the node, or raises another exception.
    """
    rule = op_def.shape_rule
    assert rule is not None
    try:
        return rule(NodeSpec(inputs, attrs))
    except errors.OpError as error:
        raise error.with_context(op=op_def.name, node=node) from error.__cause__
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
        MemoryError,
    ) as cause:
        raise errors.InvalidArgumentError(
            f"the shapes of the outputs cannot be inferred: {cause!r}", op=op_def.name, node=node
        ) from cause

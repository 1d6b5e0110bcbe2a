"""Parsed declarations of ops: arguments, attributes, and values of attributes."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from weft_graph.ir.constants import to_array
from weft_graph.ir.message_conversions import to_message
from weft_graph.ir.traits import Traits
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.nesting import format_value
from weft_tensor.shape import Dims, as_dims

REQUIRED: Final[Any] = object()
"""Marks an attribute without a default, which must be passed or inferred."""

_FLOATING = "float16 bfloat16 float32 float64"
_REAL = _FLOATING + " int8 int16 int32 int64 uint8 uint16 uint32 uint64"
TYPE_SETS: Final[Mapping[str, str]] = {
    "floating": _FLOATING,
    "complex": "complex64 complex128",
    "inexact": _FLOATING + " complex64 complex128",
    "integral": "int8 int16 int32 int64 uint8 uint16 uint32 uint64",
    "realnumbertype": _REAL,
    "numbertype": _REAL + " complex64 complex128 qint8 quint8 qint32",
    "index_type": "int32 int64",
    "small": "float8_e5m2 float8_e4m3fn float8_e4m3fnuz float8_e4m3b11fnuz float8_e5m2fnuz "
    "float4_e2m1fn int4 uint4 int2 uint2",
}
"""Named sets of element types usable inside the braces of a type attribute."""


class ArgDef:
    """One input or output of an op: a tensor, N tensors of one type, or a list of types."""

    __slots__ = ("dtype", "is_ref", "list_attr", "name", "number_attr", "type_attr")

    def __init__(self, text: str, attrs: Mapping[str, AttrDef]) -> None:
        name, _, type_text = text.partition(":")
        self.name = name.strip()
        type_text = type_text.strip()
        self.number_attr: str | None = None
        self.list_attr: str | None = None
        self.type_attr: str | None = None
        self.dtype: DType | None = None
        self.is_ref = type_text.startswith("Ref(")
        if self.is_ref:
            type_text = type_text[4:-1].strip()
        if "*" in type_text:
            number, _, type_text = type_text.partition("*")
            self.number_attr = number.strip()
            type_text = type_text.strip()
        attr = attrs.get(type_text)
        if attr is None:
            self.dtype = dtypes.as_dtype(type_text)
        elif attr.type == "list(type)":
            self.list_attr = type_text
        else:
            self.type_attr = type_text

    @property
    def is_list(self) -> bool:
        """True if the argument is a list of tensors."""
        return self.number_attr is not None or self.list_attr is not None


_ATTR = re.compile(
    r"^\s*(?P<type>list\(\w+\)|list\(\{[^}]*\}\)|\w+|\{[^}]*\})\s*"
    r"(?:>=\s*(?P<minimum>-?\d+))?\s*(?:=\s*(?P<default>.*))?$",
    re.DOTALL,
)


class AttrDef:
    """One attribute of an op: its type, allowed values, minimum and default."""

    __slots__ = ("allowed", "default", "minimum", "name", "type")

    def __init__(self, name: str, text: str) -> None:
        match = _ATTR.match(text)
        if match is None:
            raise errors.InvalidArgumentError(f"attribute {name}: cannot parse {text!r}")
        self.name = name
        self.type, self.allowed = _parse_type(match["type"])
        if self.type not in _CANONICAL:
            raise errors.InvalidArgumentError(
                f"attribute {name}: the type must be one of {', '.join(sorted(_CANONICAL))}, or "
                f"allowed values in braces, got {self.type!r}"
            )
        self.minimum = int(match["minimum"]) if match["minimum"] else None
        default = match["default"]
        self.default: Any = REQUIRED if default is None else self.check(_parse_value(default))

    def check(self, value: Any) -> Any:
        """Return the canonical form of `value`.

        Raises:
          InvalidTypeError: the value has the wrong type.
          InvalidArgumentError: the value is not allowed, or is below the minimum.
        """
        try:
            value = _CANONICAL[self.type](value)
        except (TypeError, ValueError) as cause:
            raise errors.InvalidTypeError(
                f"attribute {self.name} must be of type {self.type}, got {format_value(value)}"
            ) from cause
        if self.allowed is not None:
            for item in value if isinstance(value, tuple) else (value,):
                if item not in self.allowed:
                    raise self._value_error(item)
        if self.minimum is not None:
            actual = len(value) if isinstance(value, tuple) else value
            if actual < self.minimum:
                raise errors.InvalidArgumentError(
                    f"attribute {self.name} must be at least {self.minimum}, got {actual}"
                )
        return value

    def _value_error(self, item: Any) -> errors.InvalidArgumentError:
        assert self.allowed is not None
        if isinstance(item, DType):
            names = ", ".join(sorted(d.name for d in self.allowed))
            return errors.InvalidTypeError(
                f"{self.name} must be one of {{{names}}}, got {item.name}"
            )
        names = ", ".join(sorted(map(repr, self.allowed)))
        return errors.InvalidArgumentError(
            f"attribute {self.name} must be one of {{{names}}}, got {item!r}"
        )


def _parse_type(text: str) -> tuple[str, frozenset[Any] | None]:
    prefix, suffix = ("list(", ")") if text.startswith("list({") else ("", "")
    inner = text[len(prefix) : len(text) - len(suffix)]
    if not inner.startswith("{"):
        return text, None
    items = [item.strip() for item in inner[1:-1].split(",") if item.strip()]
    if items and items[0][0] in "'\"":
        return f"{prefix}string{suffix}", frozenset(item.strip("'\"") for item in items)
    names: list[str] = []
    for item in items:
        names.extend(TYPE_SETS.get(item, item).split())
    return f"{prefix}type{suffix}", frozenset(dtypes.as_dtype(name) for name in names)


def _parse_value(text: str) -> Any:
    text = text.strip()
    if text in ("true", "True"):
        return True
    if text in ("false", "False"):
        return False
    if text.startswith("["):
        return tuple(_parse_value(part) for part in text[1:-1].split(",") if part.strip())
    if text[:1] in ("'", '"'):
        return text[1:-1]
    if text.endswith("]"):
        element, _, items = text.partition("[")
        return np.array(_parse_value(f"[{items}"), dtypes.as_dtype(element).numpy)
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def _to_int(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError(value)
    return operator.index(value)


def _to_float(value: Any) -> float:
    if isinstance(value, str | bytes | bytearray):
        raise TypeError(value)
    return float(value)


def _to_bool(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError(value)
    return bool(value)


def _to_string(value: Any) -> str | bytes:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _to_tensor(value: Any) -> Any:
    if type(value) is np.ndarray and not value.flags.writeable:
        return value  # of a file or of another node, and perhaps large
    array = to_array(value)
    array.flags.writeable = False
    return array


def _to_func(value: Any) -> Any:
    return value


def _list_of(convert_item: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    def convert(value: Any) -> tuple[Any, ...]:
        if isinstance(value, str | bytes):
            raise TypeError(value)
        return tuple(convert_item(item) for item in value)

    return convert


_SCALARS: dict[str, Callable[[Any], Any]] = {
    "type": dtypes.as_dtype,
    "int": _to_int,
    "float": _to_float,
    "bool": _to_bool,
    "string": _to_string,
    "shape": lambda value: (
        None if isinstance(value, str) and value == "unknown" else as_dims(value)
    ),
    "tensor": _to_tensor,
    "func": _to_func,
}
_CANONICAL = _SCALARS | {f"list({name})": _list_of(convert) for name, convert in _SCALARS.items()}


class OpDef:
    """The declaration of one op type.

    Attributes:
      name: the op type; that of TensorFlow if it has the op.
      inputs, outputs: arguments in order.
      attrs: attributes by name, in order of declaration.
      shape_rule: function from a NodeSpec to the static shapes of the outputs.
      value_rule: rule for static values of outputs, or None.
      traits: static facts about the op.
      stateful: True if equal nodes may return different results or have effects; one of the traits.
      doc: documentation of the op.
    """

    __slots__ = (
        "attrs",
        "doc",
        "inputs",
        "name",
        "outputs",
        "shape_rule",
        "simple",
        "stateful",
        "traits",
        "value_rule",
    )

    def __init__(
        self,
        name: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attrs: Mapping[str, str],
        shape_rule: Callable[[Any], Sequence[Dims]] | None,
        value_rule: Any,
        traits: Traits,
        doc: str | None,
    ) -> None:
        self.name = name
        self.shape_rule = shape_rule
        self.value_rule = value_rule
        self.traits = traits
        self.doc = doc
        self.stateful = traits.stateful
        self.attrs = {name: AttrDef(name, text) for name, text in attrs.items()}
        self.inputs = tuple(ArgDef(text, self.attrs) for text in inputs)
        self.outputs = tuple(ArgDef(text, self.attrs) for text in outputs)
        self.simple = not any(arg.is_list or arg.is_ref for arg in self.inputs)

    def __getattr__(self, name: str) -> Any:
        """Return a field of the op's `OpDef` message, as TensorFlow programs expect."""
        if name in _MESSAGE_FIELDS:
            return getattr(to_message("OpDef", self), name)
        raise AttributeError(f"OpDef has no attribute {name!r}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"OpDef({self.name})"


_MESSAGE_FIELDS: Final = frozenset(
    {
        "allows_uninitialized_input",
        "attr",
        "deprecation",
        "description",
        "input_arg",
        "is_aggregate",
        "is_commutative",
        "is_stateful",
        "output_arg",
        "summary",
    }
)

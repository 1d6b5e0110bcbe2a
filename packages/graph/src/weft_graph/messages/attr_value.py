"""Conversion of attribute values to and from `AttrValue` messages.

In a node, an element type is a DType, a shape is a tuple (None for unknown sizes) or None, a tensor
is an array, a function is a `NameAttrs`, and a list is a tuple of these. Undeclared attributes
(names with a leading underscore) have no declared type: their shapes are TensorShapes, to
distinguish them from lists of integers.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from weft_graph import proto
from weft_graph.ir.func_attr import NameAttrs, as_name_attrs
from weft_graph.ir.message_conversions import writers
from weft_graph.ir.op_signature import OpDef
from weft_graph.messages.tensor_proto import (
    Budget,
    array_from_proto,
    array_to_proto,
    dtype_from_proto,
    fill_tensor,
)
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, TensorShape, as_dims

FIELD: Final = {
    "type": "type",
    "int": "i",
    "float": "f",
    "bool": "b",
    "string": "s",
    "shape": "shape",
    "tensor": "tensor",
    "func": "func",
}
"""Fields of AttrValue and its ListValue by attribute type."""

_MAX_DEPTH = 32  # of functions within functions


def kind_of(value: Any) -> str:
    """Return the attribute type of an undeclared attribute's value; "list()" for an empty tuple.

    Raises: InvalidTypeError: no attribute can have such a value.
    """
    if isinstance(value, bool | np.bool_):
        return "bool"
    for classes, kind in _CLASSES:
        if isinstance(value, classes):
            return kind
    if isinstance(value, tuple | list):
        kinds = {kind_of(item) for item in value}
        if len(kinds) > 1 or any(kind.startswith("list") for kind in kinds):
            raise errors.InvalidTypeError(f"an attribute cannot be the mixed list {value!r}")
        return f"list({''.join(kinds)})"
    raise errors.InvalidTypeError(f"an attribute cannot be {value!r}")


_CLASSES: Final[tuple[tuple[Any, str], ...]] = (
    (DType, "type"),
    (int | np.integer, "int"),
    (float | np.floating, "float"),
    (str | bytes, "string"),
    (TensorShape, "shape"),
    (np.ndarray, "tensor"),
    (NameAttrs, "func"),
)


def declared_kind(op_def: OpDef, name: str, value: Any) -> str:
    """Return the type of an attribute: the declared one, or else the type the value implies."""
    attr = op_def.attrs.get(name)
    return attr.type if attr is not None else kind_of(value)


def tensor_dtype(array: np.ndarray, attrs: dict[str, Any]) -> DType:
    """Return the element type of a tensor attribute.

    The array of a quantized constant has plain integers; only the attribute `dtype` has the type.
    """
    dtype = attrs.get("dtype")
    if isinstance(dtype, DType) and dtype.numpy == array.dtype:
        return dtype
    return dtypes.from_numpy(array.dtype)


# ------------------------------------------------------------------------ to messages


def shape_to_proto(dims: Dims) -> proto.TensorShapeProto:
    """Convert a static shape to a TensorShapeProto."""
    if dims is None:
        return proto.TensorShapeProto(unknown_rank=True)
    message = proto.TensorShapeProto()
    for size in dims:
        message.dim.add(size=-1 if size is None else size)
    return message


writers.register("TensorShapeProto", shape_to_proto)


def attr_to_proto(value: Any, kind: str, attrs: dict[str, Any]) -> proto.AttrValue:
    """Convert an attribute value to an AttrValue.

    Args:
      kind: type of the attribute, such as "int" or "list(shape)".
      attrs: all attributes of the node.
    """
    message = proto.AttrValue()
    fill_attr(message, value, kind, attrs)
    return message


def fill_attr(message: proto.AttrValue, value: Any, kind: str, attrs: dict[str, Any]) -> None:
    """Write an attribute value to an empty AttrValue; see `attr_to_proto`.

    Large tensors are not copied from another message.
    """
    if kind.startswith("list("):
        message.list.SetInParent()
        inner = kind[5:-1]
        for item in value:
            getattr(message.list, FIELD[inner]).append(_scalar_to_proto(item, inner, attrs))
    elif kind == "tensor":
        fill_tensor(message.tensor, value, tensor_dtype(value, attrs))
    elif kind in ("shape", "func"):
        getattr(message, FIELD[kind]).CopyFrom(_scalar_to_proto(value, kind, attrs))
    else:
        setattr(message, FIELD[kind], _scalar_to_proto(value, kind, attrs))


def _scalar_to_proto(value: Any, kind: str, attrs: dict[str, Any]) -> Any:
    if kind == "type":
        return value.as_datatype_enum
    if kind == "string":
        return value.encode() if isinstance(value, str) else value
    if kind == "shape":
        return shape_to_proto(as_dims(value))
    if kind == "tensor":
        return array_to_proto(value, tensor_dtype(value, attrs))
    if kind == "func":
        return _func_to_proto(as_name_attrs(value))
    return value


def _func_to_proto(func: NameAttrs) -> proto.NameAttrList:
    message = proto.NameAttrList(name=func.name)
    for key, value in func.attrs.items():
        message.attr[key].CopyFrom(attr_to_proto(value, kind_of(value), func.attrs))
    return message


# ---------------------------------------------------------------------- from messages


def shape_from_proto(message: proto.TensorShapeProto, location: str) -> Dims:
    """Return the static shape of a TensorShapeProto.

    Raises: InvalidArgumentError: a size is below -1.
    """
    if message.unknown_rank:
        return None
    sizes = [dim.size for dim in message.dim]
    if any(size < -1 for size in sizes):
        raise errors.InvalidArgumentError(f"{location}: sizes must be -1 or more, got {sizes}")
    return tuple([None if size == -1 else size for size in sizes])


def attr_from_proto(
    message: proto.AttrValue, kind: str | None, location: str, budget: Budget, depth: int = 0
) -> Any:
    """Return the value of an AttrValue.

    Args:
      kind: declared type of the attribute, or None.
      location: description of the message to read, for error messages.
      budget: limit of the bytes of expanded repeated values.
    Raises: InvalidArgumentError: it has another type, or is empty.
    """
    which_oneof = message.WhichOneof("value")
    if which_oneof is None or which_oneof == "placeholder":
        raise errors.InvalidArgumentError(
            f"{location}: a value is required, got {which_oneof or 'none'}"
        )
    if kind is not None:
        expected = "list" if kind.startswith("list(") else FIELD[kind]
        if which_oneof != expected:
            raise errors.InvalidArgumentError(
                f"{location} must be of type {kind}, got {which_oneof!r}"
            )
    if which_oneof != "list":
        return _scalar_from_proto(
            getattr(message, which_oneof), which_oneof, kind, location, budget, depth
        )
    filled = [field.name for field, _ in message.list.ListFields()]
    inner = None if kind is None else kind[5:-1]
    if len(filled) > 1 or (filled and inner is not None and filled[0] != FIELD[inner]):
        raise errors.InvalidArgumentError(
            f"{location} must be of type {kind or 'list'}, got a list of {', '.join(filled)}"
        )
    if not filled:
        return ()
    return tuple(
        _scalar_from_proto(item, filled[0], inner, location, budget, depth)
        for item in getattr(message.list, filled[0])
    )


def _scalar_from_proto(
    value: Any, field: str, kind: str | None, location: str, budget: Budget, depth: int
) -> Any:
    if field == "type":
        return dtype_from_proto(value, location)
    if field == "s":
        return _text(value)
    if field == "shape":
        dims = shape_from_proto(value, location)
        return TensorShape(dims) if kind is None else dims
    if field == "tensor":
        array = array_from_proto(value, location, budget)
        array.flags.writeable = False
        return array
    if field == "func":
        if depth >= _MAX_DEPTH:
            raise errors.InvalidArgumentError(f"{location}: functions are nested too deeply")
        attrs = {
            key: attr_from_proto(
                attr, None, f"{location}, {key} of {value.name}", budget, depth + 1
            )
            for key, attr in value.attr.items()
        }
        return NameAttrs(value.name, attrs)
    return value


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value

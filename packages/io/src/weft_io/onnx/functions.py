"""Ops that ONNX defines in terms of other ops, and the defaults of attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import onnx
from onnx import FunctionProto, GraphProto, NodeProto, TypeProto, defs

from weft_io.onnx.values import Values, type_and_shape
from weft_tensor import errors
from weft_tensor.nesting import format_value
from weft_tensor.shape import format_dims

_KINDS: Final[Mapping[str, Any]] = {
    "FLOAT": (float, int),
    "INT": int,
    "STRING": str,
    "TENSOR": np.ndarray,
    "SPARSE_TENSOR": np.ndarray,
    "GRAPH": GraphProto,
    "TYPE_PROTO": TypeProto,
}
"""Python types of attribute values; for plural types, of the list items."""


@cache
def _schema(domain: str, op: str, version: int) -> Any:
    try:
        return defs.get_schema(op, version, domain)
    except defs.SchemaError:
        return None


@cache
def defaults(domain: str, op: str, version: int) -> Mapping[str, Any]:
    """Return the optional attributes of an op with their defaults."""
    schema = _schema(domain, op, version)
    if schema is None:
        return {}
    read = Values(None)
    return {
        name: read.attribute(item.default_value)
        for name, item in schema.attributes.items()
        if item.default_value.name
    }


def check_types(domain: str, op: str, version: int, attributes: Mapping[str, Any]) -> None:
    """Raise InvalidArgumentError if the type of an attribute differs from ONNX's declaration."""
    expected = _types(domain, op, version)
    for name, value in attributes.items():
        if name in expected and not _is_of(value, expected[name]):
            raise errors.InvalidArgumentError(
                f"the attribute {name!r} must be of the type {expected[name]}, "
                f"got {format_value(value)}"
            )


@cache
def _types(domain: str, op: str, version: int) -> Mapping[str, str]:
    schema = _schema(domain, op, version)
    if schema is None:
        return {}
    return {name: item.type.name for name, item in schema.attributes.items()}


def _is_of(value: Any, kind: str) -> bool:
    """Return True if a decoded value has the given attribute type of ONNX."""
    if kind in _KINDS:
        return isinstance(value, _KINDS[kind])
    if isinstance(value, list) and kind[:-1] in _KINDS:
        return all(isinstance(item, _KINDS[kind[:-1]]) for item in value[:1])
    return False


def is_defined(domain: str, op: str, version: int) -> bool:
    """Return True if ONNX defines an op in terms of other ops."""
    schema = _schema(domain, op, version)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def body(
    node: NodeProto,
    domain: str,
    version: int,
    inputs: Sequence[TypeProto],
    attributes: Mapping[str, Any],
) -> FunctionProto:
    """Return the function that defines a node's op.

    Args:
      inputs: their types, empty for omitted ones.
      attributes: attributes of the node, with references replaced by attributes of the enclosing
        function.
    Raises: UnimplementedError: ONNX has no definition for these input types.
    """
    schema = _schema(domain, node.op_type, version)
    function = FunctionProto()
    if schema.has_context_dependent_function:
        opset = _newest(schema.context_dependent_function_opset_versions, version)
        types = [item.SerializeToString() for item in inputs]
        data = schema.get_context_dependent_function_with_opset_version(
            opset, _resolve(node, attributes).SerializeToString(), types
        )
        function.ParseFromString(data)
    else:
        opset = _newest(schema.function_opset_versions, version)
        function.ParseFromString(schema.get_function_with_opset_version(opset))
    if not function.node:
        shapes = ", ".join(_shape_text(item) for item in inputs)
        raise errors.UnimplementedError(
            f"{node.op_type} is not defined for these inputs; its definition may require known "
            f"shapes, got {shapes}"
        )
    declared_names = {item.name for item in function.attribute_proto}
    for name, item in schema.attributes.items():
        if name not in declared_names and item.default_value.name:
            function.attribute_proto.append(item.default_value)
    return function


def _shape_text(kind: TypeProto) -> str:
    """Return the shape of a tensor type for messages, with "?" for unknown sizes."""
    if not kind.HasField("tensor_type"):
        return "no tensor"
    dims = type_and_shape(kind)[1]
    return format_dims(None if dims is None else tuple(dims))


def _resolve(node: NodeProto, attributes: Mapping[str, Any]) -> NodeProto:
    """Return the node with attribute references replaced by their values."""
    if not any(item.ref_attr_name for item in node.attribute):
        return node
    result = NodeProto()
    result.CopyFrom(node)
    del result.attribute[:]
    result.attribute.extend(onnx.helper.make_attribute(*item) for item in attributes.items())
    return result


def _newest(versions: Sequence[int], limit: int) -> int:
    """Return the newest version up to a limit; the oldest one if all exceed it."""
    return max((item for item in versions if item <= limit), default=min(versions, default=limit))

"""Symbolic equality of integers in an ONNX graph, derived from their producers."""

from __future__ import annotations

from typing import Any, Final

from weft_io.onnx.export_graph import Value

Number = tuple[Any, int]
"""A base, from `_key`, plus an offset; the base of a known number is None."""

_OF_SHAPES: Final = frozenset(
    {"Cast", "Gather", "Identity", "Reshape", "Shape", "Slice", "Squeeze"}
)
_DEEP: Final = 8
"""Maximum number of nodes between a shape and a size computed from it."""


def number(value: Value | None) -> Number:
    """Return a single integer as a base and an offset."""
    total = 0
    while value is not None and value.array is None and (node := value.producer) is not None:
        first = node.inputs[0] if node.inputs else None
        second = node.inputs[1] if len(node.inputs) > 1 else None
        constant = None if second is None else _constant_integer(second)
        if node.op in ("Add", "Sub") and constant is not None:
            total += constant if node.op == "Add" else -constant
        elif node.op not in ("Identity", "Reshape", "Cast") or not _is_integer(first):
            break
        value = first
    constant = None if value is None else _constant_integer(value)
    return (_key(value), total) if constant is None else (None, total + constant)


def _key(value: Value | None, depth: int = _DEEP) -> Any:
    """Return a key that is equal for sizes computed in the same way, or else the value."""
    node = None if value is None else value.producer
    if value is not None and (result := _axis(value)) is not None:
        return result
    if value is not None and value.array is not None:
        return value.dtype.name, value.array.shape, value.array.tobytes()
    if node is None or node.op not in _OF_SHAPES or not depth:
        return value
    attributes = tuple((name, repr(item)) for name, item in sorted(node.attributes.items()))
    return node.op, attributes, *(_key(item, depth - 1) for item in node.inputs)


def size(value: Value, axis: int) -> Number:
    """Return the length of an axis, in the form of `number`."""
    dims = value.dims if value.array is None else value.array.shape
    known_size = None if dims is None else dims[axis]
    if known_size is not None:
        return None, known_size
    return _origin(value, axis), 0


def _origin(value: Value, axis: int) -> tuple[str, Value, int]:
    """Return the earliest value that has an axis of the same length."""
    while value.producer is not None and value.producer.op in ("Cast", "Identity", "Transpose"):
        node = value.producer
        if node.op == "Transpose":
            axis = node.attributes["perm"][axis]
        assert node.inputs[0] is not None
        value = node.inputs[0]
    return "size", value, axis


def _axis(value: Value) -> tuple[str, Value, int] | None:
    """Return the axis whose length an integer is, or None."""
    while (node := value.producer) and node.op in ("Cast", "Identity", "Reshape", "Squeeze"):
        assert node.inputs[0] is not None
        value = node.inputs[0]
    picked = value.producer
    if picked is None or picked.op not in ("Gather", "Slice"):
        return None
    bounds = [_constant_integer(item) for item in picked.inputs[1:] if item is not None]
    axis = bounds[0] if bounds else None
    if axis is None or axis < 0 or picked.attributes.get("axis", 0):
        return None
    if picked.op == "Slice" and bounds[1:] not in ([axis + 1], [axis + 1, 0], [axis + 1, 0, 1]):
        return None
    sizes = picked.inputs[0]
    node = None if sizes is None else sizes.producer
    while node is not None and node.op in ("Cast", "Identity"):
        sizes = node.inputs[0]
        node = None if sizes is None else sizes.producer
    if node is None or node.op != "Shape" or node.attributes:
        return None
    assert node.inputs[0] is not None
    return _origin(node.inputs[0], axis)


def _is_integer(value: Value | None) -> bool:
    return value is not None and value.dtype.is_integer


def _constant_integer(value: Value) -> int | None:
    """Return a single integer if it is known."""
    result = value.array
    return (
        int(result.item())
        if result is not None and result.size == 1 and _is_integer(value)
        else None
    )

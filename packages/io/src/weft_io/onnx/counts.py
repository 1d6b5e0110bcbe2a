"""Symbolic equality of integers in an ONNX graph, derived from their producers."""

from __future__ import annotations

from typing import Any, Final

from weft_io.onnx.node_export import Value

Number = tuple[Any, int]
"""A base, from `_key`, and an offset added to it; the base of a known number is None."""

_OF_SHAPES: Final = frozenset(
    {"Cast", "Gather", "Identity", "Reshape", "Shape", "Slice", "Squeeze"}
)
_DEEP: Final = 8
"""Nodes from a shape to one size of it, at the most."""


def number(value: Value | None) -> Number:
    """Return a single integer as base and offset."""
    total = 0
    while value is not None and value.array is None and (made := value.made) is not None:
        first = made.inputs[0] if made.inputs else None
        second = made.inputs[1] if len(made.inputs) > 1 else None
        known = None if second is None else _known(second)
        if made.op in ("Add", "Sub") and known is not None:
            total += known if made.op == "Add" else -known
        elif made.op not in ("Identity", "Reshape", "Cast") or not _is_integer(first):
            break
        value = first
    known = None if value is None else _known(value)
    return (_key(value), total) if known is None else (None, total + known)


def _key(value: Value | None, depth: int = _DEEP) -> Any:
    """Return a key that is equal for sizes computed in the same way, or else the value itself."""
    made = None if value is None else value.made
    if value is not None and (found := _axis(value)) is not None:
        return found
    if value is not None and value.array is not None:
        return value.dtype.name, value.array.shape, value.array.tobytes()
    if made is None or made.op not in _OF_SHAPES or not depth:
        return value
    attributes = tuple((name, repr(each)) for name, each in sorted(made.attributes.items()))
    return made.op, attributes, *(_key(each, depth - 1) for each in made.inputs)


def size(value: Value, axis: int) -> Number:
    """Return the length of an axis, in the form of `number`."""
    dims = value.dims if value.array is None else value.array.shape
    known = None if dims is None else dims[axis]
    if known is not None:
        return None, known
    return _origin(value, axis), 0


def _origin(value: Value, axis: int) -> tuple[str, Value, int]:
    """Return the first value that has an axis of the same length."""
    while value.made is not None and value.made.op in ("Cast", "Identity", "Transpose"):
        made = value.made
        if made.op == "Transpose":
            axis = made.attributes["perm"][axis]
        assert made.inputs[0] is not None
        value = made.inputs[0]
    return "size", value, axis


def _axis(value: Value) -> tuple[str, Value, int] | None:
    """Return the axis whose length a single integer is."""
    while value.made is not None and value.made.op in ("Cast", "Identity", "Reshape", "Squeeze"):
        assert value.made.inputs[0] is not None
        value = value.made.inputs[0]
    picked = value.made
    if picked is None or picked.op not in ("Gather", "Slice"):
        return None
    bounds = [_known(each) for each in picked.inputs[1:] if each is not None]
    axis = bounds[0] if bounds else None
    if axis is None or axis < 0 or picked.attributes.get("axis", 0):
        return None
    if picked.op == "Slice" and bounds[1:] not in ([axis + 1], [axis + 1, 0], [axis + 1, 0, 1]):
        return None
    sizes = picked.inputs[0]
    while sizes is not None and sizes.made is not None and sizes.made.op in ("Cast", "Identity"):
        sizes = sizes.made.inputs[0]
    if sizes is None or sizes.made is None or sizes.made.op != "Shape" or sizes.made.attributes:
        return None
    assert sizes.made.inputs[0] is not None
    return _origin(sizes.made.inputs[0], axis)


def _is_integer(value: Value | None) -> bool:
    return value is not None and value.dtype.is_integer


def _known(value: Value) -> int | None:
    """Return a single integer that is known."""
    found = value.array
    return (
        int(found.item()) if found is not None and found.size == 1 and _is_integer(value) else None
    )

"""Value rules of the ops in `array` and `shapes`, for static values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft_graph.ir.node import Node
from weft_graph.ir.op_def import Array, ValueRule, Values
from weft_graph.ir.value_rules import MAX_ELEMENTS, arrays, is_object, value_rule
from weft_tensor.shape import broadcast_dims, num_elements


@value_rule(needs=())
def const_value(node: Node, index: int, values: Values) -> Array | None:
    """Return the attribute `value`."""
    value: Array = node.attrs["value"]
    return value if value.size <= MAX_ELEMENTS else None


@value_rule(needs=(), uses_shape=True)
def shape_value(node: Node, index: int, values: Values) -> Array | None:
    """Return the static shape."""
    dims = node.inputs[index].dims
    if dims is None:
        return None
    return np.array(dims, object if None in dims else np.int64)


def full_value(make: Callable[..., Array]) -> ValueRule:
    """Return zeros or ones of the output's static shape."""

    @value_rule(needs=(), uses_shape=True)
    def evaluate(node: Node, index: int, values: Values) -> Array | None:
        output = node.outputs[0]
        count = num_elements(output.dims)
        if count is None or count > MAX_ELEMENTS or is_object(output):
            return None
        return make(output.dims, output.dtype.numpy)

    return evaluate


@value_rule(needs=(), uses_shape=True)
def size_value(node: Node, index: int, values: Values) -> Array | None:
    """Return the number of elements."""
    count = num_elements(node.inputs[0].dims)
    return None if count is None else np.array(count)


@value_rule(needs=(), uses_shape=True)
def rank_value(node: Node, index: int, values: Values) -> Array | None:
    """Return the number of axes."""
    dims = node.inputs[0].dims
    return None if dims is None else np.array(len(dims))


@value_rule(partial=True)
def reshape_value(node: Node, index: int, values: Values) -> Array | None:
    """Return the first input in the shape of the second."""
    value, shape = arrays(values)
    return value.reshape([int(n) for n in shape.tolist()])


@value_rule(partial=True)
def expand_value(node: Node, index: int, values: Values) -> Array | None:
    """Return the value with an additional axis of size 1."""
    value, axis = arrays(values)
    return np.expand_dims(value, int(axis.reshape(-1)[0]))


@value_rule(partial=True)
def squeeze_value(node: Node, index: int, values: Values) -> Array | None:
    """Return the value without axes of size 1."""
    axes = node.attrs["squeeze_dims"]
    return np.squeeze(arrays(values)[0], tuple(axes) or None)


@value_rule(partial=True)
def fill_value(node: Node, index: int, values: Values) -> Array | None:
    """Return an array of a shape filled with one value."""
    dims, value = arrays(values)
    sizes = [int(n) for n in dims.tolist()]
    if (num_elements(tuple(sizes)) or 0) > MAX_ELEMENTS:
        return None
    return np.full(sizes, value.reshape(-1)[0], value.dtype)


@value_rule()
def broadcast_to_value(node: Node, index: int, values: Values) -> Array | None:
    """Return the first input repeated to fill the shape."""
    value, shape = arrays(values)
    dims = [int(n) for n in shape.tolist()]
    if (num_elements(tuple(dims)) or 0) > MAX_ELEMENTS:
        return None
    return np.broadcast_to(value, dims)


@value_rule(partial=True)
def broadcast_args_value(node: Node, index: int, values: Values) -> Array | None:
    """Return the shape that two shapes broadcast to."""
    a, b = [tuple(value.tolist()) for value in arrays(values)]
    dims = broadcast_dims(a, b)
    assert dims is not None
    return np.array(dims, object if None in dims else np.int64)


@value_rule()
def gradient_axes_value(node: Node, index: int, values: Values) -> Array | None:
    """Return the axes along which one of two shapes is repeated."""
    shapes = [tuple(value.tolist()) for value in arrays(values)]
    broadcast = broadcast_dims(*shapes)
    assert broadcast is not None
    return np.array(repeated_axes(shapes[index], broadcast), np.int64)


def repeated_axes(shape: Sequence[int], broadcast: Sequence[int | None]) -> list[int]:
    """Return the axes along which a shape is repeated when it broadcasts to another."""
    lead = len(broadcast) - len(shape)
    return [i for i, n in enumerate(broadcast) if i < lead or (shape[i - lead] == 1 and n != 1)]

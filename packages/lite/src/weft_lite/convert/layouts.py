"""NCHW images, for ops that the runtime supports only in NHWC.

    y = MaxPool(x), NCHW   →   y = Transpose(MaxPool(Transpose(x)))

If the next op has the same layout, the transposition of a result is undone without an op. It is
removed if nothing else reads it.
"""

from __future__ import annotations

from typing import Any, Final

from weft_graph.ir.node import Node, Output
from weft_lite.convert.errors import NotInLiteError
from weft_lite.convert.lowered import Value
from weft_lite.convert.registry import Builder, OpKind

NHWC: Final = "NHWC"
NCHW: Final = "NCHW"

_TO_NHWC: Final = (0, 2, 3, 1)
_TO_NCHW: Final = (0, 3, 1, 2)


def layout(node: Node) -> str:
    """Return the layout of a node's images.

    Raises: NotInLiteError: lite does not support the layout.
    """
    name = str(node.attrs.get("data_format", NHWC))
    if name not in (NHWC, NCHW):
        raise NotInLiteError(f"lite computes images in the layouts NHWC and NCHW, got {name}")
    return name


def spatial(node: Node, values: Any) -> tuple[int, int]:
    """Return the values for height and width of an attribute with one value per axis."""
    first = 1 if layout(node) == NHWC else 2
    return int(values[first]), int(values[first + 1])


def explicit_pads(node: Node) -> list[int]:
    """Return the explicit padding of height and width, before and after each."""
    first = 2 if layout(node) == NHWC else 4
    return [int(pad) for pad in node.attrs["explicit_paddings"][first : first + 4]]


def image(b: Builder, node: Node, output: Output) -> Value:
    """Return an input of a node, converted to channels last."""
    value = b.value(output)
    if layout(node) == NHWC:
        return value
    if value not in b.channels_last:
        b.channels_last[value] = _transpose(b, value, _TO_NHWC, f"{value.name}/nhwc")
    return b.channels_last[value]


def emit_image(
    b: Builder, kind: OpKind, node: Node, inputs: list[Value | None], options: Any = None
) -> None:
    """Add an op on images with channels last; its result is the first output of a node."""
    if layout(node) == NHWC:
        b.add(kind, inputs, [b.result(node.outputs[0])], options, node.name)
    else:
        _emit_transposed(b, kind, node, inputs, options)


def emit_elementwise(
    b: Builder, kind: OpKind, node: Node, inputs: list[Value | None], options: Any = None
) -> None:
    """Add an elementwise op; if its NCHW operands have NHWC equivalents, apply it to these."""
    counterparts = [b.channels_last.get(value) if value is not None else None for value in inputs]
    shapes = {value.shape for value in inputs if value is not None}
    if len(shapes) == 1 and all(counterpart is not None for counterpart in counterparts):
        _emit_transposed(b, kind, node, counterparts, options)
    else:
        b.emit(kind, node, inputs, options)


def _emit_transposed(
    b: Builder, kind: OpKind, node: Node, inputs: list[Value | None], options: Any
) -> None:
    """Add an op in NHWC, and a Transpose of its result to NCHW."""
    result = b.result(node.outputs[0])
    inside = _new_permuted_value(result, _TO_NHWC, f"{result.name}/nhwc")
    b.add(kind, inputs, [inside], options, node.name)
    order = b.ints(f"{node.name}/nchw", _TO_NCHW)
    b.add(OpKind.Transpose, [inside, order], [result], None, node.name)
    b.channels_last[result] = inside


def _transpose(b: Builder, value: Value, order: tuple[int, ...], name: str) -> Value:
    """Add a Transpose of a value."""
    result = _new_permuted_value(value, order, name)
    b.add(OpKind.Transpose, [value, b.ints(f"{name}/order", order)], [result], None, name)
    return result


def _new_permuted_value(value: Value, order: tuple[int, ...], name: str) -> Value:
    """Return a new value with permuted shape."""
    shape, declared = (
        tuple(sizes[axis] for axis in order) for sizes in (value.shape, value.declared)
    )
    return Value(name, value.dtype, shape, declared)

"""Reductions, and normalization along an axis."""

from __future__ import annotations

from weft_graph.ir.node import Node
from weft_lite.convert.registry import Builder, OpKind, rule
from weft_lite.schema.tables import AxisOptions, ReduceOptions, ResizeOptions


@rule("Sum", "Mean", "Max", "Min", "Prod", "All", "Any")
def reduce(node: Node, b: Builder) -> None:
    """Lower to the reduction of the same name."""
    options = ReduceOptions(keep_dims=bool(node.attrs["keep_dims"]))
    b.emit(OpKind[node.type], node, b.inputs(node), options)


@rule("ArgMax", "ArgMin")
def arg_max(node: Node, b: Builder) -> None:
    """Lower to ArgMax or ArgMin."""
    b.emit(OpKind[node.type], node, b.inputs(node))


@rule("TopKV2")
def top_k(node: Node, b: Builder) -> None:
    """Lower to TopK."""
    b.emit(OpKind.TopK, node, b.inputs(node))


@rule("Cumsum")
def cumsum(node: Node, b: Builder) -> None:
    """Lower to Cumsum."""
    exclusive, reverse = bool(node.attrs["exclusive"]), bool(node.attrs["reverse"])
    options = ReduceOptions(exclusive=exclusive, reverse=reverse)
    b.emit(OpKind.Cumsum, node, b.inputs(node), options)


@rule("Softmax", "LogSoftmax")
def softmax(node: Node, b: Builder) -> None:
    """Lower to Softmax or LogSoftmax over the last axis."""
    b.emit(OpKind[node.type], node, b.inputs(node), AxisOptions(-1, beta=1.0))


@rule("ResizeBilinear", "ResizeNearestNeighbor")
def resize(node: Node, b: Builder) -> None:
    """Lower to ResizeBilinear or ResizeNearest."""
    kind = OpKind.ResizeBilinear if node.type == "ResizeBilinear" else OpKind.ResizeNearest
    corners, centers = bool(node.attrs["align_corners"]), bool(node.attrs["half_pixel_centers"])
    b.emit(kind, node, b.inputs(node), ResizeOptions(corners, centers))

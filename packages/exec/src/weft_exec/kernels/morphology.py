"""Kernels of grayscale morphology, with one pass for each tap of the filter."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import accumulation_dtype, widen_value
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.kernels.sums import sum_axes
from weft_exec.kernels.window_functions import Array, tap_slices
from weft_graph.ops.windows import slide
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Place = tuple[Any, ...]


class _Dilation:
    """The dilation of one image, and the tap with the maximum of each window.

    Attributes:
      places: for each tap, its position in the filter and the indices of windows and inputs.
      best: the maximum of each window plus the filter.
      argmax_tap: the number of the first tap with the maximum, in the shape of `best`.
    """

    def __init__(self, node: Node, x: Any, taps: Any) -> None:
        op, attrs = node.type, node.attrs
        if x.ndim != 4 or taps.ndim != 3 or x.shape[3] != taps.shape[2]:
            raise errors.InvalidArgumentError(
                f"{op} requires an input of shape [N, H, W, C] and a filter of shape [KH, KW, C], "
                f"got {list(x.shape)} and {list(taps.shape)}"
            )
        size, window = x.shape[1:3], taps.shape[:2]
        strides, rates = attrs["strides"][1:3], attrs["rates"][1:3]
        result = [
            slide(n, k, s, r, attrs["padding"])
            for n, k, s, r in zip(size, window, strides, rates, strict=True)
        ]
        self.counts = (x.shape[0], result[0][0], result[1][0], x.shape[3])
        self.places: list[tuple[Place, Place, Place]] = []
        for tap in product(range(window[0]), range(window[1])):
            rows, columns = (
                tap_slices(tap[i] * rates[i], size[i], strides[i], result[i][1], result[i][0])
                for i in range(2)
            )
            outs, ins = ((slice(None), r, c) for r, c in zip(rows, columns, strict=True))
            self.places.append((tap, outs, ins))
        self._fold(x, taps)

    def _fold(self, x: Array, taps: Array) -> None:
        integer = x.dtype.kind in "iu"
        self.best = np.full(self.counts, np.iinfo(x.dtype).min if integer else -np.inf, x.dtype)
        self.argmax_tap = np.full(self.counts, -1, np.int32)
        for number, (tap, outs, ins) in enumerate(self.places):
            value = x[ins] + taps[tap]
            view, mark = self.best[outs], self.argmax_tap[outs]
            better = value > view
            np.copyto(view, value, where=better)
            mark[better] = number

    def require(self, op: str, grad: Any) -> None:
        if grad.shape != self.counts:
            raise errors.InvalidArgumentError(
                f"{op} requires out_backprop of shape {list(self.counts)}, got {list(grad.shape)}"
            )


@kernel("Dilation2D", heavy=True)
def _dilation(node: Node, device: Device) -> KernelFunction:
    exact = node.outputs[0].dtype.numpy

    def run(x: Any, taps: Any) -> Any:
        dilation = _Dilation(node, widen_value(x), widen_value(taps))
        return dilation.best.astype(exact, copy=False)

    return run


@kernel("Dilation2DBackpropInput", "Dilation2DBackpropFilter", heavy=True)
def _gradient(node: Node, device: Device) -> KernelFunction:
    op, dtype = node.type, node.outputs[0].dtype
    by_input = op.endswith("Input")

    def run(x: Any, taps: Any, grad: Any) -> Any:
        dilation = _Dilation(node, widen_value(x), widen_value(taps))
        dilation.require(op, grad)
        result = np.zeros((x if by_input else taps).shape, accumulation_dtype(dtype))
        for number, (tap, outs, ins) in enumerate(dilation.places):
            part = np.where(
                dilation.argmax_tap[outs] == number, widen_value(grad[outs]), result.dtype.type(0)
            )
            if by_input:
                result[ins] += part
            else:
                result[tap] = sum_axes(part, 0, 3)
        return result.astype(dtype.numpy, copy=False)

    return run

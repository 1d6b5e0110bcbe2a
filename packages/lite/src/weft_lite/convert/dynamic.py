"""Dynamic quantization: products of int8 weights and activations quantized at run time.

Weights have a scale per channel. Each input row of a dense layer has its own scale, and each input
row of a recurrent cell has one for the input and one for the state. Each input image of a
convolution has its own scale, computed by a preceding op.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from weft_lite.convert.lowered import Array, Operation, Value, constant
from weft_lite.convert.packing import panels4, unpack_panels
from weft_lite.schema.enums import DataType, Layout, OpKind

CELLS: Final = {OpKind.LstmCell: (3,), OpKind.GruCell: (2, 4)}
"""Recurrent cells, with the positions of their weights; a bias follows each."""

CONVOLUTIONS: Final = {OpKind.Conv2D: (1,), OpKind.DepthwiseConv2D: (1,)}
PRODUCTS: Final = {**CONVOLUTIONS, **CELLS, OpKind.FullyConnected: (1,)}
"""Ops that can multiply int8 numbers, with the positions of their weights."""

MIN_SIZE: Final = 256
"""Number of elements below which a constant is not quantized."""


def is_large(value: Value | None) -> bool:
    """Return True if a value is a float constant that is large enough to quantize."""
    array = value.array if value is not None and value.dtype is DataType.FLOAT32 else None
    return array is not None and array.size >= MIN_SIZE


def quantize_axes(numbers: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Quantize numbers to int8, with a common scale along `axes`; return both."""
    limit = np.abs(numbers).max(axis=axes, keepdims=True, initial=0)
    scales = np.where(limit > 1e-30, limit / 127, 1.0).astype(np.float32)
    return np.clip(np.rint(numbers / scales), -127, 127).astype(np.int8), scales.reshape(-1)


class Int8Products:
    """Pass that converts the products of a graph and its bodies to int8 products.

    Shared weights remain shared.

    Args:
      kinds: the kinds of products to change.
      names: names of
      results that are not changed.
    Attributes:
      changed: the results of the changed products.
    """

    def __init__(self, kinds: Collection[OpKind] = tuple(PRODUCTS), names: Collection[str] = ()):
        self._kinds, self._float_names = kinds, names
        self._weights: dict[Value, Value] = {}
        self.changed: set[Value] = set()

    def ops(self, ops: Sequence[Operation]) -> list[Operation]:
        """Return the ops of a graph or body, with products converted and the required ops added."""
        operations: list[Operation] = []
        images: dict[Value, tuple[Value, Value]] = {}
        for op in ops:
            if not self._is_candidate(op):
                operations.append(op)
                continue
            inputs = list(op.inputs)
            for position in PRODUCTS[op.kind]:
                inputs[position] = self._small(op, position)
            x = inputs[0]
            assert x is not None
            if op.kind in CONVOLUTIONS:
                if x not in images:
                    images[x] = _image(x, operations)
                inputs = [images[x][0], *inputs[1:], *[None] * (3 - len(inputs)), images[x][1]]
            self.changed.update(op.outputs)
            operations.append(Operation(op.kind, inputs, op.outputs, op.options, op.name))
        return operations

    def _is_candidate(self, op: Operation) -> bool:
        """Return True if an op multiplies large float weights and may be converted."""
        if op.kind not in self._kinds or any(out.name in self._float_names for out in op.outputs):
            return False
        x = op.inputs[0]
        return (
            x is not None
            and x.dtype is DataType.FLOAT32
            and all(is_large(op.inputs[position]) for position in PRODUCTS[op.kind])
        )

    def _small(self, op: Operation, position: int) -> Value:
        """Return the int8 form of a product's weights, which products may share."""
        x, weights = op.inputs[0], op.inputs[position]
        assert x is not None
        assert weights is not None
        if weights not in self._weights:
            self._weights[weights] = _weights(op, weights, position, x.shape[-1])
        return self._weights[weights]


def _weights(op: Operation, weights: Value, position: int, depth: int) -> Value:
    """Quantize weights to int8, in the layout of int8 products."""
    assert weights.array is not None
    if op.kind is OpKind.DepthwiseConv2D:
        numbers, scales = quantize_axes(weights.array, (0, 1))
        stored = constant(weights.name, numbers)
        stored.axis = 2
    else:
        bias = op.inputs[position + 1] if op.kind in CELLS else None
        columns = op.outputs[0].shape[-1] if bias is None else bias.shape[0]
        numbers, scales = quantize_axes(unpack_panels(weights.array, columns), (0, 1))
        halves = [numbers[:, :depth], numbers[:, depth:]] if op.kind in CELLS else [numbers]
        packed = np.concatenate([panels4(half) for half in halves], axis=2)
        stored = constant(weights.name, packed, Layout.PANELS4)
    stored.scales = scales.tolist()
    return stored


def _image(x: Value, ops: list[Operation]) -> tuple[Value, Value]:
    """Add an op that quantizes images to int8; return its results and their scales."""
    value = Value(f"{x.name}/bytes", DataType.INT8, x.shape, x.declared)
    scales = Value(f"{x.name}/scales", DataType.FLOAT32, x.shape[:1], x.declared[:1])
    ops.append(
        Operation(OpKind.DynamicQuantize, [x], [value, scales], None, f"{x.name}/dynamic_quantize")
    )
    return value, scales

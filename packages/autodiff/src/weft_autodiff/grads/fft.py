"""Gradients of Fourier transforms: the inverse transform, scaled by the number of elements.

A transform of real numbers stores half of the spectrum: each frequency represents itself and its
conjugate, except 0 and, for an even length, the last one.
"""

from __future__ import annotations

import numpy as np

from weft_autodiff.grads.common import div, minus, mul, scalar_like
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import constant_of, out
from weft_graph.ir.node import Node, Output
from weft_graph.ops.fft import shape_of
from weft_graph.ops.shape_rules import constant_array

Gradients = list[Output | None]


def _count(sizes: np.ndarray | Output, like: Output) -> Output:
    """Return the number of elements that are transformed together, in the type of `like`."""
    if isinstance(sizes, np.ndarray):
        return scalar_like(float(np.prod(sizes, dtype=np.float64)), like)
    real = out("Cast", [sizes], {"DstT": like.dtype.real_dtype})
    count = out("Prod", [real, constant_of(np.array([0], np.int32))])
    return out("Cast", [count], {"DstT": like.dtype.base_dtype})


def _lengths(node: Node) -> np.ndarray | Output:
    lengths = constant_array(node.inputs[1])
    return node.inputs[1] if lengths is None else lengths


def _frequency_weights(node: Node, like: Output) -> Output:
    """Return 2 for each frequency that represents two, else 1, for the last transformed axis."""
    length = node.inputs[1][-1]
    half = out("AddV2", [out("FloorDiv", [length, 2]), 1])
    doubled = out("Range", [0, out("Mul", [2, half]), 2])
    is_unpaired = out("Equal", [out("FloorMod", [doubled, out("Maximum", [length, 1])]), 0])
    factors = minus(2, out("Cast", [is_unpaired], {"DstT": like.dtype.base_dtype}))
    if len(node.inputs) == 2:
        return factors
    rank = out("Rank", [like])
    last = out("FloorMod", [node.inputs[2][-1:], rank])
    unit_shape = out("Fill", [out("Pack", [[rank]]), 1])
    size = out("Pack", [[half]])
    shape = out("TensorScatterUpdate", [unit_shape, out("ExpandDims", [last, 1]), size])
    return out("Reshape", [factors, shape])


def _pad_to_input(grad: Output, node: Node) -> Output:
    """Return the gradient, with zeros for elements that the transform does not read."""
    x = node.inputs[0]
    if None not in (grad.dims or (None,)) and grad.dims == x.dims:
        return grad
    lack = out("Sub", [out("Shape", [x]), out("Shape", [grad])])
    return out("Pad", [grad, out("Pack", [[out("ZerosLike", [lack]), lack]], {"axis": 1})])


def _complex(op: str, inverse_op: str, rank: int, inverse: bool) -> None:
    @RegisterGradient(op)
    def gradient(node: Node, grad: Output) -> Output:
        count = _count(shape_of(node.inputs[0], np.arange(-rank, 0, dtype=np.int32)), grad)
        result = out(inverse_op, [grad])
        return div(result, count) if inverse else mul(result, count)


for _suffix, _rank in (("", 1), ("2D", 2), ("3D", 3)):
    _complex(f"FFT{_suffix}", f"IFFT{_suffix}", _rank, False)
    _complex(f"IFFT{_suffix}", f"FFT{_suffix}", _rank, True)


def _register_fft_gradient(op: str, inverse_op: str, inverse: bool) -> None:
    @RegisterGradient(op)
    def gradient(node: Node, grad: Output) -> Gradients:
        result, count = out(inverse_op, [grad, *node.inputs[1:]]), _count(_lengths(node), grad)
        result = div(result, count) if inverse else mul(result, count)
        return [_pad_to_input(result, node), None, None]


_register_fft_gradient("FFTND", "IFFTND", False)
_register_fft_gradient("IFFTND", "FFTND", True)


def _real(suffix: str) -> None:
    @RegisterGradient(f"RFFT{suffix}")
    def forward(node: Node, grad: Output) -> Gradients:
        scaled = div(grad, _frequency_weights(node, grad))
        attrs = {"Treal": node.inputs[0].dtype.base_dtype}
        result = out(f"IRFFT{suffix}", [scaled, *node.inputs[1:]], attrs)
        result = _pad_to_input(mul(result, _count(_lengths(node), result)), node)
        return [result, *[None] * (len(node.inputs) - 1)]

    @RegisterGradient(f"IRFFT{suffix}")
    def inverse(node: Node, grad: Output) -> Gradients:
        attrs = {"Tcomplex": node.inputs[0].dtype.base_dtype}
        result = out(f"RFFT{suffix}", [grad, *node.inputs[1:]], attrs)
        result = div(mul(result, _frequency_weights(node, result)), _count(_lengths(node), result))
        return [_pad_to_input(result, node), *[None] * (len(node.inputs) - 1)]


for _suffix in ("", "2D", "3D", "ND"):
    _real(_suffix)

"""Gradients of changes of element type and of the parts of complex numbers."""

from __future__ import annotations

from weft_autodiff.grads.common import scalar_like, sum_to_shapes
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output


@RegisterGradient("Cast")
def _cast(node: Node, grad: Output) -> Output | None:
    source = node.inputs[0].dtype.base_dtype
    if not (source.is_floating or source.is_complex):
        return None
    if not (grad.dtype.is_floating or grad.dtype.is_complex):
        return None
    return out("Cast", [grad], {"DstT": source})


def _part(op: str, value: Output) -> Output:
    return out(op, [value], {"Tout": value.dtype.real_dtype})


@RegisterGradient("Complex")
def _complex(node: Node, grad: Output) -> list[Output | None]:
    return sum_to_shapes(node, _part("Real", grad), _part("Imag", grad))


def _join_complex(real: Output, imag: Output, like: Output) -> Output:
    return out("Complex", [real, imag], {"Tout": like.dtype})


@RegisterGradient("Real")
def _real(node: Node, grad: Output) -> Output:
    return _join_complex(grad, scalar_like(0, grad), node.inputs[0])


@RegisterGradient("Imag")
def _imag(node: Node, grad: Output) -> Output:
    return _join_complex(scalar_like(0, grad), grad, node.inputs[0])


@RegisterGradient("Angle")
def _angle(node: Node, grad: Output) -> Output:
    x = node.inputs[0]
    return out("RealDiv", [_join_complex(scalar_like(0, grad), grad, x), out("Conj", [x])])


@RegisterGradient("Conj")
def _conj(node: Node, grad: Output) -> Output:
    return out("Conj", [grad])

"""Gradients of random numbers with respect to the parameters of their distribution."""

from __future__ import annotations

from weft_autodiff.grads.common import mul, sum_to_shape
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output
from weft_tensor import dtypes


@RegisterGradient("RandomGamma")
def _random_gamma(node: Node, grad: Output) -> list[Output | None]:
    """Differentiate a sample implicitly: its quantile is constant (Figurnov et al., 2018)."""
    alpha, draws = node.inputs[1], node.outputs[0]
    dtype = alpha.dtype.base_dtype
    if dtype is dtypes.float16:
        wide = [out("Cast", [x], {"DstT": dtypes.float32}) for x in (alpha, draws)]
        slope = out("Cast", [out("RandomGammaGrad", wide)], {"DstT": dtype})
    else:
        slope = out("RandomGammaGrad", [alpha, draws])
    return [None, sum_to_shape(mul(grad, slope), alpha)]

"""Floating-point operations of what goes over elements, rows or windows."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Final

from weft_exec.costs.sizes import Rule, Sizes, dims_at, words

_ELEMENTWISE = words("""
Abs Acos Acosh Add AddV2 Angle ApproximateEqual Asin Asinh Atan Atan2 Atanh BesselI0e BesselI1e
BiasAdd BitwiseAnd BitwiseOr BitwiseXor Cast Ceil CheckNumerics ClipByValue Complex ComplexAbs Conj
Cos Cosh Digamma Div DivNoNan Elu EluGrad Equal Erf Erfc Exp Expm1 Floor FloorDiv FloorMod Greater
GreaterEqual Igamma IgammaGradA Igammac Imag Inv InvGrad Invert IsFinite IsInf IsNan LeakyRelu
LeakyReluGrad LeftShift Less LessEqual Lgamma Log Log1p LogicalAnd LogicalNot LogicalOr Maximum
Minimum Mod Mul MulNoNan Neg NextAfter NotEqual Polygamma PopulationCount Pow Real RealDiv
Reciprocal ReciprocalGrad Relu Relu6 Relu6Grad ReluGrad RightShift Rint Round Rsqrt RsqrtGrad Select
SelectV2 Selu SeluGrad Sigmoid SigmoidGrad Sign Sin Sinh Softplus SoftplusGrad Softsign SoftsignGrad
Sqrt SqrtGrad Square SquaredDifference Sub Tan Tanh TanhGrad TruncateDiv TruncateMod Xdivy Xlogy
Zeta
""")

_REDUCTIONS = words("""
All Any ArgMax ArgMin BiasAddGrad Bincount Cumprod Cumsum HistogramFixedWidth Max Mean Min Prod
SegmentMax SegmentMean SegmentMin SegmentProd SegmentSum Sum TopK TopKV2 UnsortedSegmentMax
UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum
""")

_PER_INPUT = {"L2Loss": 2, "EuclideanNorm": 2}

# A row's maximum, the differences from it, their exponentials, the sum, the quotients; for the
# cross-entropy the logarithms with their product and sum, and the difference that flows back.
_ROWS = {
    "Softmax": 5,
    "LogSoftmax": 5,
    "SoftmaxCrossEntropyWithLogits": 9,
    "SparseSoftmaxCrossEntropyWithLogits": 7,
}

# Mean, variance, scale and shift; or the sums over the gradient and what they give.
_NORMALIZATIONS = {
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), 8),
    **dict.fromkeys(("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3"), 14),
}

_RANDOM = {
    "RandomUniform": 10,
    "RandomUniformInt": 10,
    "RandomStandardNormal": 20,
    "TruncatedNormal": 25,
    "RandomGamma": 60,
    "RandomPoisson": 60,
    "RandomPoissonV2": 60,
    "StatelessRandomUniform": 10,
    "StatelessRandomUniformInt": 10,
    "StatelessRandomNormal": 20,
    "StatelessTruncatedNormal": 25,
}

_POOLS = words("""
AvgPool AvgPool3D MaxPool MaxPool3D MaxPoolWithArgmax MaxPoolGradGrad MaxPool3DGradGrad
""")
_POOL_GRADIENTS = {"AvgPoolGrad": 1, "AvgPool3DGrad": 1, "MaxPoolGrad": 2, "MaxPool3DGrad": 2}
"""Op to the input that has a value for each window."""


def _per_output(factor: int, sizes: Sizes) -> float:
    return factor * sizes.elements_out


def _per_input(factor: int, sizes: Sizes) -> float:
    return factor * sizes.elements_in


def _sum_of_many(sizes: Sizes) -> float:
    return max(len(sizes.inputs) - 1, 0) * sizes.elements_out


def _pool(position: int | None, sizes: Sizes) -> float:
    """One operation for each place of each window; `position` is the input with the windows."""
    windows = sizes.outputs[0] if position is None else dims_at(sizes.inputs, position, 1)
    window: tuple[int, ...] = sizes.attr("ksize", ())
    return prod(windows) * prod(window)


def _argmax_gradient(sizes: Sizes) -> float:
    return prod(dims_at(sizes.inputs, 1, 1))


def _local_response(factor: int, sizes: Sizes) -> float:
    """A window over the channels: a square and a sum each, and a power and a product at the end."""
    window = 2 * int(sizes.attr("depth_radius", 5)) + 1
    return factor * sizes.elements_out * (2 * window + 3)


FLOPS: Final[dict[str, Rule]] = {
    **dict.fromkeys(_ELEMENTWISE, partial(_per_output, 1)),
    **dict.fromkeys(_REDUCTIONS, partial(_per_input, 1)),
    **{op: partial(_per_input, n) for op, n in (_PER_INPUT | _ROWS | _NORMALIZATIONS).items()},
    **{op: partial(_per_output, n) for op, n in _RANDOM.items()},
    **dict.fromkeys(("AddN", "AccumulateNV2"), _sum_of_many),
    **dict.fromkeys(_POOLS, partial(_pool, None)),
    **{op: partial(_pool, position) for op, position in _POOL_GRADIENTS.items()},
    "MaxPoolGradWithArgmax": _argmax_gradient,
    "LRN": partial(_local_response, 1),
    "LRNGrad": partial(_local_response, 2),
}


def _written(sizes: Sizes) -> float:
    return sum(sizes.output_bytes)


BYTES: Final[dict[str, Rule]] = dict.fromkeys(("ZerosLike", "OnesLike", *_RANDOM), _written)

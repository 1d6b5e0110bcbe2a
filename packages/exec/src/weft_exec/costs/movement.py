"""Work of what moves values: views, gathering and scattering, variables and their updates."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Final

from weft_exec.costs.sizes import Rule, Sizes, words
from weft_graph.ops.control_flow import ROUTING

_VIEWS = words("""
Bitcast Const ControlTrigger DisableCopyOnRead EnsureShape ExpandDims GuaranteeConst Identity
IdentityN InitializedValue IsVariableInitialized LoopCond MutexV2 NoOp Placeholder PlaceholderV2
PlaceholderWithDefault PreventGradient Rank ReadVariableOp RefIdentity Reshape Shape ShapeN Size
Squeeze StackPopV2 StackPushV2 StopGradient TensorArrayReadV3 TensorArrayWriteV3 VarHandleOp
Variable VariableShape VariableV2 _Arg _Recv _Send
""")

_COPIES = words("Gather GatherNd GatherV2 Slice Split SplitV StridedSlice Unpack")
"""Ops that read as much of their input as they write."""

_SUMS_OF_ROWS = words("""
SparseSegmentMean SparseSegmentMeanWithNumSegments SparseSegmentSqrtN
SparseSegmentSqrtNWithNumSegments SparseSegmentSum SparseSegmentSumWithNumSegments
""")
_SPREADS_OF_ROWS = words("SparseSegmentMeanGrad SparseSegmentSqrtNGrad")

_GATHERS_OF_STATE = ("ResourceGather", "ResourceGatherNd")

_SCATTERS = [
    f"{prefix}{what}"
    for prefix in ("Scatter", "ResourceScatter")
    for what in words("Update Add Sub Mul Div Min Max NdUpdate NdAdd NdSub")
]
_VALUE_SCATTERS = words(
    "ScatterNdNonAliasingAdd TensorScatterUpdate TensorScatterAdd TensorScatterSub"
)

# Operations for each element of the gradient.
_UPDATES = {
    "GradientDescent": 2,
    "ProximalGradientDescent": 7,
    "Momentum": 4,
    "Adagrad": 5,
    "AdagradV2": 6,
    "AdagradDA": 10,
    "ProximalAdagrad": 10,
    "Adadelta": 12,
    "Adam": 12,
    "RMSProp": 9,
    "CenteredRMSProp": 13,
    "Ftrl": 14,
    "FtrlV2": 16,
}
_UPDATE_OPS = {
    f"{prefix}{method}": flops
    for prefix in ("Apply", "ResourceApply", "SparseApply", "ResourceSparseApply")
    for method, flops in _UPDATES.items()
}


def _nothing(sizes: Sizes) -> float:
    return 0


def _gathered(sizes: Sizes) -> float:
    return 2 * sum(sizes.output_bytes) + sum(sizes.input_bytes[1:])


def _gradient(sizes: Sizes) -> int:
    """Which input of an update is the gradient."""
    names = sizes.argument_names
    return names.index("grad" if "grad" in names else "delta")


def _update_flops(factor: int, sizes: Sizes) -> float:
    return factor * prod(sizes.inputs[_gradient(sizes)])


def _update_bytes(sizes: Sizes) -> float:
    """The gradient once, and as much of the variable and of each slot, read and written."""
    gradient = sizes.input_bytes[_gradient(sizes)]
    names = sizes.argument_names
    indices = sizes.input_bytes[names.index("indices")] if "indices" in names else 0
    return gradient * (1 + 2 * sizes.states) + indices


def _row_flops(sizes: Sizes) -> float:
    """One sum for each element of each row that an index names."""
    return prod(sizes.inputs[1]) * prod(sizes.inputs[0][1:])


def _row_bytes(sizes: Sizes) -> float:
    """The rows that are named, rather than all that there are."""
    rows = _row_flops(sizes) * sizes.node.inputs[0].dtype.size
    return rows + sum(sizes.input_bytes[1:]) + sizes.output_bytes[0]


def _scatter_flops(sizes: Sizes) -> float:
    return 0 if sizes.node.type.endswith("Update") else prod(sizes.inputs[2])


def _scatter_bytes(sizes: Sizes) -> float:
    """The indices, the updates, and as much of the variable, read and written."""
    return sizes.input_bytes[1] + 3 * sizes.input_bytes[2]


def _value_scatter_bytes(sizes: Sizes) -> float:
    return 2 * sizes.output_bytes[0] + _scatter_bytes(sizes)


def _scatter_nd_bytes(sizes: Sizes) -> float:
    return sizes.input_bytes[0] + 3 * sizes.input_bytes[1] + sizes.output_bytes[0]


def _assigned(factor: int, sizes: Sizes) -> float:
    return factor * sizes.input_bytes[1]


def _second_elements(sizes: Sizes) -> float:
    return prod(sizes.inputs[1])


_SUMS_INTO_STATE = words("AssignAdd AssignSub AssignAddVariableOp AssignSubVariableOp")

FLOPS: Final[dict[str, Rule]] = {
    **{op: partial(_update_flops, factor) for op, factor in _UPDATE_OPS.items()},
    **dict.fromkeys((*_SCATTERS, *_VALUE_SCATTERS), _scatter_flops),
    **dict.fromkeys(_SUMS_INTO_STATE, _second_elements),
    **dict.fromkeys((*_SUMS_OF_ROWS, *_SPREADS_OF_ROWS), _row_flops),
    "ScatterNd": _second_elements,
}

BYTES: Final[dict[str, Rule]] = {
    **dict.fromkeys((*_VIEWS, *sorted(ROUTING)), _nothing),
    **dict.fromkeys((*_COPIES, *_GATHERS_OF_STATE), _gathered),
    **dict.fromkeys(_UPDATE_OPS, _update_bytes),
    **dict.fromkeys(_SCATTERS, _scatter_bytes),
    **dict.fromkeys(_VALUE_SCATTERS, _value_scatter_bytes),
    **dict.fromkeys(("Assign", "AssignVariableOp"), partial(_assigned, 2)),
    **dict.fromkeys(_SUMS_INTO_STATE, partial(_assigned, 3)),
    **dict.fromkeys(_SUMS_OF_ROWS, _row_bytes),
    "ScatterNd": _scatter_nd_bytes,
}

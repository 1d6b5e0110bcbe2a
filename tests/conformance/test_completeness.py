"""Every declared op has a kernel, a gradient or none on purpose, cases, and a shape rule."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

import pytest
from weft_testing.cases import load_cases

import weft_graph.ops
from weft_autodiff.registry import registered_gradients
from weft_exec.kernels.registry import (
    _FAMILIES,
    ANY_DEVICE,
    _registered,
    _tables,
    registered_kernels,
)
from weft_graph.ir.op_def import declaring_module, lookup_op, registered_ops
from weft_graph.ir.op_signature import OpDef
from weft_graph.ir.traits import Traits
from weft_tensor import dtypes

OF_OTHERS = ("Attack", "Test", "Stranger", "_")
"""Prefixes of ops that tests declare, and of nodes that only executables contain."""

NO_CASES = {
    "NoOp": "no inputs and no outputs",
    "Placeholder": "its value is fed",
    "PlaceholderV2": "its value is fed",
    "ControlTrigger": "no inputs and no outputs",
    "LoopCond": "it marks a value, inside a loop only",
    "PartitionedCall": "it calls a function of the library of its graph",
}
"""Op type to the reason why a row of inputs and a reference value cannot show it."""

NOT_ON_GPUS = {
    "AdjustContrastv2", "AdjustHue", "AdjustSaturation", "AudioSpectrogram",
    "CTCBeamSearchDecoder",
    "CTCGreedyDecoder", "CTCLoss", "CTCLossV2", "CheckNumerics", "CombinedNonMaxSuppression",
    "ComputeAccidentalHits", "CropAndResize", "CropAndResizeGradBoxes",
    "CropAndResizeGradImage", "CumulativeLogsumexp", "DenseCountSparseOutput",
    "DenseToDenseSetOperation", "DenseToSparseSetOperation", "Dequantize", "DeserializeSparse",
    "Dilation2D", "Dilation2DBackpropFilter", "Dilation2DBackpropInput", "DrawBoundingBoxes",
    "DrawBoundingBoxesV2", "EditDistance", "Einsum", "FractionalAvgPoolGrad",
    "FractionalMaxPoolGrad",
    "HSVToRGB", "HistogramFixedWidth", "IgammaGradA", "InTopK", "InTopKV2", "LowerBound", "Lu",
    "MaxPoolGradGradV2", "MaxPoolGradV2", "MaxPoolV2",
    "MatrixExponential", "MatrixLogarithm", "MatrixSolveLs", "MatrixSquareRoot", "Mfcc",
    "NextAfter",
    "NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3", "NonMaxSuppressionV4",
    "NonMaxSuppressionV5", "NonMaxSuppressionWithOverlaps", "NthElement", "PartitionedCall",
    "Polygamma",
    "PopulationCount", "PyFuncStateless", "QuantizeDownAndShrinkRange", "QuantizeV2",
    "QuantizedAdd", "QuantizedAvgPool", "QuantizedBiasAdd", "QuantizedConcat",
    "QuantizedConv2D", "QuantizedMatMul", "QuantizedMaxPool", "QuantizedMul", "QuantizedRelu",
    "QuantizedRelu6", "QuantizedReluX", "RGBToHSV", "RaggedBincount", "RaggedCross",
    "RaggedFillEmptyRows", "RaggedFillEmptyRowsGrad", "RaggedGather", "RaggedRange",
    "RaggedTensorToSparse", "RaggedTensorToTensor",
    "RandomGammaGrad", "RandomIndexShuffle", "RequantizationRange",
    "Requantize", "SegmentMax", "SegmentMin", "SegmentProd", "SerializeManySparse",
    "SerializeSparse", "SetSize", "SparseAdd", "SparseAddGrad", "SparseConcat",
    "SparseCountSparseOutput", "SparseCross", "SparseDenseCwiseAdd", "SparseDenseCwiseDiv",
    "SparseDenseCwiseMul", "SparseFillEmptyRows", "SparseFillEmptyRowsGrad", "SparseReduceMax",
    "SparseReduceMaxSparse", "SparseReduceSum", "SparseReduceSumSparse", "SparseReorder",
    "SparseReshape", "SparseSegmentMean", "SparseSegmentMeanGrad",
    "SparseSegmentMeanWithNumSegments", "SparseSegmentSqrtN", "SparseSegmentSqrtNGrad",
    "SparseSegmentSqrtNWithNumSegments", "SparseSegmentSum", "SparseSegmentSumWithNumSegments",
    "SparseSlice", "SparseSliceGrad", "SparseSoftmax", "SparseSparseMaximum",
    "SparseSparseMinimum", "SparseSplit", "SparseTensorDenseAdd", "SparseTensorDenseMatMul",
    "SparseToDense", "SparseToSparseSetOperation", "StatelessMultinomial",
    "StatelessParameterizedTruncatedNormal", "StatelessRandomBinomial",
    "StatelessRandomGammaV2", "StatelessRandomPoisson", "TridiagonalSolve", "UnicodeScript",
    "UnravelIndex", "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd",
    "UpperBound",
}  # fmt: skip
"""Ops of numbers that are placed on CPUs, as nobody has written or could derive a GPU's kernel."""

NO_SHAPE_RULE = {
    "EagerPyFunc": "the shapes are known to the Python function alone",
    "PyFunc": "the shapes are known to the Python function alone",
    "PyFuncStateless": "the shapes are known to the Python function alone",
}
"""Op type to the reason why nothing is known of the shapes of its outputs."""


@cache
def all_ops() -> list[str]:
    for module in pkgutil.iter_modules(weft_graph.ops.__path__):
        importlib.import_module(f"weft_graph.ops.{module.name}")
    return [op for op in registered_ops() if not op.startswith(OF_OTHERS)]


def has_state(op_def: OpDef) -> bool:
    """Return True if an op reads or writes state, which its tests must set up."""
    handles = (dtypes.resource, dtypes.variant)
    args = (*op_def.inputs, *op_def.outputs)
    return op_def.stateful or any(arg.is_ref or arg.dtype in handles for arg in args)


def of_numbers(op_def: OpDef) -> bool:
    """Return True if an op only computes with numbers."""
    args = (*op_def.inputs, *op_def.outputs)
    return not has_state(op_def) and not any(arg.dtype is dtypes.string for arg in args)


def traits(op: str) -> Traits:
    return lookup_op(op).traits


def test_kernels_are_where_they_are_looked_for() -> None:
    """An op that is run for the first time imports one module, called as that which declares it."""
    astray = []
    for key in _registered.keys():  # noqa: SIM118 (it imports)
        op = key.partition(" on ")[0]
        package, _, family = declaring_module(op).rpartition(".ops.")
        if not family or op.startswith(OF_OTHERS):
            continue
        home = "weft_exec" if package == "weft_graph" else package
        module = f"{home}.kernels.{_FAMILIES.get(family, family)}"
        definition = lookup_op(op).traits.scalar
        if definition is not None and not definition.by_kernel:
            for entry in _tables[key]:
                made = getattr(entry.factory, "func", entry.factory)
                if made.__module__ != module:
                    astray.append(f"{op}: {made.__module__}, not {module}")
    assert not astray


def test_every_op_has_a_kernel() -> None:
    have = {op for op, _ in registered_kernels()}
    without = [op for op in all_ops() if op not in have]
    assert [op for op in without if not traits(op).routes] == []  # the executor does these itself


def test_ops_of_numbers_have_kernels_for_gpus_or_none_on_purpose() -> None:
    have = {op for op, where in registered_kernels() if where in ("GPU", ANY_DEVICE)}
    without = [op for op in all_ops() if op not in have and not traits(op).routes]
    assert {op for op in without if of_numbers(lookup_op(op))} == NOT_ON_GPUS


def test_every_op_has_a_gradient_or_none_on_purpose() -> None:
    have = set(registered_gradients())
    assert [op for op in all_ops() if op in have and not traits(op).differentiable] == []
    assert [op for op in all_ops() if op not in have and traits(op).differentiable] == []


def test_every_op_without_state_has_cases() -> None:
    have = {case.op for cases in load_cases().values() for case in cases} | set(NO_CASES)
    without = [op for op in all_ops() if op not in have and not traits(op).routes]
    assert [op for op in without if not has_state(lookup_op(op))] == []


def test_every_elementwise_op_has_a_scalar_definition() -> None:
    elementwise = [op for op in all_ops() if lookup_op(op).traits.elementwise]
    assert len(elementwise) > 110
    assert [op for op in elementwise if lookup_op(op).traits.scalar is None] == []


def test_every_op_has_a_shape_rule() -> None:
    without = [op for op in all_ops() if lookup_op(op).shape_rule is None]
    assert [op for op in without if lookup_op(op).outputs and op not in NO_SHAPE_RULE] == []


@pytest.mark.parametrize("table", [NO_CASES, NO_SHAPE_RULE])
def test_exceptions_are_ops(table: dict[str, str]) -> None:
    assert set(table) <= set(all_ops())

"""Operations and bytes of ops, compared with numbers computed by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, strategies as st

import weft as wf
from weft_exec.costs import CostModel
from weft_graph.ir.builder import create
from weft_graph.ir.costs import Cost
from weft_graph.ir.op_def import register_op
from weft_graph.ir.traits import Traits
from weft_graph.ops import cost_rules

F, I = wf.float32, wf.int32  # noqa: E741 - short, as the table is long


class Row(NamedTuple):
    op: str
    inputs: list[Any]  # a shape of float32, (dtype, shape), a constant array, or a list of these
    attrs: dict[str, Any]
    flops: float
    bytes: int


def ints(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int32)


CONV: dict[str, Any] = {"strides": (1, 2, 2, 1), "padding": "SAME"}
CONV3: dict[str, Any] = {"strides": (1, 1, 1, 1, 1), "padding": "VALID"}
POOL: dict[str, Any] = {"ksize": (1, 3, 3, 1), "strides": (1, 2, 2, 1), "padding": "SAME"}
POOL3 = {"ksize": (1, 2, 2, 2, 1), "strides": (1, 2, 2, 2, 1), "padding": "VALID"}

ROWS = [
    # products
    Row("MatMul", [(2, 3), (3, 5)], {}, 2 * 2 * 3 * 5, 4 * (6 + 15 + 10)),
    Row("MatMul", [(3, 2), (3, 5)], {"transpose_a": True}, 60, 124),
    Row("MatMul", [(2, 3), (5, 3)], {"transpose_b": True}, 60, 124),
    Row("MatMul", [(wf.complex64, (2, 3)), (wf.complex64, (3, 5))], {}, 240, 248),
    Row("BatchMatMul", [(7, 2, 3), (7, 3, 5)], {}, 7 * 60, 7 * 124),
    Row("BatchMatMulV2", [(7, 2, 3), (3, 5)], {}, 7 * 60, 4 * (42 + 15 + 70)),
    Row("BatchMatMulV2", [(7, 3, 2), (7, 5, 3)], {"adj_x": True, "adj_y": True}, 420, 868),
    Row(
        "SparseTensorDenseMatMul",
        [(wf.int64, (9, 2)), (9,), (wf.int64, (2,)), (4, 6)],
        {},
        2 * 9 * 6,
        9 * 2 * 8 + 36 + 16 + 96,
    ),
    # convolutions: 2 × positions × output channels × window × input channels
    Row("Conv2D", [(2, 8, 8, 3), (3, 3, 3, 4)], CONV, 2 * (2 * 4 * 4) * 4 * 9 * 3, 4 * 620),
    Row(
        "Conv2DBackpropInput",
        [ints(2, 8, 8, 3), (3, 3, 3, 4), (2, 4, 4, 4)],
        CONV,
        6912,
        16 + 4 * 620,
    ),
    Row(
        "Conv2DBackpropFilter",
        [(2, 8, 8, 3), ints(3, 3, 3, 4), (2, 4, 4, 4)],
        CONV,
        6912,
        16 + 4 * 620,
    ),
    Row(
        "Conv2D",
        [(2, 3, 8, 8), (3, 3, 3, 4)],
        {"strides": (1, 1, 2, 2), "padding": "SAME", "data_format": "NCHW"},
        6912,
        2480,
    ),
    Row("Conv3D", [(1, 4, 4, 4, 2), (2, 2, 2, 2, 3)], CONV3, 2 * 27 * 3 * 8 * 2, 4 * 257),
    Row(
        "Conv3DBackpropInputV2",
        [ints(1, 4, 4, 4, 2), (2, 2, 2, 2, 3), (1, 3, 3, 3, 3)],
        CONV3,
        2592,
        20 + 4 * 257,
    ),
    Row(
        "Conv3DBackpropFilterV2",
        [(1, 4, 4, 4, 2), ints(2, 2, 2, 2, 3), (1, 3, 3, 3, 3)],
        CONV3,
        2592,
        20 + 4 * 257,
    ),
    # depthwise: no sum over channels
    Row("DepthwiseConv2dNative", [(2, 8, 8, 3), (3, 3, 3, 2)], CONV, 2 * 32 * 6 * 9, 4 * 630),
    Row(
        "DepthwiseConv2dNativeBackpropInput",
        [ints(2, 8, 8, 3), (3, 3, 3, 2), (2, 4, 4, 6)],
        CONV,
        3456,
        16 + 4 * 630,
    ),
    Row(
        "DepthwiseConv2dNativeBackpropFilter",
        [(2, 8, 8, 3), ints(3, 3, 3, 2), (2, 4, 4, 6)],
        CONV,
        3456,
        16 + 4 * 630,
    ),
    # pooling: one for each place of each window
    Row("MaxPool", [(2, 8, 8, 3)], POOL, 2 * 4 * 4 * 3 * 9, 4 * (384 + 96)),
    Row("AvgPool", [(2, 8, 8, 3)], POOL, 864, 1920),
    Row("AvgPoolGrad", [ints(2, 8, 8, 3), (2, 4, 4, 3)], POOL, 864, 16 + 1920),
    Row("MaxPoolGrad", [(2, 8, 8, 3), (2, 4, 4, 3), (2, 4, 4, 3)], POOL, 864, 4 * 960),
    Row("MaxPoolGradGrad", [(2, 8, 8, 3), (2, 4, 4, 3), (2, 8, 8, 3)], POOL, 864, 4 * 960),
    Row("MaxPoolWithArgmax", [(2, 8, 8, 3)], POOL, 864, 1920 + 8 * 96),
    Row("MaxPool3D", [(1, 4, 4, 4, 2)], POOL3, 8 * 2 * 8, 4 * (128 + 16)),
    # elements
    Row("AddV2", [(4, 5), (5,)], {}, 20, 4 * (20 + 5 + 20)),
    Row("Tanh", [(wf.float64, (4, 5))], {}, 20, 320),
    Row("Cast", [(4, 5)], {"DstT": wf.float16}, 20, 80 + 40),
    Row("Greater", [(4, 5), (4, 5)], {}, 20, 160 + 20),
    Row("AddN", [[(4, 5)] * 3], {}, 40, 320),
    Row("BiasAdd", [(4, 5), (5,)], {}, 20, 180),
    # reductions
    Row("Sum", [(4, 5), ints(1)], {}, 20, 80 + 4 + 16),
    Row("ArgMax", [(4, 5), np.int32(1)], {}, 20, 80 + 4 + 32),
    Row("L2Loss", [(4, 5)], {}, 40, 84),
    Row("SegmentSum", [(4, 5), (I, (4,))], {}, 20, 80 + 16),
    Row("BiasAddGrad", [(4, 5)], {}, 20, 100),
    # rows
    Row("Softmax", [(4, 5)], {}, 100, 160),
    Row("SoftmaxCrossEntropyWithLogits", [(4, 5), (4, 5)], {}, 180, 240 + 16),
    Row("SparseSoftmaxCrossEntropyWithLogits", [(4, 5), (I, (4,))], {}, 140, 160 + 32),
    Row("LRN", [(1, 2, 2, 8)], {"depth_radius": 2}, 32 * 13, 256),
    Row("LRNGrad", [(1, 2, 2, 8)] * 3, {"depth_radius": 2}, 2 * 32 * 13, 512),
    Row("FusedBatchNorm", [(2, 2, 2, 3), (3,), (3,), (0,), (0,)], {}, 8 * 24, 4 * (48 + 18)),
    # linear algebra
    Row("Cholesky", [(2, 6, 6)], {}, 2 * 72, 576),
    Row("MatrixInverse", [(6, 6)], {}, 432, 288),
    Row("MatrixSolve", [(6, 6), (6, 2)], {}, 144 + 144, 144 + 96),
    Row("MatrixTriangularSolve", [(6, 6), (6, 2)], {}, 72, 240),
    Row("Qr", [(6, 4)], {}, 4 * 6 * 4 * 4, 96 + 96 + 64),
    Row("SelfAdjointEigV2", [(6, 6)], {"compute_v": True}, 9 * 216, 144 + 24 + 144),
    # random
    Row("RandomUniform", [ints(4, 5)], {"dtype": F}, 200, 80),
    # views
    Row("Reshape", [(4, 5), ints(20)], {}, 0, 0),
    Row("Identity", [(4, 5)], {}, 0, 0),
    Row("Shape", [(4, 5)], {}, 0, 0),
    # gathering and scattering: what is touched
    Row("GatherV2", [(1000, 5), (I, (4,)), np.int32(0)], {}, 0, 2 * 80 + 16 + 4),
    Row("Slice", [(1000, 5), ints(0, 0), ints(4, 5)], {}, 0, 2 * 80 + 16),
    Row("ScatterNd", [(I, (4, 1)), (4, 5), ints(9, 5)], {}, 20, 16 + 240 + 180),
    Row("SparseSegmentSum", [(1000, 5), (I, (4,)), (I, (4,))], {}, 20, 80 + 32),
    Row("ZerosLike", [(4, 5)], {}, 0, 80),
    # others: inputs and outputs
    Row("Transpose", [(4, 5), ints(1, 0)], {}, 0, 160 + 8),
    Row("ConcatV2", [[(4, 5), (4, 3)], np.int32(1)], {}, 0, 2 * 128 + 4),
]

# The rank of these outputs, or a size, follows from values alone; 32 is assumed for each unknown.
ASSUMED = {"SparseTensorDenseMatMul": 4 * 32 * 6, "SegmentSum": 4 * 32 * 5}
ASSUMED["SparseSegmentSum"] = ASSUMED["SegmentSum"]


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as made:
        yield made


def value(spec: Any) -> Any:
    if isinstance(spec, list):
        return [value(item) for item in spec]
    if isinstance(spec, np.ndarray | np.generic):
        return wf.constant(spec)
    dtype, shape = spec if spec and isinstance(spec[0], wf.DType) else (F, spec)
    return wf.placeholder(dtype, shape)


def measured(row: Row) -> Cost:
    return CostModel().work(create(row.op, [value(spec) for spec in row.inputs], row.attrs))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.op)
def test_work_is_what_was_counted_by_hand(row: Row) -> None:
    assert measured(row) == (row.flops, row.bytes + ASSUMED.get(row.op, 0))


def variable(*shape: int) -> Any:
    return create("VarHandleOp", [], {"dtype": F, "shape": shape}).outputs[0]


def reference(*shape: int) -> Any:
    return create("VariableV2", [], {"dtype": F, "shape": shape}).outputs[0]


def scalar() -> Any:
    return wf.placeholder(F, ())


def test_updates_touch_the_gradient_and_as_much_of_each_variable() -> None:
    gradient = wf.placeholder(F, (4, 5))
    model = CostModel()
    adam = [variable(4, 5), variable(4, 5), variable(4, 5), *(scalar() for _ in range(6))]
    node = create("ResourceApplyAdam", [*adam, gradient])
    assert model.work(node) == (12 * 20, 80 * 7)
    plain = create("ApplyGradientDescent", [reference(4, 5), scalar(), gradient])
    assert model.work(plain) == (2 * 20, 80 * 3)
    rows = [variable(1000, 5), variable(1000, 5), scalar(), gradient, wf.placeholder(I, (4,))]
    sparse = create("ResourceSparseApplyAdagrad", rows)
    assert model.work(sparse) == (5 * 20, 80 * 5 + 16)
    rows = [reference(1000, 5), reference(1000, 5), scalar(), gradient, wf.placeholder(I, (4,))]
    assert model.work(create("SparseApplyAdagrad", rows)) == (5 * 20, 80 * 5 + 16)


def test_state_costs_what_is_touched() -> None:
    model = CostModel()
    new, places = wf.placeholder(F, (4, 5)), wf.placeholder(I, (4,))
    big, handle = reference(1000, 5), variable(1000, 5)
    assert model.work(create("ScatterAdd", [big, places, new])) == (20, 16 + 240)
    assert model.work(create("ScatterUpdate", [big, places, new])) == (0, 16 + 240)
    assert model.work(create("ResourceScatterAdd", [handle, places, new])) == (20, 256)
    gather = create("ResourceGather", [handle, places], {"dtype": F})
    assert model.work(gather) == (0, 2 * model.nbytes(gather.outputs[0]) + 16)
    assert model.work(create("AssignVariableOp", [variable(4, 5), new])) == (0, 160)
    assert model.work(create("AssignAdd", [reference(4, 5), new])) == (20, 240)
    assert model.work(create("ReadVariableOp", [handle], {"dtype": F})) == (0, 0)
    assert model.work(big.node) == (0, 0)


register_op(
    "TestCosts",
    ("x: float32",),
    ("y: float32",),
    traits=Traits(cost=cost_rules.takes(lambda sizes: 7 * sizes.elements_in, lambda sizes: 3)),
)


def test_a_declaration_tells_the_cost() -> None:
    assert CostModel().work(create("TestCosts", [wf.placeholder(F, (4, 5))])) == (140, 3)


SIZE = st.integers(1, 64)


@given(st.lists(SIZE, min_size=4, max_size=4), st.integers(0, 3), st.integers(1, 8))
def test_work_grows_with_every_size(sizes: list[int], which: int, more: int) -> None:
    def works(b: int, m: int, k: int, n: int) -> list[Cost]:
        return [
            measured(Row(op, inputs, attrs, 0, 0))
            for op, inputs, attrs in (
                ("MatMul", [(m, k), (k, n)], {}),
                ("BatchMatMulV2", [(b, m, k), (b, n, k)], {"adj_y": True}),
                ("Conv2D", [(b, m + 2, n + 2, k), (3, 3, k, n)], CONV),
                ("MaxPool", [(b, m, n, k)], POOL),
                ("Mul", [(b, m, 1, k), (n, k)], {}),
                ("Softmax", [(b, m, n, k)], {}),
                ("Sum", [(b, m, n, k), ints(1, 2)], {}),
                ("GatherV2", [(m, k), (I, (b, n)), np.int32(0)], {}),
                ("Svd", [(b, m, n, k)], {"compute_uv": True}),
            )
        ]

    grown = list(sizes)
    grown[which] += more
    with wf.Graph().as_default():
        for before, after in zip(works(*sizes), works(*grown), strict=True):
            assert after.flops >= before.flops
            assert after.bytes >= before.bytes

"""Values known while the graph is built."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from weft_graph.ir import op_def
from weft_graph.ir.builder import constant, create, out
from weft_graph.ir.constant_value import (
    MAX_ELEMENTS,
    cache_values,
    constant_value,
    constant_value_as_dims,
    partial_value,
)
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import Array, Values, register_op
from weft_graph.ir.value_rules import arrays, value_rule
from weft_graph.ops import (
    array,
    broadcasting,
    comparison,
    control,
    gather,
    identity,
    join,
    permutation,
    reduction,
    sequence,
    shapes,
    slicing,
)
from weft_graph.ops.casting import cast
from weft_tensor import dtypes


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with Graph().as_default() as graph:
        yield graph


def known(value: Any) -> Any:
    found = constant_value(value)
    return None if found is None else found.tolist()


def fed(*shape: int | None, dtype: Any = dtypes.float32) -> Output:
    return array.placeholder(dtype, shape)


@pytest.mark.parametrize(
    ("first", "second", "axes"),
    [
        ((2, 1, 3), (3,), ([], [0, 1])),
        ((), (4,), ([0], [])),
        ((0, 1), (1, 5), ([1], [0])),
        ((1, 1), (1,), ([], [0])),
        ((2,), (3,), (None, None)),
        ((None,), (3,), (None, None)),
    ],
)
def test_axes_of_gradients_follow_from_shapes(
    first: Sequence[int | None], second: Sequence[int | None], axes: Any
) -> None:
    sizes = [shapes.shape(fed(*first)), shapes.shape(fed(*second))]
    outputs = create("BroadcastGradientArgs", sizes).outputs
    assert tuple(map(known, outputs)) == axes


def test_constants_of_any_type() -> None:
    for value in (1.5, True, b"x", [1, 2], 2j):
        assert known(constant(value)) == value
    big = constant(np.zeros((2000, 10)))
    assert constant_value(big) is big.node.attrs["value"]


def test_empty_values_have_the_type_of_the_tensor() -> None:
    part = shapes.shape(array.placeholder(dtypes.float32))[2:1]
    value = constant_value(part)
    assert value is not None and value.dtype == np.int32 and value.shape == (0,)
    fed = array.placeholder(dtypes.int32, [0])
    assert constant_value(fed) is not None
    assert fed.graph.is_feedable(fed)


def test_constants_of_quantized_types() -> None:
    """NumPy has no types for them, so an array says nothing about it."""
    for dtype in (dtypes.qint8, dtypes.quint8, dtypes.qint32):
        made = constant(np.array([1, 2], dtype.numpy), dtype)
        assert made.dtype is dtype and known(made) == [1, 2]


def test_what_is_fed_is_not_known() -> None:
    assert constant_value(fed(2)) is None
    assert constant_value(fed(2, dtype=dtypes.int32)) is None
    assert constant_value(array.placeholder_with_default(3, ())) is None


def test_shapes_sizes_ranks() -> None:
    x = fed(2, 3)
    assert known(out("Shape", [x])) == [2, 3]
    assert known(out("Size", [x])) == 6
    assert known(out("Rank", [x])) == 2
    y = fed(None, 3)
    assert known(out("Shape", [y])) is None
    assert known(out("Rank", [y])) == 2
    assert known(shapes.shape(y)[1]) == 3
    assert known(shapes.shape(y)[0]) is None
    assert known(shapes.shape(y)[-1:]) == [3]


def test_values_have_their_outputs_type() -> None:
    x = fed(2, 3)
    found = constant_value(out("Shape", [x], {"out_type": dtypes.int64}) + 1)
    assert found is not None and found.dtype == np.int64 and found.tolist() == [3, 4]
    half = constant_value(cast(constant([1, 2]), dtypes.bfloat16))
    assert half is not None and half.dtype == dtypes.bfloat16.numpy


def test_values_must_not_be_written_to() -> None:
    found = constant_value(constant([1, 2]) + 1)
    assert found is not None and not found.flags.writeable


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda n: join.stack([n, 5]), [None, 5]),
        (lambda n: join.concat([[n], [4, 5]], 0), [None, 4, 5]),
        (lambda n: join.concat([[n], [4, 5]], 0)[1:], [4, 5]),
        (lambda n: join.stack([n, 5])[::-1], [5, None]),
        (lambda n: gather.gather(join.stack([n, 5, 6]), [2, 0]), [6, None]),
        (lambda n: shapes.reshape(join.stack([n, 5]), [2, 1])[:, 0], [None, 5]),
        (lambda n: shapes.expand_dims(n * 2 + 1, 0), [None]),
        (lambda n: shapes.squeeze(join.stack([[n], [5]]), 1), [None, 5]),
        (lambda n: join.stack([n, 5]) * 2, [None, 10]),
        (lambda n: join.tile(join.stack([n, 5]), [2]), [None, 5, None, 5]),
        (lambda n: array.fill([2], n), [None, None]),
        (lambda n: join.split(join.stack([n, 5]), 2)[1], [5]),
        (lambda n: join.split(join.stack([n, 5, 6]), [1, 2])[1], [5, 6]),
        (lambda n: join.unstack(join.stack([n, 5]))[1], 5),
        (lambda n: slicing.slice(join.stack([n, 5, 6]), [1], [-1]), [5, 6]),
        (lambda n: permutation.reverse(join.stack([n, 5]), [0]), [5, None]),
        (lambda n: cast(join.stack([n, 5]), dtypes.int64), [None, 5]),
        (lambda n: identity.identity(join.stack([n, 5])), [None, 5]),
        (lambda n: identity.identity_n([n, constant(5)])[1], 5),
        (lambda n: broadcasting.broadcast_dynamic_shape(join.stack([n, 5]), [3, 1]), [3, 5]),
    ],
)
def test_partial_values(make: Any, wanted: Any) -> None:
    n = fed(dtype=dtypes.int32)
    found = partial_value(make(n))
    assert found is not None and found.tolist() == wanted
    complete = wanted != [None] and None not in np.ravel(wanted).tolist()
    assert (constant_value(make(n)) is not None) == complete


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda: constant(7) // 2, 3),
        (lambda: constant([7, 8]) % 3, [1, 2]),
        (lambda: -constant(7), -7),
        (lambda: sequence.range(2, 9, 3), [2, 5, 8]),
        (lambda: reduction.reduce_prod(constant([2, 3, 4])), 24),
        (lambda: reduction.reduce_sum(constant([[2, 3], [4, 5]]), 1), [5, 9]),
        (lambda: comparison.equal(constant([1, 2]), constant([1, 3])), [True, False]),
        (lambda: comparison.less(1.0, 2.0), True),
        (lambda: comparison.logical_not(constant(True)), False),
        (lambda: array.zeros_like(constant([1, 2])), [0, 0]),
        (lambda: broadcasting.broadcast_to(constant([1, 2]), [2, 2]), [[1, 2], [1, 2]]),
        (lambda: permutation.transpose(constant([[1, 2], [3, 4]])), [[1, 3], [2, 4]]),
        (lambda: array.fill([2, 1], b"x"), [[b"x"], [b"x"]]),
    ],
)
def test_arithmetic(make: Any, wanted: Any) -> None:
    assert known(make()) == wanted


def test_as_dims() -> None:
    n = fed(dtype=dtypes.int32)
    assert constant_value_as_dims(join.stack([n, -1, 3])) == (None, None, 3)
    assert constant_value_as_dims(fed(3, dtype=dtypes.int32)) == (None, None, None)
    assert constant_value_as_dims(fed(None, dtype=dtypes.int32)) is None
    assert constant_value_as_dims(constant([], dtypes.int32)) == ()


def test_dynamic_shapes_flow_into_reshape() -> None:
    x = fed(None, 4, 6)
    shape = shapes.shape(x)
    y = shapes.reshape(x, [shape[0], shape[1] * shape[2]])
    assert y.dims == (None, 24)
    y = shapes.reshape(x, join.concat([shape[:-1], [2, 3]], 0))
    assert y.dims == (None, 4, 2, 3)


def test_a_refined_shape_is_seen() -> None:
    x = fed(None, 3)
    first = out("Shape", [x])[0]
    assert constant_value(first) is None
    x.set_shape([5, 3])
    assert known(first) == 5


def test_bad_values_are_left_to_the_kernel() -> None:
    assert constant_value(constant(1) // 0) is None
    assert constant_value(constant([1, 2]) % [1, 0]) is None
    assert known(constant(1.0) // 0.0) == np.inf
    picked = out("GatherV2", [out("Shape", [fed(2, 3)]), fed(dtype=dtypes.int32), 0])
    assert constant_value(picked) is None


def test_large_values_are_not_computed() -> None:
    assert constant_value(array.fill([MAX_ELEMENTS + 1], 1.0)) is None
    assert constant_value(sequence.range(0, 10**9)) is None


def test_what_was_used_can_no_longer_be_fed(_graph: Graph) -> None:
    a, b = constant(2), constant(3)
    total = a + b
    other = constant(4)
    array.zeros(shapes.expand_dims(total, 0))
    assert not _graph.is_feedable(total)
    assert not _graph.is_feedable(a) and not _graph.is_feedable(b)
    assert _graph.is_feedable(other)
    n = fed(2, dtype=dtypes.int32)
    shapes.reshape(fed(6), n)
    assert _graph.is_feedable(n)


def test_a_deep_chain_neither_recurses_nor_grows_quadratically() -> None:
    value: Any = constant(0)
    start = time.process_time()
    for _ in range(3000):
        value = value + 1
        shapes.expand_dims(value, 0)
        constant_value(value)
    built = time.process_time() - start
    assert known(value) == 3000
    assert built < 5

    hidden: Any = fed(dtype=dtypes.int32)
    for _ in range(3000):
        hidden = hidden + 1
        constant_value(hidden)
    assert time.process_time() - start - built < 5


def test_a_chain_built_first_and_asked_later() -> None:
    value: Any = constant(0)
    for _ in range(2000):
        value = value + 1
    assert known(value) == 2000
    for _ in range(10_000):
        value = value + 1
    constant_value(value)


def test_a_vector_chooses_rows() -> None:
    t, e = constant([[1, 2], [3, 4]]), constant([[5, 6], [7, 8]])
    assert known(out("Select", [constant([True, False]), t, e])) == [[1, 2], [7, 8]]
    assert known(out("SelectV2", [constant([True, False]), t, e])) == [[1, 6], [3, 8]]
    assert known(out("Select", [constant(False), t, e])) == [[5, 6], [7, 8]]


def test_effects_and_state_are_not_evaluated() -> None:
    printed = control.Print(constant(1), [constant(2)])
    assert constant_value(printed) is None


def test_a_declaration_brings_its_rule() -> None:
    @value_rule()
    def doubled(node: Node, index: int, values: Values) -> Array | None:
        return arrays(values)[0] * 2

    register_op("TestDoubled", ("x: int32",), ("y: int32",), shape=lambda _: [()], value=doubled)
    try:
        assert constant_value(out("TestDoubled", [21])) == 42
    finally:
        del op_def._raw._table["TestDoubled"], op_def.parsed_ops["TestDoubled"]


def test_what_is_remembered_is_forgotten_when_a_shape_is_refined() -> None:
    with Graph().as_default():
        x = out("Placeholder", attrs={"dtype": dtypes.float32, "shape": (None, 3)})
        sizes = out("Shape", [x])
        total = out("Add", [sizes, sizes])
        with cache_values():
            assert constant_value(total) is None
            with cache_values():
                assert constant_value(total[1]) == 6
            x.set_shape([2, 3])
            assert constant_value(total).tolist() == [4, 6]

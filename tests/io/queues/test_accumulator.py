"""Accumulators: sums, stale gradients, pending takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from weft_testing.cases import COMPLEXES, FLOATS, INTEGERS
from weft_testing.waiting import Recorder, in_threads, wait_until

from weft_exec.resources.cancellation import Cancellation
from weft_exec.session.session import Session
from weft_graph import proto
from weft_graph.ir.builder import create, out
from weft_graph.ir.graph import Graph
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ops.array import placeholder
from weft_io.queues.accumulator import ConditionalAccumulator, SparseConditionalAccumulator
from weft_io.resources.accumulator import DenseAccumulator, SparseAccumulator
from weft_tensor import dtypes, errors
from weft_tensor.shape import TensorShape

F32 = dtypes.float32
NUMBERS = FLOATS + COMPLEXES + INTEGERS


@pytest.fixture
def session() -> Any:
    with Graph().as_default() as graph, Session(graph=graph) as session:
        yield session


class AccumulatorMachine(RuleBasedStateMachine):
    """Gradients and takes in any order against a list."""

    mean = True

    def __init__(self) -> None:
        super().__init__()
        self.accumulator = DenseAccumulator("a", dtypes.float64, (2,), self.mean)
        self.step = 0
        self.gradients: list[np.ndarray] = []
        self.waiting: list[tuple[Recorder, Cancellation, int]] = []

    @rule(behind=st.integers(-2, 2), value=st.integers(-9, 9))
    def apply(self, behind: int, value: int) -> None:
        gradient = np.array([value, 1.0])
        if behind <= 0:
            self.gradients.append(gradient.copy())
        self.accumulator.apply(self.step - behind, gradient)
        self.settle()

    @rule(ahead=st.integers(0, 3))
    def set_step(self, ahead: int) -> None:
        self.step += ahead
        self.accumulator.set_step(self.step)

    @rule()
    def wrong(self) -> None:
        with pytest.raises(errors.InvalidArgumentError):
            self.accumulator.apply(self.step, np.zeros(3))

    @rule(required=st.integers(1, 4))
    def take(self, required: int) -> None:
        waiter = Recorder(), Cancellation(), required
        self.waiting.append(waiter)
        self.accumulator.take(required, waiter[0], waiter[1])
        self.settle()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        waiter = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(waiter)
        waiter[1].cancel(errors.DeadlineExceededError("the step ended"))
        with pytest.raises(errors.DeadlineExceededError):
            assert waiter[0].value
        self.settle()

    def settle(self) -> None:
        while self.waiting and len(self.gradients) >= self.waiting[0][2]:
            done, _, _ = self.waiting.pop(0)
            wanted = np.sum(self.gradients, 0) / (len(self.gradients) if self.mean else 1)
            np.testing.assert_allclose(done.value, wanted)
            self.gradients = []
            self.step += 1

    @invariant()
    def agrees(self) -> None:
        assert (self.accumulator.count, self.accumulator.step) == (len(self.gradients), self.step)
        assert self.accumulator.pending() == len(self.waiting)
        assert all(done.waits for done, *_ in self.waiting)

    def teardown(self) -> None:
        self.accumulator.close()
        for done, *_ in self.waiting:
            with pytest.raises(errors.CancelledError, match="deleted"):
                assert done.value


class SumMachine(AccumulatorMachine):
    mean = False


TestMean = AccumulatorMachine.TestCase
TestSum = SumMachine.TestCase


def taken(accumulator: Any, required: int) -> Any:
    done = Recorder()
    accumulator.take(required, done)
    return done.value


# --------------------------------------------------------------------------- the machine


def test_the_mean_and_the_sum() -> None:
    for mean, wanted in ((True, [2, 3]), (False, [6, 9])):
        accumulator = DenseAccumulator("a", F32, (2,), mean)
        for i in range(3):
            accumulator.apply(0, np.array([1 + i, 2 + i], np.float32))
        assert accumulator.count == 3
        assert taken(accumulator, 2).tolist() == wanted
        assert (accumulator.count, accumulator.step) == (0, 1)


def test_stale_gradients_are_dropped() -> None:
    accumulator = DenseAccumulator("a", F32, (), True)
    accumulator.set_step(3)
    for step in (0, 2, 3, 4):
        accumulator.apply(step, np.float32(step))
    assert accumulator.count == 2
    assert taken(accumulator, 1) == 3.5
    accumulator.apply(3, np.float32(1))
    assert accumulator.count == 0 and accumulator.step == 4


def test_a_smaller_step_is_remarked(caplog: pytest.LogCaptureFixture) -> None:
    accumulator = DenseAccumulator("a", F32, (), True)
    accumulator.set_step(5)
    assert not caplog.records
    accumulator.set_step(2)
    assert "smaller value" in caplog.text and accumulator.step == 2


def test_takers_wait_in_line_and_may_leave_it() -> None:
    accumulator = DenseAccumulator("a", F32, (), False)
    first, second, third = Recorder(), Recorder(), Recorder()
    step = Cancellation()
    accumulator.take(2, first)
    accumulator.take(3, second, step)
    accumulator.take(1, third)
    accumulator.apply(0, np.float32(1))
    assert first.waits and accumulator.pending() == 3
    accumulator.apply(0, np.float32(1))
    assert first.value == 2 and second.waits
    accumulator.apply(1, np.float32(5))
    assert third.waits
    step.cancel()
    assert third.value == 5  # what was added up stays
    with pytest.raises(errors.CancelledError):
        assert second.value
    assert accumulator.step == 2
    last = Recorder()
    accumulator.take(1, last)
    accumulator.close()
    with pytest.raises(errors.CancelledError, match="deleted"):
        assert last.value


def test_gradients_are_neither_kept_nor_written_to() -> None:
    accumulator = DenseAccumulator("a", F32, None, False)
    gradient = np.ones(3, np.float32)
    for _ in range(4):
        accumulator.apply(0, gradient)
    result = taken(accumulator, 4)
    assert gradient.tolist() == [1, 1, 1] and result.tolist() == [4, 4, 4]
    result[:] = 9
    accumulator.apply(1, gradient)
    accumulator.apply(1, gradient)
    assert taken(accumulator, 1).tolist() == [2, 2, 2]


def test_a_first_gradient_decides_the_shape() -> None:
    accumulator = DenseAccumulator("a", F32, (None,), False)
    accumulator.apply(0, np.ones(2, np.float32))
    with pytest.raises(errors.InvalidArgumentError, match=r"expected \[2\], got \[3\]"):
        accumulator.apply(0, np.ones(3, np.float32))
    assert accumulator.count == 1
    taken(accumulator, 1)
    accumulator.apply(1, np.ones(3, np.float32))
    with pytest.raises(errors.InvalidArgumentError, match=r"expected \[3\], got \[\]"):
        accumulator.apply(1, np.float32(1))


@pytest.mark.parametrize("name", NUMBERS)
def test_element_types(name: str) -> None:
    dtype = dtypes.as_dtype(name)
    values = [np.array([3, 100], dtype.numpy), np.array([4, 20], dtype.numpy)]
    for mean, wanted in ((False, [7, 120]), (True, [3.5, 60])):
        dense = DenseAccumulator("a", dtype, None, mean)
        sparse = SparseAccumulator("s", dtype, None, mean)
        for value in values:
            dense.apply(0, value)
            sparse.apply(0, np.array([1, 0]), value)
        got = taken(dense, 2)
        _, rows, _ = taken(sparse, 2)
        assert got.dtype == rows.dtype == dtype.numpy
        if dtype.is_integer:
            wanted = [int(w) for w in wanted]
        assert got.tolist() == wanted == rows[::-1].tolist()


def test_means_of_integers_are_rounded_towards_zero() -> None:
    accumulator = DenseAccumulator("a", dtypes.int32, None, True)
    for value in (-3, -4):
        accumulator.apply(0, np.array([value, -value], np.int32))
    assert taken(accumulator, 2).tolist() == [-3, 3]


def test_narrow_floats_are_added_up_in_wider_ones() -> None:
    accumulator = DenseAccumulator("a", dtypes.float16, None, False)
    for _ in range(3000):
        accumulator.apply(0, np.array([1.0], np.float16))
    assert taken(accumulator, 3000)[0] == 3000  # adding 1 to 2048 in float16 changes nothing


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 5), st.integers(-4, 4)), max_size=6),
        min_size=1,
        max_size=5,
    ),
    st.booleans(),
)
def test_sparse_rows_against_a_table(gradients: list[list[tuple[int, int]]], mean: bool) -> None:
    accumulator = SparseAccumulator("s", dtypes.float64, (6, 2), mean)
    totals: dict[int, float] = {}
    having: dict[int, int] = {}
    for rows in gradients:
        indices = np.array([index for index, _ in rows], np.int64)
        values = np.array([[value, 2 * value] for _, value in rows], float).reshape(-1, 2)
        accumulator.apply(0, indices, values, np.array([6, 2]))
        for index, value in rows:
            totals[index] = totals.get(index, 0) + value
        for index in set(indices.tolist()):
            having[index] = having.get(index, 0) + 1
    indices, values, shape = taken(accumulator, len(gradients))
    assert indices.tolist() == sorted(totals) and shape.tolist() == [6, 2]
    wanted = [totals[i] / (having[i] if mean else 1) for i in sorted(totals)]
    np.testing.assert_allclose(values[:, 0], wanted)
    np.testing.assert_allclose(values[:, 1], np.multiply(wanted, 2))


def test_sparse_rows_are_merged_as_they_come() -> None:
    accumulator = SparseAccumulator("s", F32, None, True)
    indices = np.arange(2000, dtype=np.int64)
    values = np.ones((2000, 2), np.float32)
    for _ in range(50):
        accumulator.apply(0, indices, values)
        assert sum(len(rows) for rows, _, _ in accumulator._parts) <= 6000
    _, means, shape = taken(accumulator, 50)
    assert (means == 1).all() and shape.tolist() == [-1, 2]


@pytest.mark.parametrize(
    ("indices", "values", "shape", "match"),
    [
        ([[1]], [[1.0, 2.0]], None, "should be vector"),
        ([1, 2], [[1.0, 2.0]], None, "Expected 2 rows"),
        ([1], 1.0, None, "Expected 1 rows"),
        ([1], [[1.0, 2.0, 3.0]], None, "expected values of shape"),
        ([1], [[1.0, 2.0]], [6, 2], r"expected shape \[5,2\], got \[6, 2\]"),
        ([1], [[1.0, 2.0]], 5, r"a size for each axis of values of shape \[1,2\], got 5"),
        ([1], [[1.0, 2.0]], [5], r"a size for each axis"),
        ([5], [[1.0, 2.0]], None, r"in \[0, 5\), got 5"),
        ([-1], [[1.0, 2.0]], None, "got -1"),
    ],
)
def test_wrong_sparse_gradients_change_nothing(
    indices: Any, values: Any, shape: Any, match: str
) -> None:
    accumulator = SparseAccumulator("s", F32, (5, 2), True)
    known = None if shape is None else np.array(shape)
    with pytest.raises(errors.InvalidArgumentError, match=match):
        accumulator.apply(0, np.array(indices), np.array(values, np.float32), known)
    assert accumulator.count == 0


# --------------------------------------------------------------------------- in sessions


def test_gradients_of_steps(session: Any) -> None:
    accumulator = ConditionalAccumulator(F32, [2], name="acc")
    assert accumulator.name == "acc" and accumulator.dtype == F32
    fed = placeholder(F32, [2])
    apply, count = accumulator.apply_grad(fed, 0), accumulator.num_accumulated()
    take = accumulator.take_grad(2)
    assert take.shape.as_list() == [2]
    value = np.array([1.0, 2.0], np.float32)
    session.run(apply, {fed: value})
    value[:] = 3
    session.run(apply, {fed: value})
    assert session.run(count) == 2
    assert session.run(take).tolist() == [2, 2.5]
    session.run(apply, {fed: value})
    assert session.run(count) == 0
    session.run(accumulator.set_global_step(0))
    session.run(apply, {fed: value})
    assert session.run(count) == 1


def test_taking_waits_for_gradients(session: Any) -> None:
    accumulator = ConditionalAccumulator(F32, [], reduction_type="SUM")
    take, apply = accumulator.take_grad(3), accumulator.apply_grad(2.0)
    with in_threads(lambda: session.run(take)) as threads:
        wait_until(lambda: session.resources.resources(DenseAccumulator, ""))
        (found,) = session.resources.resources(DenseAccumulator, "")
        wait_until(lambda: found.pending() == 1)
        for _ in range(3):
            session.run(apply)
    assert threads[0].outcome == 6
    with pytest.raises(errors.DeadlineExceededError):
        session.run(take, options=proto.RunOptions(timeout_in_ms=20))
    assert found.pending() == 0


def test_wrong_requests(session: Any) -> None:
    accumulator = ConditionalAccumulator(F32, [2])
    with pytest.raises(errors.InvalidArgumentError, match="must be positive, but was 0"):
        session.run(accumulator.take_grad(0))
    with pytest.raises(errors.InvalidArgumentError, match="incompatible"):
        accumulator.apply_grad([1.0, 2.0, 3.0])
    fed = placeholder(F32)
    with pytest.raises(errors.InvalidArgumentError, match=r"expected \[2\], got \[3\]"):
        session.run(accumulator.apply_grad(fed), {fed: [1.0, 2.0, 3.0]})
    count, step = placeholder(dtypes.int32), placeholder(dtypes.int64)
    with pytest.raises(errors.InvalidArgumentError, match="num_required must be a scalar"):
        session.run(accumulator.take_grad(count), {count: [1]})
    with pytest.raises(errors.InvalidArgumentError, match="local_step must be a scalar"):
        session.run(accumulator.apply_grad([1.0, 2.0], step), {step: [1]})
    with pytest.raises(errors.InvalidArgumentError, match="new_global_step must be a scalar"):
        session.run(accumulator.set_global_step(step), {step: [1]})
    assert session.run(accumulator.num_accumulated()) == 0
    with pytest.raises(errors.InvalidArgumentError, match="MEAN"):
        ConditionalAccumulator(F32, reduction_type="MEDIAN")
    other = out(
        "ResourceAccumulatorTakeGradient",
        [accumulator.accumulator_ref, 1],
        {"dtype": dtypes.float64},
    )
    with pytest.raises(errors.InvalidArgumentError, match="is float32, but the gradient is"):
        session.run(other)


def test_sparse_gradients_of_steps(session: Any) -> None:
    accumulator = SparseConditionalAccumulator(F32, [5, 2])
    first = accumulator.apply_grad([3, 1], [[1.0, 2.0], [3.0, 4.0]], [5, 2])
    slices = IndexedSlices([[5.0, 6.0]], np.array([3], np.int32))
    second = accumulator.apply_indexed_slices_grad(slices)
    indices, values, shape = accumulator.take_grad(2)
    assert values.shape.as_list() == [None, 2]
    session.run([first, second])
    got = session.run([indices, values, shape])
    assert got[0].tolist() == [1, 3] and got[2].tolist() == [5, 2]
    assert got[1].tolist() == [[3, 4], [3, 4]]
    again = accumulator.take_indexed_slices_grad(1)
    session.run(accumulator.apply_grad([0], [[1.0, 1.0]], local_step=1))
    value = session.run(again)
    assert value.indices.tolist() == [0] and value.dense_shape.tolist() == [5, 2]
    assert session.run(accumulator.num_accumulated()) == 0


def test_both_forms_of_handles(session: Any) -> None:
    attrs = {"dtype": F32, "shape": TensorShape([2]), "shared_name": "both"}
    reference = create("ConditionalAccumulator", (), attrs).outputs[0]
    handle = create("ResourceConditionalAccumulator", (), attrs).outputs[0]
    session.run(create("AccumulatorApplyGradient", [reference, 0, [1.0, 2.0]]))
    session.run(create("ResourceAccumulatorApplyGradient", [handle, 0, [3.0, 4.0]]))
    assert session.run(out("AccumulatorNumAccumulated", [reference])) == 2
    mean = out("AccumulatorTakeGradient", [reference, 2], {"dtype": F32})
    assert session.run(mean).tolist() == [2, 3]
    session.run(create("AccumulatorSetGlobalStep", [reference, 9]))
    (found,) = session.resources.resources(DenseAccumulator, "")
    assert found.step == 9
    assert session.run(reference)[1] == b"both"


def test_sharing_is_checked() -> None:
    with Graph().as_default() as graph:
        first = ConditionalAccumulator(F32, [2], shared_name="shared")
        second = ConditionalAccumulator(F32, [3], shared_name="shared")
        with Session(graph=graph) as session:
            session.run(first.num_accumulated())
            with pytest.raises(errors.InvalidArgumentError, match=r"shape \[2\], but \[3\]"):
                session.run(second.num_accumulated())

"""Recurrent networks as loops: ends of sequences, shapes, names, both directions, `raw_rnn`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from weft_autodiff.gradients.backprop import gradients
from weft_exec.session.session import Session
from weft_graph import proto
from weft_graph.control_flow.conditional import cond
from weft_graph.control_flow.loop import while_loop
from weft_graph.control_flow.tensor_array import TensorArray
from weft_graph.ir import nest
from weft_graph.ir.builder import constant
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_graph.ops import array, casting, comparison, join, reduction, shapes, trigonometry
from weft_graph.ops.array import placeholder
from weft_graph.rnn import cell as rnn_cell
from weft_graph.rnn.dynamic import bidirectional_dynamic_rnn, dynamic_rnn, raw_rnn
from weft_graph.rnn.static import static_rnn
from weft_graph.variables import initializers
from weft_graph.variables.reference import (
    global_variables,
    global_variables_initializer,
    trainable_variables,
)
from weft_graph.variables.scope import AUTO_REUSE, variable_scope
from weft_tensor import dtypes, errors
from weft_tensor.allocator import cpu_allocator
from weft_tensor.shape import TensorShape

RNG = np.random.default_rng(9)


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as g:
        yield g


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def run(fetches: Any, feeds: Any = None) -> Any:
    with Session() as session:
        session.run(global_variables_initializer())
        return session.run(fetches, feeds)


def names() -> list[str]:
    return [variable.op.name for variable in global_variables()]


class Counting(rnn_cell.RNNCell):
    """Output: input and state added. State: the sum of inputs, and how often it ran."""

    @property
    def state_size(self) -> Any:
        return {"sum": 2, "count": TensorShape([])}

    @property
    def output_size(self) -> Any:
        return 2

    def call(self, inputs: Any, state: Any) -> Any:
        total = state["sum"] + inputs
        return inputs + state["sum"], {"sum": total, "count": state["count"] + 1.0}


def counting_state(batch: int) -> Any:
    return {"sum": array.zeros([batch, 2]), "count": array.zeros([])}


# ------------------------------------------------------------------------- ends of sequences


@pytest.mark.parametrize("kind", ["int32", "int64", "uint8"])
@pytest.mark.parametrize("batch", [4, None])
def test_past_its_end_a_sequence_gives_zeros_and_keeps_its_state(kind: str, batch: Any) -> None:
    x, lengths = placeholder("float32", [batch, 3, 2]), placeholder(kind, [batch])
    outputs, last = dynamic_rnn(Counting(), x, lengths, counting_state(4))
    values, ends = normal(4, 3, 2), np.array([0, 1, 3, 7])
    found, final = run([outputs, last], {x: values, lengths: ends})
    alive = np.arange(3)[:, None] < ends[:, None, None]
    before = np.cumsum(values, 1) - values
    np.testing.assert_allclose(found, (values + before) * alive, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(final["sum"], (values * alive).sum(1), rtol=1e-5, atol=1e-6)
    assert final["count"] == 3


def test_the_loop_ends_with_the_longest_sequence_but_runs_once() -> None:
    x, lengths = placeholder("float32", [2, 9, 2]), placeholder("int32", [2])
    outputs, last = dynamic_rnn(Counting(), x, lengths, counting_state(2))
    counts = []
    for ends in ([0, 0], [1, 0], [4, 2], [9, 9], [30, -3]):
        found, final = run([outputs, last["count"]], {x: np.ones((2, 9, 2)), lengths: ends})
        assert np.count_nonzero(found.sum(2), 1).tolist() == [min(max(n, 0), 9) for n in ends]
        counts.append(int(final))
    assert counts == [1, 1, 4, 9, 9]


def test_nothing_past_the_end_reaches_results_or_gradients() -> None:
    x = placeholder("float32", [2, 3, 2])
    cell = rnn_cell.GRUCell(2)
    outputs, last = dynamic_rnn(cell, x, [1, 2], dtype="float32")
    grads = gradients([outputs, last], [x])
    value = normal(2, 3, 2)
    changed = value.copy()
    changed[0, 1:], changed[1, 2:] = 7, -7
    with Session() as session:
        session.run(global_variables_initializer())
        first, second = (session.run([outputs, last, *grads], {x: v}) for v in (value, changed))
    for mine, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(mine, other)
    assert not first[2][0, 1:].any()
    assert not first[2][1, 2:].any()


@settings(max_examples=15)
@given(
    lengths=st.lists(st.integers(-1, 6), min_size=1, max_size=4),
    steps=st.integers(1, 5),
    time_major=st.booleans(),
)
def test_it_is_the_unrolled_network(lengths: list[int], steps: int, time_major: bool) -> None:
    batch = len(lengths)
    with Graph().as_default():
        value = np.random.RandomState(steps).randn(batch, steps, 2).astype(np.float32)
        with variable_scope("net", initializer=initializers.random_normal_initializer(seed=2)):
            cell = rnn_cell.BasicLSTMCell(3)
            inputs = constant(value.swapaxes(0, 1) if time_major else value)
            looped = dynamic_rnn(cell, inputs, lengths, None, "float32", time_major=time_major)
        with variable_scope("net", reuse=True):
            rows = [constant(value[:, t]) for t in range(steps)]
            outputs, state = static_rnn(cell, rows, None, "float32", lengths)
        unrolled = join.stack(outputs, 0 if time_major else 1), state
        grads = [
            gradients(nest.flatten(each), trainable_variables()) for each in (looped, unrolled)
        ]
        found = run([looped, unrolled, *grads])
    for i in (0, 2):
        for mine, other in zip(nest.flatten(found[i]), nest.flatten(found[i + 1]), strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("static", [True, False])
def test_lengths_must_be_as_many_as_the_batch(static: bool) -> None:
    x = placeholder("float32", [4 if static else None, 3, 2])
    lengths = placeholder("int32", [3] if static else [None])
    if static:
        with pytest.raises(errors.InvalidArgumentError, match="one entry for each of 4 examples"):
            dynamic_rnn(rnn_cell.GRUCell(2), x, lengths, dtype="float32")
        return
    outputs, _ = dynamic_rnn(rnn_cell.GRUCell(2), x, lengths, dtype="float32")
    with pytest.raises(errors.InvalidArgumentError, match="one entry per example"):
        run(outputs, {x: normal(4, 3, 2), lengths: [1, 2, 3]})


def test_no_steps_and_no_examples() -> None:
    cell = rnn_cell.BasicLSTMCell(3)
    x, lengths = placeholder("float32", [None, None, 2]), placeholder("int32", [None])
    with variable_scope("plain"):
        plain = dynamic_rnn(cell, x, dtype="float32")
    with variable_scope("ended"):
        ended = dynamic_rnn(rnn_cell.BasicLSTMCell(3), x, lengths, dtype="float32")
    outputs, state = run(plain, {x: np.zeros((0, 4, 2))})
    assert (outputs.shape, state.c.shape) == ((0, 4, 3), (0, 3))
    outputs, state = run(ended, {x: np.zeros((0, 4, 2)), lengths: []})
    assert (outputs.shape, state.c.shape) == ((0, 4, 3), (0, 3))
    known = placeholder("float32", [2, None, 2])
    with variable_scope("known"):
        outputs, state = dynamic_rnn(rnn_cell.GRUCell(3), known, dtype="float32")
    found, last = run([outputs, state], {known: np.zeros((2, 0, 2))})
    assert found.shape == (2, 0, 3)
    assert not last.any()


# ----------------------------------------------------------------------- shapes, types, names


def test_static_shapes() -> None:
    for batch, steps in ((4, 5), (None, 5), (4, None), (None, None)):
        with Graph().as_default():
            x = placeholder("float32", [batch, steps, 2])
            cell = rnn_cell.LSTMCell(3, num_proj=6)
            outputs, state = dynamic_rnn(cell, x, dtype="float32")
            assert outputs.dims == (batch, steps, 6)
            assert (state.c.dims, state.h.dims) == ((batch, 3), (batch, 6))
            with variable_scope("major"):
                outputs, _ = dynamic_rnn(rnn_cell.GRUCell(3), x, dtype="float32", time_major=True)
            assert outputs.dims == (batch, steps, 3)


def test_what_one_input_knows_holds_for_all() -> None:
    class Both(rnn_cell.RNNCell):
        state_size = 1
        output_size = (2, TensorShape([3, 1]))

        def call(self, inputs: Any, state: Any) -> Any:
            return inputs, state

    first, second = placeholder("float32", [4, None, 2]), placeholder("float32", [None, 5, 3, 1])
    outputs, _ = dynamic_rnn(Both(), (first, second), dtype="float32")
    assert [each.dims for each in outputs] == [(4, 5, 2), (4, 5, 3, 1)]
    values = normal(4, 5, 2), normal(4, 5, 3, 1)
    for mine, other in zip(
        run(outputs, {first: values[0], second: values[1]}), values, strict=True
    ):
        np.testing.assert_array_equal(mine, other)


def test_names_are_those_of_tensorflow(graph: Graph) -> None:
    x = placeholder("float32", [None, 5, 2])
    outputs, state = dynamic_rnn(rnn_cell.BasicLSTMCell(3), x, [1, 2], dtype="float32")
    assert outputs.name == "rnn/transpose_1:0"
    assert state.c.name.startswith("rnn/while/Exit")
    assert {"rnn/transpose", "rnn/sequence_length", "rnn/CheckSeqLen", "rnn/time"} <= {
        node.name for node in graph.nodes
    }
    dynamic_rnn(rnn_cell.GRUCell(3, name="gru"), x, dtype="float32", scope="mine")
    bidirectional_dynamic_rnn(rnn_cell.GRUCell(3), rnn_cell.GRUCell(3), x, dtype="float32")
    raw_rnn(rnn_cell.BasicRNNCell(2), raw_steps(constant(normal(2, 3, 2)), 2))
    assert names() == [
        "rnn/basic_lstm_cell/kernel",
        "rnn/basic_lstm_cell/bias",
        "mine/gru/gates/kernel",
        "mine/gru/gates/bias",
        "mine/gru/candidate/kernel",
        "mine/gru/candidate/bias",
        *[
            f"bidirectional_rnn/{way}/gru_cell/{gate}/{kind}"
            for way in ("fw", "bw")
            for gate in ("gates", "candidate")
            for kind in ("kernel", "bias")
        ],
        "rnn/basic_rnn_cell/kernel",
        "rnn/basic_rnn_cell/bias",
    ]


def test_a_scope_can_be_used_again() -> None:
    x = constant(normal(2, 3, 2))
    with variable_scope("net", reuse=AUTO_REUSE) as scope:
        first, _ = dynamic_rnn(rnn_cell.GRUCell(3), x, dtype="float32", scope=scope)
        second, _ = dynamic_rnn(rnn_cell.GRUCell(3), x, dtype="float32", scope=scope)
    assert len(names()) == 4
    np.testing.assert_array_equal(*run([first, second]))
    with pytest.raises(errors.InvalidArgumentError, match="exists"):
        dynamic_rnn(rnn_cell.GRUCell(3), x, dtype="float32", scope="net")


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
def test_element_types(kind: str) -> None:
    x = casting.cast(normal(2, 3, 2), kind)
    outputs, state = dynamic_rnn(rnn_cell.GRUCell(3), x, [1, 3], dtype=kind)
    assert {outputs.dtype.name, state.dtype.name} == {kind}
    grads = gradients([outputs, state], trainable_variables())
    for each in run([outputs, state, *grads]):
        assert each.dtype == dtypes.as_dtype(kind).numpy
        assert np.isfinite(each.astype(np.float64)).all()


def test_the_states_own_type_is_that_of_the_outputs() -> None:
    x = constant(normal(2, 3, 2).astype(np.float64))
    state = array.zeros([2, 3], "float64")
    outputs, last = dynamic_rnn(rnn_cell.GRUCell(3), x, initial_state=state)
    assert outputs.dtype is last.dtype is dtypes.float64


# -------------------------------------------------------------------------------- the loop


def test_a_step_has_few_nodes_beside_the_cells() -> None:
    lean = ["AddV2", "Less", "TensorArrayReadV3", "TensorArrayWriteV3"]
    assert nodes_of_a_step(None) == lean
    assert nodes_of_a_step([1, 2]) == sorted([*lean, "GreaterEqual", "Select", "Select"])


def nodes_of_a_step(lengths: Any) -> list[str]:
    """The op types, but the cell's and those that route values."""
    with Graph().as_default() as graph:
        x = placeholder("float32", [None, None, 2])
        dynamic_rnn(rnn_cell.BasicRNNCell(3), x, lengths, dtype="float32")
        loop = next(node.context for node in graph.nodes if node.type == "LoopCond")
        inside = [node for node in graph.nodes if node.context is loop]
    routing = {"Const", "Enter", "Exit", "Identity", "LoopCond", "Merge", "NextIteration", "Switch"}
    return sorted(n.type for n in inside if n.type not in routing and "basic_rnn" not in n.name)


def test_settings_reach_the_loop_and_change_no_result(graph: Graph) -> None:
    x = constant(normal(2, 4, 2))
    results = []
    every = [{}, {"parallel_iterations": 1}, {"parallel_iterations": 7, "swap_memory": True}]
    for i, options in enumerate(every):
        with variable_scope("net", reuse=bool(i)):
            cell = rnn_cell.BasicLSTMCell(3)
            outputs, _ = dynamic_rnn(cell, x, dtype="float32", **options)
        results.append([outputs, *gradients(outputs, trainable_variables())])
    loops = [node.context for node in graph.nodes if node.type == "LoopCond"]
    forward = [each for each in loops if each.forward is None]
    assert [each.parallel_iterations for each in forward] == [32, 1, 7]
    assert [each.swap_memory for each in forward] == [False, False, True]
    first, *others = run(results)
    for other in others:
        for mine, value in zip(first, other, strict=True):
            np.testing.assert_array_equal(mine, value)


def test_variables_are_read_outside_of_the_loop(graph: Graph) -> None:
    x = constant(normal(2, 4, 2))
    with variable_scope("net", use_resource=True):
        dynamic_rnn(rnn_cell.GRUCell(3), x, dtype="float32")
        raw_rnn(rnn_cell.GRUCell(3), raw_steps(x, 3), scope="raw")
    reads = [node for node in graph.nodes if node.type == "ReadVariableOp"]
    assert len(reads) == 8
    assert all(node.context is None for node in reads)


def test_inside_branches_loops_and_rows() -> None:
    x, wanted = placeholder("float32", [3, 2, 4, 2]), placeholder("bool", [])
    cell = rnn_cell.GRUCell(2)

    def last_of(rows: Any) -> Any:
        with variable_scope("net", reuse=AUTO_REUSE):
            return dynamic_rnn(cell, rows, [4, 1], dtype="float32")[1]

    chosen = cond(wanted, lambda: last_of(x[0]), lambda: x[0][:, 0] * 2.0)
    _, total = while_loop(
        lambda i, _: i < 3, lambda i, total: (i + 1, total + last_of(x[i])), (0, x[0][:, 0] * 0.0)
    )
    plain = last_of(x[0]) + last_of(x[1]) + last_of(x[2])
    value = normal(3, 2, 4, 2)
    found = run([total, plain, *gradients(total, [x]), *gradients(plain, [x])], {x: value})
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)
    np.testing.assert_allclose(found[2], found[3], rtol=1e-4, atol=1e-6)
    grads = gradients(chosen, [x, *trainable_variables()])
    with Session() as session:
        session.run(global_variables_initializer())
        for flag in (True, False):
            got = session.run([chosen, last_of(x[0]), *grads], {x: value, wanted: flag})
            np.testing.assert_array_equal(got[0], got[1] if flag else value[0, :, 0] * 2)
            assert any(each.any() for each in got[3:]) is flag


def test_gradients_of_gradients() -> None:
    x = placeholder("float64", [2, 3, 2])
    initializer = initializers.random_normal_initializer(seed=4)
    with variable_scope("net", initializer=initializer):
        outputs, _ = dynamic_rnn(rnn_cell.GRUCell(2), x, [3, 2], dtype="float64")
    (first,) = gradients(outputs * outputs, [x])
    penalty = reduction.reduce_sum(first * first)
    (second,) = gradients(penalty, [x])
    value, direction = RNG.standard_normal((2, *x.dims))
    with Session() as session:
        session.run(global_variables_initializer())
        near = [session.run(penalty, {x: value + e * direction}) for e in (1e-5, -1e-5)]
        exact = np.vdot(session.run(second, {x: value}), direction)
    assert exact == pytest.approx((near[0] - near[1]) / 2e-5, rel=1e-6)


def test_memory_of_steps_is_gone_after_the_run() -> None:
    x = constant(normal(4, 50, 256))
    outputs, _ = dynamic_rnn(rnn_cell.BasicLSTMCell(256), x, dtype="float32")
    updates = [grad.op for grad in gradients(outputs, trainable_variables())]
    with Session(config=config_of("SINGLE_THREADED_EXECUTOR")) as session:
        session.run(global_variables_initializer())
        session.run(updates)
        before = cpu_allocator().statistics().bytes_in_use
        session.run(updates)
        assert cpu_allocator().statistics().bytes_in_use == before


def config_of(executor: str) -> proto.ConfigProto:
    config = proto.ConfigProto(inter_op_parallelism_threads=2)
    config.experimental.executor_type = executor
    return config


# ------------------------------------------------------------------------------- what is refused


def test_refusals() -> None:
    cell, x = rnn_cell.GRUCell(3), constant(normal(2, 3, 2))
    with pytest.raises(errors.InvalidTypeError, match="is not an RNNCell"):
        dynamic_rnn(object(), x, dtype="float32")
    with pytest.raises(errors.InvalidArgumentError, match="dtype is required"):
        dynamic_rnn(cell, x)
    for lengths, kind in (
        ([[1, 2]], errors.InvalidArgumentError),
        ([True], errors.InvalidTypeError),
    ):
        with pytest.raises(kind, match="sequence_length must be"):
            dynamic_rnn(cell, x, lengths, dtype="float32")
    for dims in ([2, 3], [3], None):
        with pytest.raises(errors.InvalidArgumentError, match="rank of at least"):
            dynamic_rnn(cell, placeholder("float32", dims), dtype="float32")
    with pytest.raises(errors.InvalidArgumentError, match="must be known"):
        dynamic_rnn(cell, placeholder("float32", [2, 3, None]), dtype="float32")
    with pytest.raises(errors.InvalidArgumentError, match="equal numbers of steps, got 3 and 4"):
        dynamic_rnn(cell, (x, constant(normal(2, 4, 2))), dtype="float32")
    with pytest.raises(errors.InvalidArgumentError, match="equal batch sizes, got 2 and 4"):
        dynamic_rnn(cell, (x, constant(normal(4, 3, 2))), dtype="float32")


def test_a_cell_must_keep_its_word() -> None:
    class Wrong(rnn_cell.RNNCell):
        state_size = 2
        output_size = 2

        def __init__(self, result: Any) -> None:
            super().__init__()
            self.result = result

        def call(self, inputs: Any, state: Any) -> Any:
            return self.result(inputs, state)

    x = constant(normal(2, 3, 2))
    for result, message in (
        (lambda x, s: ((x, x), s), "structures must be the same"),
        (lambda x, s: (x, (s, s)), "structure"),
        (lambda x, s: (x, s[:, :1]), "shape"),
        (lambda x, s: (x[:, :1], s), "must have shape"),
        (lambda x, s: (casting.cast(x, "int32"), s), "requires values of float32"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=message):
            dynamic_rnn(Wrong(result), x, dtype="float32")


# -------------------------------------------------------------------------- both directions


@pytest.mark.parametrize("time_major", [True, False])
@pytest.mark.parametrize("lengths", [None, [2, 4, 0]])
def test_both_directions(time_major: bool, lengths: Any) -> None:
    value = normal(3, 4, 2)
    x = constant(value.swapaxes(0, 1) if time_major else value)
    states = [{"sum": array.zeros([3, 2]), "count": array.zeros([])} for _ in range(2)]
    outputs, last = bidirectional_dynamic_rnn(
        Counting(), Counting(), x, lengths, *states, time_major=time_major
    )
    (forward, backward), finals = run([outputs, last])
    if time_major:
        forward, backward = forward.swapaxes(0, 1), backward.swapaxes(0, 1)
    ends = np.array([4, 4, 4] if lengths is None else lengths)
    alive = np.arange(4)[:, None] < ends[:, None, None]
    kept = value * alive
    np.testing.assert_allclose(forward, np.cumsum(kept, 1) * alive, rtol=1e-5, atol=1e-6)
    turned = np.cumsum(kept[:, ::-1], 1)[:, ::-1]
    np.testing.assert_allclose(backward, turned * alive, rtol=1e-5, atol=1e-6)
    for final in finals:
        np.testing.assert_allclose(final["sum"], kept.sum(1), rtol=1e-5, atol=1e-6)


def test_both_directions_of_structures() -> None:
    class Same(rnn_cell.RNNCell):
        state_size = 1

        @property
        def output_size(self) -> Any:
            return {"a": 2, "b": 3}

        def call(self, inputs: Any, state: Any) -> Any:
            return inputs, state

    x = {"a": constant(normal(2, 4, 2)), "b": constant(normal(2, 4, 3))}
    outputs, _ = bidirectional_dynamic_rnn(Same(), Same(), x, [4, 2], dtype="float32")
    value, (forward, backward) = run([x, outputs])
    for key in "ab":
        value[key][1, 2:] = 0
        np.testing.assert_array_equal(forward[key], value[key])
        np.testing.assert_array_equal(backward[key], value[key])


# ---------------------------------------------------------------------------------- raw_rnn


def raw_steps(x: Any, units: int, steps: int = 3) -> Any:
    """A `loop_fn` over the rows of x, shape (B, T, I)."""

    def loop_fn(time: Any, output: Any, state: Any, loop_state: Any) -> Any:
        batch = x.dims[0]
        following = array.zeros([batch, units]) if output is None else state
        finished = join.tile(shapes.reshape(comparison.greater_equal(time, steps), [1]), [batch])
        given = x[:, 0] if output is None else x[:, -1] * casting.cast(time, "float32")
        return finished, given, following, output, None

    return loop_fn


def test_raw_rnn_calls_its_function_twice_and_tells_the_time() -> None:
    calls = []
    x = constant(normal(2, 3, 2))
    inner = raw_steps(x, 4)

    def loop_fn(time: Any, output: Any, state: Any, loop_state: Any) -> Any:
        calls.append((time, output, state, loop_state))
        return inner(time, output, state, loop_state)

    arrays, state, loop_state = raw_rnn(rnn_cell.BasicRNNCell(4), loop_fn)
    assert len(calls) == 2
    assert calls[0][1:] == (None, None, None)
    assert calls[0][0].dtype is calls[1][0].dtype is dtypes.int32
    assert calls[1][3] is loop_state is None
    assert isinstance(arrays, TensorArray)
    assert run(arrays.stack()).shape == (3, 2, 4)
    assert state.dims == (2, 4)


class Pair(NamedTuple):
    word: Any
    score: Any


@pytest.mark.parametrize("batch", [3, None])
def test_raw_rnn_emits_structures_until_each_example_is_done(batch: Any) -> None:
    x, ends = placeholder("float32", [batch, 2]), placeholder("int32", [batch])

    def loop_fn(time: Any, output: Any, state: Any, loop_state: Any) -> Any:
        finished = comparison.equal(time, ends)  # once is enough
        if output is None:
            emitted = Pair(constant(0, "int64"), array.zeros([2]))
            return finished, x, counting_state_of(x), emitted, constant(0)
        word = casting.cast(array.zeros_like(ends), "int64") + casting.cast(time, "int64")
        return finished, x, state, Pair(word, output), loop_state + 10

    arrays, state, loop_state = raw_rnn(Counting(), loop_fn)
    value, lengths = normal(3, 2), np.array([0, 2, 4])
    words, scores = arrays.word.stack(), arrays.score.stack()
    assert words.dims == (None, batch)
    assert scores.dims == (None, batch, 2)
    found = run([words, scores, state, loop_state], {x: value, ends: lengths})
    alive = np.arange(4)[:, None] < lengths
    np.testing.assert_array_equal(found[0], alive * np.arange(1, 5)[:, None])
    wanted = value * np.arange(1, 5)[:, None, None] * alive[..., None]
    np.testing.assert_allclose(found[1], wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[2]["sum"], value * lengths[:, None], rtol=1e-5, atol=1e-6)
    assert found[2]["count"] == 4
    assert found[3] == 40


def counting_state_of(x: Output) -> Any:
    return {"sum": array.zeros_like(x), "count": array.zeros([])}


def test_raw_rnn_that_is_done_before_it_starts() -> None:
    def loop_fn(time: Any, output: Any, state: Any, loop_state: Any) -> Any:
        first = array.ones([2, 3]) if output is None else state
        return array.ones([2], "bool"), array.ones([2, 2]), first, output, None

    arrays, state, _ = raw_rnn(rnn_cell.GRUCell(3), loop_fn)
    outputs, last = run([arrays.stack(), state])
    assert outputs.shape == (0, 2, 3)
    assert (last == 1).all()


def test_raw_rnn_emits_the_states_type_by_default() -> None:
    x = constant(normal(2, 3, 2).astype(np.float64))

    def loop_fn(time: Any, output: Any, state: Any, loop_state: Any) -> Any:
        first = array.zeros([2, 3], "float64") if output is None else state
        return [time >= 2, time >= 2], x[:, 0], first, output, None

    arrays, state, _ = raw_rnn(rnn_cell.GRUCell(3), loop_fn)
    assert arrays.dtype is state.dtype is dtypes.float64
    assert run(arrays.stack()).shape == (2, 2, 3)


def test_raw_rnn_carries_arrays_in_its_loop_state_and_has_gradients() -> None:
    x = placeholder("float32", [2, 3, 2])

    def loop_fn(time: Any, output: Any, state: Any, loop_state: Any) -> Any:
        inner = raw_steps(x, 4)(time, output, state, None)
        if output is None:
            kept = {"rows": TensorArray("float32", 3), "n": constant(0.0)}
        else:
            total = reduction.reduce_sum(trigonometry.tanh(output))
            rows = loop_state["rows"].write(time - 1, total)
            kept = {"rows": rows, "n": loop_state["n"] + total}
        return (*inner[:4], kept)

    arrays, _, kept = raw_rnn(rnn_cell.GRUCell(4), loop_fn)
    by_array = gradients(kept["rows"].stack(), [x])
    by_sum = gradients(kept["n"], [x])
    by_output = gradients(trigonometry.tanh(arrays.stack()), [x])
    first, *others = run([*by_array, *by_sum, *by_output], {x: normal(2, 3, 2)})
    for other in others:
        np.testing.assert_allclose(first, other, rtol=1e-4, atol=1e-6)


def test_raw_rnn_refuses() -> None:
    cell, x = rnn_cell.BasicRNNCell(4), constant(normal(2, 3, 2))
    with pytest.raises(errors.InvalidTypeError, match="loop_fn must be callable"):
        raw_rnn(cell, 3)  # type: ignore[arg-type]

    def changed(position: int, first: Any, later: Any) -> Any:
        inner = raw_steps(x, 4)

        def loop_fn(time: Any, output: Any, *rest: Any) -> Any:
            results = list(inner(time, output, *rest))
            change = first if output is None else later
            results[position] = change(results[position])
            return results

        return loop_fn

    def same(value: Any) -> Any:
        return value

    for position, first, later in (
        (2, lambda state: (state,), same),
        (2, same, lambda state: (state,)),
        (1, same, lambda given: (given,)),
        (3, same, lambda emitted: (emitted,)),
        (1, lambda given: (given, given[:1]), same),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=r"same|one batch size"):
            raw_rnn(cell, changed(position, first, later))


# ------------------------------------------------------------------------------- ways to run


@pytest.mark.kernels
@pytest.mark.parametrize("executor", ["SINGLE_THREADED_EXECUTOR", "READY_QUEUE"])
def test_two_networks_in_one_step(executor: str) -> None:
    x = placeholder("float32", [4, 6, 8])
    (forward, backward), _ = bidirectional_dynamic_rnn(
        rnn_cell.BasicLSTMCell(8), rnn_cell.GRUCell(8), x, [6, 1, 0, 3], dtype="float32"
    )
    loss = reduction.reduce_sum(forward * backward)
    fetches = [loss, *gradients(loss, [x, *trainable_variables()])]
    value = normal(4, 6, 8)
    with Session(config=config_of(executor)) as session, Session() as plain:
        session.run(global_variables_initializer())
        copies = [session.run(variable) for variable in trainable_variables()]
        plain.run([v.assign(c) for v, c in zip(trainable_variables(), copies, strict=True)])
        for mine, other in zip(
            session.run(fetches, {x: value}), plain.run(fetches, {x: value}), strict=True
        ):
            np.testing.assert_array_equal(mine, other)

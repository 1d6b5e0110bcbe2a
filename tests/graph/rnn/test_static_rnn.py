"""Unrolled recurrent networks: ends of sequences, both directions, saved states, errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from weft_autodiff.gradients.backprop import gradients
from weft_exec.session.session import Session
from weft_graph.ir import nest
from weft_graph.ir.builder import constant
from weft_graph.ir.graph import Graph
from weft_graph.ops import array, join, reduction, state
from weft_graph.ops.array import placeholder
from weft_graph.rnn import cell as rnn_cell
from weft_graph.rnn.cell import steps
from weft_graph.rnn.static import (
    static_bidirectional_rnn,
    static_rnn,
    static_state_saving_rnn,
)
from weft_graph.variables import initializers
from weft_graph.variables.base import Variable
from weft_graph.variables.reference import global_variables, global_variables_initializer
from weft_graph.variables.scope import AUTO_REUSE, variable_scope
from weft_tensor import dtypes, errors
from weft_tensor.shape import TensorShape

RNG = np.random.default_rng(8)


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


class Counting(rnn_cell.RNNCell):
    """Output: input and state added. State: how often it ran, and the sum of inputs."""

    @property
    def state_size(self) -> Any:
        return {"sum": 2, "count": TensorShape([])}

    @property
    def output_size(self) -> Any:
        return 2

    def call(self, inputs: Any, state: Any) -> Any:
        total = state["sum"] + inputs
        return inputs + state["sum"], {"sum": total, "count": state["count"] + 1.0}


# ------------------------------------------------------------------------- ends of sequences


@pytest.mark.parametrize("kind", ["int32", "int64"])
@pytest.mark.parametrize("batch", [4, None])
def test_past_its_end_a_sequence_gives_zeros_and_keeps_its_state(kind: str, batch: Any) -> None:
    x = [placeholder("float32", [batch, 2]) for _ in range(3)]
    lengths = placeholder(kind, [batch])
    outputs, last = static_rnn(Counting(), x, dtype="float32", sequence_length=lengths)
    values, ends = normal(3, 4, 2), np.array([0, 1, 3, 7])
    feeds = dict(zip([*x, lengths], [*values, ends], strict=True))
    found, final = run([outputs, last], feeds)
    alive = np.arange(3)[:, None, None] < ends[:, None]
    before = np.cumsum(values, 0) - values
    np.testing.assert_allclose(found, (values + before) * alive, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(final["sum"], (values * alive).sum(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(final["count"], [0, 1, 3, 3])
    assert all(output.dims == (batch, 2) for output in outputs)


def test_what_is_past_the_end_does_not_matter() -> None:
    values = normal(3, 2, 2)
    values[1, 0], values[2, 1] = np.inf, np.nan
    with variable_scope("m", initializer=initializers.constant_initializer(0.2)):
        outputs, last = static_rnn(
            rnn_cell.GRUCell(2),
            [constant(value) for value in values],
            dtype="float32",
            sequence_length=[1, 2],
        )
    found, final = run([outputs, last])
    assert np.isfinite(found).all()
    assert np.isfinite(final).all()
    np.testing.assert_array_equal(final, [found[0][0], found[1][1]])


def test_no_gradient_comes_from_past_the_end() -> None:
    x = [constant(value) for value in normal(3, 2, 2)]
    outputs, last = static_rnn(
        rnn_cell.BasicLSTMCell(3), x, dtype="float32", sequence_length=[1, 3]
    )
    loss = reduction.reduce_sum(join.stack(outputs)) + reduction.reduce_sum(last.c)
    slopes = run(gradients(loss, x))
    assert [bool(row.any()) for slope in slopes for row in slope] == [1, 1, 0, 1, 0, 1]


def test_lengths_may_have_an_unknown_rank_but_not_another_one() -> None:
    x = [constant(normal(2, 2))] * 2
    lengths = placeholder("int32")
    outputs, _ = static_rnn(Counting(), x, dtype="float32", sequence_length=lengths)
    assert (run(outputs, {lengths: [0, 2]})[1][0] == 0).all()
    with pytest.raises(errors.InvalidArgumentError, match="one element per row"):
        run(outputs, {lengths: [0, 2, 2]})
    with pytest.raises(errors.InvalidArgumentError, match="vector of the batch size"):
        static_rnn(Counting(), x, dtype="float32", sequence_length=2)
    with pytest.raises(errors.InvalidTypeError, match="must be numbers"):
        static_rnn(Counting(), x, dtype="float32", sequence_length=[True, False])


def test_fractions_of_lengths_are_cut_off() -> None:
    x = [constant(normal(2, 2))] * 2
    outputs, _ = static_rnn(Counting(), x, dtype="float32", sequence_length=[0.9, 2.0])
    assert run(outputs)[1].any(1).tolist() == [False, True]


def test_what_is_of_no_example_is_not_chosen_from() -> None:
    past = constant([True, False])
    whole, other = constant(3.0), object()
    before = (constant([1.0, 2.0]), constant(0.0), "array")
    chosen = steps.copy_through(past, before, (constant([5.0, 6.0]), whole, other))
    assert chosen[1] is whole
    assert chosen[2] is other
    assert run(chosen[0]).tolist() == [1, 6]
    with pytest.raises(errors.InvalidArgumentError, match="must be the same"):
        steps.copy_through(past, before, before[:2])


def test_a_step_past_the_end_costs_a_choice_per_tensor(graph: Graph) -> None:
    def nodes(number: int) -> int:
        with Graph().as_default() as g:
            x = [constant(normal(2, 3))] * number
            cell = rnn_cell.BasicLSTMCell(4)
            static_rnn(cell, x, dtype="float32", sequence_length=placeholder("int32", [2]))
            return sum(node.type != "Const" for node in g.get_operations())

    assert nodes(4) - nodes(3) == 14 + 3


# ------------------------------------------------------------------------- states and batches


def test_the_state_goes_on_from_the_one_given() -> None:
    values = normal(4, 3, 2)
    x = [constant(value) for value in values]
    with variable_scope("m", reuse=AUTO_REUSE):
        whole, end = static_rnn(rnn_cell.LSTMCell(3), x, dtype="float32")
        first, middle = static_rnn(rnn_cell.LSTMCell(3), x[:2], dtype="float32")
        second, last = static_rnn(rnn_cell.LSTMCell(3), x[2:], initial_state=middle)
    assert isinstance(last, rnn_cell.LSTMStateTuple)
    a, b, c, d = run([whole, first + second, end, last])
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(c, d, rtol=1e-5, atol=1e-6)


def test_states_are_fed_and_fetched_between_runs() -> None:
    cell = rnn_cell.MultiRNNCell([rnn_cell.BasicLSTMCell(4), rnn_cell.BasicLSTMCell(3)])
    x = placeholder("float32", [2, 2, 5])
    start = cell.zero_state(2, "float32")
    outputs, last = static_rnn(cell, [x[0], x[1]], initial_state=start)
    values = normal(4, 2, 5)
    with variable_scope("rnn", reuse=True):
        whole, _ = static_rnn(cell, [constant(value) for value in values], dtype="float32")
    with Session() as session:
        session.run(global_variables_initializer())
        state_now = session.run(start)
        for part in (values[:2], values[2:]):
            feeds: dict[Any, Any] = {x: part}
            for (c, h), now in zip(start, state_now, strict=True):
                feeds[c], feeds[h] = now.c, now.h
            found, state_now = session.run([outputs[-1], last], feeds)
        np.testing.assert_allclose(found, session.run(whole[-1]), rtol=1e-5, atol=1e-6)


def test_the_batch_size_is_known_when_the_graph_runs() -> None:
    x = [placeholder("float32", [None, 2]) for _ in range(2)]
    outputs, last = static_rnn(rnn_cell.GRUCell(3), x, dtype="float32")
    assert outputs[0].dims == last.dims == (None, 3)
    for batch in (1, 5):
        feeds = dict(zip(x, normal(2, batch, 2), strict=True))
        assert run(outputs[1], feeds).shape == (batch, 3)


def test_one_input_that_knows_the_batch_size_is_enough() -> None:
    x = [placeholder("float32", [None, 2]), placeholder("float32", [4, 2])]
    outputs, _ = static_rnn(rnn_cell.GRUCell(3), x, dtype="float32")
    assert outputs[0].dims == (4, 3)


def test_inputs_of_rank_1_are_examples_too() -> None:
    class Ids(Counting):
        def call(self, inputs: Any, state: Any) -> Any:
            return state["sum"], {"sum": state["sum"] + 1.0, "count": state["count"]}

    outputs, _ = static_rnn(Ids(), [constant([1, 2, 3])] * 2, dtype="float32")
    assert run(outputs[1]).tolist() == [[1, 1]] * 3


def test_a_long_network_is_one_line_of_steps() -> None:
    with variable_scope("m", initializer=initializers.constant_initializer(0.1)):
        outputs, _ = static_rnn(
            rnn_cell.BasicLSTMCell(4), [constant(normal(2, 3))] * 100, dtype=dtypes.float32
        )
    slope = gradients(outputs[-1], [global_variables()[0]])[0]
    assert np.isfinite(run(slope)).all()


def test_inputs_are_checked() -> None:
    cell = rnn_cell.GRUCell(3)
    x = constant(normal(2, 2))
    with pytest.raises(errors.InvalidTypeError, match="list of tensors"):
        static_rnn(cell, x, dtype="float32")
    with pytest.raises(errors.InvalidArgumentError, match="at least one input"):
        static_rnn(cell, [], dtype="float32")
    with pytest.raises(errors.InvalidArgumentError, match="dtype is required"):
        static_rnn(cell, [x])
    with pytest.raises(errors.InvalidArgumentError, match="one batch size, got 2 and 3"):
        static_rnn(cell, [x, constant(normal(3, 2))], dtype="float32")
    with pytest.raises(errors.InvalidArgumentError, match="except the batch size must be known"):
        static_rnn(cell, [placeholder("float32", [2, None])], dtype="float32")
    for wrong in (placeholder("float32"), constant(1.0)):
        with pytest.raises(errors.InvalidArgumentError, match="must have a batch axis"):
            static_rnn(cell, [wrong], dtype="float32")


# ------------------------------------------------------------------------------ both directions


def test_the_second_network_runs_from_each_end() -> None:
    values, ends = normal(4, 3, 2), np.array([2, 4, 1])
    x = [constant(value) for value in values]
    outputs, forward, backward = static_bidirectional_rnn(
        Counting(), Counting(), x, dtype="float32", sequence_length=ends
    )
    found, fw, bw = run([outputs, forward, backward])
    alive = (np.arange(4)[:, None] < ends)[:, :, None]
    inside = values * alive
    np.testing.assert_allclose(np.array(found)[..., :2], np.cumsum(inside, 0) * alive, rtol=1e-5)
    after = np.cumsum(inside[::-1], 0)[::-1]
    np.testing.assert_allclose(np.array(found)[..., 2:], after * alive, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(fw["sum"], bw["sum"], rtol=1e-5, atol=1e-6)


def test_both_directions_take_structures() -> None:
    class Twice(Counting):
        @property
        def output_size(self) -> Any:
            return (2, 2)

        def call(self, inputs: Any, state: Any) -> Any:
            output, state = super().call(inputs[0] + inputs[1], state)
            return (output, -output), state

    x = [(constant(normal(3, 2)), constant(normal(3, 2))) for _ in range(2)]
    for lengths in (None, [1, 2, 0]):
        outputs, _, _ = static_bidirectional_rnn(
            Twice(), Twice(), x, dtype="float32", sequence_length=lengths
        )
        first, second = run(outputs[0])
        assert first.shape == (3, 4)
        np.testing.assert_array_equal(first, -second)


def test_each_direction_has_its_state() -> None:
    x = [constant(normal(2, 2))] * 2
    start = rnn_cell.GRUCell(3).zero_state(2, "float32") + 0.5
    _, forward, backward = static_bidirectional_rnn(
        rnn_cell.GRUCell(3),
        rnn_cell.GRUCell(3),
        x,
        initial_state_fw=start,
        initial_state_bw=start,
        scope="two",
    )
    assert [v.op.name for v in global_variables()][::4] == [
        "two/fw/gru_cell/gates/kernel",
        "two/bw/gru_cell/gates/kernel",
    ]
    assert [part.shape for part in run([forward, backward])] == [(2, 3), (2, 3)]
    with pytest.raises(errors.InvalidTypeError, match="'cell_bw'"):
        static_bidirectional_rnn(rnn_cell.GRUCell(3), None, x, dtype="float32")


# -------------------------------------------------------------------------------- saved states


class Saver:
    """Keeps states in variables."""

    def __init__(self, **shapes: Any) -> None:
        self.variables = {
            name: Variable(array.zeros(shape), trainable=False) for name, shape in shapes.items()
        }

    def state(self, name: str) -> Any:
        return self.variables[name].value()

    def save_state(self, name: str, value: Any) -> Any:
        return state.assign(self.variables[name], value)


def test_a_saved_state_is_there_in_the_next_run() -> None:
    values = normal(2, 3, 2)
    saver = Saver(c=[3, 4], h=[3, 4], g=[3, 2])
    cell = rnn_cell.MultiRNNCell([rnn_cell.LSTMCell(4), rnn_cell.GRUCell(2)])
    x = [constant(value) for value in values]
    names = (rnn_cell.LSTMStateTuple("c", "h"), "g")
    outputs, last = static_state_saving_rnn(cell, x, saver, names)
    with variable_scope("rnn", reuse=True):
        twice, _ = static_rnn(cell, x + x, dtype="float32")
    with Session() as session:
        session.run(global_variables_initializer())
        expected = session.run(twice)
        for start in (0, 2):
            found = session.run(outputs[-1])  # nothing else asks for the state
            np.testing.assert_allclose(found, expected[start + 1], rtol=1e-5, atol=1e-6)
        kept = session.run([saver.variables["c"], saver.variables["g"]])
        assert kept[1].shape == (3, 2)
        third = session.run(last)
        assert (third[0].c != kept[0]).any()


def test_a_state_of_one_tensor_has_one_name() -> None:
    saver = Saver(s=[2, 3])
    cell = rnn_cell.GRUCell(3)
    x = [constant(normal(2, 2))]
    outputs, last = static_state_saving_rnn(
        cell, x, saver, "s", sequence_length=[0, 1], scope="one"
    )
    found, state_after = run([outputs[0], last])
    assert (found[0] == 0).all()
    assert (state_after[0] == 0).all()
    assert global_variables()[1].op.name == "one/gru_cell/gates/kernel"
    for wrong in (("s",), ("s", "t")):
        with pytest.raises(errors.InvalidArgumentError, match="one name for each part"):
            static_state_saving_rnn(cell, x, saver, wrong)
    with pytest.raises(errors.InvalidArgumentError, match="one name for each part"):
        static_state_saving_rnn(rnn_cell.LSTMCell(3), x, saver, "s")
    assert nest.flatten(cell.state_size) == [3]

"""Recurrent cells: numbers of TensorFlow, names, reuse, states, wrappers, nodes per step."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from weft_testing.loading import load

from weft_autodiff.gradients.backprop import gradients
from weft_exec.session.session import Session
from weft_graph import layers, nn
from weft_graph.ir import nest
from weft_graph.ir.builder import constant, convert_to_tensor
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.graph import Graph
from weft_graph.ops import (
    arithmetic,
    array,
    casting,
    elementary,
    join,
    matmul,
    reduction,
    state,
    trigonometry,
)
from weft_graph.ops.array import placeholder
from weft_graph.rnn import cell as rnn_cell
from weft_graph.rnn.cell import steps
from weft_graph.rnn.cell.base import assert_like_rnncell
from weft_graph.rnn.static import static_bidirectional_rnn, static_rnn
from weft_graph.variables import initializers
from weft_graph.variables.partitioning import fixed_size_partitioner
from weft_graph.variables.reference import global_variables, global_variables_initializer
from weft_graph.variables.scope import AUTO_REUSE, get_variable, variable_scope
from weft_tensor import dtypes, errors

RECURRENT = Path(__file__).parent / "recurrent"
EXPECTED = json.loads((RECURRENT / "expected.json").read_text())["cases"]
RNG = np.random.default_rng(5)


CASES = load(RECURRENT / "cases.py")

NAMES = SimpleNamespace(
    Graph=Graph,
    Session=Session,
    add_n=arithmetic.add_n,
    assign=state.assign,
    cast=casting.cast,
    constant=constant,
    float32=dtypes.float32,
    float64=dtypes.float64,
    get_variable=get_variable,
    global_variables=global_variables,
    gradients=gradients,
    int64=dtypes.int64,
    matmul=matmul.matmul,
    nest=nest,
    nn=SimpleNamespace(
        relu=nn.relu,
        rnn_cell=rnn_cell,
        static_bidirectional_rnn=static_bidirectional_rnn,
        static_rnn=static_rnn,
    ),
    ones=array.ones,
    reduce_sum=reduction.reduce_sum,
    sigmoid=elementary.sigmoid,
    tanh=trigonometry.tanh,
    tile=join.tile,
)
"""What the cases use, by TensorFlow's names."""


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


def step(cell: Any, size: int = 3, batch: int = 2) -> Any:
    return cell(constant(normal(batch, size)), cell.zero_state(batch, dtypes.float32))


# ---------------------------------------------------------------- the numbers of TensorFlow


def test_every_case_is_recorded() -> None:
    assert set(CASES.CASES) == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_case_gives_what_tensorflow_gave(name: str) -> None:
    found, expected = CASES.results(NAMES, name), EXPECTED[name]
    assert found["variables"] == expected["variables"]
    for key in ("outputs", "gradients"):
        assert len(found[key]) == len(expected[key])
        for place, (got, recorded) in enumerate(zip(found[key], expected[key], strict=True)):
            message = f"{key} {place}"
            assert got.shape == np.shape(recorded), message
            np.testing.assert_allclose(got, recorded, rtol=1e-4, atol=2e-6, err_msg=message)


# ------------------------------------------------------------------------------ nodes per step


def nodes_of_a_step(make: Any) -> int:
    """Return the number of nodes that one more step adds, without constants."""
    counts = []
    for number in (2, 3):
        with Graph().as_default() as g:
            fed = [constant(normal(2, 3)) for _ in range(number)]
            static_rnn(make(), fed, dtype=dtypes.float32)
            counts.append(sum(node.type != "Const" for node in g.get_operations()))
    return counts[1] - counts[0]


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda: rnn_cell.BasicRNNCell(4), 4),
        (lambda: rnn_cell.GRUCell(4), 14),
        (lambda: rnn_cell.BasicLSTMCell(4), 14),
        (lambda: rnn_cell.BasicLSTMCell(4, forget_bias=0), 13),
        (lambda: rnn_cell.LSTMCell(4), 14),
        (lambda: rnn_cell.LSTMCell(4, use_peepholes=True), 20),
        (lambda: rnn_cell.LSTMCell(4, num_unit_shards=2, cell_clip=1.0, num_proj=3), 16),
        (lambda: rnn_cell.DropoutWrapper(rnn_cell.GRUCell(4)), 14),
        (lambda: rnn_cell.ResidualWrapper(rnn_cell.GRUCell(3)), 15),
        (lambda: variational(rnn_cell.GRUCell(3), output_keep_prob=0.5), 15),
    ],
)
def test_a_step_has_no_more_nodes_than_in_tensorflow(make: Any, count: int) -> None:
    assert nodes_of_a_step(make) == count


def variational(cell: Any, **settings: Any) -> Any:
    return rnn_cell.DropoutWrapper(
        cell, variational_recurrent=True, dtype=dtypes.float32, **settings
    )


# ------------------------------------------------------------------------------- names, reuse


def test_cells_of_one_kind_have_variables_of_their_own() -> None:
    for cell in (rnn_cell.LSTMCell(4), rnn_cell.LSTMCell(4)):
        step(cell)
        step(cell)
    assert names() == [
        "lstm_cell/kernel",
        "lstm_cell/bias",
        "lstm_cell_1/kernel",
        "lstm_cell_1/bias",
    ]


def test_a_cell_reuses_the_variables_of_another_one_of_its_name() -> None:
    step(rnn_cell.GRUCell(4, name="shared"))
    step(rnn_cell.GRUCell(4, name="shared", reuse=True))
    assert len(names()) == 4
    with pytest.raises(errors.InvalidArgumentError, match="does not exist"):
        step(rnn_cell.GRUCell(4, name="new", reuse=True))


def test_a_scope_given_replaces_the_name_of_the_cell() -> None:
    cell = rnn_cell.BasicRNNCell(4)
    x = constant(normal(2, 3))
    cell(x, cell.zero_state(2, "float32"), scope="here")
    cell(x, cell.zero_state(2, "float32"), scope="elsewhere")  # built already
    stacked = rnn_cell.MultiRNNCell([rnn_cell.BasicRNNCell(4)])
    stacked(x, stacked.zero_state(2, "float32"), scope="there")
    assert names() == [
        "here/kernel",
        "here/bias",
        "there/cell_0/basic_rnn_cell/kernel",
        "there/cell_0/basic_rnn_cell/bias",
    ]


def test_networks_share_variables_only_where_the_scope_says_so() -> None:
    x = [constant(normal(2, 3))] * 2
    for _ in range(2):
        with variable_scope("model", reuse=AUTO_REUSE):
            static_rnn(rnn_cell.MultiRNNCell([rnn_cell.GRUCell(4)]), x, dtype="float32")
    assert names()[0] == "model/rnn/multi_rnn_cell/cell_0/gru_cell/gates/kernel"
    assert len(names()) == 4
    with (
        variable_scope("model"),
        pytest.raises(errors.InvalidArgumentError, match="already exists"),
    ):
        static_rnn(rnn_cell.MultiRNNCell([rnn_cell.GRUCell(4)]), x, dtype="float32")


def test_nodes_are_named_as_in_tensorflow(graph: Graph) -> None:
    x = [constant(normal(2, 3))] * 2
    static_rnn(rnn_cell.BasicLSTMCell(4), x, dtype="float32")
    found = {node.name for node in graph.get_operations()}
    assert {"rnn/basic_lstm_cell/Mul_5", "rnn/basic_lstm_cell/Add_3"} < found
    outer = rnn_cell.MultiRNNCell([rnn_cell.LSTMCell(4)])
    static_rnn(outer, x, dtype="float32", scope="top")
    found = {node.name for node in graph.get_operations()}
    assert "top/top/multi_rnn_cell/cell_0/lstm_cell/mul_5" in found
    assert "top/MultiRNNCellZeroState/LSTMCellZeroState/zeros" in found


def test_a_cell_belongs_to_one_graph() -> None:
    cell = rnn_cell.GRUCell(4)
    step(cell)
    with (
        Graph().as_default(),
        pytest.raises(errors.InvalidArgumentError, match="a graph other than"),
    ):
        step(cell)


def test_the_partitioner_of_the_scope_cuts_all_variables() -> None:
    with variable_scope("cut", partitioner=fixed_size_partitioner(2)):
        cell = rnn_cell.LSTMCell(4, use_peepholes=True, num_proj=2)
        output, _ = static_rnn(cell, [constant(normal(2, 3))] * 2, dtype="float32")
    assert "cut/rnn/lstm_cell/w_f_diag/part_1" in names()
    assert [weight.name for weight in cell.trainable_weights][:2] == [
        "cut/rnn/lstm_cell/kernel",
        "cut/rnn/lstm_cell/bias",
    ]
    assert run(output)[1].shape == (2, 2)


@pytest.mark.parametrize("resource", [False, True])
def test_a_network_reads_its_variables_once(graph: Graph, resource: bool) -> None:
    with variable_scope("m", use_resource=resource):
        outputs, _ = static_rnn(rnn_cell.GRUCell(4), [constant(normal(2, 3))] * 4, dtype="float32")
    kernel = global_variables()[0]
    products = [node for node in graph.get_operations() if node.type == "MatMul"]
    readers = {node.inputs[1] for node in products if node.inputs[1].dims == (7, 8)}
    assert len(readers) == 1
    grad = gradients(outputs[-1], [kernel])[0]
    assert run(grad).shape == (7, 8)


# ---------------------------------------------------------------------------- cells of one's own


class Summing(rnn_cell.RNNCell):
    """A cell whose `call` gets its variable by name."""

    def __init__(self, units: int = 3) -> None:
        super().__init__()
        self._units = units

    @property
    def state_size(self) -> Any:
        return self._units

    @property
    def output_size(self) -> Any:
        return self._units

    def call(self, inputs: Any, state: Any) -> Any:
        w = get_variable("w", [inputs.shape[1].value, self._units])
        h = trigonometry.tanh(matmul.matmul(inputs, w) + state)
        return h, h


class Building(Summing):
    def build(self, input_shape: Any) -> None:
        self._w = self.add_weight("w", shape=[input_shape[-1].value, self._units])
        self._c = self.add_variable("c", shape=[self._units], trainable=False)
        self.built = True

    def call(self, inputs: Any, state: Any) -> Any:
        h = trigonometry.tanh(matmul.matmul(inputs, self._w) + state + self._c)
        return h, h


class Scoped(Summing):
    def call(self, inputs: Any, state: Any, scope: Any = None) -> Any:  # type: ignore[override]
        assert scope is not None
        with variable_scope(scope):
            return super().call(inputs, state)


class Dense(Summing):
    def call(self, inputs: Any, state: Any) -> Any:
        h = layers.dense(join.concat([inputs, state], 1), self._units)
        return h, h


class Old(rnn_cell.RNNCell):
    """A cell in the manner of 2016: it overrides `__call__`, and no constructor is called."""

    def __init__(self, units: int = 3) -> None:
        self._units = units

    state_size = output_size = property(lambda self: self._units)

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        with variable_scope(scope or type(self).__name__):
            w = get_variable("w", [inputs.shape[1].value, self._units])
            h = trigonometry.tanh(matmul.matmul(inputs, w) + state)
            return h, h


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Summing, ["rnn/summing/w"]),
        (Building, ["rnn/building/w", "rnn/building/c"]),
        (Scoped, ["rnn/scoped/w"]),
        (Dense, ["rnn/dense/dense/kernel", "rnn/dense/dense/bias"]),
        (Old, ["rnn/Old/w"]),
    ],
)
@pytest.mark.parametrize("lengths", [None, [1, 3]])
def test_cells_of_ones_own_make_their_variables_once(
    kind: Any, expected: list[str], lengths: Any
) -> None:
    cell = kind()
    x = [constant(normal(2, 3))] * 3
    outputs, _ = static_rnn(cell, x, dtype="float32", sequence_length=lengths)
    assert names() == expected
    if kind is not Old:
        trained = [w.op.name for w in cell.trainable_weights]
        assert trained == [w.op.name for w in cell.trainable_variables]
        assert trained + [w.op.name for w in cell.non_trainable_variables] == expected
        assert [w.op.name for w in cell.weights] == expected
    assert run(outputs[-1]).shape == (2, 3)


def test_cells_of_ones_own_stack() -> None:
    inner = [Old(), rnn_cell.DropoutWrapper(Summing(), 0.9), Building()]
    outputs, _ = static_rnn(
        rnn_cell.MultiRNNCell(inner), [constant(normal(2, 3))] * 2, dtype="float32"
    )
    place = "rnn/multi_rnn_cell"
    assert names() == [
        f"{place}/cell_0/Old/w",
        f"{place}/cell_1/summing/w",
        f"{place}/cell_2/building/w",
        f"{place}/cell_2/building/c",
    ]
    assert run(outputs[-1]).shape == (2, 3)


def test_inputs_may_be_structures() -> None:
    class Pairs(Summing):
        def call(self, inputs: Any, state: Any) -> Any:
            h = state + inputs["left"] * inputs["right"][0]
            return h, h

    rows = [normal(2, 3) for _ in range(4)]
    inputs = [{"left": constant(a), "right": (constant(b),)} for a, b in (rows[:2], rows[2:])]
    outputs, _ = static_rnn(Pairs(), inputs, dtype="float32")
    np.testing.assert_allclose(
        run(outputs[1]), rows[0] * rows[1] + rows[2] * rows[3], rtol=1e-5, atol=1e-6
    )


def test_the_variables_of_inner_cells_are_the_outer_cells_too() -> None:
    inner = rnn_cell.LSTMCell(3, num_proj=3)
    outer = rnn_cell.MultiRNNCell(
        [Summing(), rnn_cell.ResidualWrapper(rnn_cell.DropoutWrapper(inner, 0.5))]
    )
    step(outer)
    assert len(outer.trainable_variables) == 4
    assert [w.op.name for w in outer.trainable_weights[1:]] == [w.op.name for w in inner.weights]
    outer.trainable = False
    assert outer.trainable_variables == []
    assert len(outer.non_trainable_variables) == len(outer.variables) == 4


def test_variables_of_a_frozen_cell_are_not_trained() -> None:
    cell = rnn_cell.GRUCell(3, trainable=False)
    step(cell)
    assert cell.trainable_weights == []
    assert len(cell.non_trainable_weights) == 4


# -------------------------------------------------------------------------------- states


def test_states_of_zeros_have_the_structure_of_the_size() -> None:
    cell = rnn_cell.MultiRNNCell([rnn_cell.LSTMCell(4, num_proj=2), rnn_cell.GRUCell(3)])
    zeros = cell.zero_state(5, dtypes.float64)
    assert isinstance(zeros[0], rnn_cell.LSTMStateTuple)
    assert [part.dims for part in nest.flatten(zeros)] == [(5, 4), (5, 2), (5, 3)]
    assert cell.state_size == (rnn_cell.LSTMStateTuple(4, 2), 3)
    assert zeros[0].dtype is dtypes.float64
    with pytest.raises(errors.InvalidTypeError, match="float32 and float64"):
        _ = rnn_cell.LSTMStateTuple(constant(1.0), zeros[0].h).dtype


def test_the_batch_size_may_be_a_tensor() -> None:
    batch = placeholder("int64", [])
    x = placeholder("float32", [None, 3])
    cell = rnn_cell.BasicLSTMCell(4)
    zeros = cell.zero_state(batch, "float32")
    initial = cell.get_initial_state(inputs=x)
    assert zeros.c.dims == initial.h.dims == (None, 4)
    found = run([zeros, initial], {batch: 3, x: normal(2, 3)})
    assert found[0].c.shape == (3, 4)
    assert found[1].h.shape == (2, 4)


def test_initial_states_agree_with_the_inputs() -> None:
    cell = rnn_cell.GRUCell(4)
    x = constant(normal(2, 3))
    assert cell.get_initial_state(x).dims == (2, 4)
    assert cell.get_initial_state(x, batch_size=2, dtype="float32").dims == (2, 4)
    with pytest.raises(errors.InvalidArgumentError, match="which is 2, got 3"):
        cell.get_initial_state(x, batch_size=3)
    with pytest.raises(errors.InvalidArgumentError, match="float32, got float64"):
        cell.get_initial_state(x, dtype="float64")
    with pytest.raises(errors.InvalidArgumentError, match="requires batch_size and dtype"):
        cell.get_initial_state(batch_size=2)


def test_sizes_may_be_shapes() -> None:
    assert steps.concat_dims([2, None], 3) == (2, None, 3)
    assert steps.concat_dims(None, 3) is None
    assert steps.concat_sizes(2, framework_shape(3, 4)) == (2, 3, 4)
    rows = placeholder("int64", [])
    vector = steps.concat_sizes(rows, [5])
    assert run(vector, {rows: 7}).tolist() == [7, 5]
    tail = placeholder("int32", [2])
    assert run(steps.zeros_of(2, tail, "int32"), {tail: [3, 1]}).shape == (2, 3, 1)
    with pytest.raises(errors.InvalidArgumentError, match="fully known"):
        steps.concat_sizes(2, [None])
    with pytest.raises(errors.InvalidArgumentError, match="rank 0 or 1"):
        steps.concat_sizes(2, placeholder("int32", [2, 2]))


def framework_shape(*dims: int) -> Any:
    from weft_tensor.shape import TensorShape

    return TensorShape(dims)


def test_the_type_of_a_state_is_that_of_its_parts() -> None:
    mixed = (constant(1.0), constant(np.float64(1)))
    assert steps.infer_state_dtype(None, mixed[:1]) is dtypes.float32
    assert steps.infer_state_dtype("float16", mixed) is dtypes.float16
    for state_parts in (mixed, ()):
        with pytest.raises(errors.InvalidArgumentError, match="dtype is required"):
            steps.infer_state_dtype(None, state_parts)


def test_batch_and_time_are_exchanged_whatever_is_known_of_the_rank() -> None:
    values = normal(2, 3, 4)
    known, unknown = placeholder("float32", [2, None, 4]), placeholder("float32")
    turned = [steps.transpose_batch_time(each) for each in (known, unknown)]
    assert turned[0].dims == (None, 2, 4)
    for found in run(turned, {known: values, unknown: values}):
        np.testing.assert_array_equal(found, values.transpose(1, 0, 2))
    vector = constant([1, 2])
    assert steps.transpose_batch_time(vector) is vector


def test_the_batch_size_is_an_integer_where_one_input_knows_it() -> None:
    open_, known = placeholder("float32", [4, None, 2]), placeholder("float32", [4, 3])
    assert steps.batch_size_of([placeholder("float32"), open_, known], 1) == 3
    assert run(steps.batch_size_of([open_], 1), {open_: normal(4, 6, 2)}) == 6
    with pytest.raises(errors.InvalidArgumentError, match="rank of at least 2"):
        steps.batch_size_of([placeholder("float32", [4])], 1)


# ------------------------------------------------------------------------ types and errors

TYPES = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    "make",
    [
        lambda: rnn_cell.BasicRNNCell(2),
        lambda: rnn_cell.GRUCell(2),
        lambda: rnn_cell.BasicLSTMCell(2),
        lambda: rnn_cell.LSTMCell(2, use_peepholes=True, num_proj=1),
    ],
)
def test_cells_take_all_types_that_have_a_tanh(kind: str, make: Any) -> None:
    dtype = dtypes.as_dtype(kind)
    values = np.arange(6).reshape(2, 3).astype(dtype.numpy)
    with variable_scope("m", initializer=initializers.constant_initializer(0.25)):
        outputs, last = static_rnn(make(), [constant(values)] * 2, dtype=dtype)
    grad = gradients(reduction.reduce_sum(outputs[-1]), global_variables()[:1])[0]
    found, slope, end = run([outputs[-1], grad, nest.flatten(last)])
    assert found.dtype == slope.dtype == dtype.numpy
    assert all(part.dtype == dtype.numpy for part in end)
    assert np.isfinite(found.astype(complex)).all()


@pytest.mark.parametrize("make", [rnn_cell.BasicRNNCell, rnn_cell.GRUCell, rnn_cell.LSTMCell])
def test_cells_say_what_input_they_require(make: Any) -> None:
    state_of = make(4).zero_state(2, "float32")
    with pytest.raises(errors.InvalidArgumentError, match="rank 2, got shape"):
        make(4)(constant(normal(2, 3, 4)), state_of)
    with pytest.raises(errors.InvalidArgumentError, match="whose last size is known"):
        make(4)(placeholder("float32", [2, None]), state_of)
    with pytest.raises(errors.InvalidTypeError, match="floating or complex type, got int32"):
        make(4)(constant([[1, 2]]), make(4).zero_state(1, "int32"))
    cell = make(4)
    cell(constant(normal(2, 3)), state_of)
    with pytest.raises(errors.InvalidArgumentError, match="size 3 along axis -1"):
        cell(constant(normal(2, 5)), state_of)


def test_activations_have_names() -> None:
    x = normal(2, 3)
    with variable_scope("m", initializer=initializers.constant_initializer(0.3)):
        linear, _ = step_of(rnn_cell.BasicRNNCell(2, activation="linear"), x)
        others = {
            name: step_of(rnn_cell.BasicRNNCell(2, activation=name), x)[0]
            for name in ("hard_sigmoid", "softsign", "exponential", "relu")
        }
    y, found = run([linear, others])
    np.testing.assert_allclose(found["hard_sigmoid"], np.clip(0.2 * y + 0.5, 0, 1), rtol=1e-5)
    np.testing.assert_allclose(found["softsign"], y / (1 + abs(y)), rtol=1e-5)
    np.testing.assert_allclose(found["exponential"], np.exp(y), rtol=1e-5)
    np.testing.assert_allclose(found["relu"], np.maximum(y, 0), rtol=1e-5)
    with pytest.raises(errors.InvalidArgumentError, match="got 'tanhh'"):
        rnn_cell.GRUCell(2, activation="tanhh")
    with pytest.raises(errors.InvalidTypeError, match="must be a function"):
        rnn_cell.GRUCell(2, activation=3)


def step_of(cell: Any, x: Any) -> Any:
    return cell(constant(x), cell.zero_state(len(x), "float32"))


def test_initializers_are_those_given() -> None:
    ones, twos = initializers.ones_initializer(), initializers.constant_initializer(2.0)
    step(rnn_cell.GRUCell(2, name="a"))
    step(rnn_cell.GRUCell(2, kernel_initializer=ones, bias_initializer=twos, name="b"))
    step(rnn_cell.LSTMCell(2, initializer=twos, use_peepholes=True, num_proj=1, name="c"))
    found = {variable.op.name: variable for variable in global_variables()}
    values = run({name: variable.value() for name, variable in found.items()})
    assert (values["a/gates/bias"] == 1).all()
    assert (values["a/candidate/bias"] == 0).all()
    assert (values["b/candidate/kernel"] == 1).all()
    assert (values["b/gates/bias"] == 2).all()
    assert (values["c/w_i_diag"] == 2).all()
    assert (values["c/projection/kernel"] == 2).all()
    assert (values["c/bias"] == 0).all()


def test_a_state_at_the_end_of_the_gate_is_kept_exactly() -> None:
    cell = rnn_cell.GRUCell(2, bias_initializer=initializers.constant_initializer(1e4))
    h = normal(3, 2) * 1e-3
    with variable_scope("m", initializer=initializers.constant_initializer(0.1)):
        output, _ = cell(constant(normal(3, 2)), constant(h))
    np.testing.assert_array_equal(run(output), h)


@pytest.mark.parametrize(
    ("broken", "lacks"),
    [
        (SimpleNamespace(), "no output_size, no state_size, neither zero_state"),
        (SimpleNamespace(state_size=1, output_size=1, zero_state=1), "no way to be called"),
    ],
)
def test_what_is_no_cell_is_named(broken: Any, lacks: str) -> None:
    assert_like_rnncell("cell", Old())
    for use in (
        lambda: assert_like_rnncell("cell", broken),
        lambda: rnn_cell.ResidualWrapper(broken),
        lambda: static_rnn(broken, [constant(1.0)], dtype="float32"),
    ):
        with pytest.raises(errors.InvalidTypeError, match=lacks):
            use()


def test_an_abstract_cell_has_no_sizes() -> None:
    cell = rnn_cell.RNNCell()
    for attribute in ("state_size", "output_size"):
        with pytest.raises(errors.UnimplementedError, match=attribute):
            getattr(cell, attribute)


def test_stacks_check_their_cells_and_states() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="at least one cell"):
        rnn_cell.MultiRNNCell([])
    with pytest.raises(errors.InvalidTypeError, match="list or tuple"):
        rnn_cell.MultiRNNCell(rnn_cell.GRUCell(2))  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgumentError, match="state is one tensor"):
        rnn_cell.MultiRNNCell([rnn_cell.LSTMCell(2)], state_is_tuple=False)
    cell = rnn_cell.MultiRNNCell([rnn_cell.GRUCell(2), rnn_cell.GRUCell(3)])
    for wrong in (constant(normal(2, 5)), (constant(normal(2, 2)),)):
        with pytest.raises(errors.InvalidArgumentError, match="a tuple of 2 states"):
            cell(constant(normal(2, 3)), wrong)


def test_a_cell_in_a_stack_twice_shares_its_weights() -> None:
    inner = rnn_cell.GRUCell(3)
    with pytest.warns(UserWarning, match="share their weights"):
        cell = rnn_cell.MultiRNNCell([inner, inner])
    step(cell)
    assert len(names()) == 4


# -------------------------------------------------------------------------------- dropout

quiet = pytest.mark.filterwarnings("ignore:dropout drops")


class Through(rnn_cell.RNNCell):
    """Output: the input. State: an LSTMStateTuple that stays as it is."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self._units = units

    @property
    def state_size(self) -> Any:
        return rnn_cell.LSTMStateTuple(self._units, self._units)

    @property
    def output_size(self) -> Any:
        return self._units

    def call(self, inputs: Any, state: Any) -> Any:
        return inputs, state


def dropped(batch: int = 50, units: int = 40, **settings: Any) -> Any:
    """Output, c and h of one step on ones, as nodes."""
    cell = rnn_cell.DropoutWrapper(Through(units), **settings)
    ones = array.ones([batch, units])
    output, (c, h) = cell(ones, rnn_cell.LSTMStateTuple(ones, ones))
    return output, c, h


def check_dropout(values: Any, keep: float) -> None:
    kept = values != 0
    np.testing.assert_allclose(values[kept], 1 / keep, rtol=1e-5)
    assert abs(kept.mean() - keep) < 0.05


@quiet
def test_dropout_scales_what_it_keeps() -> None:
    for prob in ("input_keep_prob", "output_keep_prob"):
        output, c, h = run(dropped(**{prob: 0.4}))
        check_dropout(output, 0.4)
        assert (c == 1).all()
        assert (h == 1).all()
    output, c, h = run(dropped(input_keep_prob=0.8, output_keep_prob=0.5))
    np.testing.assert_allclose(np.unique(output), [0, 2.5], rtol=1e-5)


def test_dropout_of_the_state_leaves_the_memory() -> None:
    output, c, h = run(dropped(state_keep_prob=0.7))
    assert (output == 1).all()
    assert (c == 1).all()
    check_dropout(h, 0.7)


def test_a_visitor_says_what_is_dropped() -> None:
    seen = []

    def visitor(substate: Any) -> Any:
        seen.append(substate)
        if isinstance(substate, rnn_cell.LSTMStateTuple):
            return rnn_cell.LSTMStateTuple(c=True, h=False)
        return True

    _, c, h = run(dropped(state_keep_prob=0.7, dropout_state_filter_visitor=visitor))
    check_dropout(c, 0.7)
    assert (h == 1).all()
    assert len(seen) == 2
    with pytest.raises(errors.InvalidTypeError, match="must return a Boolean"):
        dropped(state_keep_prob=0.7, dropout_state_filter_visitor=lambda s: 1)
    with pytest.raises(errors.InvalidTypeError, match="must be a function"):
        dropped(dropout_state_filter_visitor=3)


def test_probabilities_may_be_fed() -> None:
    keep = placeholder("float32", [])
    nodes = dropped(output_keep_prob=keep, state_keep_prob=keep)
    output, c, h = run(nodes, {keep: 1.0})
    assert (output == 1).all()
    assert (h == 1).all()
    output, c, h = run(nodes, {keep: 0.6})
    check_dropout(output, 0.6)
    check_dropout(h, 0.6)
    assert (c == 1).all()


def test_certain_probabilities_make_no_nodes(graph: Graph) -> None:
    dropped(input_keep_prob=1, output_keep_prob=np.float32(1), state_keep_prob=constant(1.0))
    assert {"RandomUniform", "Mul"}.isdisjoint(node.type for node in graph.get_operations())


def test_a_seed_makes_dropout_repeatable_and_its_places_differ() -> None:
    found = []
    for _ in range(2):
        with Graph().as_default():
            found.append(run(dropped(output_keep_prob=0.6, state_keep_prob=0.6, seed=11)))
    for first, second in zip(*found, strict=True):
        np.testing.assert_array_equal(first, second)
    assert (found[0][0] != found[0][2]).any()
    with Graph().as_default():
        other = run(dropped(output_keep_prob=0.6, state_keep_prob=0.6, seed=12))
    assert (other[0] != found[0][0]).any()


def variational_network(**settings: Any) -> tuple[Any, Any]:
    cell = rnn_cell.DropoutWrapper(
        rnn_cell.MultiRNNCell([Through(30), Through(30)]),
        variational_recurrent=True,
        dtype=dtypes.float32,
        **settings,
    )
    start = nest.map_structure(lambda size: array.ones([2, size]), cell.state_size)
    return static_rnn(cell, [array.ones([2, 30])] * 3, initial_state=start)


def test_variational_dropout_has_one_mask_for_all_steps() -> None:
    outputs, last = variational_network(
        input_keep_prob=0.8, output_keep_prob=0.6, state_keep_prob=0.9, input_size=30
    )
    with Session() as session:
        values, ((c, h), (_, h2)) = session.run([outputs, last])
        again = session.run(outputs[0])
    for value in values[1:]:
        np.testing.assert_array_equal(value, values[0])
    np.testing.assert_array_equal(values[0][0], values[0][1])
    np.testing.assert_allclose(np.unique(values[0]), [0, 1 / 0.48], rtol=1e-5)
    assert (c == 1).all()
    np.testing.assert_allclose(np.unique(h), [0, 0.9**-3], rtol=1e-5)
    assert (h != h2).any()
    assert (again != values[0]).any()


def test_variational_masks_follow_fed_probabilities() -> None:
    keep = placeholder("float32", [])
    outputs, _ = variational_network(output_keep_prob=keep)
    assert (run(outputs[0], {keep: 1.0}) == 1).all()
    assert set(np.unique(run(outputs[0], {keep: 0.5}))) == {0, 2}


def test_dropout_says_what_it_lacks() -> None:
    cell = Through(3)
    for name in ("input_keep_prob", "output_keep_prob", "state_keep_prob"):
        for wrong in (1.5, -0.1, constant(2.0), np.float64(-1)):
            with pytest.raises(errors.InvalidArgumentError, match=rf"{name} must be in \[0, 1\]"):
                rnn_cell.DropoutWrapper(cell, **{name: wrong})
    with pytest.raises(errors.InvalidArgumentError, match="requires dtype"):
        rnn_cell.DropoutWrapper(cell, variational_recurrent=True)
    with pytest.raises(errors.InvalidArgumentError, match="requires input_size"):
        rnn_cell.DropoutWrapper(
            cell, input_keep_prob=0.5, variational_recurrent=True, dtype="float32"
        )
    assert rnn_cell.DropoutWrapper(cell).wrapped_cell is cell


# ------------------------------------------------------------------------- other wrappers


def test_residual_connections_need_one_shape() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"shape \[2,4\], got \[2,3\]"):
        step(rnn_cell.ResidualWrapper(rnn_cell.GRUCell(4)))

    class Paired(Through):
        def call(self, inputs: Any, state: Any) -> Any:
            return (inputs, inputs), state

    with pytest.raises(errors.InvalidArgumentError, match="must be the same"):
        step(rnn_cell.ResidualWrapper(Paired(3)))


def test_a_device_holds_all_of_a_cell(graph: Graph) -> None:
    cell = rnn_cell.DeviceWrapper(rnn_cell.LSTMCell(4), "/cpu:0")
    step(cell)
    placed = {
        node.device
        for node in graph.get_operations()
        if "lstm" in node.name.lower() and "/Initializer/" not in node.name  # beside the variable
    }
    assert placed == {"/device:CPU:0"}


def test_wrappers_have_the_sizes_and_scopes_of_their_cells() -> None:
    cell = rnn_cell.LSTMCell(4, num_proj=3)
    wrapped = rnn_cell.DeviceWrapper(
        rnn_cell.ResidualWrapper(rnn_cell.DropoutWrapper(cell, 0.9)), "/cpu:0"
    )
    assert wrapped.state_size == cell.state_size
    assert wrapped.output_size == 3
    wrapped(constant(normal(2, 3)), wrapped.zero_state(2, "float32"), scope="given")
    assert names() == ["given/kernel", "given/bias", "given/projection/kernel"]


def test_an_update_in_the_same_step_is_seen_by_a_later_call() -> None:
    cell = rnn_cell.BasicRNNCell(1, activation="linear")
    x = array.ones([1, 1])
    with variable_scope("m", initializer=initializers.ones_initializer()):
        (first,), _ = static_rnn(cell, [x], dtype="float32")
    update = state.assign(global_variables()[0], [[5.0], [5.0]])
    with get_default_graph().control_dependencies([first, update]):
        second, _ = cell(x, convert_to_tensor([[0.0]]))
    assert run([first, second]) == [[[1.0]], [[5.0]]]


def test_cells_are_made_without_warnings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for make in (rnn_cell.BasicRNNCell, rnn_cell.GRUCell, rnn_cell.BasicLSTMCell):
            step(rnn_cell.MultiRNNCell([make(3, name=make.__name__)]))


def test_a_getter_that_makes_variables_untrainable_is_believed(graph: Graph) -> None:
    def frozen(getter: Any, *args: Any, **settings: Any) -> Any:
        return getter(*args, **{**settings, "trainable": False})

    with variable_scope("root", custom_getter=frozen):
        cell = rnn_cell.BasicRNNCell(2)
        cell(array.zeros([1, 2]), array.zeros([1, 2]))
        dense = layers.Dense(2)
        dense(array.zeros([1, 2]))
    for layer in (cell, dense):
        assert layer.trainable_variables == []
        assert len(layer.non_trainable_variables) == 2

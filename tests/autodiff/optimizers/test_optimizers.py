"""Optimizers: values against plain NumPy, slots and names as in TensorFlow, refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from weft_testing.update_rules import REFERENCES, State

import weft as wf
from weft_autodiff import optimizers
from weft_autodiff.optimizers import Optimizer
from weft_autodiff.optimizers.training_util import get_or_create_global_step
from weft_exec import Session
from weft_exec.resources.resources import VariableState
from weft_graph.ir import builder
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.graph import Graph
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ops import array, gather, state
from weft_graph.variables.reference import Variable, global_variables, global_variables_initializer
from weft_graph.variables.scope import AUTO_REUSE, get_variable, variable_scope
from weft_tensor import dtypes, errors

make_variable: Any = Variable


class Kind:
    """One optimizer with hyperparameters, and how the reference calls its state."""

    def __init__(
        self,
        name: str,
        make: Callable[[], Optimizer],
        rule: str,
        hyper: dict[str, Any],
        slots: dict[str, tuple[str, float]] | None = None,
        suffixes: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.make = make
        self.rule = rule
        self.hyper = hyper
        self.slots = slots or {}
        self.suffixes = suffixes

    def __repr__(self) -> str:
        return self.name


KINDS = [
    Kind(
        "GradientDescent",
        lambda: optimizers.GradientDescentOptimizer(0.1),
        "GradientDescent",
        {"alpha": 0.1},
    ),
    Kind(
        "ProximalGradientDescent",
        lambda: optimizers.ProximalGradientDescentOptimizer(0.1, 0.02, 0.3),
        "ProximalGradientDescent",
        {"alpha": 0.1, "l1": 0.02, "l2": 0.3},
    ),
    Kind(
        "Momentum",
        lambda: optimizers.MomentumOptimizer(0.05, 0.9),
        "Momentum",
        {"lr": 0.05, "momentum": 0.9},
        {"accum": ("momentum", 0.0)},
        ("Momentum",),
    ),
    Kind(
        "Nesterov",
        lambda: optimizers.MomentumOptimizer(0.05, 0.9, use_nesterov=True),
        "Momentum",
        {"lr": 0.05, "momentum": 0.9, "use_nesterov": True},
        {"accum": ("momentum", 0.0)},
        ("Momentum",),
    ),
    Kind(
        "Adagrad",
        lambda: optimizers.AdagradOptimizer(0.3, 0.2),
        "Adagrad",
        {"lr": 0.3},
        {"accum": ("accumulator", 0.2)},
        ("Adagrad",),
    ),
    Kind(
        "ProximalAdagrad",
        lambda: optimizers.ProximalAdagradOptimizer(0.3, 0.1, 0.02, 0.3),
        "ProximalAdagrad",
        {"lr": 0.3, "l1": 0.02, "l2": 0.3},
        {"accum": ("accumulator", 0.1)},
        ("ProximalAdagrad",),
    ),
    Kind(
        "AdagradDA",
        lambda: optimizers.AdagradDAOptimizer(0.3, get_or_create_global_step(), 0.1, 0.002, 0.003),
        "AdagradDA",
        {"lr": 0.3, "l1": 0.002, "l2": 0.003},
        {
            "gradient_accumulator": ("gradient_accumulator", 0.0),
            "gradient_squared_accumulator": ("gradient_squared_accumulator", 0.1),
        },
        ("AdagradDA", "AdagradDA_1"),
    ),
    Kind(
        "Adadelta",
        lambda: optimizers.AdadeltaOptimizer(0.5, 0.9, 0.001),
        "Adadelta",
        {"lr": 0.5, "rho": 0.9, "epsilon": 0.001},
        {"accum": ("accum", 0.0), "accum_update": ("accum_update", 0.0)},
        ("Adadelta", "Adadelta_1"),
    ),
    Kind(
        "Adam",
        lambda: optimizers.AdamOptimizer(0.05, 0.9, 0.99, 0.01),
        "Adam",
        {"lr": 0.05, "beta1": 0.9, "beta2": 0.99, "epsilon": 0.01},
        {"m": ("m", 0.0), "v": ("v", 0.0)},
        ("Adam", "Adam_1"),
    ),
    Kind(
        "RMSProp",
        lambda: optimizers.RMSPropOptimizer(0.02, 0.9, 0.5, 0.01),
        "RMSProp",
        {"lr": 0.02, "rho": 0.9, "momentum": 0.5, "epsilon": 0.01},
        {"ms": ("rms", 1.0), "mom": ("momentum", 0.0)},
        ("RMSProp", "RMSProp_1"),
    ),
    Kind(
        "CenteredRMSProp",
        lambda: optimizers.RMSPropOptimizer(0.02, 0.9, 0.5, 0.01, centered=True),
        "CenteredRMSProp",
        {"lr": 0.02, "rho": 0.9, "momentum": 0.5, "epsilon": 0.01},
        {"ms": ("rms", 1.0), "mg": ("mg", 0.0), "mom": ("momentum", 0.0)},
        ("RMSProp", "RMSProp_1", "RMSProp_2"),
    ),
    Kind(
        "Ftrl",
        lambda: optimizers.FtrlOptimizer(0.5, -0.5, 0.1, 0.1, 0.3),
        "Ftrl",
        {"lr": 0.5, "l1": 0.1, "l2": 0.3, "lr_power": -0.5},
        {"accum": ("accum", 0.1), "linear": ("linear", 0.0)},
        ("Ftrl", "Ftrl_1"),
    ),
    Kind(
        "FtrlShrinkage",
        lambda: optimizers.FtrlOptimizer(
            0.5, -0.4, 0.1, 0.1, 0.3, l2_shrinkage_regularization_strength=0.05
        ),
        "FtrlV2",
        {"lr": 0.5, "l1": 0.1, "l2": 0.3, "l2_shrinkage": 0.05, "lr_power": -0.4},
        {"accum": ("accum", 0.1), "linear": ("linear", 0.0)},
        ("Ftrl", "Ftrl_1"),
    ),
]

STEPS = 20
START = np.random.default_rng(7).standard_normal((6, 3))
# Hyperparameters given as Python numbers are float32, as in TensorFlow, whatever the variable is.
LIMITS = {"float64": (1e-5, 1e-6), "float32": (2e-4, 2e-5), "float16": (5e-2, 5e-2)}


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    graph = Graph()
    with graph.as_default():
        yield graph


def gradient(step: int, shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(step).standard_normal(shape)


class Reference:
    """The state that an optimizer should have after each step."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.state: State = {"var": START.copy()}
        for name, (_, value) in kind.slots.items():
            self.state[name] = np.full(START.shape, value)
        self.step = 0

    def apply(self, grad: Any, rows: Any = None) -> None:
        self.step += 1
        hyper = {
            key: value if isinstance(value, bool) else float(np.float32(value))
            for key, value in self.kind.hyper.items()
        }
        if self.kind.rule == "Adam":
            hyper["beta1_power"] = hyper["beta1"] ** self.step
            hyper["beta2_power"] = hyper["beta2"] ** self.step
        if self.kind.rule == "AdagradDA":
            hyper["global_step"] = self.step
        update = REFERENCES[self.kind.rule]
        if rows is None:
            update(self.state, grad, hyper)
            return
        dense = np.zeros_like(START)
        np.add.at(dense, rows, grad)
        if self.kind.rule in ("Adam", "GradientDescent"):
            update(self.state, dense, hyper)
            return
        touched = np.unique(rows)
        part = {name: array[touched] for name, array in self.state.items()}
        update(part, dense[touched], hyper)
        for name, values in part.items():
            self.state[name][touched] = values


def check(kind: Kind, optimizer: Optimizer, var: Any, session: Session, ref: Reference) -> None:
    relative, absolute = LIMITS[var.dtype.base_dtype.name]
    names = {"var": var} | {
        name: optimizer.get_slot(var, slot) for name, (slot, _) in kind.slots.items()
    }
    for name, variable in names.items():
        np.testing.assert_allclose(
            session.run(variable).astype(np.float64),
            ref.state[name],
            rtol=relative,
            atol=absolute,
            err_msg=name,
        )


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_twenty_steps(kind: Kind, dtype: str, sparse: bool, use_resource: bool) -> None:
    element = dtypes.as_dtype(dtype)
    var = make_variable(START.astype(element.numpy), name="W", use_resource=use_resource)
    values = array.placeholder(element, [None, 3])
    rows = array.placeholder(dtypes.int32, [None])
    grad = IndexedSlices(values, rows) if sparse else values
    optimizer = kind.make()
    step = get_or_create_global_step()
    train = optimizer.apply_gradients([(grad, var)], global_step=step)
    reference = Reference(kind)
    with Session() as session:
        session.run(global_variables_initializer())
        for i in range(STEPS):
            if sparse:
                picked = np.random.default_rng(i).integers(0, 6, 5).astype(np.int32)
                given = gradient(i, (5, 3))
                session.run(train, {values: given.astype(element.numpy), rows: picked})
                reference.apply(given, picked)
            else:
                given = gradient(i, (6, 3))
                session.run(train, {values: given.astype(element.numpy)})
                reference.apply(given)
        assert session.run(step) == STEPS
        check(kind, optimizer, var, session, reference)


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_minimize_two_variables(kind: Kind, use_resource: bool) -> None:
    a = make_variable([3.0, -2.0], name="a", use_resource=use_resource)
    b = make_variable(1.5, name="b", use_resource=use_resource)
    loss = wf.reduce_sum(wf.square(a - 1.0)) + wf.square(b + 1.0)
    train = kind.make().minimize(loss, global_step=get_or_create_global_step())
    with Session() as session:
        session.run(global_variables_initializer())
        before = session.run(loss)
        for _ in range(10):
            session.run(train)
        assert session.run(loss) < before


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_minimize_through_a_gather(kind: Kind, use_resource: bool) -> None:
    table = make_variable(np.ones((5, 2)), name="table", use_resource=use_resource)
    loss = wf.reduce_sum(wf.square(gather.gather(table, [1, 3, 1])))
    optimizer = kind.make()
    (grad, _), *_ = optimizer.compute_gradients(loss)
    assert isinstance(grad, IndexedSlices)
    train = optimizer.minimize(loss, global_step=get_or_create_global_step())
    with Session() as session:
        session.run(global_variables_initializer())
        session.run(train)
        result = session.run(table)
    np.testing.assert_array_equal(result[[0, 2, 4]], np.ones((3, 2)))
    assert (result[[1, 3]] < 1).all()


@pytest.mark.parametrize(
    ("make", "steps", "wanted"),
    [
        (
            lambda _: optimizers.FtrlOptimizer(
                3.0,
                initial_accumulator_value=0.1,
                l1_regularization_strength=0.001,
                l2_regularization_strength=2.0,
                l2_shrinkage_regularization_strength=0.1,
            ),
            10,
            [[-0.22578995, -0.44345796], [-0.14378493, -0.13229476]],
        ),
        (
            lambda _: optimizers.FtrlOptimizer(
                3.0, l1_regularization_strength=0.001, l2_regularization_strength=2.0
            ),
            10,
            [[-0.24059935, -0.46829352], [-0.02406147, -0.04830509]],
        ),
        (
            lambda step: optimizers.AdagradDAOptimizer(3.0, step, l1_regularization_strength=0.001),
            1,
            [[-0.895489, -1.59555], [-0.085339, -0.17989]],
        ),
    ],
    ids=["ftrl-shrinkage", "ftrl", "adagrad-da"],
)
def test_values_that_tensorflow_gives(
    make: Callable[[Any], Optimizer], steps: int, wanted: list[list[float]]
) -> None:
    first, second = make_variable([1.0, 2.0]), make_variable([4.0, 3.0])
    grads = [np.array([0.1, 0.2]), np.array([0.01, 0.02])]
    step = get_or_create_global_step()
    train = make(step).apply_gradients(zip(grads, [first, second], strict=True), step)
    with Session() as session:
        session.run(global_variables_initializer())
        for _ in range(steps):
            session.run(train)
        np.testing.assert_allclose(session.run([first, second]), wanted, rtol=1e-5)


# ------------------------------------------------------------------------ names and slots


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_slot_names(kind: Kind, use_resource: bool) -> None:
    var = make_variable(START, name="scope/W", use_resource=use_resource)
    optimizer = kind.make()
    optimizer.apply_gradients([(START, var)])
    assert optimizer.get_slot_names() == sorted(slot for slot, _ in kind.slots.values())
    names = {optimizer.get_slot(var, slot).op.name for slot, _ in kind.slots.values()}
    assert names == {f"scope/W/{suffix}" for suffix in kind.suffixes}
    slots = [optimizer.get_slot(var, slot) for slot, _ in kind.slots.values()]
    assert all(slot in global_variables() and not slot.trainable for slot in slots)
    assert all(type(slot) is type(var) for slot in slots)
    assert all(slot.op.colocation == ("scope/W",) for slot in slots)
    assert set(slots) <= set(optimizer.variables())


def test_node_names(graph: Graph) -> None:
    var = make_variable(1.0, name="W")
    step = get_or_create_global_step()
    first = optimizers.MomentumOptimizer(0.1, 0.9).apply_gradients([(1.0, var)])
    assert first.name == "Momentum"
    assert graph.get_operation_by_name("Momentum/update_W/ApplyMomentum").type == "ApplyMomentum"
    assert graph.get_operation_by_name("Momentum/learning_rate").type == "Const"
    second = optimizers.MomentumOptimizer(0.1, 0.9).apply_gradients([(1.0, var)], step)
    assert (second.name, second.type) == ("Momentum_1", "AssignAdd")
    assert graph.get_operation_by_name("Momentum_1/update").type == "NoOp"
    named = optimizers.GradientDescentOptimizer(0.1).apply_gradients([(1.0, var)], name="train")
    assert named.name == "train"
    assert graph.get_collection(GraphKeys.TRAIN_OP) == [first, second, named]


def test_slots_of_two_optimizers_have_different_names() -> None:
    var = make_variable(1.0, name="W")
    slots = []
    for _ in range(2):
        optimizer = optimizers.MomentumOptimizer(0.1, 0.9)
        optimizer.apply_gradients([(1.0, var)])
        slots.append(optimizer.get_slot(var, "momentum").op.name)
    assert slots == ["W/Momentum", "W/Momentum_1"]


def test_ftrl_slot_names_can_be_chosen() -> None:
    var = make_variable(1.0, name="W")
    optimizer = optimizers.FtrlOptimizer(0.1, accum_name="squares", linear_name="sums")
    optimizer.apply_gradients([(1.0, var)])
    assert optimizer.get_slot(var, "accum").op.name == "W/squares"
    assert optimizer.get_slot(var, "linear").op.name == "W/sums"


def test_beta_accumulators() -> None:
    var, other = make_variable(1.0, name="W"), make_variable(1.0, name="V")
    optimizer = optimizers.AdamOptimizer(beta1=0.8, beta2=0.9)
    train = optimizer.apply_gradients([(1.0, var), (1.0, other)])
    names = [v.op.name for v in optimizer.variables()]
    assert names == ["V/Adam", "V/Adam_1", "W/Adam", "W/Adam_1", "beta1_power", "beta2_power"]
    assert optimizer.variables()[4].op.colocation == ("V",)
    with Session() as session:
        session.run(global_variables_initializer())
        session.run(train)
        session.run(train)
        powers = session.run(optimizer._get_beta_accumulators())
    np.testing.assert_allclose(powers, [0.8**3, 0.9**3], rtol=1e-6)


def test_slot_of_a_variable_of_open_shape() -> None:
    var = make_variable(np.ones((2, 3)), validate_shape=False, name="W")
    grad = array.placeholder(dtypes.float64, None)
    optimizer = optimizers.AdagradOptimizer(0.3, 0.2)
    train = optimizer.apply_gradients([(grad, var)])
    with Session() as session:
        session.run(global_variables_initializer())
        slot = optimizer.get_slot(var, "accumulator")
        np.testing.assert_array_equal(session.run(slot), np.full((2, 3), 0.2))
        session.run(train, {grad: np.ones((2, 3))})
        np.testing.assert_allclose(session.run(slot), np.full((2, 3), 1.2))


@pytest.mark.parametrize("reuse", [None, True, AUTO_REUSE])
def test_slots_inside_variable_scopes(reuse: Any) -> None:
    with variable_scope("net"):
        var = get_variable("W", initializer=lambda: np.ones(2, np.float32))
    optimizer = optimizers.MomentumOptimizer(0.1, 0.9)
    with variable_scope("net", reuse=reuse, regularizer=lambda _: pytest.fail("regularized")):
        optimizer.apply_gradients([(np.ones(2), var)])
    assert optimizer.get_slot(var, "momentum").op.name == "net/net/W/Momentum"


# ------------------------------------------------------------------------ behavior


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_constraint_applies_after_the_update(use_resource: bool) -> None:
    var = make_variable(
        [0.5, -0.5],
        constraint=lambda value: wf.maximum(value, 0.0),
        use_resource=use_resource,
    )
    train = optimizers.GradientDescentOptimizer(1.0).apply_gradients([([1.0, -0.25], var)])
    with Session() as session:
        session.run(global_variables_initializer())
        session.run(train)
        np.testing.assert_array_equal(session.run(var), [0.0, 0.0])
        session.run(train)
        np.testing.assert_array_equal(session.run(var), [0.0, 0.25])


def test_constraint_on_sparse_gradient_is_refused() -> None:
    var = make_variable(np.ones((3, 2)), constraint=wf.abs)
    grad = IndexedSlices(builder.constant(np.ones((1, 2))), builder.constant([0]))
    with pytest.raises(errors.InvalidArgumentError, match="constraint function on a sparse"):
        optimizers.GradientDescentOptimizer(1.0).apply_gradients([(grad, var)])


def test_learning_rate_from_a_tensor_and_a_function() -> None:
    var = make_variable(0.0)
    rate = array.placeholder(dtypes.float32, [])
    first = optimizers.GradientDescentOptimizer(rate).apply_gradients([(1.0, var)])
    second = optimizers.GradientDescentOptimizer(lambda: 4.0).apply_gradients([(1.0, var)])
    with Session() as session:
        session.run(global_variables_initializer())
        session.run(first, {rate: 2.0})
        assert session.run(var) == -2.0
        session.run(second)
        assert session.run(var) == -6.0


def test_learning_rate_is_cast_to_each_variable() -> None:
    wide = make_variable(np.float64(1.0))
    narrow = make_variable(np.float32(1.0))
    rate = builder.constant(0.5, dtypes.float32)
    train = optimizers.AdamOptimizer(rate).apply_gradients([(1.0, wide), (1.0, narrow)])
    with Session() as session:
        session.run(global_variables_initializer())
        session.run(train)
        results = session.run([wide, narrow])
    assert [r.dtype for r in results] == [np.float64, np.float32]
    np.testing.assert_allclose(results, [0.5, 0.5], rtol=1e-6)


@pytest.mark.parametrize("gate", [0, 1, 2])
def test_gates(gate: int) -> None:
    a, b = make_variable(2.0), make_variable(3.0)
    optimizer = optimizers.GradientDescentOptimizer(0.1)
    train = optimizer.minimize(a * b, gate_gradients=gate)
    with Session() as session:
        session.run(global_variables_initializer())
        session.run(train)
        np.testing.assert_allclose(session.run([a, b]), [1.7, 2.8], rtol=1e-6)


def test_gate_graph_waits_for_all_gradients(graph: Graph) -> None:
    a, b = make_variable(2.0), make_variable(3.0)
    optimizer = optimizers.GradientDescentOptimizer(0.1)
    (first, _), (second, _) = optimizer.compute_gradients(
        wf.square(a) + wf.square(b), gate_gradients=Optimizer.GATE_GRAPH
    )
    assert first is not None and second is not None
    assert first.op.control_inputs and first.op.control_inputs == second.op.control_inputs


def test_gate_must_be_known() -> None:
    var = make_variable(1.0)
    with pytest.raises(errors.InvalidArgumentError, match="GATE_NONE"):
        optimizers.GradientDescentOptimizer(0.1).compute_gradients(var * 2.0, gate_gradients=3)


def test_grad_loss_and_var_list() -> None:
    a, b = make_variable(2.0), make_variable(3.0)
    optimizer = optimizers.GradientDescentOptimizer(0.1)
    pairs = optimizer.compute_gradients(a * b, var_list=[b], grad_loss=builder.constant(10.0))
    assert [var for _, var in pairs] == [b]
    with Session() as session:
        session.run(global_variables_initializer())
        assert session.run(pairs[0][0]) == 20.0


def test_loss_as_a_function() -> None:
    var = make_variable(3.0)
    train = optimizers.GradientDescentOptimizer(0.5).minimize(lambda: wf.square(var))
    with Session() as session:
        session.run(global_variables_initializer())
        session.run(train)
        assert session.run(var) == 0.0


def test_variables_without_gradient_are_left_alone() -> None:
    a, b = make_variable(2.0, name="a"), make_variable(3.0, name="b")
    optimizer = optimizers.MomentumOptimizer(0.1, 0.9)
    optimizer.minimize(wf.square(a))
    assert optimizer.get_slot(b, "momentum") is None
    assert optimizer.get_slot(b, "no such slot") is None


def test_no_gradient_at_all() -> None:
    make_variable(2.0, name="a")
    with pytest.raises(ValueError, match="No gradients provided for any variable"):
        optimizers.GradientDescentOptimizer(0.1).minimize(builder.constant(1.0))


def test_nothing_to_optimize() -> None:
    optimizer = optimizers.GradientDescentOptimizer(0.1)
    with pytest.raises(ValueError, match="No variables to optimize"):
        optimizer.compute_gradients(builder.constant(1.0))
    with pytest.raises(ValueError, match="No variables provided"):
        optimizer.apply_gradients([])
    var = make_variable(2.0, name="a")
    with pytest.raises(ValueError, match="No gradients provided for any variable: a:0"):
        optimizer.apply_gradients([(None, var)])


def test_wrong_types() -> None:
    optimizer = optimizers.GradientDescentOptimizer(0.1)
    count = make_variable(1, name="count", trainable=False)
    assert optimizer.compute_gradients(builder.constant(1.0), [count]) == [(None, count)]
    with pytest.raises(TypeError, match="Invalid type int32"):
        optimizer.compute_gradients(builder.constant(1), [make_variable(1.0)])
    with pytest.raises(TypeError, match="updates variables"):
        optimizer.apply_gradients([(1.0, builder.constant(1.0))])
    with pytest.raises(TypeError, match="Gradient must be convertible"):
        optimizer.apply_gradients([("steep", make_variable(1.0))])


@pytest.mark.parametrize(
    "make",
    [
        lambda: optimizers.AdagradOptimizer(0.1, 0.0),
        lambda: optimizers.ProximalAdagradOptimizer(0.1, -1.0),
        lambda: optimizers.AdagradDAOptimizer(0.1, None, 0.0),
        lambda: optimizers.FtrlOptimizer(0.1, learning_rate_power=0.5),
        lambda: optimizers.FtrlOptimizer(0.1, initial_accumulator_value=-0.1),
        lambda: optimizers.FtrlOptimizer(0.1, l1_regularization_strength=-0.1),
        lambda: optimizers.FtrlOptimizer(0.1, l2_regularization_strength=-0.1),
        lambda: optimizers.FtrlOptimizer(0.1, l2_shrinkage_regularization_strength=-0.1),
        lambda: optimizers.GradientDescentOptimizer(0.1, name=""),
    ],
)
def test_wrong_hyperparameters(make: Callable[[], Optimizer]) -> None:
    with pytest.raises(ValueError):
        make()


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_training_writes_into_the_same_memory(use_resource: bool) -> None:
    x = array.placeholder(dtypes.float32, [8, 64])
    var = make_variable(np.ones((64, 64), np.float32), name="W", use_resource=use_resource)
    loss = wf.reduce_sum(wf.square(wf.matmul(x, var)))
    train = optimizers.AdamOptimizer(0.01).minimize(loss)

    def addresses() -> dict[str, int]:
        states = session.resources.resources(VariableState, "")
        return {state.name: state._value.ctypes.data for state in states if state.dims == (64, 64)}

    with Session() as session:
        session.run(global_variables_initializer())
        before = addresses()
        assert before.keys() == {"W", "W/Adam", "W/Adam_1"}
        for _ in range(3):
            session.run(train, {x: np.ones((8, 64))})
        assert addresses() == before


def test_uninitialized_slot_names_itself() -> None:
    var = make_variable(1.0, name="W")
    train = optimizers.MomentumOptimizer(0.1, 0.9).apply_gradients([(1.0, var)])
    with Session() as session:
        session.run(var.initializer)
        with pytest.raises(errors.FailedPreconditionError, match="W/Momentum"):
            session.run(train)


class _SignDescent(Optimizer):
    """An optimizer of a user's own."""

    def __init__(self) -> None:
        super().__init__(False, "SignDescent")

    def _create_slots(self, var_list: Any) -> None:
        for var in var_list:
            self._zeros_slot(var, "count", self._name)

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        count = state.assign_add(self.get_slot(var, "count"), array.ones_like(grad))
        return state.assign_sub(var, wf.sign(grad) * count).op

    def _apply_sparse(self, grad: Any, var: Any) -> Any:
        return var.scatter_sub(IndexedSlices(wf.sign(grad.values), grad.indices)).op


def test_an_optimizer_of_ones_own() -> None:
    var = make_variable([5.0, -5.0])
    optimizer = _SignDescent()
    train = optimizer.minimize(wf.reduce_sum(wf.square(var)))
    rows = IndexedSlices(builder.constant([1.0, 2.0, -9.0]), builder.constant([0, 0, 1]))
    sparse = optimizer.apply_gradients([(rows, var)])
    with Session() as session:
        session.run(global_variables_initializer())
        session.run(train)
        session.run(train)
        np.testing.assert_array_equal(session.run(var), [2.0, -2.0])
        session.run(sparse)
        np.testing.assert_array_equal(session.run(var), [1.0, -1.0])


def test_an_optimizer_that_lacks_a_method() -> None:
    table = make_variable(np.ones((3, 2)), use_resource=True)
    with pytest.raises(NotImplementedError, match="_resource_apply_dense"):
        _SignDescent().apply_gradients([(np.ones((3, 2)), table)])

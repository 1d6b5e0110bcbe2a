"""Variables in compiled regions: reads, updates, their order, and visibility to other nodes."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft_compiler.generator import RegionCompiler
from weft_compiler.lower import region
from weft_exec.resources.resources import VariableState
from weft_graph.ir.code_generators import RegionRequest


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The ops of all that is compiled, when shapes are first met."""
    found: list[str] = []
    generate = RegionCompiler.generate

    def note(self: Any, request: RegionRequest, *like: Any) -> Any:
        made = generate(self, request, *like)
        found.extend(node.type for node in request.members)
        return made

    monkeypatch.setattr(RegionCompiler, "generate", note)
    monkeypatch.setenv("WEFT_JIT", "now")
    yield found


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "GradientDescent": lambda: wf.train.GradientDescentOptimizer(0.1),
    "Momentum": lambda: wf.train.MomentumOptimizer(0.1, 0.9),
    "Nesterov": lambda: wf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "Adagrad": lambda: wf.train.AdagradOptimizer(0.1),
    "Adadelta": lambda: wf.train.AdadeltaOptimizer(0.1),
    "Adam": lambda: wf.train.AdamOptimizer(0.1),
    "RMSProp": lambda: wf.train.RMSPropOptimizer(0.1, momentum=0.5),
    "Ftrl": lambda: wf.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    "FtrlV2": lambda: wf.train.FtrlOptimizer(
        0.1,
        l2_regularization_strength=0.1,
        l2_shrinkage_regularization_strength=0.1,
    ),
    "ProximalGradientDescent": lambda: wf.train.ProximalGradientDescentOptimizer(0.1, 0.01, 0.1),
    "ProximalAdagrad": lambda: wf.train.ProximalAdagradOptimizer(0.1),
    "AdagradDA": lambda: wf.train.AdagradDAOptimizer(
        0.1, wf.train.get_or_create_global_step(), l1_regularization_strength=0.001
    ),
    "CenteredRMSProp": lambda: wf.train.RMSPropOptimizer(0.1, centered=True),
}


def _trained(make: Callable[[], Any], resource: bool, dtype: Any) -> list[Any]:
    """The variables, slots included, and losses of three steps."""
    with wf.Graph().as_default():
        x = wf.placeholder(dtype, [4, 3])
        with wf.variable_scope("model", use_resource=resource):
            w = wf.get_variable("w", initializer=np.linspace(-1, 1, 15).reshape(3, 5).astype(dtype))
            b = wf.get_variable("b", initializer=np.zeros(5, dtype))
            c = wf.get_variable("c", initializer=np.array(0.5, dtype))
        y = wf.tanh(wf.matmul(x, w) + b) * c
        loss = wf.reduce_sum(y * y - y) + 0.1 * wf.reduce_sum(w * w)
        step = make().minimize(loss, wf.train.get_or_create_global_step())
        with wf.Session() as session:
            session.run(wf.global_variables_initializer())
            feed = {x: np.linspace(0, 1, 12).reshape(4, 3).astype(dtype)}
            losses = [session.run([loss, step], feed)[0] for _ in range(3)]
            return [*losses, *session.run(wf.global_variables())]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_change_variables_as_their_kernels_do(
    name: str, resource: bool, dtype: Any, generated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = _trained(OPTIMIZERS[name], resource, dtype)
    op = f"{'Resource' if resource else ''}Apply{name.replace('Nesterov', 'Momentum')}"
    assert generated.count(op) >= 2
    monkeypatch.setenv("WEFT_JIT", "off")
    by_kernels = _trained(OPTIMIZERS[name], resource, dtype)
    for value, want in zip(compiled, by_kernels, strict=True):
        near = 1e-5 if dtype is np.float32 else 1e-12
        np.testing.assert_allclose(value, want, rtol=near, atol=near)


@pytest.mark.parametrize("resource", [False, True])
def test_what_one_region_reads_and_changes_is_not_copied(
    resource: bool, generated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[Any] = []
    copy = VariableState._copy
    monkeypatch.setattr(
        VariableState, "_copy", lambda self, value: copies.append(value) or copy(self, value)
    )
    start = np.linspace(-1, 1, 12).reshape(3, 4)
    w = wf.Variable(start, use_resource=resource)
    x = wf.constant(np.linspace(0, 1, 6).reshape(2, 3))
    loss = wf.reduce_sum(wf.tanh(wf.matmul(x, w))) + 0.1 * wf.nn.l2_loss(w)
    step = wf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        for _ in range(3):
            del copies[:]
            session.run(step)
        assert not copies
        compiled = session.run(w)
        monkeypatch.setenv("WEFT_JIT", "off")
        session.run(wf.global_variables_initializer())
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        for _ in range(3):
            session.run(step)
        np.testing.assert_allclose(compiled, session.run(w), rtol=1e-12)
    assert ("ReadVariableOp" if resource else "Identity") in generated


def test_a_value_that_others_take_too_stays_as_it_was_read(generated: list[str]) -> None:
    v = wf.Variable([1.0, 2.0])
    read = wf.identity(v.read_value())
    change = v.assign_add(wf.sin(read) * 0.0 + read)
    largest = wf.nn.top_k(read, 1).values  # by its kernel
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        with_fetch = session.run([read, change.op, largest])
        assert with_fetch[0].tolist() == [1.0, 2.0] and with_fetch[2].tolist() == [2.0]
        assert session.run(v).tolist() == [2.0, 4.0]
    assert "AssignAdd" in generated


def _random_program(seed: int) -> list[Any]:
    """Reads and changes of three variables in some order that control inputs, if any, keep."""
    draw = random.Random(seed)
    resource = draw.random() < 0.5
    variables = [
        wf.Variable(np.linspace(k, k + 1, 4).astype("f"), use_resource=resource) for k in range(3)
    ]
    last: list[Any] = [[] for _ in variables]
    values: list[Any] = [wf.constant(np.linspace(-1, 1, 4).astype("f"))]
    kept: list[Any] = []
    for _ in range(draw.randint(4, 12)):
        at = draw.randrange(3)
        variable, value = variables[at], draw.choice(values)
        with wf.control_dependencies(last[at]):
            if draw.random() < 0.6:
                values.append(wf.tanh(variable.read_value() * draw.uniform(-1, 1) + value))
                last[at] = [*last[at], values[-1]]
                kept.append(values[-1])
            else:
                change = draw.choice(CHANGES)
                if change in ("scatter", "sparse"):
                    update = _rows_changed(change, variable, draw, value)
                elif change == "train":
                    optimizer = wf.train.MomentumOptimizer(0.1, 0.9)
                    update = optimizer.apply_gradients([(wf.sin(value), variable)])
                elif change == "reverse":
                    update = variable.assign(wf.reverse(variable.read_value() + value, [0]))
                else:
                    update = getattr(variable, change)(wf.sin(value) * 2.0)
                last[at] = [getattr(update, "op", update)]
                kept.append(wf.group(*last[at]))
                if hasattr(update, "op") and draw.random() < 0.5:  # what it gives
                    if draw.random() < 0.3:
                        kept.append(update)
                    with wf.control_dependencies(last[at]):
                        values.append(wf.tanh(update * draw.uniform(-1, 1) + value))
                    last[at] = [*last[at], values[-1]]
                    kept.append(values[-1])
    return kept


CHANGES = ["assign", "assign_add", "assign_sub", "reverse", "train", "scatter", "sparse"]


def _rows_changed(change: str, variable: Any, draw: random.Random, value: Any) -> Any:
    """Some elements of a variable of rank 1 are changed, the same ones several times too."""
    places = [draw.randrange(4) for _ in range(4)]
    if change == "scatter":
        op: Any = draw.choice([wf.scatter_add, wf.scatter_update, wf.scatter_mul])
        return op(variable, places, wf.sin(value))
    rows = wf.IndexedSlices(wf.sin(value), wf.constant(places), wf.constant([4]))
    optimizer = wf.train.AdagradOptimizer(0.1)
    return optimizer.apply_gradients([(rows, variable)])


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_reads_and_changes_keep_their_order(
    first: int, generated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(first, first + 10):
        _agree(seed, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 5000, 100))
def test_reads_and_changes_keep_their_order_in_many_programs(
    first: int, generated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(first, first + 100):
        _agree(seed, monkeypatch)


def _agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for said in ("now", "off"):
        monkeypatch.setenv("WEFT_JIT", said)
        with wf.Graph().as_default():
            kept = _random_program(seed)
            with wf.Session() as session:
                session.run(wf.global_variables_initializer())
                steps = [session.run(kept) for _ in range(2)]
                found.append([v for step in steps for v in step if v is not None])
                found[-1] += session.run(wf.global_variables())
    for value, want in zip(*found, strict=True):
        np.testing.assert_allclose(value, want, rtol=1e-4, atol=1e-5, err_msg=f"seed {seed}")


def test_what_was_read_before_stays_as_it_was(generated: list[str]) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        v = wf.Variable(np.ones(5, "f"))
        old = v.read_value()
        with wf.control_dependencies([old]):
            step = v.assign_add(wf.exp(wf.constant(np.zeros(5, "f"))) * wf.sin(v) + 1.0)
        with wf.control_dependencies([step.op]):
            new = v * 1.0
        session.run(v.initializer)
        first, second, _ = session.run([old, new, step.op])
    np.testing.assert_array_equal(first, np.ones(5))
    np.testing.assert_allclose(second, 2 + np.sin(1) * np.ones(5), rtol=1e-6)
    assert "AssignAdd" in generated


def test_variables_may_be_replaced_by_themselves_elsewhere_and_exchanged(
    generated: list[str],
) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        v = wf.Variable(np.arange(4.0))
        turn = v.assign(wf.reverse(v, [0]) * 2.0 + 1.0)
        a, b = wf.Variable(np.zeros(3)), wf.Variable(np.ones(3))
        old_a, old_b = a * 1.0 + 0.0, b * 1.0 + 0.0
        with wf.control_dependencies([old_a, old_b]):
            swap = wf.group(a.assign(old_b + 1.0), b.assign(old_a + 2.0))
        session.run(wf.global_variables_initializer())
        session.run([turn.op, swap])
        assert session.run(v).tolist() == [7.0, 5.0, 3.0, 1.0]
        assert session.run([a, b])[0].tolist() == [2.0] * 3
        assert session.run(b).tolist() == [2.0] * 3
    assert "Assign" in generated


def test_nodes_of_one_variable_are_not_locked_twice(generated: list[str]) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        v = [wf.raw_ops.VariableV2(shape=[3], dtype=wf.float32, shared_name="v") for _ in range(2)]
        one = wf.constant(np.ones(3, "f"))
        steps = [wf.assign_add(each, wf.exp(one) * 0.0 + 1.0).op for each in v]
        session.run(wf.assign(v[0], one).op)
        session.run(steps)
        assert session.run(v[1]).tolist() == [3.0] * 3


def test_values_and_shapes_that_are_not_there_are_as_without_it(generated: list[str]) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        v = wf.Variable(np.zeros(3, "f"), validate_shape=False, name="weights")
        x = wf.placeholder(wf.float32)
        step = v.assign_sub(wf.tanh(x) * 0.0 + 1.0).op
        with pytest.raises(errors.FailedPreconditionError, match="uninitialized value weights"):
            session.run(step, {x: np.zeros(3)})
        session.run(v.initializer)
        session.run(step, {x: np.zeros(3)})
        with pytest.raises(errors.InvalidArgumentError, match=r"shape \[3\].*shape \[4\]"):
            session.run(step, {x: np.zeros(4)})
        session.run(wf.assign(v, np.zeros(4, "f"), validate_shape=False).op)
        session.run(step, {x: np.zeros(4)})
        assert session.run(v).tolist() == [-1.0] * 4


def test_no_update_is_lost_among_threads(generated: list[str]) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        v = wf.Variable(np.zeros(1000), use_resource=True)
        w = wf.Variable(np.zeros(1000), use_resource=True)
        x = wf.placeholder(wf.float64, [1000])
        step = wf.group(v.assign_add(wf.floor(x) * 2.0), w.assign_add(wf.floor(x) * 3.0))
        session.run(wf.global_variables_initializer())
        run = session.make_callable(step, [x])
        ones = np.ones(1000)
        threads = [
            threading.Thread(target=lambda: [run(ones) for _ in range(100)]) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(session.run(v)) == {600.0} and set(session.run(w)) == {900.0}


def test_jit_check_looks_at_variables_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft_compiler.generator._caches_code", lambda: False)  # nothing is kept
    config = wf.ConfigProto()
    config.experimental.jit_check = True

    def run() -> Any:
        with wf.Graph().as_default(), wf.Session(config=config) as session:
            v = wf.Variable(np.ones(3))
            (slope,) = wf.gradients(wf.sin(v) * 2.0, v)
            step = wf.train.MomentumOptimizer(0.5, 0.9, name="train").apply_gradients([(slope, v)])
            session.run(wf.global_variables_initializer())
            session.run(step)
            return session.run(v)

    np.testing.assert_allclose(run(), 1 - np.cos(np.ones(3)))
    new_values = region.new_values
    monkeypatch.setattr(
        region, "new_values", lambda *args: [new_values(*args)[1] for _ in range(2)]
    )
    with pytest.raises(errors.InternalError, match="jit_check: ApplyMomentum returns"):
        run()


def test_loops_that_wait_for_updates_and_are_waited_for_by_reads_do_not_hang(
    generated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for said in ("now", "off"):
        monkeypatch.setenv("WEFT_JIT", said)
        with wf.Graph().as_default(), wf.Session() as session:
            v = wf.Variable(np.ones(3))
            x = wf.placeholder(wf.float64, [3])
            first = wf.tanh(v * x) + 1.0
            step = v.assign_add(wf.exp(x) * 2.0)
            with wf.control_dependencies([step.op]):
                around = wf.sin(x) * 3.0
            _, total = wf.while_loop(
                lambda i, _: i < 3,
                lambda i, t, a=around: (i + 1, wf.cos(t) * a + 1.0),
                (0, wf.constant(np.zeros(3))),
            )
            last = wf.tanh(v * total) + first
            (slope,) = wf.gradients(last, v)
            train = wf.train.MomentumOptimizer(0.1, 0.9).apply_gradients([(slope, v)])
            session.run(wf.global_variables_initializer())
            values = session.run([first, total, last, train], {x: np.linspace(0, 1, 3)})[:2]
            found.append([*values, session.run(v)])
    for value, want in zip(*found, strict=True):
        np.testing.assert_allclose(value, want, rtol=1e-9)


def test_an_update_is_not_done_twice_where_one_after_it_fails(
    generated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_JIT", "on")  # by kernels, since nothing has repaid compiling yet
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [None])
        v, w = wf.Variable(np.zeros(2, "f")), wf.Variable(np.zeros(2, "f"))
        first = v.assign_add([1.0, 1.0])
        second = wf.assign_add(w, x * 2.0, name="second")
        both = wf.group(first, second)
        session.run(wf.global_variables_initializer())
        assert len(session.explain(both, [x]).compiled) == 1
        with pytest.raises(errors.InvalidArgumentError, match="node 'second'"):
            session.run(both, {x: [1.0, 2.0, 3.0]})
        assert session.run(v).tolist() == [1.0, 1.0]


SCATTERS = ("Update", "Add", "Sub", "Mul", "Div", "Min", "Max", "NdUpdate", "NdAdd", "NdSub")


@pytest.mark.parametrize("resource", [False, True])
def test_rows_of_variables_are_changed_in_place(
    resource: bool, monkeypatch: pytest.MonkeyPatch, generated: list[str]
) -> None:
    """Equal indices count one after the other, and one out of range changes nothing."""
    start = np.linspace(1, 2, 20, dtype=np.float32).reshape(5, 4)
    found: dict[str, Any] = {}
    for said in ("off", "now"):
        monkeypatch.setenv("WEFT_JIT", said)
        with wf.Graph().as_default(), wf.Session() as session:
            rows = wf.placeholder(wf.int32, [None])
            given = wf.placeholder(wf.float32, [None, 4])
            changes, variables = [], []
            for how in SCATTERS:
                v = wf.Variable(start, use_resource=resource)
                nd = how.startswith("Nd")
                name = f"scatter_nd_{how[2:].lower()}" if nd else f"scatter_{how.lower()}"
                indices = wf.expand_dims(rows, 1) if nd else rows
                changes.append(getattr(wf, name)(v, indices, wf.tanh(given) + 1.0).op)
                variables.append(v)
            session.run(wf.global_variables_initializer())
            feeds = {rows: [1, 3, 1, 0], given: np.linspace(-1, 1, 16).reshape(4, 4)}
            step = wf.group(*changes)
            session.run(step, feeds)
            before = session.run(variables)
            with pytest.raises(errors.InvalidArgumentError):
                session.run(step, feeds | {rows: [1, 5, 1, 0]})
            if said == "now":
                np.testing.assert_array_equal(session.run(variables), before)
            found[said] = before
    assert sum("Scatter" in name for name in generated) == len(SCATTERS)
    np.testing.assert_allclose(found["now"], found["off"], rtol=1e-6)


def test_a_training_step_updates_the_rows_that_it_looked_up(
    monkeypatch: pytest.MonkeyPatch, generated: list[str]
) -> None:
    found = {}
    for said in ("off", "now"):
        monkeypatch.setenv("WEFT_JIT", said)
        with wf.Graph().as_default(), wf.Session() as session:
            table = wf.Variable(np.linspace(-1, 1, 30).reshape(10, 3))
            words = wf.placeholder(wf.int64, [None])
            looked_up = wf.nn.embedding_lookup(table, words)
            loss = wf.reduce_mean(wf.square(wf.tanh(looked_up) - 0.5))
            step = wf.train.GradientDescentOptimizer(1.0).minimize(loss)
            session.run(table.initializer)
            for batch in ([1, 2, 1], [9, 9, 9], [0, 4, 5]):
                session.run(step, {words: batch})
            found[said] = session.run(table)
    assert {"GatherV2", "ScatterSub"} <= set(generated)
    np.testing.assert_allclose(found["now"], found["off"], rtol=1e-12)

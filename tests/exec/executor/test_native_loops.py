"""Loops compiled as one function: selection, results, and values saved for gradients."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from weft_testing.both_ways import loops_that_ran
from weft_testing.waiting import wait_until

import weft as wf
from weft import errors
from weft_compiler.codegen.targets import host
from weft_compiler.generator import LoopCompiler
from weft_compiler.interpreter import interpret
from weft_compiler.ir.parser import parse
from weft_compiler.ir.verifier import verify
from weft_compiler.lower import loop_support, whole_loop
from weft_compiler.passes.pipeline import PIPELINE
from weft_exec.executor.native import loops as native_loops, specialization_cache
from weft_exec.executor.native.background_compilation import Compilation
from weft_exec.resources.tensor_arrays import Stack

Build = Callable[..., Any]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The programs of the loops that are compiled, when their shapes are first met."""
    found: list[Any] = []
    lower = whole_loop.lower_loop

    def note(*given: Any) -> Any:
        program = lower(*given)
        found.append(program)
        return program

    monkeypatch.setattr(whole_loop, "lower_loop", note)
    monkeypatch.setattr(LoopCompiler, "find", lambda *_: None)  # whatever the disk has
    monkeypatch.setenv("WEFT_JIT", "now")
    with wf.Graph().as_default():
        yield found


def beside(monkeypatch: pytest.MonkeyPatch, build: Build, feed: Any, **config: Any) -> None:
    """Check that the graph of `build` has the same results with and without compilation."""
    results = []
    for said in ("off", "now"):
        monkeypatch.setenv("WEFT_JIT", said)
        with wf.Graph().as_default():
            fetches, places = build()
            fed = dict(zip(places, feed, strict=True))
            with wf.Session() as session:
                session.run(wf.global_variables_initializer())
                for _ in range(2):
                    results.append(session.run(fetches, fed))
    for run in results[1:]:
        for got, want in zip(run, results[0], strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)


def counted() -> Any:
    limit = wf.placeholder(wf.int32, [])
    last = wf.while_loop(
        lambda i, x, v: i < limit,
        lambda i, x, v: (i + 1, x * 0.5 + 1.0, v + wf.reduce_sum(v) * x),
        (0, 0.0, wf.ones([3])),
    )
    return list(last), [limit]


def inner() -> Any:
    x = wf.placeholder(wf.float32, [2, 3])

    def row(i: Any, total: Any) -> Any:
        _, total = wf.while_loop(
            lambda j, _: j < i, lambda j, t: (j + 1, wf.tanh(t + x)), (0, total)
        )
        return i + 1, total

    last = wf.while_loop(lambda i, _: i < 5, row, (0, wf.zeros([2, 3])))
    return [*last, *wf.gradients(last[1], [x])], [x]


def branching() -> Any:
    x = wf.placeholder(wf.float32, [2, 2])

    def turn(i: Any, v: Any) -> Any:
        v = wf.cond(
            wf.reduce_sum(v) > 3.0,
            lambda: wf.matmul(v, x),
            lambda: wf.cond(i > 2, lambda: v + 1.0, lambda: v * 2.0),
        )
        return i + 1, v

    last = wf.while_loop(lambda i, _: i < 7, turn, (0, x))
    return [last[1], *wf.gradients(last[1], [x])], [x]


def scanned() -> Any:
    x = wf.placeholder(wf.float32, [6, 2])
    sums = wf.scan(lambda a, b: a * 0.5 + b, x)
    mapped = wf.map_fn(lambda row: wf.reduce_sum(row) * row, x)
    folded = wf.foldl(lambda a, b: wf.tanh(a + b), x)
    y = wf.reduce_sum(sums * mapped) + wf.reduce_sum(folded)
    return [sums, mapped, folded, *wf.gradients(y, [x])], [x]


def recurrent(make: Any, both: bool = False) -> Build:
    def build() -> Any:
        x = wf.placeholder(wf.float32, [3, 5, 4])
        lengths = wf.placeholder(wf.int32, [3])
        wf.set_random_seed(5)
        if both:
            pair, _ = wf.nn.bidirectional_dynamic_rnn(make(), make(), x, lengths, dtype=wf.float32)
            outputs = wf.concat(pair, 2)
        else:
            outputs, _ = wf.nn.dynamic_rnn(make(), x, lengths, dtype=wf.float32)
        ys = wf.reduce_sum(wf.square(outputs))
        return [outputs, *wf.gradients(ys, [x, *wf.trainable_variables()])], [x, lengths]

    return build


X = np.random.RandomState(3).randn(3, 5, 4).astype(np.float32)
PROGRAMS: dict[str, tuple[Build, list[Any]]] = {
    "counted": (counted, [9]),
    "no turn": (counted, [0]),
    "inner": (inner, [np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)]),
    "branching": (branching, [np.array([[0.5, 0.2], [0.1, 0.7]], np.float32)]),
    "scanned": (scanned, [np.linspace(-1, 1, 12, dtype=np.float32).reshape(6, 2)]),
    "lstm": (recurrent(lambda: wf.nn.rnn_cell.LSTMCell(3)), [X, [5, 2, 0]]),
    "gru": (recurrent(lambda: wf.nn.rnn_cell.GRUCell(3)), [X, [1, 5, 3]]),
    "both": (recurrent(lambda: wf.nn.rnn_cell.BasicRNNCell(2), both=True), [X, [4, 2, 5]]),
}


def identity_weights(name: str, build: Build) -> Build:
    """The same program, whose variables begin with the same numbers in each session."""

    def built() -> Any:
        with wf.variable_scope(
            "same", initializer=wf.random_uniform_initializer(-0.5, 0.5, seed=7)
        ):
            return build()

    return built


@pytest.mark.parametrize("name", PROGRAMS)
def test_loops_give_what_their_kernels_give(
    name: str, made: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    build, feed = PROGRAMS[name]
    beside(monkeypatch, identity_weights(name, build), feed)
    assert made, "nothing was compiled"


def test_the_program_of_a_loop_is_one_that_the_interpreter_runs(made: list[Any]) -> None:
    fetches, (limit,) = counted()
    with wf.Session() as session:
        want = session.run(fetches, {limit: 6})
    (program,) = made
    programs = [program]
    for each in PIPELINE:
        programs.append(each(programs[-1], host().vector_bytes).program)
    for program in programs:
        assert str(parse(str(program))) == str(program)
        verify(program)
        found = interpret(program, np.array(6, np.int32))
        assert len(found) == len(want)
        for got, wanted in zip(found, want, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_a_loop_is_compiled_when_its_kernels_took_long_enough(
    made: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_JIT", "on")
    account = Compilation(idle_cores=lambda: True)
    monkeypatch.setattr(specialization_cache, "compilation", lambda: account)
    limit = wf.placeholder(wf.int32, [])
    last = wf.while_loop(lambda i, _: i < limit, lambda i, v: (i + 1, v * 0.5 + 1.0), (0, 0.0))
    with wf.Session() as session:
        wait_until(lambda: session.run(last[1], {limit: 3000}) and made)
        assert session.run(last, {limit: 9})[0] == 9


def test_what_does_not_change_is_computed_before_the_loop(made: list[Any]) -> None:
    x = wf.placeholder(wf.float32, [4])
    last = wf.while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, v + wf.exp(x)), (0, x))
    with wf.Session() as session:
        got = session.run(last[1], {x: np.ones(4, np.float32)})
    np.testing.assert_allclose(got, np.full(4, 1 + 3 * np.e), rtol=1e-5)
    before, _, loop = str(made[0]).partition("while on")
    assert "exp(" in before
    assert "exp(" not in loop


def test_stacks_grow_while_a_loop_runs(made: list[Any]) -> None:
    x, limit = wf.placeholder(wf.float32, []), wf.placeholder(wf.int32, [])
    last = wf.while_loop(lambda i, _: i < limit, lambda i, v: (i + 1, wf.sin(v) * x), (0, x))
    (slope,) = wf.gradients(last[1], [x])
    with wf.Session() as session:
        for turns in (1, 127, 128, 129, 700, 3):
            value, derivative = 1.3, 1.0
            for _ in range(turns):
                derivative = np.cos(value) * derivative * 1.3 + np.sin(value)
                value = np.sin(value) * 1.3
            got = session.run([last[1], slope], {x: 1.3, limit: turns})
            np.testing.assert_allclose(got, [value, derivative], rtol=1e-3)
    assert made


def test_what_a_compiled_loop_pushed_kernels_pop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_JIT", "now")
    unsupported_reason = loop_support.unsupported_loop_reason
    tried: list[str] = []

    def only_forward(whole: Any) -> str:
        backward = any(node.type == "StackPopV2" for node in whole.nodes)
        tried.append(whole.loop.frame.name)
        return "this one runs with kernels" if backward else unsupported_reason(whole)

    monkeypatch.setattr(loop_support, "unsupported_loop_reason", only_forward)
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [2])
        last = wf.while_loop(lambda i, _: i < 300, lambda i, v: (i + 1, v * x), (0, x))
        (slope,) = wf.gradients(last[1], [x])
        with wf.Session() as session:
            given = np.array([0.99, 1.01], np.float32)
            got = session.run(slope, {x: given})
    np.testing.assert_allclose(got, 301 * given.astype(float) ** 300, rtol=1e-3)
    assert len(tried) >= 2


def test_arrays_that_others_read_have_what_a_loop_wrote(made: list[Any]) -> None:
    array = wf.TensorArray(wf.float32, 4, clear_after_read=False)
    _, array = wf.while_loop(
        lambda i, _: i < 4,
        lambda i, a: (i + 1, a.write(3 - i, wf.cast(i, wf.float32) * wf.ones([2]))),
        (0, array),
    )
    with wf.Session() as session:
        rows, third = session.run([array.stack(), array.read(2)])
    np.testing.assert_array_equal(rows, np.array([[3, 3], [2, 2], [1, 1], [0, 0]], np.float32))
    np.testing.assert_array_equal(third, [1, 1])
    assert made


@pytest.mark.parametrize(
    "write",
    [lambda a, i: a.write(i * 3, 1.0), lambda a, i: a.write(0 * i, 1.0)],
    ids=["out of range", "twice"],
)
def test_errors_are_those_of_kernels_with_node_and_turn(write: Any, made: list[Any]) -> None:
    array = wf.TensorArray(wf.float32, 4)
    last = wf.while_loop(lambda i, _: i < 4, lambda i, a: (i + 1, write(a, i)), (0, array))
    with wf.Session() as session, pytest.raises(errors.InvalidArgumentError) as caught:
        session.run(last[1].flow)
    assert "TensorArrayWrite" in str(caught.value)
    assert "iteration" in str(caught.value)
    assert made


@pytest.mark.parametrize("where", ["body", "test", "inner loop"])
def test_what_does_not_change_is_checked_as_well(where: str, made: list[Any]) -> None:
    table = wf.placeholder(wf.float64, [None])
    at = wf.placeholder(wf.int32, [])

    def turn(i: Any, x: Any) -> Any:
        if where == "body":
            return i + 1, wf.gather(table, at)
        if where == "test":
            return i + 1, x + 1.0
        found = wf.while_loop(
            lambda j, _: j < 2, lambda j, _: (j + 1, wf.gather(table, at)), (0, x)
        )
        return i + 1, found[1]

    def test(i: Any, x: Any) -> Any:
        if where != "test":
            return i < 3
        return wf.logical_and(i < 3, wf.gather(table, at) < 9)

    last = wf.while_loop(test, turn, (0, wf.constant(0.0, wf.float64)))
    with wf.Session() as session:
        assert session.run(last[0], {table: [1.0, 2.0], at: 1}) == 3
        for bad in (-1, 2):
            with pytest.raises(errors.InvalidArgumentError, match=f"{bad} is not in"):
                session.run(last[1], {table: [1.0, 2.0], at: bad})
    assert made


def test_constants_need_no_enter(made: list[Any]) -> None:
    ops = wf.raw_ops
    begin = ops.Enter(data=wf.constant(0), frame_name="count")
    merged, _ = ops.Merge(inputs=[begin, begin])
    end, inside = ops.Switch(data=merged, pred=ops.LoopCond(input=wf.less(merged, wf.constant(7))))
    following = ops.NextIteration(data=wf.add(inside, wf.constant(2)))
    wf.get_default_graph().replace_input(merged.op, 1, following, reason="close the loop")
    with wf.Session() as session:
        assert session.run(ops.Exit(data=end)) == 8
    assert made


def test_loops_whose_shapes_change_run_by_kernels(made: list[Any]) -> None:
    last = wf.while_loop(
        lambda v: wf.size(v) < 9,
        lambda v: wf.concat([v, v], 0),
        [wf.placeholder_with_default(np.ones(1, np.float32), [None])],
        shape_invariants=[wf.TensorShape([None])],
    )
    with wf.Session() as session:
        assert session.run(last).shape == (16,)
    assert not made


def test_loops_that_change_variables_are_compiled(made: list[Any]) -> None:
    variable = wf.Variable(1.0, use_resource=True)

    def turn(i: Any) -> Any:
        with wf.control_dependencies([variable.assign_add(2.0).op]):
            return [i + 1]

    last = wf.while_loop(lambda i: i < 3, turn, [0])
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        assert session.run(last) == 3
        assert session.run(variable) == 7.0
    assert len(made) == 1


def test_a_loop_that_never_ends_ends_with_its_session(made: list[Any]) -> None:
    on = wf.placeholder(wf.bool, [])
    last = wf.while_loop(lambda i: wf.logical_or(on, i < 3), lambda i: [(i + 1) * 1], [0])
    caught: list[BaseException] = []
    session = wf.Session()
    session.run(last, {on: False})

    def run() -> None:
        try:
            session.run(last, {on: True})
        except errors.CancelledError as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: made)
    session.close()
    thread.join(30)
    assert not thread.is_alive()
    assert caught


def test_a_loop_that_is_compiled_while_its_session_is_closed_ends(
    made: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    on = wf.placeholder(wf.bool, [])
    last = wf.while_loop(lambda i: wf.logical_or(on, i < 3), lambda i: [(i + 1) * 1], [0])
    compiling, closed = threading.Event(), threading.Event()
    compiled = LoopCompiler.generate

    def wait(*given: Any) -> Any:
        compiling.set()
        assert closed.wait(10)
        return compiled(*given)

    monkeypatch.setattr(LoopCompiler, "generate", wait)
    caught: list[BaseException] = []
    session = wf.Session()

    def run() -> None:
        try:
            session.run(last, {on: True})
        except errors.CancelledError as error:
            caught.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert compiling.wait(10)
    session.close()
    closed.set()
    thread.join(10)
    assert caught


def test_ctrl_c_ends_a_loop_that_never_ends(made: list[Any]) -> None:
    on = wf.placeholder(wf.bool, [])
    last = wf.while_loop(lambda i: wf.logical_or(on, i < 3), lambda i: [i + 1], [0])
    with wf.Session() as session:
        session.run(last, {on: False})
        main = threading.main_thread().ident
        assert main is not None
        timer = threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            session.run(last, {on: True})
        assert session.run(last, {on: False}) == 3
    assert made


def test_jit_check_names_what_differs_in_a_loop(
    made: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    generate = LoopCompiler.generate

    class Wrong:
        def __init__(self, right: Any) -> None:
            self.right = right

        def __getattr__(self, name: str) -> Any:
            return getattr(self.right, name)

        def __call__(self, *arrays: Any) -> None:
            self.right(*arrays)
            arrays[-1][...] += 1

        enter_briefly = __call__

    monkeypatch.setattr(LoopCompiler, "generate", lambda *given: Wrong(generate(*given)))
    monkeypatch.setenv("WEFT_JIT", "")
    config = wf.ConfigProto()
    config.experimental.jit_check = True
    last = wf.while_loop(lambda i: i < 3, lambda i: [i + 1], [0], name="turning")
    with wf.Session(config=config) as session:
        with pytest.raises(errors.InternalError, match="jit_check: Merge returns 4") as caught:
            session.run(last)
        assert "turning" in str(caught.value)


def test_a_loop_that_is_refused_again_and_again_stays_with_kernels(
    made: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    places = native_loops.CompiledLoop._list_buffers

    def count(*given: Any) -> Any:
        calls.append(1)
        return places(*given)

    monkeypatch.setattr(native_loops.CompiledLoop, "_list_buffers", count)
    array = wf.TensorArray(wf.float32, 4, element_shape=[2])
    last = wf.while_loop(
        lambda i, _: i < 6, lambda i, a: (i + 1, a.write(i, wf.ones([2]))), (0, array)
    )
    rows = last[1].stack()
    with wf.Session() as session:
        for _ in range(8):
            with pytest.raises(errors.InvalidArgumentError, match="index 4 to write"):
                session.run(rows)
    assert len(calls) == 4


def test_the_values_of_a_long_loop_stay_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop pushes values in parts; its gradient receives them as one array."""
    monkeypatch.setenv("WEFT_JIT", "now")
    monkeypatch.setattr(Stack, "unpack_rows", None)
    with wf.Graph().as_default(), wf.Session() as session:
        n, x = wf.placeholder(wf.int64, []), wf.placeholder(wf.float64, [])
        start = [wf.constant(0, wf.int64), x]
        y = wf.while_loop(lambda i, _: i < n, lambda i, v: (i + 1, wf.sin(v) + 1.0), start)[1]
        (slope,) = wf.gradients(y, [x])
        for turns in (3, 50_000, 200_000):
            value, want = 0.5, 1.0
            for _ in range(min(turns, 200)):  # which has come to rest by then
                want *= np.cos(value)
                value = np.sin(value) + 1.0
            np.testing.assert_allclose(session.run(slope, {n: turns, x: 0.5}), want, 1e-6, 1e-9)


def test_failures_that_are_not_in_a_row_leave_a_loop_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WEFT_JIT", "now")
    ran = loops_that_ran(monkeypatch)
    with wf.Graph().as_default(), wf.Session() as session:
        at = wf.placeholder(wf.int32, [])
        table = wf.constant([1.0, 2.0, 3.0])
        total = wf.while_loop(
            lambda i, _: i < 3,
            lambda i, v: (i + 1, v + wf.gather(table, at)),
            [wf.constant(0), wf.constant(0.0)],
        )[1]
        for _ in range(8):
            with pytest.raises(errors.InvalidArgumentError, match="7"):
                session.run(total, {at: 7})
            ran.clear()
            assert session.run(total, {at: 1}) == 6.0 and ran

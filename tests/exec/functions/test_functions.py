"""Functions as they run: bodies in place, calls that stay, recursion, effects, errors."""

from __future__ import annotations

import random
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from weft_testing.loading import load_family
from weft_testing.waiting import new_threads, wait_until

import weft as wf
from weft_exec.executor import deep_calls
from weft_exec.kernels.registry import kernel
from weft_graph.functions.decorator import function
from weft_graph.functions.defun import Declare, Defun
from weft_graph.ir.builder import out
from weft_graph.ir.op_def import register_op
from weft_graph.ir.traits import WAITS
from weft_graph.passes import prune
from weft_graph.passes.inline import inline_calls
from weft_tensor import dtypes, errors

CALLS = ("PartitionedCall", "StatefulPartitionedCall")

register_op(
    "TestPatient",
    inputs=("input: float32",),
    outputs=("output: float32",),
    shape=lambda node: [node.inputs[0].dims],
    traits=WAITS,
    doc="The input, by an asynchronous kernel.",
)


@kernel("TestPatient")
def _patient(node: Any, device: Any) -> Callable[..., Any]:
    return lambda ctx, inputs, done: done(inputs[0])


ROWS = [
    pytest.param(case, dtype, id=f"{case.name}-{dtype}")
    for case in load_family("functional").FUNCTION_CASES
    for dtype in case.dtypes
]


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as made:
        yield made


def config(executor: str = "", optimize: bool = True) -> Any:
    made = wf.ConfigProto()
    made.experimental.executor_type = executor
    if not optimize:
        made.graph_options.optimizer_options.opt_level = -1
    return made


CONFIGS = [config(), config(optimize=False), config("READY_QUEUE")]


def run(fetches: Any, feeds: Any = None, config: Any = None) -> Any:
    with wf.Session(config=config) as session:
        session.run(wf.global_variables_initializer())
        return session.run(fetches, feeds)


def kept(python_function: Callable[..., Any], name: str | None = None) -> Any:
    """A function whose calls stay where that is possible."""
    made = function(python_function, name=name)
    made._attrs = {"_noinline": True}
    return made


def staying(*fetches: Any) -> int:
    """Return the number of calls that remain in a step."""
    step = prune([], list(fetches), [])
    inline_calls(step)
    return sum(node.type in CALLS for node in step.graph.nodes)


# --------------------------------------------------------------------------- cases


@pytest.mark.parametrize(("case", "dtype"), ROWS)
def test_values(case: Any, dtype: str) -> None:
    arrays = case.arrays(dtype, np.random.default_rng(zlib.crc32(case.name.encode())))
    xs = [wf.placeholder(dtypes.as_dtype(dtype), array.shape) for array in arrays]
    feeds = dict(zip(xs, arrays, strict=True))
    fetches = [wrap(case.build)(*xs) for wrap in (function, kept)]
    wanted = case.expected(*arrays)
    for each in CONFIGS[:2]:
        for values in run(fetches, feeds, each):
            for value, want in zip(values, wanted, strict=True):
                np.testing.assert_array_equal(value, want)
                assert np.shape(value) == np.shape(want)


# --------------------------------------------------------------------------- by chance


class Program:
    """A program made by chance: functions that call each other, with branches, loops and state."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.functions = [
            (self.random.randint(1, 3), self._block(i, self.random.randint(2, 5), 2))
            for i in range(self.random.randint(1, 3))
        ]
        self.main = self._block(len(self.functions), 5, 2)

    def _block(self, level: int, count: int, depth: int) -> list[Any]:
        r = self.random
        made: list[Any] = []
        for _ in range(count):
            kind = r.random()
            if kind < 0.35 or not depth:
                made.append((r.choice(["add", "mul", "sin", "max"]), r.random(), r.random()))
            elif kind < 0.6 and level:
                made.append(("call", r.randrange(level), [r.random() for _ in range(3)]))
            elif kind < 0.72:
                blocks = [self._block(level, r.randint(1, 3), depth - 1) for _ in range(2)]
                made.append(("cond", r.random(), r.uniform(-1, 1), blocks))
            elif kind < 0.84:
                inner = self._block(level, 2, depth - 1)
                made.append(("while", r.random(), r.randint(0, 3), inner))
            else:
                made.append((r.choice(["resource", "reference", "outside"]), r.random()))
        return made

    def build(self, wraps: list[Callable[..., Any]]) -> list[Any]:
        """The results, with functions wrapped in turn."""
        values = {
            "resource": wf.Variable([0.5, 1.0, -0.7], use_resource=True, dtype=wf.float64),
            "reference": wf.Variable([0.2, -1.0, 0.7], dtype=wf.float64),
            "outside": wf.sin(wf.constant([0.1, 0.2, 0.3], wf.float64)),
        }
        made: list[Any] = []
        for i, (_, block) in enumerate(self.functions):

            def body(*args: Any, block: Any = block) -> Any:
                return self._run(block, list(args), values, made)[-2:]

            made.append(wraps[i % len(wraps)](body))
        x = wf.constant([0.3, -0.8, 1.1], wf.float64)
        return self._run(self.main, [x, x * 0.5], values, made)[2:]

    def _run(
        self, block: Any, given: list[Any], values: dict[str, Any], made: list[Any]
    ) -> list[Any]:
        have = list(given)
        for kind, *rest in block:
            have += self._statement(kind, rest, have, values, made)
        return have

    def _statement(
        self, kind: str, rest: list[Any], have: list[Any], values: dict[str, Any], made: list[Any]
    ) -> list[Any]:
        def pick(place: float) -> Any:
            return have[int(place * len(have))]

        if kind == "call":
            count = self.functions[rest[0]][0]
            results: list[Any] = made[rest[0]](*[pick(place) for place in rest[1][:count]])
            return results
        if kind == "cond":
            pred = wf.reduce_sum(pick(rest[0])) > rest[1]
            sides = [lambda b=b: self._run(b, have, values, made)[-1] for b in rest[2]]
            return [wf.cond(pred, *sides)]
        if kind == "while":

            def step(i: Any, x: Any) -> Any:
                return i + 1, self._run(rest[2], [*have, x], values, made)[-1]

            return [wf.while_loop(lambda i, _: i < rest[1], step, [0, pick(rest[0])])[1]]
        if kind in values:
            return [pick(rest[0]) - values[kind]]
        a, b = pick(rest[0]), pick(rest[1])
        return [
            {
                "add": lambda: a + b,
                "mul": lambda: a * b * 0.5,
                "sin": lambda: wf.sin(a),
                "max": lambda: wf.maximum(a, b * 0.3),
            }[kind]()
        ]


def check_program(seed: int) -> None:
    program = Program(seed)
    results = []
    for wraps in ([lambda f: f], [function], [kept], [function, kept]):
        for each in CONFIGS:
            with wf.Graph().as_default() as graph:
                results.append(run(program.build(wraps), None, each))
                graph.check_integrity()
    for other in results[1:]:
        for mine, its in zip(results[0], other, strict=True):
            np.testing.assert_allclose(mine, its, rtol=1e-12, atol=1e-12)


def test_a_call_in_a_loop_of_a_body_whose_call_waits() -> None:
    """The outer call waits for a node outside of the loop that contains the inner call."""
    v = wf.get_variable("v", initializer=1.0, use_resource=True)
    inner = function(lambda x: wf.identity(x) + 1.0, name="inner")

    def loop(x: Any) -> Any:
        def body(i: Any, a: Any) -> Any:
            # A result that is what came in waits by a node of its own.
            return i + 1, function(lambda b: (inner(b), b), name="both")(a)[0]

        return wf.while_loop(lambda i, _: i < 3, body, [0, x])[1]

    def outer(i: Any, total: Any) -> Any:
        with wf.control_dependencies([v.assign_add(1.0)]):
            return i + 1, wf.ensure_shape(function(loop, name="loop")(total), [])

    y = wf.while_loop(lambda i, _: i < 2, outer, [0, wf.constant(0.0)])[1]
    for each in CONFIGS:
        assert run(y, None, each) == 6


@settings(max_examples=10)
@given(st.integers(0, 2**32))
def test_programs_by_chance(seed: int) -> None:
    check_program(seed)


@pytest.mark.parametrize("seed", [2, 10])
def test_branches_of_calls_that_stay_are_known_where_regions_are_compiled(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The predicate is used directly and through an identity."""
    monkeypatch.setenv("WEFT_JIT", "on")
    check_program(seed)


@pytest.mark.long
@given(st.integers(0, 2**32))
def test_many_programs_by_chance(seed: int) -> None:
    check_program(seed)


# --------------------------------------------------------------------------- recursion


def factorial() -> Any:
    declared = Declare("fact", [("n", wf.int32)], [("r", wf.int32)])
    return Defun(wf.int32, func_name="fact")(
        lambda n: wf.cond(n < 2, lambda: wf.constant(1), lambda: n * declared(n - 1))
    )


def fibonacci() -> Any:
    declared = Declare("fib", [("n", wf.int32)], [("r", wf.int32)])
    return Defun(wf.int32, func_name="fib")(
        lambda n: wf.cond(n < 2, lambda: wf.identity(n), lambda: declared(n - 1) + declared(n - 2))
    )


@pytest.mark.parametrize("each", CONFIGS)
def test_recursion(each: Any) -> None:
    n = wf.placeholder(wf.int32, [])
    results = [factorial()(n), fibonacci()(n)]
    assert staying(*results) == 2
    with wf.Session(config=each) as session:
        assert session.run(results, {n: 0}) == [1, 0]
        assert session.run(results, {n: 5}) == [120, 5]
        assert session.run(results, {n: 12}) == [479001600, 144]


def test_recursion_of_two_functions() -> None:
    even_ = Declare("even", [("n", wf.int32)], [("r", wf.bool)])
    odd_ = Declare("odd", [("n", wf.int32)], [("r", wf.bool)])
    true, false = lambda: wf.constant(True), lambda: wf.constant(False)
    even = Defun(wf.int32, func_name="even")(lambda n: wf.cond(n < 1, true, lambda: odd_(n - 1)))
    odd = Defun(wf.int32, func_name="odd")(lambda n: wf.cond(n < 1, false, lambda: even_(n - 1)))
    n = wf.placeholder(wf.int32, [])
    results = [even(n), odd(n)]
    assert run(results, {n: 7}) == [False, True]
    assert run(results, {n: 10}) == [True, False]


def test_recursion_in_loops_and_branches() -> None:
    fact = factorial()

    def step(i: Any, total: Any) -> Any:
        value = wf.cond(i > 2, lambda: fact(i), lambda: wf.identity(i))
        return i + 1, total + wf.ensure_shape(value, [])

    total = wf.while_loop(lambda i, _: i < 6, step, [0, 0])[1]
    for each in CONFIGS:
        assert run(total, None, each) == 0 + 1 + 2 + 6 + 24 + 120


def test_recursion_with_a_value_from_outside_is_refused() -> None:
    """A recursive call returns the declared types, and nothing else."""
    v = wf.get_variable("v", initializer=2.0, use_resource=True)
    power = Declare("power", [("n", wf.int32)], [("r", wf.float32)])
    with pytest.raises(errors.InvalidArgumentError, match="'power' uses 'v:0' from outside"):
        Defun(wf.int32, func_name="power")(
            lambda n: wf.cond(n < 1, lambda: wf.constant(1.0), lambda: v * power(n - 1))
        )(3)


def test_recursion_goes_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = Declare("count", [("n", wf.int32)], [("r", wf.int32)])
    count = Defun(wf.int32, func_name="count")(
        lambda n: wf.cond(n < 1, lambda: wf.constant(0), lambda: declared(n - 1) + 1)
    )
    n = wf.placeholder(wf.int32, [])
    y = count(n)
    begun = new_threads()
    with wf.Session() as session:
        assert session.run(y, {n: 3000}) == 3000
        monkeypatch.setattr(deep_calls, "DEEPEST", 500)
        with pytest.raises(errors.ResourceExhaustedError, match=r"at most 500 deep.*'count'"):
            session.run(y, {n: 3000})
        assert session.run(y, {n: 400}) == 400
    wait_until(lambda: not begun())


def test_recursion_without_an_end_is_an_error_that_names_the_call() -> None:
    declared = Declare("forever", [("x", wf.float32)], [("y", wf.float32)])
    forever = Defun(wf.float32, func_name="forever")(lambda x: declared(x + 1.0))
    with pytest.raises(
        errors.ResourceExhaustedError, match="check that its recursion ends"
    ) as caught:
        run(forever(1.0))
    assert caught.value.node == "forever/.../forever"
    assert len(str(caught.value)) < 2000


def test_recursion_that_waits_is_refused_by_name() -> None:
    declared = Declare("f", [("x", wf.float32)], [("y", wf.float32)], stateful=True)
    f = Defun(wf.float32, func_name="f")(
        lambda x: wf.cond(
            x < 1.0, lambda: out("TestPatient", [x], name="patient"), lambda: declared(x - 1.0)
        )
    )
    with pytest.raises(errors.UnimplementedError, match=r"'f' cannot remain.*patient.*TestPatient"):
        run(f(3.0))


def test_the_random_numbers_of_a_recursion_differ_from_call_to_call() -> None:
    declared = Declare(
        "walk", [("n", wf.int32), ("x", wf.float32)], [("y", wf.float32)], stateful=True
    )

    @Defun(wf.int32, wf.float32, func_name="walk")
    def walk(n: Any, x: Any) -> Any:
        here = wf.random_uniform([1], seed=1)
        return wf.cond(
            n < 1,
            lambda: wf.reshape(here, [1]),
            lambda: wf.concat([here, declared(n - 1, x)], 0),
        )

    values = run(walk(5, 0.0))
    assert len(set(values.tolist())) == 6


# --------------------------------------------------------------------------- kept calls


def test_kept_calls_are_called_and_give_what_bodies_in_place_give() -> None:
    v = wf.Variable([1.0, 2.0], use_resource=True)

    def body(x: Any, y: Any) -> Any:
        return wf.matmul(x, y) * v, wf.reduce_sum(x), x

    x, y = wf.random_normal([3, 2], seed=1), wf.random_normal([2, 2], seed=2)
    f = kept(body)
    results = f(x, y)
    assert staying(*results) == 1
    inlined = function(body)(x, y)
    (grad,), (other,) = wf.gradients(results[0], [v]), wf.gradients(inlined[0], [v])
    for each in CONFIGS:
        for a, b in run([results, inlined], None, each) and zip(
            *run([[*results, grad], [*inlined, other]], None, each), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_only_what_is_used_of_a_kept_call_runs() -> None:
    v = wf.Variable(1.0, use_resource=True)  # never initialized

    def body(x: Any) -> Any:
        return x + v, x * 2.0

    _, y = kept(body)(wf.constant(3.0))
    assert staying(y) == 1
    with wf.Session() as session:
        assert session.run(y) == 6.0


def test_a_kept_call_that_only_reads_sees_the_value_before_the_step() -> None:
    v = wf.Variable([1.0, 2.0], use_resource=True)
    update = v.assign([5.0, 5.0]).op
    y = kept(lambda x: x * v)(wf.ones([2]))
    assert staying(y) == 1
    for each in CONFIGS:
        with wf.Session(config=each) as session:
            session.run(v.initializer)
            value, _ = session.run([y, update])
            assert value.tolist() == [1.0, 2.0]


def test_a_kept_call_that_updates_comes_after_reads() -> None:
    v = wf.Variable([1.0, 2.0], use_resource=True)

    def body(x: Any) -> Any:
        v.assign_add(x)
        return v.read_value()

    y = kept(body)(wf.ones([2]))
    before = v.value() * 10.0
    assert staying(y) == 1
    for each in CONFIGS:
        with wf.Session(config=each) as session:
            session.run(v.initializer)
            assert [a.tolist() for a in session.run([y, before])] == [[2, 3], [10, 20]]


def test_fetched_results_of_kept_calls_belong_to_the_caller() -> None:
    constant = np.arange(2000.0)
    f = kept(lambda x: (wf.constant(constant), x))
    x = wf.placeholder(wf.float64, [2000])
    first, second = f(x)
    with wf.Session() as session:
        fed = np.ones(2000)
        a, b = session.run([first, second], {x: fed})
        a[...] = b[...] = -1.0
        assert fed.sum() == 2000
        a, b = session.run([first, second], {x: fed})
        np.testing.assert_array_equal(a, constant)


def test_kept_calls_run_side_by_side() -> None:
    def body(x: Any) -> Any:
        for _ in range(20):
            x = wf.tanh(wf.matmul(x, x))
        return x

    f = kept(body)
    xs = [wf.constant(np.eye(64) * k) for k in (0.1, 0.2, 0.3, 0.4)]
    ys = [f(x) for x in xs]
    assert staying(*ys) == 4
    one = [run(y) for y in ys]
    made = wf.ConfigProto(inter_op_parallelism_threads=4)
    for mine, its in zip(run(ys, None, made), one, strict=True):
        np.testing.assert_array_equal(mine, its)


# --------------------------------------------------------------------------- bodies in place


def test_effects_happen_in_the_order_of_the_program() -> None:
    seen: list[str] = []

    def note(text: str, x: Any) -> Any:
        return wf.py_func(lambda v: seen.append(text) or v, [x], wf.float32)

    @function
    def f(x: Any) -> Any:
        note("first", x)
        y = wf.cond(x > 0.0, lambda: note("second", x), lambda: x)
        wf.while_loop(
            lambda i, z: i < 2,
            lambda i, z: (i + 1, note("loop", z)),
            [0, y],
            shape_invariants=[wf.TensorShape([]), wf.TensorShape(None)],
        )
        note("last", x)
        return x * 2.0

    y = f(wf.constant(1.0))
    for each in CONFIGS:
        seen.clear()
        assert run(y, None, each) == 2.0
        assert seen == ["first", "second", "loop", "loop", "last"]


def test_an_assertion_inside_holds_back_the_results() -> None:
    @function
    def f(x: Any) -> Any:
        wf.Assert(x > 0.0, ["must be positive"])
        return x * 2.0

    x = wf.placeholder(wf.float32, [])
    y = f(x)
    assert run(y, {x: 1.0}) == 2.0
    with pytest.raises(errors.InvalidArgumentError, match="must be positive") as caught:
        run(y, {x: -1.0})
    assert caught.value.node == "f/Assert/Assert" or caught.value.node.startswith("f/")


def test_a_call_waits_for_what_it_was_told_to_wait_for() -> None:
    v = wf.Variable(1.0, use_resource=True)
    update = v.assign_add(1.0).op
    read = function(lambda x: x + v, name="read")
    pure = function(lambda x: x * 2.0, name="pure")
    x = wf.constant(10.0)
    with wf.control_dependencies([update]):
        a, b = read(x), pure(x)
    for each in CONFIGS:
        with wf.Session(config=each) as session:
            session.run(v.initializer)
            assert session.run(a) == 12.0
            assert session.run(b) == 20.0
            assert session.run(v) == 3.0


def test_others_wait_for_a_call() -> None:
    v = wf.Variable(1.0, use_resource=True)
    node = function(lambda: v.assign_add(1.0).op, name="update")()
    plain = function(lambda x: x * 2.0)(wf.constant(1.0))
    with wf.control_dependencies([node, plain.op]):
        after = v.read_value()
    for each in CONFIGS:
        with wf.Session(config=each) as session:
            session.run(v.initializer)
            assert session.run(after) == 2.0
            session.run(plain.op)
            session.run(node)
            assert session.run(v) == 3.0


def test_calls_in_branches_run_only_there() -> None:
    v = wf.Variable(0, use_resource=True)

    @function
    def counted() -> Any:
        v.assign_add(1)
        return wf.constant(5)

    constant = function(lambda: wf.constant(7))
    p = wf.placeholder(wf.bool, [])
    y = wf.cond(p, counted, constant)
    for each in CONFIGS:
        with wf.Session(config=each) as session:
            session.run(v.initializer)
            assert [session.run(y, {p: c}) for c in (True, False, True)] == [5, 7, 5]
            assert session.run(v) == 2


def test_calls_in_loops_run_in_each_iteration() -> None:
    v = wf.Variable(0, use_resource=True)

    @function
    def counted(step: Any) -> Any:
        v.assign_add(step)
        return wf.constant(1)

    step = wf.constant(2)

    def body(i: Any) -> Any:
        return i + counted(step)

    end = wf.while_loop(lambda i: i < 5, body, [0])
    for each in CONFIGS:
        with wf.Session(config=each) as session:
            session.run(v.initializer)
            assert session.run(end) == 5
            assert session.run(v) == 10


def test_loops_of_two_calls_do_not_get_into_each_others_way() -> None:
    @function
    def power(x: Any, n: Any) -> Any:
        start = [0, wf.ones_like(x)]
        return wf.while_loop(lambda i, _: i < n, lambda i, y: (i + 1, y * x), start)[1]

    x = wf.constant(2.0)
    y = power(power(x, 2), 3) + power(x, 4)
    nested = wf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, power(y, 2)), [0, x])[1]
    for each in CONFIGS:
        assert run([y, nested], None, each) == [80.0, 16.0]


def test_random_streams_of_calls_are_their_own() -> None:
    f = function(lambda: wf.random_uniform([3]))
    a, b = f(), f()
    seeded = function(lambda: wf.random_uniform([3], seed=4))
    c, d = seeded(), seeded()
    with wf.Session() as session:
        first = session.run([a, b, c, d])
        second = session.run([a, b, c, d])
    assert len({v.tobytes() for v in [*first[:2], *second[:2]]}) == 4
    assert not np.array_equal(first[2], second[2])


def test_each_call_draws_numbers_of_its_own_also_under_a_seed() -> None:
    def values() -> Any:
        with wf.Graph().as_default():
            wf.set_random_seed(7)
            draw = function(lambda: wf.random_uniform([4]), name="draw")
            twice = function(lambda: [draw(), draw()], name="twice")
            results = [draw(), draw(), *twice()]
            with wf.Session() as session:
                return [session.run(results) for _ in range(2)]

    found = values()
    rows = np.concatenate(found)
    assert len({row.tobytes() for row in rows}) == 8
    np.testing.assert_array_equal(values(), found)


@pytest.mark.parametrize("each", CONFIGS)
def test_arguments_that_are_fed_have_no_place(each: Any) -> None:
    """A body may ask to be placed with its argument, as TensorArrays of map_fn do."""
    x = wf.placeholder(wf.float32, [3])
    squares = function(lambda values: wf.map_fn(lambda e: e * e, values))(x)
    captured = function(lambda: wf.map_fn(lambda e: e + 1.0, x))()
    middle = x * 2.0
    inner = function(lambda values: wf.map_fn(lambda e: e * e, values))(middle)
    slope = wf.gradients(squares, x)[0]
    got = run([squares, captured, inner, slope], {x: [1, 2, 3], middle: [1, 1, 2]}, each)
    assert [v.tolist() for v in got] == [[1, 4, 9], [2, 3, 4], [1, 1, 4], [2, 4, 6]]


def test_results_can_be_fed_and_fetched() -> None:
    f = function(lambda x: (x + 1.0, x * 2.0), name="f")
    a, b = f(wf.constant(1.0))
    total = a + b
    assert run([total, "f:0"]) == [4.0, 2.0]
    assert run(total, {a: 10.0}) == 12.0
    assert run([total, b], {a: 10.0, b: 5.0}) == [15.0, 5.0]


def test_asynchronous_kernels_inside() -> None:
    f = function(lambda x: out("TestPatient", [x * 2.0]) + 1.0)
    x = wf.constant(3.0)
    y = wf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, f(y)), [0, x])[1]
    for each in CONFIGS:
        assert run([f(x), y], None, each) == [7.0, 31.0]
    mine = kept(lambda x: out("TestPatient", [x * 2.0]) + 1.0)
    assert run(mine(x)) == 7.0


def test_queues_inside() -> None:
    queue = wf.FIFOQueue(3, wf.float32, [[]])

    @function
    def through(x: Any) -> Any:
        queue.enqueue(x)
        queue.enqueue(x + 1.0)
        return queue.dequeue() * 10.0 + queue.dequeue()

    assert run(through(wf.constant(1.0))) == 12.0


# --------------------------------------------------------------------------- errors, traces, ends


def failing(x: Any) -> Any:
    return wf.gather(wf.constant([1.0, 2.0]), x, name="pick")


@pytest.mark.parametrize("wrap", [function, kept])
def test_errors_name_the_call_and_the_node_inside(wrap: Any) -> None:
    inner = wrap(failing, name="inner")
    outer = wrap(lambda x: inner(x) + 1.0, name="outer")
    x = wf.placeholder(wf.int32, [])
    y = outer(x)
    with pytest.raises(errors.InvalidArgumentError) as caught:
        run(y, {x: 7})
    assert caught.value.node == "outer/inner/pick"
    assert "test_functions.py" in str(caught.value.line)
    assert caught.value.op_type == "GatherV2"


def test_traces_reach_into_kept_calls() -> None:
    y = kept(lambda x: wf.tanh(x, name="inside") + 1.0, name="f")(wf.placeholder(wf.float32, [2]))
    assert staying(y) == 1
    options = wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE)
    metadata = wf.RunMetadata()
    with wf.Session() as session:
        session.run(y, {y.op.inputs[0]: [1.0, 2.0]}, options, metadata)
    names = [n.node_name for d in metadata.step_stats.dev_stats for n in d.node_stats]
    assert "inside" in names


def slow(seconds: float) -> Callable[..., Any]:
    def pause(x: Any) -> Any:
        time.sleep(seconds)
        return x

    def body(x: Any) -> Any:
        return wf.while_loop(
            lambda i, _: i < 10_000,
            lambda i, y: (i + 1, wf.ensure_shape(wf.py_func(pause, [y], wf.float32), [])),
            [0, x],
        )[1]

    return body


def endless() -> Any:
    declared = Declare("endless", [("x", wf.float32)], [("y", wf.float32)], stateful=True)

    def pause(x: Any) -> Any:
        time.sleep(0.002)
        return x

    return Defun(wf.float32, func_name="endless")(
        lambda x: declared(wf.ensure_shape(wf.py_func(pause, [x], wf.float32), []))
    )


def test_timeouts_reach_into_kept_calls() -> None:
    y = endless()(1.0)
    started = time.monotonic()
    with wf.Session() as session, pytest.raises(errors.DeadlineExceededError):
        session.run(y, options=wf.RunOptions(timeout_in_ms=100))
    assert time.monotonic() - started < 10


def test_closing_a_session_reaches_into_kept_calls() -> None:
    y = endless()(1.0)
    session = wf.Session()
    raised: list[BaseException] = []

    def work() -> None:
        try:
            session.run(y)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    wait_until(lambda: any(t.name == "weft-deep-calls" for t in threading.enumerate()))
    session.close()
    thread.join(20)
    assert not thread.is_alive()
    assert isinstance(raised[0], errors.CancelledError)


def test_many_threads_share_a_kept_body() -> None:
    x = wf.placeholder(wf.float64, [3])
    y = kept(lambda x: wf.cumsum(wf.sin(x) * x))(x)
    wanted: dict[int, Any] = {}
    with wf.Session() as session:
        call = session.make_callable(y, [x])

        def work(k: int) -> None:
            wanted[k] = all(
                np.allclose(call(np.full(3, k + i)), np.cumsum(np.full(3, np.sin(k + i) * (k + i))))
                for i in range(50)
            )

        threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(wanted[k] for k in range(6))


def test_the_stack_of_the_caller_may_be_deep() -> None:
    y = fibonacci()(6)
    with wf.Session() as session:

        def deep(n: int) -> Any:
            return session.run(y) if not n else deep(n - 1)

        assert deep(sys.getrecursionlimit() - 250) == 8

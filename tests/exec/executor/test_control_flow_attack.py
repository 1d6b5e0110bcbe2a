"""Loops and conditionals where their execution is likely to go wrong."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import weft as wf
from weft import errors
from weft_graph.control_flow.tensor_array import TensorArray

WAYS = [(kind, level) for kind in ("", "READY_QUEUE") for level in (0, -1)]


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as made:
        yield made


def config(kind: str, level: int) -> Any:
    proto = wf.ConfigProto(inter_op_parallelism_threads=2)
    proto.experimental.executor_type = kind
    proto.graph_options.optimizer_options.opt_level = level
    return proto


@pytest.fixture(params=WAYS, ids=lambda way: f"{way[0] or 'LINE'}{way[1]}")
def session(request: pytest.FixtureRequest) -> Iterator[wf.Session]:
    with wf.Session(config=config(*request.param)) as made:
        yield made


# ---------------------------------------------------------------------------------- effects


def test_one_branch_reads_what_the_other_updates(session: wf.Session) -> None:
    """An update does not wait for a look in a branch that is not taken."""
    p = wf.placeholder(wf.bool, [])
    v = wf.Variable(1.0, use_resource=True)
    session.run(v.initializer)
    y = wf.cond(p, lambda: v.assign_add(1.0) + 0.0, lambda: v * 2.0)
    assert session.run(y, {p: False}) == 2
    assert session.run(y, {p: True}) == 2
    assert session.run(y, {p: False}) == 4


def test_both_branches_update_one_variable(session: wf.Session) -> None:
    p = wf.placeholder(wf.bool, [])
    v = wf.Variable(1.0, use_resource=True)
    session.run(v.initializer)
    done = wf.cond(p, lambda: wf.group(v.assign_add(1.0)), lambda: wf.group(v.assign_add(10.0)))
    with wf.control_dependencies([done]):
        y = v.read_value()
    assert session.run(y, {p: True}) == 2
    assert session.run(y, {p: False}) == 12


@pytest.mark.parametrize("resource", [False, True])
def test_both_branches_read_and_update_one_variable(session: wf.Session, resource: bool) -> None:
    p = wf.placeholder(wf.bool, [])
    v = wf.Variable(1.0, use_resource=resource)
    session.run(v.initializer)

    def more(amount: float) -> Any:
        return wf.group(v.assign(v.read_value() + amount))

    done = wf.cond(p, lambda: more(1.0), lambda: more(10.0))
    with wf.control_dependencies([done]):
        y = wf.identity(v.read_value())
    assert session.run(y, {p: True}) == 2
    assert session.run(y, {p: False}) == 12


def test_an_update_outside_of_branches_that_look(session: wf.Session) -> None:
    p = wf.placeholder(wf.bool, [])
    v = wf.Variable(1.0, use_resource=True)
    session.run(v.initializer)
    y = wf.cond(p, lambda: v * 2.0, lambda: wf.constant(0.0))
    bump = v.assign_add(1.0)
    assert session.run([y, bump], {p: False})[1] == 2
    assert session.run([y, bump], {p: True}) == [4, 3]


def test_the_result_of_an_update_is_used_in_a_branch_and_outside(session: wf.Session) -> None:
    p = wf.placeholder(wf.bool, [])
    v = wf.Variable(1.0, use_resource=True)
    session.run(v.initializer)
    bump = v.assign_add(1.0)

    def then() -> Any:
        with wf.control_dependencies([bump]):
            return wf.constant(5.0)

    y = wf.cond(p, then, lambda: wf.constant(6.0))
    with wf.control_dependencies([y, bump]):
        z = v.read_value()
    assert session.run([y, z], {p: True}) == [5, 2]
    assert session.run([y, z], {p: False}) == [6, 3]


# ---------------------------------------------------------------------------------- building


def test_true_fn_is_called_first() -> None:
    """Nodes and variables created in branches have the same names as in TensorFlow."""
    called = []
    wf.cond(
        wf.placeholder(wf.bool, []),
        lambda: called.append("true") or wf.constant(1),
        lambda: called.append("false") or wf.constant(2),
    )
    assert called == ["true", "false"]


def test_a_loop_colocated_with_a_node(session: wf.Session) -> None:
    x = wf.placeholder(wf.float64, [])
    z = wf.sqrt(x)
    with wf.colocate_with(z):
        y = wf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * x), [0, x])[1]
    assert session.run(y, {x: 2.0}) == 16


def test_branches_return_one_tensor_array() -> None:
    """Arrays that branches make have handles of their own, and only one can be the result."""

    def made(value: float) -> TensorArray:
        return TensorArray(wf.float64, size=1).write(0, wf.constant(value, wf.float64))

    with pytest.raises(errors.InvalidArgumentError, match="TensorArray"):
        wf.cond(wf.placeholder(wf.bool, []), lambda: made(1.0), lambda: made(2.0))


def test_a_body_returns_the_tensor_array_it_was_given() -> None:
    def body(i: Any, _: Any) -> Any:
        other = TensorArray(wf.float64, size=1)
        return i + 1, other.write(0, wf.constant(5.0, wf.float64))

    with pytest.raises(errors.InvalidArgumentError, match="TensorArray"):
        wf.while_loop(lambda i, _: i < 2, body, [0, TensorArray(wf.float64, size=1)])


def test_branches_that_are_tensors() -> None:
    x = wf.constant(1.0)
    with pytest.raises(TypeError, match="true_fn to be callable"):
        wf.cond(wf.placeholder(wf.bool, []), x, x)


def test_parallel_iterations_of_numpy(session: wf.Session) -> None:
    loop = wf.while_loop(lambda i: i < 3, lambda i: i + 1, [0], parallel_iterations=np.int64(4))
    assert session.run(loop) == 3


# ------------------------------------------------------------------------- feeding and freezing


def test_a_value_inside_of_a_loop_is_not_fed(session: wf.Session) -> None:
    x, inside = wf.placeholder(wf.float64, []), []

    def body(i: Any, a: Any) -> Any:
        inside.append(a * x)
        return i + 1, inside[0]

    y = wf.while_loop(lambda i, _: i < 3, body, [0, x])[1]
    with pytest.raises(errors.InvalidArgumentError, match="inside the loop"):
        session.run(y, {x: 2.0, inside[0]: 1.0})


def test_freezing_variables_that_loops_and_branches_use(session: wf.Session) -> None:
    x = wf.placeholder(wf.float64, [], name="x")
    p = wf.placeholder(wf.bool, [], name="p")
    v = wf.get_variable("v", initializer=np.float64(1.5), use_resource=True)
    w = wf.get_variable("w", initializer=np.float64(0.5), use_resource=False)

    def body(i: Any, a: Any) -> Any:
        return i + 1, a * v + wf.cond(p, lambda: w * x, lambda: v * 1.0)

    y = wf.while_loop(lambda i, _: i < 3, body, [0, x])[1]
    wf.identity(y, name="y")
    session.run(wf.global_variables_initializer())
    graph_def = wf.get_default_graph().as_graph_def()
    frozen = wf.graph_util.convert_variables_to_constants(session, graph_def, ["y"])
    with wf.Graph().as_default(), wf.Session() as other:
        feeds = wf.import_graph_def(frozen, name="", return_elements=["x:0", "p:0", "y:0"])
        assert other.run(feeds[2], {feeds[0]: 2.0, feeds[1]: True}) == 11.5
        assert other.run(feeds[2], {feeds[0]: 2.0, feeds[1]: False}) == 13.875


def test_a_loop_imported_into_a_body(session: wf.Session) -> None:
    with wf.Graph().as_default() as inner:
        a = wf.placeholder(wf.float64, [], name="a")
        b = wf.while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, v * a), [0, a])[1]
        graph_def = inner.as_graph_def()

    def imported(value: Any) -> Any:
        (found,) = wf.import_graph_def(
            graph_def, {"a:0": value}, return_elements=[b.name], name="imported"
        )
        found.set_shape([])
        return found

    x, p = wf.placeholder(wf.float64, []), wf.placeholder(wf.bool, [])
    y = wf.while_loop(lambda i, _: i < 2, lambda i, v: (i + 1, imported(v) * 0.5), [0, x])[1]
    z = wf.cond(p, lambda: imported(x), lambda: x)
    assert session.run([y, z], {x: 2.0, p: True}) == [2048, 16]
    assert session.run(z, {x: 2.0, p: False}) == 2


# ------------------------------------------------------------------------ structures of results


def _loop(start: Any, body: Any, **options: Any) -> Any:
    return wf.while_loop(lambda first, *_: wf.less(_count(first), 3), body, start, **options)


def _count(first: Any) -> Any:
    return first[0] if isinstance(first, list | tuple) else first


def test_structures_of_results(session: wf.Session) -> None:
    """A variable is taken out of its list if it is the only value; the list is the body's."""
    x = wf.constant(2.0)
    for start, body, options, expected in (
        ([0], lambda i: i + 1, {}, 3),
        ([[0]], lambda v: [[v[0] + 1]], {}, [3]),
        ([[0, x]], lambda v: [[v[0] + 1, v[1]]], {}, [[3, 2.0]]),
        ([0, x], lambda i, a: (i + 1, a), {}, (3, 2.0)),
        ((0, x), lambda i, a: [i + 1, a], {}, [3, 2.0]),
        ((0,), lambda i: i + 1, {"return_same_structure": True}, [3]),
    ):
        found = _loop(start, body, **options)
        got = session.run(found)
        assert got == expected and type(found) is type(expected if _nested(expected) else found)
    for value, kind in ((lambda: [x], list), (lambda: (x,), tuple)):
        found = wf.switch_case(wf.constant(0), [value, value])
        assert type(found) is kind and session.run(found) == kind([2.0])


def _nested(value: Any) -> bool:
    return isinstance(value, list | tuple)


# ------------------------------------------------------------------------------ bad functions


def _fails(*_: Any) -> Any:
    _ = wf.constant(1.0) * 2.0
    raise KeyError("mine")


def test_functions_that_raise_leave_the_graph_usable(session: wf.Session, graph: wf.Graph) -> None:
    p, x = wf.placeholder(wf.bool, []), wf.placeholder(wf.float64, [])
    attempts: list[Callable[[], Any]] = [
        lambda: wf.cond(p, _fails, lambda: x),
        lambda: wf.cond(p, lambda: x, _fails),
        lambda: wf.while_loop(_fails, lambda i, a: (i, a), [0, x]),
        lambda: wf.while_loop(lambda i, _: i < 3, _fails, [0, x]),
        lambda: wf.while_loop(
            lambda i, _: i < 3, lambda i, a: (i + 1, wf.cond(p, _fails, lambda: a)), [0, x]
        ),
        lambda: wf.case([(p, _fails)], default=lambda: x),
    ]
    for attempt in attempts:
        with pytest.raises(KeyError, match="mine"):
            attempt()
        graph.check_integrity()
        z = x * 2.0
        assert not z.op.control_inputs and graph.scopes.context is None
        assert session.run(z, {x: 1.5}) == 3
    y = wf.cond(p, lambda: x * 3.0, lambda: x)
    loop = wf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, a * y), [0, x])[1]
    got = session.run([loop, *wf.gradients(loop, x)], {p: True, x: 2.0})
    assert got == [432, 864]


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (lambda i, a: (i + 1,), "structure"),
        (lambda i, a: (i + 1, a, a), "structure"),
        (lambda i, a: None, "structure"),
        (lambda i, a: (i + 1, [a]), "structure"),
        (lambda i, a: (i + 1, wf.cast(a, wf.float32)), "is float64, but body returns float32"),
        (lambda i, a: (i + 1, wf.stack([a, a])), "enters the loop with shape"),
        (lambda i, a: (i + 1, wf.placeholder(wf.float64)), "enters the loop with shape"),
    ],
)
def test_bodies_that_do_not_fit(graph: wf.Graph, body: Any, wanted: str) -> None:
    x = wf.placeholder(wf.float64, [])
    with pytest.raises(errors.InvalidArgumentError, match=wanted):
        wf.while_loop(lambda i, _: i < 3, body, [0, x])
    graph.check_integrity()


# ------------------------------------------------------------------------------- depth and size


@pytest.mark.parametrize("kind", WAYS, ids=str)
def test_fifty_conds_deep(kind: tuple[str, int]) -> None:
    x = wf.placeholder(wf.float64, [])

    def level(depth: int, value: Any) -> Any:
        if depth == 0:
            return value * x
        return wf.cond(value < 50.0, lambda: level(depth - 1, value + 1.0), lambda: value - x)

    y = level(50, x)
    g = wf.gradients(y, x)[0]
    with wf.Session(config=config(*kind)) as session:
        assert session.run([y, g], {x: 0.0}) == [0, 50]
        assert session.run([y, g], {x: 10.5}) == [40, 0]


@pytest.mark.parametrize("kind", WAYS, ids=str)
def test_eight_loops_deep(kind: tuple[str, int]) -> None:
    x = wf.placeholder(wf.float64, [])

    def level(depth: int, value: Any) -> Any:
        if depth == 0:
            return value * x
        return wf.while_loop(
            lambda i, _: i < 2, lambda i, a: (i + 1, level(depth - 1, a)), [0, value]
        )[1]

    y = level(8, x)
    g = wf.gradients(y, x)[0]
    with wf.Session(config=config(*kind)) as session:
        assert session.run([y, g], {x: 1.0}) == [1, 257]


@pytest.mark.parametrize("kind", ["sequence", "parallel", "loops"])
@pytest.mark.parametrize("executor", ["", "READY_QUEUE"])
def test_planning_is_near_linear(kind: str, executor: str) -> None:
    """Five times the conditionals take five times the calls, where a quadratic pass takes 25."""
    assert calls_to_plan(kind, executor, 50) < 8 * calls_to_plan(kind, executor, 10)


def calls_to_plan(kind: str, executor: str, count: int) -> int:
    """Return the numbers of calls to build the gradient and for the first run."""
    calls = 0

    def counted(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    with wf.Graph().as_default(), wf.Session(config=config(executor, 0)) as session:
        p, x = wf.placeholder(wf.bool, []), wf.placeholder(wf.float64, [])
        session.run(x, {x: 1.0})
        sys.setprofile(counted)
        try:
            y = x
            for _ in range(count):
                y = _more(kind, p, x, y)
            session.run(wf.gradients(y, x)[0], {x: 0.5, p: True})
        finally:
            sys.setprofile(None)
    return calls


def _more(kind: str, p: Any, x: Any, y: Any) -> Any:
    if kind == "sequence":
        return wf.cond(p, lambda: y + 1.0, lambda: y * 0.5)
    if kind == "parallel":
        return y + wf.cond(p, lambda: x + 1.0, lambda: x * 0.5)
    return wf.while_loop(lambda i, _: i < 2, lambda i, a: (i + 1, wf.sin(a)), [0, y])[1]


# -------------------------------------------------------------------------------- many threads


def test_threads_build_loops_in_one_graph(session: wf.Session, graph: wf.Graph) -> None:
    x = wf.placeholder(wf.float64, [])
    made: dict[int, Any] = {}
    ready = threading.Barrier(4)

    def work(number: int) -> None:
        def body(i: Any, a: Any) -> Any:
            ready.wait(60)
            return i + 1, wf.cond(i < number, lambda: a * x, lambda: a + number)

        with graph.as_default():
            y = wf.while_loop(lambda i, _: i < 3, body, [0, x], name=f"loop_{number}")[1]
            made[number] = y, wf.gradients(y, x)[0]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    graph.check_integrity()
    for number in range(4):
        value, slope = 1.5, 1.0
        for i in range(3):
            if i < number:
                value, slope = value * 1.5, slope * 1.5 + value
            else:
                value += number
        assert session.run(made[number], {x: 1.5}) == (value, slope)


# ----------------------------------------------------------------------------------- memory


def test_nothing_grows_from_run_to_run(session: wf.Session) -> None:
    """Stacks, iterations and errors of steps are gone after them, also of those that fail."""
    x = wf.placeholder(wf.float64, [])

    def body(i: Any, a: Any) -> Any:
        b = wf.cond(wf.equal(i % 2, 0), lambda: a * x, lambda: wf.sin(a) + x)
        c = wf.while_loop(lambda j, _: j < i, lambda j, c: (j + 1, c * 1.1), [0, b])[1]
        return i + 1, wf.check_numerics(c, "body")

    y = wf.while_loop(lambda i, _: i < 4, body, [0, x])[1]
    g = wf.gradients(y, x)[0]

    def runs(count: int) -> int:
        for _ in range(count):
            session.run([y, g], {x: 1.1})
            with pytest.raises(errors.InvalidArgumentError):
                session.run([y, g], {x: np.nan})
        gc.collect()
        return len(gc.get_objects())

    counts = [runs(20) for _ in range(6)]  # other threads may make objects, but not in each round
    assert min(after - before for before, after in pairwise(counts)) < 10


# ------------------------------------------------------------------------- programs by chance

Statements = Any


def expressions() -> st.SearchStrategy[Any]:
    """Return a random expression of variables, the innermost counter and constants, mod 101."""
    leaf = st.one_of(
        st.tuples(st.just("variable"), st.integers(0, 1)),
        st.just(("counter",)),
        st.tuples(st.just("constant"), st.integers(0, 9)),
    )
    pairs = st.tuples(st.sampled_from(["add", "multiply"]), leaf, leaf)
    return st.one_of(leaf, pairs)


def statements() -> st.SearchStrategy[Statements]:
    simple = st.tuples(st.just("assign"), st.integers(0, 1), expressions())

    def more(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        block = st.lists(inner, min_size=1, max_size=3)
        return st.one_of(
            st.tuples(st.just("if"), expressions(), block, st.just([])),
            st.tuples(st.just("if"), expressions(), block, block),
            st.tuples(st.just("for"), st.integers(0, 3), st.sampled_from([1, 4]), block),
        )

    return st.lists(st.recursive(simple, more, max_leaves=8), min_size=1, max_size=3)


def evaluate(expression: Any, variables: list[int], counter: int) -> int:
    kind = expression[0]
    if kind == "variable":
        return variables[expression[1]]
    if kind == "counter":
        return counter
    if kind == "constant":
        return int(expression[1])
    left, right = [evaluate(part, variables, counter) for part in expression[1:]]
    return (left + right if kind == "add" else left * right) % 101


def interpret(program: Statements, variables: list[int], counter: int) -> None:
    for statement in program:
        if statement[0] == "assign":
            variables[statement[1]] = evaluate(statement[2], variables, counter)
        elif statement[0] == "if":
            even = evaluate(statement[1], variables, counter) % 2 == 0
            interpret(statement[2] if even else statement[3], variables, counter)
        else:
            for number in range(statement[1]):
                interpret(statement[3], variables, number)


class Compiler:
    """Statements as nodes, each waiting for the one before it."""

    def __init__(self, variables: list[Any]) -> None:
        self.variables = variables

    def value(self, expression: Any, counter: Any) -> Any:
        kind = expression[0]
        if kind == "variable":
            return self.variables[expression[1]].read_value()
        if kind == "counter":
            return counter
        if kind == "constant":
            return wf.constant(expression[1])
        left, right = [self.value(part, counter) for part in expression[1:]]
        return (left + right if kind == "add" else left * right) % 101

    def block(self, program: Statements, after: Any, counter: Any) -> Any:
        """The node that ends the last statement."""
        for statement in program:
            with wf.control_dependencies([] if after is None else [after]):
                after = getattr(self, "do_" + statement[0])(statement, after, counter)
        return after

    def do_assign(self, statement: Any, after: Any, counter: Any) -> Any:
        return self.variables[statement[1]].assign(self.value(statement[2], counter)).op

    def do_if(self, statement: Any, after: Any, counter: Any) -> Any:
        even = wf.equal(self.value(statement[1], counter) % 2, 0)

        def branch(program: Statements) -> Any:
            last = self.block(program, None, counter)
            with wf.control_dependencies([] if last is None else [last]):
                return wf.constant(1)

        with wf.control_dependencies([even]):
            return wf.cond(even, lambda: branch(statement[2]), lambda: branch(statement[3]))

    def do_for(self, statement: Any, after: Any, counter: Any) -> Any:
        def body(number: Any) -> Any:
            with wf.control_dependencies([number]):
                now = wf.identity(number)
            with wf.control_dependencies([self.block(statement[3], now, number)]):
                return number + 1

        return wf.while_loop(
            lambda number: number < statement[1],
            body,
            [wf.identity(wf.constant(0))],
            parallel_iterations=statement[2],
        )


def check_program(program: Statements, resources: tuple[bool, bool]) -> None:
    with wf.Graph().as_default() as graph:
        counter = wf.placeholder(wf.int32, [])
        variables = [
            wf.get_variable(f"v{k}", initializer=k + 1, use_resource=resource)
            for k, resource in enumerate(resources)
        ]
        last = Compiler(variables).block(program, None, counter)
        with wf.control_dependencies([last]):
            results = [wf.identity(v.read_value()) for v in variables]
        initializer = wf.global_variables_initializer()
        for kind, level in WAYS:
            with wf.Session(graph=graph, config=config(kind, level)) as session:
                session.run(initializer)
                expected = [1, 2]
                for number in (0, 3):
                    interpret(program, expected, number)
                    assert session.run(results, {counter: number}) == expected


@given(statements(), st.tuples(st.booleans(), st.booleans()))
@settings(max_examples=40)
def test_effects_happen_as_in_python(program: Statements, resources: tuple[bool, bool]) -> None:
    check_program(program, resources)


@pytest.mark.long
@given(statements(), st.tuples(st.booleans(), st.booleans()))
@settings(max_examples=2000)
def test_many_effects_happen_as_in_python(
    program: Statements, resources: tuple[bool, bool]
) -> None:
    check_program(program, resources)

"""Loops inside of compiled loops, and the gradients of both: values on stacks of stacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pytest
from weft_testing.both_ways import loops_that_ran

import weft as wf
from weft import errors
from weft_compiler.lower import loop_support, whole_loop
from weft_exec.executor.native import loops as native_loops
from weft_graph.ops import stack as stacks

Feeds = dict[str, Any]
Build = Callable[[dict[str, Any]], Any]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The loops that ran compiled, each time that they did."""
    found = loops_that_ran(monkeypatch)
    monkeypatch.setattr(native_loops, "_ROOM", 4)
    yield found


def _places(dtype: Any = wf.float64) -> dict[str, Any]:
    return {
        "x": wf.placeholder(dtype, [5, 3], "x"),
        "w": wf.placeholder(dtype, [3], "w"),
        "counts": wf.placeholder(wf.int32, [5], "counts"),
        "turns": wf.placeholder(wf.int32, [], "turns"),
    }


def _feeds(counts: Any = (2, 0, 5, 1, 3), turns: int = 4, dtype: Any = np.float64) -> Feeds:
    return {
        "x": np.linspace(-1, 1, 15).reshape(5, 3).astype(dtype),
        "w": np.array([0.4, 1.1, -0.7], dtype),
        "counts": np.array(counts, np.int32),
        "turns": turns,
    }


def _again(count: Any, body: Callable[[Any, Any], Any], start: Any) -> Any:
    return wf.while_loop(lambda j, _: j < count, lambda j, u: (j + 1, body(j, u)), [0, start])[1]


def _varying(p: dict[str, Any]) -> Any:
    """Inner loops with a different trip count each time, which is 0 once."""

    def turn(i: Any, v: Any) -> Any:
        count = wf.gather(p["counts"], i)
        return _again(count, lambda _, u: wf.tanh(u * p["w"]) + wf.sin(v), v)

    return _again(p["turns"], turn, p["x"][0])


def _three_deep(p: dict[str, Any]) -> Any:
    def turn(i: Any, v: Any) -> Any:
        def middle(j: Any, u: Any) -> Any:
            return _again(i + j, lambda _, t: wf.sin(t * p["w"]) * u + v, wf.tanh(u))

        return _again(i, middle, v)

    return _again(p["turns"], turn, p["x"][1])


def _branching(p: dict[str, Any]) -> Any:
    """Loops in one side of a branch, and branches in loops; two loops in one iteration."""

    def turn(i: Any, v: Any) -> Any:
        def inner(j: Any, u: Any) -> Any:
            even = wf.equal(j % 2, 0)
            return wf.cond(even, lambda: wf.sin(u * p["w"]) + v, lambda: wf.cos(u) * u)

        v = wf.cond(i > 1, lambda: _again(i, inner, v), lambda: wf.sin(v) * p["w"])
        return _again(2, lambda _, u: u * wf.tanh(u), v)

    return _again(p["turns"], turn, p["x"][2])


def _products(p: dict[str, Any]) -> Any:
    matrix = wf.matmul(p["x"], p["x"], transpose_a=True)

    def turn(i: Any, v: Any) -> Any:
        return _again(i + 1, lambda _, u: wf.tanh(wf.matmul(u, matrix) * 0.3 + v), v)

    return _again(p["turns"], turn, p["x"])


def _mapped(p: dict[str, Any]) -> Any:
    def element(given: Any) -> Any:
        row, count = given
        return _again(count, lambda _, u: wf.tanh(u * p["w"]) + row, row)

    return wf.map_fn(element, (p["x"], p["counts"]), dtype=p["x"].dtype)


def _scanned(p: dict[str, Any]) -> Any:
    def step(state: Any, row: Any) -> Any:
        def more(u: Any) -> Any:
            return wf.reduce_sum(wf.abs(u)) < 9.0

        last = wf.while_loop(more, lambda u: wf.tanh(u * p["w"]) + u * 1.5 + 0.3, [state + row])
        return last * 0.1

    return wf.scan(step, p["x"])


PROGRAMS: Final[dict[str, Build]] = {
    "varying": _varying,
    "three deep": _three_deep,
    "branching": _branching,
    "products": _products,
    "mapped": _mapped,
    "scanned": _scanned,
}


def _results(
    build: Build, feeds: list[Feeds], said: str, monkeypatch: pytest.MonkeyPatch, **config: Any
) -> list[list[Any]]:
    """Return the results of steps: values and gradients."""
    monkeypatch.setenv("WEFT_JIT", said)
    dtype = wf.as_dtype(feeds[0]["x"].dtype)
    with wf.Graph().as_default(), wf.Session(config=wf.ConfigProto(**config)) as session:
        places = _places(dtype)
        last = build(places)
        fetches = [last, *wf.gradients(wf.sin(last), [places["x"], places["w"]])]
        fetches = [each for each in fetches if each is not None]
        return [
            session.run(fetches, {places[name]: value for name, value in fed.items()})
            for fed in feeds
        ]


def _agree(found: Any, want: Any, near: float) -> None:
    for step, wanted in zip(found, want, strict=True):
        for value, other in zip(step, wanted, strict=True):
            np.testing.assert_allclose(value, other, rtol=near, atol=near)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", PROGRAMS)
def test_nested_loops_and_their_gradients_are_two_compiled_loops(
    name: str, dtype: Any, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    feeds = [
        _feeds(dtype=dtype),
        _feeds((1, 9, 0, 0, 2), 5, dtype),  # more of each than there was room for
        _feeds((0, 0, 0, 0, 0), 2, dtype),
        _feeds((3, 3, 3, 3, 3), 1, dtype),
    ]
    want = _results(PROGRAMS[name], feeds, "off", monkeypatch)
    assert not ran
    found = _results(PROGRAMS[name], feeds, "now", monkeypatch)
    _agree(found, want, 1e-12 if dtype is np.float64 else 2e-4)
    assert len(set(ran)) == 2, ran
    assert len(ran) >= 6  # where nothing was pushed kernels run the gradient


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_of_nested_loops_are_those_of_differences(
    name: str, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_JIT", "now")
    fed = _feeds()
    with wf.Graph().as_default(), wf.Session() as session:
        places = _places()
        total = wf.reduce_sum(wf.sin(PROGRAMS[name](places)))
        slopes = wf.gradients(total, [places["x"], places["w"]])
        run = session.make_callable(total, list(places.values()))
        for key, slope in zip(("x", "w"), slopes, strict=True):
            if slope is None:
                continue
            got = session.run(slope, {places[k]: v for k, v in fed.items()})
            way = np.random.default_rng(3).normal(size=fed[key].shape)
            step = 1e-6
            ends = [
                run(*{**fed, key: fed[key] + sign * step * way}.values()) for sign in (1.0, -1.0)
            ]
            np.testing.assert_allclose((got * way).sum(), (ends[0] - ends[1]) / (2 * step), 1e-5)
    assert len(set(ran)) >= 2


@pytest.mark.parametrize("compiled", ["forward", "backward"])
@pytest.mark.parametrize("name", ["varying", "three deep", "mapped"])
def test_kernels_and_compiled_loops_share_stacks(
    name: str, compiled: str, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    unsupported_reason = loop_support.unsupported_loop_reason

    def half(whole: Any) -> str:
        backward = any(node.type == "StackPopV2" for node in whole.nodes)
        other = backward is (compiled == "forward")
        return "this one runs with kernels" if other else unsupported_reason(whole)

    feeds = [_feeds(), _feeds((3, 1, 1, 0, 6), 5)]
    want = _results(PROGRAMS[name], feeds, "off", monkeypatch)
    monkeypatch.setattr(loop_support, "unsupported_loop_reason", half)
    _agree(_results(PROGRAMS[name], feeds, "now", monkeypatch), want, 1e-12)
    (only,) = set(ran)
    assert ("grad" in only) is (compiled == "backward")


def test_room_for_what_is_pushed_grows_once(
    ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that has found too little room runs once more, and never again for as much."""
    made: list[Any] = []
    lower = whole_loop.lower_loop

    def note(*given: Any) -> Any:
        made.append(given[3])
        return lower(*given)

    monkeypatch.setattr(whole_loop, "lower_loop", note)
    monkeypatch.setattr("weft_compiler.generator.LoopCompiler.find", lambda *_: None)
    monkeypatch.setattr("weft_compiler.sharing.SharedCode.verify_range", lambda *_: None)
    feeds = [_feeds((40, 0, 0, 60, 0))] * 3
    want = _results(_varying, feeds, "off", monkeypatch)
    _agree(_results(_varying, feeds, "now", monkeypatch), want, 1e-10)
    assert len(ran) == 6
    pushed = [[e for e in extents if e.above and len(e.shape) == 1] for extents in made]
    deep = [[e.shape[0] for e in extents] for extents in pushed if extents]
    assert len(deep) == 2, "too little, then enough"
    assert set(deep[0]) == {4}
    assert set(deep[1]) == {128}


def test_jit_check_compares_what_inner_loops_push(
    ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config: Any = {"experimental": wf.ConfigProto.Experimental(jit_check=True)}
    feeds = [_feeds()]
    want = _results(_varying, feeds, "off", monkeypatch)
    _agree(_results(_varying, feeds, "now", monkeypatch, **config), want, 1e-12)
    keep = native_loops.TensorListBuffer.beside

    def wrong(self: Any, outputs: Any) -> Any:
        return [(value + 1.0, own) for value, own in keep(self, outputs)]

    monkeypatch.setattr(native_loops.TensorListBuffer, "beside", wrong)
    with pytest.raises(errors.InternalError, match="StackPushV2 returns"):
        _results(_varying, feeds, "now", monkeypatch, **config)

    def close(self: Any, outputs: Any) -> Any:
        """Values that iterations push are as exact as the largest of them."""
        return [(np.float64(1), np.float64(1)), (np.float64(1.001e-12), np.float64(1e-12))]

    monkeypatch.setattr(native_loops.TensorListBuffer, "beside", close)
    _results(_varying, feeds, "now", monkeypatch, **config)


def test_a_pop_of_what_another_turn_pushed_is_the_error_of_its_kernel(
    ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An inner loop must not pop elements that belong to another iteration."""
    with wf.Graph().as_default():
        extra = wf.placeholder(wf.int32, [])
        outer = stacks.stack_v2(-1, wf.resource)

        def push(i: Any, total: Any) -> Any:
            inner = stacks.stack_v2(-1, wf.float64)

            def more(j: Any, t: Any) -> Any:
                return j + 1, t + stacks.stack_push_v2(inner, t + 1.0)

            last = wf.while_loop(lambda j, _: j < 3, more, [0, total])[1]
            with wf.control_dependencies([stacks.stack_push_v2(outer, inner)]):
                return i + 1, wf.identity(last)

        def pop(i: Any, total: Any) -> Any:
            inner = stacks.stack_pop_v2(outer, wf.resource)

            def more(j: Any, t: Any) -> Any:
                value = stacks.stack_pop_v2(inner, wf.float64)
                value.set_shape([])
                with wf.control_dependencies([value]):
                    return j + 1, t * 0.5 + value

            count = 3 + extra * wf.cast(wf.equal(i, 0), wf.int32)  # others lie below
            return i + 1, wf.while_loop(lambda j, _: j < count, more, [0, total])[1]

        zero = wf.constant(0.0, wf.float64)
        pushed = wf.while_loop(lambda i, _: i < 4, push, [0, zero])[1]
        with wf.control_dependencies([pushed]):
            start = wf.identity(zero)
        popped = wf.while_loop(lambda i, _: i < 4, pop, [0, start])[1]
        found = []
        for said in ("off", "now"):
            monkeypatch.setenv("WEFT_JIT", said)
            with wf.Session() as session:
                found.append(session.run([pushed, popped], {extra: 0}))
                with pytest.raises(errors.InvalidArgumentError, match="is empty"):
                    session.run(popped, {extra: 1})
        assert found[1] == found[0]
        assert len(set(ran)) == 2


def test_loops_inside_of_one_that_stays_with_kernels_are_compiled(
    ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outer loop is rejected during compilation, since its shapes change."""

    def build(p: dict[str, Any]) -> Any:
        def turn(i: Any, v: Any) -> Any:
            v = _again(i, lambda _, u: wf.tanh(u * p["w"]) + u, v)
            return i + 1, wf.concat([v, v[:1]], 0)

        shapes = [wf.TensorShape([]), wf.TensorShape([None, 3])]
        start = [0, p["x"]]
        last = wf.while_loop(lambda i, _: i < p["turns"], turn, start, shapes)[1]
        return wf.reduce_sum(last, 0)

    feeds = [_feeds()] * 3
    want = _results(build, feeds, "off", monkeypatch)
    _agree(_results(build, feeds, "now", monkeypatch), want, 1e-12)
    assert any("grad" not in name for name in ran)
    assert all(name.count("while") > 2 for name in ran), ran  # while/while/while_context


def test_explain_says_why_a_loop_is_no_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_JIT", "on")
    with wf.Graph().as_default(), wf.Session() as session:
        places = _places()
        nested = wf.gradients(_varying(places), [places["w"]])
        report = session.explain(nested, list(places.values()))
        assert len(report.compiled) >= 2
        assert not report.loop_rejections

        def turn(i: Any, v: Any) -> Any:
            kept = wf.unique(wf.cast(v, wf.int32))[0]
            return i + 1, v + wf.cast(wf.size(kept), v.dtype)

        last = wf.while_loop(lambda i, _: i < 3, turn, [0, places["w"]])[1]
        report = session.explain(last, [places["w"]])
    (why,) = report.loop_rejections.values()
    assert "Unique" in why
    assert f"no whole loop: {next(iter(report.loop_rejections))}: {why}" in str(report)

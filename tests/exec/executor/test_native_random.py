"""Random ops in compiled regions: the numbers of their kernels, and the same course of streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft_compiler.generator import RegionCompiler
from weft_graph.ir.code_generators import RegionRequest

ULPS = {"float32": 16, "float64": 16}
"""How far normal numbers may be apart, in units in the last place of the largest of a pair."""


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The types of the nodes that are compiled."""
    found: list[str] = []
    generate = RegionCompiler.generate

    def note(self: Any, request: RegionRequest, *like: Any) -> Any:
        found.extend([node.type for node in request.members])
        return generate(self, request, *like)

    monkeypatch.setattr(RegionCompiler, "generate", note)
    with wf.Graph().as_default():
        yield found


def both_ways(monkeypatch: pytest.MonkeyPatch, run: Callable[[wf.Session], Any]) -> list[Any]:
    """Return the results of sessions by kernels, and compiled."""
    found = []
    for said in ("off", "now"):
        monkeypatch.setenv("WEFT_JIT", said)
        with wf.Session() as session:
            found.append(run(session))
    return found


def agrees(value: Any, want: Any) -> None:
    """Integers and uniform numbers have the same bits, others nearly so."""
    value, want = np.asarray(value), np.asarray(want)
    assert (value.dtype, value.shape) == (want.dtype, want.shape)
    if value.dtype.name not in ULPS:
        np.testing.assert_array_equal(value, want)
    else:
        near = ULPS[value.dtype.name] * np.finfo(value.dtype).eps
        np.testing.assert_allclose(value, want, rtol=near, atol=near)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("op", ["random_uniform", "random_normal", "truncated_normal"])
def test_numbers_are_those_of_kernels(
    op: str, dtype: str, members: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = getattr(wf, op)
    shapes: list[list[int]] = [[], [1], [7], [0, 2], [33, 31]]
    drawn = [-draw(shape, dtype=wf.as_dtype(dtype), seed=5) for shape in shapes]

    by_kernels, compiled = both_ways(monkeypatch, lambda s: [s.run(drawn) for _ in range(3)])

    assert sum(name.startswith(("Random", "Truncated")) for name in members) == len(shapes)
    for values, wanted in zip(compiled, by_kernels, strict=True):
        for value, want in zip(values, wanted, strict=True):
            if op == "random_uniform":
                np.testing.assert_array_equal(value, want)
            agrees(value, want)
    assert not np.array_equal(compiled[0][-1], compiled[1][-1])


@pytest.mark.parametrize("dtype", [wf.int32, wf.int64])
def test_integers_are_those_of_kernels(
    dtype: Any, members: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    low, high = wf.placeholder(dtype, []), wf.placeholder(dtype, [])
    wide = wf.random_uniform([9, 7], dtype.min, dtype.max, dtype, seed=1) * 2
    given = wf.random_uniform([9, 7], low, high, dtype, seed=1) + 1
    feeds = {low: -5, high: 12}

    by_kernels, compiled = both_ways(monkeypatch, lambda s: s.run([wide, given], feeds))

    assert members.count("RandomUniformInt") == 2
    np.testing.assert_array_equal(compiled, by_kernels)
    with wf.Session() as session, pytest.raises(errors.InvalidArgumentError, match="5 and 5") as e:
        session.run(given, {low: 5, high: 5})
    assert e.value.op.type == "RandomUniformInt"


def test_stateless_numbers(members: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seed = wf.placeholder(wf.int64, [2])
    functions = (
        wf.random.stateless_uniform,
        wf.random.stateless_normal,
        wf.random.stateless_truncated_normal,
    )
    drawn = [-function([50, 3], seed) for function in functions]
    drawn.append(wf.random.stateless_uniform([50], seed, 0, 100, wf.int64) + 1)

    by_kernels, compiled = both_ways(monkeypatch, lambda s: s.run(drawn, {seed: [3, -4]}))

    assert sum(name.startswith("Stateless") for name in members) == 4
    for value, want in zip(compiled, by_kernels, strict=True):
        agrees(value, want)


def test_dropout_cuts_no_region(members: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    x = wf.placeholder(wf.float64, [None, 50])
    y = wf.nn.dropout(wf.tanh(x), rate=0.25, seed=3)
    gradient = wf.gradients(wf.reduce_sum(wf.sin(y)), x)[0]
    batch = np.linspace(-1, 1, 200).reshape(4, 50)

    by_kernels, compiled = both_ways(
        monkeypatch, lambda s: [s.run([y, gradient], {x: batch}) for _ in range(3)]
    )

    assert members.count("RandomUniform") == 1
    assert {"Tanh", "TanhGrad"} <= set(members)
    for values, wanted in zip(compiled, by_kernels, strict=True):
        for value, want in zip(values, wanted, strict=True):
            np.testing.assert_array_equal(value == 0, want == 0)
            np.testing.assert_allclose(value, want, rtol=1e-12)


def test_each_turn_of_a_loop_has_its_own_numbers(
    members: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(i: Any, total: Any) -> Any:
        return i + 1, total * 0.5 + wf.random_uniform([3], dtype=wf.float64, seed=7) * 2.0

    start = wf.placeholder(wf.float64, [3])
    total = wf.while_loop(lambda i, _: i < 5, body, [0, start])[1]

    by_kernels, compiled = both_ways(
        monkeypatch, lambda s: [s.run(total, {start: [0, 0, 0]}) for _ in range(2)]
    )

    np.testing.assert_allclose(compiled, by_kernels, rtol=1e-12)


def test_streams_go_on_where_a_checkpoint_was(
    members: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Numbers by kernels, a checkpoint, and compiled ones from there."""
    v = wf.Variable(wf.zeros([4], wf.float64))
    drawn = -wf.random_normal([4], dtype=wf.float64) * 2.0 + v  # without seeds: drawn by entropy
    saver = wf.train.Saver(resumable=True)
    monkeypatch.setenv("WEFT_JIT", "off")
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        session.run(drawn)
        path = saver.save(session, str(tmp_path / "model"))
        assert path is not None
        wanted = [session.run(drawn) for _ in range(2)]

    monkeypatch.setenv("WEFT_JIT", "now")
    with wf.Session() as session:
        saver.restore(session, path)
        found = [session.run(drawn) for _ in range(2)]

    assert "RandomStandardNormal" in members
    np.testing.assert_allclose(found, wanted, rtol=1e-13)


def _in_branches(conditions: list[Any], x: Any) -> list[Any]:
    """Build random ops in the branches of some conditionals, and outside."""
    first, second = conditions

    def otherwise() -> Any:
        return wf.cond(
            second,
            lambda: x * wf.random_uniform([3], dtype=wf.float64, seed=2),
            lambda: wf.tanh(x) - wf.random_uniform([2, 3], dtype=wf.float64, seed=3)[1],
        )

    drawn = wf.cond(first, lambda: x + wf.random_uniform([3], dtype=wf.float64, seed=1), otherwise)
    return [drawn, wf.exp(drawn) + wf.random_uniform([], dtype=wf.float64, seed=4)]


def _in_loops(limit: Any, x: Any) -> list[Any]:
    """Build random ops in branches of loops and in nested loops."""

    def innermost(count: Any, value: Any, seed: int) -> Any:
        def turn(k: Any, v: Any) -> Any:
            return k + 1, v * 0.5 + wf.random_uniform([3], dtype=wf.float64, seed=seed)

        return wf.while_loop(lambda k, _: k < count, turn, [wf.constant(0), value])[1]

    def inner(j: Any, v: Any) -> Any:
        return j + 1, innermost(j, v, 5)

    def turn(i: Any, v: Any) -> Any:
        v = wf.cond(
            wf.equal(i % 2, 1),
            lambda: v + wf.random_uniform([3], dtype=wf.float64, seed=6),
            lambda: wf.cond(i > 2, lambda: innermost(i, v, 7), lambda: v * 2.0),
        )
        return i + 1, wf.while_loop(lambda j, _: j < 3, inner, [wf.constant(0), v])[1]

    return [wf.while_loop(lambda i, _: i < limit, turn, [wf.constant(0), x])[1]]


@pytest.mark.parametrize("checked", [False, True])
def test_what_is_not_run_begins_no_execution(
    checked: bool, members: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step continues the streams, so its numbers show which ops have run."""
    config = wf.ConfigProto()
    config.experimental.jit_check = checked
    found = []
    for said in ("off", "now"):
        monkeypatch.setenv("WEFT_JIT", said)
        with wf.Graph().as_default(), wf.Session(config=config) as session:
            fed = [wf.placeholder(wf.bool, []) for _ in range(2)]
            limit, x = wf.placeholder(wf.int32, []), wf.placeholder(wf.float64, [3])
            fetches = [*_in_branches(fed, x), *_in_loops(limit, x)]
            for turns in (0, 1, 4, 0, 5, 2):
                values = [turns % 2 == 0, turns % 4 == 0]
                feed = dict(zip(fed, values, strict=True)) | {limit: turns, x: [0.5, 1.0, -1.0]}
                found.append(session.run(fetches, feed))
            if said == "now":
                report = session.explain(fetches, [*fed, limit, x])
                ops = [op for nodes in report.compiled for _, op in nodes]
                assert ops.count("RandomUniform") == 7
    for value, want in zip(found[6:], found[:6], strict=True):
        for one, other in zip(value, want, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)


def test_a_loop_that_fails_has_drawn_what_its_kernels_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the step that fails the branch with the second op is not reached."""
    found = []
    for said in ("off", "now"):
        monkeypatch.setenv("WEFT_JIT", said)
        with wf.Graph().as_default(), wf.Session() as session:
            divisor, limit = wf.placeholder(wf.int64, []), wf.placeholder(wf.int32, [])

            def turn(i: Any, v: Any, by: Any = divisor) -> Any:
                v = v + wf.random_uniform([], dtype=wf.float64, seed=1)
                v = v + wf.cast(wf.cast(v * 0.0, wf.int64) // by, wf.float64)
                return i + 1, wf.cond(
                    i > 1, lambda: v + wf.random_uniform([], dtype=wf.float64, seed=2), lambda: v
                )

            start = [wf.constant(0), wf.constant(0.0, wf.float64)]
            # One turn after the other: by kernels the counter may be ahead of what fails.
            loop = wf.while_loop(lambda i, _, n=limit: i < n, turn, start, parallel_iterations=1)
            total = loop[1]
            found.append([session.run(total, {divisor: 1, limit: 3})])
            with pytest.raises(errors.InvalidArgumentError, match=r"(?s)zero.*iteration 0"):
                session.run(total, {divisor: 0, limit: 3})
            found[-1].append(session.run(total, {divisor: 1, limit: 1}))
            found[-1].append(session.run(total, {divisor: 1, limit: 4}))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-13)

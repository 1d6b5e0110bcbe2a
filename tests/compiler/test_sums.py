"""Compiled long sums are as exact as those of kernels, even in fused loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from weft_testing.both_ways import Build

import weft as wf
from weft_compiler.interpreter import interpret
from weft_compiler.ir.parser import parse
from weft_compiler.ir.verifier import verify
from weft_compiler.native.program import load
from weft_compiler.passes.pipeline import optimize
from weft_graph.ir.node import Output

LONG = 1_000_000
SHORT = 2e-6
"""Relative error of a sum of equal float32; naive ones of so many are off by up to 0.01."""


def _beside(other: Callable[[Output], Any]) -> Build:
    def build(x: Output) -> Sequence[Output]:
        return [wf.reduce_sum(x * 1), wf.reduce_mean(x * 1) * LONG, wf.stack([other(x * 1)])]

    return build


def _batch_statistics(x: Output) -> Sequence[Output]:
    images = wf.reshape(x * 1, [-1, 10, 10, 2])
    found = wf.nn.fused_batch_norm(images, [1.0, 1.0], [0.0, 0.0])
    return [wf.reduce_max(found[1]) * LONG, wf.reduce_min(found[1]) * LONG]


def _in_a_loop(x: Output) -> Sequence[Output]:
    def body(i: Output, total: Output) -> Sequence[Output]:
        return i + 1, total + wf.reduce_sum(x * wf.cast(i, x.dtype))

    _, total = wf.while_loop(lambda i, _: i < 2, body, [wf.constant(0), wf.constant(0, x.dtype)])
    return [total]


def _bias_gradient(x: Output) -> Sequence[Output]:
    bias = wf.constant([1.0, 2.0])
    rows = wf.nn.bias_add(wf.reshape(x, [-1, 2]) * 1, bias)
    return [wf.reduce_sum(wf.gradients(rows, bias, wf.reshape(x, [-1, 2]))[0])]


def _columns(*shape: int) -> Build:
    def build(x: Output) -> Sequence[Output]:
        columns = wf.reshape(x * 1, [-1, *shape])
        last = columns.shape.rank - 1
        sums = wf.reduce_sum(columns, list(range(last)))
        return [wf.reduce_max(sums) * shape[-1], wf.reduce_min(sums) * shape[-1]]

    return build


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(_beside(wf.identity), id="alone"),
        pytest.param(_beside(wf.cumsum), id="cumsum"),
        pytest.param(_beside(wf.argmax), id="argmax"),
        pytest.param(_beside(wf.reduce_logsumexp), id="logsumexp"),
        pytest.param(_beside(lambda x: wf.reduce_sum(wf.cast(x, wf.int64))), id="integers"),
        pytest.param(_columns(4), id="short rows"),
        pytest.param(_columns(500), id="long rows"),
        pytest.param(_columns(10, 20, 50), id="several axes"),
        pytest.param(
            lambda x: [wf.reduce_sum(wf.reduce_sum(wf.reshape(x * 1, [4, -1]), 1))], id="rows"
        ),
        pytest.param(lambda x: [2 * wf.nn.l2_loss(wf.sqrt(x))], id="loss"),
        pytest.param(lambda x: [wf.norm(wf.sqrt(x)) ** 2], id="norm"),
        pytest.param(lambda x: [wf.exp(wf.reduce_logsumexp(wf.log(x)))], id="exponentials"),
        pytest.param(lambda x: [wf.nn.moments(x * 1, [0])[0] * LONG], id="moments"),
        pytest.param(_batch_statistics, id="batch norm"),
        pytest.param(_bias_gradient, id="bias"),
        pytest.param(_in_a_loop, id="loop"),
    ],
)
def test_errors_do_not_grow_with_the_length(monkeypatch: pytest.MonkeyPatch, build: Build) -> None:
    _check(monkeypatch, build, "float32", SHORT)


@pytest.mark.parametrize("build", [_beside(wf.identity), _beside(wf.cumsum), _columns(4)])
def test_errors_of_float64_do_not_either(monkeypatch: pytest.MonkeyPatch, build: Build) -> None:
    _check(monkeypatch, build, "float64", 4e-15)


def _check(monkeypatch: pytest.MonkeyPatch, build: Build, dtype: str, limit: float) -> None:
    monkeypatch.setenv("WEFT_JIT", "now")
    x = np.full(LONG, 0.1, dtype)
    want = x.astype(np.longdouble).sum()
    with wf.Graph().as_default(), wf.Session() as session:
        given = wf.placeholder(dtype, [LONG])
        for value in session.run(list(build(given)), {given: x}):
            if np.ndim(value) == 0:
                assert abs(value / want - 1) < limit


def test_narrow_numbers_are_summed_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_JIT", "now")
    with wf.Graph().as_default(), wf.Session() as session:
        for dtype in (wf.float16, wf.bfloat16):
            x = wf.placeholder(dtype, [300_000])
            mean = session.run(
                [wf.reduce_mean(x * 1), wf.cumsum(x)[-1]], {x: np.full(300_000, 0.1)}
            )
            assert mean[0] == np.asarray(0.1).astype(dtype.as_numpy_dtype)


def test_sums_of_several_sizes_share_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_JIT", "now")
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [None])
        for size in (300_000, 300_007, 5, 400_000, 64):
            total, _ = session.run([wf.reduce_sum(x * 1), wf.cumsum(x)], {x: np.full(size, 0.1)})
            assert abs(total / (np.float64(np.float32(0.1)) * size) - 1) < SHORT


PROGRAM = """
program sums(x: float32[300, 5], c: float32[5]) -> (rows: float32[5], all: float32[]):
  for j in 5:
    rows[j] = 0.0
  var s = 0.0
  for i in 300:
    for j in 5:
      rows[j] add= x[i, j]
      s add= x[i, j] * c[j]
  all[] = s
"""


@pytest.mark.parametrize("special", [0.0, np.inf, -np.inf, np.nan])
def test_blocks_compute_what_the_loops_say(special: float) -> None:
    """Compensation, in which an infinity less itself is no number, is left out then."""
    before = parse(PROGRAM)
    after = optimize(before).program
    verify(after)
    assert "_low" in str(after) and str(parse(str(after))) == str(after)
    x = np.random.default_rng(1).standard_normal((300, 5)).astype("f4")
    x[100, 2] = special or x[100, 2]
    c = np.arange(1, 6).astype("f4")
    for values in (interpret(before, x, c), interpret(after, x, c), load(after)(x, c)):
        np.testing.assert_allclose(values[0], x.sum(0), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(values[1], (x * c).sum(), rtol=1e-4, atol=1e-3)

"""Compiled block LSTMs and block GRUs, compared with their kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from weft_testing.both_ways import agree, by_both, compiled_ops, outputs

import weft as wf
from weft_compiler.generator import RegionCompiler
from weft_graph.ir.node import Output
from weft_tensor import errors

SIZES = [
    *[(5, 3, 4, 6)],
    *[
        pytest.param(each, marks=pytest.mark.long)
        for each in ((1, 1, 1, 1), (3, 2, 0, 5), (0, 2, 3, 4), (4, 0, 3, 2), (2, 3, 4, 0))
    ],
    *[pytest.param((7, 16, 9, 33), marks=pytest.mark.long)],
]
"""Steps, batch, inputs and width."""
LIMITS = {"float32": (2e-5, 2e-5), "float64": (1e-12, 1e-12), "float16": (2e-2, 2e-2)}


def numbers(dtype: str, *shapes: tuple[int, ...]) -> list[Any]:
    draw = np.random.default_rng(sum(map(sum, shapes)))
    return [(draw.standard_normal(shape) / 2).astype(dtype) for shape in shapes]


def of_layer(steps: int, batch: int, depth: int, width: int, dtype: str) -> list[Any]:
    row, vector = (batch, width), (width,)
    weights = (depth + width, 4 * width)
    shapes = [(steps, batch, depth), row, row, weights, vector, vector, vector, (4 * width,)]
    return numbers(dtype, *shapes)


def layer(op: str, count: Any, *given: Any, **attrs: Any) -> Sequence[Output]:
    """A layer, and gradients by all that it takes."""
    found = outputs(op, [count, *given], **attrs)
    kept = {"use_peephole": attrs["use_peephole"]}
    name = op.replace("LSTM", "LSTMGrad")
    return [*found, *outputs(name, [count, *given, *found, found[6] * 2, found[1] - 1], **kept)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("op", ["BlockLSTM", "BlockLSTMV2"])
def test_all_steps_and_their_gradients(
    monkeypatch: pytest.MonkeyPatch, op: str, sizes: tuple[int, ...]
) -> None:
    """All of them, and some that only a step knows."""
    made = compiled_ops(monkeypatch)
    for dtype, peephole in (("float32", True), ("float64", False), ("float16", True)):
        arrays = of_layer(*sizes, dtype)
        attrs = {"use_peephole": peephole, "cell_clip": 0.3 * peephole}
        steps = np.array(max(sizes[0] - 2, 0))

        def build(
            count: Output, *given: Output, attrs: Any = attrs, all_of_them: int = sizes[0]
        ) -> Sequence[Output]:
            known = wf.constant(all_of_them, wf.int64)
            return [*layer(op, known, *given, **attrs), *layer(op, count, *given, **attrs)]

        want, got = by_both(monkeypatch, build, steps, *arrays)
        agree(got, want, *LIMITS[dtype])
    assert {op, op.replace("LSTM", "LSTMGrad")} <= made


def test_what_is_no_number_beyond_the_last_step_counts_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arrays = of_layer(4, 2, 3, 5, "float32")
    arrays[0][2:] = np.nan
    arrays[0][1, 0, 0] = np.inf

    def build(count: Output, *given: Output) -> Sequence[Output]:
        known = wf.constant(2, wf.int64)
        return [y for n in (count, known) for y in layer("BlockLSTM", n, *given, use_peephole=True)]

    for count in (2, 1, 0):
        want, got = by_both(monkeypatch, build, np.array(count), *arrays)
        agree(got, want, 2e-5, 2e-5)
    assert not np.isnan(want[0]).all()


@pytest.mark.parametrize("count", [-1, 5])
def test_steps_that_are_not_there(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    said = []
    made = compiled_ops(monkeypatch)
    arrays = of_layer(4, 2, 3, 5, "float32")
    for mode in ("off", "now"):
        monkeypatch.setenv("WEFT_JIT", mode)
        with wf.Graph().as_default(), wf.Session() as session:
            feeds = [wf.placeholder(x.dtype, x.shape) for x in arrays]
            given = [x * 2 for x in feeds]
            n = wf.placeholder(wf.int64, [])
            h = outputs("BlockLSTM", [n, *given], use_peephole=False)[6]
            with pytest.raises(errors.InvalidArgumentError, match="seq_len_max from 0 to 4") as why:
                session.run(h * 2, {n: count, **dict(zip(feeds, arrays, strict=True))})
            said.append(str(why.value))
    assert said[0] == said[1] and "BlockLSTM" in made


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_cells_and_their_gradients(monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...]) -> None:
    made = compiled_ops(monkeypatch)
    _, batch, depth, width = sizes
    for dtype, peephole in (("float32", True), ("float64", False), ("float16", True)):
        x, *arrays = of_layer(1, batch, depth, width, dtype)
        rows = depth + width
        weights = numbers(dtype, (rows, 2 * width), (rows, width), (2 * width,), (width,))

        def build(*given: Output, peephole: bool = peephole) -> Sequence[Output]:
            lstm, gru = given[:8], [given[0], given[2], *given[8:]]
            attrs = {"use_peephole": peephole}
            found = outputs("LSTMBlockCell", lstm, cell_clip=0.4, **attrs)
            back = [*lstm, *found[:6], found[6] * 2, found[1] - 1]
            step = outputs("GRUBlockCell", gru)
            by_gru = outputs("GRUBlockCellGrad", [*gru, *step[:3], step[3] * 3])
            return [*found, *outputs("LSTMBlockCellGrad", back, **attrs), *step, *by_gru]

        want, got = by_both(monkeypatch, build, x[0], *arrays, *weights)
        agree(got, want, *LIMITS[dtype])
    cells = {"LSTMBlockCell", "LSTMBlockCellGrad", "GRUBlockCell", "GRUBlockCellGrad"}
    assert cells <= made


def test_known_weights_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    x, cs, h, *rest = of_layer(5, 3, 4, 40, "float32")

    def build(x: Output, cs: Output, h: Output) -> Sequence[Output]:
        known = [wf.constant(each) for each in rest]
        count = wf.constant(5, wf.int64)
        found = outputs("BlockLSTM", [count, x, cs, h, *known], use_peephole=True)
        return [*found, *outputs("LSTMBlockCell", [x[0], cs, h, *known], use_peephole=True)]

    want, got = by_both(monkeypatch, build, x, cs, h)
    agree(got, want, 2e-5, 2e-5)


def test_sequences_of_many_lengths_share_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second length on, with the gradient too."""
    made = []
    generate = RegionCompiler.generate

    def noted(self: Any, *given: Any, **named: Any) -> Any:
        made.append(generate(self, *given, **named))
        return made[-1]

    monkeypatch.setattr(RegionCompiler, "generate", noted)
    monkeypatch.setenv("WEFT_CACHE", "off")
    _, cs, h, *weights = of_layer(1, 3, 4, 5, "float64")
    found: list[list[Any]] = []
    for mode in ("off", "now"):
        monkeypatch.setenv("WEFT_JIT", mode)
        with wf.Graph().as_default(), wf.Session() as session:
            x = wf.placeholder(wf.float64, [None, 3, 4])
            given = [x, *[wf.constant(each) * 1.0 for each in (cs, h, *weights)]]
            count = wf.cast(wf.shape(x)[0], wf.int64)
            y = outputs("BlockLSTM", [count, *given], use_peephole=True)[6]
            fetches = [y, *wf.gradients(y * 2.0, given[:4])]
            found.append([])
            for steps in (5, 6, 9):
                (sequence,) = numbers("float64", (steps, 3, 4))
                found[-1] += session.run(fetches, {x: sequence})
    agree(found[1], found[0], 1e-11, 1e-11)
    assert [each.is_shape_polymorphic for each in made] == [False, True, True]


@pytest.mark.parametrize("cell", ["LSTMBlockCell", "GRUBlockCell"])
def test_cells_in_a_loop_and_its_gradient(monkeypatch: pytest.MonkeyPatch, cell: str) -> None:
    """The whole loop is one function, forward and backward."""
    x, cs, h, *lstm = of_layer(1, 3, 4, 5, "float64")
    gru = numbers("float64", (9, 10), (9, 5), (10,), (5,))

    def build(x: Output, cs: Output, h: Output, *weights: Output) -> Sequence[Output]:
        def turn(i: Output, cs: Output, h: Output) -> list[Output]:
            if cell == "GRUBlockCell":
                return [i + 1, cs, outputs(cell, [x, h, *weights])[3]]
            found = outputs(cell, [x, cs, h, *weights], use_peephole=True)
            return [i + 1, found[1], found[6]]

        _, cs, h = wf.while_loop(lambda i, *_: i < 4, turn, [wf.constant(0), cs, h])
        gradients = wf.gradients(wf.reduce_sum(h * h), [x, *weights[:2]])
        return [h, *gradients]

    weights = gru if cell == "GRUBlockCell" else lstm
    want, got = by_both(monkeypatch, build, x[0], cs, h, *weights)
    agree(got, want, 1e-11, 1e-11)
    monkeypatch.setenv("WEFT_JIT", "now")
    with wf.Graph().as_default(), wf.Session() as session:
        feeds = [wf.placeholder(each.dtype, each.shape) for each in (x[0], cs, h, *weights)]
        left = {op for op, _ in session.explain(build(*feeds), feeds).left}
    assert not left & {cell, f"{cell}Grad"}, left

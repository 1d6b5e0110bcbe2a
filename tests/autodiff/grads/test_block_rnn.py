"""Gradients of block LSTMs and block gated recurrent units, which two of their outputs have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf

STEPS, BATCH, DEPTH, WIDTH = 4, 2, 3, 2


def inputs_of(op: str) -> dict[str, np.ndarray[Any, Any]]:
    random, rows = np.random.default_rng(0), DEPTH + WIDTH
    layer = op.startswith("BlockLSTM")
    shapes: dict[str, tuple[int, ...]] = {
        "x": (STEPS, BATCH, DEPTH) if layer else (BATCH, DEPTH),
        "h_prev": (BATCH, WIDTH),
    }
    if op == "GRUBlockCell":
        shapes |= {"w_ru": (rows, 2 * WIDTH), "w_c": (rows, WIDTH)}
        shapes |= {"b_ru": (2 * WIDTH,), "b_c": (WIDTH,)}
    else:
        shapes |= {"cs_prev": (BATCH, WIDTH), "w": (rows, 4 * WIDTH), "b": (4 * WIDTH,)}
        shapes |= dict.fromkeys(("wci", "wcf", "wco"), (WIDTH,))
    return {name: random.normal(size=shape) for name, shape in shapes.items()}


def built(op: str, inputs: dict[str, Any], **attrs: Any) -> Any:
    return getattr(wf.raw_ops, op)(**inputs, **attrs)


@pytest.mark.parametrize("flowing", [("cs", "h"), ("h",), ("cs",)])
@pytest.mark.parametrize("peephole", [False, True])
@pytest.mark.parametrize("op", ["LSTMBlockCell", "BlockLSTM", "BlockLSTMV2", "GRUBlockCell"])
def test_gradients_are_those_of_differences(
    op: str, peephole: bool, flowing: tuple[str, ...]
) -> None:
    gru = op == "GRUBlockCell"
    if gru and (peephole or flowing != ("h",)):
        return  # it has neither peepholes nor a second state
    values = inputs_of(op)
    attrs: dict[str, Any] = {} if gru else {"use_peephole": peephole, "cell_clip": -1.0}
    if op.startswith("BlockLSTM"):
        attrs["seq_len_max"] = wf.constant(STEPS - 1, wf.int64)
    feeds = {name: wf.placeholder(wf.float64, value.shape) for name, value in values.items()}
    made = built(op, feeds, **attrs)
    random = np.random.default_rng(1)
    ways = {name: random.normal(size=value.shape) for name, value in values.items()}
    total = wf.add_n(
        [
            wf.reduce_sum(getattr(made, name) * random.normal(size=getattr(made, name).shape))
            for name in flowing
        ]
    )
    slopes = dict(zip(feeds, wf.gradients(total, list(feeds.values())), strict=True))
    with wf.Session() as session:
        for name in values:
            before, after, slope = (
                session.run(
                    what,
                    {feeds[n]: v + (step * ways[n] if n == name else 0) for n, v in values.items()},
                )
                for what, step in ((total, -1e-6), (total, 1e-6), (slopes[name], 0))
            )
            wanted = (after - before) / 2e-6
            np.testing.assert_allclose((slope * ways[name]).sum(), wanted, 1e-6, 1e-8, name)


@pytest.mark.parametrize("op", ["LSTMBlockCell", "BlockLSTM", "GRUBlockCell"])
def test_what_has_no_gradient_is_named(op: str) -> None:
    attrs = {"seq_len_max": wf.constant(STEPS, wf.int64)} if op == "BlockLSTM" else {}
    made = built(op, {k: wf.constant(v) for k, v in inputs_of(op).items()}, **attrs)
    x = made.h.op.inputs[1 if attrs else 0]
    gate = made.u if op == "GRUBlockCell" else made.f
    with pytest.raises(
        LookupError, match=f"{op} has gradients only for its outputs .*h, got one for"
    ):
        wf.gradients([gate, made.h], [x])
    (slope,) = wf.gradients(made.h, [x])
    with pytest.raises(LookupError, match="is not differentiable"):
        wf.gradients(slope, [x])


def test_sizes_that_do_not_fit_are_refused_at_once_or_in_the_run() -> None:
    values = inputs_of("BlockLSTM")
    with pytest.raises(wf.errors.InvalidArgumentError, match="wci, H in"):
        built("BlockLSTM", values | {"wci": np.zeros(3)}, seq_len_max=wf.constant(1, wf.int64))
    with pytest.raises(wf.errors.InvalidArgumentError, match="seq_len_max from 0 to 4, got 5"):
        built("BlockLSTM", values, seq_len_max=wf.constant(5, wf.int64))
    count = wf.placeholder(wf.int64, [])
    weights = wf.placeholder(wf.float64, None)
    made = built("BlockLSTM", values | {"w": weights}, seq_len_max=count)
    with wf.Session() as session:
        with pytest.raises(wf.errors.InvalidArgumentError, match="from 0 to 4, the steps of x"):
            session.run(made.h, {count: -1, weights: values["w"]})
        with pytest.raises(wf.errors.InvalidArgumentError, match=r"do not match: .* w \[4,8\]"):
            session.run(made.h, {count: 1, weights: values["w"][1:]})


def test_graphs_that_hold_them_are_imported_and_run() -> None:
    values = inputs_of("BlockLSTM")
    with wf.Graph().as_default() as graph:
        made = built("BlockLSTM", values, seq_len_max=wf.constant(3, wf.int64))
        (slope,) = wf.gradients(made.h, [made.h.op.inputs[1]])
        names = [made.h.name, slope.name]
        with wf.Session() as session:
            wanted = session.run(names)
    with wf.Graph().as_default() as other:
        wf.import_graph_def(graph.as_graph_def(), name="")
        with wf.Session(graph=other) as session:
            for found, value in zip(session.run(names), wanted, strict=True):
                np.testing.assert_array_equal(found, value)

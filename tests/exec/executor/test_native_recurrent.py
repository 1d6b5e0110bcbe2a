"""Recurrent layers in compiled regions: values are those of the kernel."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_graph.ir.builder import create
from weft_graph.ops.recurrent import GATES, LAYER

STEPS, WIDTH = 5, 19
PLAIN = {"rnn": ["tanh"], "lstm": ["sigmoid", "tanh", "tanh"]}


def layer(
    cell: str, batch: int, backward: list[bool], dtype: Any, *, bias: bool = False, steps: int = 5
) -> dict[str, Any]:
    """The inputs of a layer."""
    random = np.random.default_rng(3)
    count, gates, state = len(backward), GATES[cell] * WIDTH, (len(backward), batch, WIDTH)
    return {
        "rows": random.normal(size=(steps, batch, count * gates)).astype(dtype),
        "weights": (0.3 * random.normal(size=(count, WIDTH, gates))).astype(dtype),
        "bias": random.normal(size=(count, WIDTH) if bias else 0).astype(dtype),
        "lengths": np.zeros(0, np.int32),
        **{f"state{at}": random.normal(size=state).astype(dtype) for at in range(_states(cell))},
    }


def _states(cell: str) -> int:
    return 2 if cell == "lstm" else 1


def answers(
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, Any],
    backward: list[bool],
    cell: str,
    known: bool = True,
    eight_bits: tuple[Any, Any] | None = None,
    modes: Sequence[str] = ("off", "now"),
    **attrs: Any,
) -> tuple[list[Any], list[Any]]:
    """Return the results of the kernel and of compiled code, with constant weights if known."""
    found: dict[str, list[Any]] = {}
    eight_bits = eight_bits or (np.zeros(0, given["rows"].dtype), np.zeros(0, np.int32))
    activations = attrs.pop("activations", PLAIN.get(cell, ["sigmoid", "tanh"]))
    for jit in modes:
        monkeypatch.setenv("WEFT_JIT", jit)
        with wf.Graph().as_default():
            feeds = {wf.placeholder(x.dtype, x.shape): x for x in given.values()}
            inputs = dict(zip(given, feeds, strict=True))
            rows = inputs["rows"] * 2.0
            weights = wf.constant(given["weights"]) if known else inputs["weights"]
            states = [inputs[f"state{at}"] for at in range(_states(cell))]
            own = {"cell": cell, "activations": activations, "backward": backward, **attrs}
            small = [wf.constant(each) for each in eight_bits]
            arguments = [rows, weights, *small, inputs["bias"], inputs["lengths"], states]
            fetches = list(create(LAYER, arguments, own, "layer").outputs)
            with wf.Session() as session:
                found[jit] = session.run(fetches, feeds)
                if jit == "now":
                    assert "layer" in str(session.explain(fetches, list(feeds)).compiled)
    return found.get("off", []), found.get("now", [])


def agree(pair: tuple[list[Any], list[Any]]) -> None:
    for want, got in zip(*pair, strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        bound = 2e-5 if want.dtype == np.float32 else 1e-12
        np.testing.assert_allclose(got, want, rtol=bound, atol=bound)


@pytest.mark.parametrize("cell", GATES)
@pytest.mark.parametrize("backward", [[False], [False, True]], ids=["forward", "both"])
@pytest.mark.parametrize(("batch", "dtype"), [(1, "float32"), (3, "float64")])
@pytest.mark.parametrize("known", [True, False], ids=["known", "given"])
def test_cells(
    cell: str,
    backward: list[bool],
    batch: int,
    dtype: str,
    known: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = layer(cell, batch, backward, dtype, bias=cell == "gru_reset_after" and known)
    agree(answers(monkeypatch, given, backward, cell, known))


@pytest.mark.parametrize("cell", GATES)
@pytest.mark.parametrize("backward", [[False], [True, False]])
def test_sequences_that_end(
    cell: str, backward: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = layer(cell, 4, backward, "float32")
    given["lengths"] = np.int32([STEPS, 0, 2, 4])
    agree(answers(monkeypatch, given, backward, cell))
    given["lengths"] = np.int32([0, 0, 1, 0])
    agree(answers(monkeypatch, given, backward, cell))


def test_lengths_beyond_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward they are as many as there are, and backward they are refused, by the kernel."""
    given = layer("gru", 2, [False], "float32")
    given["lengths"] = np.int32([STEPS + 3, -1])
    agree(answers(monkeypatch, given, [False], "gru"))
    for lengths, mode in itertools.product(([STEPS + 1, 0], [-1, 2]), ("off", "now")):
        given["lengths"] = np.int32(lengths)
        with pytest.raises(wf.errors.InvalidArgumentError, match="lengths of 0 to 5"):
            answers(monkeypatch, given, [True], "gru", modes=[mode])


@pytest.mark.parametrize("sizes", [(0, 2), (5, 0)], ids=["no-steps", "no-sequences"])
def test_nothing_to_do(sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    steps, batch = sizes
    given = layer("lstm", batch, [False, True], "float32", steps=steps)
    agree(answers(monkeypatch, given, [False, True], "lstm"))


def test_other_activations(monkeypatch: pytest.MonkeyPatch) -> None:
    given = layer("lstm", 2, [False], "float64")
    names = ["tanh", "relu", "sigmoid"]
    agree(answers(monkeypatch, given, [False], "lstm", activations=names))
    given = layer("gru", 2, [True], "float64")
    agree(answers(monkeypatch, given, [True], "gru", activations=["relu", "sigmoid"]))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("points", [0, 7], ids=["symmetrical", "not"])
@pytest.mark.parametrize("columns", [1, 4 * WIDTH])
@pytest.mark.parametrize("scale", [1.0, 0.0, np.inf], ids=["some", "zeros", "infinite"])
def test_weights_of_8_bits(
    dtype: str, points: int, columns: int, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    backward = [False, True]
    given = layer("lstm", 2, backward, "float32")
    random, info = np.random.default_rng(4), np.iinfo(dtype)
    shape = given["weights"].shape
    given["weights"] = random.integers(info.min, info.max + 1, shape).astype(dtype)
    given["state0"][0] *= np.float32(scale)
    scales = random.uniform(0.001, 0.01, (2, columns)).astype(np.float32)
    zeros = np.full((2, columns), points + (128 if dtype == "uint8" else 0), np.int32)
    if columns > 1 and points:
        zeros[:] += random.integers(0, 9, zeros.shape, np.int32)
    agree(answers(monkeypatch, given, backward, "lstm", eight_bits=(scales, zeros)))
    given["lengths"] = np.int32([STEPS, 1])
    agree(answers(monkeypatch, given, backward, "lstm", eight_bits=(scales, zeros)))


def test_numbers_that_are_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    for cell in GATES:
        given = layer(cell, 2, [False], "float32")
        given["rows"][2, 1, ::3] = np.nan
        given["rows"][1, 0, ::4] = np.inf
        given["rows"][3, 0, 1::4] = -1e30
        agree(answers(monkeypatch, given, [False], cell))

"""Attention after masks: columns whose shares are zero are left out, and every number stays."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as wf

HEADS, LENGTH, WIDTH = 3, 512, 16
TRIL = np.tril(np.ones((LENGTH, LENGTH), np.float32))

Mask = Callable[[Any], Any]


def _added(mask: Any) -> Mask:
    return lambda scores: scores + wf.constant(np.asarray(mask, np.float32))


def _causal(low: float) -> Any:
    return np.where(TRIL > 0, 0, low)


def _with(value: float, *places: tuple[Any, Any], low: float = -1e9) -> Any:
    mask = _causal(low)
    for place in places:
        mask[place] = value
    return mask


PADDED = np.where(np.arange(LENGTH) < 200, 0, -1e9)[None, None, :]
MASKS: dict[str, Mask] = {
    "added": _added(_causal(-1e9)),
    "infinite": _added(_causal(-np.inf)),
    "the least": _added(_causal(np.finfo(np.float32).min)),
    "of halves": _added(_causal(-1e4)),
    "chosen": lambda scores: wf.where_v2(TRIL > 0, scores, -1e9),
    "multiplied": lambda scores: scores * TRIL - (1 - TRIL) * 1e9,
    "subtracted": lambda scores: scores - (1 - TRIL) * 1e9,
    "computed": (
        lambda scores: scores + (1 - wf.linalg.band_part(wf.ones([LENGTH, LENGTH]), -1, 0)) * -1e9
    ),
    "padded": _added(PADDED),
    "weak": _added(_causal(-30)),
    "nothing": _added(np.zeros((LENGTH, LENGTH))),
    "all masked": _added(np.full((LENGTH, LENGTH), -1e9)),
    "rows masked": _added(_with(-1e9, (slice(40, 60), slice(None)))),
    "halves' rows masked": _added(_with(-1e4, (slice(40, 60), slice(None)), low=-1e4)),
    "rows infinitely masked": _added(_with(-np.inf, (slice(40, 60), slice(None)))),
    "an infinity": _added(_with(np.inf, (7, 3), (300, 400))),
    "no numbers": _added(_with(np.nan, (7, 3), (300, 400))),
}
"""What is done to scores."""


def _step(mask: Mask, heads: int = HEADS) -> tuple[list[Any], dict[str, Any]]:
    q, k, v = (wf.placeholder(wf.float32, [heads, LENGTH, WIDTH]) for _ in range(3))
    weights = wf.placeholder(wf.float32, [heads, LENGTH, WIDTH])
    y = wf.nn.softmax(mask(wf.matmul(q, k, transpose_b=True) * 0.25)) @ v
    loss = wf.reduce_sum(y * weights)
    return [y, *wf.gradients(loss, [q, k, v])], {"q": q, "k": k, "v": v, "weights": weights}


def _inputs(heads: int = HEADS) -> dict[str, Any]:
    random = np.random.default_rng(1)
    return {
        name: random.normal(size=(heads, LENGTH, WIDTH)).astype(np.float32)
        for name in ("q", "k", "v", "weights")
    }


def _both(
    mask: Mask, values: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[list[Any]], str]:
    """Results of kernels and of compiled code for each of some inputs, and its loops."""
    fetches, inputs = _step(mask)
    found: list[list[Any]] = []
    text = ""
    for said in ("off", "now"):
        monkeypatch.setenv("WEFT_JIT", said)
        with wf.Session() as session:
            feeds = [{inputs[name]: x for name, x in each.items()} for each in values]
            found.append([session.run(fetches, each) for each in feeds])
            if said == "now":
                text = "".join(session.explain(fetches, feed_dict=feeds[0]).programs.values())
    return found, text


def _same(found: list[list[Any]]) -> None:
    for got, want in zip(*found, strict=True):
        for x, y in zip(got, want, strict=True):
            largest = np.abs(np.where(np.isfinite(y), y, 0)).max()  # of terms that cancel, too
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5 * float(largest))


ODD: dict[str, dict[str, Any]] = {
    "large": {"q": 100.0, "k": 100.0},
    "small": {"q": 1e-30},
    "an infinite key": {"k": (np.inf, 400)},
    "a key that is no number": {"k": (np.nan, 400)},
    "a query that is no number": {"q": (np.nan, 3)},
    "an infinite value": {"v": (np.inf, 400)},
    "a value that is no number": {"v": (np.nan, 400)},
    "an infinite gradient": {"weights": (-np.inf, 5)},
    "a large gradient": {"weights": 1e30, "v": 1e-10},
}
"""What of the inputs is multiplied, or has another value in one row of each head."""


def _odd(changes: dict[str, Any]) -> dict[str, Any]:
    found = _inputs()
    for name, change in changes.items():
        if isinstance(change, float):
            found[name] *= np.float32(change)
        else:
            found[name][:, change[1], 2] = change[0]
    return found


def _run(name: str, values: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    found, text = _both(MASKS[name], values, monkeypatch)
    _same(found)
    assert "k=512: columns" in text
    assert "m=512: columns" in text


@pytest.mark.parametrize("name", ["infinite", "multiplied"])
def test_masks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(name, [_inputs()], monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("name", MASKS)
def test_all_masks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(name, [_inputs(), *[_odd(each) for each in ODD.values()]], monkeypatch)


def test_columns_with_odd_numbers_are_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """0 times infinity is NaN, also in the rows of the gradient."""
    _run("halves' rows masked", [_odd(each) for each in ODD.values()], monkeypatch)


def test_shares_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient has separate tiles, which receive the number of live columns."""
    random = np.random.default_rng(1)
    length, heads = 1024, 2
    x = wf.placeholder(wf.float32, [length, heads * WIDTH])
    w = wf.placeholder(wf.float32, [heads * WIDTH, 3 * heads * WIDTH])
    parts = wf.split(wf.matmul(x, w), 3, 1)
    q, k, v = [wf.transpose(wf.reshape(y, [length, heads, WIDTH]), [1, 0, 2]) for y in parts]
    mask = np.triu(np.full((length, length), -1e9, np.float32), 1)
    shares = wf.nn.softmax(wf.matmul(q, k, transpose_b=True) + mask)
    merged = wf.reshape(wf.transpose(wf.matmul(shares, v), [1, 0, 2]), x.shape)
    loss = wf.reduce_sum(wf.square(wf.matmul(merged, w[:, : heads * WIDTH])))
    fetches = [loss, shares, *wf.gradients(loss, [x, w])]
    values = [random.normal(size=each.shape).astype(np.float32) / 4 for each in (x, w)]
    infinite = values[0].copy()
    infinite[900, 3] = np.inf
    feeds = [dict(zip((x, w), each, strict=True)) for each in ([infinite, values[1]], values)]
    found: list[list[Any]] = []
    for said in ("off", "now"):
        monkeypatch.setenv("WEFT_JIT", said)
        with wf.Session() as session:
            found.append([session.run(fetches, each) for each in feeds])
            if said == "now":
                programs = session.explain(fetches, feed_dict=feeds[0]).programs
    _same(found)
    text = "".join(programs.values())
    assert re.search(r"alloc Softmax\w*_columns", text)
    assert "m=1024: columns" in text

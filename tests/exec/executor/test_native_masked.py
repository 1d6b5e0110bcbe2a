"""Attention after masks: columns whose shares are zero are left out, and every number stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_compiler.passes import again

HEADS, LENGTH, WIDTH = 3, 512, 16
TRIL = np.tril(np.ones((LENGTH, LENGTH), np.float32))

Mask = Callable[[Any], Any]


def _added(mask: Any) -> Mask:
    return lambda scores: scores + wf.constant(np.asarray(mask, np.float32))


def _causal(low: float) -> Any:
    return np.where(TRIL > 0, 0, low)


def _with(value: float, *places: tuple[Any, Any]) -> Any:
    mask = _causal(-1e9)
    for place in places:
        mask[place] = value
    return mask


PADDED = np.where(np.arange(LENGTH) < 200, 0, -1e9)[None, None, :]
MASKS: dict[str, tuple[Mask, bool]] = {
    "added": (_added(_causal(-1e9)), True),
    "infinite": (_added(_causal(-np.inf)), True),
    "the least": (_added(_causal(np.finfo(np.float32).min)), True),
    "of halves": (_added(_causal(-1e4)), True),
    "chosen": (lambda scores: wf.where_v2(TRIL > 0, scores, -1e9), True),
    "multiplied": (lambda scores: scores * TRIL - (1 - TRIL) * 1e9, True),
    "subtracted": (lambda scores: scores - (1 - TRIL) * 1e9, True),
    "computed": (
        lambda scores: scores + (1 - wf.linalg.band_part(wf.ones([LENGTH, LENGTH]), -1, 0)) * -1e9,
        True,
    ),
    "padded": (_added(PADDED), True),
    "weak": (_added(_causal(-30)), False),
    "nothing": (_added(np.zeros((LENGTH, LENGTH))), False),
    "all masked": (_added(np.full((LENGTH, LENGTH), -1e9)), False),
    "rows masked": (_added(_with(-1e9, (slice(40, 60), slice(None)))), True),
    "rows infinitely masked": (_added(_with(-np.inf, (slice(40, 60), slice(None)))), True),
    "an infinity": (_added(_with(np.inf, (7, 3), (300, 400))), True),
    "no numbers": (_added(_with(np.nan, (7, 3), (300, 400))), True),
}
"""What is done to scores, and whether columns may be left out."""


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
            np.testing.assert_allclose(x, y, rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize("name", MASKS)
def test_masks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mask, _ = MASKS[name]
    found, text = _both(mask, [_inputs()], monkeypatch)
    _same(found)
    assert "k=512: columns" in text and "m=512: columns" in text

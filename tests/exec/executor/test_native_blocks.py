"""Attention in compiled functions: scores are made in blocks of rows, and are never whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf

WIDTH = 16


def _attention(length: int, masked: bool, turned: bool) -> tuple[Any, dict[Any, Any]]:
    """The fetches, and what is fed."""
    random = np.random.default_rng(length)
    q, k, v = (wf.placeholder(wf.float32, [2, length, WIDTH]) for _ in range(3))
    scores = wf.matmul(q, k, transpose_b=True) * WIDTH**-0.5
    if masked:
        scores += wf.constant(np.triu(np.full((length, length), -1e9, np.float32), 1))
    shares = wf.nn.softmax(scores)
    y = wf.matmul(wf.transpose(v, [0, 2, 1]), shares, transpose_b=True) if turned else shares @ v
    feeds = {x: random.normal(size=x.shape).astype(np.float32) for x in (q, k, v)}
    return y, feeds


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("length", [512, 600, 1024])
def test_attention(
    length: int, masked: bool, turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    y, feeds = _attention(length, masked, turned)
    found = []
    for said in ("off", "now"):
        monkeypatch.setenv("WEFT_JIT", said)
        with wf.Session() as session:
            found.append(session.run([y, *wf.gradients(y, list(feeds))], feeds))
    for value, want in zip(*found, strict=True):
        np.testing.assert_allclose(value, want, rtol=1e-4, atol=1e-5)


def test_scores_are_never_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_JIT", "now")
    y, feeds = _attention(2048, masked=False, turned=False)
    with wf.Session() as session:
        (function,) = session.explain(y, feed_dict=feeds).functions
    assert function.arena_bytes < 2048 * 2048 * 4 / 2

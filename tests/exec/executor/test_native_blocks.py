"""Attention in compiled functions: scores are made in blocks of rows, and are never whole.

Gradients compute large ones again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_compiler.passes import rematerialize

WIDTH = 16


def _attention(length: int, masked: bool, turned: bool) -> tuple[Any, dict[Any, Any]]:
    """The fetches and the feeds."""
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


def _step(
    length: int, dtype: Any = wf.float32, heads: int = 2, masked: bool = True
) -> tuple[list[Any], dict[Any, Any]]:
    """A loss of attention and a projection, with its gradients and feeds."""
    random = np.random.default_rng(length)

    def drawn(*shape: int) -> Any:
        return random.normal(size=shape).astype(dtype.as_numpy_dtype)

    q, k, v = (wf.placeholder(dtype, [heads, length, WIDTH]) for _ in range(3))
    scores = wf.matmul(q, k, transpose_b=True) * WIDTH**-0.5
    if masked:
        scores += np.triu(np.full((length, length), -1e9), 1).astype(dtype.as_numpy_dtype)
    y = wf.transpose(wf.matmul(wf.nn.softmax(scores), v), [1, 0, 2])
    mixed = wf.matmul(wf.reshape(y, [length, -1]), wf.constant(drawn(heads * WIDTH, 8)))
    loss = wf.reduce_mean(wf.square(mixed))
    feeds = {x: drawn(*x.shape.as_list()) for x in (q, k, v)}
    return [loss, *wf.gradients(loss, list(feeds))], feeds


@pytest.mark.parametrize(
    "dtype, heads, masked",
    [(wf.float32, 2, True), (wf.float32, 1, False), (wf.float64, 3, True)],
    ids=["two heads", "one head", "float64"],
)
def test_gradients_compute_scores_again(
    dtype: Any, heads: int, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short sequences are compiled like long ones: equal numbers, and no memory for the scores."""
    monkeypatch.setattr(rematerialize, "_MIN_BYTES", 1 << 20)
    fetches, feeds = _step(640, dtype, heads, masked)
    found = []
    for said in ("off", "now"):
        monkeypatch.setenv("WEFT_JIT", said)
        with wf.Session() as session:
            found.append(session.run(fetches, feeds))
            if said == "now":
                (function,) = session.explain(fetches, feed_dict=feeds).functions
    for value, want in zip(*found, strict=True):
        np.testing.assert_allclose(value, want, rtol=1e-4, atol=1e-5)
    scores = heads * 640 * 640 * dtype.size
    assert function.arena_bytes < scores / 2 + (1 << 21)  # of blocks, whatever the length


def test_memory_of_a_step_grows_with_the_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_JIT", "now")
    fetches, feeds = _step(4096, heads=1, masked=False)
    with wf.Session() as session:
        (function,) = session.explain(fetches, feed_dict=feeds).functions
    assert function.arena_bytes < 4096 * 4096 * 4 / 8

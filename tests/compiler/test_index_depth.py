"""gather_nd and scatters by index vectors whose length is known in a step alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf

X = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)


def _dense(value: Any) -> Any:
    """A gradient, of rows or dense, as an array."""
    if not hasattr(value, "indices"):
        return value
    found = np.zeros_like(X)
    np.add.at(found, value.indices, value.values)
    return found


@pytest.mark.parametrize("mode", ["now", "off"])
@pytest.mark.parametrize("dims", [None, [None, None]])
def test_depths_may_differ_from_step_to_step(
    mode: str, dims: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_JIT", mode)
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [None] * 3)
        indices, updates = wf.placeholder(wf.int32, dims), wf.placeholder(wf.float32)
        gathered = wf.gather_nd(x * 2.0, indices) * 3.0
        scattered = wf.scatter_nd(indices, updates * 2.0, wf.shape(x)) * 3.0
        added = wf.tensor_scatter_add(x * 1.0, indices, updates) * 2.0
        gradients = [
            wf.gradients(wf.reduce_sum(wf.square(gathered)), x)[0],
            wf.gradients(wf.reduce_sum(scattered * x), updates)[0],
            wf.gradients(wf.reduce_sum(added * x), updates)[0],
        ]
        for rows in ([[1], [0]], [[1, 2], [0, 0], [1, 2]], [[1, 2, 3]], [[0], [1], [0]]) * 2:
            at = tuple(np.array(rows).T)
            given = X[at] + 1
            feeds = {x: X, indices: rows, updates: given}
            found = session.run([gathered, scattered, added, *gradients], feeds)
            total, slopes = np.zeros_like(X), np.zeros_like(X)
            np.add.at(total, at, given)
            np.add.at(slopes, at, 72 * X[at])
            expected = [6 * X[at], 6 * total, 2 * (X + total), slopes, 6 * X[at], 2 * X[at]]
            for value, right in zip(found, expected, strict=True):
                np.testing.assert_allclose(_dense(value), right, rtol=1e-5)

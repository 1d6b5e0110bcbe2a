"""Compiled code that reads large operands across their rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as wf

SHAPES = {
    "square": ((512, 768), [1, 0]),
    "odd sizes": ((33 * 17, 21 * 31), [1, 0]),
    "prime sizes": ((521, 643), [1, 0]),
    "a batch": ((3, 320, 384), [0, 2, 1]),
    "three axes": ((48, 80, 96), [2, 1, 0]),
    "outer axes": ((160, 176, 12), [1, 0, 2]),
}
PROGRAMS: dict[str, Callable[[Any, Any, list[int]], Any]] = {
    "one": lambda x, y, axes: wf.transpose(x, axes) * 2 + y,
    "twice the same": lambda x, y, axes: wf.transpose(x, axes) * y - wf.transpose(x, axes),
    "shifted": lambda x, y, axes: wf.transpose(wf.reverse(x, [0]), axes) + y,
    "two operands": lambda x, y, axes: wf.transpose(x * 3, axes) + wf.transpose(x - 1, axes) * y,
    "sums": lambda x, y, axes: wf.reduce_sum(wf.transpose(x, axes) * y, -1),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", SHAPES)
def test_results_are_those_of_kernels(
    name: str, program: str, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape, axes = SHAPES[name]
    rng = np.random.default_rng(3)
    first = rng.integers(-9, 9, shape).astype(dtype)
    second = rng.integers(-9, 9, [shape[axis] for axis in axes]).astype(dtype)
    x, y = wf.placeholder(dtype, first.shape), wf.placeholder(dtype, second.shape)
    result = PROGRAMS[program](x, y, axes)
    found = []
    for mode in ("now", "off"):
        monkeypatch.setenv("WEFT_JIT", mode)
        with wf.Session() as session:
            found.append(session.run(result, {x: first, y: second}))
    np.testing.assert_array_equal(*found)

"""Products of integers are compiled even if a region has no other node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True)])
def test_a_product_alone(
    dtype: Any, transposed: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_JIT", "now")
    rng = np.random.default_rng(1)
    info = np.iinfo(dtype)
    a, b = (rng.integers(info.min, info.max, (37, 37), dtype) for _ in range(2))
    x, y = wf.placeholder(dtype, [None, 37]), wf.placeholder(dtype, [None, 37])
    product = wf.matmul(x, y, *transposed)
    with wf.Session() as session:
        ((region,),) = session.explain(product, [x, y]).compiled
        assert region[1] == "MatMul"
        found = session.run(product, {x: a, y: b})
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(
            found, (a.T if transposed[0] else a) @ (b.T if transposed[1] else b)
        )

"""Refusals of kernels of linear algebra, for values whose shapes the graph does not know."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft import errors

REFUSED = {
    "not definite": ([[1.0, 2.0], [2.0, 1.0]], "self-adjoint positive definite"),
    "zero": ([[0.0, 0.0], [0.0, 0.0]], "self-adjoint positive definite"),
    "not square": (np.ones((2, 3)), "square"),
    "a vector": (np.ones(3), "square"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_matrices_without_a_cholesky_decomposition(name: str) -> None:
    matrix, message = REFUSED[name]
    x = wf.placeholder(wf.float32)
    with wf.Session() as session, pytest.raises(errors.InvalidArgumentError, match=message):
        session.run(wf.linalg.cholesky(x), {x: matrix})

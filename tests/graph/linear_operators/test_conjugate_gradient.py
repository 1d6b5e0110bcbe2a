"""Linear equations by conjugate gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf

DEFINITE: Any = {"is_self_adjoint": True, "is_positive_definite": True}


def _matrices(dtype: str, *batch: int, size: int = 5) -> Any:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(*batch, size, size))
    if dtype.startswith("complex"):
        root = root + 1j * rng.normal(size=root.shape)
    product = root @ np.conj(np.swapaxes(root, -1, -2)) + size * np.eye(size)
    return product.astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_it_solves_each_system_of_a_batch(dtype: str) -> None:
    matrices = _matrices(dtype, 2)
    right = np.array([[1, 2, 3, 4, 5], [0, 0, 0, 0, 0]], dtype)  # the second is solved already
    operator = wf.linalg.LinearOperatorFullMatrix(matrices, **DEFINITE)
    solve = wf.linalg.experimental.conjugate_gradient
    one = solve(operator, right[0])
    states = [solve(operator, right, tol=1e-6), solve(operator, right, x=np.ones_like(right)), one]
    with wf.Session() as session:
        found, moved, broadcast = session.run(states)
    wanted = np.linalg.solve(matrices, right[..., None])[..., 0]
    np.testing.assert_allclose(found.x, wanted, atol=1e-5)
    np.testing.assert_allclose(moved.x[0], wanted[0], atol=1e-4)
    np.testing.assert_allclose(
        broadcast.x, np.linalg.solve(matrices, right[:1, :, None])[..., 0], atol=1e-4
    )
    assert 1 <= found.i <= 7
    residual = right[0] - matrices[0] @ found.x[0]
    np.testing.assert_allclose(found.r[0], residual, atol=1e-4)


def test_a_preconditioner_saves_iterations_and_a_limit_ends_them() -> None:
    scale = np.array([1.0, 10, 100, 1000, 10000])
    matrix = np.diag(scale) + 0.1 * _matrices("float64")
    operator = wf.linalg.LinearOperatorFullMatrix(matrix, **DEFINITE)
    near = wf.linalg.LinearOperatorDiag(1 / np.diag(matrix), **DEFINITE)
    solve = wf.linalg.experimental.conjugate_gradient
    states = [
        solve(operator, np.ones(5), tol=1e-3),
        solve(operator, np.ones(5), near, tol=1e-3),
        solve(operator, np.ones(5), max_iter=2),
        solve(operator, np.zeros(5)),
    ]
    with wf.Session() as session:
        plain, helped, limited, nothing = session.run(states)
    assert helped.i < plain.i
    np.testing.assert_allclose(helped.x, np.linalg.solve(matrix, np.ones(5)), atol=1e-3)
    assert limited.i == 2
    assert nothing.i == 0


def test_gradients_flow_through_the_iterations() -> None:
    matrix = _matrices("float64")
    right = wf.constant(np.arange(1.0, 6))
    operator = wf.linalg.LinearOperatorFullMatrix(matrix, **DEFINITE)
    solved = wf.linalg.experimental.conjugate_gradient(operator, right, tol=1e-12).x
    (slope,) = wf.gradients(solved[0], right)
    with wf.Session() as session:
        np.testing.assert_allclose(session.run(slope), np.linalg.inv(matrix)[0], atol=1e-6)


def test_operators_must_be_known_to_be_definite() -> None:
    operator = wf.linalg.LinearOperatorFullMatrix(np.eye(2))
    with pytest.raises(wf.errors.InvalidArgumentError, match="requires the hints is_self_adjoint"):
        wf.linalg.experimental.conjugate_gradient(operator, [1.0, 2.0])

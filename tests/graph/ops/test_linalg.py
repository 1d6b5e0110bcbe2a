from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from weft_testing.cases import complex_normal, normal
from weft_testing.evaluate import evaluate
from weft_testing.parts import Parts

from weft_exec.session.session import Session
from weft_graph.ir.builder import constant, out
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_graph.ops import diagonals, linalg, lu, norms, tridiagonal
from weft_tensor import dtypes, errors


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as graph:
        yield graph


def feed(shape: Any, dtype: str = "float64") -> Output:
    return out("Placeholder", (), {"dtype": dtypes.as_dtype(dtype), "shape": shape})


SINGULAR = np.array([[1.0, 2.0], [2.0, 4.0]])


def test_singular_matrices_are_refused() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="singular"):
        evaluate(linalg.matrix_inverse(SINGULAR))
    with pytest.raises(errors.InvalidArgumentError, match="singular"):
        evaluate(linalg.matrix_solve(SINGULAR, SINGULAR))
    with pytest.raises(errors.InvalidArgumentError, match="singular"):
        evaluate(linalg.matrix_triangular_solve(np.tril(SINGULAR - np.eye(2)), SINGULAR))
    with pytest.raises(errors.InvalidArgumentError, match="positive definite"):
        evaluate(linalg.cholesky(-np.eye(2)))


def test_shapes_are_checked_while_the_graph_is_built() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="2 and 3"):
        linalg.cholesky(normal(2, 3))
    with pytest.raises(errors.InvalidArgumentError, match="rank at least 2"):
        linalg.qr(normal(2))
    with pytest.raises(errors.InvalidArgumentError, match="rows"):
        linalg.matrix_solve(normal(2, 2), normal(3, 1))
    with pytest.raises(errors.InvalidArgumentError, match="even rank"):
        diagonals.diag_part(normal(2, 2, 2))


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 4, 4)])
@pytest.mark.parametrize("full", [False, True])
def test_factors_multiply_to_the_matrix(shape: Any, full: bool) -> None:
    x = complex_normal(*shape)
    s, u, v = evaluate(list(linalg.svd(x, full_matrices=full)))
    k = min(shape[-2:])
    assert s.dtype == np.float64
    rebuilt = (u[..., :k] * s[..., None, :]) @ v[..., :k].conj().swapaxes(-1, -2)
    np.testing.assert_allclose(rebuilt, x, atol=1e-12)
    q, r = evaluate(list(linalg.qr(x, full_matrices=full)))
    np.testing.assert_allclose(q @ r, x, atol=1e-12)
    assert u.shape[-1] == q.shape[-1] == (shape[-2] if full else k)


def test_eigenvectors() -> None:
    x = complex_normal(4, 4)
    x = x + x.conj().T
    e, v = evaluate(list(linalg.self_adjoint_eig(x)))
    np.testing.assert_allclose(x @ v, v * e, atol=1e-12)
    np.testing.assert_allclose(evaluate(linalg.self_adjoint_eigvals(x)), e, atol=1e-12)


def test_cholesky_solve_and_logdet() -> None:
    x = normal(3, 3)
    definite = x @ x.T + np.eye(3)
    rhs = normal(3, 2)
    factor = linalg.cholesky(definite)
    solution = evaluate(linalg.cholesky_solve(factor, rhs))
    np.testing.assert_allclose(definite @ solution, rhs, atol=1e-12)
    expected = np.linalg.slogdet(definite)[1]
    np.testing.assert_allclose(evaluate(linalg.logdet(definite)), expected)
    complex_definite = definite.astype(np.complex64)
    assert linalg.logdet(complex_definite).dtype == "float32"


def test_slow_least_squares_take_rank_deficient_matrices() -> None:
    rhs = normal(2, 1)
    result = evaluate(linalg.matrix_solve_ls(SINGULAR, rhs, fast=False))
    np.testing.assert_allclose(result, np.linalg.pinv(SINGULAR) @ rhs, atol=1e-12)


@pytest.mark.parametrize("columns", [None, 2, 5])
@pytest.mark.parametrize("batch", [None, [2, 1]])
def test_eye(columns: Any, batch: Any) -> None:
    expected = np.broadcast_to(np.eye(3, columns), (*(batch or ()), 3, columns or 3))
    static = diagonals.eye(3, columns, batch, "int32")
    assert static.dims == expected.shape
    np.testing.assert_array_equal(evaluate(static), expected)
    rows = feed([], "int32")
    dynamic = diagonals.eye(rows, columns, batch)
    np.testing.assert_array_equal(evaluate(dynamic, {rows: 3}), expected)


def test_a_large_eye_is_no_constant() -> None:
    unit = diagonals.eye(100)
    assert unit.node.type == "MatrixDiag"
    np.testing.assert_array_equal(evaluate(unit), np.eye(100, dtype=np.float32))
    with pytest.raises(errors.InvalidArgumentError, match="at least 0"):
        diagonals.eye(-1)


@pytest.mark.parametrize(
    ("ord", "axis"),
    [
        ("euclidean", None),
        (1, None),
        (np.inf, None),
        (3, None),
        ("euclidean", 1),
        (1, -1),
        (2, 0),
        (np.inf, 2),
        (2.5, 1),
        ("fro", [0, 1]),
        ("euclidean", [1, 2]),
        (1, [0, 2]),
        (np.inf, [0, 2]),
        (2, [0, 1]),
        (2, [-1, 0]),
    ],
)
@pytest.mark.parametrize("keep", [False, True])
def test_norm(ord: Any, axis: Any, keep: bool) -> None:
    x = complex_normal(3, 4, 2)
    order = "fro" if ord == "euclidean" and isinstance(axis, list) else ord
    order = 2 if order == "euclidean" else order
    if axis is None:
        expected = np.asarray(np.linalg.norm(x.reshape(-1), order))
        expected = expected.reshape(1, 1, 1) if keep else expected
    else:
        numpy_axis = tuple(axis) if isinstance(axis, list) else axis
        expected = np.linalg.norm(x, order, numpy_axis, keep)
    result = evaluate(norms.norm(constant(x), ord, axis, keep))
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected)


@pytest.mark.parametrize(
    ("ord", "axis"), [("fro", 1), (3, [0, 1]), (0, None), ("nuc", [0, 1]), (1, [0, 1, 2])]
)
def test_norms_that_do_not_exist_are_refused(ord: Any, axis: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        norms.norm(constant(normal(3, 4, 2)), ord, axis)


def test_ranks_and_pseudoinverses() -> None:
    x = complex_normal(2, 4, 3)
    x[1, :, 2] = x[1, :, 0] * 2
    np.testing.assert_array_equal(evaluate(linalg.matrix_rank(x)), [3, 2])
    assert evaluate(linalg.matrix_rank(x[0], tol=1e9)) == 0
    np.testing.assert_allclose(evaluate(linalg.pinv(x)), np.linalg.pinv(x), atol=1e-10)
    real = normal(3, 4)
    np.testing.assert_allclose(evaluate(linalg.pinv(real, 1e-3)), np.linalg.pinv(real), atol=1e-10)


def test_normalize_and_adjoint() -> None:
    x = complex_normal(3, 4)
    unit, size = evaluate(list(norms.normalize(x, axis=1)))
    np.testing.assert_allclose(size, np.linalg.norm(x, axis=1, keepdims=True))
    np.testing.assert_allclose(unit * size, x)
    np.testing.assert_allclose(evaluate(linalg.adjoint(x)), x.conj().T)


def test_band_part_refuses_more_diagonals_than_there_are() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="at most"):
        evaluate(diagonals.matrix_band_part(normal(2, 3), 3, 0))


def test_triangular_factors_solve_invert_and_reconstruct() -> None:
    cube = complex_normal(2, 3, 4, 4)
    with Parts() as parts:
        for matrix, rhs, rank in (
            (cube, complex_normal(2, 3, 4, 2), 4),
            (cube[0, 0], complex_normal(4, 2), 2),
            (cube[0], complex_normal(2, 1, 4, 2), None),
        ):
            with parts.part(f"{matrix.shape} and {rhs.shape}"):
                given = feed(None if rank is None else matrix.shape, "complex128")
                factors, rows = lu.lu(given)
                again = lu.lu_reconstruct(factors, rows)
                inverse = lu.lu_matrix_inverse(factors, rows)
                solved = lu.lu_solve(factors, rows, rhs)
                found = evaluate([again, inverse, solved], {given: matrix})
                want = [matrix, np.linalg.inv(matrix), np.linalg.solve(*_spread(matrix, rhs))]
                for got, wanted in zip(found, want, strict=True):
                    np.testing.assert_allclose(got, wanted, atol=1e-11)


def _spread(a: Any, b: Any) -> tuple[Any, Any]:
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return tuple(np.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (a, b))  # type: ignore[return-value]  # two


def test_formats_of_tridiagonal_matrices() -> None:
    above, main, below = normal(2, 3), normal(2, 4), normal(2, 3, seed=1)
    dense = np.zeros((2, 4, 4))
    at = np.arange(4)
    dense[:, at[:-1], at[1:]], dense[:, at, at], dense[:, at[1:], at[:-1]] = above, main, below
    padded = [np.pad(above, ((0, 0), (0, 1))), main, np.pad(below, ((0, 0), (1, 0)))]
    rhs = normal(2, 4, 3)
    with Parts() as parts:
        for given, diagonals in (
            ("compact", np.stack(padded, 1)),
            ("sequence", [above, main, below]),
            ("sequence", padded),
            ("matrix", dense + np.triu(normal(4, 4), 2)),
        ):
            with parts.part(given):
                product = evaluate(tridiagonal.tridiagonal_matmul(diagonals, rhs, given))
                np.testing.assert_allclose(product, dense @ rhs, atol=1e-12)
                turned = tridiagonal.tridiagonal_solve(
                    diagonals, rhs.swapaxes(1, 2), given, transpose_rhs=True
                )
                np.testing.assert_allclose(dense @ evaluate(turned), rhs, atol=1e-10)
                one = tridiagonal.tridiagonal_solve(diagonals, rhs[..., 0], given)
                np.testing.assert_allclose(
                    dense @ evaluate(one)[..., None], rhs[..., :1], atol=1e-10
                )
    finite = tridiagonal.tridiagonal_solve(np.zeros((3, 4)), np.ones(4), perturb_singular=True)
    with pytest.raises(errors.InvalidArgumentError, match="singular"):
        evaluate(tridiagonal.tridiagonal_solve(np.zeros((3, 60)), np.ones(60)))
    with pytest.raises(errors.InvalidArgumentError, match="'band'"):
        tridiagonal.tridiagonal_solve(np.zeros((3, 4)), np.ones(4), "band")
    assert finite.dims == (4,)
    with pytest.raises(errors.InvalidArgumentError, match="rows and columns"):
        tridiagonal.tridiagonal_solve(np.ones((5, 4, 7)), np.ones((5, 4)), "matrix")
    late = feed(None)
    solved = tridiagonal.tridiagonal_solve(late, rhs)
    found = evaluate(solved, {late: np.stack(padded, 1)})
    np.testing.assert_allclose(dense @ found, rhs, atol=1e-10)


def test_selections_of_eigenvalues_of_tridiagonal_matrices() -> None:
    main, below = normal(6), normal(5) + 1j * normal(5, seed=1)
    dense = np.diag(main.astype(complex)) + np.diag(below, -1) + np.diag(below.conj(), 1)
    every = np.linalg.eigvalsh(dense)
    values, vectors = evaluate(
        list(tridiagonal.eigh_tridiagonal(main.astype(complex), below, eigvals_only=False))
    )
    np.testing.assert_allclose(values, every, atol=1e-12)
    np.testing.assert_allclose(dense @ vectors, vectors * values, atol=1e-12)
    some = tridiagonal.eigh_tridiagonal(
        main.astype(complex), below, select="i", select_range=(1, 3)
    )
    np.testing.assert_allclose(evaluate(some), every[1:4], atol=1e-12)
    inside = tridiagonal.eigh_tridiagonal(
        main.astype(complex), below, select="v", select_range=(every[1], every[4])
    )
    assert len(evaluate(inside)) == 3


def test_unit_matrices_too_large_for_an_int32_are_refused() -> None:
    for columns in (None, 2):
        size = feed((), "int64")
        with pytest.raises(errors.ResourceExhaustedError), Session() as session:
            session.run(diagonals.eye(size, columns), {size: np.int64(2**40)})
    size = feed((), "int64")
    np.testing.assert_array_equal(
        evaluate(diagonals.eye(size, 3), {size: np.int64(2)}), np.eye(2, 3)
    )


def test_what_does_not_fit_several_diagonals() -> None:
    import weft as wf

    x = wf.zeros([3, 4])
    for wrong in (
        lambda: wf.linalg.diag_part(x, k=4),
        lambda: wf.linalg.diag_part(x, k=(1, -1)),
        lambda: wf.linalg.set_diag(x, [1.0, 2.0], k=1),
        lambda: wf.linalg.diag([1.0, 2.0], k=1, num_rows=1),
        lambda: wf.linalg.diag([1.0, 2.0], k=0, num_rows=3, num_cols=3),
        lambda: wf.linalg.diag([[1.0], [2.0]], k=(0, 2)),
    ):
        with pytest.raises(wf.errors.InvalidArgumentError):
            wrong()
    late = wf.placeholder(wf.int32)
    picked = wf.linalg.diag_part(x, k=late)
    assert wf.Session().run(picked, {late: [-1, 0]}).shape == (2, 3)
    with pytest.raises(wf.errors.InvalidArgumentError, match="diagonal"):
        wf.Session().run(picked, {late: -3})
    assert wf.linalg.diag(wf.zeros([5, 2]), k=1, num_rows=wf.placeholder(wf.int32)).shape[0] == 5

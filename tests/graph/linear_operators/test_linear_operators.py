"""Every linear operator against its dense matrix, with batches that broadcast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from weft_testing.cases import complex_normal, normal
from weft_testing.parts import Parts

import weft as wf
from weft_tensor import errors

Array = np.ndarray[Any, Any]
L = wf.linalg
SQUARE = complex_normal(2, 3, 3) + 3 * np.eye(3)
OTHER = normal(2, 2, seed=1) + 2 * np.eye(2)
WIDE = normal(2, 3, seed=2)
VECTOR = complex_normal(2, 4) + 2
THREE = normal(2, 3, 4, seed=3) + np.array([[0], [3.0], [0]])


def _kron(a: Array, b: Array) -> Array:
    return np.kron(a, b) if a.ndim == 2 else np.array([np.kron(x, b) for x in a])


def _blocks(*rows: list[Array]) -> Array:
    lead = np.broadcast_shapes(*(b.shape[:-2] for row in rows for b in row))
    return np.concatenate(
        [np.concatenate([np.broadcast_to(b, (*lead, *b.shape[-2:])) for b in row], -1)
         for row in rows], -2)  # fmt: skip


def _toeplitz(col: Array, row: Array) -> Array:
    n = col.shape[-1]
    line = np.concatenate([row[..., :0:-1], np.broadcast_to(col, (*row.shape[:-1], n))], -1)
    return np.asarray(line[..., np.arange(n)[:, None] - np.arange(n) + n - 1])


def _circulant(spectrum: Array) -> Array:
    """The matrix of products in the Fourier domain, over all axes of the spectrum."""
    size = spectrum.size
    units = np.eye(size).reshape(size, *spectrum.shape)
    axes = tuple(range(1, units.ndim))
    return np.fft.ifftn(np.fft.fftn(units, axes=axes) * spectrum, axes=axes).reshape(size, size).T


def _tridiagonal(d: Array) -> Array:
    n = d.shape[-1]
    whole = d[..., 1, None, :] * np.eye(n)
    at = np.arange(n)
    whole[..., at[:-1], at[1:]] = d[..., 0, :-1]
    whole[..., at[1:], at[:-1]] = d[..., 2, 1:]
    return whole


def _full(x: Any) -> Any:
    return L.LinearOperatorFullMatrix(x)


REAL = SQUARE.real
UNIT = VECTOR / np.linalg.norm(VECTOR, axis=-1, keepdims=True)
ROWS: dict[str, tuple[Callable[[Any], Any], Array]] = {
    "full": (lambda c: _full(c(SQUARE)), SQUARE),
    "wide": (lambda c: _full(c(WIDE)), WIDE),
    "definite": (lambda c: L.LinearOperatorFullMatrix(
        c(REAL @ REAL.swapaxes(1, 2)), is_self_adjoint=True, is_positive_definite=True),
        REAL @ REAL.swapaxes(1, 2)),
    "lower": (lambda c: L.LinearOperatorLowerTriangular(c(SQUARE)), np.tril(SQUARE)),
    "diag": (lambda c: L.LinearOperatorDiag(c(VECTOR)), VECTOR[..., None] * np.eye(4)),
    "identity": (lambda c: L.LinearOperatorIdentity(3, [2], wf.float64),
                 np.broadcast_to(np.eye(3), (2, 3, 3))),
    "scaled": (lambda c: L.LinearOperatorScaledIdentity(3, c(np.array([2.0, -3.0]))),
               np.array([2.0, -3.0])[:, None, None] * np.eye(3)),
    "zeros": (lambda c: L.LinearOperatorZeros(2, 3, dtype=wf.float64), np.zeros((2, 3))),
    "composition": (lambda c: L.LinearOperatorComposition([_full(c(REAL)), _full(c(WIDE.T))]),
                    REAL @ WIDE.T),
    "squares": (lambda c: L.LinearOperatorComposition([_full(c(REAL)), L.LinearOperatorIdentity(
        3, dtype=wf.float64)]), REAL),
    "kronecker": (lambda c: L.LinearOperatorKronecker([_full(c(REAL)), _full(c(OTHER))]),
                  _kron(REAL, OTHER)),
    "blocks": (lambda c: L.LinearOperatorBlockDiag([_full(c(REAL)), _full(c(OTHER))]),
               _blocks([REAL, np.zeros((3, 2))], [np.zeros((2, 3)), OTHER])),
    "lower-blocks": (lambda c: L.LinearOperatorBlockLowerTriangular(
        [[_full(c(REAL))], [_full(c(WIDE)), _full(c(OTHER))]]),
        _blocks([REAL, np.zeros((3, 2))], [WIDE, OTHER])),
    "update": (lambda c: L.LinearOperatorLowRankUpdate(
        _full(c(REAL)), c(WIDE.T), c(np.array([0.5, 2.0]))),
        REAL + WIDE.T @ np.diag([0.5, 2.0]) @ WIDE),
    "householder": (lambda c: L.LinearOperatorHouseholder(c(VECTOR)),
                    np.eye(4) - 2 * UNIT[..., None] * UNIT.conj()[..., None, :]),
    "permutation": (lambda c: L.LinearOperatorPermutation([2, 0, 1], wf.float64),
                    np.eye(3)[[2, 0, 1]]),
    "toeplitz": (lambda c: L.LinearOperatorToeplitz(c(VECTOR[0] * 3), c(VECTOR)),
                 _toeplitz(VECTOR[0] * 3, VECTOR)),
    "circulant": (lambda c: L.LinearOperatorCirculant(c(VECTOR), wf.complex128),
                  np.array([_circulant(row) for row in VECTOR])),
    "real-circulant": (lambda c: L.LinearOperatorCirculant(
        c(np.fft.fft([4.0, 1, 0, 2])), wf.float64), _circulant(np.fft.fft([4.0, 1, 0, 2])).real),
    "circulant2": (lambda c: L.LinearOperatorCirculant2D(c(VECTOR[:, :3]), wf.complex128),
                   _circulant(VECTOR[:, :3])),
    "circulant3": (lambda c: L.LinearOperatorCirculant3D(c(SQUARE[:, :2, :2]), wf.complex128),
                   _circulant(SQUARE[:, :2, :2])),
    "tridiagonal": (lambda c: L.LinearOperatorTridiag(c(THREE)), _tridiagonal(THREE)),
    "adjoint": (lambda c: L.LinearOperatorAdjoint(_full(c(SQUARE))),
                SQUARE.conj().swapaxes(1, 2)),
    "inversion": (lambda c: L.LinearOperatorInversion(_full(c(SQUARE))), np.linalg.inv(SQUARE)),
}  # fmt: skip


def _adjoint(x: Array) -> Array:
    return np.asarray(x.conj().swapaxes(-1, -2))


@pytest.mark.parametrize("name", ROWS)
def test_an_operator_does_what_its_matrix_does(name: str) -> None:
    make, dense = ROWS[name]
    m, n = dense.shape[-2:]
    with wf.Graph().as_default(), wf.Session() as session, Parts() as parts:
        known = make(wf.constant)
        assert known.shape == list(dense.shape), known
        feeds: dict[Any, Any] = {}

        def fed(value: Array) -> Any:
            place = wf.placeholder(value.dtype, [None] * value.ndim)
            feeds[place] = value
            return place

        for what, operator in (("known", known), ("unknown", make(fed))):
            kind = operator.dtype.as_numpy_dtype
            right = complex_normal(2, n, 2, seed=5)
            left = complex_normal(2, m, 2, seed=6)
            if not operator.dtype.is_complex:
                right, left = right.real, left.real
            wanted: dict[str, tuple[Any, Array]] = {
                "dense": (operator.to_dense(), dense),
                "shape": (operator.shape_tensor(), np.array(dense.shape)),
                "matmul": (operator.matmul(right), dense @ right),
                "adjoint": (operator.matmul(left, adjoint=True), _adjoint(dense) @ left),
                "adjoint of both": (operator.matmul(_adjoint(left), adjoint=True, adjoint_arg=True),
                                    _adjoint(dense) @ left),
                "H": (operator.H.matmul(left), _adjoint(dense) @ left),
                "matvec": (operator.matvec(right[..., 0]), (dense @ right)[..., 0]),
                "diagonal": (operator.diag_part(), np.diagonal(dense, 0, -2, -1)),
                "trace": (operator.trace(), np.trace(dense, 0, -2, -1)),
                "sum": (operator.add_to_tensor(np.ones((m, n), kind)), dense + 1),
            }  # fmt: skip
            if m == n:
                solution = np.linalg.solve(dense, left)
                wanted |= {
                    "solve": (operator.solve(left), solution),
                    "solvevec": (operator.solvevec(left[..., 0]), solution[..., 0]),
                    "inverse": (operator.inverse().matmul(left), solution),
                    "solve of the adjoint": (operator.solve(left, adjoint=True),
                                             np.linalg.solve(_adjoint(dense), left)),
                    "determinant": (operator.determinant(), np.linalg.det(dense)),
                    "logarithm": (operator.log_abs_determinant(), np.linalg.slogdet(dense)[1]),
                    "product": (operator.matmul(operator).to_dense(), dense @ dense),
                }  # fmt: skip
            if what == "unknown":
                wanted = {key: wanted[key] for key in ("dense", "shape", "matmul", "solve")
                          if key in wanted}  # fmt: skip
            found = session.run({key: value for key, (value, _) in wanted.items()}, feeds)
            for key, (_, want) in wanted.items():
                with parts.part(f"{key}, {what} shapes"):
                    np.testing.assert_allclose(found[key], want, atol=1e-9)


def test_hints_and_assertions() -> None:
    definite = np.array([[2.0, 1.0], [1.0, 2.0]])
    operator = L.LinearOperatorFullMatrix(definite, is_self_adjoint=True, is_positive_definite=True)
    assert operator.is_non_singular and operator.is_square and operator.H is operator
    with wf.Session() as session:
        factor = operator.cholesky()
        np.testing.assert_allclose(session.run(factor.to_dense()), np.linalg.cholesky(definite))
        np.testing.assert_allclose(session.run(operator.eigvals()), [1, 3])
        np.testing.assert_allclose(session.run(operator.cond()), 3)
        session.run([operator.assert_non_singular(), operator.assert_self_adjoint(),
                     operator.assert_positive_definite()])  # fmt: skip
        given = wf.placeholder_with_default([[1.0, 2.0], [0.5, 1.0]], [2, 2])
        bad = L.LinearOperatorFullMatrix(given)
        for check, says in (
            (bad.assert_non_singular, "singular"),
            (bad.assert_self_adjoint, "self-adjoint"),
            (bad.assert_positive_definite, "definite"),
        ):
            with pytest.raises(errors.InvalidArgumentError, match=says):
                session.run(check())
    with pytest.raises(errors.InvalidArgumentError, match="not singular"):
        L.LinearOperatorDiag([1.0], is_non_singular=False, is_positive_definite=True)
    with pytest.raises(errors.UnimplementedError, match="non-singular square"):
        L.LinearOperatorZeros(2).solve(np.ones((2, 1), np.float32))
    with pytest.raises(errors.InvalidArgumentError, match="i \\+ 1 blocks"):
        L.LinearOperatorBlockLowerTriangular([[bad, bad]])
    with pytest.raises(errors.InvalidArgumentError, match="is_self_adjoint"):
        bad.cholesky()


def test_gradients_flow_through_solutions() -> None:
    at = np.array([[2.0, 9.0], [1.0, 4.0]])
    matrix = wf.placeholder(wf.float64, [2, 2])
    operator = L.LinearOperatorLowerTriangular(matrix)
    loss = wf.reduce_sum(operator.solvevec(np.array([1.0, 3.0]))) + operator.log_abs_determinant()
    with wf.Session():
        error = wf.test.compute_gradient_error(matrix, [2, 2], loss, [], at, 1e-5)
    assert error < 1e-7


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"u": (5, 3, 2), "diag_update": (4, 2)}, "5 and 4"),
        ({"u": (5, 3, 2), "v": (4, 3, 2)}, "5 and 4"),
        ({"u": (4, 2)}, "rows of u"),
        ({"u": (3, 2), "v": (4, 2)}, "rows of v"),
        ({"u": (3, 2), "v": (3, 1)}, "columns of u and v"),
        ({"u": (3, 2), "diag_update": (3,)}, "elements of diag_update"),
    ],
)
def test_updates_that_do_not_fit_are_refused(shapes: Any, message: str) -> None:
    base = L.LinearOperatorIdentity(3, dtype=wf.float64)
    with pytest.raises(errors.InvalidArgumentError, match=message):
        L.LinearOperatorLowRankUpdate(base, **{k: np.ones(v) for k, v in shapes.items()})


def test_a_batch_of_updates_of_one_matrix() -> None:
    rows, u = wf.placeholder(wf.int32), wf.placeholder(wf.float32)
    base = L.LinearOperatorIdentity(rows)
    late = L.LinearOperatorLowRankUpdate(base, u)
    one = L.LinearOperatorIdentity(3)
    several = L.LinearOperatorLowRankUpdate(one, np.ones((3, 2), np.float32), np.ones((5, 2)))
    assert several.shape.as_list() == [5, 3, 3]
    with wf.Session() as session:
        feeds = {rows: 3, u: np.ones((2, 3, 2))}
        shape, dense = session.run([late.shape_tensor(), late.to_dense()], feeds)
        assert shape.tolist() == [2, 3, 3]
        np.testing.assert_allclose(dense, np.tile(np.eye(3) + 2, (2, 1, 1)))
        assert session.run(several.shape_tensor()).tolist() == [5, 3, 3]


def test_a_wrong_hint_is_found_where_it_is_asked_for() -> None:
    operator = L.LinearOperatorFullMatrix(np.eye(2, dtype=np.float32), is_square=False)
    with pytest.raises(errors.InvalidArgumentError, match="is_square=False"):
        _ = operator.is_square


def test_functions_of_matrices_take_operators_by_name() -> None:
    operator = L.LinearOperatorDiag([2.0, 4.0])
    solution = wf.linalg.solve(matrix=operator, rhs=[[1.0], [1.0]])
    with wf.Session() as session:
        inverse = session.run(wf.linalg.inv(input=operator).to_dense())
        np.testing.assert_array_equal(inverse, np.diag([0.5, 0.25]))
        np.testing.assert_array_equal(session.run(solution), [[0.5], [0.25]])


def test_functions_of_matrices_take_operators() -> None:
    matrix = np.array([[2.0, 0.5j], [-0.5j, 1.0]])
    operator = L.LinearOperatorFullMatrix(matrix, True, True, True, True)
    with wf.Session() as session:
        for name in ("det", "logdet", "diag_part", "trace"):
            function = getattr(L, name)
            np.testing.assert_allclose(
                session.run(function(operator)), session.run(function(wf.constant(matrix)))
            )
        for name in ("adjoint", "cholesky", "inv"):
            function = getattr(L, name)
            found = function(operator)
            assert isinstance(found, L.LinearOperator)
            np.testing.assert_allclose(
                session.run(found.to_dense()), session.run(function(wf.constant(matrix)))
            )
        x = wf.constant(complex_normal(2, 2, 2))
        for a in (False, True):
            solved = L.solve(operator, x, adjoint=a)
            wanted = L.solve(wf.broadcast_to(matrix, [2, 2, 2]), x, adjoint=a)
            np.testing.assert_allclose(session.run(solved), session.run(wanted))
            for b in (False, True):
                for left, right in ((operator, x), (x, operator)):
                    dense = [matrix if each is operator else each for each in (left, right)]
                    found = wf.matmul(left, right, adjoint_a=a, adjoint_b=b)
                    wanted = wf.matmul(*dense, adjoint_a=a, adjoint_b=b)
                    np.testing.assert_allclose(session.run(found), session.run(wanted))
    with pytest.raises(errors.InvalidArgumentError, match="not support transposes"):
        wf.matmul(operator, x, transpose_a=True)
    assert isinstance(wf.matmul(operator, operator), L.LinearOperator)


def test_functions_of_operators_take_arguments_in_any_way() -> None:
    matrix = np.array([[2.0, 0.5j], [1.0, 1.0]])
    operator, x = L.LinearOperatorFullMatrix(matrix), np.array([[1.0], [2j]])
    with wf.Session() as session:
        wanted = np.linalg.inv(matrix.conj().T)
        for found in (L.inv(operator, True), L.inv(input=operator, adjoint=True)):
            np.testing.assert_allclose(session.run(found.to_dense()), wanted)
        for solved in (L.solve(matrix=operator, rhs=x, adjoint=True), L.solve(operator, x, True)):
            np.testing.assert_allclose(session.run(solved), wanted @ x)
        np.testing.assert_allclose(session.run(L.diag_part(operator, k=0)), [2, 1])
        found = L.matvec(operator, x[:, 0], adjoint_a=True)
        np.testing.assert_allclose(session.run(found), matrix.conj().T @ x[:, 0])
    with pytest.raises(errors.InvalidArgumentError, match="does not take k, got 1"):
        L.diag_part(operator, k=1)
    with pytest.raises(errors.InvalidArgumentError, match="not support transposes"):
        L.matvec(operator, x[:, 0], transpose_a=True)


class Bare(L.LinearOperator):
    """An operator that defines nothing."""


class Shaped(Bare):
    def _shape(self) -> Any:
        return wf.TensorShape([2, 3])


class Unknown(Bare):
    def _shape(self) -> Any:
        return wf.TensorShape([None, None])


TALL = {"is_square": False}
UNDEFINED: dict[str, Callable[[], Any]] = {
    "does not define its shape": lambda: Bare("float32").shape,
    "Unknown does not define its shape": lambda: Unknown("float32").shape_tensor(),
    "Shaped does not define its matrix product": lambda: Shaped("float32").matmul(
        np.ones((3, 1), "f")
    ),
    "requires a non-singular square": lambda: Shaped("float32", **TALL).solve([[1.0], [2.0]]),
    "exclude this": lambda: Shaped("float32", is_non_singular=False).solve([[1.0], [2.0]]),
    "has no inverse": lambda: Shaped("float32", **TALL).inverse(),
    "no inverse": lambda: Shaped("float32", is_non_singular=False).inverse(),
    "a determinant requires square": lambda: Shaped("float32", **TALL).determinant(),
    "requires square matrices, got": lambda: Shaped("float32", **TALL).log_abs_determinant(),
    "require the hint is_self_adjoint": lambda: Shaped("float32").eigvals(),
}


def test_what_an_operator_does_not_define() -> None:
    with Parts() as parts:
        for words, use in UNDEFINED.items():
            with parts.part(words), pytest.raises(errors.UnimplementedError, match=words):
                use()
        for hint in ("is_non_singular", "is_self_adjoint"):
            with parts.part(hint), pytest.raises(errors.InvalidArgumentError, match="is_square=F"):
                Bare("float32", is_square=False, **{hint: True})
    assert Bare("float32", is_positive_definite=True).is_non_singular is True

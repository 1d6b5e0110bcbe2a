from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from weft_testing.cases import complex_normal, normal
from weft_testing.evaluate import evaluate

import weft as wf
from weft_graph.ir.builder import constant, out
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_tensor import dtypes, errors


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as graph:
        yield graph


def feed(shape: Any, dtype: str = "float64") -> Output:
    return out("Placeholder", (), {"dtype": dtypes.as_dtype(dtype), "shape": shape})


def test_matmul_chooses_the_op_by_rank() -> None:
    a, b = constant(normal(3, 4)), constant(normal(4, 5))
    assert (a @ b).node.type == "MatMul"
    batch = wf.matmul(constant(normal(2, 3, 4)), b)
    assert batch.node.type == "BatchMatMulV2"
    assert batch.dims == (2, 3, 5)
    assert wf.matmul(feed(None), b).node.type == "BatchMatMulV2"


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("mode", ["transpose_a", "adjoint_a", "transpose_b", "adjoint_b"])
def test_transposes_and_adjoints_of_complex_matrices(rank: int, mode: str) -> None:
    x, y = (complex_normal(*(2,) * (rank - 2), 3, 3, seed=seed) for seed in (0, 1))
    turned = (x if mode.endswith("a") else y).swapaxes(-1, -2)
    if mode.startswith("adjoint"):
        turned = turned.conj()
    expected = turned @ y if mode.endswith("a") else x @ turned
    result = wf.matmul(constant(x), constant(y), **{mode: True})  # type: ignore[arg-type]
    np.testing.assert_allclose(evaluate(result), expected)


def test_bad_products_are_refused() -> None:
    a = constant(normal(3, 4))
    with pytest.raises(errors.InvalidArgumentError, match=r"4 and 3.*\[3,4\] and \[3,4\]"):
        wf.matmul(a, a)
    with pytest.raises(errors.InvalidArgumentError, match="not both"):
        wf.matmul(a, a, transpose_a=True, adjoint_a=True)
    with pytest.raises(errors.InvalidArgumentError, match="rank"):
        wf.matmul(a, constant(normal(4)))
    with pytest.raises(errors.InvalidArgumentError, match=r"2 and 3|3 and 2"):
        wf.matmul(constant(normal(2, 3, 4)), constant(normal(3, 4, 5)))


def test_matvec_and_trace() -> None:
    a, x = normal(2, 3, 4), normal(2, 4)
    np.testing.assert_allclose(evaluate(wf.linalg.matvec(a, x)), np.einsum("bij,bj->bi", a, x))
    np.testing.assert_allclose(evaluate(wf.trace(a)), np.trace(a, axis1=1, axis2=2))


@pytest.mark.parametrize(
    ("a", "b", "axes"),
    [
        ((3, 4), (4, 5), 1),
        ((3, 4), (4, 5), 0),
        ((3, 4, 5), (4, 5, 2), 2),
        ((3, 4, 5), (5, 2, 4), [[1, 2], [2, 0]]),
        ((3, 4, 5), (2, 3), [0, 1]),
        ((3, 4), (3, 4), [[-2, -1], [0, 1]]),
        ((4,), (4,), 1),
    ],
)
def test_tensordot(a: Any, b: Any, axes: Any) -> None:
    x, y = normal(*a), normal(*b, seed=1)
    expected = np.tensordot(x, y, axes)
    result = wf.tensordot(constant(x), constant(y), axes)
    assert result.dims == expected.shape
    np.testing.assert_allclose(evaluate(result), expected)
    p, q = feed((None,) * len(a)), feed((None,) * len(b))
    dynamic = wf.tensordot(p, q, axes)
    np.testing.assert_allclose(evaluate(dynamic, {p: x, q: y}), expected)
    p, q = feed(None), feed(None)
    late = wf.tensordot(p, q, axes)
    assert late.dims is None
    slopes = wf.gradients(late, [p, q])
    found = [evaluate(each, {p: x, q: y}) for each in (late, *slopes)]
    np.testing.assert_allclose(found[0], expected)
    u, v = constant(x), constant(y)
    wanted = [evaluate(each) for each in wf.gradients(wf.tensordot(u, v, axes), [u, v])]
    for slope, exact in zip(found[1:], wanted, strict=True):
        np.testing.assert_allclose(slope, exact)


def test_tensordot_refuses_axes_that_do_not_fit() -> None:
    x, y = constant(normal(3, 4)), constant(normal(3, 5))
    for axes in (1, 3, [[0], [0, 1]], [0, 1, 2], [0, 5]):
        with pytest.raises(errors.InvalidArgumentError):
            wf.tensordot(x, y, axes)
    p = feed(None)
    for axes, message in (([[0], [2]], "out of range"), ([[1], [1]], "sizes of axes must agree")):
        with pytest.raises(errors.InvalidArgumentError, match=message):
            evaluate(wf.tensordot(p, y, axes), {p: normal(3, 4)})
    fed = wf.placeholder(wf.int32)
    product = wf.tensordot(x, y, fed)
    np.testing.assert_allclose(
        evaluate(product, {fed: [[0], [0]]}), np.tensordot(normal(3, 4), normal(3, 5), [[0], [0]])
    )


EQUATIONS = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ba,b", (2, 3), (2,)),
    ("ij->ji", (2, 3)),
    ("ij->", (2, 3)),
    ("ij->i", (2, 3)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("iji->j", (3, 2, 3)),
    ("i,i->", (3,), (3,)),
    ("i,j->ij", (3,), (4,)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("bqhd,bkhd->bhqk", (2, 3, 2, 4), (2, 5, 2, 4)),
    ("bhqk,bkhd->bqhd", (2, 2, 3, 5), (2, 5, 2, 4)),
    ("ijk,ljm->ilkm", (2, 3, 4), (5, 3, 2)),
    ("ijk,jk->i", (2, 3, 4), (3, 4)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    ("ij,ij,ij->j", (2, 3), (2, 3), (2, 3)),
    ("...ij,...jk->...ik", (2, 3, 4), (4, 5)),
    ("...ij,...jk->...ik", (2, 1, 3, 4), (6, 4, 5)),
    ("...i->...", (2, 3, 4)),
    ("...", (2, 3)),
    ("i,->i", (3,), ()),
    ("aij,b->ij", (2, 3, 4), (5,)),
]


@pytest.mark.parametrize("row", EQUATIONS, ids=lambda row: row[0])
def test_einsum(row: Any) -> None:
    equation, *shapes = row
    arrays = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]
    expected = np.einsum(equation, *arrays)
    result = wf.einsum(equation, *map(constant, arrays))
    assert result.dims == expected.shape
    np.testing.assert_allclose(evaluate(result), expected, atol=1e-12)
    feeds = [feed((None,) * len(shape)) for shape in shapes]
    dynamic = wf.einsum(equation, *feeds)
    got = evaluate(dynamic, dict(zip(feeds, arrays, strict=True)))
    np.testing.assert_allclose(got, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3)]),
        ("ij,jk->ik", [(2, 3), (4, 5)]),
        ("ij->k", [(2, 3)]),
        ("ij->ii", [(2, 3)]),
        ("ijk->i", [(2, 3)]),
        ("i1->i", [(2, 3)]),
        ("ii->i", [(2, 3)]),
    ],
)
def test_einsum_refuses_what_does_not_fit(equation: str, shapes: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        wf.einsum(equation, *[constant(normal(*shape)) for shape in shapes])


def test_narrow_products_accumulate_in_float32() -> None:
    ones = np.full((1, 5000), 1.0)
    for dtype in ("float16", "bfloat16"):
        x = constant(ones.astype(dtypes.as_dtype(dtype).numpy))
        result = evaluate(wf.matmul(x, x, transpose_b=True))
        np.testing.assert_allclose(float(result[0, 0]), 5000, rtol=4e-3)


def test_products_of_sparse_matrices() -> None:
    a, b = normal(3, 2), normal(3, 4)
    product = wf.sparse_matmul(constant(a), constant(b), True, False, True, name="p")
    np.testing.assert_allclose(evaluate(product), a.T @ b)
    assert product.name == "p:0"
    narrow = wf.cast(constant(a), wf.bfloat16)
    for x, y, wanted in (
        (narrow, narrow, wf.float32),
        (narrow, wf.cast(constant(a), wf.float32), wf.float32),
    ):
        assert wf.sparse_matmul(x, y, True).dtype == wanted
    for hint in (False, True):
        mixed = wf.matmul(narrow, wf.cast(constant(a), wf.float32), True, a_is_sparse=hint)
        assert mixed.dtype == wf.float32
    assert wf.matmul(narrow, narrow, True, a_is_sparse=True).dtype == wf.bfloat16


@pytest.mark.parametrize(
    ("equation", "shapes", "message"),
    [
        ("ij,jk", [(2, 3), (3, 4)], "requires '->'"),
        ("ij,jk->ik", [(2, 3), (4, 5)], "axis 'j'"),
        ("ij,jk->ik", [(1, 2, 3), (3, 4)], "does not fit shape"),
        ("...ij->j", [(3,)], "does not fit shape"),
        ("ij->k", [(2, 3)], r"no operand: \['k'\]"),
        ("...ij,jk->ik", [(2, 2, 3), (3, 4)], "lacks '...'"),
        ("...i,...i->...", [(5, 2), (7, 2)], "5 and 7"),
    ],
)
def test_the_op_einsum_refuses_what_does_not_fit(equation: str, shapes: Any, message: str) -> None:
    values = [constant(normal(*shape)) for shape in shapes]
    with pytest.raises(errors.InvalidArgumentError, match=message):
        wf.raw_ops.Einsum(inputs=values, equation=equation)
    if "->" in equation and "k'" not in message:
        hidden = [wf.placeholder_with_default(value, None) for value in values]
        with pytest.raises(errors.InvalidArgumentError, match=message):
            evaluate(wf.raw_ops.Einsum(inputs=hidden, equation=equation))

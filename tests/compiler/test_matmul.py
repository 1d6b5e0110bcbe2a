"""Products of matrices: all edges of tiles and blocks, strides, and processors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft_compiler.blas import addresses
from weft_compiler.codegen.options import Options
from weft_compiler.interpreter import interpret
from weft_compiler.ir.parser import parse
from weft_compiler.ir.verifier import verify
from weft_compiler.layouts import PANEL_BYTES
from weft_compiler.native.program import NativeProgram, load
from weft_tensor import errors

SIZES = (0, 1, 2, 5, 14, 15, 16, 17, 33, 70, 130, 300)
CPUS = ("", "x86-64-v3", "x86-64")


def text(routine: str, m: int, n: int, k: int, dtype: str, turned: Any, add: int) -> str:
    """A program that multiplies, with `a` or `b` given as their transposes."""
    a, b = ([k, m] if turned[0] else [m, k]), ([n, k] if turned[1] else [k, n])
    steps = [(1, a[1]) if turned[0] else (a[1], 1), (1, b[1]) if turned[1] else (b[1], 1)]
    start = "0, 0"
    return f"""
program product(a: {dtype}{a}, b: {dtype}{b}, d: {dtype}[{m}, {n}]) -> (c: {dtype}[{m}, {n}]):
  for i in {m}:
    for j in {n}:
      c[i, j] = d[i, j]
  call {routine}(a[{start}], b[{start}], c[{start}], m={m}, n={n}, k={k}, \
a_row={steps[0][0]}, a_column={steps[0][1]}, b_row={steps[1][0]}, b_column={steps[1][1]}, \
c_row={n}, accumulate={add})
"""


def product(m: int, n: int, k: int, dtype: str, turned: Any, add: int, cpu: str) -> NativeProgram:
    return load(parse(text("matmul", m, n, k, dtype, turned, add)), Options(cpu=cpu))


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_of_all_shapes(dtype: str, cpu: str) -> None:
    random = np.random.default_rng(len(dtype + cpu))
    for _ in range(12):
        m, n, k = (int(size) for size in random.choice(SIZES, 3))
        turned, add = random.integers(0, 2, 2).tolist(), int(random.integers(0, 2))
        a, b = random.normal(size=(m, k)).astype(dtype), random.normal(size=(k, n)).astype(dtype)
        d = random.normal(size=(m, n)).astype(dtype)
        given = [np.ascontiguousarray(x.T) if t else x for x, t in zip((a, b), turned, strict=True)]
        (c,) = product(m, n, k, dtype, turned, add, cpu)(*given, d)
        exact = a.astype(np.float64) @ b.astype(np.float64) + add * d
        bound = 2 * (k + 1) * np.finfo(dtype).eps
        np.testing.assert_allclose(c, exact, rtol=bound, atol=bound, err_msg=f"{m}x{n}x{k}")


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_few_rows_times_a_large_matrix(dtype: str, cpu: str) -> None:
    """Each panel is used by all rows: of one tile, of some, and of the most."""
    random = np.random.default_rng(len(dtype + cpu))
    for m, turned in ((2, False), (9, True), (70, True), (252, False)):
        n, k = 333, 600
        a, b = random.normal(size=(m, k)).astype(dtype), random.normal(size=(k, n)).astype(dtype)
        d = random.normal(size=(m, n)).astype(dtype)
        given = np.ascontiguousarray(a.T) if turned else a
        for add in (0, 1):
            (c,) = product(m, n, k, dtype, (turned, False), add, cpu)(given, b, d)
            exact = a.astype(np.float64) @ b.astype(np.float64) + add * d
            bound = 2 * (k + 1) * np.finfo(dtype).eps
            np.testing.assert_allclose(c, exact, rtol=bound, atol=bound, err_msg=f"{m} rows")


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_small_products(dtype: str, cpu: str) -> None:
    """Each size is a function: of whole registers, of parts of them, and of turned matrices."""
    random = np.random.default_rng(len(dtype + cpu))
    sizes = [(1, 4, 1), (16, 16, 16), (33, 37, 9), (3, 7, 40), (29, 20, 17), (15, 31, 5)]
    sizes += [tuple(random.integers(1, 24, 3).tolist()) for _ in range(4)]
    for at, (m, n, k) in enumerate(sizes):
        turned = [bool(at & 1), bool(at & 2)]
        a, b = random.normal(size=(m, k)).astype(dtype), random.normal(size=(k, n)).astype(dtype)
        given = [np.ascontiguousarray(x.T) if t else x for x, t in zip((a, b), turned, strict=True)]
        program = parse(text("small_matmul", m, n, k, dtype, turned, 0))
        verify(program)
        (c,) = load(program, Options(cpu=cpu))(*given, np.full((m, n), np.nan, dtype))
        exact = a.astype(np.float64) @ b.astype(np.float64)
        bound = 2 * (k + 1) * np.finfo(dtype).eps
        np.testing.assert_allclose(c, exact, rtol=bound, atol=bound, err_msg=f"{m}x{n}x{k}")
        (same,) = interpret(program, *given, np.zeros((m, n), dtype))
        np.testing.assert_allclose(same, exact, rtol=bound, atol=bound)


def test_small_products_add_to_nothing() -> None:
    with pytest.raises(errors.InternalError, match="accumulate=0"):
        verify(parse(text("small_matmul", 4, 4, 4, "float32", (0, 0), 1)))


def packed(m: int, n: int, k: int, dtype: str, add: int, wide: int = 0) -> str:
    """Return a program that multiplies with panels; the rows of c are `wide` elements apart."""
    columns = PANEL_BYTES // np.dtype(dtype).itemsize
    panels = -(-n // columns)
    return f"""
program product(a: {dtype}[{m}, {k + 3}], b: {dtype}[{panels}, {k}, {columns}], \
d: {dtype}[]) -> (c: {dtype}[{m}, {n + wide}]):
  for i in {m}:
    for j in {n + wide}:
      c[i, j] = d[]
  call matmul_packed(a[0, 0], b[0, 0, 0], c[0, 0], m={m}, n={n}, k={k}, a_row={k + 3}, \
c_row={n + wide}, accumulate={add})
"""


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_with_packed_matrices(dtype: str, cpu: str) -> None:
    random = np.random.default_rng(len(dtype + cpu))
    sizes = [random.choice(SIZES[1:], 3) for _ in range(8)]
    for m, n, k in [*sizes, (1, 70, 33), (1, 5, 1), (1, 33, 300), (2, 16, 259), (3, 1, 7)]:
        add, wide = (int(x) for x in random.integers(0, 2, 2))
        program = parse(packed(m, n, k, dtype, add, wide))
        verify(program)
        a = random.normal(size=(m, k + 3)).astype(dtype)
        columns = PANEL_BYTES // a.itemsize
        b = random.normal(size=(-(-n // columns), k, columns)).astype(dtype)
        whole = b.swapaxes(0, 1).reshape(k, -1)[:, :n].astype(np.float64)
        seven = np.array(7, dtype)
        (c,) = load(program, Options(cpu=cpu))(a, b, seven)
        exact = a[:, :k].astype(np.float64) @ whole + 7.0 * add
        bound = 2 * (k + 1) * np.finfo(dtype).eps
        np.testing.assert_allclose(c[:, :n], exact, rtol=bound, atol=bound, err_msg=f"{m}x{n}x{k}")
        assert (c[:, n:] == 7).all()
        (by_hand,) = interpret(program, a, b, seven)
        np.testing.assert_allclose(c, by_hand, rtol=bound, atol=bound)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("n=4", "n=33", "b needs 192 elements, but has 96"),
        ("m=2", "m=3", "a needs 15 elements, but has 12"),
        ("c_row=4", "c_row=3", "rows of c overlap"),
        ("k=3", "k=-1", "sizes and strides of at least 0"),
    ],
)
def test_a_call_that_would_read_beyond_panels_is_refused(old: str, new: str, said: str) -> None:
    right = packed(2, 4, 3, "float32", 0)
    verify(parse(right))
    with pytest.raises(errors.InternalError, match=said):
        verify(parse(right.replace(old, new)))


@pytest.mark.skipif(not addresses(), reason="NumPy brings no BLAS that can be called")
@pytest.mark.parametrize("turned", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_by_blas_have_the_bits_of_numpy(dtype: str, turned: tuple[int, int]) -> None:
    random = np.random.default_rng(3)
    for m, n, k in [(1, 1, 9), (1, 70, 33), (70, 1, 33), (3, 2, 1), (16, 16, 16), (33, 70, 130)]:
        a, b = random.normal(size=(m, k)).astype(dtype), random.normal(size=(k, n)).astype(dtype)
        given = [np.ascontiguousarray(x.T) if t else x for x, t in zip((a, b), turned, strict=True)]
        as_given = [x.T if t else x for x, t in zip(given, turned, strict=True)]
        d = np.full((m, n), 7, dtype)
        program = parse(text("gemm", m, n, k, dtype, turned, 0))
        verify(program)
        np.testing.assert_array_equal(load(program)(*given, d)[0], as_given[0] @ as_given[1])
        (c,) = load(parse(text("gemm", m, n, k, dtype, turned, 1)))(*given, d)
        np.testing.assert_allclose(c, a @ b + d, rtol=1e-4)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("a_row=3", "a_row=2", "columns of a were required to be dense"),
        ("b_column=1", "b_column=2", "columns of b were required to be dense"),
        ("k=3", "k=0", "sizes of at least 1"),
        ("m=2", "m=3", "a needs 9 elements, but has 6"),
        ("float32", "int32", "element type float32 or float64"),
    ],
)
def test_a_call_of_blas_that_would_read_elsewhere_is_refused(old: str, new: str, said: str) -> None:
    right = text("gemm", 2, 4, 3, "float32", (0, 0), 0)
    verify(parse(right))
    with pytest.raises(errors.InternalError, match=said):
        verify(parse(right.replace(old, new)))


@pytest.mark.parametrize("add", [0, 1])
@pytest.mark.parametrize("k", [0, 1, 4, 7, 300])
def test_a_row_times_a_matrix(k: int, add: int) -> None:
    random = np.random.default_rng(k)
    a, b, d = (random.normal(size=size).astype(np.float32) for size in ((1, k), (k, 70), (1, 70)))
    (c,) = product(1, 70, k, "float32", (0, 0), add, "")(a, b, d)
    np.testing.assert_allclose(c, a @ b + add * d, rtol=1e-4, atol=1e-4)


def test_a_product_touches_its_own_elements_only() -> None:
    """Rows of the result lie in a larger one, whose other elements stay as they are."""
    program = """
program inside(a: float32[5, 7], b: float32[7, 3]) -> (c: float32[9, 20]):
  for i in 9:
    for j in 20:
      c[i, j] = 7.0
  call matmul(a[0, 0], b[0, 0], c[2, 4], m=5, n=3, k=7, a_row=7, a_column=1, b_row=3, b_column=1, \
c_row=20, accumulate=0)
"""
    a, b = np.ones((5, 7), np.float32), np.ones((7, 3), np.float32)
    expected = np.full((9, 20), 7, np.float32)
    expected[2:7, 4:7] = 7 * np.ones((5, 3))
    b[:] = 2
    expected[2:7, 4:7] = 14
    np.testing.assert_array_equal(load(parse(program))(a, b)[0], expected)

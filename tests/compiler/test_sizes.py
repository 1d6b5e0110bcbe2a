"""Programs that differ in a size become one that takes it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from weft_compiler.interpreter import interpret
from weft_compiler.ir.linear_functions import is_same
from weft_compiler.ir.parser import parse
from weft_compiler.ir.program import Program
from weft_compiler.ir.verifier import verify
from weft_compiler.lower.request_numbers import RequestNumbers
from weft_compiler.lower.shape_polymorphism import (
    PolymorphicProgram,
    extract_numbers,
    generalize,
)
from weft_compiler.native.program import load
from weft_compiler.passes.pipeline import optimize
from weft_compiler.routines.int8 import pack_bytes
from weft_compiler.sharing import SharedCode
from weft_tensor import errors


def mean(n: int, extra: int = 3) -> Program:
    return parse(f"""
program mean(x: float32[{n}, 5]) -> (y: float32[5], z: float32[{2 * n + 1}, 5]):
  alloc t: float32[{n}, 5]
  for i in {n}:
    for j in 5:
      t[i, j] = x[i, j] * {extra}.0
  for j in 5:
    var s = 0.0
    for i in {n}:
      s add= t[i, j]
    y[j] = s / {n}.0
  for i in {2 * n + 1}:
    for j in 5:
      z[i, j] = t[clamp(i - 1, 0, {n - 1}), j]
""")


def product(n: int) -> Program:
    return parse(f"""
program product(x: float32[{n}, 6], w: float32[6, 4]) -> (y: float32[{n}, 4], g: float32[6, 4]):
  call gemm(x[0, 0], w[0, 0], y[0, 0], m={n}, n=4, k=6, a_row=6, a_column=1, b_row=4, b_column=1, c_row=4, accumulate=0)
  call gemm(x[0, 0], y[0, 0], g[0, 0], m=6, n=4, k={n}, a_row=1, a_column=6, b_row=4, b_column=1, c_row=4, accumulate=0)
""")  # noqa: E501


def family(one: Program, other: Program) -> PolymorphicProgram | None:
    return generalize(extract_numbers(one), extract_numbers(other), one)


def results(of: PolymorphicProgram, lowered: Program, arrays: list[Any]) -> list[Any]:
    """Return the results of a polymorphic program for one size, interpreted and compiled."""
    size = of.size_of(extract_numbers(lowered))
    assert size is not None
    given = [np.array(size), *arrays]
    optimized = optimize(of.program).program
    assert str(parse(str(optimized))) == str(optimized)
    small = of.at(optimized, lowered)
    return [interpret(small, *given), load(small)(*given)]


@pytest.mark.parametrize("n", [2, 5, 8, 32])
@pytest.mark.parametrize("make", [mean, product])
def test_one_program_is_for_many_sizes(make: Any, n: int) -> None:
    of = family(make(8), make(5))
    assert of is not None
    verify(of.program)
    rng = np.random.default_rng(n)
    arrays = [rng.normal(size=b.shape).astype(np.float32) for b in make(n).inputs]

    wanted = interpret(make(n), *arrays)

    for found in results(of, make(n), arrays):
        for value, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(value, want, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("n", [2, 5, 32])
def test_one_product_of_bytes_is_for_many_sizes(n: int) -> None:
    def bytes_of(rows: int) -> Program:
        return parse(f"""
program product(x: uint8[{rows}, 6], w: int8[1, 2, 32, 4], sums: int32[1, 32]) \
-> (y: int32[{rows}, 7]):
  call matmul_bytes(x[0, 0], w[0, 0, 0, 0], sums[0, 0], y[0, 0], m={rows}, n=7, k=6, a_row=6, \
c_row=7)
""")

    of = family(bytes_of(8), bytes_of(5))
    assert of is not None
    rng = np.random.default_rng(n)
    panels, sums = pack_bytes(rng.integers(-128, 128, (6, 7)).astype(np.int8))
    arrays = [rng.integers(0, 256, (n, 6)).astype(np.uint8), panels, sums]
    (wanted,) = interpret(bytes_of(n), *arrays)
    for (found,) in results(of, bytes_of(n), arrays):
        np.testing.assert_array_equal(found, wanted)


def test_what_differs_otherwise_is_another_program() -> None:
    of = family(mean(8), mean(5))
    assert of is not None
    assert of.size_of(extract_numbers(mean(7))) == 7
    assert of.size_of(extract_numbers(mean(7, extra=4))) is None  # a number that is no size
    assert of.size_of(extract_numbers(product(7))) is None
    assert of.size_of(extract_numbers(mean(1))) is None
    assert of.size_of(extract_numbers(mean(64))) is None  # more than there is memory for
    assert family(mean(8), mean(1)) is None
    assert family(mean(8), mean(8)) is None
    assert family(mean(8, 2), mean(5, 4)) is None


def attention(n: int) -> Program:
    """Scores of two heads, their softmax without maximum, and a sum of values; n is a length."""
    small = "small_matmul" if n < 6 else "gemm"
    return parse(f"""
program attention(q: float32[2, {n}, 4], k: float32[2, {n}, 4], rows: float32[{2 * n}, 4]) \
-> (p: float32[2, {n}, {n}], o: float32[2, {n}, 4], t: float32[4, {n}], z: float32[{2 * n}, 4]):
  alloc s: float32[2, {n}, {n}]
  for h in 2:
    call {small}(q[h, 0, 0], k[h, 0, 0], s[h, 0, 0], m={n}, n={n}, k=4, a_row=4, a_column=1, \
b_row=1, b_column=4, c_row={n}, accumulate=0)
  for h in 2:
    for i in {n}:
      var total = 0.0
      for j in {n}:
        total add= exp(s[h, i, j])
      for j in {n}:
        p[h, i, j] = exp(s[h, i, j]) / total
  for h in 2:
    call gemm(p[h, 0, 0], k[h, 0, 0], o[h, 0, 0], m={n}, n=4, k={n}, a_row={n}, a_column=1, \
b_row=4, b_column=1, c_row=4, accumulate=0)
  for j in 4:
    for i in {n}:
      t[j, i] = q[1, i, j] * 2.0
  for i in {2 * n}:
    for j in 4:
      z[i, j] = q[floor_div(i, {n}), floor_mod(i, {n}), j] \
+ rows[floor_div(i, {n}) * {n} + floor_mod(i, {n}), j]
""")


def counted(n: int) -> Program:
    """The first number of a row that is not 0, found by a loop, and a table that limits sizes."""
    return parse(f"""
program counted(x: float32[3, {n}], table: float32[32]) -> (y: float32[3, {n}]):
  for i in 3:
    for j in {n}:
      y[i, j] = x[i, j] + table[j]
  for i in 3:
    var at = 0
    while at < {n}:
      let here = at
      if bit_and(here >= 0, here < {n}):
        y[i, here] = y[i, here] * 2.0
      at = at + 1
""")


@pytest.mark.parametrize("n", [2, 5, 8, 20])
@pytest.mark.parametrize("make", [attention, counted])
def test_sizes_of_inner_axes_are_shared(make: Any, n: int) -> None:
    of = family(make(8), make(5))
    assert of is not None
    lowered = make(n)
    made = SharedCode(of).made(lowered, extract_numbers(lowered), RequestNumbers((n,), ""))
    assert made is not None
    rng = np.random.default_rng(n)
    arrays = [rng.normal(size=b.shape).astype(np.float32) for b in lowered.inputs]

    assert made.program is not None
    found = made.program(np.array(made.size), *arrays)

    for value, want in zip(found, interpret(lowered, *arrays), strict=True):
        np.testing.assert_allclose(value, want, rtol=2e-5, atol=1e-5)


def test_a_table_limits_the_sizes() -> None:
    of = family(counted(8), counted(5))
    assert of is not None
    assert of.size_of(extract_numbers(counted(32))) == 32
    assert of.size_of(extract_numbers(counted(33))) is None


def test_strides_that_a_pass_has_hidden_are_refused() -> None:
    of = family(attention(8), attention(5))
    assert of is not None
    text = str(of.program)
    hidden = replace(
        parse(text), outputs=(replace(of.program.outputs[0], shape=(5, 5)), *of.program.outputs[1:])
    )
    with pytest.raises(errors.UnimplementedError, match="unknown strides"):
        of.with_runtime_strides(hidden)


def test_sizes_of_calls_are_within_what_is_declared() -> None:
    text = str(product(8)).replace("m=8", "m=8: 9")
    with pytest.raises(errors.InternalError, match="m must be from"):
        verify(parse(text))
    verify(parse(text.replace("m=8: 9", "m=8: 7")))


def test_zeros_of_both_signs_are_two_numbers() -> None:
    assert is_same(0.0, 0.0) and is_same(float("nan"), float("nan")) and not is_same(0.0, -0.0)

"""Reports of a program's loop nests: operations, bytes, and times."""

from __future__ import annotations

import numpy as np
import pytest

from weft_compiler.codegen.options import Options
from weft_compiler.ir.nests import bytes_moved, flops, nests_of
from weft_compiler.ir.parser import parse
from weft_compiler.native.program import load
from weft_compiler.native.roofline import roofline

SOFTMAX = parse("""
program softmax(x: float32[64, 1000]) -> (y: float32[64, 1000], s: float32[]):
  alloc top: float32[64]
  parallel i in 64:
    var m = -inf
    for j in 1000:
      m maximum= x[i, j]
    top[i] = m
  for i in 64:
    alloc row: float32[1000]
    vector j in 1000:
      row[j] = exp(x[i, j] - top[i])
    vector j in 1000:
      y[i, j] = row[j]
  var total = 0.0
  for i in 64:
    total add= top[i]
  s[] = total
""")


def test_each_loop_nest_has_its_operations_and_bytes() -> None:
    nests = nests_of(SOFTMAX)
    assert [flops(nest) for nest in nests] == [64_000, 128_000, 64]
    x, top = 4 * 64_000, 4 * 64
    assert [bytes_moved(nest, SOFTMAX) for nest in nests] == [x + top, x + top + x, top + 4]


def test_loops_of_unknown_length_have_no_number_of_operations() -> None:
    program = parse("""
program p(n: int64[], x: float32[8]) -> (y: float32[8]):
  for i in n[]:
    y[minimum(i, 7)] = x[minimum(i, 7)] * 2.0
""")
    (nest,) = nests_of(program)
    assert flops(nest) is None
    assert bytes_moved(nest, program) >= 8


def test_products_count_their_matrices_and_twice_their_work() -> None:
    program = parse("""
program p(a: float32[6, 5], b: float32[5, 7]) -> (c: float32[6, 7]):
  call gemm(a[0, 0], b[0, 0], c[0, 0], m=6, n=7, k=5, a_row=5, a_column=1, b_row=7, b_column=1, \
c_row=7, accumulate=0)
""")
    (nest,) = nests_of(program)
    assert flops(nest) == 2 * 6 * 5 * 7
    assert bytes_moved(nest, program) == 4 * (30 + 35 + 42)


def test_neighbors_that_several_places_load_count_once() -> None:
    program = parse("""
program p(x: float32[100]) -> (y: float32[98]):
  for i in 98:
    y[i] = x[i] + x[i + 1] + x[i + 2]
""")
    (nest,) = nests_of(program)
    assert flops(nest) == 2 * 98
    assert bytes_moved(nest, program) == 4 * (100 + 98)


def test_a_program_with_clocks_computes_the_same_and_tells_the_time_of_each_nest() -> None:
    x = np.random.default_rng(1).normal(size=(64, 1000)).astype(np.float32)
    plain = load(SOFTMAX, Options(threads=False))
    clocked = load(SOFTMAX, Options(threads=False, clocks=True))
    for got, want in zip(clocked(x), plain(x), strict=True):
        np.testing.assert_array_equal(got, want)
    times = clocked.times()
    assert times.shape == (3,)
    assert times.min() >= 0 < times.sum()


def test_the_limits_of_the_machine_are_measured_once() -> None:
    found = roofline()
    assert min(found.bandwidth, found.float32, found.float64) > 0
    assert roofline() is found


@pytest.mark.parametrize("text", ["let a = 1.0\n  y[] = a\n", "y[] = 1.0\n"])
def test_a_program_without_loops_is_one_nest(text: str) -> None:
    program = parse(f"program p() -> (y: float32[]):\n  {text}")
    assert len(nests_of(program)) == 1

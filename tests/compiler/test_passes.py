"""Passes on programs that are computed or made from a pattern; see test_passes_golden.py too."""

from __future__ import annotations

import numpy as np
import pytest

from weft_compiler.interpreter import interpret
from weft_compiler.ir.parser import parse
from weft_compiler.ir.program import Allocate, For, Program, Store, walk
from weft_compiler.ir.verifier import verify
from weft_compiler.native.program import load
from weft_compiler.passes.framework import Context
from weft_compiler.passes.fuse import fuse_loops
from weft_compiler.passes.partition_loops import partition_loops
from weft_compiler.passes.pipeline import CONTRACT, FUSE, TILE
from weft_compiler.passes.rematerialize import rematerialize
from weft_compiler.passes.sink import sink_temporaries
from weft_compiler.passes.sparse_attention.rewrite import skip_masked_columns
from weft_compiler.passes.tile import tile_rows

# ------------------------------------------------------------------------------ rows in blocks


def _scores(first: str = "0, 0", m: int = 1024) -> str:
    return (
        f"call gemm(q[{first}], k[0, 0], s[0, 0], m={m}, n=1024, k=8, a_row=8, a_column=1, "
        "b_row=1, b_column=8, c_row=1024, accumulate=0)\n"
    )


def _results(first: str = "0, 0", m: int = 1024, strides: str = "a_row=1024, a_column=1") -> str:
    return (
        f"call gemm(s[0, 0], v[0, 0], y[{first}], m={m}, n=8, k=1024, {strides}, "
        "b_row=8, b_column=1, c_row=8, accumulate=0)\n"
    )


SHAPE = "float32[1024, 8]"
ATTENTION = f"program p(q: {SHAPE}, k: {SHAPE}, v: {SHAPE}) -> (y: {SHAPE}):\n"


def test_a_large_matrix_between_products_is_made_in_blocks_of_rows() -> None:
    program = parse(
        f"""\
{ATTENTION}  alloc s: float32[1024, 1024]
  {_scores()}  for i in 1024:
    for j in 1024:
      s[i, j] = exp(s[i, j] * q[i, 0])
  {_results()}"""
    )
    verify(program)
    made = tile_rows(program, Context())
    verify(made)
    row = "s_block * 256"
    assert (
        str(made)
        == f"""\
{ATTENTION}  for s_block in 4:
    alloc s: float32[256, 1024]
    {_scores(f"{row}, 0", 256)}    for i in 256:
      for j in 1024:
        s[i, j] = exp(s[i, j] * q[{row} + i, 0])
    {_results(f"{row}, 0", 256)}"""
    )


@pytest.mark.parametrize(
    "rest",
    [
        f"for i in 1024:\n    for j in 1024:\n      s[i, j] = s[j, i]\n  {_results()}",
        f"{_results(strides='a_row=1, a_column=1024')}  for i in 1024:\n    y[i, 0] = s[i, i]\n",
        "call gemm(q[0, 0], s[0, 0], y[0, 0], m=1024, n=8, k=8, a_row=8, a_column=1, b_row=1, "
        "b_column=8, c_row=8, accumulate=0)\n",
        f"var t = 0.0\n  for i in 1024:\n    t add= s[i, i]\n"
        f"  for h in 1024:\n    s[h, 0] = t\n  {_results()}",
    ],
    ids=["other rows", "columns", "second operand", "a sum of all rows"],
)
def test_what_other_rows_need_is_made_as_a_whole(rest: str) -> None:
    program = parse(f"{ATTENTION}  alloc s: float32[1024, 1024]\n  {_scores()}  {rest}")
    verify(program)
    assert str(tile_rows(program, Context())) == str(program)


CHECKED = """\
  alloc t: float32[8]
  for i in 8:
    t[i] = x[i] * 2.0
  for j in 4:
    check z[j, 0] < 1.0, "small"
  for k in 8:
    y[k] = t[k] + 1.0
  check w[0] < 1.0, "smaller"
  w[1] = 2.0
  check x[0] < 1.0, "smallest"
"""


@pytest.mark.parametrize("first", [0, 1024])
def test_products_that_sum_over_rows_add_up_what_blocks_give(first: int) -> None:
    """Return True if the other operand is a whole matrix."""
    head = f"program p(q: {SHAPE}, k: {SHAPE}, v: float32[2048, 8]) -> (y: {SHAPE}):\n"
    strides = "a_row=1, a_column=1024, b_row=8, b_column=1, c_row=8"
    program = parse(
        f"""\
{head}  alloc s: float32[1024, 1024]
  {_scores()}  \
call gemm(s[0, 0], v[{first}, 0], y[0, 0], m=1024, n=8, k=1024, {strides}, accumulate=0)
"""
    )
    verify(program)
    made = tile_rows(program, Context())
    verify(made)
    row, start = "s_block * 256", f"{first} + s_block * 256" if first else "s_block * 256"
    assert (
        str(made)
        == f"""\
{head}  for i in 1024:
    for i_ in 8:
      y[i, i_] = 0.0
  for s_block in 4:
    alloc s: float32[256, 1024]
    {_scores(f"{row}, 0", 256)}    \
call gemm(s[0, 0], v[{start}, 0], y[0, 0], m=1024, n=8, k=256, {strides}, accumulate=1)
"""
    )


WEIGHTS = "m=8192, n=8, k=8, a_row=8, a_column=1, b_row=8, b_column=1, c_row=8, accumulate=0"


def _step_of_attention(between: str) -> Program:
    """Something of a matrix of scores, other statements, and more of the same scores."""
    size = 8192
    sizes = f"m={size}, n={size}, k=8, a_row=8, a_column=1, b_row=1, b_column=8"
    rows = f"m={size}, n=8, k={size}, a_row={size}, a_column=1, b_row=8, b_column=1, c_row=8"
    program = parse(
        f"""\
program p(q: float32[{size}, 8], k: float32[{size}, 8], w: float32[8, 8], large: \
float32[{size}, {size}]) -> (z: float32[{size}, 8], g: float32[{size}, 8], o: float32[{size}]):
  alloc s: float32[{size}, {size}]
  alloc e: float32[{size}, {size}]
  alloc top: float32[{size}]
  alloc y: float32[{size}, 8]
  call gemm(q[0, 0], k[0, 0], s[0, 0], {sizes}, c_row={size}, accumulate=0)
  for i in {size}:
    var most = -inf
    for j in {size}:
      most maximum= s[i, j]
    top[i] = most
  for i2 in {size}:
    for j2 in {size}:
      e[i2, j2] = exp(s[i2, j2] - top[i2])
  call gemm(e[0, 0], k[0, 0], y[0, 0], {rows}, accumulate=0)
  {between}
  call gemm(e[0, 0], z[0, 0], g[0, 0], {rows}, accumulate=0)
"""
    )
    verify(program)
    return program


def _shrunk(program: Program) -> Program:
    for each in (FUSE, CONTRACT, TILE):
        program = each(program).program
    return program


def _largest(program: Program) -> int:
    return max(each.buffer.bytes for each in walk(program.body) if isinstance(each, Allocate))


def test_what_a_later_statement_needs_is_computed_again() -> None:
    """Products and elementwise functions are recomputed; small values are kept."""
    program = _step_of_attention(f"call gemm(y[0, 0], w[0, 0], z[0, 0], {WEIGHTS})")
    assert _largest(_shrunk(program)) == 8192 * 8192 * 4
    again = rematerialize(program, Context(), _shrunk)
    verify(again)
    text = str(again)
    assert text.count("exp(") == 2 and text.count("maximum=") == 1
    assert "s_2[i2_2, j2_2] - top[i2_2]" in text and "call gemm(e_2[0, 0], z[0, 0]" in text
    assert _largest(_shrunk(again)) <= 1 << 23


@pytest.mark.parametrize(
    "between",
    [
        f"call gemm(y[0, 0], w[0, 0], z[0, 0], {WEIGHTS})\n  for d in 8192:\n    top[d] = 0.0",
        f"call gemm(y[0, 0], w[0, 0], z[0, 0], {WEIGHTS})\n  for d in 8192:\n    e[d, 0] = 0.0",
        "call gemm(e[0, 0], large[0, 0], z[0, 0], m=8192, n=8, k=8192, a_row=8192, a_column=1, "
        "b_row=8192, b_column=1, c_row=8, accumulate=0)\n  for h in 8192:\n    o[h] = e[0, h]",
    ],
    ids=["what it follows from is changed", "it is changed", "it stays whole nevertheless"],
)
def test_what_cannot_be_or_gains_nothing_is_not_computed_again(between: str) -> None:
    program = _step_of_attention(between)
    assert rematerialize(program, Context(), _shrunk) is program


def test_large_temporaries_are_computed_after_the_routines_before_their_use() -> None:
    """Large temporaries are filled late to shorten their lifetime; small ones are fused instead."""
    size = 1024

    def program_of(columns: int) -> Program:
        return parse(f"""
program late(x: float32[{size}, {columns}], a: float32[8, 8], v: float32[4]) -> \
(y: float32[{size}, {columns}], b: float32[8, 8], w: float32[4]):
  alloc t: float32[{size}, {columns}]
  alloc u: float32[{size}, {columns}]
  for i in {size}:
    for j in {columns}:
      t[i, j] = x[i, j] * 2.0
  for i in {size}:
    for j in {columns}:
      u[i, j] = t[i, j] + 1.0
  call gemm(a[0, 0], a[0, 0], b[0, 0], m=8, n=8, k=8, a_row=8, a_column=1, b_row=8, b_column=1, \
c_row=8, accumulate=0)
  for k in 4:
    check v[k] > 0.0, "positive numbers were required"
    w[k] = v[k]
  for i in {size}:
    for j in {columns}:
      y[i, j] = exp(u[i, j])
""")

    def order(program: Program) -> list[str]:
        moved = sink_temporaries(program, Context())
        verify(moved)
        filled = [
            next(each.buffer for each in walk((statement,)) if isinstance(each, Store))
            if isinstance(statement, For)
            else "call"
            for statement in moved.body
            if not isinstance(statement, Allocate)
        ]
        return filled

    assert order(program_of(8)) == ["t", "u", "call", "w", "y"]
    assert order(program_of(512)) == ["call", "w", "t", "u", "y"]


def test_large_temporaries_are_not_merged_across_routines() -> None:
    """Both loops read x, which is in no cache any more when the second is needed."""

    def loops(columns: int) -> int:
        program = parse(f"""
program apart(x: float32[1024, {columns}], a: float32[8, 8]) -> \
(y: float32[1024, {columns}], b: float32[8, 8], z: float32[1024, {columns}]):
  alloc t: float32[1024, {columns}]
  for i in 1024:
    for j in {columns}:
      y[i, j] = x[i, j] * 2.0
  call gemm(a[0, 0], a[0, 0], b[0, 0], m=8, n=8, k=8, a_row=8, a_column=1, b_row=8, b_column=1, \
c_row=8, accumulate=0)
  for k in 1024:
    for l in {columns}:
      t[k, l] = x[k, l] + 1.0
  call gemm(t[0, 0], a[0, 0], z[0, 0], m=1024, n=8, k=8, a_row={columns}, a_column=1, b_row=8, \
b_column=1, c_row={columns}, accumulate=0)
""")
        merged = fuse_loops(program, Context())
        verify(merged)
        return sum(isinstance(statement, For) for statement in merged.body)

    assert loops(8) == 1
    assert loops(512) == 2


JOINED = "program p(a: float32[3, 10], b: float32[3, 9]) -> (y: float32[3, 19]):\n"


def test_loops_that_join_parts_are_split_where_these_meet() -> None:
    """Unused elements of the other part are not computed."""
    before = """\
  for i in 3:
    for j in 19:
      let left = clamp(j, 0, 9)
      let twice = a[i, left] * 2.0
      let right = clamp(j - 10, 0, 8)
      y[i, j] = where(j < 10, twice, b[i, right])
"""
    after = """\
  for i in 3:
    for j_2 in 10:
      let left = j_2
      let twice = a[i, left] * 2.0
      y[i, j_2] = twice
    for j_3 in 9:
      let right = j_3 + 10 - 10
      y[i, j_3 + 10] = b[i, right]
"""
    program = parse(JOINED + before)
    made = partition_loops(program, Context())
    verify(made)
    assert str(made) == JOINED + after
    x, z = np.arange(30, dtype=np.float32).reshape(3, 10), np.ones((3, 9), np.float32)
    for each in (program, made):
        np.testing.assert_array_equal(interpret(each, x, z)[0], np.hstack([2 * x, z]))


@pytest.mark.parametrize(
    "body",
    [
        "y[i, j] = where(j < 3, 1.0, 2.0)",  # too short
        "y[i, j] = where(i < 9, 1.0, 2.0)",  # of another loop
        "y[i, j] = where(a[i, 0] < 9.0, 1.0, 2.0)",  # of no number of turns
        "if j < 9:\n        y[i, j] = where(j < 9, 1.0, 2.0)",  # not of values alone
    ],
)
def test_other_loops_stay_whole(body: str) -> None:
    program = parse(f"{JOINED}  for i in 3:\n    for j in 19:\n      {body}\n")
    verify(program)
    assert partition_loops(program, Context()) is program


# ------------------------------------------------------------------------------ masked columns

HEADS = "float32[2, 512, 8]"
MASKED = f"""\
program p(q: {HEADS}, k: {HEADS}, v: {HEADS}, mask: float32[512, 512]) -> (y: {HEADS}):
  for h in 2:
    for block in 4:
      alloc s: float32[128, 512]
      alloc p: float32[128, 512]
      call gemm(q[h, block * 128, 0], k[h, 0, 0], s[0, 0], m=128, n=512, k=8, a_row=8, \
a_column=1, b_row=1, b_column=8, c_row=512, accumulate=0)
      for i in 128:
        alloc x: float32[512]
        alloc e: float32[512]
        var m = -inf
        for j in 512:
          x[j] = s[i, j] * 0.25 + mask[block * 128 + i, j]
          m maximum= x[j]
        var t = 0.0
        for l in 512:
          e[l] = exp(x[l] - m)
          t add= e[l]
        for o in 512:
          p[i, o] = e[o] / t
      call gemm(p[0, 0], v[h, 0, 0], y[h, block * 128, 0], m=128, n=8, k=512, a_row=512, \
a_column=1, b_row=8, b_column=1, c_row=8, accumulate=0)
"""


def _mask(low: float, *rows: int) -> np.ndarray:
    """Causal, and some rows as a whole."""
    mask = np.triu(np.full((512, 512), low, np.float32), 1)
    mask[list(rows)] = low
    return mask


ALL = [512, 512, 512, 512]


@pytest.mark.parametrize(
    "mask, counts",
    [
        (_mask(-1e9), [128, 256, 384, 512]),
        (_mask(-1e4), [128, 256, 384, 512]),
        (_mask(-np.inf), [128, 256, 384, 512]),
        (_mask(np.finfo(np.float32).min), [128, 256, 384, 512]),
        (_mask(-1e9, 130), [128, 512, 384, 512]),
        (_mask(-np.inf, 3), [512, 256, 384, 512]),
        (_mask(-2100), ALL),  # the product may be as large: it is unknown before
        (_mask(np.inf), ALL),
        (_mask(np.nan), ALL),
        (np.where(np.arange(512) < 70, 0, -1e9) * np.ones([512, 1]), [128, 128, 128, 128]),
    ],
    ids=[
        "causal",
        "halves",
        "infinite",
        "least",
        "a row",
        "infinite row",
        "weak",
        "inf",
        "nan",
        "padded",
    ],
)
def test_columns_that_count_are_counted(mask: np.ndarray, counts: list[int]) -> None:
    program = parse(MASKED)
    verify(program)
    made = skip_masked_columns(program, Context())
    verify(made)
    allocate, fill, *_ = made.body
    assert isinstance(allocate, Allocate)
    assert "k=512: columns" in str(made)
    counting = Program("c", (program.inputs[3],), (allocate.buffer,), (fill,))
    (found,) = load(counting)(mask.astype(np.float32))
    assert found.tolist() == counts


@pytest.mark.parametrize(
    "old, new",
    [
        ("* 0.25 +", "* s[i, j] +"),  # turns back between its bounds
        ("- m)", "- 1.0)"),  # no share
        ("e[o] / t", "e[o] / (t - t)"),
        ("e[o] / t", "e[o] + t"),
        ("mask[block * 128 + i, j]", "mask[block * 128 + i, 0]"),  # no mask
        ("mask[block * 128 + i, j]", "tanh(s[i, j])"),
    ],
)
def test_columns_of_what_is_no_masked_softmax_all_count(old: str, new: str) -> None:
    assert old in MASKED
    program = parse(MASKED.replace(old, new))
    verify(program)
    assert skip_masked_columns(program, Context()) is program

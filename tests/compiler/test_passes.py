"""What passes make of programs, as text."""

from __future__ import annotations

import pytest

from weft_compiler.ir.parser import parse
from weft_compiler.ir.program import Allocate, For, Program, Store, walk
from weft_compiler.ir.verifier import verify
from weft_compiler.passes.blocks import block_rows
from weft_compiler.passes.contract import contract
from weft_compiler.passes.early import move_checks
from weft_compiler.passes.late import move_late
from weft_compiler.passes.merge import merge_loops
from weft_compiler.passes.order import order_loops
from weft_compiler.passes.pipeline import Pass
from weft_compiler.passes.simplify import simplify

HEAD = "program p(x: float32[8], z: float32[4, 6]) -> (y: float32[8], w: float32[4]):\n"


def becomes(made_by: Pass, before: str, after: str) -> None:
    program = parse(HEAD + before)
    verify(program)
    made = made_by(program)
    verify(made)
    assert str(made) == HEAD + after


def test_loops_over_one_range_are_merged() -> None:
    becomes(
        merge_loops,
        """\
  alloc t: float32[8]
  for i in 8:
    t[i] = x[i] * 2.0
  var s = 0.0
  for j in 8:
    s add= t[j]
    y[j] = t[j]
""",
        """\
  alloc t: float32[8]
  var s = 0.0
  for i in 8:
    t[i] = x[i] * 2.0
    s add= t[i]
    y[i] = t[i]
""",
    )


@pytest.mark.parametrize(
    "second",
    [
        "for j in 8:\n    y[j] = t[7 - j]",  # of other turns
        "for j in 4:\n    w[j] = t[j]",  # of another range
        "for j in 8:\n    y[j] = t[j] / s",  # of what the whole loop gives
        "for j in 8:\n    y[j] = 1.0",  # of nothing that the first touches
    ],
)
def test_loops_that_need_more_than_a_turn_stay_apart(second: str) -> None:
    text = f"""\
  alloc t: float32[8]
  var s = 0.0
  for i in 8:
    t[i] = x[i] * 2.0
    s add= t[i]
  {second}
"""
    becomes(merge_loops, text, text)


def test_rows_are_merged_and_then_what_is_in_them() -> None:
    becomes(
        merge_loops,
        """\
  alloc t: float32[4, 6]
  for i in 4:
    for j in 6:
      t[i, j] = z[i, j] + 1.0
  for k in 4:
    var s = 0.0
    for m in 6:
      s add= t[k, m]
    w[k] = s
""",
        """\
  alloc t: float32[4, 6]
  for i in 4:
    var s = 0.0
    for j in 6:
      t[i, j] = z[i, j] + 1.0
      s add= t[i, j]
    w[i] = s
""",
    )


def test_buffers_shrink_to_what_lives() -> None:
    becomes(
        contract,
        """\
  alloc t: float32[4, 6]
  alloc u: float32[4]
  for i in 4:
    for j in 6:
      t[i, j] = z[i, j] + 1.0
    u[i] = t[i, 0]
    w[i] = u[i] * t[i, 1]
""",
        """\
  for i in 4:
    alloc t: float32[6]
    for j in 6:
      t[j] = z[i, j] + 1.0
    let u = t[0]
    w[i] = u * t[1]
""",
    )


def test_a_buffer_that_turns_share_stays() -> None:
    text = """\
  alloc t: float32[4]
  for i in 4:
    t[i] = z[i, 0]
    w[i] = t[0]
"""
    becomes(contract, text, text)


def test_what_is_known_is_left_out() -> None:
    becomes(
        simplify,
        """\
  for i in 1:
    for j in 8:
      y[j] = x[floor_div(i * 8 + j, 1)] * where(j < 9, 2.0, 3.0)
  for a in 4:
    for b in 2:
      if floor_div(a * 2 + b, 2) == a:
        w[floor_div(floor_mod(a * 2 + b, 8), 2)] = x[clamp(a + b, 0, 7)]
  for never in 0:
    y[0] = 1.0
""",
        """\
  for j in 8:
    y[j] = x[j] * 2.0
  for a in 4:
    for b in 2:
      if a == a:
        w[a] = x[a + b]
""",
    )


def test_loops_are_marked_whose_turns_are_free() -> None:
    becomes(
        order_loops,
        """\
  for i in 4:
    var s = 0.0
    for j in 6:
      s add= z[i, j]
    w[i] = s
  var c = 0.0
  for k in 8:
    c = c * 0.5 + x[k]
    y[k] = c
  for k in 7:
    y[k + 1] add= y[k]
""",
        """\
  for i in 4:
    var s = 0.0
    vector j in 6:
      s add= z[i, j]
    w[i] = s
  var c = 0.0
  for k in 8:
    c = c * 0.5 + x[k]
    y[k] = c
  for k in 7:
    y[k + 1] add= y[k]
""",
    )
    text = "program q(x: float32[400, 400]) -> (y: float32[400, 400]):\n  {} i in 400:\n    {} j in 400:\n      y[i, j] = x[i, j] + 1.0\n"  # noqa: E501
    assert str(order_loops(parse(text.format("for", "for")))) == text.format("parallel", "vector")


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
    made = block_rows(program)
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
        _results(strides="a_row=1, a_column=1024"),
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
    assert str(block_rows(program)) == str(program)


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


def test_checks_come_before_what_they_do_not_need() -> None:
    becomes(
        move_checks,
        CHECKED,
        """\
  for j in 4:
    check z[j, 0] < 1.0, "small"
  check w[0] < 1.0, "smaller"
  check x[0] < 1.0, "smallest"
  alloc t: float32[8]
  for i in 8:
    t[i] = x[i] * 2.0
  for k in 8:
    y[k] = t[k] + 1.0
  w[1] = 2.0
""",
    )


@pytest.mark.parametrize(
    ("before", "check"),
    [
        ("y[0] = 1.0", 'check y[0] < 1.0, "of what is stored before"'),
        ("let s = x[0]", 'check s < 1.0, "of a name"'),
        (
            "var s = 0.0\n  while s < x[0]:\n    s = s + 1.0",
            'check x[0] < 1.0, "of what may not end"',
        ),
        ("w[0] = 1.0", 'for i in 8:\n    y[i] = x[i]\n    check x[i] < 1.0, "beside stores"'),
    ],
)
def test_checks_stay_behind_what_they_need(before: str, check: str) -> None:
    text = f"  {before}\n  {check}\n"
    becomes(move_checks, text, text)


def test_large_temporaries_are_computed_after_the_routines_before_their_use() -> None:
    """Memory is held from where it is filled; what small ones would share is worth more."""
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
        moved = move_late(program)
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
        merged = merge_loops(program)
        verify(merged)
        return sum(isinstance(statement, For) for statement in merged.body)

    assert loops(8) == 1
    assert loops(512) == 2

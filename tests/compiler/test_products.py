"""Products: choice of the routine, accumulation in place, and transposes before loops."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft_compiler.codegen.options import Options
from weft_compiler.codegen.targets import host, target_of
from weft_compiler.interpreter import interpret
from weft_compiler.ir.parser import parse
from weft_compiler.ir.program import Program
from weft_compiler.ir.verifier import verify
from weft_compiler.native.program import load
from weft_compiler.passes.accumulate import accumulate_in_place
from weft_compiler.passes.framework import Context
from weft_compiler.passes.hoist_transposes import hoist_transposes
from weft_compiler.passes.select_routines import select_routines
from weft_compiler.routines import selection
from weft_compiler.routines.selection import generated_reason

PRODUCT = """
program product(x: float32[24, 40], g: float32[24, 50]) -> (update s: float32[40, 50]):
  alloc t: float32[40, 50]
  call gemm(x[0, 0], g[0, 0], t[0, 0], m=40, n=50, k=24, a_row=1, a_column=40, b_row=50, \
b_column=1, c_row=50, accumulate=0)
{rest}"""
ADDED = """  for i in 40:
    for j in 50:
      let sum = s[i, j] + t[i, j]
      s[i, j] = sum
"""
LOOP = """
program loop(x: float32[8, 20], w: float32[2, 20, 20]) -> (y: float32[8, 20], v: float32[20, 20]):
  alloc c: float32[8, 20]
  for i in 8:
    for j in 20:
      y[i, j] = x[i, j]
  for i_2 in 20:
    for j_2 in 20:
      v[i_2, j_2] = w[0, i_2, j_2]
  var turn = 0
  var on = true
  while on:
    on = turn < 3
    if on:
      call gemm(y[0, 0], {b}, c[0, 0], m={m}, n=20, k=20, a_row=20, a_column=1, b_row=1, \
b_column=20, c_row=20, accumulate=0)
      call gemm(c[0, 0], {b}, y[0, 0], m={m}, n=20, k=20, a_row=20, a_column=1, b_row=1, \
b_column=20, c_row=20, accumulate=0)
      v[0, 0] = v[0, 0] * 0.5
      turn = turn + 1
"""


def program(text: str) -> Program:
    found = parse(text)
    verify(found)
    return found


def same(first: Program, second: Program, *given: Any) -> None:
    """Check that two programs have the same results, interpreted and compiled."""
    verify(second)
    inputs, states = given[: len(first.inputs)], given[len(first.inputs) :]
    wanted = interpret(first, *[array.copy() for array in given])
    out = [array.copy() for array in states] or [np.empty(b.shape, "f") for b in first.outputs]
    load(second)(*inputs, out=out)
    for found in (interpret(second, *[array.copy() for array in given]), out):
        for one, other in zip(wanted, found, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def normal(*shape: int) -> Any:
    return np.random.default_rng(3).normal(size=shape).astype(np.float32)


def test_a_product_that_is_added_is_added_where_the_sum_is() -> None:
    before = program(PRODUCT.format(rest=ADDED))
    after = accumulate_in_place(before, Context())
    assert "accumulate=1" in str(after)
    assert "for i" not in str(after)
    same(before, after, normal(24, 40), normal(24, 50), normal(40, 50))


@pytest.mark.parametrize(
    "rest",
    [
        ADDED.replace("t[i, j]\n", "t[i, j] + 1.0\n"),
        ADDED.replace("+", "-"),
        ADDED.replace("for i in 40", "for i in 39"),
        ADDED.replace("sum = s[i, j]", "sum = t[i, j]"),
        ADDED.replace("      s[i, j] = sum", "      s[i, j] = sum\n      s[0, 0] = sum"),
        "  s[1, 1] = 3.0\n" + ADDED,
        "  s[1, 1] = t[0, 0]\n" + ADDED,
        "  for p in 40:\n    s[p, 0] = t[p, 1]\n" + ADDED,
        ADDED + "  s[1, 1] = t[0, 0]\n",
    ],
)
def test_other_uses_of_a_product_keep_it(rest: str) -> None:
    before = program(PRODUCT.format(rest=rest))
    assert str(accumulate_in_place(before, Context())) == str(before)


def test_a_matrix_that_stays_is_transposed_before_the_loop_once() -> None:
    before = program(LOOP.format(b="w[1, 0, 0]", m=8))
    after = hoist_transposes(before, Context(vector_bytes=64))
    text = str(after)
    assert text.count("_transposed_2: float32[20, 20]") == 1
    assert text.count("b_row=20, b_column=1") == 2
    assert text.index("transposed") < text.index("while on")
    same(before, after, normal(8, 20), normal(2, 20, 20))


@pytest.mark.parametrize(("b", "m"), [("v[0, 0]", 8), ("w[1, 0, 0]", 2)])
def test_what_changes_or_is_used_by_few_rows_is_not(b: str, m: int) -> None:
    """v is stored to in each iteration."""
    before = program(LOOP.format(b=b, m=m))
    assert "transposed" not in str(hoist_transposes(before, Context(vector_bytes=64)))


def test_processors_with_narrower_registers_keep_their_products() -> None:
    before = program(LOOP.format(b="w[1, 0, 0]", m=8))
    for cpu in ("x86-64-v3", "x86-64-v2"):
        context = Context(vector_bytes=target_of(Options(cpu=cpu)).vector_bytes)
        assert hoist_transposes(before, context) is before
        assert select_routines(before, context) is before


def test_products_are_chosen_by_their_sizes() -> None:
    def generated(m: int, n: int, k: int, size: int, a_column: int = 1, b_column: int = 1) -> bool:
        of = {"m": m, "n": n, "k": k, "a_column": a_column, "b_column": b_column}
        product: Any = SimpleNamespace(**of)
        assert generated_reason(product, size, 32, 1 << 20)
        return not generated_reason(product, size, 64, 1 << 20)

    assert generated(32, 256, 256, 4)
    assert generated(32, 256, 256, 8)
    assert generated(256, 256, 32, 4, a_column=256)
    assert generated(32, 256, 256, 4, b_column=256)
    assert generated(1, 1024, 1024, 4)
    assert not generated(1, 1024, 1024, 4, b_column=1024)  # the sums of rows
    assert not generated(64, 64, 64, 4)  # BLAS packs nothing of so few
    assert generated(64, 64, 64, 4, b_column=64)
    assert not generated(1000, 5, 1000, 4)  # a third of a register
    assert not generated(4096, 32, 64, 4, a_column=4096)
    assert not generated(1024, 1024, 1024, 4)  # as fast
    assert generated(32, 1024, 1024, 4)
    assert not generated(32, 1024, 1024, 8)
    assert generated(4, 1024, 1024, 8)
    assert not generated(300, 300, 0, 4)


def test_a_larger_second_cache_has_more_products_generated() -> None:
    def generated(m: int, n: int, k: int, size: int, cache: int) -> bool:
        of = {"m": m, "n": n, "k": k, "a_column": 1, "b_column": 1}
        product: Any = SimpleNamespace(**of)
        return not generated_reason(product, size, 64, cache << 20)

    for sizes in ((512, 512, 512, 8), (64, 1024, 1024, 4), (256, 2048, 2048, 4)):
        assert generated(*sizes, 2)
        assert not generated(*sizes, 1)
    assert not generated(1024, 1024, 1024, 4, 2)  # as fast
    assert generated(32, 1024, 1024, 8, 2)
    assert not generated(32, 2048, 2048, 8, 2)


def test_linux_tells_how_large_the_second_cache_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Only the unified cache of level 2 counts."""
    for at, of in enumerate(("2 Instruction 64K", "1 Data 48K", "2 Unified 2048K", "3 Unified 8M")):
        place = tmp_path / f"index{at}"
        place.mkdir()
        for name, value in zip(("level", "type", "size"), of.split(), strict=True):
            (place / name).write_text(value + "\n")
    monkeypatch.setattr(selection, "_CACHE_FOLDER", tmp_path)
    assert selection.l2_cache_bytes.__wrapped__() == 2 << 20
    (tmp_path / "index2" / "size").unlink()
    assert selection.l2_cache_bytes.__wrapped__() == 1 << 20


@pytest.mark.skipif(host().vector_bytes < 64, reason="chosen for AVX-512")
def test_regions_have_the_products_that_are_chosen() -> None:
    import weft as wf

    config = wf.ConfigProto()
    config.graph_options.optimizer_options.global_jit_level = wf.OptimizerOptions.ON_1
    config.graph_options.optimizer_options.cpu_global_jit = True
    x, y = (wf.placeholder(wf.float32, [n, 256]) for n in (32, 256))
    with wf.Session(config=config) as session:
        z = wf.tanh(wf.matmul(x, y))
        report = session.explain(z, feed_dict={x: normal(32, 256), y: normal(256, 256)})
    assert "call matmul(" in next(iter(report.programs.values()))

"""The page of compiled ops agrees with the code generator."""

from __future__ import annotations

from weft_testing.loading import load
from weft_testing.workspace import ROOT

page = load(ROOT / "docs" / "compiled_ops_page.py")


def test_the_page_is_current() -> None:
    assert page.PAGE.read_text("utf-8") == page.text(), "run python docs/compiled_ops_page.py"


def test_most_of_what_programs_compute_is_compiled() -> None:
    compiled = page.PAGE.read_text("utf-8").partition("## By kernels")[0]
    for op in ("MatMul", "Conv2D", "TopKV2", "Einsum", "Lgamma", "SparseSegmentSumWithNumSegments"):
        assert f"`{op}`" in compiled
    assert compiled.count("`") // 2 > 300

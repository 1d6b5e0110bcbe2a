"""The README's chart shows the ratios of benchmarks/RESULTS.md."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
chart: dict[str, Any] = runpy.run_path(str(ROOT / "benchmarks" / "chart.py"))

RESULTS = """# Results

## Compiled steps

A machine, 2026-01-02. Medians.

| step | threads | weft | TensorFlow | TensorFlow with XLA | PyTorch | torch.compile | JAX | ratio |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| convnet, batch 32, forward | 1 | 2 | 8 | 4 | 6 |  |  | 2 |
|  | 2 | 1 | 4 | 4 | 4 | 4 | 4 | 4 |
| the same, batch 64 | 1 | 0.5 |  |  |  |  | 1,000 | 2,000 |
| loop | 1 | 4 | 2 |  |  |  |  | 0.5 |
| the same with gradients | 1 | 4 | 4 |  |  |  |  | 1 |

## Another section

| step | threads | weft |
| --- | ---: | ---: |
| not shown | 1 | 1 |
"""


def test_the_chart_is_of_the_results() -> None:
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    drawn = (ROOT / "docs" / "drawings" / "benchmarks.svg").read_text(encoding="utf-8")
    assert chart["draw"](results) == drawn, "run hatch run bench-chart"
    assert "(docs/drawings/benchmarks.svg)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_counts_the_steps_that_are_faster_than_in_all_peers() -> None:
    steps = chart["read_table"]((ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8"))[1]
    num_faster = sum(min(step.ratios.values()) > 1 for step in steps)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f" {num_faster} of {len(steps)} measured steps are [faster]" in readme


def test_ratios_are_of_one_thread_and_of_the_faster_column_of_a_peer() -> None:
    table = chart["read_table"](RESULTS)
    assert table.source == "A machine, 2026-01-02"
    assert [tuple(step) for step in table.steps] == [
        ("convnet, batch 32, forward", {"TensorFlow": 2.0, "PyTorch": 3.0}),
        ("convnet, batch 64", {"JAX": 2000.0}),
        ("loop", {"TensorFlow": 0.5}),
        ("loop with gradients", {"TensorFlow": 1.0}),
    ]


def test_a_ratio_beyond_the_axis_is_written_at_its_end() -> None:
    drawn = chart["draw"](RESULTS)
    assert "2000×" in drawn
    assert chart["position"](2000.0) == chart["position"](16.0)
    assert chart["position"](0.5) < chart["position"](1.0) < chart["position"](2.0)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("## Compiled steps", "## Other steps", "no section"),
        (", 2026-01-02", "", "no machine and date"),
    ],
)
def test_results_without_the_table_are_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        chart["read_table"](RESULTS.replace(old, new))

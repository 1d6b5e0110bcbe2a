"""The code on the pages runs as written."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [
    "README.md",
    "docs/tutorial.md",
    "docs/control-flow.md",
    "docs/functions.md",
    "docs/input.md",
    "docs/datasets.md",
    "docs/queues.md",
    "docs/checkpoints.md",
    "docs/summaries.md",
    "docs/devices.md",
    "docs/training.md",
]


@pytest.mark.parametrize("page", PAGES)
def test_the_code_on_a_page_runs(page: str, tmp_path: pathlib.Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.M)
    assert blocks
    program = tmp_path / "page.py"
    program.write_text("\n".join(blocks))
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, cwd=tmp_path, timeout=120
    )
    assert done.returncode == 0, done.stderr

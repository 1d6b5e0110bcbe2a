"""Steps by kernels of a script that ends early count for its next run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
import numpy as np
import weft as wf
from weft_exec.executor.native import warm_up
from weft_graph.ir import script_record

script_record._WORTH_WRITING = 0.0
x = wf.placeholder(wf.float32, [300, 300])
y = wf.reduce_sum(wf.tanh(x) * 2.0)
with wf.Session() as session:
    for _ in range(20):
        session.run(y, {x: np.ones((300, 300))})
    if sys.argv[1:]:  # as if importing the compiler and choosing took no longer than that
        warm_up._import_seconds = lambda: 1e-9
        warm_up.OVERHEAD = 0.0
        for _ in range(2000):
            session.run(y, {x: np.ones((300, 300))})
print("weft_compiler.generator" in sys.modules)
"""


def _run(script: Path, cache: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        env={**os.environ, "WEFT_JIT": "", "WEFT_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.strip()


def test_the_next_run_chooses_regions(tmp_path: Path) -> None:
    script, cache = tmp_path / "script.py", tmp_path / "cache"
    script.write_text(SCRIPT)
    assert _run(script, cache, "long") == "False", "the first run has nothing to rely on"
    assert [path.suffix for path in cache.iterdir()] == [".script"]
    assert _run(script, cache, "long") == "True"
    assert _run(script, cache, "long") == "True", "the record stays"
    other = tmp_path / "other.py"
    other.write_text(SCRIPT)
    assert _run(other, cache, "long") == "False", "another script has a record of its own"

"""Tests of interrupts in a pytest that ignores SIGINT, as in `pytest &` of a shell script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1] / "graph" / "ir" / "test_interrupts.py"
PROGRAM = """
import signal, sys, pytest
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.exit(pytest.main(["-q", sys.argv[1]]))
"""


def test_they_pass_where_the_caller_ignores_interrupts() -> None:
    command = [sys.executable, "-c", PROGRAM, str(TESTS)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stdout + result.stderr

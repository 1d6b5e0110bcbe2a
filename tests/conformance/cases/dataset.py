"""Ops of datasets use handles instead of arrays, so `CASES` is empty.

tests/io/data runs them against plain Python.
"""

from __future__ import annotations

from weft_testing.cases import Case

CASES: list[Case] = []

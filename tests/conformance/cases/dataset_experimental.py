"""Datasets take and give handles rather than arrays, so there are no rows of arrays.

tests/io/data runs them against plain Python.
"""

from __future__ import annotations

from weft_testing.cases import Case

CASES: list[Case] = []

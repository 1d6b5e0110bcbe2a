"""Ops of lookup tables take handles, so `CASES` is empty.

What they do is shown by tests/io/lookup.
"""

from __future__ import annotations

from weft_testing.cases import Case

CASES: list[Case] = []

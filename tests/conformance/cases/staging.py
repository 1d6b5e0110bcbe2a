"""Ops of staging areas take handles and wait, so `CASES` is empty.

What they do is shown by tests/io/queues/test_staging.py.
"""

from __future__ import annotations

from weft_testing.cases import Case

CASES: list[Case] = []

"""Ops of accumulators of gradients take handles and wait, so `CASES` is empty.

What they do is shown by tests/io/queues/test_accumulator.py.
"""

from __future__ import annotations

from weft_testing.cases import Case

CASES: list[Case] = []

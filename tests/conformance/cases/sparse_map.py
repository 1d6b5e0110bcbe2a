"""Ops of sparse tensors kept aside take handles and wait, so `CASES` is empty.

What they do is shown by tests/io/queues/test_sparse_map.py.
"""

from __future__ import annotations

from weft_testing.cases import Case

CASES: list[Case] = []

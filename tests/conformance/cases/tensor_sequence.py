"""Sequences of tensors are no arrays, so `CASES` is empty.

What their ops do is shown by tests/io/onnx.
"""

from __future__ import annotations

from weft_testing.cases import Case

CASES: list[Case] = []

"""Names of the files of bundles against Python's own formatting."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import UNTYPED, Case, Raw

BASE = Raw(b"some/model", "string")


def _text(value: bytes) -> Any:
    result: Any = np.empty((), object)
    result[()] = value
    return result


def _case(op: str, numbers: list[int], expected: bytes) -> Case:
    inputs = [BASE, *(Raw(np.int32(number)) for number in numbers)]
    return Case(op, inputs, None, lambda *_: _text(expected), dtypes=UNTYPED, grad=False)


CASES = [
    _case("ShardedFilename", [3, 12], b"some/model-00003-of-00012"),
    _case("ShardedFilename", [100_000, 1_234_567], b"some/model-100000-of-1234567"),
    _case("ShardedFilespec", [12], b"some/model-?????-of-00012"),
]

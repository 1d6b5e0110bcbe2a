"""Strings of rows and segments against plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import Array, Case, Raw
from weft_testing.string_cases import string_case, text, words

ROWS = [[b"a", b"b", b"c"], [], [b"d"]]
SPLITS = Raw(np.array([0, 3, 3, 4]))


def _ngrams_of(
    row: list[bytes], widths: list[int], left: bytes, right: bytes, padding: int, short: bool
) -> list[bytes]:
    found: list[bytes] = []
    for width in widths:
        most = width - 1 if padding < 0 else min(padding, width - 1)
        padded = [left] * most + row + [right] * most
        found += [b"|".join(padded[i : i + width]) for i in range(len(padded) - width + 1)]
    if short and row and not found:
        return [b"|".join([left] * padding + row + [right] * padding)]
    return found


def _ngrams(widths: list[int], padding: int = 0, short: bool = False) -> Case:
    left, right = (b"L", b"R") if padding else (b"", b"")
    rows = [_ngrams_of(row, widths, left, right, padding, short) for row in ROWS]
    flat = text([item for row in rows for item in row])
    attrs = {
        "separator": "|", "ngram_widths": widths, "left_pad": left, "right_pad": right,
        "pad_width": padding, "preserve_short_sequences": short,
    }  # fmt: skip
    expected = flat, np.cumsum([0, *map(len, rows)])
    label = f"{widths} {padding} {short}"
    data = [words([b"a", b"b", b"c", b"d"]), SPLITS]
    return string_case("StringNGrams", data, expected, attrs, label, static=False)


def _joined(data: Any, ids: Any, count: int, separator: str, expected: Any, label: str) -> Case:
    inputs = [words(data), Raw(ids), Raw(np.int32(count))]
    attrs = {"separator": separator}
    found: Array = expected
    return string_case("UnsortedSegmentJoin", inputs, found, attrs, label, static=False)


MATRIX = [[b"a", b"b"], [b"c", b"d"]]

CASES: list[Case] = [
    _ngrams([2]),
    _ngrams([3, 1]),
    _ngrams([3], -1),
    _ngrams([3], 1),
    _ngrams([5], 1, True),
    _ngrams([4, 6], 0, True),
    _joined([b"a", b"b", b"c"], [0, 1, 0], 3, "+", text([b"a+c", b"b", b""]), "vector"),
    _joined(MATRIX, [1, 1], 2, ",", text([[b"", b""], [b"a,c", b"b,d"]]), "rows"),
    _joined(MATRIX, [[0, 1], [1, 1]], 2, ",", text([b"a", b"b,c,d"]), "matrix"),
    _joined([], np.zeros(0, np.int32), 2, "+", text([b"", b""]), "nothing"),
    _joined([[], []], [0, 0], 1, "+", np.empty((1, 0), object), "no columns"),
]

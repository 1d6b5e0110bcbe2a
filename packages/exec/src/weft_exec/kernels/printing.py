"""Tensors as short text, for messages and for printing."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def format_element(value: Any, quote: bool = False) -> str:
    """Format one element: floats in the shortest form that reads back equal, bools as 0 and 1."""
    if isinstance(value, bytes):
        text = value.decode(errors="backslashreplace")
        return f'"{text}"' if quote else text
    if isinstance(value, bool | np.bool_):
        return str(int(value))
    if isinstance(value, np.complexfloating | complex):
        return f"({_real(value.real)},{_real(value.imag)})"
    if isinstance(value, int | np.integer):
        return str(int(value))
    return _real(value)


def _real(value: Any) -> str:
    kind = type(value)
    number = float(value)
    for digits in (6, 9, 15):
        text = f"{number:.{digits}g}"
        if kind(float(text)) == value or number != number:
            return text
    return f"{number:.17g}"


def summarize(value: Any, limit: int) -> str:
    """Format the first `limit` elements, with rows in brackets; a negative limit formats all."""
    array = np.asarray(value)
    if array.ndim == 0:
        return format_element(array[()])
    budget = array.size if limit < 0 else limit
    text, _ = _rows(array, budget)
    return text + ("..." if budget < array.size else "")


def _rows(array: Array, budget: int) -> tuple[str, int]:
    if array.ndim == 1:
        head = array[:budget]
        return " ".join(format_element(item) for item in head), budget - len(head)
    parts = []
    for row in array:
        if budget <= 0:
            break
        text, budget = _rows(row, budget)
        parts.append(f"[{text}]")
    return "".join(parts), budget


def summarize_ends(value: Any, ends: int) -> str:
    """Format `ends` elements at both ends of every axis, in nested brackets.

    A negative number formats all.
    """
    array = np.asarray(value)
    return format_element(array[()]) if array.ndim == 0 else _nested(array, ends, 1)


def _nested(array: Array, ends: int, depth: int) -> str:
    if array.ndim == 0:
        return format_element(array[()], quote=True)
    count = len(array)
    is_complete = ends < 0 or count <= 2 * ends
    positions = (
        list(range(count)) if is_complete else [*range(ends), -1, *range(count - ends, count)]
    )
    parts = ["..." if i < 0 else _nested(array[i, ...], ends, depth + 1) for i in positions]
    separator = " " if array.ndim == 1 else "\n" * (array.ndim - 1) + " " * depth
    return f"[{separator.join(parts)}]"

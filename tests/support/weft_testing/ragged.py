"""Random nested lists, and ragged tensors made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft as wf


def nested(rng: np.random.Generator, rank: int, count: int | None = None) -> list[Any]:
    """Return random nested lists of integers."""
    size = int(rng.integers(0, 4)) if count is None else count
    if rank == 1:
        return [int(n) for n in rng.integers(0, 9, size)]
    return [nested(rng, rank - 1) for _ in range(size)]


def ragged(rows: list[Any], rank: int = 2, dtype: Any = wf.int32) -> Any:
    """Return the ragged constant of nested lists, which may be empty."""
    return wf.ragged.constant(rows, dtype, ragged_rank=rank - 1)


def of_leaves(function: Callable[..., Any], *rows: Any) -> Any:
    """Apply a function to the leaves of nested lists of the same form."""
    if isinstance(rows[0], list):
        return [of_leaves(function, *each) for each in zip(*rows, strict=True)]
    return function(*rows)


def lists(value: Any) -> Any:
    """Convert a fetched value to nested lists and numbers."""
    if isinstance(value, list | tuple) and not hasattr(value, "to_list"):
        return [lists(each) for each in value]
    return value.to_list() if hasattr(value, "to_list") else value.tolist()


def fetched(*values: Any, feed: Any = None) -> list[Any]:
    """Return the values of ragged tensors and tensors as nested lists."""
    with wf.Session() as session:
        return [lists(each) for each in session.run(list(values), feed)]

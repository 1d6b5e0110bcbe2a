"""Datasets that select among several datasets by index, and datasets of random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_exec.kernels import philox
from weft_io.streams.shuffling import Draws
from weft_io.streams.stream import (
    INFINITE,
    Element,
    Root,
    Source,
    Stream,
    fields,
    restore_stream,
    save_stream,
)
from weft_tensor import errors


class DirectedInterleaveSource(Source):
    """Elements of several datasets, selected by a dataset of indices.

    Args:
      selector: the dataset of indices.
      inner: the datasets to select from.
      stop: end when a selected dataset is at its end, instead of when all are.
    """

    def __init__(self, selector: Source, inner: Sequence[Source], stop: bool) -> None:
        self._selector = selector
        self._inner = tuple(inner)
        self._stop = stop

    def iterate(self, root: Root) -> Stream:
        """Return a stream of the selected elements."""
        return _DirectedInterleaveStream(
            self._selector.iterate(root), [item.iterate(root) for item in self._inner], self._stop
        )


class _DirectedInterleaveStream(Stream):
    kind = "DirectedInterleave"

    def __init__(self, selector: Stream, inner: Sequence[Stream], stop: bool) -> None:
        self._selector = selector
        self._inner = tuple(inner)
        self._open = [True] * len(inner)
        self._stop = stop
        self._last: Stream = selector

    def location(self) -> str:
        return self._last.location()

    def get(self) -> Element | None:
        while any(self._open):
            number = self._selector.get()
            if number is None:
                break
            selected = int(number[0])
            if not 0 <= selected < len(self._inner):
                raise errors.InvalidArgumentError(
                    f"Selector index out of range: {selected} is not in [0, {len(self._inner)})"
                )
            if not self._open[selected]:
                continue
            self._last = self._inner[selected]
            element = self._last.get()
            if element is not None:
                return element
            self._open[selected] = False
            if self._stop:
                break
        self._open = [False] * len(self._inner)
        return None

    def save(self) -> Any:
        inner = [save_stream(item) for item in self._inner]
        return [list(self._open), inner, save_stream(self._selector)]

    def restore(self, state: Any) -> None:
        is_open, inner, selector = fields(state, list, list, None)
        self._open = fields(is_open, *[bool] * len(self._inner))
        for stream, field in zip(
            self._inner, fields(inner, *[None] * len(self._inner)), strict=True
        ):
            restore_stream(stream, field)
        restore_stream(self._selector, selector)

    def close(self) -> None:
        for stream in (self._selector, *self._inner):
            stream.close()


class RandomSource(Source):
    """Random integers in [0, 2³²), without an end: int64.

    Args:
      seeds: two numbers; both 0 for different random numbers in each pass.
    """

    def __init__(self, seeds: tuple[int, int]) -> None:
        self._seeds = seeds

    def iterate(self, root: Root) -> Stream:
        """Return a stream of the numbers; with seeds, each pass has the same numbers."""
        seeds = self._seeds if any(self._seeds) else philox.random_key()
        return _RandomStream(Draws(*seeds))

    def cardinality(self) -> int:
        """Return INFINITE."""
        return INFINITE


class _RandomStream(Stream):
    kind = "Random"

    def __init__(self, draws: Draws) -> None:
        self._draws = draws

    def get(self) -> Element | None:
        return (np.int64(self._draws.below(1 << 32)),)

    def save(self) -> Any:
        return [self._draws.state]

    def restore(self, state: Any) -> None:
        (draws,) = fields(state, int)
        self._draws.state = draws & ((1 << 64) - 1)

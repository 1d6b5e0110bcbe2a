"""Shuffling with a buffer."""

from __future__ import annotations

from typing import Any, Final

from weft_exec.kernels import philox
from weft_io.streams.stream import (
    Element,
    ForwardingStream,
    Root,
    Source,
    Stream,
    element_of,
    fields,
    restore_stream,
    save_stream,
)
from weft_tensor import errors

_MASK: Final = (1 << 64) - 1


class Draws:
    """A random number generator with a 64-bit state.

    Source: SplitMix64 (Steele, Lea, Flood, 2014).
    """

    __slots__ = ("state",)

    def __init__(self, *seeds: int) -> None:
        self.state = 0
        for seed in seeds:
            self.state = (self._bits() ^ seed) & _MASK

    def _bits(self) -> int:
        self.state = state = (self.state + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        return state ^ (state >> 31)

    def below(self, limit: int) -> int:
        """Return an integer in [0, limit)."""
        return (self._bits() * limit) >> 64


class ShuffleSource(Source):
    """Elements in random order.

    Args:
      size: size of the buffer that the next element is chosen from.
      seeds: two numbers; both 0 for a different order in each pass.
      reshuffles: whether each pass has a different order.
    Raises: InvalidArgumentError: the size is below 1.
    """

    def __init__(self, inner: Source, size: int, seeds: tuple[int, int], reshuffles: bool) -> None:
        if size < 1:
            raise errors.InvalidArgumentError(f"buffer_size must be greater than zero, got {size}")
        self._inner = inner
        self._size = size
        self._seeds = seeds if any(seeds) else philox.random_key()
        self._reshuffles = reshuffles

    def iterate(self, root: Root) -> Stream:
        """Return a stream of the shuffled elements."""
        number = root.next_pass(self)
        draws = Draws(*self._seeds, number if self._reshuffles else 0)
        stream = _ShuffleStream(self._inner.iterate(root), self._size, draws)
        stream.belongs_to(self, root, number)
        return stream

    def cardinality(self) -> int:
        """Return the number of elements."""
        return self._inner.cardinality()

    def reseed(self, seeds: tuple[int, int]) -> None:
        """Set the seeds from a saved state."""
        self._seeds = seeds

    @property
    def seeds(self) -> tuple[int, int]:
        """Return the current seeds."""
        return self._seeds


class _ShuffleStream(ForwardingStream):
    kind = "Shuffle"

    def __init__(self, inner: Stream, size: int, draws: Draws) -> None:
        super().__init__(inner)
        self._size = size
        self._draws = draws
        self._buffer: list[Element] = []
        self._has_ended = False

    def belongs_to(self, source: ShuffleSource, root: Root, number: int) -> None:
        """Set the source and the number of the pass."""
        self._source = source
        self._root = root
        self._number = number

    def location(self) -> str:
        return ""  # independent of what it has drawn, the other one is further on

    def get(self) -> Element | None:
        buffer = self._buffer
        while len(buffer) < self._size and not self._has_ended:
            element = self._input.get()
            if element is None:
                self._has_ended = True
            else:
                buffer.append(element)
        if not buffer:
            return None
        i = self._draws.below(len(buffer))
        buffer[i], buffer[-1] = buffer[-1], buffer[i]
        return buffer.pop()

    def save(self) -> Any:
        elements = [list(element) for element in self._buffer]
        seeds = list(self._source.seeds)
        return [
            self._draws.state,
            self._number,
            seeds,
            self._has_ended,
            elements,
            save_stream(self._input),
        ]

    def restore(self, state: Any) -> None:
        draws, number, seeds, has_ended, elements, inner = fields(
            state, int, int, list, bool, list, None
        )
        restore_stream(self._input, inner)
        first, second = fields(seeds, int, int)
        self._source.reseed((first, second))
        self._draws.state = draws & _MASK
        self._number = number
        self._root.resume_pass(self._source, number)
        self._has_ended = has_ended
        self._buffer = [element_of(element) for element in elements]

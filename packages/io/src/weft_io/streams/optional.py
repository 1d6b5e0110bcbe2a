"""Optional values: elements that may not be there, as values on the edges of a graph."""

from __future__ import annotations

from weft_io.streams.stream import Element


class OptionalValue:
    """An element, or nothing.

    Args:
      element: None for nothing.
    """

    __slots__ = ("element",)

    shape: tuple[int, ...] = ()
    ndim = 0

    def __init__(self, element: Element | None) -> None:
        self.element = element

    def __getitem__(self, index: tuple[()]) -> OptionalValue:
        return self  # as any value of rank 0

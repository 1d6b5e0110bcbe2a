"""Optional values on graph edges: elements that may be missing."""

from __future__ import annotations

from weft_io.streams.stream import Element


class OptionalValue:
    """An element, or the absence of one.

    Args:
      element: the element; None if it is missing.
    """

    __slots__ = ("element",)

    shape: tuple[int, ...] = ()
    ndim = 0

    def __init__(self, element: Element | None) -> None:
        self.element = element

    def __getitem__(self, index: tuple[()]) -> OptionalValue:
        return self  # as any value of rank 0

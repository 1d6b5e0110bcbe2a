"""Optional values: elements that may be missing, as values on graph edges."""

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

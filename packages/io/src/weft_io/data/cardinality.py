"""What the number of elements is where it is no number."""

from __future__ import annotations

__all__ = ["INFINITE_CARDINALITY", "UNKNOWN_CARDINALITY"]

from typing import Final

from weft_io.streams.stream import INFINITE, UNKNOWN

INFINITE_CARDINALITY: Final = INFINITE
"""There is no end."""

UNKNOWN_CARDINALITY: Final = UNKNOWN
"""Nobody knows before the elements are gone through."""

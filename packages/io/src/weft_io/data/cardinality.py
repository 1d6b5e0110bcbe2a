"""Special values of the number of elements."""

from __future__ import annotations

__all__ = ["INFINITE_CARDINALITY", "UNKNOWN_CARDINALITY"]

from typing import Final

from weft_io.streams.stream import INFINITE, UNKNOWN

INFINITE_CARDINALITY: Final = INFINITE
"""The cardinality of a dataset without an end."""

UNKNOWN_CARDINALITY: Final = UNKNOWN
"""The cardinality of a dataset whose number of elements is unknown before iteration."""

"""Operations added to weft from outside: a hypotenuse, a view, and a tally to wait for."""

from __future__ import annotations

from weft_stranger.api import diagonal, hypot, tally_add, tally_await, tally_get

__all__ = ["diagonal", "hypot", "tally_add", "tally_await", "tally_get"]

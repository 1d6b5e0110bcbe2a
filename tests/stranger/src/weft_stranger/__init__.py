"""Operations added to weft from outside: a hypotenuse, and a tally that steps can wait for."""

from __future__ import annotations

from weft_stranger.api import hypot, tally_add, tally_await

__all__ = ["hypot", "tally_add", "tally_await"]

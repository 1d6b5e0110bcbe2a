"""Sizes of convolutions for tests of the routines that compute them."""

from __future__ import annotations

from typing import Any

from weft_compiler.layouts import WINDOWS


def geometry(random: Any) -> dict[str, int]:
    """Return random window sizes."""
    of = dict.fromkeys(WINDOWS, 1)
    ranges = {
        "images": 3,
        "rows": 9,
        "width": 20,
        "depth": 70,
        "channels": 40,
        "height": 12,
        "breadth": 25,
        "taps_y": 4,
        "taps_x": 4,
        "stride_y": 3,
        "stride_x": 3,
        "dilation_y": 2,
        "dilation_x": 2,
    }
    for name, most in ranges.items():
        of[name] = int(random.integers(1, most + 1))
    for name in ("before_y", "before_x"):
        of[name] = int(random.integers(-2, 5))
    return of

"""Traces in the formats of other viewers."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO, Final

from weft_trace.export.chrome import write_chrome
from weft_trace.export.perfetto import write_perfetto
from weft_trace.export.speedscope import write_speedscope
from weft_trace.trace import Trace

FORMATS: Final[dict[str, Callable[[Trace, BinaryIO], None]]] = {
    "chrome": write_chrome,
    "perfetto": write_perfetto,
    "speedscope": write_speedscope,
}
"""The formats, and functions that write a trace to a binary file."""

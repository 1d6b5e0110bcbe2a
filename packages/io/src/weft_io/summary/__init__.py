"""Summaries for TensorBoard, and the event files that contain them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_graph import proto
from weft_io.ops.summary import (
    audio,
    get_summary_description,
    histogram,
    image,
    merge,
    merge_all,
    scalar,
    tensor_summary,
    text,
)
from weft_io.summary.writer import FileWriter
from weft_io.summary.writer_cache import FileWriterCache

if TYPE_CHECKING:
    from weft_graph.proto import (
        Event,
        SessionLog,
        Summary,
        SummaryDescription,
        SummaryMetadata,
        TaggedRunMetadata,
    )

__all__ = [
    "Event",
    "FileWriter",
    "FileWriterCache",
    "SessionLog",
    "Summary",
    "SummaryDescription",
    "SummaryMetadata",
    "TaggedRunMetadata",
    "audio",
    "get_summary_description",
    "histogram",
    "image",
    "merge",
    "merge_all",
    "scalar",
    "tensor_summary",
    "text",
]

_MESSAGES = frozenset(name for name in __all__ if name[0].isupper() and "Writer" not in name)


def __getattr__(name: str) -> Any:
    if name not in _MESSAGES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(proto, name)

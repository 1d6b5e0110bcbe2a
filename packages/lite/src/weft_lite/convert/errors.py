"""Errors of the conversion."""

from __future__ import annotations


class NotInLiteError(Exception):
    """Error for a node that lite cannot compute; `advice` says what to do instead."""


_TYPE_HINTS = {
    "float64": "; cast to float32 in the graph",
    "string": "; decode strings outside of the file, and pass numbers",
    "uint16": "; cast to int32 in the graph",
    "uint32": "; cast to int64 in the graph",
}


def unsupported_type(name: str) -> NotInLiteError:
    """Return an error for an element type that lite lacks, with what to do about it."""
    return NotInLiteError(f"lite does not support the type {name}{_TYPE_HINTS.get(name, '')}")

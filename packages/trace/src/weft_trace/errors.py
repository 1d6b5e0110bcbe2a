"""Errors of trace files."""

from __future__ import annotations

__all__ = ["TraceError"]


class TraceError(ValueError):
    """A trace file is damaged, of a newer version, or not a trace."""

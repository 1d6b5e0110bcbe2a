"""Errors of the conversion."""

from __future__ import annotations


class NotInLiteError(Exception):
    """Error for a node that lite cannot compute; `advice` says what to do instead."""

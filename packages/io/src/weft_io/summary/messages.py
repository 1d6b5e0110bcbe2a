"""Functions shared by the readers and writers of messages."""

from __future__ import annotations


def decode_error() -> type[Exception]:
    """Return protobuf's exception for malformed bytes; it is imported only when needed."""
    from google.protobuf.message import DecodeError

    return DecodeError

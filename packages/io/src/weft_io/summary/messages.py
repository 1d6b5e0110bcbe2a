"""Functions shared by readers and writers of messages."""

from __future__ import annotations


def decode_error() -> type[Exception]:
    """Return protobuf's exception for malformed bytes; imported when one is raised."""
    from google.protobuf.message import DecodeError

    return DecodeError

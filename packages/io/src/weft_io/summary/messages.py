"""What readers and writers of messages share."""

from __future__ import annotations


def decode_error() -> type[Exception]:
    """What protobuf raises for bytes that are no message; it is imported when one is raised."""
    from google.protobuf.message import DecodeError

    return DecodeError

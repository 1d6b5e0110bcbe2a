"""Addresses as people write them: "host:2222", "[::1]:2222"."""

from __future__ import annotations

from typing import NamedTuple

from weft_tensor import errors

_PORTS = 1 << 16


class Address(NamedTuple):
    """Where a server is; the host without brackets."""

    host: str
    port: int


def address_of(text: str, what: str = "an address") -> Address:
    """The host and the port in a text.

    Args:
      what: it is the address of, for messages.
    Raises: InvalidArgumentError: it has no such parts.
    """
    host, _, port = text.rpartition(":")
    known = port.isascii() and port.isdecimal() and int(port) < _PORTS
    if not host or not known or any(sign.isspace() or sign in "/?" for sign in host):
        raise errors.InvalidArgumentError(f"{what} must be like host:2222, got {text!r}")
    return Address(host.strip("[]"), int(port))

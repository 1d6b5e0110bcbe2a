"""Parsing of addresses: "host:2222", "[::1]:2222"."""

from __future__ import annotations

from typing import NamedTuple

from weft_tensor import errors

_PORTS = 1 << 16


class Address(NamedTuple):
    """The address of a server; an IPv6 host has no brackets."""

    host: str
    port: int


def address_of(text: str, label: str = "an address") -> Address:
    """Parse an address to host and port.

    Args:
      label: a description of the address, for messages.
    Raises: InvalidArgumentError: the address is malformed.
    """
    host, _, port = text.rpartition(":")
    is_valid = port.isascii() and port.isdecimal() and int(port) < _PORTS
    if not host or not is_valid or any(sign.isspace() or sign in "/?" for sign in host):
        raise errors.InvalidArgumentError(f"{label} must have the form host:2222, got {text!r}")
    return Address(host.strip("[]"), int(port))

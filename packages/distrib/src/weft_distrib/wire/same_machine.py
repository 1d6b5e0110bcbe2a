"""Detection of processes on the same machine, by a socket that other machines cannot reach.

A task also listens on a socket of the family AF_UNIX with a random name. An authenticated caller
that supports local connections is invited: it receives the name and a ticket, and connects to that
socket. The operating system reports the user of the other end to both ends, which must be the
same. If the socket is unreachable, the ordinary connection is kept.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import threading
from contextlib import suppress
from typing import Final, NamedTuple

from weft_distrib.security.roles import Role
from weft_tensor import errors

OFFER: Final = b"local"
"""The offer in the hello of a caller that accepts invitations."""

_TICKET_BYTES = 16
_NAME_BYTES = 16
_CONNECT_SECONDS = 5.0
_CREDENTIALS = struct.Struct("iII")  # process, user, group
_BACKLOG = 512


class Invitation(NamedTuple):
    """An invitation to a local connection: the name of the socket, and the ticket to present."""

    ticket: bytes
    name: bytes

    def pack(self) -> bytes:
        """Encode the invitation."""
        return self.ticket + self.name

    @classmethod
    def unpack(cls, data: bytes) -> Invitation:
        """Decode the result of `pack`.

        Raises: DataLossError: the data is malformed.
        """
        if len(data) != _TICKET_BYTES + _NAME_BYTES:
            raise errors.DataLossError(f"invalid invitation of {len(data)} bytes")
        return cls(data[:_TICKET_BYTES], data[_TICKET_BYTES:])


class Tickets:
    """Single-use tickets of invited callers, with their roles."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._roles: dict[bytes, Role] = {}

    def give(self, role: Role) -> bytes:
        """Return a new ticket."""
        ticket = secrets.token_bytes(_TICKET_BYTES)
        with self._lock:
            self._roles[ticket] = role
        return ticket

    def take(self, ticket: bytes) -> Role:
        """Return the role that belongs to a ticket, and invalidate the ticket.

        Raises: PermissionDeniedError: the ticket is unknown, used or revoked.
        """
        with self._lock:
            role = self._roles.pop(ticket, None)
        if role is None:
            raise errors.PermissionDeniedError("a local connection must begin with a ticket")
        return role

    def take_back(self, ticket: bytes) -> None:
        """Revoke the ticket of a caller that did not connect."""
        with self._lock:
            self._roles.pop(ticket, None)


def listen() -> tuple[socket.socket, bytes]:
    """Return a socket that only processes of this machine can reach, and its name."""
    name = secrets.token_bytes(_NAME_BYTES)
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(_address(name))
    sock.listen(_BACKLOG)
    return sock, name


def reach(name: bytes) -> socket.socket | None:
    """Connect to a local socket; return None if it belongs to another machine or user."""
    sock = socket.socket(socket.AF_UNIX)
    with suppress(OSError):
        sock.settimeout(_CONNECT_SECONDS)
        sock.connect(_address(name))
        sock.settimeout(None)
        if is_own_user(sock):
            return sock
    sock.close()
    return None


def is_own_user(sock: socket.socket) -> bool:
    """Return True if the process at the other end runs as the same user."""
    return _credentials(sock)[1] == os.geteuid()


def process_of(sock: socket.socket) -> int:
    """Return the process id of the other end."""
    return _credentials(sock)[0]


def _credentials(sock: socket.socket) -> tuple[int, int]:
    getsockopt = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(getsockopt)
    return process, user


def _address(name: bytes) -> bytes:
    return b"\0weft-" + name.hex().encode()

"""Finding out that two processes are on one machine, by a socket that only reaches so far.

A task listens on a socket of the family AF_UNIX as well, whose name is drawn at random. Who has
said by the ordinary way who it is, and offers it, is invited: it gets the name and a ticket, and
calls again by that socket. The system tells both ends as which user the other one runs; it must be
the same. Where the socket cannot be reached, the ordinary connection stays.
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
"""What a caller offers that could be invited."""

_TICKET_BYTES = 16
_NAME_BYTES = 16
_CONNECT_SECONDS = 5.0
_CREDENTIALS = struct.Struct("iII")  # process, user, group
_BACKLOG = 512


class Invitation(NamedTuple):
    """Where to call again, and what to show there."""

    ticket: bytes
    name: bytes

    def pack(self) -> bytes:
        """The bytes of it."""
        return self.ticket + self.name

    @classmethod
    def unpack(cls, data: bytes) -> Invitation:
        """What `pack` gave.

        Raises: DataLossError: it is none.
        """
        if len(data) != _TICKET_BYTES + _NAME_BYTES:
            raise errors.DataLossError(f"an invitation of {len(data)} bytes is none")
        return cls(data[:_TICKET_BYTES], data[_TICKET_BYTES:])


class Tickets:
    """Whom a task has invited, and as what; each ticket is good once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._roles: dict[bytes, Role] = {}

    def give(self, role: Role) -> bytes:
        """A new ticket."""
        ticket = secrets.token_bytes(_TICKET_BYTES)
        with self._lock:
            self._roles[ticket] = role
        return ticket

    def take(self, ticket: bytes) -> Role:
        """What the holder of a ticket may do.

        Raises: PermissionDeniedError: it is none, or was used or taken back.
        """
        with self._lock:
            role = self._roles.pop(ticket, None)
        if role is None:
            raise errors.PermissionDeniedError("a local connection begins with a ticket")
        return role

    def take_back(self, ticket: bytes) -> None:
        """Who was invited does not come."""
        with self._lock:
            self._roles.pop(ticket, None)


def listen() -> tuple[socket.socket, bytes]:
    """A socket that only this machine can reach, and its name."""
    name = secrets.token_bytes(_NAME_BYTES)
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(_address(name))
    sock.listen(_BACKLOG)
    return sock, name


def reach(name: bytes) -> socket.socket | None:
    """Connect to such a socket; None where it is on another machine or another user's."""
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
    """Whether the process at the other end runs as the same user as this one."""
    return _credentials(sock)[1] == os.geteuid()


def process_of(sock: socket.socket) -> int:
    """The number of the process at the other end."""
    return _credentials(sock)[0]


def _credentials(sock: socket.socket) -> tuple[int, int]:
    told = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(told)
    return process, user


def _address(name: bytes) -> bytes:
    return b"\0weft-" + name.hex().encode()

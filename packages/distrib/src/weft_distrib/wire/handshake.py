"""The handshake that opens a connection: the identity and role of the caller, and its admission."""

from __future__ import annotations

import socket
import struct
from typing import Any, Final, NamedTuple

from weft_distrib.security.credentials import Credentials
from weft_distrib.security.loopback import find_published_token, numeric_host
from weft_distrib.security.machine import has_shared_memory
from weft_distrib.security.roles import Role
from weft_tensor import errors

HELLO: Final = 0
"""The method of the first call. Meta: a `Hello`; in reply: the data that the agreed transport
needs.
"""

MAX_HELLO_BYTES: Final = 1 << 14
"""Maximum number of bytes that a connection may send before its caller is admitted."""

ANY_INCARNATION: Final = 0
"""The incarnation in the hello of a client that does not know the task's yet."""

_HELLO = struct.Struct("<QQBxHI")


class Hello(NamedTuple):
    """The handshake message of a caller.

    Attributes:
      version: the version of the protocol.
      incarnation: the incarnation of the task that the caller expects; a client may accept any.
      role: its role as a caller.
      token: its token, or b"".
      offer: the transports that the caller supports, or a ticket.
    """

    version: int
    incarnation: int
    role: Role = Role.PEER
    token: bytes = b""
    offer: bytes = b""

    def pack(self) -> bytes:
        """Encode the hello."""
        sizes = len(self.token), len(self.offer)
        fixed = _HELLO.pack(self.version, self.incarnation, self.role, *sizes)
        return fixed + self.token + self.offer

    @classmethod
    def unpack(cls, meta: bytes) -> Hello:
        """Decode the result of `pack`.

        Raises: PermissionDeniedError: the data is not a hello.
        """
        if len(meta) < _HELLO.size:
            raise errors.PermissionDeniedError("a connection must begin with a handshake")
        version, incarnation, role, *sizes = _HELLO.unpack_from(meta)
        token, offer = _split(meta[_HELLO.size :], sizes)
        known_role = Role.PEER if role >= Role.PEER else Role.CLIENT
        return cls(version, incarnation, known_role, token, offer)


def _split(data: bytes, sizes: list[Any]) -> tuple[bytes, bytes]:
    first, second = sizes
    if len(data) < first + second:
        raise errors.PermissionDeniedError("the handshake is truncated")
    return data[:first], data[first : first + second]


class ConnectionOptions:
    """Handshake options of a process: how it identifies itself, and which callers it accepts.

    Args:
      version: the version of the protocol.
      credentials: its own credentials, which also decide which callers it accepts.
      role: its role as a caller.
      local: True to use shared memory with processes of the same machine.
      inproc: True to connect to servers of its own process without sockets, if these also allow it.
    """

    def __init__(
        self,
        version: int,
        credentials: Credentials | None = None,
        role: Role = Role.PEER,
        local: bool = True,
        inproc: bool = False,
    ) -> None:
        self.inproc = inproc
        self.version = version
        self.local = local and has_shared_memory()
        self.credentials = credentials or Credentials()
        self.role = role

    def hello(self, incarnation: int, token: bytes = b"", offer: bytes = b"") -> Hello:
        """Return this process's hello for a task.

        Args:
          token: the token; see `token_for`.
        """
        return Hello(self.version, incarnation, self.role, token, offer)

    def token_for(self, host: str, port: int) -> bytes:
        """Return the token for a server at an address; b"" if there is none.

        It is the token of the credentials. Without one, it is the token that the server has
        published, if that is on loopback and belongs to the same user.
        """
        credentials = self.credentials
        if credentials.token or credentials.secure:
            return credentials.token
        return find_published_token(host, port)

    def admit(self, hello: Hello, incarnation: int, certified: Role) -> Role:
        """Return the role of an admitted caller.

        Args:
          incarnation: the incarnation of this task.
          certified: the role that the caller's certificate grants.
        Raises:
          FailedPreconditionError: the caller has another protocol version.
          UnauthenticatedError: the token is wrong or missing.
          AbortedError: the caller expects another incarnation of this task.
        """
        check_version(self.version, hello.version)
        role = granted_role(self.credentials, hello.token)
        is_client = hello.role is Role.CLIENT and hello.incarnation == ANY_INCARNATION
        if hello.incarnation != incarnation and not is_client:
            raise errors.AbortedError("the task was restarted since it was last seen")
        return min(hello.role, role, certified)

    def connect(self, address: tuple[str, int], peer: str, timeout: float) -> socket.socket:
        """Return a socket that is connected to a task, after resolving its address again.

        Raises: UnavailableError: no server answers at the address.
        """
        host, port = address
        if not self.credentials.secure:
            host = numeric_host(host)
        try:
            sock = socket.create_connection((host, port), timeout)
        except OSError as error:
            raise errors.UnavailableError(
                f"{peer} cannot be reached at {address[0]}:{address[1]}: {error}"
            ) from error
        sock.settimeout(None)
        return sock


def check_version(own_version: int, peer_version: int) -> None:
    """Raise if the other end has another version of the protocol.

    Raises: FailedPreconditionError: the versions differ.
    """
    if own_version != peer_version:
        raise errors.FailedPreconditionError(
            f"this process uses version {own_version} of the protocol, but the peer uses version "
            f"{peer_version}: "
            "install the same release of weftml-distrib on both"
        )


def granted_role(credentials: Credentials, token: bytes) -> Role:
    """Return the role that a token grants.

    Raises: UnauthenticatedError: the token is wrong, or missing although one is required.
    """
    role = credentials.role_of_token(token)
    if role is None:
        raise errors.UnauthenticatedError(
            "this cluster requires a token, and the caller has "
            + ("another one" if token else "none")
            + ": set WEFT_TOKEN to the token file, or name the file in the target or in the "
            "options of the client. Processes of "
            "the same user find the token of a server on loopback in the directory that "
            "WEFT_RUNTIME_DIR names, by default ~/.local/state/weft/servers"
        )
    return role

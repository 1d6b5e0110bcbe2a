"""The handshake that opens a connection: identity and role of the caller, and admission."""

from __future__ import annotations

import socket
import struct
from typing import Any, Final, NamedTuple

from weft_distrib.security.credentials import Credentials
from weft_distrib.security.loopback import numeric_host, published_token
from weft_distrib.security.machine import has_shared_memory
from weft_distrib.security.roles import Role
from weft_tensor import errors

HELLO: Final = 0
"""The first call. Meta: a `Hello`; the reply's: what the transport that was agreed on needs."""

MAX_HELLO_BYTES: Final = 1 << 14
"""Maximum bytes of a connection before its caller has identified itself."""

ANY_INCARNATION: Final = 0
"""The incarnation that a client expects if it does not know the task yet."""

_HELLO = struct.Struct("<QQBxHI")


class Hello(NamedTuple):
    """The greeting of a caller.

    Attributes:
      version: version of the protocol.
      incarnation: of the task that the caller expects; it has another one in each life. A client
        may accept any.
      role: as which it calls.
      token: that it shows; b"" for none.
      offer: for the choice of a transport: those that the caller supports, or a ticket.
    """

    version: int
    incarnation: int
    role: Role = Role.PEER
    token: bytes = b""
    offer: bytes = b""

    def pack(self) -> bytes:
        """Return the bytes of it."""
        sizes = len(self.token), len(self.offer)
        fixed = _HELLO.pack(self.version, self.incarnation, self.role, *sizes)
        return fixed + self.token + self.offer

    @classmethod
    def unpack(cls, meta: bytes) -> Hello:
        """Decode the result of `pack`.

        Raises: PermissionDeniedError: it is none.
        """
        if len(meta) < _HELLO.size:
            raise errors.PermissionDeniedError("a connection must begin with a handshake")
        version, incarnation, role, *sizes = _HELLO.unpack_from(meta)
        token, offer = _split(meta[_HELLO.size :], sizes)
        known = Role.PEER if role >= Role.PEER else Role.CLIENT
        return cls(version, incarnation, known, token, offer)


def _split(data: bytes, sizes: list[Any]) -> tuple[bytes, bytes]:
    first, second = sizes
    if len(data) < first + second:
        raise errors.PermissionDeniedError("the handshake is truncated")
    return data[:first], data[first : first + second]


class ConnectionOptions:
    """Handshake options of a process: how it identifies itself and whom it accepts.

    Args:
      version: version of the protocol.
      credentials: its own credentials, and those that it accepts.
      role: as which it calls.
      local: whether it uses shared memory with processes of the same machine.
      inproc: whether it needs no socket for other servers of its own process that say so, too.
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
        """Return this process's handshake for a task.

        Args:
          token: as for `token_for`.
        """
        return Hello(self.version, incarnation, self.role, token, offer)

    def token_for(self, host: str, port: int) -> bytes:
        """Return the token to show at an address; b"" for none.

        It is that of the credentials. Without any it is the token that the server there, if it is
        this user's and on loopback, has published.
        """
        credentials = self.credentials
        if credentials.token or credentials.secure:
            return credentials.token
        return published_token(host, port)

    def admit(self, hello: Hello, incarnation: int, certified: Role) -> Role:
        """Return the role of a caller.

        Args:
          incarnation: of this task.
          certified: the role that the caller's certificate gives.
        Raises:
          FailedPreconditionError: it speaks another version.
          UnauthenticatedError: its token is wrong or absent.
          AbortedError: it expects another life of this task.
        """
        check_version(self.version, hello.version)
        role = admitted(self.credentials, hello.token)
        is_client = hello.role is Role.CLIENT and hello.incarnation == ANY_INCARNATION
        if hello.incarnation != incarnation and not is_client:
            raise errors.AbortedError("the task was restarted since it was last seen")
        return min(hello.role, role, certified)

    def connect(self, address: tuple[str, int], peer: str, timeout: float) -> socket.socket:
        """Return a socket to a task, resolving its address again.

        Raises: UnavailableError: no server answers there.
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
    """Refuse the other end if it speaks another version of the protocol.

    Raises: FailedPreconditionError: it does.
    """
    if own_version != peer_version:
        raise errors.FailedPreconditionError(
            f"this process uses version {own_version} of the protocol, but the peer uses version "
            f"{peer_version}: "
            "install the same release of weftml-distrib on both"
        )


def admitted(credentials: Credentials, token: bytes) -> Role:
    """Return the role that a token gives.

    Raises: UnauthenticatedError: it is wrong, or there is none and one is wanted.
    """
    role = credentials.role_of_token(token)
    if role is None:
        raise errors.UnauthenticatedError(
            "this cluster requires a token, and the caller presents "
            + ("another one" if token else "none")
            + ": name its file in WEFT_TOKEN, or in the target; the token of a server on loopback "
            "is found by processes of its own user, in the directory that WEFT_RUNTIME_DIR names "
            "or, by default, ~/.local/state/weft/servers"
        )
    return role

"""Who is at the other end of control calls: certificates and tokens by gRPC's means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc

from weft_distrib.security.credentials import Credentials, Files
from weft_distrib.security.roles import Role, role_of
from weft_distrib.wire.hello import Opening, admitted, check_version

_TOKEN, _ROLE, _VERSION = "authorization", "weft-role", "weft-version"
_BEARER = "Bearer "


def server_credentials(credentials: Credentials) -> Any:
    """For a server: both ends show certificates, and files are read anew when they change."""
    first = credentials.files
    given = first

    def fetch() -> Any:
        nonlocal given
        files = credentials.files
        if files[:3] == given[:3]:
            return None
        given = files
        return _configuration(files)

    return grpc.dynamic_ssl_server_credentials(_configuration(first), fetch, True)


def _configuration(files: Files) -> Any:
    pairs = [(files.key, files.certificate)]
    return grpc.ssl_server_certificate_configuration(pairs, files.authority)


def channel_to(address: str, files: Files | None, options: Sequence[tuple[str, Any]]) -> Any:
    """A channel of gRPC's, with certificates where there are files."""
    if files is None:
        return grpc.insecure_channel(address, options=options)
    shown = grpc.ssl_channel_credentials(files.authority, files.key, files.certificate)
    return grpc.secure_channel(address, shown, options=options)


def metadata(opening: Opening) -> list[tuple[str, str]]:
    """What a call says of its caller."""
    told = [(_ROLE, opening.role.name.lower()), (_VERSION, str(opening.version))]
    token = opening.credentials.token
    return [*told, (_TOKEN, _BEARER + token.decode())] if token else told


def caller(context: Any, opening: Opening, checked: bool = True) -> tuple[Role, str]:
    """What the caller of a call may do, and where it is.

    Args:
      checked: its version must be that of `opening`; else it is told which that is.
    Raises:
      UnauthenticatedError: its token is wrong or absent.
      FailedPreconditionError: it speaks another version of the protocol.
    """
    credentials = opening.credentials
    told = dict(context.invocation_metadata())
    if checked:
        version = str(told.get(_VERSION, ""))
        check_version(opening.version, int(version) if version.isdecimal() else 0)
    token = str(told.get(_TOKEN, "")).removeprefix(_BEARER).encode()
    claimed = Role.PEER if told.get(_ROLE) == Role.PEER.name.lower() else Role.CLIENT
    certified = Role.PEER
    if credentials.secure:
        certified = role_of({uri.decode() for uri in context.auth_context().get("peer_uri", ())})
    return min(claimed, admitted(credentials, token), certified), context.peer()

"""Authentication of control calls, by certificates and tokens over gRPC."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import grpc

from weft_distrib.security.credentials import Credentials, Files
from weft_distrib.security.loopback import numeric_host
from weft_distrib.security.roles import Role, role_of
from weft_distrib.wire.address import address_of
from weft_distrib.wire.handshake import ConnectionOptions, check_version, granted_role

_TOKEN, _ROLE, _VERSION = "authorization", "weft-role", "weft-version"
_BEARER = "Bearer "


def server_credentials(credentials: Credentials) -> Any:
    """Return gRPC credentials of a server that requires client certificates; files are reloaded."""
    first = credentials.files
    current_files = first

    def fetch() -> Any:
        nonlocal current_files
        files = credentials.files
        if files[:3] == current_files[:3]:
            return None
        current_files = files
        return _configuration(files)

    return grpc.dynamic_ssl_server_credentials(_configuration(first), fetch, True)


def _configuration(files: Files) -> Any:
    pairs = [(files.key, files.certificate)]
    return grpc.ssl_server_certificate_configuration(pairs, files.authority)


def channel_to(address: str, files: Files | None, options: Sequence[tuple[str, Any]]) -> Any:
    """Return a gRPC channel, which uses certificates if there are any."""
    if files is None:
        host, port = address_of(address)
        host = numeric_host(host)
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return grpc.insecure_channel(target, options=options)
    ssl_channel_credentials = grpc.ssl_channel_credentials(
        files.authority, files.key, files.certificate
    )
    return grpc.secure_channel(address, ssl_channel_credentials, options=options)


def metadata(opening: ConnectionOptions, token: bytes) -> list[tuple[str, str]]:
    """Return the metadata that identifies a caller.

    Its token comes from `ConnectionOptions.token_for`.
    """
    pairs = [(_ROLE, opening.role.name.lower()), (_VERSION, str(opening.version))]
    return [*pairs, (_TOKEN, _BEARER + token.decode())] if token else pairs


def parse_role(
    metadata: Iterable[tuple[str, str | bytes]], opening: ConnectionOptions, checked: bool = True
) -> Role:
    """Return the role of a caller according to its metadata, ignoring certificates.

    Args:
      checked: True to require the protocol version of `opening`.
    Raises:
      UnauthenticatedError: the token is wrong or absent.
      FailedPreconditionError: the caller has another protocol version.
    """
    pairs = dict(metadata)
    token = str(pairs.get(_TOKEN, "")).removeprefix(_BEARER).encode()
    role = granted_role(opening.credentials, token)
    if checked:
        version = str(pairs.get(_VERSION, ""))
        check_version(opening.version, int(version) if version.isdecimal() else 0)
    return role if pairs.get(_ROLE) == Role.PEER.name.lower() else Role.CLIENT


def certified_role(context: Any, credentials: Credentials) -> Role:
    """Return the role in the caller's certificate; without certificates, the role of a peer."""
    if not credentials.secure:
        return Role.PEER
    return role_of({uri.decode() for uri in context.auth_context().get("peer_uri", ())})

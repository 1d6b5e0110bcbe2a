"""Credentials of a process and its trust in others: files, reloaded when they change."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from weft_distrib.security.roles import Role
from weft_tensor import errors

_log = logging.getLogger("weft")

VARIABLES: Final = {
    "certificate": "WEFT_CERTIFICATE",
    "key": "WEFT_KEY",
    "authority": "WEFT_AUTHORITY",
    "token": "WEFT_TOKEN",
}
"""The environment variables that name the files."""

_RANDOM_BYTES = 32
_MIN_TOKEN_BYTES = 16
_MAX_TOKEN_BYTES = 1 << 10


class Files(NamedTuple):
    """The contents of credential files."""

    certificate: bytes
    key: bytes
    authority: bytes
    token: bytes


class Credentials:
    """Credentials of a process for tasks of a cluster and clients, and its trust in others.

    The files are reloaded when they change. With certificates, both ends of every connection
    present theirs. A token is a secret that all tasks share; the `client_token` derived from it
    permits only the role of a client.

    Args:
      certificate, key: PEM files; the certificate's alternative names hold the host that others
        reach a server by, and a URI with the role: weft:peer for tasks, weft:client for clients.
      authority: a PEM file with the certificates of trusted authorities.
      token: a file with a secret of at least 16 bytes, without surrounding white space.
    Attributes:
      paths: paths of the four files.
    Raises:
      InvalidArgumentError: only some of certificate, key and authority are set, a file has the
        wrong content, or the key does not match the certificate.
      NotFoundError: a file cannot be read.

    Examples:
      >>> import pathlib, tempfile
      >>> from weft_distrib import Credentials
      >>> folder = pathlib.Path(tempfile.mkdtemp())
      >>> _ = (folder / "token").write_text("0123456789abcdef")
      >>> credentials = Credentials(token=str(folder / "token"))
      >>> credentials.role_of_token(b"0123456789abcdef").name
      'PEER'
    """

    def __init__(
        self, certificate: str = "", key: str = "", authority: str = "", token: str = ""
    ) -> None:
        paths = {"certificate": certificate, "key": key, "authority": authority}
        absent = [name for name, path in paths.items() if not path]
        if absent and len(absent) < len(paths):
            raise errors.InvalidArgumentError(
                f"credentials need a certificate, its key and an authority; {absent} are missing"
            )
        self.paths = tuple(str(path) for path in (certificate, key, authority, token))
        self._lock = threading.Lock()
        self._stamp: tuple[object, ...] = ()
        self._files = Files(b"", b"", b"", b"")
        self._contexts: tuple[ssl.SSLContext, ssl.SSLContext] | None = None
        self._read()

    @property
    def secure(self) -> bool:
        """True if certificates are used."""
        return bool(self.paths[0])

    @property
    def token(self) -> bytes:
        """The token; b"" without one."""
        return self.files.token

    @property
    def files(self) -> Files:
        """The current contents of the files.

        If they cannot be read now, the last valid contents.
        """
        with self._lock:
            if self._have_changed():
                try:
                    self._read()
                except errors.OpError as error:  # such as between two writes
                    _log.warning("keeping the old credentials: %s", error.message)
            return self._files

    def contexts(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        """Return TLS contexts for the server and the client ends of connections."""
        self.files  # noqa: B018 reads them if they changed
        assert self._contexts is not None
        return self._contexts

    def _have_changed(self) -> bool:
        return self._stamp != tuple(map(_stamp, self.paths))

    def _read(self) -> None:
        stamp = tuple(map(_stamp, self.paths))
        files = Files(*map(_content, self.paths))
        if self.paths[3]:
            files = files._replace(token=_check_token(files.token, self.paths[3]))
        if self.secure:
            self._contexts = self._create_contexts()
        self._files, self._stamp = files, stamp

    def _create_contexts(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        result = []
        for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
            context = ssl.SSLContext(protocol)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.verify_mode = ssl.CERT_REQUIRED
            certificate, key, authority, _ = self.paths
            try:
                context.load_cert_chain(certificate, key, _no_password)
                context.load_verify_locations(authority)
            except (ssl.SSLError, OSError) as error:
                raise errors.InvalidArgumentError(
                    f"{certificate}, {key} and {authority} must be PEM files of a certificate, its "
                    f"key without a password, and authorities: {error}"
                ) from error
            result.append(context)
        result[1].set_alpn_protocols(["h2"])  # gRPC insists; our own sockets do not ask
        return result[0], result[1]

    def role_of_token(self, data: bytes) -> Role | None:
        """Return the role that a token grants; None if it is wrong.

        Without a token all callers are peers.
        """
        token = self.token
        if not token or hmac.compare_digest(data, token):
            return Role.PEER
        return Role.CLIENT if hmac.compare_digest(data, client_token(token)) else None

    @classmethod
    def random(cls) -> Credentials:
        """Return credentials with a new random token, which is not stored in a file."""
        result = cls()
        result._files = result._files._replace(token=secrets.token_hex(_RANDOM_BYTES).encode())
        return result

    @classmethod
    def from_environment(
        cls,
        environment: Mapping[str, str] | None = None,
        explicit_paths: Mapping[str, str] | None = None,
    ) -> Credentials:
        """Return credentials from environment variables; `explicit_paths` take precedence."""
        environ = os.environ if environment is None else environment
        named = {name: environ.get(variable, "") for name, variable in VARIABLES.items()}
        return cls(
            **{**named, **{name: path for name, path in (explicit_paths or {}).items() if path}}
        )


def client_token(token: bytes) -> bytes:
    """Derive the token of clients, which does not permit the role of a task."""
    return hmac.new(token, b"weft client", hashlib.sha256).hexdigest().encode()


def credentials_of_query(query: str, config: Any = None) -> Credentials:
    """Return the credentials of a target's query: "certificate=…&key=…&authority=…&token=…".

    Names that are missing are taken from the config, or else from the environment.

    Args:
      config: a ConfigProto, or None.
    Raises: InvalidArgumentError: the query contains another name.
    """
    qsl = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(set(qsl) - set(VARIABLES))
    if unknown:
        raise errors.InvalidArgumentError(
            f"the query of a target may have only {', '.join(VARIABLES)} after its '?', got "
            f"{', '.join(unknown)}"
        )
    named = None if config is None else config.experimental.credentials
    files = {} if named is None else {name: getattr(named, name) for name in VARIABLES}
    return Credentials.from_environment(explicit_paths={**files, **qsl})


def _stamp(path: str) -> object:
    if not path:
        return None
    try:
        result = os.stat(path)
    except OSError:
        return "absent"
    return result.st_mtime_ns, result.st_size, result.st_ino


def _content(path: str) -> bytes:
    if not path:
        return b""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise errors.NotFoundError(f"credentials cannot be read from {path}: {error}") from error


def _check_token(content: bytes, path: str) -> bytes:
    token = content.strip()
    if not _MIN_TOKEN_BYTES <= len(token) <= _MAX_TOKEN_BYTES or not token.isascii():
        raise errors.InvalidArgumentError(
            f"the token in {path} must have {_MIN_TOKEN_BYTES} to {_MAX_TOKEN_BYTES} ASCII "
            f"characters, got {len(token)} bytes"
        )
    return token


def _no_password() -> str:
    return ""  # so that OpenSSL does not prompt on a terminal

"""Diagnosis of connections with certificates that fail, with advice."""

from __future__ import annotations

import socket
import ssl
import time
from typing import Final

from weft_distrib.security.credentials import Credentials
from weft_tensor import errors

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
"""The connection preface of HTTP/2, with its first frame."""
_PAUSE_SECONDS = 0.2

_THEIRS: Final = {
    10: "has expired",
    9: "is not valid yet",
    18: "is self-signed instead of signed by this process's authority",
    19: "was issued by an authority that this process does not trust",
    20: "was issued by an authority that this process does not trust",
    62: "does not cover this address",
    64: "does not cover this address",
}
"""Advice if this process rejects a certificate, by OpenSSL's error number."""

_OURS: Final = {
    "CERTIFICATE_REQUIRED": "requires a certificate, and this process has none",
    "HANDSHAKE_FAILURE": "requires a certificate, and this process has none",
    "CERTIFICATE_EXPIRED": "rejects this process's certificate: it has expired",
    "UNKNOWN_CA": "rejects this process's certificate: it was issued by another authority",
    "CERTIFICATE_REVOKED": "rejects this process's certificate: it was revoked",
    "CERTIFICATE_UNKNOWN": "rejects this process's certificate",
    "BAD_CERTIFICATE": "rejects this process's certificate",
    "UNSUPPORTED_CERTIFICATE": "rejects this process's certificate: it is for another purpose",
    "DECRYPT_ERROR": "rejects this process's certificate: its signature is wrong",
    "PROTOCOL_VERSION": "supports no version of TLS that this process supports",
}
"""Advice if the other end rejects a certificate, by the end of the name of its alert."""

_PLAIN = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")


def refusal(error: ssl.SSLError, peer: str) -> errors.OpError:
    """Return the error that describes a failure of TLS.

    Args:
      peer: the name of the other end.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        value = _THEIRS.get(error.verify_code, f"is rejected: {error.verify_message}")
        return errors.UnauthenticatedError(f"the certificate of {peer} {value}")
    reason = error.reason or ""
    for name, value in _OURS.items():
        if reason.endswith(f"ALERT_{name}"):
            return errors.UnauthenticatedError(f"{peer} {value}")
    if reason in _PLAIN:
        return errors.UnauthenticatedError(
            f"{peer} does not use TLS, but this process does: configure certificates there too"
        )
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return errors.UnauthenticatedError(f"{peer} presents no certificate")
    if reason == "UNEXPECTED_EOF_WHILE_READING":
        return errors.UnavailableError(
            f"{peer} closed the connection before the TLS handshake: check that it has "
            "certificates too"
        )
    return errors.UnavailableError(f"TLS with {peer} failed: {error}")


def probe(host: str, port: int, peer: str, credentials: Credentials, timeout: float) -> None:
    """Find out why a gRPC server rejects connections, because gRPC does not report it.

    Returns normally if nothing is wrong, or if the server does not answer.

    Raises: UnauthenticatedError: one end rejects the credentials of the other.
    """
    asks = _probe_tls if credentials.secure else _probe_plain
    try:
        for pause in (0, _PAUSE_SECONDS):  # a server that is ending is silent, too
            time.sleep(pause)
            with socket.create_connection((host, port), timeout) as sock:
                answer = asks(sock, host, credentials)
            if answer:
                break
        if not answer and credentials.secure:
            raise errors.UnauthenticatedError(f"{peer} {_verify_locally(credentials)}")
        if not answer and _speaks_tls(host, port, timeout):
            raise errors.UnauthenticatedError(
                f"{peer} requires TLS, and this process has no certificates: set "
                "WEFT_CERTIFICATE, WEFT_KEY and WEFT_AUTHORITY, or name them in the target"
            )
    except ssl.SSLError as error:
        raise refusal(error, peer) from error
    except OSError:
        return
    if answer.startswith(b"HTTP/"):
        raise errors.UnimplementedError(f"{peer} is not a weft server: it speaks HTTP/1")


def _probe_tls(sock: socket.socket, host: str, credentials: Credentials) -> bytes:
    """Return the first bytes that the server sends; empty if it rejects the certificate."""
    context = credentials.contexts()[1]
    with context.wrap_socket(sock, server_hostname=host) as secure:
        return secure.recv(8)


def _probe_plain(sock: socket.socket, host: str, credentials: Credentials) -> bytes:
    sock.sendall(_PREFACE)
    return sock.recv(8)


def _speaks_tls(host: str, port: int, timeout: float) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection((host, port), timeout) as sock,
            context.wrap_socket(sock) as secure,
        ):
            return secure.version() is not None
    except OSError:
        return False


def _verify_locally(credentials: Credentials) -> str:
    """Return why a server rejects the certificate of this process, by verifying it here."""
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE
    asking.load_cert_chain(*credentials.paths[:2])
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(to_client, to_server)
    server = credentials.contexts()[0].wrap_bio(to_server, to_client, server_side=True)
    for end in (client, server, client, server):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            reason = _THEIRS.get(error.verify_code, f"is rejected: {error.verify_message}")
            return f"rejects this process's certificate, which {reason}"
    return (
        "rejects this process's certificate, which is signed by an authority that it does not trust"
    )

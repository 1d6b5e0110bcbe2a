"""A development authority, and the certificates and the token of a cluster, as files."""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from weft_distrib.security.credentials import Credentials, client_token
from weft_distrib.security.loopback import LOOPBACK
from weft_distrib.security.roles import Role
from weft_tensor import errors

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

DAYS: Final = 30.0
_MIN_DAYS: Final = 1 / (24 * 60)  # a minute; certificates count in seconds
_MAX_DAYS: Final = 36_500.0


def make_certificates(folder: str | Path, tasks: dict[str, str], days: float = DAYS) -> list[Path]:
    """Create an authority, a certificate for each task and one for clients, and a token.

    They are for development, because the key of the authority is stored next to the certificates.
    If an authority exists, it signs the new certificates. All files except certificates are
    readable only by their owner.

    Args:
      folder: receives `authority.crt`, and `<name>.crt` and `<name>.key` for the authority, for
        each task and for "client", and `token` and `client.token`.
      tasks: for each task, such as "ps-0", the host name for connections to it.
      days: the validity of the certificates in days, from a minute to 100 years; an authority is
        valid ten times as long.
    Returns: the files that were written.
    Raises:
      InvalidArgumentError: `days` is out of range; the existing authority cannot be read.
      UnimplementedError: the package `cryptography` is not installed.

    Examples:
      >>> import tempfile
      >>> from weft_distrib.security.authority import make_certificates
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     made = make_certificates(folder, {"worker-0": "localhost"})
      >>> sorted(path.name for path in made)[:3]
      ['authority.crt', 'authority.key', 'client.crt']
    """
    if not _MIN_DAYS <= days <= _MAX_DAYS:
        raise errors.InvalidArgumentError(
            f"days must be between one minute and {_MAX_DAYS:g} days, got {days:g} days"
        )
    base = Path(folder)
    base.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = Authority(base, days)
    for name, host in tasks.items():
        hosts = [host, *(LOOPBACK if host in LOOPBACK else ())]
        authority.issue(name, dict.fromkeys(hosts), Role.PEER, days)
    authority.issue("client", (), Role.CLIENT, days)
    authority.write_tokens()
    return authority.written


def credentials_in(folder: str | Path, name: str) -> Credentials:
    """Return the credentials that `make_certificates` has created for a task or for "client".

    Raises: NotFoundError: a file does not exist.
    """
    base = Path(folder)
    token = "client.token" if name == "client" else "token"
    files = (f"{name}.crt", f"{name}.key", "authority.crt", token)
    return Credentials(*(str(base / file) for file in files))


class Authority:
    """Signs certificates.

    Args:
      folder: the directory of its own files, which are created if necessary, and of signed
        certificates.
      days: validity of signed certificates.
    Attributes:
      written: the files that were written.
    """

    def __init__(self, folder: Path, days: float) -> None:
        try:
            from cryptography import x509  # noqa: F401 only some need it
        except ImportError as error:
            raise errors.UnimplementedError(
                "creating certificates requires the package cryptography: "
                "pip install 'weftml-distrib[certificates]'"
            ) from error
        self._folder = folder
        self.written: list[Path] = []
        if not (folder / "authority.key").exists():
            self._begin(10 * days)
        self._key, self._certificate = self._read()

    def _begin(self, days: float) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder("weft development authority", key, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        builder = builder.add_extension(_usage(signs=True), True)
        self._write("authority", key, _sign(builder.issuer_name(_name()), key))

    def _read(self) -> tuple[EllipticCurvePrivateKey, x509.Certificate]:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            key = load_pem_private_key((self._folder / "authority.key").read_bytes(), None)
            result = x509.load_pem_x509_certificate((self._folder / "authority.crt").read_bytes())
        except (OSError, ValueError, TypeError) as error:
            raise errors.InvalidArgumentError(
                f"the authority in {self._folder} cannot be read; remove authority.key to create "
                f"a new one: {error}"
            ) from error
        if (
            not isinstance(key, ec.EllipticCurvePrivateKey)
            or key.public_key() != result.public_key()
        ):
            raise errors.InvalidArgumentError(
                f"{self._folder}/authority.key is not the key of authority.crt"
            )
        return key, result

    def issue(self, name: str, hosts: Iterable[str], role: Role, days: float) -> None:
        """Create `<name>.crt` and `<name>.key`, for some hosts and a role."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID as Purpose

        key = ec.generate_private_key(ec.SECP256R1())
        names = [*map(_alternative, hosts), x509.UniformResourceIdentifier(role.uri)]
        purposes = [Purpose.CLIENT_AUTH, *([Purpose.SERVER_AUTH] if role is Role.PEER else [])]
        builder = (
            _builder(f"weft {name}"[:64], key, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
            .add_extension(_usage(signs=False), True)
            .add_extension(x509.ExtendedKeyUsage(purposes), False)
            .add_extension(x509.SubjectAlternativeName(names), False)
            .add_extension(_signer(self._certificate), False)
            .issuer_name(self._certificate.subject)
        )
        self._write(name, key, _sign(builder, self._key))

    def write_tokens(self) -> None:
        """Create `token`, unless it exists, and `client.token`."""
        path = self._folder / "token"
        if not path.exists():
            self._write_private(path, secrets.token_hex(32).encode(), 0o600)
        token = path.read_bytes().strip()
        self._write_private(self._folder / "client.token", client_token(token), 0o600)

    def _write(
        self, name: str, key: EllipticCurvePrivateKey, certificate: x509.Certificate
    ) -> None:
        from cryptography.hazmat.primitives import serialization as forms

        pem = forms.Encoding.PEM
        secret = key.private_bytes(pem, forms.PrivateFormat.PKCS8, forms.NoEncryption())
        self._write_private(self._folder / f"{name}.key", secret, 0o600)
        self._write_private(self._folder / f"{name}.crt", certificate.public_bytes(pem), 0o644)

    def _write_private(self, path: Path, content: bytes, mode: int) -> None:
        """Write a file atomically, with restricted permissions from the beginning."""
        temporary_path = path.with_name(f".{path.name}.{os.getpid()}")
        with open(
            os.open(temporary_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb"
        ) as file:
            file.write(content)
        temporary_path.rename(path)
        self.written.append(path)


def _name(text: str = "weft development authority") -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject: str, key: EllipticCurvePrivateKey, days: float) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(
            min(now, now + timedelta(days=days)) - timedelta(hours=1)
        )  # clocks differ
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    )


def _sign(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA256())


def _signer(authority: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    from cryptography import x509

    extension = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(extension.value)


def _usage(signs: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)

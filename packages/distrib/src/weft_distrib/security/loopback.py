"""Tokens that servers on loopback publish to other processes of the same user.

A server that only this machine can reach generates a token when it starts, and writes it to a file
that only its user can read. Clients and tasks of the same user find the file by the port; other
users of the machine cannot read it. A running server holds a lock on its file. So the token of a
server that has ended is never sent to another program that now listens on its port.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from weft_distrib.security.machine import machine
from weft_tensor import errors

DIRECTORY_VARIABLE: Final = "WEFT_RUNTIME_DIR"
"""Environment variable with the directory of the tokens, which replaces the default."""

_ADDRESSES: Final = {"localhost": "127.0.0.1", "127.0.0.1": "127.0.0.1", "::1": "::1"}
LOOPBACK: Final = tuple(_ADDRESSES)
"""Host names that only processes of this machine can reach."""

_MAX_TOKEN_BYTES: Final = 1 << 10
_OF_OTHERS: Final = 0o077


class _Entry(NamedTuple):
    path: Path
    file: int  # open, with a lock


class PublishedToken:
    """A token of a server, which processes of the same user can read until `withdraw`.

    Args:
      host: the host name of the server, one of `LOOPBACK`.
      ports: the ports that accept the token.
      token: the token, printable ASCII.
    Raises: PermissionDeniedError: no directory is accessible only to this user.
    """

    def __init__(self, host: str, ports: Sequence[int], token: bytes) -> None:
        self._entries: list[_Entry] = []
        directory = _private_directory()
        _published.add(self)
        with _lock_directory(directory):
            _remove_stale(directory)
            for port in ports:
                self._entries.append(_write_entry(directory / _name(host, port), token))

    def withdraw(self) -> None:
        """Remove the published token; call this before the ports are closed."""
        for path, file in self._entries:
            with suppress(OSError), _lock_directory(path.parent):  # removed by others
                if os.path.samestat(os.fstat(file), os.lstat(path)):
                    path.unlink()
        self.release()

    def release(self) -> None:
        """Close the files, without unlocking them in other processes that have them open."""
        for _, file in self._entries:
            os.close(file)
        self._entries.clear()


_published: Final[weakref.WeakSet[PublishedToken]] = weakref.WeakSet()


def _release_in_child() -> None:
    """Close the files of servers in a forked child, because they belong to the parent."""
    for token in list(_published):
        token.release()


os.register_at_fork(after_in_child=_release_in_child)


def numeric_host(host: str) -> str:
    """Return the numeric address on which servers listen for a host name.

    "localhost" has two addresses. A server listens on only one of them, and a program of another
    user could listen on the other.
    """
    return _ADDRESSES.get(host, host)


def find_published_token(host: str, port: int) -> bytes:
    """Return the token that a running server of this user has published; b"" if there is none.

    Args:
      host, port: the address of the server.
    """
    if host not in _ADDRESSES:
        return b""
    for directory in _directories():
        with suppress(OSError, errors.PermissionDeniedError):
            _check_private(directory)
            file = os.open(directory / _name(host, port), os.O_RDONLY | os.O_NOFOLLOW)
            with open(file, "rb") as stream:
                if _is_private(os.fstat(file)) and not _try_lock(file):
                    return stream.read(_MAX_TOKEN_BYTES)
    return b""


def _name(host: str, port: int) -> str:
    """Return the name of a token file.

    It includes the machine, because machines may share a home directory.
    """
    return f"{machine() or socket.gethostname()}-{_ADDRESSES[host].replace(':', '_')}-{port}"


def _directories() -> list[Path]:
    named = os.environ.get(DIRECTORY_VARIABLE)
    if named:
        return [Path(named)]
    result = [Path(tempfile.gettempdir(), f"weft-{os.geteuid()}")]
    with suppress(RuntimeError):  # the user has no home
        result.insert(0, Path.home() / ".local" / "state" / "weft" / "servers")
    return result


def _private_directory() -> Path:
    """Return the first usable directory, creating it if necessary."""
    reasons = []
    for directory in _directories():
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                directory.mkdir(mode=0o700)
            _check_private(directory)
            with _lock_directory(directory):
                tempfile.TemporaryFile(dir=directory).close()
            return directory
        except OSError as error:
            reasons.append(f"{directory}: {error.strerror}")
        except errors.PermissionDeniedError as error:
            reasons.append(error.message)
    raise errors.PermissionDeniedError(
        "a server on loopback needs a private directory for its token, but none can be used "
        f"({'; '.join(reasons)}): set {DIRECTORY_VARIABLE} to a private directory, or WEFT_TOKEN "
        "to a token file"
    )


def _check_private(directory: Path) -> None:
    result = os.lstat(directory)
    if not stat.S_ISDIR(result.st_mode) or not _is_private(result):
        raise errors.PermissionDeniedError(
            f"{directory} must be a directory of this user with mode 0700, not a link"
        )


def _is_private(result: os.stat_result) -> bool:
    return result.st_uid == os.geteuid() and not result.st_mode & _OF_OTHERS


@contextmanager
def _lock_directory(directory: Path) -> Iterator[None]:
    """Hold a lock on a directory while files are added or removed."""
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _try_lock(file: int) -> bool:
    """Lock a file; return False if a running server has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_entry(path: Path, token: bytes) -> _Entry:
    """Create a file that has its content, mode and lock from the moment when its name appears."""
    file, temporary = tempfile.mkstemp(dir=path.parent)  # new, and of mode 0600
    try:
        os.write(file, token)
        fcntl.flock(file, fcntl.LOCK_EX)
        os.rename(temporary, path)
    except BaseException:  # because it would never be removed
        os.close(file)
        os.unlink(temporary)
        raise
    return _Entry(path, file)


def _remove_stale(directory: Path) -> None:
    """Remove the files of servers on this machine that have ended without doing so."""
    for path in directory.glob(f"{machine() or socket.gethostname()}-*"):
        with suppress(OSError):
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                if _try_lock(file):
                    path.unlink()
            finally:
                os.close(file)

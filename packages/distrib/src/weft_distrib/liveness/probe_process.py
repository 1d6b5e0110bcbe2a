"""The probe process of a server, which reports the server's state; uses only the standard library.

Arguments: the descriptors of a listening socket and of the memory with the server's counter, the
  process id of the server, and the files of its certificate, key and authority if it has any. It
  ends together with the server. It answers each byte that it receives by an `ANSWER`.
"""

import mmap
import os
import selectors
import signal
import socket
import ssl
import struct
import sys
import time
from contextlib import suppress

VERSION = 1
ANSWER = struct.Struct("<BQQ?")
"""Format of an answer: `VERSION`, the server's counter, its processor time in ticks, and whether it
is stopped.
"""

_STOPPED = frozenset("Tt")


_MAX_ASKING = 1024
_PATIENCE_SECONDS = 60.0
"""Seconds without a request after which a connection may be dropped, if there are too many."""


def main(listening: int, memory: int, server: int, *files: str) -> None:
    """Answer requests until the server ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    beats = mmap.mmap(memory, mmap.PAGESIZE, prot=mmap.PROT_READ)
    listener = socket.socket(fileno=listening)
    try:
        end = os.pidfd_open(server)
    except ProcessLookupError:  # it has ended already
        return
    door = _ProbeSocket(files)
    requested: dict[socket.socket, float] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(end, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj == end:
                    return
                if key.fileobj is listener:
                    sock = door.accept_connection(listener)
                    if sock is not None:
                        _make_room(requested, selector)
                        selector.register(sock, selectors.EVENT_READ, sock)
                        requested[sock] = time.monotonic()
                elif key.data in requested and _answer(key.data, beats, server):
                    requested[key.data] = time.monotonic()
                elif key.data in requested:
                    _drop(key.data, requested, selector)


class _ProbeSocket:
    """Accepts connections; uses TLS if there are certificate files, which may change."""

    def __init__(self, files: "tuple[str, ...]") -> None:
        self._files = files
        self._stamp: object = None
        self._context: ssl.SSLContext | None = None

    def _read(self) -> None:
        result = [os.stat(path) for path in self._files]
        stamp = [(item.st_mtime_ns, item.st_size, item.st_ino) for item in result]
        if stamp == self._stamp:
            return
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        certificate, key, authority = self._files
        context.load_cert_chain(certificate, key, lambda: "")
        context.load_verify_locations(authority)
        self._context, self._stamp = context, stamp

    def accept_connection(self, listener: socket.socket) -> "socket.socket | None":
        """Accept a connection as non-blocking socket; return None if that fails."""
        try:
            sock, _ = listener.accept()
        except OSError:
            time.sleep(0.01)  # such as too many open files: do not turn round and round
            return None
        sock.setblocking(False)
        if not self._files:
            return sock
        with suppress(OSError, ValueError):  # between two writes, or gone: those of before will do
            self._read()
        try:
            if self._context is not None:
                return self._context.wrap_socket(
                    sock, server_side=True, do_handshake_on_connect=False
                )
        except (OSError, ValueError):  # the peer disconnected
            pass
        sock.close()
        return None


def _make_room(requested: "dict[socket.socket, float]", selector: selectors.BaseSelector) -> None:
    if len(requested) < _MAX_ASKING:
        return
    late = time.monotonic() - _PATIENCE_SECONDS
    for sock in [sock for sock, last in requested.items() if last < late] or [
        min(requested, key=requested.__getitem__)
    ]:
        _drop(sock, requested, selector)


def _drop(
    sock: socket.socket, requested: "dict[socket.socket, float]", selector: selectors.BaseSelector
) -> None:
    selector.unregister(sock)
    del requested[sock]
    sock.close()


def _answer(sock: socket.socket, beats: mmap.mmap, server: int) -> bool:
    try:
        if not sock.recv(1):
            return False
        count = int.from_bytes(beats[:8], "little")
        sock.send(ANSWER.pack(VERSION, count, *_vitals(server)))
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return True  # the handshake continues
    except (OSError, ValueError):
        return False
    return True


def _vitals(server: int) -> tuple[int, bool]:
    """Return the processor time of a process in ticks, and True if it is stopped."""
    with open(f"/proc/{server}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12]), fields[0] in _STOPPED


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])

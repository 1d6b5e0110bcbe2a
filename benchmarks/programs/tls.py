"""Bytes between two processes over TLS: weft's connections, beside Python's own TLS sockets.

`python benchmarks/programs/tls.py` prints the MB/s of both, taken in turns, and the ratio; and that
of the processor time of the busier end, which tells the same of an idle machine.
"""

from __future__ import annotations

import json
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from weft_distrib.security.authority import credentials_in, make_certificates
from weft_distrib.security.credentials import Credentials
from weft_distrib.wire.channel import Call
from weft_distrib.wire.handshake import ConnectionOptions
from weft_distrib.wire.listener import Listener, ask, dial

MB = 1 << 20
ROUNDS = {1: 100, 16: 20, 100: 7}
"""How often values of so many MB are sent."""

SIZES = tuple(ROUNDS)


def serve(folder: str) -> None:
    credentials = credentials_in(folder, "worker-0")

    def take(call: Call) -> None:
        call.reply((), used())

    listener = Listener("127.0.0.1", ConnectionOptions(1, credentials, local=False), 7, take)
    bare = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=take_bare, args=(bare, credentials), daemon=True).start()
    print(json.dumps([listener.port, bare.getsockname()[1]]), flush=True)
    sys.stdin.read()


def take_bare(listener: socket.socket, credentials: Credentials) -> None:
    """Read the announced number of bytes into existing memory, and answer with one byte."""
    buffer = memoryview(bytearray(max(SIZES) * MB))
    sock = credentials.contexts()[0].wrap_socket(listener.accept()[0], server_side=True)
    while head := sock.recv(8):
        left = int.from_bytes(head, "little")
        while left:
            left -= sock.recv_into(buffer[:left])
        sock.sendall(used())


def used() -> bytes:
    """Return the processor time of this process."""
    return struct.pack("<d", time.process_time())


Send = Callable[[np.ndarray], bytes]
"""Sends a value, and returns what `used` says at the other end."""


def bare_sender(port: int, credentials: Credentials) -> Send:
    plain = socket.create_connection(("127.0.0.1", port))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock: ssl.SSLSocket = credentials.contexts()[1].wrap_socket(plain, server_hostname="localhost")

    def send(value: np.ndarray) -> bytes:
        sock.sendall(value.nbytes.to_bytes(8, "little"))
        sock.sendall(value.data)
        return sock.recv(8)

    return send


def weft_sender(port: int, credentials: Credentials) -> Send:
    channel = dial(
        ("localhost", port), "the other", ConnectionOptions(1, credentials, local=False), 7, 30
    )
    return lambda value: ask(channel, 1, b"", [value], 60)[1]


class Took(NamedTuple):
    """Return the elapsed seconds, and the processor seconds of the busier end."""

    clock: float
    busy: float


def took(send: Send, value: np.ndarray) -> Took:
    (there,) = struct.unpack("<d", send(value[:1]))
    here, began = time.process_time(), time.perf_counter()
    (after,) = struct.unpack("<d", send(value))
    clock = time.perf_counter() - began
    return Took(clock, max(time.process_time() - here, after - there))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        make_certificates(folder, {"worker-0": "localhost"})
        command = [sys.executable, __file__, "serve", folder]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        wire, bare = json.loads(process.stdout.readline())
        credentials = credentials_in(folder, "worker-0")
        senders = (bare_sender(bare, credentials), weft_sender(wire, credentials))
        for size in SIZES:
            value = np.random.default_rng(0).integers(0, 255, size * MB, np.uint8)
            rounds = [[took(send, value) for send in senders] for _ in range(ROUNDS[size] + 1)][1:]
            bare_s, weft_s = (
                min(took.clock for took in column) for column in zip(*rounds, strict=True)
            )
            clock = statistics.median(b.clock / w.clock for b, w in rounds)
            busy = statistics.median(b.busy / w.busy for b, w in rounds)
            print(
                f"{size:4} MB: socket {size / bare_s:6.0f} MB/s, weft {size / weft_s:6.0f} MB/s at "
                f"best; ratio {clock:.2f} (median), of processor time {busy:.2f}"
            )
        process.kill()
        process.wait()


if __name__ == "__main__":
    serve(sys.argv[2]) if sys.argv[1:2] == ["serve"] else main()

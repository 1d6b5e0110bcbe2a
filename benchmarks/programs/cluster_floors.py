"""The least time of a transfer between two processes: by a TCP socket, and by a memory copy."""

from __future__ import annotations

import os
import socket
import sys

import numpy as np
import timing
from timing import Timer

MB = 1 << 20
SIZES = (1, 10, 100)


def give(port: int) -> None:
    """Send the requested number of bytes for each request."""
    data = memoryview(bytearray(max(SIZES) * MB))
    with socket.create_connection(("localhost", port)) as sock:
        while asked := sock.recv(8):
            sock.sendall(data[: int.from_bytes(asked, "little")])


def floors(timer: Timer) -> None:
    with socket.create_server(("localhost", 0)) as server:
        child = os.fork()
        if not child:
            give(server.getsockname()[1])
            os._exit(0)
        sock, _ = server.accept()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    there, here = np.ones(max(SIZES) * MB, np.uint8), np.ones(max(SIZES) * MB, np.uint8)

    def receive(nbytes: int) -> None:
        sock.sendall(nbytes.to_bytes(8, "little"))
        left = memoryview(here)[:nbytes]
        while left:
            left = left[sock.recv_into(left) :]

    timer.time("floor_tcp_0MB", lambda: receive(4))
    for size in SIZES:
        nbytes = size * MB
        timer.time(f"floor_tcp_{size}MB", lambda nbytes=nbytes: receive(nbytes))
        timer.time(
            f"floor_copy_{size}MB",
            lambda nbytes=nbytes: np.copyto(here[:nbytes], there[:nbytes]),
        )
    sock.close()
    os.waitpid(child, 0)


if __name__ == "__main__":
    sys.exit(timing.main({"floors": floors}, timing.parser().parse_args()))

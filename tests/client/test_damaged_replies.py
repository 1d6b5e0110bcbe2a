"""Replies are untrusted: a client that gets damaged ones fails, and does nothing else."""

from __future__ import annotations

import random
import shutil
import socket
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.client.conftest import PROGRAMS, run
from weft_distrib.protocol import messages
from weft_distrib.protocol.tables import encode
from weft_distrib.wire.frames import HEAD, Message, Outbox
from weft_distrib.wire.methods import CLOSE_SESSION, CREATE_SESSION, PLAN, RUN_STEP

COUNT = 250
_FRAME = struct.Struct("<BBHIQ")


def frames(number: int, code: int, meta: bytes, values: Sequence[Any] = ()) -> bytes:
    box, data = Outbox(), b""
    box.add(Message(HEAD, True, number, code, meta, values))
    while buffers := box.next():
        data += b"".join(buffers)
        box.sent(sum(map(len, buffers)))
    return data


def reply_to(method: int, number: int) -> bytes:
    """A valid reply, of each form that there is."""
    if method == CREATE_SESSION:
        devices = ['{"name": "/job:local/task:0/device:CPU:0"}', "x"]
        return frames(number, 0, encode(messages.Session(7, devices, [3])))
    if method == PLAN:
        return frames(number, 0, encode(messages.Planned(5)))
    if method == RUN_STEP:
        values = [np.array([b"a", b"bc"], object), np.ones(2500), np.float32(1)]
        return frames(number, 0, b"", values)
    if method == CLOSE_SESSION:
        error = b'{"code": 5, "message": "a\\u00e9\\ud83d\\ude00", "node": "n", "inputs": [{}]}'
        return frames(number, 5, error)
    return frames(number, 0, b"")


def damaged(data: bytes, by: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(by.choice((1, 1, 2, 4))):
        place = by.randrange(min(len(changed), by.choice((64, 256, len(changed)))))
        kind = by.randrange(4)
        if kind == 0:
            changed[place] = by.randrange(256)
        elif kind == 1:
            changed[place : place + 4] = by.choice((0, 1, 2**31, 2**32 - 1)).to_bytes(4, "little")
        elif kind == 2:
            changed[place] ^= 1 << by.randrange(8)
        elif len(changed) > 1:
            del changed[place : place + by.randrange(1, 9)]
        if not changed:
            break
    return bytes(changed)


class Answerer:
    """Answers calls; on each connection one reply, another one each time, is damaged."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._by = random.Random(3)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        for connection in range(COUNT):
            sock, _ = self._socket.accept()
            with sock, suppress(OSError, struct.error):
                sock.settimeout(5)
                self._answer(sock, connection % 5)

    def _answer(self, sock: socket.socket, target: int) -> None:
        for index in range(5):
            header = self._read(sock, _FRAME.size)
            _, _, _, size, number = _FRAME.unpack(header)
            payload = self._read(sock, size)
            (method,) = struct.unpack_from("<H", payload)
            reply = reply_to(method, number)
            if index == target:
                sock.sendall(damaged(reply, self._by))
                sock.shutdown(socket.SHUT_WR)  # else a short reply would be waited for
                return
            sock.sendall(reply)

    def _read(self, sock: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = sock.recv(size - len(data))
            if not more:
                raise OSError("the client is gone")
            data += more
        return data

    def close(self) -> None:
        self._socket.close()


@pytest.mark.parametrize("language", ["c", "js"])
def test_damaged_replies(request: pytest.FixtureRequest, language: str) -> None:
    if language == "c":
        program = [request.getfixturevalue("build") / "c_client"]
    elif shutil.which("node") is None:
        pytest.skip("node is not installed")
    else:
        program = [Path("node"), PROGRAMS / "suite.mjs", "often"]
    answerer = Answerer()
    try:
        said = run(*program, f"weft://127.0.0.1:{answerer.port}", str(COUNT))
    finally:
        answerer.close()
    assert COUNT // 4 < int(said) < COUNT

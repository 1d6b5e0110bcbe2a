"""Replies are untrusted: a client that gets damaged ones fails, and does nothing else."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Any

import numpy as np
import pytest

from tests.client.conftest import command, run
from tests.client.test_errors import Program
from weft_distrib.protocol import messages
from weft_distrib.protocol.tables import encode
from weft_distrib.wire.frames import CANCEL, HEAD, Message, Outbox
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


def read(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise OSError("the client is gone")
        data += more
    return data


def next_frame(sock: socket.socket) -> tuple[int, int, bytes]:
    """Return the kind, number and payload of a frame."""
    kind, _, _, size, number = _FRAME.unpack(read(sock, _FRAME.size))
    return kind, number, read(sock, size)


def next_call(sock: socket.socket) -> tuple[int, int]:
    """Return the number and the method of a call; frames of other kinds are skipped."""
    kind, number, payload = next_frame(sock)
    while kind != HEAD:
        kind, number, payload = next_frame(sock)
    return number, struct.unpack_from("<H", payload)[0]


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
            number, method = next_call(sock)
            reply = reply_to(method, number)
            if index == target:
                sock.sendall(damaged(reply, self._by))
                sock.shutdown(socket.SHUT_WR)  # else a short reply would be waited for
                return
            sock.sendall(reply)

    def close(self) -> None:
        self._socket.close()


@pytest.mark.parametrize("language", ["c", "js"])
def test_damaged_replies(request: pytest.FixtureRequest, language: str) -> None:
    program = command(request, language, "c_client") + (["often"] if language == "js" else [])
    answerer = Answerer()
    try:
        said = run(*program, f"weft://127.0.0.1:{answerer.port}", str(COUNT))
    finally:
        answerer.close()
    assert COUNT // 4 < int(said) < COUNT


class LateServer:
    """Answer one step late, the next in time, and the third with its own number."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.target = f"weft://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        sock, _ = self._socket.accept()
        with sock, suppress(OSError):
            sock.settimeout(30)
            self._answer_setup(sock)
            self._answer_steps(sock)
            read(sock, 1)  # until the client has closed the connection

    def _answer_setup(self, sock: socket.socket) -> None:
        method = None
        while method != PLAN:
            number, method = next_call(sock)
            sock.sendall(reply_to(method, number))

    def _answer_steps(self, sock: socket.socket) -> None:
        late, _ = next_call(sock)
        while next_frame(sock)[:2] != (CANCEL, late):
            pass
        sock.sendall(frames(late, 0, b"", [np.ones(1 << 18), np.ones(2)]))
        number, _ = next_call(sock)
        sock.sendall(frames(number, 0, b"", [np.float32(3)]))
        number, _ = next_call(sock)
        sock.sendall(frames(number + 1, 0, b"", [np.ones(1 << 18)]))

    def close(self) -> None:
        self._socket.close()


@pytest.mark.parametrize("language", ["c", "cpp", "js"])
def test_late_and_unsolicited_replies(request: pytest.FixtureRequest, language: str) -> None:
    program = command(request, language, "lines")
    with closing(LateServer()) as server, closing(Program(program, server.target)) as lines:
        assert lines.fail("run").code == "DEADLINE_EXCEEDED"
        assert lines.send("run patient") == "3\n"  # the late reply was dropped
        failure = lines.fail("run patient")
    assert failure.code == "DATA_LOSS" and "was not made" in failure.message

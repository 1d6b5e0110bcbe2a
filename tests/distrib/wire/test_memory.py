"""Values by shared memory: no byte of them on the socket, and no block left behind."""

from __future__ import annotations

import gc
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from weft_testing.waiting import wait_until

from weft_distrib.wire import memory
from weft_distrib.wire.channel import Call, Channel
from weft_distrib.wire.frames import BLOCK, HEAD, RELEASE
from weft_distrib.wire.listener import ask
from weft_distrib.wire.memory import SHARED_BYTES, BlockMap, Budget, Pool
from weft_distrib.wire.streams import LocalStream
from weft_tensor import errors

LARGE = np.arange(SHARED_BYTES, dtype=np.float64).reshape(4, -1)

Pair = Callable[..., tuple[Channel, Channel]]


@pytest.fixture
def pair() -> Iterator[Pair]:
    made: list[Channel] = []

    def connect(serve: Any = None) -> tuple[Channel, Channel]:
        a, b = socket.socketpair(socket.AF_UNIX)
        made.extend((Channel(LocalStream(a), "b"), Channel(LocalStream(b), "a", serve)))
        return made[-2], made[-1]

    yield connect
    for channel in made:
        channel.close()


def echo(call: Call) -> None:
    call.reply(call.values, call.meta)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_values_of_all_kinds(pair: Pair) -> None:
    a, b = pair(echo)
    sent = [
        LARGE,
        LARGE.T,
        LARGE[:, ::2],
        np.float32(2),
        np.array([b"x" * SHARED_BYTES, b""], object),
        np.zeros((0, 3)),
        LARGE.astype(np.complex64),
    ]
    got, _ = ask(a, 1, b"", sent, 30)
    for x, y in zip(sent, got, strict=True):
        assert np.asarray(x).dtype == np.asarray(y).dtype and np.array_equal(x, y)
    shared = sum(x.nbytes for x in (LARGE, LARGE, LARGE[:, ::2], sent[-1]))
    assert a.traffic.bytes_shared == b.traffic.bytes_shared == shared
    assert a.traffic.bytes_received == b.traffic.bytes_sent >= shared


def test_one_copy_and_blocks_that_come_back(pair: Pair) -> None:
    places = []

    def look(call: Call) -> None:
        places.append(call.values[0].ctypes.data)
        call.reply()

    a, _ = pair(look)
    for _ in range(20):
        ask(a, 1, b"", [LARGE], 30)
        wait_until(lambda: not a._pool._used)  # the one that serves lets go after it answers
    assert len(set(places)) == 1
    assert a.traffic.bytes_copied == 0 and a.traffic.bytes_shared == 20 * LARGE.nbytes


def test_what_is_kept_stays_as_it_was(pair: Pair) -> None:
    kept: list[np.ndarray] = []

    def keep(call: Call) -> None:
        kept.append(call.values[0][1:])
        call.reply()

    a, b = pair(keep)
    for i in range(5):
        ask(a, 1, b"", [LARGE + i], 30)
    a.close()
    wait_until(lambda: b.lost)
    for i, each in enumerate(kept):
        assert np.array_equal(each, LARGE[1:] + i)
        each += 1.0  # who has it may write to it


def test_without_room_the_socket_carries_values(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = Budget(3 * LARGE.nbytes)
    monkeypatch.setattr(memory.Pool.__init__, "__defaults__", (budget,))
    kept: list[Any] = []

    def keep(call: Call) -> None:
        kept.append(call.values[0])
        call.reply()

    a, _ = pair(keep)
    for _ in range(6):
        ask(a, 1, b"", [LARGE], 30)
    assert a.traffic.bytes_shared == 3 * LARGE.nbytes and budget.used == budget.limit
    assert all(np.array_equal(each, LARGE) for each in kept)
    kept.clear()
    wait_until(lambda: not a._pool._used)
    ask(a, 1, b"", [LARGE[:2]], 30)  # of another size: the blocks that hold nothing give way
    assert a.traffic.bytes_shared == 3.5 * LARGE.nbytes and budget.used == LARGE.nbytes / 2
    a.close()
    assert budget.used == 0


def test_nothing_is_left_open(pair: Pair) -> None:
    pair(echo)
    gc.collect()
    before, used = open_files(), memory.process_budget.used
    a, b = pair(echo)
    ask(a, 1, b"", [LARGE, LARGE], 30)
    assert open_files() > before
    a.close()
    wait_until(lambda: b.lost)

    def gone() -> bool:
        gc.collect()
        return open_files() <= before and memory.process_budget.used == used

    wait_until(gone)


def test_a_call_that_is_cancelled_before_its_copy(pair: Pair) -> None:
    came: list[int] = []
    a, _ = pair(lambda call: (came.append(call.method), call.reply()))
    let, put = threading.Event(), a._pool.put
    a._pool.put = lambda array: (let.wait(30), put(array))[1]

    class Nobody:
        def __call__(self, values: Any, meta: bytes) -> None: ...
        def fail(self, error: Any) -> None: ...

    number = a.call(7, b"", [LARGE], Nobody())
    assert a.cancel(number)
    let.set()
    ask(a, 8, b"", [LARGE], 30)
    assert came == [8]


# ----------------------------------------------------------------------- hostile ends


def frame(kind: int, number: int, payload: bytes = b"") -> bytes:
    return struct.pack("<BBHIQ", kind, 0, 0, len(payload), number) + payload


def value_in(block: int, nbytes: int = SHARED_BYTES, code: int = 4) -> bytes:
    fixed = struct.pack("<BBBxxxxxQ", code, 1, 4, nbytes) + struct.pack("<q", nbytes)
    body = struct.pack("<HHI", 1, 1, 0) + fixed + struct.pack("<Q", block)
    return frame(HEAD, 1, body)


def file_of(size: int, seals: int = memory._SEALS) -> int:
    file = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(file, size)
    memory.fcntl.fcntl(file, memory.fcntl.F_ADD_SEALS, seals)
    return file


def send(sock: socket.socket, data: bytes, *files: int) -> None:
    socket.send_fds(sock, [data], files)
    for file in files:
        os.close(file)


HOSTILE: dict[str, tuple[Any, str]] = {
    "no file": (lambda s: send(s, frame(BLOCK, 1)), "without a file descriptor"),
    "may shrink": (
        lambda s: send(s, frame(BLOCK, 1), file_of(4096, memory.fcntl.F_SEAL_GROW)),
        "not sealed against shrinking",
    ),
    "empty": (lambda s: send(s, frame(BLOCK, 1), file_of(0)), "it is empty"),
    "no memory": (
        lambda s: send(s, frame(BLOCK, 1), os.open("/dev/null", os.O_RDWR)),
        "cannot be mapped",
    ),
    "too short": (lambda s: send(s, frame(BLOCK, 1) + value_in(1), file_of(4096)), ""),
    "unknown": (lambda s: send(s, value_in(9)), ""),
    "strings": (
        lambda s: send(s, frame(BLOCK, 1) + value_in(1, code=7), file_of(SHARED_BYTES)),
        "",
    ),
    "not given": (lambda s: send(s, frame(RELEASE, 5)), ""),
    "twice": (
        lambda s: send(s, frame(BLOCK, 1) + frame(BLOCK, 1), file_of(4096), file_of(4096)),
        "announced twice",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_who_breaks_the_rules_is_left(name: str) -> None:
    hostile, message = HOSTILE[name]
    before = open_files()
    mine, theirs = socket.socketpair(socket.AF_UNIX)
    channel = Channel(LocalStream(theirs), "hostile", echo)
    hostile(mine)
    wait_until(lambda: channel.lost)
    assert isinstance(channel.lost, errors.DataLossError | errors.ResourceExhaustedError)
    assert message in str(channel.lost)
    mine.close()

    def gone() -> bool:
        gc.collect()
        return open_files() <= before

    wait_until(gone)


def test_a_block_is_leased_once() -> None:
    released: list[int] = []
    files = [file_of(8192)]
    mapped = BlockMap(lambda: files.pop() if files else None, released.append)
    mapped.add(3)
    first = mapped.lease(3, 100)
    with pytest.raises(errors.DataLossError, match="block 3"):
        mapped.lease(3, 100)
    part = first.view(np.int16)[:4]
    del first
    assert not released
    del part
    assert released == [3]
    mapped.lease(3, 8192)


def test_a_pool_that_was_closed_gives_nothing() -> None:
    pool = Pool(lambda number, file: os.close(file), Budget(1 << 30))
    assert pool.put(LARGE) is not None
    pool.close()
    assert pool.put(LARGE) is None
    pool.give_back(1)  # what comes late is nobody's fault


def test_blocks_are_as_few_as_open_files_allow() -> None:
    budget = Budget(1 << 40, blocks=2)
    pools = [Pool(lambda number, file: os.close(file), budget) for _ in range(2)]
    assert pools[0].put(LARGE) and pools[1].put(LARGE)
    assert pools[0].put(LARGE) is None
    pools[1].close()
    assert pools[0].put(LARGE)
    many = Pool(lambda number, file: os.close(file), Budget(1 << 40))
    put = [many.put(LARGE[:1]) for _ in range(memory._MAX_BLOCKS + 1)]
    assert put[-1] is None and all(put[:-1])
    many.close()
    pools[0].close()


def test_files_keep_their_order_when_the_socket_is_full() -> None:
    """Blocks of a failed send are announced first in the next one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    sender, receiver = LocalStream(ours), LocalStream(theirs)
    ours.setblocking(False)
    full = memoryview(bytes(1 << 16))
    while sender.send([full], wait=False):
        pass
    files = [os.memfd_create(f"weft-test-{i}") for i in range(5)]
    inodes = [os.fstat(file).st_ino for file in files]
    for file in files[:3]:
        sender.attach(file)
    assert sender.send([full], wait=False) == 0
    for file in files[3:]:
        sender.attach(file)
    assert sender.send([full], wait=False) == 0
    buffer, sent = memoryview(bytearray(1 << 16)), 0
    while not sent:
        receiver.recv_into(buffer)
        sent = sender.send([full[:1]], wait=False)
    arrived: list[int] = []
    while len(arrived) < len(files):
        receiver.recv_into(buffer)
        while (file := receiver.next_file()) is not None:
            arrived.append(os.fstat(file).st_ino)
            os.close(file)
    assert arrived == inodes
    sender.close()
    receiver.close()

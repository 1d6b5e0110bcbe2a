"""Messages as frames: any cut of the bytes gives the same messages; wrong bytes are refused."""

from __future__ import annotations

import itertools
import struct
from contextlib import suppress
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from weft_distrib.wire.frames import CHUNK_BYTES, DATA, HEAD, PING, Inbox, Message, Outbox
from weft_distrib.wire.values import INLINE_BYTES
from weft_exec.resources.rendezvous import DEAD
from weft_exec.resources.resources import ResourceHandle
from weft_tensor import errors

VALUES = [
    np.float32(3),
    np.arange(6).reshape(2, 3)[:, ::-1],
    np.zeros((0, 3), np.complex128),
    np.array(2.5, ml_dtypes.bfloat16),
    np.array([[True], [False]]),
    np.array([[b"a\0", b""], [b"\xff" * 300, b"x"]], object),
    b"alone\0",
    DEAD,
    np.arange(INLINE_BYTES, dtype=np.float64),
    np.arange(CHUNK_BYTES, dtype=np.int16).reshape(4, -1).T,
    np.array([b"y" * INLINE_BYTES, b"z"], object),
]


def same(a: Any, b: Any) -> bool:
    if a is DEAD or b is DEAD:
        return a is b
    a = np.array(a, object) if isinstance(a, bytes) else np.asarray(a)
    b = np.asarray(b)
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    return a.tolist() == b.tolist() if a.dtype.hasobject else a.tobytes() == b.tobytes()


def frames(*sent: Message) -> bytes:
    outbox = Outbox()
    for message in sent:
        outbox.add(message)
    data = b""
    while buffers := outbox.next():
        whole = b"".join(buffers)
        data += whole
        outbox.sent(len(whole))
    return data


def read(sent: bytes, cuts: Any = None, limit: int = 1 << 30) -> list[Message]:
    inbox, found, data = Inbox(limit), [], memoryview(sent)
    while data:
        space = inbox.space()
        count = min(len(space), len(data), next(cuts) if cuts else len(data))
        space[:count] = data[:count]
        found += inbox.received(count)
        data = data[count:]
    return found


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.sampled_from(range(len(VALUES))), max_size=4), min_size=1, max_size=4),
    st.lists(st.integers(1, 1_000_000), min_size=1, max_size=20),
)
def test_any_cut_gives_the_same_messages(chosen: list[list[int]], cuts: list[int]) -> None:
    sent = [
        Message(HEAD, bool(i % 2), i, 7 + i, b"meta" * i, [VALUES[v] for v in values])
        for i, values in enumerate(chosen)
    ]
    sent.append(Message(PING, False, 0))
    # Then all at once, else cuts of one byte would be millions.
    ended = itertools.chain(itertools.islice(itertools.cycle(cuts), 500), itertools.repeat(1 << 30))
    found = {(m.kind, m.call): m for m in read(frames(*sent), ended)}
    assert len(found) == len(sent)
    for message in sent:
        got = found[message.kind, message.call]
        assert got[:4] == message[:4] and got.meta == message.meta
        assert all(map(same, message.values, got.values)), (message.values, got.values)


def test_small_messages_pass_a_large_one() -> None:
    outbox = Outbox()
    outbox.add(Message(HEAD, False, 1, values=[np.zeros(5 * CHUNK_BYTES, np.uint8)]))
    outbox.add(Message(HEAD, False, 2, values=[np.zeros(3 * CHUNK_BYTES, np.uint8)]))
    inbox, order = Inbox(1 << 30), []
    for turn in range(100):
        data = b"".join(outbox.next())
        if not data:
            break
        outbox.sent(len(data))
        if turn == 2:
            outbox.add(Message(HEAD, False, 3))
        while data:
            space = inbox.space()
            count = min(len(space), len(data))
            space[:count] = data[:count]
            order += [m.call for m in inbox.received(count)]
            data = data[count:]
    assert order == [3, 2, 1]


def test_a_partly_sent_frame_goes_on_where_it_was() -> None:
    sent = Message(HEAD, False, 1, values=[np.arange(INLINE_BYTES)])
    outbox, data = Outbox(), b""
    outbox.add(sent)
    while buffers := outbox.next():
        piece = b"".join(buffers)[:1000]
        data += piece
        outbox.sent(len(piece))
    assert data == frames(sent)


def head(*descriptions: bytes, count: int | None = None, rest: bytes = b"") -> bytes:
    body = struct.pack("<HHI", 0, len(descriptions) if count is None else count, 0)
    body += b"".join(descriptions) + rest
    return struct.pack("<BBHIQ", HEAD, 0, 0, len(body), 1) + body


def value(code: int, nbytes: int, *sizes: int, flags: int = 0, rank: int | None = None) -> bytes:
    shape = struct.pack(f"<{len(sizes)}q", *sizes)
    rank = len(sizes) if rank is None else rank
    return struct.pack("<BBBxxxxxQ", code, rank, flags, nbytes) + shape


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x09" + bytes(15), errors.DataLossError),
        (struct.pack("<BBHIQ", DATA, 0, 0, 4, 1), errors.DataLossError),
        (struct.pack("<BBHIQ", HEAD, 0, 0, 1 << 30, 1), errors.DataLossError),
        (struct.pack("<BBHIQ", HEAD, 0, 0, 2, 1), errors.DataLossError),
        (head(count=9), errors.DataLossError),
        (head(value(1, 4, rank=40)), errors.DataLossError),
        (head(value(1, 4, -1)), errors.DataLossError),
        (head(value(1, 5, 1)), errors.DataLossError),
        (head(value(250, 4, 1)), errors.DataLossError),
        (head(value(20, 4)), errors.DataLossError),
        (head(value(1, 8, 2, flags=2), rest=bytes(4)), errors.DataLossError),
        (head(value(1, 8, 2, flags=2), rest=bytes(9)), errors.DataLossError),
        (head(value(7, 4, 1, flags=2), rest=bytes(4)), errors.DataLossError),
        (head(value(7, 17, 1, flags=2), rest=b"\x01" * 17), errors.DataLossError),
        (head(value(7, 8, 1 << 40, flags=2), rest=bytes(8)), errors.DataLossError),
        (head(value(1, 0, 0, 1 << 62, 1 << 62, flags=2)), errors.DataLossError),
        (head(value(1, 1 << 40, 1 << 38)), errors.ResourceExhaustedError),
    ],
)
def test_wrong_frames_are_refused(data: bytes, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        read(data)


@settings(max_examples=200)
@given(st.data())
def test_changed_bytes_are_messages_or_refused(data: st.DataObject) -> None:
    small = [v for v in VALUES if v is DEAD or len(np.asarray(v).tobytes()) < 200]
    changed = bytearray(frames(Message(HEAD, False, 1, 2, b"meta", small)))
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    with suppress(errors.DataLossError, errors.ResourceExhaustedError):
        read(bytes(changed), limit=1 << 20)


def test_handles_stay() -> None:
    handle = ResourceHandle("/cpu:0", "", "v")
    with pytest.raises(errors.InvalidArgumentError, match="cannot leave its process"):
        Outbox().add(Message(HEAD, False, 1, values=[handle]))


def test_many_small_values_may_be_more_than_a_head() -> None:
    sent = [np.full(INLINE_BYTES // 4, i, np.float32) for i in range(1200)]
    (message,) = read(frames(Message(HEAD, False, 1, values=sent)))
    assert all(map(same, message.values, sent))


@pytest.mark.parametrize("values", [[np.float32(1)] * (1 << 16), [np.zeros((1,) * 33)]])
def test_what_has_no_form_is_refused_where_it_is_sent(values: list[Any]) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"65536|rank 33"):
        Outbox().add(Message(HEAD, False, 1, values=values))

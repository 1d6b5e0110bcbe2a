"""Messages as frames: any split of the bytes gives the same messages; invalid bytes fail."""

from __future__ import annotations

import itertools
import struct
from contextlib import suppress
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from weft_distrib.security.roles import Role
from weft_distrib.wire.address import address_of
from weft_distrib.wire.frames import (
    BLOCK,
    CANCEL,
    CHUNK_BYTES,
    DATA,
    HEAD,
    MAX_HEAD_BYTES,
    PING,
    Inbox,
    Message,
    Outbox,
    call_bytes,
)
from weft_distrib.wire.handshake import Hello
from weft_distrib.wire.methods import RunParts, RunStep, StepKey
from weft_distrib.wire.same_machine import Invitation
from weft_distrib.wire.values import INLINE_BYTES, Slot
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


def test_a_cancelled_call_is_not_sent_further() -> None:
    outbox, inbox = Outbox(), Inbox(1 << 30)
    outbox.add(Message(HEAD, False, 1, values=[np.zeros(5 * CHUNK_BYTES, np.uint8)]))
    data = b"".join(outbox.next())
    outbox.sent(len(data))
    outbox.add(Message(CANCEL, False, 1))
    outbox.add(Message(HEAD, False, 2))
    while buffers := b"".join(outbox.next()):
        data += buffers
        outbox.sent(len(buffers))
    assert len(data) < 2 * CHUNK_BYTES
    received = []
    while data:
        space = inbox.space()
        count = min(len(space), len(data))
        space[:count] = data[:count]
        received += [(message.kind, message.call) for message in inbox.received(count)]
        data = data[count:]
    assert received == [(CANCEL, 1), (HEAD, 2)]
    assert not inbox._partial  # nothing is kept for values that do not follow


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


CUT = struct.pack("<HHI", 0, 0, 9)
OFFSETS = [(1, 2), (0, 1), (0, 3), (0, 1, 0, 2), (0, 3, 2)]
"""Those of strings that have 2 bytes together, and do not fit them."""


def strings(offsets: tuple[int, ...]) -> bytes:
    data = struct.pack(f"<{len(offsets)}Q", *offsets) + b"ab"
    return head(value(7, len(data), len(offsets) - 1, flags=2), rest=data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x09" + bytes(15), "of kind 9 and 0 bytes is not expected here"),
        (struct.pack("<BBHIQ", DATA, 0, 0, 4, 1), "4 bytes is not expected here"),
        (struct.pack("<BBHIQ", HEAD, 0, 0, 1 << 30, 1), "is not expected here"),
        (struct.pack("<BBHIQ", HEAD, 0, 0, 2, 1), "2 bytes is not expected here"),
        (struct.pack("<BBHIQ", PING, 0, 0, 4, 1), "4 bytes is not expected here"),
        (struct.pack("<BBHIQ", BLOCK, 0, 0, 0, 1), "is not expected here"),
        (head(value(1, 8, 2)) * 2, "is not expected here"),
        (
            head(value(1, 8, 2)) + struct.pack("<BBHIQ", DATA, 0, 0, 0, 1),
            "0 bytes is not expected here",
        ),
        (head(value(1, 8, 2)) + struct.pack("<BBHIQ", DATA, 0, 0, 9, 1) + bytes(9), "more data"),
        (struct.pack("<BBHIQ", HEAD, 0, 0, len(CUT), 1) + CUT, "8 bytes with 9 bytes of meta"),
        (head(count=9), "the description of a value is truncated"),
        (head(value(1, 4, rank=40), rest=bytes(320)), "rank 40 are truncated"),
        (head(value(1, 4, 1, rank=2)), "rank 2 are truncated"),
        (head(value(1, 4, -1)), r"invalid shape \(-1,\)"),
        (head(value(1, 5, 1)), "5 bytes cannot have the type float32"),
        (head(value(250, 4, 1)), "unknown element type 250"),
        (head(value(20, 4)), "resource cannot be sent to another process"),
        (head(value(1, 8, 2, flags=2), rest=bytes(4)), "a value in the head is truncated"),
        (head(value(1, 8, 2, flags=2), rest=bytes(9)), "1 unexpected bytes at the end of a head"),
        (
            head(value(1, 8, 2, flags=4), rest=bytes(8)),
            "in shared memory, but the connection has none",
        ),
        (head(value(7, 4, 1, flags=2), rest=bytes(4)), "4 bytes are too few for 1 strings"),
        (head(value(7, 8, 1 << 40, flags=2), rest=bytes(8)), "too few for 1099511627776 strings"),
        (head(value(1, 0, 0, 1 << 62, 1 << 62, flags=2)), "the invalid shape"),
        *((strings(offsets), "strings do not match 2 bytes") for offsets in OFFSETS),
    ],
)
def test_wrong_frames_are_refused(data: bytes, words: str) -> None:
    with pytest.raises(errors.DataLossError, match=words):
        read(data)


def test_what_is_larger_than_the_limit_is_refused_before_there_is_memory_for_it() -> None:
    (message,) = read(head(value(1, 8, 2, flags=2), rest=bytes(8)), limit=8)
    assert message.values[0].tolist() == [0, 0]
    for data in (
        head(value(1, 1 << 40, 1 << 38)),
        head(value(1, 12, 3, flags=2), rest=bytes(12)),
        head(*[value(1, 8, 2, flags=2)] * 2, rest=bytes(16)),
    ):
        with pytest.raises(errors.ResourceExhaustedError, match="larger than the limit of 8 bytes"):
            read(data, limit=8)


@pytest.mark.parametrize(
    ("kind", "reply", "size", "is_call"),
    [
        (HEAD, 0, 8, True),
        (HEAD, 0, 0, True),
        (HEAD, 0, 9, False),
        (HEAD, 1, 8, False),
        (PING, 0, 0, False),
    ],
)
def test_a_connection_begins_with_a_small_call(
    kind: int, reply: int, size: int, is_call: bool
) -> None:
    frame = struct.pack("<BBHIQ", kind, reply, 0, size, 1)
    if is_call:
        assert call_bytes(frame, 8) == size
        return
    with pytest.raises(errors.DataLossError, match=f"at most 8 bytes, got a frame of kind {kind}"):
        call_bytes(frame, 8)


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
    with pytest.raises(errors.InvalidArgumentError, match="cannot be sent to another process"):
        Outbox().add(Message(HEAD, False, 1, values=[handle]))


def test_many_small_values_may_be_more_than_a_head() -> None:
    sent = [np.full(INLINE_BYTES // 4, i, np.float32) for i in range(1200)]
    (message,) = read(frames(Message(HEAD, False, 1, values=sent)))
    assert all(map(same, message.values, sent))


@pytest.mark.parametrize(
    ("values", "meta", "words"),
    [
        ([np.float32(1)] * (1 << 16), 0, "65535 values, got 65536"),
        ([np.zeros((1,) * 33)], 0, "rank 33 cannot be sent"),
        ([np.array([b"a", "b"], object)], 0, "'b' cannot be sent to another process"),
        ([3], 0, "3 cannot be sent to another process"),
        ([], MAX_HEAD_BYTES, "must have at most 16777216 bytes, got 16777224"),
    ],
)
def test_what_has_no_form_is_refused_where_it_is_sent(
    values: list[Any], meta: int, words: str
) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=words):
        Outbox().add(Message(HEAD, False, 1, meta=bytes(meta), values=values))


def test_the_largest_head_and_rank_are_sent() -> None:
    sent = Message(HEAD, False, 1, meta=bytes(MAX_HEAD_BYTES - 8))
    assert len(read(frames(sent))[0].meta) == MAX_HEAD_BYTES - 8
    (message,) = read(frames(Message(HEAD, False, 1, values=[np.zeros((1,) * 32)])))
    assert message.values[0].ndim == 32


def test_strings_do_not_come_by_shared_memory() -> None:
    with pytest.raises(errors.DataLossError, match="strings cannot be sent in shared memory"):
        Slot(7, (1,), 4, 16, np.zeros(16, np.uint8))


@pytest.mark.parametrize(
    "sent", [StepKey(1, 2), RunParts(1, 2, 3, 4, 5, True, (6, 7)), RunStep(1, 2, 3, True)]
)
def test_metas_of_calls_have_a_size_and_a_version(sent: Any) -> None:
    meta, unpack = sent.pack(), type(sent).unpack
    assert unpack(meta) == ((sent, b"") if isinstance(sent, StepKey) else sent)
    with pytest.raises(errors.DataLossError, match="meta of a call has 7 bytes"):
        unpack(meta[:7])
    with pytest.raises(errors.DataLossError, match="bytes"):
        unpack(meta[:-1])
    with pytest.raises(errors.FailedPreconditionError, match="a call of version 9 was received"):
        unpack(b"\x09" + meta[1:])


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("host:2222", ("host", 2222)),
        ("[::1]:0", ("::1", 0)),
        ("host:65535", ("host", 65535)),
        ("host:65536", None),
        ("host:", None),
        (":2222", None),
        ("host", None),
        ("host:-1", None),
        ("host:1²", None),
        ("a host:1", None),
        ("http://host:1", None),
        ("host?:1", None),
    ],
)
def test_addresses(text: str, address: tuple[str, int] | None) -> None:
    if address is not None:
        assert tuple(address_of(text)) == address
        return
    with pytest.raises(errors.InvalidArgumentError, match="it must have the form host:2222, got"):
        address_of(text, "it")


def test_hellos_and_invitations_are_whole() -> None:
    hello = Hello(3, 7, Role.PEER, b"token", b"offer")
    meta = hello.pack()
    assert Hello.unpack(meta) == hello
    with pytest.raises(errors.PermissionDeniedError, match="is truncated"):
        Hello.unpack(meta[:-1])
    with pytest.raises(errors.PermissionDeniedError, match="must begin with a handshake"):
        Hello.unpack(meta[:4])
    data = Invitation(bytes(range(16)), bytes(16)).pack()
    assert Invitation.unpack(data).pack() == data
    for wrong in (data[:-1], data + b"x"):
        with pytest.raises(errors.DataLossError, match="invalid invitation of"):
            Invitation.unpack(wrong)

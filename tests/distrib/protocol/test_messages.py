"""Messages: round trips, and rejection of all other data."""

from __future__ import annotations

import dataclasses
import re
import struct
from pathlib import Path
from typing import Any

import flatbuffers
import pytest
from hypothesis import given, settings, strategies as st

import weft_distrib.protocol
from weft_distrib.protocol import messages
from weft_distrib.protocol.tables import decode, encode, fields_of, schema
from weft_tensor import errors

SCALARS: dict[type, Any] = {
    int: st.integers(0, 2**64 - 1),
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
    str: st.text(max_size=9),
    bytes: st.binary(max_size=9),
}


@st.composite
def made(draw: Any, kind: type) -> Any:
    values = {}
    for field in fields_of(kind):
        one = SCALARS[field.kind] if field.kind in SCALARS else made(field.kind)
        values[field.name] = draw(st.lists(one, max_size=3) if field.is_repeated else one)
    return kind(**values)


@pytest.mark.parametrize("kind", messages.MESSAGES, ids=lambda kind: kind.__name__)
def test_there_and_back(kind: type) -> None:
    @settings(max_examples=20)
    @given(made(kind))
    def check(message: Any) -> None:
        assert decode(kind, encode(message)) == message

    check()


@settings(max_examples=300)
@given(st.data())
def test_changed_bytes_are_a_message_or_refused(data: st.DataObject) -> None:
    message = data.draw(made(data.draw(st.sampled_from(messages.MESSAGES))))
    changed = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(changed[: data.draw(st.integers(0, len(changed)))])
    try:
        found = decode(type(message), cut)
    except errors.DataLossError:
        return
    assert isinstance(found, type(message))


def test_a_small_message_does_not_unfold_into_a_large_one() -> None:
    builder = flatbuffers.Builder(64)
    text = builder.CreateString("x" * 1000)
    builder.StartVector(4, 10_000, 4)
    for _ in range(10_000):
        builder.PrependUOffsetTRelative(text)
    names = builder.EndVector()
    slots = [field.name for field in fields_of(messages.Signature)]
    builder.StartObject(len(slots))
    builder.PrependUOffsetTRelativeSlot(slots.index("feeds"), names, 0)
    builder.Finish(builder.EndObject())
    with pytest.raises(errors.DataLossError, match="too many fields refer"):
        decode(messages.Signature, bytes(builder.Output()))


def test_an_older_message_lacks_fields_and_a_newer_one_has_more() -> None:
    older = dataclasses.make_dataclass("Status", [("version", int, 1), ("incarnation", int, 0)])
    told = decode(messages.Status, encode(older(3, 7)))
    assert told == messages.Status(version=3, incarnation=7)
    assert decode(older, encode(messages.Status(3, 7, "/job:a"))) == older(3, 7)


def test_the_schema_is_that_of_the_messages() -> None:
    path = Path(weft_distrib.protocol.__file__).with_name("distrib.fbs")
    assert path.read_text() == schema(messages.MESSAGES, "weft.distrib"), "run write_schema.py"


@dataclasses.dataclass
class Inner:
    name: str = ""


@dataclasses.dataclass
class Outer:
    name: str = ""
    data: bytes = b""
    numbers: list[int] = dataclasses.field(default_factory=list)
    inner: Inner | None = None
    items: list[Inner] = dataclasses.field(default_factory=list)
    flag: bool = False
    value: float = 0.0


REASONS = {
    r"it has only \d+ bytes",
    r"the offset \d+ points outside of \d+ bytes",
    "its table of fields is out of bounds",
    r"\d+ bytes exceed the message",
    "a string is not UTF-8: invalid start byte",
    r"a list of \d+ is longer than the message",
}


def test_each_number_of_a_message_is_checked() -> None:
    """Replace each group of four bytes, and cut the message everywhere."""
    message = Outer("name", b"data", [1, 2], Inner("a"), [Inner("b"), Inner("c")], True, 0.5)
    data = encode(message)
    assert decode(Outer, data) == message
    hostile = [data[:count] for count in range(len(data))]
    for start in range(0, len(data), 4):
        for number in (0, 1, len(data) - start - 1, len(data) - start + 1, 1 << 31, 0xFFFFFFFF):
            hostile.append(data[:start] + struct.pack("<I", number) + data[start + 4 :])
    unmatched = set(REASONS)
    for changed in hostile:
        try:
            decode(Outer, changed)
        except errors.DataLossError as error:
            told = re.fullmatch(r"not a Outer: byte \d+: (.*)", error.message)
            assert told is not None, error.message
            (reason,) = {each for each in REASONS if re.fullmatch(each, told[1])}
            unmatched.discard(reason)
    assert not unmatched

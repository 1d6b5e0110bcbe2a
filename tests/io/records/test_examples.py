"""The parser of examples accepts the same input as protobuf's, with the same values."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings, strategies as st

from weft_graph import proto
from weft_io.records.examples import ExampleParser
from weft_io.records.feature_scanner import read_key
from weft_tensor import dtypes, errors

KEYS = (b"f", b"i", b"s")
TYPES = (dtypes.float32, dtypes.int64, dtypes.string)
LISTS = {b"f": "float_list", b"i": "int64_list", b"s": "bytes_list"}


def parser() -> ExampleParser:
    return ExampleParser(KEYS, TYPES, (), (), ())


def rows_of(result: Any, row: int) -> list[Any]:
    """The values of each feature in one example of a parsed batch."""
    sparse, _ = result
    return [values[indices[:, 0] == row].tolist() for indices, values, _ in sparse]


def by_protobuf(data: bytes) -> list[Any] | None:
    """The same by protobuf's parser; None where a feature has another kind.

    Raises: DecodeError: it is no example.
    """
    features = proto.Example.FromString(data).features.feature
    found = []
    for key in KEYS:
        name = key.decode()
        kind = features[name].WhichOneof("kind") if name in features else None
        if kind not in (None, LISTS[key]):
            return None
        found.append([] if kind is None else list(getattr(features[name], kind).value))
    return found


def looks_past(data: bytes) -> bool:
    """Return True if an example in the usual form has features that are not requested."""
    at = 2 if data[1] < 0x80 else 3
    while at < len(data):
        key, _, at = read_key(data, at, len(data))
        if key is None or key not in KEYS:
            return True
    return False


def check(data: bytes, where: ExampleParser) -> str:
    """Compare the two parsers; return the outcome."""
    try:
        wanted = by_protobuf(data)
    except DecodeError:
        try:
            where.parse([data], (), ())
        except errors.InvalidArgumentError as error:
            assert "at offset" in error.message
            assert 0 <= error.details["offset"] <= len(data)
            return "refused"
        assert looks_past(data), data.hex()
        return "not looked into"
    if wanted is None:
        with pytest.raises(errors.InvalidArgumentError, match="Data types don't match"):
            where.parse([data], (), ())
        return "another kind"
    got = rows_of(where.parse([data], (), ()), 0)
    np.testing.assert_array_equal(got[0], wanted[0])  # NaN is equal to NaN
    assert got[1:] == wanted[1:], data.hex()
    return "equal"


# ----------------------------------------------------------------------- what writers write

floats = st.lists(st.floats(width=32), max_size=5)
integers = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300), max_size=5)
texts = st.lists(st.binary(max_size=5), max_size=4)


@st.composite
def examples(draw: st.DrawFn) -> bytes:
    message = proto.Example()
    for key in draw(st.permutations([*KEYS, b"other"])):
        if draw(st.booleans()):
            feature = message.features.feature[key.decode()]
            values = {b"f": floats, b"i": integers, b"s": texts, b"other": integers}[key]
            field = getattr(feature, LISTS.get(key, "int64_list"))
            field.SetInParent()
            field.value.extend(draw(values))
    serialized: bytes = message.SerializeToString()
    return serialized


@given(st.lists(examples(), max_size=6))
def test_batches_of_what_protobuf_writes(batch: list[bytes]) -> None:
    result = parser().parse(batch, (), ())
    for row, data in enumerate(batch):
        got, wanted = rows_of(result, row), by_protobuf(data)
        assert wanted is not None
        np.testing.assert_array_equal(got[0], wanted[0])
        assert got[1:] == wanted[1:]


# ---------------------------------------------------------------------- what others may write


def varint(value: int, extra: int = 0) -> bytes:
    """A varint, longer by `extra` bytes than it must be."""
    parts = []
    while value >= 0x80 or extra:
        extra -= value < 0x80
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def field(number: int, content: bytes, extra: int = 0) -> bytes:
    return varint(number << 3 | 2) + varint(len(content), extra) + content


@st.composite
def unknown_fields(draw: st.DrawFn) -> bytes:
    number = draw(st.integers(3, 40))
    return draw(
        st.sampled_from(
            [
                b"",
                field(number, b"abc"),
                varint(number << 3) + varint(draw(st.integers(0, 2**64 - 1))),
                varint(number << 3 | 1) + bytes(8),
                varint(number << 3 | 5) + bytes(4),
                varint(number << 3 | 3) + field(1, b"x") + varint(number << 3 | 4),
                varint(number << 3 | 3) + varint((number + 1) << 3 | 4),
                varint(number << 3 | 6),
                varint(7),
            ]
        )
    )


@st.composite
def odd_lists(draw: st.DrawFn) -> bytes:
    """A Feature in any form that the wire format allows, and some that it does not."""
    parts = []
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.integers(1, 3))
        extra = draw(st.integers(0, 1))
        if kind == 1:
            values = [field(1, value, extra) for value in draw(texts)]
        elif kind == 2:
            packed = draw(st.booleans())
            raw = [np.float32(value).tobytes() for value in draw(floats)]
            values = [field(1, b"".join(raw), extra)] if packed else [b"\x0d" + r for r in raw]
        else:
            packed = draw(st.booleans())
            raw = [varint(value % 2**64, extra) for value in draw(integers)]
            values = [field(1, b"".join(raw))] if packed else [b"\x08" + r for r in raw]
        values.insert(draw(st.integers(0, len(values))), draw(unknown_fields()))
        parts.append(field(kind, b"".join(values), extra))
        parts.append(draw(unknown_fields()))
    return b"".join(parts)


@st.composite
def odd_examples(draw: st.DrawFn) -> bytes:
    parts = []
    for _ in range(draw(st.integers(0, 2))):
        entries = []
        for key in draw(st.lists(st.sampled_from([*KEYS, b"\xff", b""]), max_size=4)):
            inner = [field(1, key), field(2, draw(odd_lists()))]
            if draw(st.booleans()):
                inner.insert(draw(st.integers(0, 2)), draw(unknown_fields()))
            if draw(st.booleans()):
                inner = inner[: draw(st.integers(0, len(inner)))]
            elif draw(st.booleans()):
                inner.reverse()
            entries.append(field(1, b"".join(inner), draw(st.integers(0, 1))))
        entries.append(draw(unknown_fields()))
        parts.append(field(1, b"".join(entries)))
        parts.append(draw(unknown_fields()))
    return b"".join(parts)


@given(st.lists(odd_examples(), min_size=1, max_size=4))
def test_any_wire_format_is_understood_as_protobuf_does(batch: list[bytes]) -> None:
    one = parser()  # headers that were learned from one example are used for the next
    for data in batch:
        check(data, one)


def entry(key: bytes, kind: int, content: bytes) -> bytes:
    """A feature whose list has one field with this content."""
    return field(1, field(1, key) + field(2, field(kind, field(1, content))))


@pytest.mark.parametrize(
    ("features", "outcome"),
    [
        (entry(b"i", 3, b"\x80") + entry(b"i", 3, b"\x01"), "refused"),
        (entry(b"i", 3, b"\x01") + entry(b"i", 3, b"\x02\x03"), "equal"),
        (entry(b"i", 2, bytes(4)) + entry(b"i", 3, b"\x02"), "equal"),
        (entry(b"i", 3, b"\x02") + field(1, field(1, b"i") + field(2, b"")), "equal"),
        (entry(b"f", 2, bytes(5)), "refused"),
        (entry(b"s", 1, b"0123456789")[:-3], "refused"),
        (entry(b"i", 3, b"\xff" * 9 + b"\x02"), "equal"),  # the bits above 64 are dropped
        (entry(b"i", 3, b"\xff" * 10 + b"\x01"), "refused"),
    ],
)
def test_forms_that_the_walk_must_not_take(features: bytes, outcome: str) -> None:
    one = parser()
    for known in (entry(b"s", 1, b"0123456789"), entry(b"i", 3, b"\x01"), entry(b"i", 3, b"\x02")):
        assert check(field(1, known), one) == "equal"
    try:
        wanted = by_protobuf(field(1, features))
    except DecodeError:
        wanted = None
    assert (wanted is None) == (outcome == "refused")
    assert check(field(1, features), one) == outcome


def mutated(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    result = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(len(result) + 1)
        match rng.randrange(6):
            case 0 if at < len(result):
                result[at] ^= 1 << rng.randrange(8)
            case 1:
                del result[at:]
            case 2:
                result[at:at] = bytes([rng.randrange(256)])
            case 3:
                del result[at : at + rng.randrange(1, 4)]
            case 4:
                other = rng.choice(others)
                start = rng.randrange(len(other) + 1)
                result[at:at] = other[start : start + rng.randrange(20)]
            case _ if at < len(result):
                result[at] = rng.choice([0, 1, 0x0A, 0x12, 0x1A, 0x7F, 0x80, 0xFF])
    return bytes(result)


def seeds() -> list[bytes]:
    rng = np.random.default_rng(0)
    found = []
    for size in (0, 1, 2, 3, 40):
        message = proto.Example()
        feature = message.features.feature
        feature["f"].float_list.value.extend(rng.standard_normal(size).tolist())
        feature["i"].int64_list.value.extend((rng.integers(-9, 9, size) ** 21).tolist())
        feature["s"].bytes_list.value.extend([rng.bytes(n % 7) for n in range(size)])
        found.append(message.SerializeToString())
    return found


def mutate(count: int, seed: int) -> dict[str, int]:
    """Outcomes of so many mutations, each checked."""
    rng, valid = random.Random(seed), seeds()
    one = parser()
    outcomes: dict[str, int] = {}
    for _ in range(count):
        outcome = check(mutated(rng.choice(valid), rng, valid), one)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


def test_damaged_examples_are_refused_as_protobuf_refuses_them() -> None:
    outcomes = mutate(1500, 0)
    assert outcomes["equal"] > 100
    assert outcomes["refused"] > 500


@pytest.mark.long
def test_many_damaged_examples() -> None:
    mutate(100_000, 1)


# -------------------------------------------------------------------------------- results


def example(**features: Any) -> bytes:
    message = proto.Example()
    for key, values in features.items():
        kind = "bytes_list" if isinstance(values[0], bytes) else "int64_list"
        kind = "float_list" if isinstance(values[0], float) else kind
        getattr(message.features.feature[key], kind).value.extend(values)
    serialized: bytes = message.SerializeToString()
    return serialized


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=3, max_size=3), max_size=40))
def test_dense_integers(rows: list[list[int]]) -> None:
    dense = ExampleParser((), (), (b"i",), (dtypes.int64,), ((3,),))
    batch = [example(i=row) for row in rows]
    _, (values,) = dense.parse(batch, (), [np.zeros(0, np.int64)])
    np.testing.assert_array_equal(values, np.array(rows, np.int64).reshape(-1, 3))


@settings(max_examples=20)
@given(st.integers(0, 2**31), st.integers(1, 9))
def test_long_packed_integers_cross_the_blocks(seed: int, most: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [rng.integers(0, 2 ** (7 * most) - 1, 30_000, np.int64) for _ in range(3)]
    rows = [row >> rng.integers(0, 62, len(row)) for row in rows]
    dense = ExampleParser((), (), (b"i",), (dtypes.int64,), ((30_000,),))
    batch = [example(i=row.tolist()) for row in rows]
    _, (values,) = dense.parse(batch, (), [np.zeros(0, np.int64)])
    np.testing.assert_array_equal(values, rows)
    sparse = ExampleParser((b"i",), (dtypes.int64,), (), (), ())
    ((_, flat, shape),), _ = sparse.parse(batch, (), ())
    np.testing.assert_array_equal(flat, np.concatenate(rows))
    assert shape.tolist() == [3, 30_000]


def test_single_integers_that_were_met_before() -> None:
    dense = ExampleParser((), (), (b"i",), (dtypes.int64,), ((),))
    for base in (0, 100, 0, 2**40, 2**40 - 50):
        batch = [example(i=[n]) for n in range(base, base + 100)]
        _, (values,) = dense.parse(batch, (), [np.zeros(0, np.int64)])
        np.testing.assert_array_equal(values, np.arange(base, base + 100))


def test_large_floats_are_copied_out_of_the_example() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((3, 20_000)).astype(np.float32)
    dense = ExampleParser((), (), (b"f",), (dtypes.float32,), ((100, 200),))
    _, (values,) = dense.parse([example(f=row.tolist()) for row in rows], (), [np.zeros(0)])
    np.testing.assert_array_equal(values, rows.reshape(3, 100, 200))
    values += 1  # its own memory


@pytest.mark.parametrize("missing", [(0,), (1,), (0, 2), (0, 1, 2)])
def test_defaults_stand_for_missing_features(missing: tuple[int, ...]) -> None:
    full = {"f": [1.0, 2.0], "i": [-3, 4], "s": [b"a", b"b"]}
    batch = [example(other=[0]) if i in missing else example(**full) for i in range(3)]
    defaults = [
        np.array([-7.5, 0.0], np.float32),
        np.array([-9, 2**40]),
        np.array([b"", b"dd"], object),
    ]
    dense = ExampleParser((), (), KEYS, TYPES, ((2,), (2,), (2,)))
    _, values = dense.parse(batch, (), defaults)
    for value, default, given_ in zip(values, defaults, full.values(), strict=True):
        for i in range(3):
            assert value[i].tolist() == (default.tolist() if i in missing else given_)


REQUIRED = [np.zeros(0, np.float32), np.zeros(0, np.int64), np.zeros(0, object)]


def test_errors_say_which_example_and_feature() -> None:
    dense = ExampleParser((), (), KEYS, TYPES, ((1,), (1,), (1,)))
    good = example(f=[1.0], i=[1], s=[b""])
    names = [b"one", b"two"]

    def message(bad: bytes) -> str:
        with pytest.raises(errors.InvalidArgumentError) as caught:
            dense.parse([good, bad], names, REQUIRED)
        assert len(dense.parse([good], (), REQUIRED)[1]) == 3  # and it goes on
        return caught.value.message

    assert message(example(f=[1.0], s=[b""])) == (
        "Name: two, Key: i, Index: 1. Feature: i (data type: int64) is required but could not be "
        "found."
    )
    assert message(example(f=[1.0], i=[1, 2], s=[b""])) == (
        "Name: two, Key: i, Index: 1. Number of int64 values != expected. Values size: 2 but "
        "output shape: [1]"
    )
    assert message(example(f=[1.0, 2.0], i=[1], s=[b""])).startswith("Name: two, Key: f, Index: 1.")
    assert message(example(f=[1.0], i=[1], s=[b"", b""])).startswith("Name: two, Key: s, Index: 1.")
    assert message(example(f=[1.0], i=[b"1"], s=[b""])) == (
        "Name: two, Key: i, Index: 1. Data types don't match. Data type: string but expected type: "
        "int64"
    )
    assert message(good[:-1]).startswith(
        "Name: two, Index: 1: Could not parse example input: at offset 0 of"
    )


def test_a_feature_that_is_asked_for_twice_is_refused() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="'f' twice"):
        ExampleParser((b"f",), (dtypes.float32,), (b"f",), (dtypes.float32,), ((),))


def test_a_default_of_another_size_is_refused() -> None:
    for shape, default in (((2,), np.zeros(3, np.float32)), ((None,), np.zeros(0, np.float32))):
        dense = ExampleParser((), (), (b"f",), (dtypes.float32,), (shape,))
        with pytest.raises(errors.InvalidArgumentError, match="the default of feature f must have"):
            dense.parse([example(f=[1.0, 2.0])], (), [default])


def test_headers_are_forgotten_before_they_fill_the_memory() -> None:
    one = ExampleParser((), (), (b"s",), (dtypes.string,), ((),))
    for n in range(10_000):
        one.parse([example(s=[bytes(n)])], (), [np.zeros(0, object)])
    assert len(one.scanner._headers) <= 4096

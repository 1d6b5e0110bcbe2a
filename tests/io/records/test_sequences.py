"""Sequence examples against protobuf's own parser."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, strategies as st

from weft_graph import proto
from weft_io.records.sequences import Features, SequenceParser
from weft_tensor import dtypes, errors

KEYS = (b"f", b"i", b"s")
TYPES = (dtypes.float32, dtypes.int64, dtypes.string)
LISTS = {b"f": "float_list", b"i": "int64_list", b"s": "bytes_list"}
NOTHING = Features((), (), (), (), ())
REQUIRED = [np.zeros(0, np.float32), np.zeros(0, np.int64), np.zeros(0, object)]


def parser() -> SequenceParser:
    everything = Features(KEYS, TYPES, (), (), ())
    return SequenceParser(everything, everything, frozenset())


def values_of(feature: Any, key: bytes) -> list[Any] | None:
    """The values of a feature; None where it has another kind."""
    kind = feature.WhichOneof("kind")
    if kind is None:
        return []
    return list(getattr(feature, kind).value) if kind == LISTS[key] else None


def by_protobuf(data: bytes) -> tuple[list[Any], list[Any]] | None:
    """Context values per key, and values per step per key; None where a kind is another one.

    Raises: DecodeError: it is no sequence example.
    """
    message = proto.SequenceExample.FromString(data)
    context, lists = message.context.feature, message.feature_lists.feature_list
    found = [values_of(context[k.decode()], k) if k.decode() in context else [] for k in KEYS]
    steps = [
        [values_of(step, k) for step in lists[k.decode()].feature] if k.decode() in lists else []
        for k in KEYS
    ]
    if None in found or any(None in each for each in steps):
        return None
    return found, steps


def rows_of(parsed: Any, row: int, steps: list[list[Any]]) -> tuple[list[Any], list[Any]]:
    """The same from a parsed batch."""
    context = [v[i[:, 0] == row].tolist() for i, v, _ in parsed.context_sparse]
    lists = []
    for (indices, values, _), expected in zip(parsed.list_sparse, steps, strict=True):
        here = indices[:, 0] == row
        lists.append(
            [values[here & (indices[:, 1] == step)].tolist() for step in range(len(expected))]
        )
        assert (indices[here, 1] < max(len(expected), 1)).all()
    return context, lists


def check(batch: list[bytes], one: SequenceParser) -> str:
    wanted = []
    for data in batch:
        try:
            wanted.append(by_protobuf(data))
        except DecodeError:
            try:
                one.parse(batch, (), ())
            except errors.InvalidArgumentError as error:
                assert error.details["offset"] <= len(data)
                return "refused"
            return "not looked into"
    if None in wanted:
        with pytest.raises(errors.InvalidArgumentError, match="Data types don't match"):
            one.parse(batch, (), ())
        return "another kind"
    parsed = one.parse(batch, (), ())
    for row, expected in enumerate(wanted):
        assert expected is not None
        got = rows_of(parsed, row, expected[1])
        np.testing.assert_equal(got, expected)  # NaN is equal to NaN
    return "equal"


floats = st.lists(st.floats(width=32), max_size=4)
integers = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300), max_size=4)
texts = st.lists(st.binary(max_size=5), max_size=3)
VALUES = dict(zip(KEYS, (floats, integers, texts), strict=True))


@st.composite
def sequences(draw: st.DrawFn) -> bytes:
    message = proto.SequenceExample()
    for key in KEYS:
        if draw(st.booleans()):
            field = getattr(message.context.feature[key.decode()], LISTS[key])
            field.SetInParent()
            field.value.extend(draw(VALUES[key]))
        if draw(st.booleans()):
            steps = message.feature_lists.feature_list[key.decode()]
            for values in draw(st.lists(st.none() | VALUES[key], max_size=4)):
                step = steps.feature.add()
                if values is not None:
                    getattr(step, LISTS[key]).SetInParent()
                    getattr(step, LISTS[key]).value.extend(values)
    serialized: bytes = message.SerializeToString()
    return serialized


@given(st.lists(sequences(), max_size=5))
def test_batches_of_what_protobuf_writes(batch: list[bytes]) -> None:
    assert check(batch, parser()) == "equal"


def field(number: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def entry(key: bytes, *steps: bytes) -> bytes:
    """A feature list of integers in packed form."""
    features = [field(1, field(3, field(1, step))) for step in steps]
    return field(1, field(1, key) + field(2, b"".join(features)))


STEP = field(1, field(3, field(1, b"12345")))


@pytest.mark.parametrize(
    ("lists", "outcome"),
    [
        (entry(b"i", b"\x80") + entry(b"i", b"\x01"), "refused"),
        (entry(b"i", b"\x01") + entry(b"i", b"\x02", b"\x03"), "equal"),
        (
            field(1, field(1, b"i") + field(2, STEP + STEP[:-2])),
            "refused",
        ),
    ],
)
def test_forms_that_the_walk_must_not_take(lists: bytes, outcome: str) -> None:
    one = parser()
    assert check([field(2, entry(b"i", b"12345", b"12345"))], one) == "equal"
    assert check([field(2, lists)], one) == outcome


def seeds() -> list[bytes]:
    rng = np.random.default_rng(0)
    found = []
    for size in (0, 1, 3, 10):
        message = proto.SequenceExample()
        message.context.feature["i"].int64_list.value.extend(range(size))
        message.context.feature["s"].bytes_list.value.append(b"x" * size)
        lists = message.feature_lists.feature_list
        for _ in range(size):
            step = rng.standard_normal(3).tolist()
            lists["f"].feature.add().float_list.value.extend(step)
            lists["i"].feature.add().int64_list.value.extend(
                (rng.integers(-9, 9, 2) ** 15).tolist()
            )
            lists["s"].feature.add().bytes_list.value.extend([rng.bytes(2)] * int(rng.integers(3)))
        found.append(message.SerializeToString())
    return found


def mutate(count: int, seed: int) -> dict[str, int]:
    rng, valid, one = random.Random(seed), seeds(), parser()
    outcomes: dict[str, int] = {}
    for _ in range(count):
        data = bytearray(rng.choice(valid))
        for _ in range(rng.choice([1, 1, 2])):
            at = rng.randrange(len(data) + 1)
            if rng.random() < 0.2:
                del data[at : at + rng.randrange(1, 5)]
            elif at < len(data):
                data[at] = rng.choice([data[at] ^ 1 << rng.randrange(8), 0x0A, 0x12, 0x80, 0])
        outcome = check([valid[2], bytes(data)], one)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


def test_damaged_sequence_examples_are_refused_as_protobuf_refuses_them() -> None:
    outcomes = mutate(800, 0)
    assert outcomes["equal"] > 50
    assert outcomes["refused"] > 200


@pytest.mark.long
def test_many_damaged_sequence_examples() -> None:
    mutate(50_000, 1)


# -------------------------------------------------------------------------------- results


def sequence(**lists: list[list[Any]]) -> bytes:
    message = proto.SequenceExample()
    for key, steps in lists.items():
        for values in steps:
            kind = "bytes_list" if values and isinstance(values[0], bytes) else "int64_list"
            feature = message.feature_lists.feature_list[key].feature.add()
            getattr(feature, kind).value.extend(values)
    serialized: bytes = message.SerializeToString()
    return serialized


def dense(shape: tuple[int, ...], *assumed_empty: bytes) -> SequenceParser:
    wanted = Features((), (), (b"i",), (dtypes.int64,), (shape,))
    return SequenceParser(NOTHING, wanted, frozenset(assumed_empty))


def test_dense_lists_are_padded() -> None:
    batch = [sequence(i=[[1, 2], [3, 4]]), sequence(i=[[5, 6]]), sequence(i=[])]
    parsed = dense((2,), b"i").parse(batch, (), ())
    assert parsed.lengths[0].tolist() == [2, 1, 0]
    assert parsed.list_dense[0].tolist() == [[[1, 2], [3, 4]], [[5, 6], [0, 0]], [[0, 0], [0, 0]]]


def test_sparse_lists() -> None:
    wanted = Features((b"s",), (dtypes.string,), (), (), ())
    one = SequenceParser(NOTHING, wanted, frozenset())
    parsed = one.parse([sequence(s=[[b"a"], [b"b", b"c"]]), b"", sequence(s=[[b"d"]])], (), ())
    indices, values, shape = parsed.list_sparse[0]
    assert indices.tolist() == [[0, 0, 0], [0, 1, 0], [0, 1, 1], [2, 0, 0]]
    assert values.tolist() == [b"a", b"b", b"c", b"d"]
    assert shape.tolist() == [3, 2, 2]


def test_errors_say_which_example_list_and_step() -> None:
    one = dense((2,))
    good = sequence(i=[[1, 2]])

    def message(bad: bytes) -> str:
        with pytest.raises(errors.InvalidArgumentError) as caught:
            one.parse([good, bad], [b"one", b"two"], ())
        assert one.parse([good], (), ()).lengths[0].tolist() == [1]
        return caught.value.message

    assert message(b"").startswith("Name: two, Key: i, Index: 1. Feature list: i is required")
    assert message(sequence(i=[[1, 2], [3]])) == (
        "Name: two, Key: i, Index: 1. Feature list: step 1: Number of int64 values != expected. "
        "Values size: 1 but output shape: [2]"
    )
    assert message(sequence(i=[[1, 2], [b"x"]])) == (
        "Name: two, Key: i, Index: 1. Feature list: step 1: Data types don't match. Data type: "
        "string but expected type: int64"
    )
    assert message(good[:-1]).startswith("Name: two, Index: 1: Could not parse example input:")


def test_a_feature_list_that_is_asked_for_twice_is_refused() -> None:
    wanted = Features((b"i",), (dtypes.int64,), (b"i",), (dtypes.int64,), ((),))
    with pytest.raises(errors.InvalidArgumentError, match="once"):
        SequenceParser(NOTHING, wanted, frozenset())

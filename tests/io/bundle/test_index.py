"""The index of a bundle: valid and invalid contents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from weft_testing.recorded import BUNDLES

from weft_graph import proto
from weft_io.bundle.index import BundleIndex, Entry, Piece, merge_indexes
from weft_io.bundle.key_encoding import slice_key
from weft_io.bundle.table import table_bytes
from weft_io.checkpoint.regions import Region
from weft_tensor import dtypes, errors

FILE = "/some/model.index"


def entry(dtype: int = 1, shape: tuple[int, ...] = (2, 3), **fields: int) -> Any:
    message = proto.BundleEntryProto(dtype=dtype, **({"size": 24} | fields))
    message.shape.SetInParent()
    for size in shape:
        message.shape.dim.add(size=size)
    return message


def sliced(*slices: list[tuple[int, int | None]], shape: tuple[int, ...] = (2, 3)) -> Any:
    message = entry(shape=shape, size=0)
    for extents in slices:
        added = message.slices.add()
        for start, length in extents:
            extent = added.extent.add(start=start)
            if length is not None:
                extent.length = length
    return message


def index(entries: dict[bytes | str, Any], header: Any = None) -> BundleIndex:
    header = proto.BundleHeaderProto(num_shards=1) if header is None else header
    items = {k.encode() if isinstance(k, str) else k: v for k, v in entries.items()}
    messages = {b"": header, **items}
    return BundleIndex.from_bytes(
        table_bytes(
            sorted(
                (k, v if isinstance(v, bytes) else v.SerializeToString())
                for k, v in messages.items()
            )
        ),
        FILE,
    )


def test_an_index_comes_back() -> None:
    pieces = (
        Piece(Region((0, 0), (2, 2)), 1, 0, 16, 7),
        Piece(Region((0, 2), (2, 1)), 0, 24, 32, 8),
    )
    tensors = {
        "whole": Entry(dtypes.float32, (2, 3), (Piece(Region.whole_tensor((2, 3)), 0, 0, 24, 9),)),
        "parts": Entry(dtypes.float32, (2, 3), pieces),
    }
    made = BundleIndex(FILE, "", 2, False, tensors)
    back = BundleIndex.from_bytes(made.to_bytes(), FILE)
    assert back.tensors == tensors and (back.shards, back.big_endian) == (2, False)
    assert back.save != index({}).save


@pytest.mark.parametrize("name", ["types", "slices", "model-2", "model-3"])
def test_recorded_ones(name: str) -> None:
    data = (BUNDLES / f"{name}.index").read_bytes()
    found = BundleIndex.from_bytes(data, FILE)
    assert found.shards == (3 if name.startswith("model") else 1)
    if name != "slices":  # which has slices that were said to be whole along an axis
        assert found.to_bytes() == data


def test_types_that_have_no_arrays() -> None:
    found = index({"odd": entry(proto.DT_VARIANT)})
    assert [e.dtype.name for e in found.tensors.values()] == ["variant"]


def test_slices() -> None:
    left, right = [(0, 2), (0, 1)], [(0, None), (1, 2)]
    entries = {
        "v": sliced(left, right),
        slice_key(b"v", [(0, 2), (0, 1)]): entry(shape=(2, 1), size=8),
        slice_key(b"v", [(0, -1), (1, 2)]): entry(shape=(2, 2), size=16, offset=8),
    }
    found = index(entries).tensors
    assert list(found) == ["v"]
    assert [part.region for part in found["v"].parts] == [
        Region((0, 0), (2, 1)),
        Region((0, 1), (2, 2)),
    ]


OVERLAPPING = {
    "v": sliced([(0, 2), (0, 2)], [(0, 2), (1, 2)]),
    slice_key(b"v", [(0, 2), (0, 2)]): entry(shape=(2, 2), size=16),
    slice_key(b"v", [(0, 2), (1, 2)]): entry(shape=(2, 2), size=16, offset=16),
}

MALFORMED: dict[str, tuple[dict[Any, Any], str]] = {
    "no message": ({"v": b"\xff\xff"}, "entry b'v' is not a BundleEntryProto"),
    "a name that is no text": ({b"\xff": entry()}, "is not UTF-8"),
    "no type": ({"v": entry(0)}, "unknown type 0"),
    "an unknown type": ({"v": entry(99)}, "unknown type 99"),
    "a reference": ({"v": entry(101)}, "cannot have the type float32_ref"),
    "a handle": ({"v": entry(20)}, "cannot have the type resource"),
    "a negative size": ({"v": entry(shape=(-1, 2))}, r"has the shape \[-1, 2\]"),
    "a huge shape": ({"v": entry(shape=(2**62, 2, 0), size=0)}, "has the shape"),
    "a huge rank": ({"v": entry(shape=(1,) * 65, size=4)}, "has the shape"),
    "too few bytes": ({"v": entry(size=23)}, r"float32\[2, 3\], cannot take 23 bytes"),
    "too many bytes": ({"v": entry(size=25)}, "cannot take 25 bytes"),
    "too few for strings": ({"v": entry(7, (9,), size=12)}, "cannot take 12 bytes"),
    "another shard": ({"v": entry(shard_id=1)}, "of shard 1 of 1"),
    "before the file": ({"v": entry(offset=-4)}, "24 bytes at -4"),
    "behind any file": ({"v": entry(offset=2**63 - 8)}, "cannot be 24 bytes"),
    "shared bytes": (
        {"a": entry(), "b": entry(offset=23)},
        "tensors 'a' and 'b' share bytes",
    ),
    "no such slice": ({"v": sliced([(0, 2), (0, 3)])}, "lacks its slice"),
    "a slice of another rank": ({"v": sliced([(0, 2)])}, "has a slice of rank 1"),
    "a slice outside": ({"v": sliced([(1, 2), (0, 3)])}, "out of bounds"),
    "a negative slice": ({"v": sliced([(-1, 2), (0, 3)])}, "out of bounds"),
    "a slice of another shape": (
        {"v": sliced([(0, 2), (0, 1)]), slice_key(b"v", [(0, 2), (0, 1)]): entry()},
        "does not have its declared type or shape",
    ),
    "overlapping slices": (OVERLAPPING, "slices of tensor 'v' overlap"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_what_cannot_be(case: str) -> None:
    entries, text = MALFORMED[case]
    with pytest.raises(errors.DataLossError, match=f"^{FILE} is malformed: .*{text}"):
        index(entries)


HEADERS: list[tuple[Callable[[], Any], type[errors.OpError], str]] = [
    (lambda: b"\xff", errors.DataLossError, "header is not a BundleHeaderProto"),
    (
        lambda: proto.BundleHeaderProto(num_shards=-1),
        errors.DataLossError,
        "number of shards is invalid: -1",
    ),
    (
        lambda: proto.BundleHeaderProto(num_shards=10**6),
        errors.DataLossError,
        "is invalid: 1000000",
    ),
    (
        lambda: proto.BundleHeaderProto(endianness=7),
        errors.DataLossError,
        "byte order must be 0 or 1, got 7",
    ),
    (
        lambda: proto.BundleHeaderProto(version=proto.VersionDef(min_consumer=9)),
        errors.UnimplementedError,
        "requires a reader of version 9",
    ),
    (
        lambda: proto.BundleHeaderProto(version=proto.VersionDef(bad_consumers=[1])),
        errors.UnimplementedError,
        "this reader has version 1",
    ),
]


@pytest.mark.parametrize(("header", "kind", "text"), HEADERS)
def test_headers_that_cannot_be(header: Any, kind: Any, text: str) -> None:
    with pytest.raises(kind, match=text):
        index({}, header())


def test_no_header() -> None:
    with pytest.raises(errors.DataLossError, match="must begin with a header"):
        BundleIndex.from_bytes(table_bytes([(b"v", b"")]), FILE)
    with pytest.raises(errors.DataLossError, match="must begin with a header"):
        BundleIndex.from_bytes(table_bytes([]), FILE)


def test_merging() -> None:
    one = index({"a": entry()})
    two = index({"b": entry(offset=8)}, proto.BundleHeaderProto(num_shards=2))
    both, sources = merge_indexes(FILE, [one, two])
    assert sources == [(0, 0), (1, 0), (1, 1)]
    assert [(name, e.parts[0].shard) for name, e in both.tensors.items()] == [("a", 0), ("b", 1)]
    with pytest.raises(errors.InvalidArgumentError, match="have the unsliced tensor 'a'"):
        merge_indexes(FILE, [one, one])
    big = index({"c": entry()}, proto.BundleHeaderProto(num_shards=1, endianness=1))
    with pytest.raises(errors.InvalidArgumentError, match="different byte orders"):
        merge_indexes(FILE, [one, big])

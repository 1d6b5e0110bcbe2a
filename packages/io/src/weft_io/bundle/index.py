"""The index of a bundle: a table from names to `BundleEntryProto`s, with the header under "".

The entry of a partitioned variable lists its slices and has no bytes. Each slice has its own entry,
under a key (`coding.slice_key`) that cannot be the beginning of a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from weft_graph import proto
from weft_io.bundle.checksum import crc32c
from weft_io.bundle.key_encoding import Extents, slice_key
from weft_io.bundle.table import TableReader, table_bytes
from weft_io.checkpoint import encoding, regions
from weft_io.checkpoint.regions import Region, Shape
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

if TYPE_CHECKING:
    from weft_graph import proto

VERSION: Final = 1
"""The format version that is read and written."""

_HEADER: Final = b""
_SLICE: Final = b"\x00"  # prefix of the keys of slices, but not of names
_MAX_SHARDS: Final = 100_000  # the names of shards have five digits
_LARGEST: Final = 2**63
_MAX_RANK: Final = 64  # NumPy's


def shard_path(prefix: str, number: int, total: int) -> str:
    """Return the path of a shard."""
    return f"{prefix}.data-{number:05d}-of-{total:05d}"


class ForeignType(NamedTuple):
    """An element type that weft does not support; such tensors can be listed but not read."""

    name: str

    @property
    def base_dtype(self) -> ForeignType:
        """Return this type."""
        return self


class Piece(NamedTuple):
    """A box of a tensor, stored in one shard.

    Attributes:
      region: the box.
      shard: number of the shard.
      begin, end: its bytes in the file.
      crc: the masked CRC-32C of the bytes; `strings` describes the format of string tensors.
    """

    region: Region
    shard: int
    begin: int
    end: int
    crc: int


class Entry(NamedTuple):
    """The index entry of one tensor.

    Attributes:
      dtype, shape: element type and shape of the whole tensor.
      parts: boxes of the tensor, without overlaps; slices that were not saved are missing.
    """

    dtype: Any
    shape: Shape
    parts: tuple[Piece, ...]


class BundleIndex:
    """The table of contents of a bundle.

    Attributes:
      path: its file, for messages.
      save: a checksum of the file, which identifies the save that wrote it.
      shards: number of files with data.
      big_endian: True if the bytes of numbers come most significant first.
      tensors: by name.
    """

    __slots__ = ("big_endian", "path", "save", "shards", "tensors")

    format: Final = "TensorFlow"

    def __init__(
        self,
        path: str,
        save: str,
        shards: int,
        big_endian: bool,
        tensors: Mapping[str, Entry],
    ) -> None:
        self.path = path
        self.save = save
        self.shards = shards
        self.big_endian = big_endian
        self.tensors = dict(tensors)

    @property
    def file_count(self) -> int:
        """The number of shards."""
        return self.shards

    @staticmethod
    def from_bytes(data: bytes, path: str) -> BundleIndex:
        """Parse the index in a file's bytes, which are untrusted.

        Args:
          path: the file, for messages.
        Raises:
          DataLossError: the bytes are damaged or inconsistent.
          UnimplementedError: a later version wrote it, or it is compressed.
        """
        items = TableReader(data, path).items()
        try:
            header = _header(next(items, None))
            messages: dict[bytes, proto.BundleEntryProto] = {}
            for key, value in items:
                messages[key] = _entry_proto(key, value)
            tensors = {
                _name(key): _entry(key, message, messages, header.num_shards)
                for key, message in messages.items()
                if not key.startswith(_SLICE)
            }
            _check_ranges_disjoint(tensors)
        except _MalformedError as cause:
            raise errors.DataLossError(f"{path} is malformed: {cause}") from cause
        except _UnknownVersionError as cause:
            raise errors.UnimplementedError(f"{path} {cause}") from cause
        save = f"crc32c:{crc32c(data):08x}"
        return BundleIndex(path, save, header.num_shards, bool(header.endianness), tensors)

    def to_bytes(self) -> bytes:
        """Serialize the index."""
        header = proto.BundleHeaderProto(num_shards=self.shards, endianness=int(self.big_endian))
        header.version.producer = VERSION
        items = {_HEADER: header.SerializeToString()}
        for name, entry in self.tensors.items():
            key = name.encode()
            whole_entry = _to_proto(entry.dtype, entry.shape)
            if entry.parts and entry.parts[0].region == Region.whole_tensor(entry.shape):
                _fill(whole_entry, entry.parts[0])
            else:
                for part in entry.parts:
                    extents = list(zip(*part.region, strict=True))
                    _add_slice(whole_entry, extents)
                    piece = _to_proto(entry.dtype, part.region.shape)
                    _fill(piece, part)
                    items[slice_key(key, extents)] = piece.SerializeToString()
            items[key] = whole_entry.SerializeToString()
        return table_bytes(sorted(items.items()))


# --------------------------------------------------------------------------- to messages


def _to_proto(dtype: DType, shape: Shape) -> proto.BundleEntryProto:
    message = proto.BundleEntryProto(dtype=dtype.as_datatype_enum)
    message.shape.SetInParent()
    for size in shape:
        message.shape.dim.add(size=size)
    return message


def _fill(message: proto.BundleEntryProto, part: Piece) -> None:
    message.shard_id = part.shard
    message.offset = part.begin
    message.size = part.end - part.begin
    message.crc32c = part.crc


def _add_slice(message: proto.BundleEntryProto, extents: Extents) -> None:
    added = message.slices.add()
    for start, length in extents:
        added.extent.add(start=start, length=length)


# --------------------------------------------------------------------------- from messages


class _MalformedError(Exception):
    """Error for an index with contradictory or impossible entries."""


class _UnknownVersionError(Exception):
    """Error for an index that a later version wrote."""


def _header(item: tuple[bytes, bytes] | None) -> proto.BundleHeaderProto:
    if item is None or item[0] != _HEADER:
        raise _MalformedError("a bundle's index must begin with a header under the empty key")
    header: proto.BundleHeaderProto = _parse(proto.BundleHeaderProto, item[1], "its header")
    if header.version.min_consumer > VERSION or VERSION in header.version.bad_consumers:
        raise _UnknownVersionError(
            f"requires a reader of version {header.version.min_consumer} of the format; "
            "this reader "
            f"has version {VERSION}"
        )
    if not 0 <= header.num_shards <= _MAX_SHARDS:
        raise _MalformedError(f"the number of shards is invalid: {header.num_shards}")
    if header.endianness not in (0, 1):
        raise _MalformedError(f"the byte order must be 0 or 1, got {header.endianness}")
    return header


def _parse(kind: Any, data: bytes, label: str) -> Any:
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(data)
    except DecodeError as cause:
        raise _MalformedError(f"{label} is not a {kind.DESCRIPTOR.name}: {cause}") from cause


def _entry_proto(key: bytes, value: bytes) -> proto.BundleEntryProto:
    message: proto.BundleEntryProto = _parse(proto.BundleEntryProto, value, f"the entry {key!r}")
    return message


def _name(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError as cause:
        raise _MalformedError(f"the name {key!r} is not UTF-8") from cause


def _entry(
    key: bytes,
    message: proto.BundleEntryProto,
    messages: Mapping[bytes, proto.BundleEntryProto],
    shards: int,
) -> Entry:
    label = f"tensor {_name(key)!r}"
    dtype, shape = _dtype(message.dtype, label), _shape(message, label)
    if not message.slices:
        return Entry(
            dtype, shape, (_piece(message, Region.whole_tensor(shape), dtype, shards, label),)
        )
    parts = []
    for item in message.slices:
        extents = [
            (extent.start, extent.length if extent.HasField("length") else -1)
            for extent in item.extent
        ]
        region = _region(extents, shape, label)
        result = messages.get(slice_key(key, extents))
        if result is None or result.slices:
            raise _MalformedError(f"{label} lacks its slice {list(region.start)}")
        if result.dtype != message.dtype or _shape(result, label) != region.shape:
            raise _MalformedError(f"a slice of {label} does not have its declared type or shape")
        parts.append(_piece(result, region, dtype, shards, label))
    if not are_disjoint([part.region for part in parts]):
        raise _MalformedError(f"slices of {label} overlap")
    return Entry(dtype, shape, tuple(parts))


def are_disjoint(boxes: Iterable[Region]) -> bool:
    """Return True if the boxes do not overlap."""
    filled = [box for box in boxes if regions.count(box.shape)]
    if len(filled) < 2 or not filled[0].shape:
        return len(filled) < 2
    starts = np.array([box.start for box in filled], np.int64)
    ends = starts + np.array([box.shape for box in filled], np.int64)
    axis = int(np.argmax([len(np.unique(column)) for column in starts.T]))
    order = np.argsort(starts[:, axis], kind="stable")
    starts, ends = starts[order], ends[order]
    for i in range(len(filled) - 1):
        candidates = slice(i + 1, int(np.searchsorted(starts[:, axis], ends[i, axis])))
        is_disjoint = (starts[candidates] >= ends[i]) | (ends[candidates] <= starts[i])
        if not is_disjoint.any(axis=1).all():
            return False
    return True


def _dtype(number: int, label: str) -> Any:
    try:
        dtype = DType(number)
    except errors.InvalidTypeError:
        if number not in proto.DataType.values() or not 0 < number < 100:
            raise _MalformedError(f"{label} has the unknown type {number}") from None
        return ForeignType(proto.DataType.Name(number))
    if dtype.is_ref or dtype is dtypes.resource:
        raise _MalformedError(f"{label} cannot have the type {dtype.name}")
    return dtype


def _shape(message: proto.BundleEntryProto, label: str) -> Shape:
    shape = tuple([dim.size for dim in message.shape.dim])
    huge = regions.count([size or 1 for size in shape]) >= _LARGEST
    if message.shape.unknown_rank or min(shape, default=0) < 0 or len(shape) > _MAX_RANK or huge:
        raise _MalformedError(
            f"{label} has the shape {list(shape)}: sizes must not be negative, and the rank and "
            "the number of elements are limited"
        )
    return shape


def _region(extents: Extents, shape: Shape, label: str) -> Region:
    if len(extents) != len(shape):
        raise _MalformedError(f"{label} of rank {len(shape)} has a slice of rank {len(extents)}")
    start = tuple([first for first, _ in extents])
    sizes = tuple(
        [full if size == -1 else size for (_, size), full in zip(extents, shape, strict=True)]
    )
    region = Region(start, sizes)
    if min((*start, *sizes), default=0) < 0 or not region.is_within(shape):
        raise _MalformedError(f"a slice of {label} is out of bounds: {list(start)}, {list(sizes)}")
    return region


def _piece(
    message: proto.BundleEntryProto, region: Region, dtype: Any, shards: int, label: str
) -> Piece:
    begin, size = message.offset, message.size
    if not 0 <= message.shard_id < shards or min(begin, size) < 0 or begin + size >= _LARGEST:
        raise _MalformedError(
            f"{label} cannot be {size} bytes at {begin} of shard {message.shard_id} of {shards}"
        )
    if isinstance(dtype, DType) and dtype.is_numpy_compatible:
        stored_size = encoding.stored_size(dtype, region.shape)
        minimum = regions.count(region.shape) + 4 if stored_size is None else stored_size
        if size < minimum or (stored_size is not None and size != stored_size):
            raise _MalformedError(
                f"{label}, {dtype.name}{list(region.shape)}, cannot take {size} bytes"
            )
    return Piece(region, message.shard_id, begin, begin + size, message.crc32c)


def _check_ranges_disjoint(tensors: Mapping[str, Entry]) -> None:
    """Check that no byte belongs to two tensors, so that file sizes bound allocations."""
    ranges = sorted(
        (part.shard, part.begin, part.end, name)
        for name, entry in tensors.items()
        for part in entry.parts
        if part.end > part.begin
    )
    for before, after in pairwise(ranges):
        if before[0] == after[0] and after[1] < before[2]:
            raise _MalformedError(f"tensors {before[3]!r} and {after[3]!r} share bytes")


def merge_indexes(
    path: str, indexes: Sequence[BundleIndex]
) -> tuple[BundleIndex, list[tuple[int, int]]]:
    """Merge the indexes of several bundles into one.

    Args:
      path: the file that it will be.
    Returns: the index, and for each of its shards the bundle and the shard number there.
    Raises: InvalidArgumentError: a tensor is in two of them, or in parts of different tensors.
    """
    sources: list[tuple[int, int]] = []
    tensors: dict[str, Entry] = {}
    for i, index in enumerate(indexes):
        base = len(sources)
        sources += [(i, number) for number in range(index.shards)]
        if index.big_endian != indexes[0].big_endian:
            raise errors.InvalidArgumentError(
                f"{index.path} and {indexes[0].path} have different byte orders"
            )
        for name, entry in index.tensors.items():
            renumbered = [part._replace(shard=part.shard + base) for part in entry.parts]
            tensors[name] = _join(name, tensors.get(name), entry._replace(parts=tuple(renumbered)))
    big = bool(indexes) and indexes[0].big_endian
    return BundleIndex(path, "", len(sources), big, tensors), sources


def _join(name: str, entry: Entry | None, added_entry: Entry) -> Entry:
    if entry is None:
        return added_entry
    parts = entry.parts + added_entry.parts
    is_same = (entry.dtype, entry.shape) == (added_entry.dtype, added_entry.shape)
    if not is_same or not are_disjoint([part.region for part in parts]):
        raise errors.InvalidArgumentError(
            f"two of the bundles to merge have the unsliced tensor {name!r}"
        )
    return entry._replace(parts=parts)

r"""The index of a checkpoint: its tensors and the locations of their bytes.

`<prefix>.index` is JSON with one checksum over all of it, in four lines:

    {"format":"weft-checkpoint","version":2,"checksum":"crc32:89abcdef","index":
    {"save":"0123456789abcdef","shards":[...],"tensors":{...}}
    }

The checksum covers the version, a newline and the third line without its newline. A shard is

    {"suffix":".data-00000-of-00001-0123456789abcdef.safetensors","size":1088,"header":64,
     "checksum":"xxh3:0123456789abcdef"}

where `size` is the size of the file, `header` the number of bytes before the first tensor, and
`checksum` the checksum of these bytes. A tensor is

    {"dtype":"float32","shape":[10,20],"parts":[
      {"shard":0,"begin":64,"end":864,"checksum":"xxh3:0123456789abcdef"}]}

with the location of its bytes in the file. If a tensor has several parts, each also has "start" and
"shape". Files are identified by the suffix after the prefix, so that a checkpoint can be renamed as
a whole. Readers ignore unknown keys. Version 1 had `"crc32":"89abcdef"` instead of
`"checksum":"crc32:89abcdef"`.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from weft_graph.ir.gc_pause import pause_gc
from weft_io.checkpoint import checksums, encoding, regions
from weft_io.checkpoint.regions import Region, Shape
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

FORMAT_VERSION: Final = 2
INDEX_SUFFIX: Final = ".index"
SHARD_SUFFIX: Final = re.compile(r"\.data-\d{5,}-of-\d{5,}-[0-9a-f]{16}\.safetensors")

_ENVELOPE: Final = re.compile(
    rb'\{"format":"weft-checkpoint","version":(\d{1,9}),"checksum":"crc32:([0-9a-f]{8})",'
    rb'"index":\n(.*)\n\}\n',
    re.DOTALL,
)
_LARGEST: Final = 2**63


def index_path(prefix: str) -> str:
    """Return the path of the index; a checkpoint is complete once it exists."""
    return prefix + INDEX_SUFFIX


def shard_suffix(number: int, total: int, save: str) -> str:
    """Return the suffix of a shard's file name, which is unique to a save."""
    return f".data-{number:05d}-of-{total:05d}-{save}.safetensors"


class Shard:
    """One file of tensors.

    Attributes:
      suffix: its name, after the prefix.
      size: in bytes.
      header: bytes before the first tensor.
      checksum: checksum of the header.
    """

    __slots__ = ("checksum", "header", "size", "suffix")

    def __init__(self, suffix: str, size: int, header: int, checksum: str) -> None:
        self.suffix = suffix
        self.size = size
        self.header = header
        self.checksum = checksum


class Part:
    """A box of a tensor, in one shard.

    Attributes:
      region: the box.
      shard: number of the shard.
      begin, end: its bytes in the file.
      checksum: checksum of the bytes.
    """

    __slots__ = ("begin", "checksum", "end", "region", "shard")

    def __init__(self, region: Region, shard: int, begin: int, end: int, checksum: str) -> None:
        self.region = region
        self.shard = shard
        self.begin = begin
        self.end = end
        self.checksum = checksum


class Entry:
    """The index entry of one tensor.

    Attributes:
      dtype, shape: element type and shape of the whole tensor.
      parts: boxes that cover it, each element once.
    """

    __slots__ = ("dtype", "parts", "shape")

    def __init__(self, dtype: DType, shape: Shape, parts: Sequence[Part]) -> None:
        self.dtype = dtype
        self.shape = shape
        self.parts = tuple(parts)


class Index:
    """The table of contents of a checkpoint.

    Attributes:
      save: unique name of the save that wrote it.
      shards: its files.
      tensors: by name.
    """

    __slots__ = ("save", "shards", "tensors")

    format: Final = "weft"

    def __init__(self, save: str, shards: Sequence[Shard], tensors: Mapping[str, Entry]) -> None:
        self.save = save
        self.shards = tuple(shards)
        self.tensors = dict(tensors)

    @property
    def file_count(self) -> int:
        """The number of shards."""
        return len(self.shards)

    def to_bytes(self) -> bytes:
        """Serialize the index."""
        body = json.dumps(
            {
                "save": self.save,
                "shards": [_shard_to_json(shard) for shard in self.shards],
                "tensors": {name: _entry_to_json(e) for name, e in self.tensors.items()},
            },
            separators=(",", ":"),
        ).encode()
        head = (
            f'{{"format":"weft-checkpoint","version":{FORMAT_VERSION},'
            f'"checksum":"crc32:{_checksum(str(FORMAT_VERSION).encode(), body):08x}","index":\n'
        )
        return head.encode() + body + b"\n}\n"

    @staticmethod
    def from_bytes(data: bytes, path: str) -> Index:
        """Parse the index in a file's bytes, which are untrusted.

        Args:
          path: the file, for messages.
        Raises:
          DataLossError: the bytes are damaged or inconsistent.
          UnimplementedError: a later version wrote it.
        """
        body = _verify(data, path)
        try:
            with pause_gc():  # all that is made stays
                return _index_from_json(json.loads(body))
        except (_MalformedError, ValueError, RecursionError) as cause:
            raise errors.DataLossError(f"{path} is malformed: {cause}") from cause


def shard_suffixes(data: bytes, path: str) -> set[str]:
    """Return the suffixes of the files that an index names, without parsing the tensors.

    Raises: as `Index.from_bytes`.
    """
    body = _verify(data, path)
    try:
        shards = _field(json.loads(body), "shards", list)
        return {_shard_from_json(item).suffix for item in shards}
    except (_MalformedError, ValueError, RecursionError) as cause:
        raise errors.DataLossError(f"{path} is malformed: {cause}") from cause


def _verify(data: bytes, path: str) -> bytes:
    """Return the bytes that the checksum of an index covers."""
    match = _ENVELOPE.fullmatch(data)
    if match is None:
        raise errors.DataLossError(f"{path} is damaged, or is not the index of a weft checkpoint")
    version, crc, body = match.groups()
    checksum = _checksum(version, body)
    if checksum != int(crc, 16):
        raise errors.DataLossError(
            f"{path} is damaged: its checksum must be {crc.decode()}, got {checksum:08x}"
        )
    if not 1 <= int(version) <= FORMAT_VERSION:
        raise errors.UnimplementedError(
            f"{path} has version {int(version)} of the format; this reader supports 1 to "
            f"{FORMAT_VERSION}"
        )
    return body


def _checksum(version: bytes, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(version + b"\n"))


# --------------------------------------------------------------------------- to JSON


def _shard_to_json(shard: Shard) -> dict[str, Any]:
    return {
        "suffix": shard.suffix,
        "size": shard.size,
        "header": shard.header,
        "checksum": shard.checksum,
    }


def _entry_to_json(entry: Entry) -> dict[str, Any]:
    parts = []
    for part in entry.parts:
        item: dict[str, Any] = {
            "shard": part.shard,
            "begin": part.begin,
            "end": part.end,
            "checksum": part.checksum,
        }
        if len(entry.parts) > 1:
            item |= {"start": part.region.start, "shape": part.region.shape}
        parts.append(item)
    return {"dtype": entry.dtype.name, "shape": entry.shape, "parts": parts}


# --------------------------------------------------------------------------- from JSON


class _MalformedError(Exception):
    """Error for an index with contradictory or impossible entries."""


def _index_from_json(data: Any) -> Index:
    shards = [_shard_from_json(item) for item in _field(data, "shards", list)]
    tensors = {
        name: _entry_from_json(name, item, shards)
        for name, item in _field(data, "tensors", dict).items()
    }
    _check_ranges_disjoint(tensors, len(shards))
    return Index(_field(data, "save", str), shards, tensors)


def _shard_from_json(data: Any) -> Shard:
    suffix = _field(data, "suffix", str)
    if not SHARD_SUFFIX.fullmatch(suffix):
        raise _MalformedError(f"{suffix!r} is not a valid name of a shard")
    size, header = _size(_field(data, "size", int)), _size(_field(data, "header", int))
    if header > size:
        raise _MalformedError(f"the header of {suffix!r} is longer than the file")
    return Shard(suffix, size, header, _checksum_from_json(data))


def _entry_from_json(name: str, data: Any, shards: Sequence[Shard]) -> Entry:
    try:
        dtype = dtypes.as_dtype(_field(data, "dtype", str))
    except errors.InvalidTypeError as cause:
        raise _MalformedError(f"tensor {name!r}: {cause}") from cause
    shape = _shape(_field(data, "shape", list))
    items = _field(data, "parts", list)
    if dtype.is_ref or not dtype.is_numpy_compatible:
        raise _MalformedError(f"tensor {name!r} cannot have the type {dtype.name}")
    parts = []
    for item in items:
        region = Region.whole_tensor(shape)
        if len(items) > 1:
            region = Region(
                _shape(_field(item, "start", list)), _shape(_field(item, "shape", list))
            )
        parts.append(_part_from_json(name, item, region, dtype, shards))
    if not regions.tiles([part.region for part in parts], shape):
        raise _MalformedError(f"the parts of tensor {name!r} do not cover it, each element once")
    return Entry(dtype, shape, parts)


def _part_from_json(
    name: str, data: Any, region: Region, dtype: DType, shards: Sequence[Shard]
) -> Part:
    number = _size(_field(data, "shard", int))
    begin, end = _size(_field(data, "begin", int)), _size(_field(data, "end", int))
    if number >= len(shards) or not shards[number].header <= begin <= end <= shards[number].size:
        raise _MalformedError(f"bytes {begin} to {end} of tensor {name!r} are outside its shard")
    size = encoding.stored_size(dtype, region.shape)
    minimum = 8 * regions.count(region.shape) if size is None else size
    if end - begin < minimum or (size is not None and end - begin > size):
        raise _MalformedError(
            f"tensor {name!r}, {dtype.name}{list(region.shape)}, cannot take {end - begin} bytes"
        )
    return Part(region, number, begin, end, _checksum_from_json(data))


def _check_ranges_disjoint(tensors: Mapping[str, Entry], number: int) -> None:
    """Check that no byte belongs to two tensors, so that file sizes bound allocations."""
    ranges_by_shard: list[list[tuple[int, int]]] = [[] for _ in range(number)]
    for entry in tensors.values():
        for part in entry.parts:
            if part.end > part.begin:
                ranges_by_shard[part.shard].append((part.begin, part.end))
    for ranges in ranges_by_shard:
        ranges.sort()
        if any(after[0] < before[1] for before, after in pairwise(ranges)):
            raise _MalformedError("the byte ranges of two tensors overlap")


def _field(data: Any, key: str, kind: type[Any]) -> Any:
    if not isinstance(data, dict) or type(data.get(key)) is not kind:
        raise _MalformedError(f"{key!r} is missing, or is not a {kind.__name__}")
    return data[key]


def _size(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _LARGEST:
        raise _MalformedError(f"{value!r} is not a valid size")
    return value


def _shape(sizes: list[Any]) -> Shape:
    shape = tuple([_size(size) for size in sizes])
    if len(shape) > 64 or regions.count(shape) >= _LARGEST:
        raise _MalformedError(f"not a valid shape: {sizes}")
    return shape


def _checksum_from_json(data: Any) -> str:
    old = isinstance(data, dict) and "checksum" not in data
    text = f"crc32:{_field(data, 'crc32', str)}" if old else _field(data, "checksum", str)
    if not checksums.is_checksum(text):
        raise _MalformedError(f"{text!r} is not a checksum of a supported kind")
    return text

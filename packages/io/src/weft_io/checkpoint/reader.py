"""Reading checkpoints: nothing is handed out before everything asked for was verified."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from weft_io.checkpoint import files
from weft_io.checkpoint.encoding import Array, Empty
from weft_io.checkpoint.index import Entry, Index, Part, index_path
from weft_io.checkpoint.regions import Region, Shape, parse_spec
from weft_io.checkpoint.shards import ShardReader, opened
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.os_errors import reported
from weft_tensor.shape import Dims, compatible_dims, format_dims

if TYPE_CHECKING:
    from weft_io.bundle.index import BundleIndex, Entry as BundleEntry

TABLE_MAGIC: Final = bytes.fromhex("57fb808b247547db")
"""What the index of a bundle, TensorFlow's format, ends in."""

_ATTEMPTS = 5


class CheckpointNotFoundError(errors.NotFoundError, ValueError):
    """There is no checkpoint of that name.

    Check the path: it is the one that `Saver.save` returned, without a file's suffix. It is a
    ValueError too, since that is what TensorFlow's `Saver.restore` raises.
    """


class Wanted(NamedTuple):
    """A tensor to read.

    Attributes:
      name: in the checkpoint.
      spec: which part of it, "10 20 0,5:-"; "" for the whole.
      dtype: required element type, or None for any.
      dims: required static shape of what is read; None for any.
    """

    name: str
    spec: str = ""
    dtype: DType | None = None
    dims: Dims = None


def read_index(prefix: str) -> Index | BundleIndex:
    """The index of a checkpoint: of weft's, or of TensorFlow's where its file is a table.

    Raises:
      NotFoundError: there is none.
      DataLossError: it is damaged.
    """
    path = index_path(prefix)
    try:
        with reported("reading", path):
            return parse_index(files.read_bytes(path), path)
    except errors.NotFoundError as cause:
        raise CheckpointNotFoundError(
            f"there is no valid checkpoint at {prefix}: {path} does not exist"
        ) from cause


def is_bundle(data: bytes) -> bool:
    """Whether the bytes of an index are not weft's: then they are TensorFlow's, or damaged."""
    return data.endswith(TABLE_MAGIC) or b"weft-checkpoint" not in data[:40]


def parse_index(data: bytes, path: str) -> Index | BundleIndex:
    """The index in a file's bytes; arguments and errors as of `Index.from_bytes`."""
    if not is_bundle(data):
        return Index.from_bytes(data, path)
    from weft_io.bundle.index import BundleIndex

    return BundleIndex.from_bytes(data, path)


def read_tensors(prefix: str, wanted: Sequence[Wanted], empty: Empty = np.empty) -> list[Array]:
    """Tensors of a checkpoint, all of them verified.

    Names, types and shapes are compared before anything is read, and every byte of what is wanted
    is verified before anything is returned.

    Args:
      empty: `empty(shape, numpy dtype)`, where the memory comes from.
    Raises:
      NotFoundError: there is no such checkpoint, or it lacks a tensor or a file; all missing
        tensors are named.
      InvalidArgumentError: a tensor has another type or shape than is required.
      DataLossError: a file is damaged; tensor and place are named.
    """
    prefix = files.as_path(prefix)
    index = read_index(prefix)
    for _ in range(_ATTEMPTS):
        try:
            return _read(prefix, index, wanted, empty)
        except errors.NotFoundError:
            # Someone may have replaced the checkpoint and removed the shards of this index.
            again = read_index(prefix)
            if again.save == index.save:
                raise
            index = again
    raise errors.AbortedError(f"{prefix} was replaced each of the {_ATTEMPTS} times it was read")


def _read(
    prefix: str, index: Index | BundleIndex, wanted: Sequence[Wanted], empty: Empty
) -> list[Array]:
    check_names(prefix, index, [want.name for want in wanted])
    boxes = [_check(prefix, index.tensors[want.name], want) for want in wanted]
    if not isinstance(index, Index):
        from weft_io.bundle.reader import read_boxes

        pairs = [(want.name, box) for want, box in zip(wanted, boxes, strict=True)]
        return read_boxes(prefix, index, pairs, empty)
    needs: dict[int, dict[Part, list[int]]] = {}
    for i, (want, box) in enumerate(zip(wanted, boxes, strict=True)):
        parts = index.tensors[want.name].parts
        for part in parts:
            if len(parts) == 1 or part.region.overlap(box) is not None:
                needs.setdefault(part.shard, {}).setdefault(part, []).append(i)
    results: list[Any] = [None] * len(wanted)
    for number, of_shard in sorted(needs.items()):
        names = list(dict.fromkeys(wanted[users[0]].name for users in of_shard.values()))
        with (
            reported("reading", prefix),
            opened(prefix, index.shards[number], names) as shard,
        ):
            for part, users in of_shard.items():
                name = wanted[users[0]].name
                targets = _Targets(results, users, boxes, index.tensors[name].dtype, empty)
                targets.fill(shard, name, part)
    return [
        empty(box.shape, index.tensors[want.name].dtype.numpy) if result is None else result
        for result, box, want in zip(results, boxes, wanted, strict=True)
    ]


class _Targets:
    """The boxes of one tensor that a stored part has something of: the part is read once."""

    def __init__(
        self,
        results: list[Any],
        users: Sequence[int],
        boxes: Sequence[Region],
        dtype: DType,
        empty: Empty,
    ) -> None:
        self._results = results
        self._users = users
        self._boxes = boxes
        self._dtype = dtype
        self._empty = empty

    def fill(self, shard: ShardReader, name: str, part: Part) -> None:
        """Read the part, to where it belongs if that is possible, and hand out what it has."""
        first, *others = self._users
        value = shard.read(name, self._dtype, part, self._place(first, part))
        if part.region == self._boxes[first]:
            self._results[first] = value
        else:
            self._copy(first, part, value)
        for user in others:
            self._copy(user, part, value)

    def _place(self, user: int, part: Part) -> Empty:
        box = self._boxes[user]
        if part.region == box:
            return self._empty
        if part.region.overlap(box) != part.region or self._dtype.numpy.hasobject:
            return np.empty
        inside = self._target(user)[part.region.slices(box.start)]
        return (lambda shape, dtype: inside) if inside.flags.c_contiguous else np.empty

    def _target(self, user: int) -> Any:
        if self._results[user] is None:
            self._results[user] = self._empty(self._boxes[user].shape, self._dtype.numpy)
        return self._results[user]

    def _copy(self, user: int, part: Part, value: Any) -> None:
        shared = part.region.overlap(self._boxes[user])
        target = self._target(user)
        if shared is None or np.may_share_memory(value, target):
            return
        target[shared.slices(self._boxes[user].start)] = value[shared.slices(part.region.start)]


def check_names(prefix: str, index: Index | BundleIndex, names: Iterable[str]) -> None:
    """Raise NotFoundError, naming all that are missing and what is near, unless all are there."""
    missing = [name for name in dict.fromkeys(names) if name not in index.tensors]
    if not missing:
        return
    import difflib

    said = []
    for name in missing[:10]:
        near = difflib.get_close_matches(name, index.tensors, n=3)
        said.append(f"{name} (near names: {', '.join(near)})" if near else name)
    if len(missing) > 10:
        said.append(f"and {len(missing) - 10} more")
    raise errors.NotFoundError(
        f"{prefix} lacks {len(missing)} of the tensors wanted: {', '.join(said)}; "
        f"it has {len(index.tensors)} tensors",
        details={"missing": missing},
    )


def _check(prefix: str, entry: Entry | BundleEntry, want: Wanted) -> Region:
    """The box that is wanted of a tensor, after comparing its type and shape."""
    parsed = parse_spec(want.spec)
    if want.dtype is not None and want.dtype.base_dtype is not entry.dtype:
        raise errors.InvalidArgumentError(
            f"tensor {want.name!r} of {prefix} must be {want.dtype.base_dtype.name}, "
            f"got {entry.dtype.name}"
        )
    full, box = (entry.shape, Region.whole(entry.shape)) if parsed is None else parsed
    if full != entry.shape:
        raise errors.InvalidArgumentError(
            f"tensor {want.name!r} of {prefix} must have shape {format_dims(full)}, "
            f"got {format_dims(entry.shape)}"
        )
    if not compatible_dims(want.dims, box.shape):
        raise errors.InvalidArgumentError(
            f"tensor {want.name!r} of {prefix} must have shape {format_dims(want.dims)}, "
            f"got {format_dims(box.shape)}"
        )
    return box


def _name(tensor_str: Any) -> str:
    if not isinstance(tensor_str, str | bytes):
        raise errors.InvalidTypeError(f"the name of a tensor must be text, got {tensor_str!r}")
    return tensor_str.decode(errors="replace") if isinstance(tensor_str, bytes) else tensor_str


class CheckpointReader:
    """What a checkpoint holds, read when it is asked for.

    Args:
      prefix: path without suffix, as `Saver.save` returns it.
    Raises:
      NotFoundError: there is none.
      DataLossError: its index is damaged.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = files.as_path(prefix)
        self._index = read_index(self._prefix)

    @property
    def prefix(self) -> str:
        """Path without suffix."""
        return self._prefix

    @property
    def index(self) -> Index | BundleIndex:
        """Its table of contents."""
        return self._index

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """The shape of each tensor by name."""
        return {name: list(entry.shape) for name, entry in self._index.tensors.items()}

    def get_variable_to_dtype_map(self) -> dict[str, DType]:
        """The element type of each tensor by name."""
        return {name: entry.dtype for name, entry in self._index.tensors.items()}

    def has_tensor(self, tensor_str: str | bytes) -> bool:
        """Whether there is a tensor of that name. Raises: InvalidTypeError: it is no name."""
        return _name(tensor_str) in self._index.tensors

    def get_tensor(self, tensor_str: str | bytes) -> Any:
        """A tensor: an array, or a scalar for rank 0.

        Raises:
          InvalidTypeError: `tensor_str` is no name.
          NotFoundError, DataLossError: it is not there, or is damaged.
        """
        return _read(self._prefix, self._index, [Wanted(_name(tensor_str))], np.empty)[0][()]

    def shape(self, tensor_str: str | bytes) -> Shape:
        """The shape of a tensor. Raises: InvalidTypeError: it is no name; NotFoundError."""
        name = _name(tensor_str)
        check_names(self._prefix, self._index, [name])
        return self._index.tensors[name].shape

    def debug_string(self) -> bytes:
        """One line per tensor: name, type and shape."""
        lines = [
            f"{name} ({entry.dtype.name}) {list(entry.shape)}"
            for name, entry in self._index.tensors.items()
        ]
        return "\n".join(lines).encode()

    def verify(self) -> None:
        """Read everything and compare the checksums.

        Raises: NotFoundError, DataLossError: the first thing that is missing or damaged.
        """
        for checked in self.checks():
            if checked.error is not None:
                raise checked.error

    def checks(self) -> Iterator[Checked]:
        """Read everything, part by part, and compare the checksums."""
        if not isinstance(self._index, Index):
            yield from self._bundle_checks(self._index)
            return
        for number, shard in enumerate(self._index.shards):
            left = [
                (name, entry.dtype, part)
                for name, entry in self._index.tensors.items()
                for part in entry.parts
                if part.shard == number
            ]
            left.sort(key=lambda need: -need[2].begin)
            names = list(dict.fromkeys([name for name, _, _ in reversed(left)]))
            try:
                with (
                    reported("reading", self._prefix),
                    opened(self._prefix, shard, names) as reader,
                ):
                    while left:
                        name, dtype, part = left.pop()
                        size, error = part.end - part.begin, None
                        try:
                            reader.read(name, dtype, part, np.empty)
                        except errors.DataLossError as cause:
                            error = cause
                        yield Checked(name, size, error)
            except errors.OpError as error:  # nothing more of this file can be read
                for name, _, part in reversed(left):
                    yield Checked(name, part.end - part.begin, error)
                if not names:
                    yield Checked("", 0, error)

    def _bundle_checks(self, index: BundleIndex) -> Iterator[Checked]:
        from weft_io.bundle.reader import read_boxes

        for name, entry in index.tensors.items():
            if not isinstance(entry.dtype, DType) or not entry.dtype.is_numpy_compatible:
                continue  # it can be listed only
            for part in entry.parts:
                error = None
                try:
                    read_boxes(self._prefix, index, [(name, part.region)], np.empty)
                except errors.OpError as cause:
                    error = cause
                yield Checked(name, part.end - part.begin, error)


class Checked(NamedTuple):
    """A stored part of a tensor that was read to compare its checksum.

    Attributes:
      tensor: its name; "" for a file without tensors.
      size: in bytes.
      error: what is missing or damaged; None where all is well.
    """

    tensor: str
    size: int
    error: errors.OpError | None

"""Reading of checkpoints: all requested tensors are verified before any is returned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import Any, Final, NamedTuple

import numpy as np

from weft_io.checkpoint.encoding import Array, Empty
from weft_io.checkpoint.format import CheckpointIndex, PartCheck, StoredTensor
from weft_io.checkpoint.formats import format_of, parse_index
from weft_io.checkpoint.index import index_path
from weft_io.checkpoint.regions import Region, Shape, parse_spec
from weft_io.checkpoint.split_slots import Source, SplitSlot, find_split_slot, join_parts
from weft_io.files import paths
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.os_errors import convert_os_errors
from weft_tensor.shape import Dims, compatible_dims, format_dims

_ATTEMPTS: Final = 5


class CheckpointNotFoundError(errors.NotFoundError, ValueError):
    """Error for a checkpoint that does not exist.

    Check the path: it must be a result of `Saver.save`, without a file's suffix. The class is also
    a ValueError, as in TensorFlow's `Saver.restore`.
    """


class TensorRequest(NamedTuple):
    """A request to read a tensor.

    Attributes:
      name: in the checkpoint.
      spec: the slice to read, "10 20 0,5:-"; "" for the whole.
      dtype: required element type, or None for any.
      dims: required static shape of the result; None for any.
      optional: if it is missing, an empty string is returned.
    """

    name: str
    spec: str = ""
    dtype: DType | None = None
    dims: Dims = None
    optional: bool = False


def read_index(prefix: str) -> CheckpointIndex:
    """Return the index of a checkpoint of any format.

    Raises:
      NotFoundError: the checkpoint does not exist.
      DataLossError: it is damaged.
    """
    path = index_path(prefix)
    try:
        with convert_os_errors("reading", path):
            return parse_index(paths.read_bytes(path), path)
    except errors.NotFoundError as cause:
        raise CheckpointNotFoundError(
            f"there is no valid checkpoint at {prefix}: {path} does not exist"
        ) from cause


def read_tensors(
    prefix: str, wanteds: Sequence[TensorRequest], empty: Empty = np.empty
) -> list[Array]:
    """Read and verify tensors of a checkpoint.

    Names, types and shapes are compared before anything is read, and all bytes are verified before
    anything is returned.

    Args:
      empty: `empty(shape, numpy dtype)`, the allocator.
    Raises:
      NotFoundError: the checkpoint does not exist, or lacks a tensor or a file; all missing tensors
        are named.
      InvalidArgumentError: a tensor has another type or shape than required.
      DataLossError: a file is damaged; the message names the tensor and the position.
    """
    prefix = paths.as_path(prefix)
    index = read_index(prefix)
    for _ in range(_ATTEMPTS):
        try:
            return _read(prefix, index, wanteds, empty)
        except errors.NotFoundError:
            # Someone may have replaced the checkpoint and removed the shards of this index.
            current_index = read_index(prefix)
            if current_index.save == index.save:
                raise
            index = current_index
    raise errors.AbortedError(
        f"{prefix} was replaced during each of {_ATTEMPTS} attempts to read it"
    )


def _read(
    prefix: str, index: CheckpointIndex, wanteds: Sequence[TensorRequest], empty: Empty
) -> list[Array]:
    requested = [expected.name in index.tensors or not expected.optional for expected in wanteds]
    requested_names = list(compress(wanteds, requested))
    check_names(prefix, index, [expected.name for expected in requested_names])
    stored = [_present(index, expected.name) for expected in requested_names]
    boxes = [
        _check(prefix, entry, expected)
        for entry, expected in zip(stored, requested_names, strict=True)
    ]
    sources = [
        entry.overlaps(box) if isinstance(entry, SplitSlot) else [Source(expected.name, box, box)]
        for entry, expected, box in zip(stored, requested_names, boxes, strict=True)
    ]
    requests = [(source.name, source.inner) for group in sources for source in group]
    arrays = iter(format_of(index).read(prefix, index, requests, empty))
    result = (
        next(arrays)
        if len(group) == 1
        else join_parts(group, arrays, empty(box.shape, entry.dtype.numpy))
        for entry, box, group in zip(stored, boxes, sources, strict=True)
    )
    return [next(result) if is_there else np.array(b"", object) for is_there in requested]


def _store(index: CheckpointIndex, name: str) -> StoredTensor | SplitSlot | None:
    """Return the tensor of a name; an earlier version may have stored it in parts."""
    return index.tensors.get(name) or find_split_slot(index.tensors, name)


def _present(index: CheckpointIndex, name: str) -> StoredTensor | SplitSlot:
    """Return the tensor of a name that passed `check_names`."""
    entry = _store(index, name)
    assert entry is not None
    return entry


def check_names(prefix: str, index: CheckpointIndex, names: Iterable[str]) -> None:
    """Raise NotFoundError if names are missing; the message lists them with similar names."""
    missing = [name for name in dict.fromkeys(names) if _store(index, name) is None]
    if not missing:
        return
    import difflib

    problems = []
    for name in missing[:10]:
        similar = difflib.get_close_matches(name, index.tensors, n=3)
        problems.append(f"{name} (similar names: {', '.join(similar)})" if similar else name)
    if len(missing) > 10:
        problems.append(f"and {len(missing) - 10} more")
    raise errors.NotFoundError(
        f"{prefix} lacks {len(missing)} of the requested tensors: {', '.join(problems)}; "
        f"it has {len(index.tensors)} tensors",
        details={"missing": missing},
    )


def _check(prefix: str, entry: StoredTensor | SplitSlot, expected: TensorRequest) -> Region:
    """Return the requested box of a tensor, after comparing its type and shape."""
    parsed = parse_spec(expected.spec)
    if expected.dtype is not None and expected.dtype.base_dtype is not entry.dtype:
        raise errors.InvalidArgumentError(
            f"tensor {expected.name!r} of {prefix} must be {expected.dtype.base_dtype.name}, "
            f"got {entry.dtype.name}"
        )
    full, box = (entry.shape, Region.whole_tensor(entry.shape)) if parsed is None else parsed
    if full != entry.shape:
        raise errors.InvalidArgumentError(
            f"tensor {expected.name!r} of {prefix} must have shape {format_dims(full)}, "
            f"got {format_dims(entry.shape)}"
        )
    if not compatible_dims(expected.dims, box.shape):
        raise errors.InvalidArgumentError(
            f"tensor {expected.name!r} of {prefix} must have shape {format_dims(expected.dims)}, "
            f"got {format_dims(box.shape)}"
        )
    return box


def _name(tensor_str: Any) -> str:
    if not isinstance(tensor_str, str | bytes):
        raise errors.InvalidTypeError(f"the name of a tensor must be text, got {tensor_str!r}")
    return tensor_str.decode(errors="replace") if isinstance(tensor_str, bytes) else tensor_str


class CheckpointReader:
    """The contents of a checkpoint, read on demand.

    Args:
      prefix: path without suffix, as `Saver.save` returns it.
    Raises:
      NotFoundError: the checkpoint does not exist.
      DataLossError: its index is damaged.

    Examples:
      >>> weights = wf.Variable([1.0, 2.0], name="weights")
      >>> with wf.Session() as session:
      ...     session.run(weights.initializer)
      ...     prefix = wf.train.Saver().save(session, "./inspected")
      >>> reader = wf.train.NewCheckpointReader(prefix)
      >>> reader.get_variable_to_shape_map()
      {'weights': [2]}
      >>> reader.get_tensor("weights")
      array([1., 2.], dtype=float32)
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = paths.as_path(prefix)
        self._index = read_index(self._prefix)

    @property
    def prefix(self) -> str:
        """Path without suffix."""
        return self._prefix

    @property
    def index(self) -> CheckpointIndex:
        """Its table of contents."""
        return self._index

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Return the shape of each tensor by name."""
        return {name: list(entry.shape) for name, entry in self._index.tensors.items()}

    def get_variable_to_dtype_map(self) -> dict[str, DType]:
        """Return the element type of each tensor by name."""
        return {name: entry.dtype for name, entry in self._index.tensors.items()}

    def has_tensor(self, tensor_str: str | bytes) -> bool:
        """Return True if the checkpoint has a tensor of that name."""
        return _store(self._index, _name(tensor_str)) is not None

    def get_tensor(self, tensor_str: str | bytes) -> Any:
        """Return a tensor: an array, or a scalar for rank 0.

        Raises:
          InvalidTypeError: `tensor_str` is not a name.
          NotFoundError, DataLossError: the tensor does not exist, or is damaged.
        """
        return _read(self._prefix, self._index, [TensorRequest(_name(tensor_str))], np.empty)[0][()]

    def shape(self, tensor_str: str | bytes) -> Shape:
        """Return the shape of a tensor.

        Raises: InvalidTypeError: `tensor_str` is not a name; NotFoundError: no such tensor exists.
        """
        return self._lookup(tensor_str).shape

    def dtype(self, tensor_str: str | bytes) -> DType:
        """Return the element type of a tensor. Raises: as `shape`."""
        dtype: DType = self._lookup(tensor_str).dtype
        return dtype

    def _lookup(self, tensor_str: str | bytes) -> StoredTensor | SplitSlot:
        name = _name(tensor_str)
        check_names(self._prefix, self._index, [name])
        return _present(self._index, name)

    def debug_string(self) -> bytes:
        """Return one line per tensor: name, type and shape."""
        lines = [
            f"{name} ({entry.dtype.name}) {list(entry.shape)}"
            for name, entry in self._index.tensors.items()
        ]
        return "\n".join(lines).encode()

    def verify(self) -> None:
        """Read everything and compare the checksums.

        Raises: NotFoundError, DataLossError: a file is missing, or a tensor is damaged; the first
          one is reported.
        """
        for checked in self.checks():
            if checked.error is not None:
                raise checked.error

    def checks(self) -> Iterator[PartCheck]:
        """Read everything and compare the checksums; yield the result of each part."""
        return format_of(self._index).checks(self._prefix, self._index)

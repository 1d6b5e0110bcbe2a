"""Parsing of batches of serialized sequence examples to arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from weft_graph import proto
from weft_io.records import columns
from weft_io.records.columns import NUMPY, Array, Empty, Location
from weft_io.records.examples import KINDS, ExampleParser, mismatch
from weft_io.records.feature_scanner import (
    BYTES,
    INTEGERS,
    KIND_NAMES,
    Rows,
    read_key,
    read_list,
    read_nested,
    rewrite_sequence_example,
    split_strings,
)
from weft_io.records.protobuf_wire import MalformedVarintsError, read_varint
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, format_dims

_MAX_CACHED_HEADERS: Final = 4096
_LONGEST_HEADER: Final = 64

Steps = list[Any]
"""The contents of the steps of one feature list; None if the example lacks it."""


class Features(NamedTuple):
    """The requested features of the context or of the feature lists.

    Attributes:
      sparse_keys, sparse_types: keys and types of the features of variable length.
      dense_keys, dense_types, dense_shapes: keys, types and shapes of the features of fixed shape.
    """

    sparse_keys: Sequence[bytes]
    sparse_types: Sequence[DType]
    dense_keys: Sequence[bytes]
    dense_types: Sequence[DType]
    dense_shapes: Sequence[Dims]


class ParsedSequences(NamedTuple):
    """The features of a batch of sequence examples.

    Attributes:
      context_sparse: (indices, values, shape) per sparse feature of the context.
      context_dense: an array per dense one.
      list_sparse: (indices, values, shape) per sparse feature list; indices (total, 3).
      list_dense: shape (n, most steps, *shape) per dense feature list.
      lengths: int64, shape (n,), steps per dense feature list.
    """

    context_sparse: list[tuple[Array, Array, Array]]
    context_dense: list[Array]
    list_sparse: list[tuple[Array, Array, Array]]
    list_dense: list[Array]
    lengths: list[Array]


class SequenceParser:
    """Parses batches of sequence examples.

    Args:
      context, lists: the requested features.
      assumed_empty: dense feature lists that count as empty if they are missing.
      empty: allocator of the results.
    Raises: InvalidArgumentError: a key occurs twice in the context or in the lists.
    """

    def __init__(
        self,
        context: Features,
        lists: Features,
        assumed_empty: frozenset[bytes],
        empty: Empty = np.empty,
    ) -> None:
        self._context = ExampleParser(*context, empty=empty)
        keys = (*lists.sparse_keys, *lists.dense_keys)
        if len(set(keys)) < len(keys):
            raise errors.InvalidArgumentError(
                f"each feature list can be parsed only once, got {keys}"
            )
        self._keys = keys
        self._kinds = tuple([KINDS[d] for d in (*lists.sparse_types, *lists.dense_types)])
        self._columns = {
            key: (i, kind) for i, (key, kind) in enumerate(zip(keys, self._kinds, strict=True))
        }
        self._sparse = len(lists.sparse_keys)
        self._shapes = tuple(lists.dense_shapes)
        self._assumed_empty = assumed_empty
        self._empty = empty
        self._headers: dict[tuple[int, bytes], tuple[int, int]] = {}

    def parse(
        self, serialized: Sequence[bytes], names: Sequence[bytes], defaults: Sequence[Array]
    ) -> ParsedSequences:
        """Return the features of a batch.

        Args:
          serialized: the sequence examples.
          names: names of the examples for messages, or empty.
          defaults: default of each dense feature of the context; empty if it is required.
        Raises: InvalidArgumentError: an example is malformed, or a feature is missing or has
          another type or another number of values.
        """
        context: list[Rows] = [[None] * len(serialized) for _ in self._context.keys]
        lists: list[list[Steps | None]] = [[None] * len(serialized) for _ in self._keys]
        for row, data in enumerate(serialized):
            if not self._walk(data, context, lists, row):
                self._walk_rewritten(data, context, lists, row, names)
        while True:
            try:
                return self._assemble(context, lists, names, defaults)
            except MalformedVarintsError as error:
                for row in error.rows:
                    self._walk_rewritten(serialized[row], context, lists, row, names)

    # ------------------------------------------------------------------------- the walk

    def _walk(
        self, data: bytes, context: list[Rows], lists: list[list[Steps | None]], row: int
    ) -> bool:
        """Record the contents of one example; return False if its form is unusual."""
        index, end = 0, len(data)
        if index < end and data[index] == 0x0A:
            size, index = read_varint(data, index + 1, end)
            if size < 0 or index + size > end:
                return False
            if not self._context.scanner.scan(data, index, index + size, context, row):
                return False
            index += size
        if index == end:
            return True
        index = read_nested(data, index, end, 0x12)
        return index >= 0 and self._walk_lists(data, index, end, lists, row)

    def _walk_lists(
        self, data: bytes, index: int, end: int, lists: list[list[Steps | None]], row: int
    ) -> bool:
        while index < end:
            key, index, stop = read_key(data, index, end)
            if key is None:
                return False
            column, kind = self._columns.get(key, (-1, 0))
            if column >= 0:
                index = read_nested(data, index, stop, 0x12)
                if index < 0 or lists[column][row] is not None:
                    return False
                steps: Steps = []
                if not self._walk_steps(data, index, stop, kind, steps):
                    return False
                lists[column][row] = steps
            index = stop
        return True

    def _walk_steps(self, data: bytes, index: int, end: int, kind: int, steps: Steps) -> bool:
        headers = self._headers
        guess = 0
        while index < end:
            header = headers.get((kind, data[index : index + guess])) if guess else None
            if header is None:
                header = self._step(data, index, end, kind)
                if header is None:
                    return False
                guess = header[0]
            start = index + header[0]
            index = start + header[1]
            if index > end:
                return False
            steps.append(data[start:index])
        if kind == BYTES:
            return _split_all(steps)
        return True

    def _step(self, data: bytes, index: int, end: int, kind: int) -> tuple[int, int] | None:
        """Return the sizes of a step's header and content; None if its form is unusual."""
        start = index
        if data[index] != 0x0A:
            return None
        size, index = read_varint(data, index + 1, end)
        stop = index + size
        if size < 0 or stop > end:
            return None
        position = index
        if size and kind == BYTES:  # the content is the list, as a step may have several strings
            position = read_nested(data, index, stop, BYTES << 3 | 2)
        elif size:
            position, _ = read_list(data, index, stop, kind)
        if position < 0:
            return None
        header = (position - start, stop - position)
        if header[0] <= _LONGEST_HEADER:
            if len(self._headers) >= _MAX_CACHED_HEADERS:
                self._headers.clear()
            self._headers[kind, data[start:position]] = header
        return header

    def _walk_rewritten(
        self,
        data: bytes,
        context: list[Rows],
        lists: list[list[Steps | None]],
        row: int,
        names: Sequence[bytes],
    ) -> None:
        for rows in (*context, *lists):
            rows[row] = None
        name = names[row].decode("utf-8", "backslashreplace") if names else "<unknown>"
        usual = rewrite_sequence_example(data, f"Name: {name}, Index: {row}")
        if self._walk(usual, context, lists, row):
            return
        parsed = proto.SequenceExample.FromString(usual)
        for key, (_, kind) in self._columns.items():
            steps = parsed.feature_lists.feature_list.get(key.decode())
            for i, feature in enumerate(() if steps is None else steps.feature):
                actual = _FIELDS.get(feature.WhichOneof("kind") or "", kind)
                if actual != kind:
                    raise errors.InvalidArgumentError(
                        f"{Location(names, key).at(row)} Feature list: step {i}: Data types don't "
                        f"match. Data type: {KIND_NAMES[actual]} but expected type: "
                        f"{KIND_NAMES[kind]}"
                    )
        raise mismatch(
            parsed.context.feature,
            self._context.keys,
            self._context.kinds,
            lambda key: Location(names, key).at(row),
        )

    # --------------------------------------------------------------------- the results

    def _assemble(
        self,
        context: list[Rows],
        lists: list[list[Steps | None]],
        names: Sequence[bytes],
        defaults: Sequence[Array],
    ) -> ParsedSequences:
        sparse, dense = self._context.assemble(context, names, defaults)
        split = self._sparse
        list_sparse = [
            self._list_sparse(examples, kind)
            for examples, kind in zip(lists[:split], self._kinds[:split], strict=True)
        ]
        pairs = [
            self._list_dense(examples, i, Location(names, self._keys[split + i]))
            for i, examples in enumerate(lists[split:])
        ]
        return ParsedSequences(
            sparse, dense, list_sparse, [p[0] for p in pairs], [p[1] for p in pairs]
        )

    def _flatten(self, examples: list[Steps | None], kind: int) -> tuple[Array, Array, Array]:
        """Return all values, the number of values per step, and the number of steps per example."""
        steps = np.fromiter([len(e or ()) for e in examples], np.int64, len(examples))
        rows: Rows = [step for e in examples if e is not None for step in e]
        try:
            values, counts = columns.flatten(rows, kind, self._empty)
        except MalformedVarintsError as error:
            example = np.searchsorted(np.cumsum(steps), error.rows, side="right")
            raise MalformedVarintsError(sorted(set(example.tolist()))) from None
        return values, counts, steps

    def _list_sparse(self, examples: list[Steps | None], kind: int) -> tuple[Array, Array, Array]:
        values, counts, steps = self._flatten(examples, kind)
        of_step = columns.sparse_indices(steps, np.empty)
        of_value = columns.sparse_indices(counts, np.empty)
        indices = self._empty((len(values), 3), NUMPY[INTEGERS])
        indices[:, :2] = of_step[of_value[:, 0]]
        indices[:, 2] = of_value[:, 1]
        widths = [len(examples), steps.max(initial=0), counts.max(initial=0)]
        return indices, values, np.array(widths, np.int64)

    def _list_dense(
        self, examples: list[Steps | None], i: int, location: Location
    ) -> tuple[Array, Array]:
        kind, shape = self._kinds[self._sparse + i], self._shapes[i]
        if None in examples and location.key not in self._assumed_empty:
            raise errors.InvalidArgumentError(
                f"{location.at(examples.index(None))} Feature list: "
                f"{location.key.decode()} is required "
                "but could not be found. Did you mean to include it in "
                "feature_list_dense_missing_assumed_empty or feature_list_dense_defaults?"
            )
        assert shape is not None
        sizes: Any = shape
        values, counts, steps = self._flatten(examples, kind)
        expected = int(np.prod(sizes, dtype=np.int64))
        bad_rows = np.flatnonzero(counts != expected)
        if len(bad_rows):
            step = int(bad_rows[0])
            row = int(np.searchsorted(np.cumsum(steps), step, side="right"))
            raise errors.InvalidArgumentError(
                f"{location.at(row)} Feature list: step {step - int(steps[:row].sum())}: Number of "
                f"{KIND_NAMES[kind]} values != expected. Values size: {int(counts[step])} but "
                f"output shape: {format_dims(shape)}"
            )
        default = b"" if kind == BYTES else 0
        placed = columns.pad_steps(values, steps, sizes, default, self._empty, NUMPY[kind])
        return placed, steps


_FIELDS: Final = {"bytes_list": 1, "float_list": 2, "int64_list": 3}


def _split_all(steps: Steps) -> bool:
    """Split the contents of steps into strings; return False if a step has an unusual form."""
    for i, content in enumerate(steps):
        strings = split_strings(content, 0, len(content))
        if strings is None:
            return False
        steps[i] = strings[0] if len(strings) == 1 else strings
    return True

"""Parsing of batches of serialized examples to arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from weft_graph import proto
from weft_io.records import columns
from weft_io.records.columns import Array, Empty, Location
from weft_io.records.feature_scanner import (
    BYTES,
    FLOATS,
    INTEGERS,
    KIND_NAMES,
    FeatureScanner,
    Rows,
    read_nested,
    rewrite_example,
)
from weft_io.records.protobuf_wire import MalformedVarintsError, write_varint
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, format_dims

KINDS: dict[DType, int] = {
    dtypes.string: BYTES,
    dtypes.float32: FLOATS,
    dtypes.int64: INTEGERS,
}


class ExampleParser:
    """Parses batches of examples into sparse and dense features.

    Args:
      sparse_keys, sparse_types: the features of variable length.
      dense_keys, dense_types, dense_shapes: the features of fixed shape, or of variable length if
        the first axis is None.
      empty: allocator of the results.
    Attributes:
      keys, kinds: keys and kinds of all features, the sparse ones first.
      scanner: the scanner that finds the features.
    Raises: InvalidArgumentError: a key occurs twice.
    """

    def __init__(
        self,
        sparse_keys: Sequence[bytes],
        sparse_types: Sequence[DType],
        dense_keys: Sequence[bytes],
        dense_types: Sequence[DType],
        dense_shapes: Sequence[Dims],
        empty: Empty = np.empty,
    ) -> None:
        self.keys = (*sparse_keys, *dense_keys)
        for key in self.keys:
            if self.keys.count(key) > 1:
                raise errors.InvalidArgumentError(
                    "each feature can be parsed only once, got "
                    f"{key.decode('utf-8', 'replace')!r} twice"
                )
        self.kinds = tuple([KINDS[dtype] for dtype in (*sparse_types, *dense_types)])
        self._shapes = tuple(dense_shapes)
        self._sparse = len(sparse_keys)
        self._empty = empty
        self.scanner = FeatureScanner(self.keys, self.kinds)

    def parse(
        self, serialized: Sequence[bytes], names: Sequence[bytes], defaults: Sequence[Array]
    ) -> tuple[list[tuple[Array, Array, Array]], list[Array]]:
        """Return the features of a batch.

        Args:
          serialized: the examples.
          names: names of the examples for messages, or empty.
          defaults: default of each dense feature; empty if it is required.
        Returns: per sparse feature (indices, values, shape); per dense feature an array.
        Raises: InvalidArgumentError: an example is malformed, or a feature is missing or has
          another type or another number of values.
        """
        table = self.scan(serialized, names)
        while True:
            try:
                return self.assemble(table, names, defaults)
            except MalformedVarintsError as error:
                for row in error.rows:
                    self._scan_rewritten(serialized[row], table, row, names)

    def scan(self, serialized: Sequence[bytes], names: Sequence[bytes]) -> list[Rows]:
        """Return the contents of each feature in each example."""
        table: list[Rows] = [[None] * len(serialized) for _ in self.keys]
        scan = self.scanner.scan
        size, start = -1, 0
        prefix = b""
        for row, data in enumerate(serialized):
            if len(data) != size:  # examples of one size begin alike
                size = len(data)
                prefix = _prefix(size)
                start = len(prefix)
            if data[:start] != prefix or not scan(data, start, size, table, row):
                self._scan_rewritten(data, table, row, names)
        return table

    def _scan_rewritten(
        self, data: bytes, table: list[Rows], row: int, names: Sequence[bytes]
    ) -> None:
        for rows in table:
            rows[row] = None
        usual = rewrite_example(data, _select_named(names, row))
        start = read_nested(usual, 0, len(usual), 0x0A)
        if usual and not self.scanner.scan(usual, start, len(usual), table, row):
            features = proto.Example.FromString(usual).features.feature
            raise mismatch(
                features, self.keys, self.kinds, lambda key: Location(names, key).at(row)
            )

    def assemble(
        self, table: list[Rows], names: Sequence[bytes], defaults: Sequence[Array]
    ) -> tuple[list[tuple[Array, Array, Array]], list[Array]]:
        """Convert the results of `scan` to those of `parse`.

        Raises: MalformedVarintsError: contents are not integers.
        """
        split = self._sparse
        sparse = [
            columns.sparse(rows, kind, self._empty)
            for rows, kind in zip(table[:split], self.kinds[:split], strict=True)
        ]
        dense = [
            self._dense(rows, i, defaults[i], Location(names, self.keys[split + i]))
            for i, rows in enumerate(table[split:])
        ]
        return sparse, dense

    def _dense(self, rows: Rows, i: int, default: Array, location: Location) -> Array:
        kind, shape = self.kinds[self._sparse + i], self._shapes[i]
        assert shape is not None
        padding = shape[:1] == (None,)
        inner: Any = shape[1:] if padding else shape
        if default.size != (1 if padding else math.prod(inner)) and (padding or default.size):
            raise errors.InvalidArgumentError(
                f"the default of feature {location.key.decode()} must have shape "
                f"{'[]' if padding else format_dims(inner)}, got {format_dims(default.shape)}"
            )
        if padding:
            return columns.pad_values(rows, kind, inner, default.reshape(()), self._empty, location)
        fallback = default.reshape(inner) if default.size else None
        return columns.dense(rows, kind, inner, fallback, self._empty, location)


@lru_cache(1024)
def _prefix(size: int) -> bytes:
    """Return the first bytes of an example of a certain size in the usual form.

    For sizes that this form does not have, the result matches no example.
    """
    for inner in (size - 2, size - 3, size - 4, size - 5, size - 6):
        prefix = b"\x0a" + write_varint(max(inner, 0))
        if len(prefix) + inner == size:
            return prefix
    return b"\0" if size else b""


def _select_named(names: Sequence[bytes], row: int) -> str:
    name = names[row].decode("utf-8", "backslashreplace") if names else "<unknown>"
    return f"Name: {name}, Index: {row}"


def mismatch(
    features: Any, keys: Sequence[bytes], kinds: Sequence[int], location: Callable[[bytes], str]
) -> errors.OpError:
    """Return the error about the feature that is not of the requested kind."""
    numbers = {"bytes_list": BYTES, "float_list": FLOATS, "int64_list": INTEGERS}
    for key, expected in zip(keys, kinds, strict=True):
        name = key.decode()
        number = (
            numbers.get(features[name].WhichOneof("kind") or "") if name in features else expected
        )
        if number != expected:
            kind = KIND_NAMES.get(number or 0, "none")
            return errors.InvalidArgumentError(
                f"{location(key)} Data types don't match. Data type: {kind} "
                f"but expected type: {KIND_NAMES[expected]}"
            )
    return errors.InternalError("a well-formed example could not be parsed")

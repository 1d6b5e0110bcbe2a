"""Decoder of the tables that nodes refer to: strings, shapes, data, tensors, attributes.

Every offset, count, index and enum is checked before its use, by column if possible.
"""

from __future__ import annotations

import math
import struct
import zlib
from itertools import pairwise
from typing import Any, Final

import numpy as np

from weft_graph.ir.func_attr import NameAttrs
from weft_graph.messages.tensor_proto import check_bool_bytes, little_endian
from weft_graph.schema.columns import Columns
from weft_graph.serialize.layout import Kind, aligned
from weft_graph.serialize.source import Source
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, TensorShape

_MAX_RANK = 64  # NumPy's
_DOUBLE = struct.Struct("<d")
_LONG = struct.Struct("<q")

TYPES: Final[dict[int, DType]] = {
    d.as_datatype_enum: d for base in dtypes.ALL_DTYPES for d in (base, base.as_ref)
}


def check_rows(columns: Columns, first: str, *other_columns: str) -> int:
    """Return the common length of columns with one item per row.

    Raises: DataLossError: the lengths differ.
    """
    rows = columns[first].size
    for name in other_columns:
        if columns[name].size != rows:
            columns.refuse(name, f"{columns[name].size} rows where {first} has {rows}")
    return rows


def check_index(columns: Columns, name: str, limit: int, lowest: int = 0) -> None:
    """Check that items are in [lowest, limit).

    Raises: DataLossError: an item is not.
    """
    column = columns[name]
    if column.size and (int(column.max()) >= limit or int(column.min()) < lowest):
        bad = int(np.flatnonzero((column >= limit) | (column < lowest))[0])
        columns.refuse(name, f"{column[bad]} is not in [{lowest}, {limit})", bad)


def check_offsets(columns: Columns, name: str, rows: int, items: int) -> list[int]:
    """Return the offsets of `rows` lists with `items` items in total.

    Raises: DataLossError: they do not begin with 0, decrease, or do not end with `items`.
    """
    column = columns[name]
    if rows == 0 and column.size == 0:
        column = np.zeros(1, column.dtype)
    if column.size != rows + 1:
        columns.refuse(name, f"{column.size} offsets for {rows} rows")
    if column[0] != 0 or column[-1] != items:
        columns.refuse(name, f"the offsets go from {column[0]} to {column[-1]}, not 0 to {items}")
    falls = np.flatnonzero(column[1:] < column[:-1])
    if falls.size:
        columns.refuse(name, "the offset is below the one before", int(falls[0]) + 1)
    return column.tolist()  # type: ignore[no-any-return]


class Tables:
    """The decoded tables of one segment.

    Attributes:
      strings, shapes: values by id; shape -1 is unknown.
      set_sizes: number of attributes of each set.

    Args:
      columns: verified fields.
      source: positioned at the blobs.
      blobs: size of the blobs in bytes, as in the header.
    """

    def __init__(self, columns: Columns, source: Source, blobs: int) -> None:
        self._columns = columns
        self.strings = self._read_strings()
        self.shapes = self._read_shapes()
        self._data = self._read_data(source, blobs)
        self._check_tensors()
        self._check_values()
        self._tensors: dict[int, np.ndarray] = {}
        self._funcs: dict[int, NameAttrs] = {}
        self._lists: dict[int, tuple[Any, ...]] = {}
        self.values: list[Any] = []
        for index in range(columns["value_kind"].size):
            self.values.append(self._value(index))

    def function(self, row: int) -> bytes:
        """Return the serialized function of a row of `function_`."""
        return self._data[int(self._columns["function_data"][row])].tobytes()

    def attr_set(self, row: int) -> dict[str, Any]:
        """Return a new dict of the attributes of a set."""
        start, end = self._set_offsets[row], self._set_offsets[row + 1]
        result = {
            self.strings[key]: self.values[value]
            for key, value in zip(
                self._set_keys[start:end], self._set_values[start:end], strict=True
            )
        }
        if len(result) != end - start:
            self._columns.refuse("attr_key", "an attribute occurs twice in one set", start)
        return result

    # ----------------------------------------------------------------- texts and shapes

    def _read_strings(self) -> list[str]:
        columns = self._columns
        data = columns["string_bytes"].tobytes()
        rows = max(columns["string_offsets"].size - 1, 0)
        ends = check_offsets(columns, "string_offsets", rows, len(data))
        try:
            if data.isascii():
                text = data.decode("ascii")
                return [text[a:b] for a, b in pairwise(ends)]
            return [data[a:b].decode() for a, b in pairwise(ends)]
        except UnicodeDecodeError as cause:
            columns.refuse("string_bytes", f"a text is not UTF-8: {cause.reason}")

    def _read_shapes(self) -> list[Dims]:
        columns = self._columns
        check_index(columns, "shape_sizes", 2**62, -1)
        sizes = [None if size < 0 else size for size in columns["shape_sizes"].tolist()]
        rows = max(columns["shape_offsets"].size - 1, 0)
        ends = check_offsets(columns, "shape_offsets", rows, len(sizes))
        shapes: list[Dims] = [tuple(sizes[a:b]) for a, b in pairwise(ends)]
        return [*shapes, None]

    # ----------------------------------------------------------------------------- data

    def _read_data(self, source: Source, blobs: int) -> list[np.ndarray]:
        columns = self._columns
        check_rows(columns, "data_external", "data_offset", "data_length", "data_crc")
        check_index(columns, "data_external", 2)
        inline = np.array(columns["inline_bytes"])
        inline.flags.writeable = False
        data: list[np.ndarray] = []
        position = 0
        for row, (external, offset, length, crc) in enumerate(
            zip(
                columns["data_external"].tolist(),
                columns["data_offset"].tolist(),
                columns["data_length"].tolist(),
                columns["data_crc"].tolist(),
                strict=True,
            )
        ):
            if not external:
                if offset + length > inline.size:
                    columns.refuse("data_offset", f"bytes {offset} to {offset + length}", row)
                data.append(inline[offset : offset + length])
                continue
            if offset != position or position + aligned(length) > blobs:
                location = f"{length} bytes at {offset} of {blobs}"
                columns.refuse("data_offset", f"{location}, expected at {position}", row)
            data.append(_read_blob(source, length, crc))
            position += aligned(length)
        if position != blobs:
            columns.refuse("data_offset", f"the blobs take {position} bytes, not {blobs}")
        return data

    def _check_tensors(self) -> None:
        columns = self._columns
        count = len(self._data)
        check_rows(columns, "tensor_type", "tensor_shape", "tensor_data")
        check_index(columns, "tensor_shape", len(self.shapes) - 1)
        check_index(columns, "tensor_data", count)
        check_rows(columns, "function_name", "function_data")
        check_index(columns, "function_name", len(self.strings))
        check_index(columns, "function_data", count)
        # Each tensor of strings makes objects, so a file may not name its bytes twice.
        used = np.concatenate((columns["tensor_data"], columns["function_data"]))
        if count and np.bincount(used, minlength=count).max() > 1:
            columns.refuse("tensor_data", "two tensors share their data")

    def _tensor(self, row: int) -> np.ndarray:
        array = self._tensors.get(row)
        if array is None:
            array = self._tensors[row] = self._read_tensor(row)
        return array

    def _read_tensor(self, row: int) -> np.ndarray:
        columns = self._columns
        dtype = TYPES.get(int(columns["tensor_type"][row]))
        dims = self.shapes[int(columns["tensor_shape"][row])]
        data = self._data[int(columns["tensor_data"][row])]
        if dtype is None or dtype.is_ref or not dtype.is_numpy_compatible:
            columns.refuse("tensor_type", "not a type of tensors", row)
        if dims is None or None in dims or len(dims) > _MAX_RANK:
            columns.refuse("tensor_shape", f"not a shape of tensors: {dims}", row)
        shape = tuple([size or 0 for size in dims])
        # NumPy refuses sizes whose product overflows even where another size is zero.
        if math.prod(size or 1 for size in shape) > 2**60:
            columns.refuse("tensor_shape", f"{list(shape)} has too many elements", row)
        if dtype is dtypes.string:
            array = self._unpack_strings(data, shape, row)
        else:
            if data.size != math.prod(shape) * dtype.numpy.itemsize:
                columns.refuse(
                    "tensor_data", f"{data.size} bytes for {dtype.name} of {list(shape)}", row
                )
            if dtype.is_bool:
                check_bool_bytes(data, f"tensor {row} of the file")
            if data.ctypes.data % dtype.numpy.alignment:
                data = data.copy()
            array = little_endian(data.view(dtype.numpy).reshape(shape))
        array.flags.writeable = False
        return array

    def _unpack_strings(self, data: np.ndarray, shape: tuple[int, ...], row: int) -> np.ndarray:
        count = math.prod(shape)
        head = 8 * (count + 1)
        if data.size < head:
            self._columns.refuse("tensor_data", f"{data.size} bytes for {count} strings", row)
        ends = np.frombuffer(data, "<u8", count + 1)
        size = data.size - head
        if ends[0] != 0 or ends[-1] != size or (ends[1:] < ends[:-1]).any():
            self._columns.refuse("tensor_data", f"the offsets of {count} strings are wrong", row)
        text = data[head:].tobytes()
        end_offsets = ends.tolist()
        items = np.empty(count, object)
        items[:] = [text[a:b] for a, b in pairwise(end_offsets)]
        return items.reshape(shape)

    # ----------------------------------------------------------------------- attributes

    def _check_values(self) -> None:
        columns = self._columns
        count = check_rows(columns, "value_kind", "value_arg")
        check_index(columns, "value_kind", len(Kind))
        check_index(columns, "list_items", count)
        list_rows = max(columns["list_offsets"].size - 1, 0)
        self._list_offsets = check_offsets(
            columns, "list_offsets", list_rows, columns["list_items"].size
        )
        pairs = check_rows(columns, "attr_key", "attr_value")
        check_index(columns, "attr_key", len(self.strings))
        check_index(columns, "attr_value", count)
        set_rows = max(columns["attr_offsets"].size - 1, 0)
        self._set_offsets = check_offsets(columns, "attr_offsets", set_rows, pairs)
        self.set_sizes = np.diff(np.array(self._set_offsets, np.int64))
        func_rows = check_rows(columns, "func_name", "func_attrs")
        check_index(columns, "func_name", len(self.strings))
        check_index(columns, "func_attrs", set_rows)
        self._limits = {
            Kind.BOOL: 2,
            Kind.STRING: len(self.strings),
            Kind.BYTES: len(self._data),
            Kind.TENSOR: columns["tensor_type"].size,
            Kind.FUNC: func_rows,
            Kind.LIST: list_rows,
        }
        self._kinds = columns["value_kind"].tolist()
        self._args = columns["value_arg"].tolist()
        self._items = columns["list_items"].tolist()
        self._set_keys = columns["attr_key"].tolist()
        self._set_values = columns["attr_value"].tolist()
        self.check_expansion(columns["func_attrs"], "func_attrs")

    def check_expansion(self, sets: np.ndarray, name: str) -> None:
        """Reject attribute sets that are shared so often that memory could exceed the file's size.

        Raises: DataLossError: they are.
        """
        total = int(self.set_sizes[sets].sum()) if sets.size else 0
        limit = 64 * (sets.size + self.set_sizes.size) + self._columns["attr_key"].size
        if total > limit:
            self._columns.refuse(name, f"{total} attributes for {sets.size} owners")

    def _value(self, index: int) -> Any:
        kind, arg = self._kinds[index], self._args[index]
        limit = self._limits.get(kind)
        if limit is not None and not 0 <= arg < limit:
            self._columns.refuse("value_arg", f"{arg} is not in [0, {limit})", index)
        if kind == Kind.INT:
            return arg
        if kind == Kind.TYPE:
            dtype = TYPES.get(arg)
            if dtype is None:
                self._columns.refuse("value_arg", f"{arg} is not an element type", index)
            return dtype
        if kind == Kind.STRING:
            return self.strings[arg]
        if kind == Kind.BOOL:
            return bool(arg)
        if kind == Kind.TENSOR:
            return self._tensor(arg)
        if kind == Kind.FLOAT:
            return _DOUBLE.unpack(_LONG.pack(arg))[0]
        if kind in (Kind.SHAPE, Kind.LOOSE_SHAPE):
            if not -1 <= arg < len(self.shapes) - 1:
                self._columns.refuse("value_arg", f"{arg} is not a shape", index)
            return self.shapes[arg] if kind == Kind.SHAPE else TensorShape(self.shapes[arg])
        if kind == Kind.LIST:
            return self._list(arg, index)
        if kind == Kind.FUNC:
            return self._func(arg, index)
        return self._data[arg].tobytes()

    def _list(self, row: int, index: int) -> tuple[Any, ...]:
        cached = self._lists.get(row)
        if cached is not None:
            return cached
        items = self._items[self._list_offsets[row] : self._list_offsets[row + 1]]
        for item in items:
            if item >= index or self._kinds[item] == Kind.LIST:
                self._columns.refuse("value_arg", f"a list holds value {item}", index)
        result = self._lists[row] = tuple([self.values[item] for item in items])
        return result

    def _func(self, row: int, index: int) -> NameAttrs:
        cached = self._funcs.get(row)
        if cached is not None:
            return cached
        set_row = int(self._columns["func_attrs"][row])
        for value in self._set_values[self._set_offsets[set_row] : self._set_offsets[set_row + 1]]:
            if value >= index:
                self._columns.refuse("value_arg", f"a function holds value {value}", index)
        name = self.strings[int(self._columns["func_name"][row])]
        result = self._funcs[row] = NameAttrs(name, self.attr_set(set_row))
        return result


def _read_blob(source: Source, length: int, crc: int) -> np.ndarray:
    position = source.position
    blob = source.take(length, "a constant")
    if zlib.crc32(blob.data) != crc:
        raise errors.DataLossError(
            f"byte {position}: the checksum of a constant of {length} bytes is wrong"
        )
    check_padding(source, aligned(length) - length)
    blob.flags.writeable = False
    return blob


def check_padding(source: Source, count: int) -> None:
    """Skip padding.

    Raises: DataLossError: the padding is not zero.
    """
    position = source.position
    if source.take(count, "padding").any():
        raise errors.DataLossError(f"byte {position}: {count} bytes of padding are not zero")

"""Access to the table of `graph.fbs`, which has scalars and vectors of numbers.

The table is flat, so a writer is one loop over flatbuffers' Builder, and a reader one loop that
checks every offset before it uses it. `FIELDS` is the schema in order; a test compares it with
`graph.fbs`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import numpy as np

from weft_tensor import errors

IDENTIFIER: Final = b"WFTG"

SCALARS: Final = {"version": "<u4", "min_reader": "<u4", "first_node": "<u8"}

VECTORS: Final = {
    "string_bytes": "u1",
    "string_offsets": "<u4",
    "shape_offsets": "<u4",
    "shape_sizes": "<i8",
    "data_external": "u1",
    "data_offset": "<u8",
    "data_length": "<u8",
    "data_crc": "<u4",
    "inline_bytes": "u1",
    "tensor_type": "u1",
    "tensor_shape": "<i4",
    "tensor_data": "<u4",
    "value_kind": "u1",
    "value_arg": "<i8",
    "list_offsets": "<u4",
    "list_items": "<u4",
    "func_name": "<u4",
    "func_attrs": "<u4",
    "attr_offsets": "<u4",
    "attr_key": "<u4",
    "attr_value": "<u4",
    "source_file": "<u4",
    "source_function": "<u4",
    "source_line": "<u4",
    "node_op": "<u4",
    "node_name": "<u4",
    "node_device": "<u4",
    "node_attrs": "<u4",
    "node_forward": "<i4",
    "node_source": "<i4",
    "input_offsets": "<u4",
    "input_node": "<u4",
    "input_port": "<u4",
    "control_offsets": "<u4",
    "control_node": "<u4",
    "output_offsets": "<u4",
    "output_type": "u1",
    "output_shape": "<i4",
    "function_name": "<u4",
    "function_data": "<u4",
    "loop_name": "<u4",
    "loop_parent": "<i4",
    "loop_pivot": "<i4",
    "loop_parallel_iterations": "<u4",
    "loop_flags": "<u4",
    "loop_member_offsets": "<u4",
    "loop_member": "<u4",
    "loop_variable_offsets": "<u4",
    "loop_variable": "<u4",
    "loop_invariant_offsets": "<u4",
    "loop_invariant": "<u4",
    "loop_kind": "u1",
    "loop_forward": "<i4",
    "loop_partner": "<i4",
    "loop_pred_node": "<i4",
    "loop_pred_port": "<u4",
    "loop_maximum_node": "<i4",
    "loop_maximum_port": "<u4",
}

FIELDS: Final = {**SCALARS, **VECTORS}
"""Field names in the order of the schema, and the NumPy type of the scalar or of the items."""

_MAX_BYTES = 2**31 - 2**16  # a flatbuffer's offsets are signed 32-bit numbers


def build(values: Mapping[str, Any]) -> bytearray:
    """Return a flatbuffer with some fields; empty and missing vectors are not stored.

    Raises: InvalidArgumentError: it would have 2 GiB or more.
    """
    import flatbuffers

    arrays = {
        name: np.asarray(values[name], dtype)
        for name, dtype in VECTORS.items()
        if len(values.get(name, ()))
    }
    size = sum(array.nbytes for array in arrays.values())
    if size > _MAX_BYTES:
        raise errors.InvalidArgumentError(
            f"the columns of the graph need {size} bytes, but the limit is {_MAX_BYTES}; write "
            "the graph in several segments"
        )
    builder = flatbuffers.Builder(size + 16 * len(FIELDS) + 256)
    # Backwards, so that the columns lie in the order of the schema.
    vectors = {name: builder.CreateNumpyVector(arrays[name]) for name in reversed(arrays)}
    builder.StartObject(len(FIELDS))
    for slot, name in enumerate(FIELDS):
        if name in vectors:
            builder.PrependUOffsetTRelativeSlot(slot, vectors[name], 0)
        elif name == "first_node":
            builder.PrependUint64Slot(slot, values[name], 0)
        elif name in SCALARS:
            builder.PrependUint32Slot(slot, values[name], 0)
    builder.Finish(builder.EndObject(), file_identifier=IDENTIFIER)
    return builder.Output()  # type: ignore[no-any-return]


class Columns:
    """The verified fields of a flatbuffer.

    Vectors are views of the buffer; missing ones are empty.

    Args:
      buffer: bytes as an array of uint8.
      position: offset of the buffer in its file, for messages.
    Raises: DataLossError: an offset or a length points outside the buffer.
    """

    def __init__(self, buffer: np.ndarray, position: int) -> None:
        self._buffer: memoryview = buffer.data
        self._base = position
        self._starts: dict[str, int] = {}
        self.arrays: dict[str, np.ndarray] = {}
        self.scalars: dict[str, int] = {}
        root, slots, size = self._table()
        for slot, (name, dtype) in enumerate(FIELDS.items()):
            offset = slots[slot] if slot < len(slots) else 0
            if name in SCALARS:
                self.scalars[name] = self._scalar(name, dtype, root, offset, size)
            else:
                self.arrays[name] = self._vector(name, dtype, root, offset, size)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]

    def refuse(self, name: str, message: str, index: int = 0) -> NoReturn:
        """Raise DataLossError about item `index` of a column.

        Raises: DataLossError: always.
        """
        position = self._starts.get(name, 0) + index * self.arrays[name].itemsize
        raise errors.DataLossError(f"{name}[{index}] at byte {self._base + position}: {message}")

    def _table(self) -> tuple[int, tuple[int, ...], int]:
        buffer = self._buffer
        if len(buffer) < 8 or bytes(buffer[4:8]) != IDENTIFIER:
            self._corrupt(4, f"the identifier {IDENTIFIER.decode()} is required")
        root = self._u32(0)
        self._check(root, 4, "the root table")
        vtable = root - struct.unpack_from("<i", buffer, root)[0]
        self._check(vtable, 4, "the vtable")
        length, size = struct.unpack_from("<HH", buffer, vtable)
        if length < 4 or length % 2 or size < 4:
            self._corrupt(vtable, f"a vtable of {length} bytes for a table of {size}")
        self._check(vtable, length, "the vtable")
        self._check(root, size, "the root table")
        return root, struct.unpack_from(f"<{length // 2 - 2}H", buffer, vtable + 4), size

    def _scalar(self, name: str, dtype: str, root: int, offset: int, size: int) -> int:
        if not offset:
            return 0
        kind = np.dtype(dtype)
        if not 4 <= offset <= size - kind.itemsize:
            self._corrupt(root, f"{name} at offset {offset} of a table of {size} bytes")
        return int(np.frombuffer(self._buffer, kind, 1, root + offset)[0])

    def _vector(self, name: str, dtype: str, root: int, offset: int, size: int) -> np.ndarray:
        kind = np.dtype(dtype)
        if not offset:
            return np.empty(0, kind)
        if not 4 <= offset <= size - 4:
            self._corrupt(root, f"{name} at offset {offset} of a table of {size} bytes")
        start = root + offset + self._u32(root + offset)
        self._check(start, 4, name)
        length = self._u32(start)
        self._check(start + 4, length * kind.itemsize, name)
        self._starts[name] = start + 4
        array = np.frombuffer(self._buffer, kind, length, start + 4)
        return array if array.dtype.isnative else array.astype(kind.newbyteorder("="))

    def _u32(self, position: int) -> int:
        return int.from_bytes(self._buffer[position : position + 4], "little")

    def _check(self, start: int, length: int, label: str) -> None:
        if start < 0 or start + length > len(self._buffer):
            self._corrupt(
                max(start, 0), f"{label} of {length} bytes does not fit into {len(self._buffer)}"
            )

    def _corrupt(self, position: int, message: str) -> NoReturn:
        raise errors.DataLossError(f"byte {self._base + position}: {message}")

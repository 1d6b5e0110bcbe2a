"""Little-endian files by which tests and programs exchange tensors."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from weft_tensor import dtypes

STRING = dtypes.string.as_datatype_enum


def write_tensor(file: Any, array: Any) -> None:
    array = np.asarray(array)
    is_text = array.dtype.hasobject
    dtype = STRING if is_text else dtypes.from_numpy(array.dtype).as_datatype_enum
    file.write(struct.pack(f"<II{array.ndim}q", dtype, array.ndim, *array.shape))
    if not is_text:
        file.write(np.ascontiguousarray(array).tobytes())
        return
    file.write(struct.pack("<I", array.size))
    for item in array.ravel():
        write_text(file, item)


def write_text(file: Any, text: str | bytes) -> None:
    data = text.encode() if isinstance(text, str) else text
    file.write(struct.pack("<I", len(data)) + data)


def read_tensors(path: Path) -> Iterator[np.ndarray]:
    file = io.BytesIO(path.read_bytes())
    while header := file.read(8):
        dtype, rank = struct.unpack("<II", header)
        shape = struct.unpack(f"<{rank}q", file.read(8 * rank))
        if dtype == STRING:
            (count,) = struct.unpack("<I", file.read(4))
            items = np.empty(count, object)
            for i in range(count):
                items[i] = file.read(*struct.unpack("<I", file.read(4)))
            yield items.reshape(shape)
        else:
            numpy = dtypes.as_dtype(dtype).numpy
            data = file.read(int(np.prod(shape, dtype=int)) * numpy.itemsize)
            yield np.frombuffer(data, numpy).reshape(shape)

"""Construction of small lite files from tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_lite.schema import codec, tables as t
from weft_lite.schema.enums import DataType, Layout, OpKind, Storage

F32, I32, I64, I8, U8, BOOL = (
    DataType.FLOAT32, DataType.INT32, DataType.INT64, DataType.INT8, DataType.UINT8, DataType.BOOL,
)  # fmt: skip


class Tensor:
    """A tensor of a file; a constant if it has a value.

    Args:
      dtype, shape: of the tensor.
      value: its elements, or one for all.
      fields: of `tables.Tensor`; `bound` makes sizes open, `scales` makes a quantization.
    """

    def __init__(self, dtype: DataType, *shape: int, value: Any = None, **fields: Any) -> None:
        self.array = None
        dims = fields.get("bound", shape)
        size = int(np.prod(dims, dtype=np.int64))
        size *= {F32: 4, I32: 4, I64: 8}.get(dtype, 1)
        if value is not None:
            self.array = np.broadcast_to(value, shape).astype(dtype.name.lower())
        storage = Storage.ARENA if value is None else Storage.CONSTANT
        scales, zeros = fields.pop("scales", None), fields.pop("zeros", [])
        if scales is not None:
            fields["quantization"] = t.Quantization(scales, zeros, fields.pop("axis", 0))
        self.table = t.Tensor("t", dtype, storage, shape=[*shape], size=size)
        for name, field in fields.items():
            setattr(self.table, name, field)


def v(dtype: DataType, *shape: int, **fields: Any) -> Tensor:
    """Return a value."""
    return Tensor(dtype, *shape, **fields)


def c(dtype: DataType, value: Any, **fields: Any) -> Tensor:
    """Return a constant."""
    array = np.asarray(value)
    return Tensor(dtype, *array.shape, value=array, **fields)


def laid_out(every: Sequence[Tensor]) -> tuple[list[t.Tensor], bytes, int]:
    """Lay out tensors; return them with the weights and the arena's size."""
    tensors, weights, arena = [], b"", 0
    for each in every:
        table = dataclasses.replace(each.table)
        if each.array is not None:
            table.offset = len(weights)
            weights += each.array.tobytes().ljust(-(-each.array.nbytes // 64) * 64, b"\0")
        else:
            table.offset, arena = arena, arena + -(-table.size // 64) * 64
        tensors.append(table)
    return tensors, weights, arena


def file_of(
    kind: OpKind, operands: Sequence[Tensor | None], results: Sequence[Tensor], options: Any
) -> bytes:
    """Return a file of one op, whose operands and results are its inputs and outputs."""
    every = [each for each in operands if each is not None]
    every += [each for each in results if each not in every]
    tensors, weights, arena = laid_out(every)
    numbers = [-1 if each is None else every.index(each) for each in operands]
    made = [every.index(each) for each in results]
    given = [n for n in numbers if n >= 0 and tensors[n].storage == Storage.ARENA]
    model = t.Model(
        tensors=tensors, ops=[t.Op(kind, numbers, made, options, "op")],
        subgraphs=[t.Subgraph(0, 1, sorted(set(given)), made)],
        arena_size=arena, scratch_size=1 << 20,
    )  # fmt: skip
    return codec.encode(model, weights)


def quantized(dtype: DataType, *shape: int, value: Any = None, **fields: Any) -> Tensor:
    """Return a quantized value or constant with one scale."""
    return Tensor(dtype, *shape, value=value, **({"scales": [0.5]} | fields))


def packed(dtype: DataType, *shape: int, **fields: Any) -> Tensor:
    """Return weights in panels; int8 weights in groups of four."""
    layout = Layout.PANELS4 if len(shape) == 5 else Layout.PANELS
    return Tensor(dtype, *shape, value=1, layout=layout, **fields)

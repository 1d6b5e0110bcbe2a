"""Indexing of ragged tensors."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from weft_graph.ir.builder import constant_of, convert_to_tensor, create, out
from weft_graph.ir.composite import makers
from weft_graph.ir.node import Output
from weft_graph.ops import sequence, shapes
from weft_graph.ragged import encodings
from weft_graph.ragged.rows import Rows
from weft_graph.ragged.tensor import RaggedTensor, is_ragged, static_rank
from weft_tensor import errors
from weft_tensor.dtypes import DType

_ALL = builtins.slice(None)


def getitem(value: Any, key: Any) -> Any:
    """Return `value[key]` for integers, slices, `...`, None, or one ragged mask."""
    if is_ragged(key):
        return makers.lookup("boolean_mask")(value, key)
    keys = list(key) if isinstance(key, tuple | list) else [key]
    return _outer(value, _expand_ellipsis(keys, static_rank(value)))


def _expand_ellipsis(keys: list[Any], rank: int | None) -> list[Any]:
    """Replace `...` in a key by slices."""
    positions = [i for i, key in enumerate(keys) if key is Ellipsis]
    if not positions:
        return keys
    if len(positions) > 1:
        raise errors.InvalidArgumentError("an index may have `...` only once")
    (position,) = positions
    trailing_keys = [key for key in keys[position + 1 :] if key is not None]
    if position == len(keys) - 1:
        return keys[:position]
    if rank is None:
        raise errors.InvalidArgumentError("`...` requires a ragged tensor of a known rank")
    count = rank - len([key for key in keys[:position] if key is not None]) - len(trailing_keys)
    if count < 0:
        raise errors.InvalidArgumentError(f"too many indices for rank {rank}: {keys!r}")
    return [*keys[:position], *[_ALL] * count, *keys[position + 1 :]]


def _outer(value: Any, keys: list[Any]) -> Any:
    """Apply the key of the first axis, and the keys of the following ones."""
    if not keys:
        return value
    if not isinstance(value, RaggedTensor):
        return value[tuple(keys)]
    key, *other_keys = keys
    if key is None:
        inner = _outer(value, other_keys)
        return expand_first_axis(inner, value.row_splits.dtype.base_dtype)
    if isinstance(key, builtins.slice):
        return _inner(_slice_rows(value, key), other_keys)
    return _outer(_row(value, key), other_keys)


def expand_first_axis(inner: Any, dtype: DType) -> Any:
    """Insert a first axis of size 1."""
    if not isinstance(inner, RaggedTensor):
        return shapes.expand_dims(inner, 0)
    unit = np.array(1, dtype.numpy)
    static = inner.levels[0].static_nrows
    if static is not None:
        length = np.array(static, dtype.numpy)
        return RaggedTensor(inner, encodings.from_uniform(length, inner, unit, False))
    rows = encodings.uniform_rows(inner.nrows(), constant_of(unit))
    rows.splits.set_shape([2])
    return RaggedTensor(inner, rows)


def _index(key: Any, label: str = "an index") -> Any:
    """Return a key that is an integer or an integer output of rank 0."""
    if isinstance(key, bool | np.bool_ | float | str):
        raise errors.InvalidTypeError(f"{label} must be an integer or a slice, got {key!r}")
    if isinstance(key, int | np.integer):
        return int(key)
    index = convert_to_tensor(key)
    if not index.dtype.base_dtype.is_integer or index.dims not in ((), None):
        raise errors.InvalidTypeError(f"{label} must be an integer of rank 0, got {key!r}")
    return index


def _row(value: RaggedTensor, key: Any) -> Any:
    index = _index(key)
    splits = value.row_splits
    start, limit = splits[:-1][index], splits[1:][index]
    return value.values[start:limit]


def _is_all(key: Any) -> bool:
    return key.start is None and key.stop is None and key.step in (None, 1)


def _slice_rows(value: RaggedTensor, key: Any) -> RaggedTensor:
    if _is_all(key):
        return value
    row_ids = sequence.range(value.nrows())[key]
    return gather_rows(value, row_ids)


def gather_rows(value: RaggedTensor, row_ids: Output) -> RaggedTensor:
    """Gather rows by a vector of integers; uniform rows stay uniform."""
    levels = value.levels
    attrs = {"OUTPUT_RAGGED_RANK": len(levels)}
    inputs = [[rows.splits for rows in levels], value.flat_values, row_ids]
    *splits, flat = create("RaggedGather", inputs, attrs).outputs
    nested: Any = flat
    for rows, level_splits in zip(reversed(levels), reversed(splits), strict=True):
        nested = RaggedTensor(nested, Rows(level_splits, uniform=rows.uniform))
    return nested  # type: ignore[no-any-return]


def _inner(value: Any, keys: list[Any]) -> Any:
    """Apply the key of the second axis, and the keys of the following ones, to each row."""
    if not keys:
        return value
    if not isinstance(value, RaggedTensor):
        return value[(_ALL, *keys)]
    key, *other_keys = keys
    if key is None:
        unit = constant_of(np.array(1, value.row_splits.dtype.base_dtype.numpy))
        rows = encodings.uniform_rows(unit, value.nrows())
        if value.levels[0].static_nrows is not None:
            rows.splits.set_shape([value.levels[0].static_nrows + 1])
        return _inner_of(RaggedTensor(value, rows), other_keys)
    if isinstance(key, builtins.slice):
        sliced = value if _is_all(key) else _slice_values(value, key)
        return _inner_of(sliced, other_keys)
    if value.uniform_row_length is None:
        raise errors.InvalidArgumentError(
            "an inner ragged axis cannot be indexed by an integer, because rows may be too "
            "short; got "
            f"{key!r} for {value!r}"
        )
    return _inner(_column(value, _index(key)), other_keys)


def _inner_of(value: RaggedTensor, keys: list[Any]) -> Any:
    """Apply the keys of the axes after the second one."""
    return value.with_values(_inner(value.values, keys)) if keys else value


def _column(value: RaggedTensor, index: Any) -> Any:
    """Return one value of each row, for rows of the same length."""
    length = value.uniform_row_length
    assert length is not None
    index = out("Cast", [index], {"DstT": length.dtype}) if isinstance(index, Output) else index
    offset = sequence.range(length)[index]  # fails where it is out of range
    positions = value.row_starts() + offset
    return out("GatherV2", [value.values, positions, 0])


def _slice_values(value: RaggedTensor, key: Any) -> RaggedTensor:
    """Return `value[:, key]`: each row is sliced like a Python list."""
    step = 1 if key.step is None else _index(key.step, "a step")
    if not isinstance(step, int):
        raise errors.InvalidTypeError(f"the step of an inner slice must be known, got {step!r}")
    if step == 0:
        raise errors.InvalidArgumentError("the step of a slice must not be 0")
    dtype = value.row_splits.dtype.base_dtype
    lengths = value.row_lengths()
    zero, unit = [constant_of(np.array(n, dtype.numpy)) for n in (0, 1)]
    low, high = (zero, lengths) if step > 0 else (zero - unit, lengths - unit)

    def bound(bound_key: Any, default: Output) -> Output:
        if bound_key is None:
            return default
        index = _index(bound_key, "a bound of a slice")
        index = (
            constant_of(np.array(index, dtype.numpy))
            if isinstance(index, int)
            else out("Cast", [index], {"DstT": dtype})
        )
        index = out("SelectV2", [out("Less", [index, zero]), index + lengths, index + zero])
        return out("Maximum", [out("Minimum", [index, high]), low])

    first, last = (low, high) if step > 0 else (high, low)
    starts = value.row_starts()
    begin, end = bound(key.start, first) + starts, bound(key.stop, last) + starts
    splits, positions = create(
        "RaggedRange", [begin, end, constant_of(np.array(step, dtype.numpy))], {"Tsplits": dtype}
    ).outputs
    if value.levels[0].static_nrows is not None:
        splits.set_shape([value.levels[0].static_nrows + 1])
    selected = (
        gather_rows(value.values, positions)
        if isinstance(value.values, RaggedTensor)
        else out("GatherV2", [value.values, positions, 0])
    )
    return RaggedTensor(selected, Rows(splits))


makers.register("getitem", getitem)

"""Broadcasting of ragged tensors to common rows, so that ops apply to flat values.

Shapes are aligned at the last axis, as in NumPy. A uniform axis of size 1 is repeated; the lengths
of ragged rows must be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft_graph.ir.builder import constant_of, convert_to_tensor, out
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_graph.ops import reduction, sequence, shapes
from weft_graph.ops.control import Assert
from weft_graph.ops.identity import identity
from weft_graph.ragged.conversion import uniform_levels
from weft_graph.ragged.encodings import splits_of
from weft_graph.ragged.indexing import expand_first_axis
from weft_graph.ragged.rows import Rows
from weft_graph.ragged.tensor import RaggedTensor, static_rank
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType


def map_flat_values(
    function: Callable[..., Sequence[Any]], values: Sequence[Any], one_shape: bool = False
) -> list[Any]:
    """Apply a function to the flat values of ragged values that are broadcast to common rows.

    Args:
      function: function of flat values, and of other values unchanged; its results have as many
        rows as the flat values.
      values: ragged values, tensors or Python values.
      one_shape: pass other values without broadcasting them.
    """
    ragged = [value for value in values if isinstance(value, RaggedTensor)]
    first = ragged[0]
    dense = [value for value in values if not isinstance(value, RaggedTensor)]
    if _have_same_splits(ragged) and (
        one_shape or all(_fits_inside(first, value) for value in dense)
    ):
        flat = [v.flat_values if isinstance(v, RaggedTensor) else v for v in values]
        return [first.with_flat_values(flat_result) for flat_result in function(*flat)]
    common, flat = align_rows(values, first.dtype)
    return [_nest_rows(common, flat_result) for flat_result in function(*flat)]


def _nest_rows(levels: Sequence[Rows], flat: Any) -> Any:
    for rows in reversed(levels):
        flat = RaggedTensor(flat, rows)
    return flat


def _have_same_splits(ragged: Sequence[RaggedTensor]) -> bool:
    """Return True if all have the same row splits, like values derived from each other."""
    first = ragged[0].nested_row_splits
    rank = static_rank(ragged[0].flat_values)
    return all(
        len(value.nested_row_splits) == len(first)
        and all(a is b for a, b in zip(value.nested_row_splits, first, strict=True))
        and (value is ragged[0] or (rank is not None and static_rank(value.flat_values) == rank))
        for value in ragged
    )


def _fits_inside(ragged: RaggedTensor, value: Any) -> bool:
    """Return True if a value broadcasts with the flat values only."""
    if not isinstance(value, Output):
        rank: int | None = np.ndim(value)
    else:
        rank = static_rank(value)
    inner = static_rank(ragged.flat_values)
    return rank == 0 or (rank is not None and inner is not None and rank < inner)


def align_rows(values: Sequence[Any], dtype: DType) -> tuple[list[Rows], list[Output]]:
    """Return the common rows of values, and the flat values of each in these rows.

    Raises: InvalidArgumentError: a rank is unknown; or, at run time, lengths of rows differ.
    """
    converted = [
        value
        if isinstance(value, RaggedTensor | Output) or np.ndim(value) == 0
        else convert_to_tensor(value, dtype)
        for value in values
    ]
    ranks = [_rank(value) for value in converted]
    static_ranks = [rank for rank in ranks if rank is not None]
    if len(static_ranks) < len(ranks):
        raise errors.InvalidArgumentError(
            "ragged tensors are broadcast only against values of a known rank, got "
            + ", ".join(repr(value) for value in converted)
        )
    rank = max(static_ranks)
    splits = _splits_type(converted)
    depth = max(
        rank - value_rank + value.ragged_rank
        for value, value_rank in zip(converted, static_ranks, strict=True)
        if isinstance(value, RaggedTensor)
    )
    operands = [
        _Operand(value, rank - value_rank, depth, splits)
        for value, value_rank in zip(converted, static_ranks, strict=True)
    ]
    return _descend(operands, depth, splits)


def _rank(value: Any) -> int | None:
    return static_rank(value) if isinstance(value, RaggedTensor | Output) else 0


def _splits_type(values: Sequence[Any]) -> DType:
    types = {v.row_splits.dtype.base_dtype for v in values if isinstance(v, RaggedTensor)}
    return dtypes.int64 if dtypes.int64 in types else dtypes.int32


class _Operand:
    """A value broadcast to the common rank and row levels.

    Attributes:
      levels: the rows of each level; empty if it broadcasts only with the flat values.
      flat: its flat values.
      inside: True if it broadcasts only with the flat values.
      rows: the number of its rows, as a tensor and statically.
    """

    def __init__(self, value: Any, missing: int, depth: int, dtype: DType) -> None:
        self.is_flat_only = missing > depth
        self.levels: list[Rows] = []
        self.flat = value
        if self.is_flat_only:
            return
        if isinstance(value, RaggedTensor):
            value = value.with_row_splits_dtype(dtype)
        for _ in range(missing):
            value = expand_first_axis(value, dtype)
        self.static = value.dims[0]
        if depth:
            value = uniform_levels(value, depth, dtype)
            self.levels, self.flat = value.levels[:depth], _values_below(value, depth)
            self.rows = value.nrows()


def _values_below(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = value.values
    return value


def _descend(operands: list[_Operand], depth: int, dtype: DType) -> tuple[list[Rows], list[Output]]:
    """Broadcast operands to common rows, level by level from the outermost."""
    unit = constant_of(np.array(1, dtype.numpy))
    outer_operands = [operand for operand in operands if not operand.is_flat_only]
    sizes = [(operand.rows, operand.static) for operand in outer_operands]
    count, is_equal = _common_size(sizes, unit)
    # For each operand the row that stands for each row of the result; None for all, in order.
    outputs: list[Output | None] = [
        None if equal else _repeat_rows(count, static, size)
        for equal, (size, static) in zip(is_equal, sizes, strict=True)
    ]
    levels: list[Rows] = []
    for level in range(depth):
        rows, outputs = _next_level(
            [operand.levels[level] for operand in outer_operands], count, outputs, dtype
        )
        levels.append(rows)
        count = rows.nvals()
    for operand, index in zip(outer_operands, outputs, strict=True):
        if index is not None:
            operand.flat = out("GatherV2", [operand.flat, index, 0])
    return levels, [operand.flat for operand in operands]


def _common_size(
    sizes: Sequence[tuple[Output, int | None]], unit: Output
) -> tuple[Output, list[bool]]:
    """Return the common broadcast size, and the operands that have it.

    Raises: InvalidArgumentError: sizes are known to differ.
    """
    static_sizes = {static for _, static in sizes if static not in (None, 1)}
    if len(static_sizes) > 1:
        raise errors.InvalidArgumentError(
            f"the numbers of rows must be equal or 1, got {sorted(static_sizes)}"
        )
    wide = [(size, static) for size, static in sizes if static != 1]
    if not wide:
        return unit, [True] * len(sizes)
    # Who is known to have the size says it; of the others one tells it that is not 1.
    fixed = [size for size, static in wide if static is not None]
    total = fixed[0] if fixed else _first_not_one([size for size, _ in wide], unit)
    if len(wide) > 1 and not all(static is not None for _, static in wide):
        fits = [_equal_or_one(size, total, unit) for size, _ in wide]
        total = _with_assertions(total, fits, "the numbers of rows must be equal or 1")
    return total, [static != 1 and (static is not None or len(wide) == 1) for _, static in sizes]


def _first_not_one(sizes: Sequence[Output], unit: Output) -> Output:
    selected = sizes[0]
    for size in sizes[1:]:
        selected = out("SelectV2", [out("Equal", [selected, unit]), size, selected])
    return selected


def _with_assertions(value: Output, conditions: Sequence[Output], message: str) -> Output:
    asserts = [Assert(condition, [message, value]) for condition in conditions]
    with get_default_graph().control_dependencies(asserts):
        return identity(value)


def _repeat_rows(count: Output, static: int | None, size: Output) -> Output:
    """Return the rows of operands with `count` rows, or with one row that is repeated."""
    positions = sequence.range(count)
    if static == 1:
        return out("ZerosLike", [positions])
    unit = constant_of(np.array(1, count.dtype.base_dtype.numpy))
    zeros = out("ZerosLike", [positions])
    return out("SelectV2", [out("Equal", [size, unit]), zeros, positions])


def _next_level(
    rows: list[Rows], count: Output, outputs: list[Output | None], dtype: DType
) -> tuple[Rows, list[Output | None]]:
    """Return the rows of a level, and each operand's source indices in them."""
    first = rows[0]
    if all(p is None and r.splits is first.splits for p, r in zip(outputs, rows, strict=True)):
        return first, [None] * len(rows)
    lengths = [
        level_rows.row_lengths()
        if index is None
        else out("GatherV2", [level_rows.row_lengths(), index, 0])
        for level_rows, index in zip(rows, outputs, strict=True)
    ]
    result = _common_lengths(lengths, rows, count, dtype)
    new_rows = Rows(splits_of(result), lengths=result, uniform=_common_uniform(rows, dtype))
    if first.static_nrows is not None and outputs[0] is None:
        new_rows.splits.set_shape([first.static_nrows + 1])
    ids = new_rows.ids()
    offset = sequence.range(new_rows.nvals()) - out("GatherV2", [new_rows.starts(), ids, 0])
    pairs = zip(rows, outputs, strict=True)
    return new_rows, [_operand_index(level_rows, index, ids, offset) for level_rows, index in pairs]


def _operand_index(rows: Rows, output: Output | None, ids: Output, offset: Output) -> Output:
    """Return the index of an operand's value for each value of the result."""
    owner = ids if output is None else out("GatherV2", [output, ids, 0])
    start = out("GatherV2", [rows.starts(), owner, 0])
    if rows.uniform is None or rows.static_uniform not in (None, 1):
        return start + offset
    if rows.static_uniform == 1:
        return start
    unit = constant_of(np.array(1, offset.dtype.base_dtype.numpy))
    single = out("Equal", [rows.uniform, unit])
    return start + out("SelectV2", [single, out("ZerosLike", [offset]), offset])


def _common_uniform(rows: Sequence[Rows], dtype: DType) -> Output | None:
    """Return the static length of all rows of the result, or None."""
    sizes = {level_rows.static_uniform for level_rows in rows} - {1}
    if None in sizes or len(sizes) > 1:
        return None
    return constant_of(np.array(next(iter(sizes), 1), dtype.numpy))


def _common_lengths(
    lengths: Sequence[Output], rows: Sequence[Rows], count: Output, dtype: DType
) -> Output:
    """Return the common lengths of rows; uniform rows of length 1 are broadcast."""
    unit = constant_of(np.array(1, dtype.numpy))
    fixed, may_be_one = [], []
    for length, level_rows in zip(lengths, rows, strict=True):
        if level_rows.uniform is None or level_rows.static_uniform not in (None, 1):
            fixed.append(length)
        elif level_rows.static_uniform is None:
            may_be_one.append(length)
    if not fixed and not may_be_one:
        return out("Fill", [shapes.reshape(count, [1]), unit])
    result = fixed[0] if fixed else _first_not_one(may_be_one, unit)
    checks = [_reduce_all(out("Equal", [length, result])) for length in fixed[1:]]
    if len(fixed) + len(may_be_one) > 1:
        checks += [_equal_or_one(length, result, unit) for length in may_be_one]
    message = "ragged rows must have equal lengths"
    return _with_assertions(result, checks, message) if checks else result


def _equal_or_one(length: Output, expected: Output, unit: Output) -> Output:
    pair = [out("Equal", [length, expected]), out("Equal", [length, unit])]
    return _reduce_all(out("LogicalOr", pair))


def _reduce_all(condition: Output) -> Output:
    return reduction.reduce_all(condition)

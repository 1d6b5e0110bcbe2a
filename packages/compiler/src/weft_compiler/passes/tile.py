"""Tiling: computes rows in blocks if a matrix between two statements is too large for the caches.

    alloc s: float32[1024, 1024]           for block in 16:
    call gemm(q, k, s, m=1024, ...)          alloc s: float32[64, 1024]
    for i in 1024:                           call gemm(q[block * 64], k, s, m=64, ...)
      ... s[i, j] ...                        for i in 64:
    call gemm(s, v, y, m=1024, ...)            ... s[i, j] ...
                                             call gemm(s, v, y[block * 64], m=64, ...)

In this example the scores of attention are never in memory as a whole. Adjacent statements are put
into one loop over blocks of rows if each row of their shared buffers is used only by the iterations
and products for that row. The second operand of a product is read again for each block, so tiling
pays off only if the intermediate matrix is larger.

A product that sums over the rows, such as one with the transpose of such a matrix in a gradient, is
accumulated block by block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from weft_compiler.ir.expressions import (
    INDEX,
    Constant,
    Expr,
    Load,
    Variable,
    index,
    number,
)
from weft_compiler.ir.indices import is_number, plus, times
from weft_compiler.ir.loops import Unique, nest
from weft_compiler.ir.mutator import Mutator, with_body
from weft_compiler.ir.program import (
    Allocate,
    Body,
    Buffer,
    Call,
    For,
    Order,
    Program,
    Statement,
    Store,
)
from weft_compiler.passes.effects import (
    Buffers,
    Effects,
    accesses,
    effects_of,
    interface_buffers,
)
from weft_compiler.passes.framework import Context
from weft_compiler.passes.scope import ScopedMutator
from weft_compiler.routines.bfloat16 import MatmulPairs
from weft_compiler.routines.gemm import Gemm, Matmul

T = TypeVar("T")

_MIN_BYTES: Final = 1 << 20
"""Minimum size of the intermediate matrix, in bytes: about an L2 cache."""
_TILE_BYTES: Final = 1 << 21
"""Maximal size of a tile of it, in bytes. It is larger than an L2 cache, because products of few
rows cost more than the slower L3 cache.
"""
_MIN_ROWS, _MAX_ROWS = 16, 256
"""Limits of the rows of a tile."""
_PRODUCTS: Final = (Gemm, Matmul, MatmulPairs)


def tile_rows(program: Program, context: Context) -> Program:
    """Compute rows in tiles where that keeps temporaries in caches."""
    tiling = _Tiling(interface_buffers(program), context)
    return with_body(program, tiling.rewrite_body(program.body))


class _Step(NamedTuple):
    """A statement that may compute rows separately.

    Attributes:
      rows: the number of rows; 0 if it does not compute rows separately.
      axes: the row dimension, for each buffer whose rows are used only for the same row.
      reread_bytes: the bytes that every block reads or writes again.
      parts: for a product, the dimension of the rows of each operand that has rows.
    """

    statement: Statement
    effects: Effects
    rows: int
    axes: Mapping[str, int]
    reread_bytes: int
    parts: Mapping[str, int] = MappingProxyType({})

    @property
    def sums(self) -> bool:
        """True if the statement is a product that sums over the rows."""
        return "b" in self.parts

    @property
    def touches(self) -> set[str]:
        """The buffers that the statement uses."""
        return {*self.effects.reads, *self.effects.writes}


class _Tiling(ScopedMutator):
    """Mutator that tiles groups of statements with large temporaries between them."""

    def rewrite_statements(self, body: Body) -> Body:
        buffers = self.buffers
        allocated = {item.buffer.name: item.buffer for item in body if isinstance(item, Allocate)}
        if sum(item.bytes for item in allocated.values()) < _MIN_BYTES:
            return tuple(map(self.rewrite_bodies, body))
        statements = [item for item in body if not isinstance(item, Allocate)]
        steps = [
            _alternatives(statement, effects_of((statement,), buffers), buffers)
            for statement in statements
        ]
        users = Counter(name for ways in steps for name in ways[0].touches)
        tiled: list[Statement] = []
        small: set[str] = set()
        position = 0
        while position < len(statements):
            group, intermediates, rows = _group_before_next(steps[position:], users, allocated)
            if rows:
                names = ", ".join([item.name for item in intermediates])
                self.context.record_applied(
                    names, "%d statements run in tiles of %d rows", len(group), rows
                )
                tiled += _emit_tiles(group, intermediates, rows, buffers)
                small.update(item.name for item in intermediates)
                position += len(group)
            else:
                if intermediates:
                    names = ", ".join([item.name for item in intermediates])
                    self.context.record_missed(
                        names, "no tile fits a cache without reading operands too often"
                    )
                tiled.append(self.rewrite_bodies(statements[position]))
                position += 1
        untiled = [
            item for item in body if isinstance(item, Allocate) and item.buffer.name not in small
        ]
        return (*untiled, *tiled)


def _group_before_next(
    steps: Sequence[Sequence[_Step]], users: Mapping[str, int], allocated: Buffers
) -> tuple[list[_Step], list[Buffer], int]:
    """Return the longest profitable group, without statements that should belong to the next group.

    Producers of a large temporary at its end belong to the next group if that one tiles it.
    """
    group, intermediates, rows = _longest_group(steps, users, allocated)
    prefix_length = len(group)
    filled: set[str] = set()
    while prefix_length:
        large = {
            name
            for name in group[prefix_length - 1].effects.writes
            if name in allocated and allocated[name].bytes >= _MIN_BYTES
        }
        if not large or any(large & step.effects.reads.keys() for step in group[:prefix_length]):
            break
        filled |= large
        prefix_length -= 1
    if rows and prefix_length < len(group):
        _, later, worth = _longest_group(steps[prefix_length:], users, allocated)
        if worth and filled <= {item.name for item in later}:
            return _longest_group(steps[:prefix_length], users, allocated)
    return group, intermediates, rows


def _longest_group(
    steps: Sequence[Sequence[_Step]], users: Mapping[str, int], allocated: Buffers
) -> tuple[list[_Step], list[Buffer], int]:
    """Return the longest profitable prefix, the buffers between its steps, and the rows per tile.

    Args:
      users: the number of statements that use each buffer.
    """
    group = _compatible_prefix(steps)
    intermediates, rows = _tile_size(group, users, allocated)
    if not intermediates:  # no prefix of it has more intermediate buffers
        return group[:1], [], 0
    candidates = intermediates
    while len(group) > 1 and not rows:
        group.pop()
        intermediates, rows = _tile_size(group, users, allocated)
    return group, intermediates if rows else candidates, rows


def _compatible_prefix(steps: Sequence[Sequence[_Step]]) -> list[_Step]:
    """Return the longest prefix of steps that can be tiled by the same rows.

    Args:
      steps: the alternatives of each statement.
    """
    group: list[_Step] = []
    for ways in steps:
        agree = [
            step
            for step in ways
            if step.rows and all(_are_compatible(earlier, step) for earlier in group)
        ]
        if not agree:
            break
        group.append(agree[0])
    return group


def _alternatives(statement: Statement, effects: Effects, buffers: Buffers) -> list[_Step]:
    """Return the possible tilings of a statement; there is at least one."""
    if isinstance(statement, _PRODUCTS) and not statement.sizes:
        return _product_alternatives(statement, effects, buffers)
    rows = 0
    axes: dict[str, int] = {}
    if (
        isinstance(statement, For)
        and isinstance(statement.extent, Constant)
        and statement.order is not Order.VECTOR
        and not effects.ends
    ):
        rows = int(statement.extent.value)
        row_axes = {
            name: _axis_of(name, statement.variable, effects, len(buffers[name].shape))
            for name in dict.fromkeys((*effects.reads, *effects.writes))
            if name in buffers
        }
        axes = {name: axis for name, axis in row_axes.items() if axis is not None}
    return [_Step(statement, effects, rows, axes, 0)]


def _product_alternatives(
    call: Gemm | Matmul | MatmulPairs, effects: Effects, buffers: Buffers
) -> list[_Step]:
    """Return a product as a step by rows, and as a step that sums over rows."""
    m, n, k, size = call.m, call.n, call.k, call.a.dtype.size
    # Axes are recorded for each buffer, so a buffer with two roles in a product cannot be
    # described.
    if len({view.buffer for view in call.views}) < len(call.views):
        return [_Step(call, effects, 0, {}, 0)]
    a, b, c = [_Matrix(view, buffers[view.buffer]) for view in call.views]
    steps = []
    rows = {"a": a.rows(m, call.a_row, k), "c": c.rows(m, call.c_row, n)}
    if None not in rows.values():
        steps.append(_product_step(call, effects, m, rows, buffers, n * k * size))
    if isinstance(call, MatmulPairs):  # rows are packed in pairs, which stay together
        return steps or [_Step(call, effects, 0, {}, 0)]
    terms = {"a": a.rows(k, call.a_column, m), "b": b.rows(k, call.b_row, n)}
    if None not in terms.values() and c.is_whole(m, n, call.c_row):
        steps.append(_product_step(call, effects, k, terms, buffers, 2 * m * n * size))
    return steps or [_Step(call, effects, 0, {}, 0)]


def _product_step(
    call: Gemm | Matmul | MatmulPairs,
    effects: Effects,
    rows: int,
    axes_of_views: Mapping[str, int | None],
    buffers: Buffers,
    reread_bytes: int,
) -> _Step:
    parts = {name: axis for name, axis in axes_of_views.items() if axis is not None}
    views = {"a": call.a, "b": call.b, "c": call.c}
    axes = {
        views[name].buffer: axis
        for name, axis in parts.items()
        if is_number(views[name].indices[axis], 0)
        and buffers[views[name].buffer].shape[axis] == rows
    }
    return _Step(call, effects, rows, axes, reread_bytes, parts)


class _Matrix(NamedTuple):
    """An operand of a product, with the buffer that contains it."""

    view: Load
    buffer: Buffer

    def rows(self, count: int, stride: int, columns: int) -> int | None:
        """Return the dimension of `count` rows, if the columns are all of the other dimension.

        Args:
          stride: the row stride in elements.
        """
        shape, rank = self.buffer.shape, len(self.buffer.shape)
        for axis in range(max(0, rank - 2), rank):
            other_axis = 2 * rank - 3 - axis
            if (
                rank >= 2
                and (shape[axis] >= count and self.buffer.strides[axis] == stride)
                and shape[other_axis] == columns
                and is_number(self.view.indices[other_axis], 0)
            ):
                return axis
        return None

    def is_whole(self, rows: int, columns: int, stride: int) -> bool:
        """Return True if the operand is the whole of the last two dimensions."""
        return (
            self.buffer.shape[-2:] == (rows, columns)
            and stride == columns
            and all(is_number(position, 0) for position in self.view.indices[-2:])
        )


def _axis_of(name: str, variable: str, effects: Effects, rank: int) -> int | None:
    """Return the dimension whose index in a loop is always the loop variable."""
    touched = list(accesses(effects, name))
    for axis in range(rank):
        if all(
            index is not None and isinstance(index[axis], Variable) and index[axis].name == variable  # type: ignore[attr-defined]
            for index in touched
        ):
            return axis
    return None


def _are_compatible(first: _Step, second: _Step) -> bool:
    """Return True if tiles of the second step do not depend on later tiles of the first."""
    if first.rows != second.rows:
        return False
    first_effects, second_effects = first.effects, second.effects
    if (
        first_effects.defines & (second_effects.uses | second_effects.defines)
        or first_effects.uses & second_effects.defines
    ):
        return False
    shared = first_effects.writes.keys() & (
        second_effects.reads.keys() | second_effects.writes.keys()
    )
    shared |= first_effects.reads.keys() & second_effects.writes.keys()
    return all(name in first.axes and first.axes[name] == second.axes.get(name) for name in shared)


def _tile_size(
    group: Sequence[_Step], users: Mapping[str, int], allocated: Buffers
) -> tuple[list[Buffer], int]:
    """Return the buffers between the steps of a group, and the rows per tile.

    0 if tiling does not pay off.

    Args:
      users: the number of statements that use each buffer.
    """
    if len(group) < 2 or not any(isinstance(item.statement, Call) for item in group):
        return [], 0
    rows = group[0].rows
    axes = {name: axis for item in group for name, axis in item.axes.items()}
    group_users = Counter(name for item in group for name in item.axes)
    intermediates = [
        allocated[name]
        for name, axis in axes.items()
        if name in allocated
        and group_users[name] == users[name]
        and allocated[name].shape[axis] == rows
    ]
    total_bytes = sum(item.bytes for item in intermediates)
    if total_bytes < _MIN_BYTES:
        return [], 0
    reread_bytes = sum(item.reread_bytes for item in group)
    fits = [n for n in range(_MIN_ROWS, min(_MAX_ROWS, rows - 1) + 1) if rows % n == 0]
    # Without tiles, the intermediate buffers are written and read once. With tiles, operands are
    # read for each tile. The smaller traffic wins.
    affordable = [n for n in fits if reread_bytes * (rows // n) <= 2 * total_bytes]
    cached = [n for n in affordable if n * total_bytes <= _TILE_BYTES * rows]
    # Products of many rows are faster, so the largest tile that fits a cache is best; else the one
    # that exceeds it least.
    return intermediates, max(cached, default=min(affordable, default=0))


def _emit_tiles(
    group: Sequence[_Step], intermediates: Sequence[Buffer], rows: int, buffers: Buffers
) -> Body:
    """Return the loop over tiles, preceded by zeros for results that are summed over tiles."""
    names = {name for item in group for name in (*item.effects.defines, *item.effects.uses)}

    def unique(name: str) -> str:
        while name in names:
            name += "_"
        names.add(name)
        return name

    block = Variable(INDEX, unique(f"{intermediates[0].name}_block"))
    axes = {name: axis for item in group for name, axis in item.axes.items()}
    small = {item.name: axes[item.name] for item in intermediates}
    zeroing: list[Statement] = []
    body: list[Statement] = [
        Allocate(replace(item, shape=_with_item(item.shape, small[item.name], rows)))
        for item in intermediates
    ]
    for step in group:
        if isinstance(step.statement, _PRODUCTS):
            # Each tile adds to the result, so it must be zero before the first one.
            if step.sums and not step.statement.reads_outputs:
                zeroing += _emit_zeros(unique, step.statement.c, buffers)
            body.append(_tile_call(step, step.statement, small, block, rows))
        else:
            assert isinstance(step.statement, For)
            body.append(_tile_loop(step.statement, small, block, rows))
    return (*zeroing, For(block.name, index(group[0].rows // rows), tuple(body)))


def _emit_zeros(unique: Unique, view: Load, buffers: Buffers) -> Body:
    """Return statements that zero the matrix of a view."""
    zero = number(0, view.dtype)

    def store(*position: Expr) -> Body:
        return (Store(view.buffer, (*view.indices[:-2], *position), zero),)

    return nest(unique, buffers[view.buffer].shape[-2:], store)


def _tile_call(
    step: _Step,
    call: Gemm | Matmul | MatmulPairs,
    small: Mapping[str, int],
    block: Expr,
    rows: int,
) -> Call:
    """Return the product for the rows of a tile, or its contribution to a sum over rows."""
    fields: dict[str, Any] = {"k" if step.sums else "m": rows}
    # For each operand with rows, its column stride.
    columns = {"a": "a_row", "b": "b_column"} if step.sums else {"a": "a_column", "c": "c_row"}
    if step.sums:
        fields["accumulate"] = 1
    for name, view in (("a", call.a), ("b", call.b), ("c", call.c)):
        axis = step.parts.get(name)
        if axis is not None and view.buffer not in small:
            first = plus(view.indices[axis], times(block, rows))
            fields[name] = replace(view, indices=_with_item(view.indices, axis, first))
        if axis is not None and view.buffer in small and axis == len(view.indices) - 1:
            # A row is a column of the buffer, which is narrower now.
            fields[columns[name]] = rows
    return replace(call, **fields)


def _tile_loop(loop: For, small: Mapping[str, int], block: Expr, rows: int) -> For:
    """Return the iterations of a tile; small buffers are indexed relative to its first row."""
    iteration = Variable(INDEX, loop.variable)
    row = plus(times(block, rows), iteration)
    body = _TileIndices(loop.variable, row, iteration, small).rewrite_body(loop.body)
    return replace(loop, extent=index(rows), body=body)


class _TileIndices(Mutator):
    """Mutator of the row index of a loop: relative to the tile in small buffers, global elsewhere.

    Args:
      variable: the variable of the loop over rows.
      row: the global index of the row.
      iteration: the index of the row within the tile.
      small: the axis of the rows of each buffer that holds a tile.
    """

    def __init__(self, variable: str, row: Expr, iteration: Expr, small: Mapping[str, int]) -> None:
        self._variable, self._row, self._iteration = variable, row, iteration
        self._small = small

    def rewrite_expression(self, expression: Expr) -> Expr:
        if isinstance(expression, Variable):
            return self._row if expression.name == self._variable else expression
        if isinstance(expression, Load) and expression.buffer in self._small:
            axis = self._small[expression.buffer]
            indices = [
                self._iteration if position == axis else self.rewrite_expression(item)
                for position, item in enumerate(expression.indices)
            ]
            return Load(expression.dtype, expression.buffer, tuple(indices))
        return super().rewrite_expression(expression)

    def rewrite_statement(self, statement: Statement) -> Statement | Body:
        new = super().rewrite_statement(statement)
        if isinstance(new, Store) and new.buffer in self._small:
            indices = _with_item(new.indices, self._small[new.buffer], self._iteration)
            return Store(new.buffer, indices, new.value, new.combine)
        return new


def _with_item(values: Sequence[T], axis: int, value: T) -> tuple[T, ...]:
    """Return values with one of them replaced."""
    return (*values[:axis], value, *values[axis + 1 :])

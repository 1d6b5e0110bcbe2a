"""Computing rows in blocks, where a matrix in between is too large for the caches.

    alloc s: float32[1024, 1024]           for block in 16:
    call gemm(q, k, s, m=1024, ...)          alloc s: float32[64, 1024]
    for i in 1024:                           call gemm(q[block * 64], k, s, m=64, ...)
      ... s[i, j] ...                        for i in 64:
    call gemm(s, v, y, m=1024, ...)            ... s[i, j] ...
                                             call gemm(s, v, y[block * 64], m=64, ...)

So the scores of attention, rows by columns, are never in memory as a whole. Statements that follow
each other are put into one loop over blocks of rows where each row of what they share is touched by
its own turns and products alone. The second operand of a product is read once for each block, so
that is done where the matrix in between is larger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from weft_compiler.ir.expressions import (
    INDEX,
    Constant,
    Expr,
    Load,
    Variable,
    children,
    index,
    replace_children,
    substitute,
)
from weft_compiler.ir.indices import is_number, plus, times
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
from weft_compiler.ir.rewrite import map_bodies, map_deep, replaced
from weft_compiler.passes.effects import (
    Buffers,
    Effects,
    buffers_of,
    effects_of,
    places,
    within,
)

T = TypeVar("T")

_LARGE: Final = 1 << 20
"""Bytes of what is between that are worth it: about a second cache."""
_BLOCK: Final = 1 << 21
"""Bytes that a block of it may have: more than a second cache, since products of few rows cost more
than what the third one is slower by."""
_FEWEST, _MOST = 16, 256
"""Rows of a block."""
_PRODUCTS: Final = ("gemm", "matmul", "matmul_pairs")


def block_rows(program: Program) -> Program:
    """The program with rows in blocks where that keeps what is between in caches."""
    return replaced(program, _blocked(program.body, buffers_of(program)))


class _Step(NamedTuple):
    """A statement, which may do the same for each of some rows.

    Attributes:
      rows: how many; 0 if it does not.
      axes: of buffers, the dimension of rows, where each row is touched by its own part alone.
      again: bytes that each block would read anew.
    """

    statement: Statement
    effects: Effects
    rows: int
    axes: Mapping[str, int]
    again: int

    @property
    def touches(self) -> set[str]:
        """The buffers that it touches."""
        return {*self.effects.reads, *self.effects.writes}


def _blocked(body: Body, outer: Buffers) -> Body:
    buffers = within(outer, body)
    allocated = {each.buffer.name: each.buffer for each in body if isinstance(each, Allocate)}
    if sum(each.bytes for each in allocated.values()) < _LARGE:
        return tuple([map_bodies(each, lambda inner: _blocked(inner, buffers)) for each in body])
    rest = [each for each in body if not isinstance(each, Allocate)]
    steps = [_step(each, effects_of((each,), buffers), buffers) for each in rest]
    users = Counter(name for each in steps for name in each.touches)
    found: list[Statement] = []
    small: set[str] = set()
    at = 0
    while at < len(rest):
        group = _group(steps[at:])
        between, rows = _worth(group, users, allocated)
        while len(group) > 1 and not rows:
            group.pop()
            between, rows = _worth(group, users, allocated)
        if rows:
            found.append(_in_blocks(group, between, rows))
            small.update(each.name for each in between)
            at += len(group)
        else:
            found.append(map_bodies(rest[at], lambda inner: _blocked(inner, buffers)))
            at += 1
    return (*[Allocate(each) for name, each in allocated.items() if name not in small], *found)


def _group(steps: Sequence[_Step]) -> list[_Step]:
    """The longest beginning that can be done in blocks of the same rows."""
    group: list[_Step] = []
    for step in steps:
        if not step.rows or not all(_agree(before, step) for before in group):
            break
        group.append(step)
    return group


def _step(statement: Statement, effects: Effects, buffers: Buffers) -> _Step:
    rows, again = 0, 0
    axes: dict[str, int] = {}
    if isinstance(statement, Call) and statement.routine in _PRODUCTS and not statement.sizes:
        of = dict(statement.parameters)
        axes = _axes_of_product(statement, of, buffers)
        rows = of["m"] if axes else 0
        again = of["k"] * of["n"] * statement.views[0].dtype.size
    elif (
        isinstance(statement, For)
        and isinstance(statement.extent, Constant)
        and statement.order is not Order.VECTOR
        and not effects.ends
    ):
        rows = int(statement.extent.value)
        found = {
            name: _axis_of(name, statement.variable, effects, len(buffers[name].shape))
            for name in {*effects.reads, *effects.writes}.intersection(buffers)
        }
        axes = {name: axis for name, axis in found.items() if axis is not None}
    return _Step(statement, effects, rows, axes, again)


def _axis_of(name: str, variable: str, effects: Effects, rank: int) -> int | None:
    """The dimension in which a loop touches the place of its variable alone."""
    found = list(places(effects, name))
    for axis in range(rank):
        if all(
            place is not None and isinstance(place[axis], Variable) and place[axis].name == variable  # type: ignore[attr-defined]
            for place in found
        ):
            return axis
    return None


def _axes_of_product(call: Call, of: Mapping[str, int], buffers: Buffers) -> dict[str, int]:
    """The dimensions of rows in the first operand and the result; none where it has no such."""
    a, b, c = call.views
    if len({a.buffer, b.buffer, c.buffer}) < 3:
        return {}
    found = {}
    for view, row, columns in ((a, of["a_row"], of["k"]), (c, of["c_row"], of["n"])):
        buffer = buffers[view.buffer]
        axes = [
            at
            for at, (size, stride) in enumerate(zip(buffer.shape, buffer.strides, strict=True))
            if size == of["m"] and stride == row and is_number(view.indices[at], 0)
        ]
        if len(axes) != 1 or not _stays(view, axes[0], buffer, columns):
            return {}
        found[view.buffer] = axes[0]
    return found


def _stays(view: Load, axis: int, buffer: Buffer, columns: int) -> bool:
    """Whether the columns of a row are in the other dimension of the last two."""
    other = len(buffer.shape) - 1 if axis == len(buffer.shape) - 2 else len(buffer.shape) - 2
    return (
        len(buffer.shape) >= 2
        and axis >= len(buffer.shape) - 2
        and buffer.shape[other] == columns
        and is_number(view.indices[other], 0)
    )


def _agree(first: _Step, second: _Step) -> bool:
    """Whether blocks of the second need nothing of later blocks of the first, nor touch it."""
    if first.rows != second.rows:
        return False
    before, after = first.effects, second.effects
    if before.defines & (after.uses | after.defines) or before.uses & after.defines:
        return False
    shared = before.writes.keys() & (after.reads.keys() | after.writes.keys())
    shared |= before.reads.keys() & after.writes.keys()
    return all(name in first.axes and first.axes[name] == second.axes.get(name) for name in shared)


def _worth(
    group: Sequence[_Step], users: Mapping[str, int], allocated: Buffers
) -> tuple[list[Buffer], int]:
    """What is between the steps of a group, and the rows of a block: 0 if it is not worth it.

    Args:
      users: how many statements touch each buffer.
    """
    if len(group) < 2 or not any(isinstance(each.statement, Call) for each in group):
        return [], 0
    rows = group[0].rows
    axes = {name: axis for each in group for name, axis in each.axes.items()}
    own = Counter(name for each in group for name in each.axes)
    between = [
        allocated[name]
        for name, axis in axes.items()
        if name in allocated and own[name] == users[name] and allocated[name].shape[axis] == rows
    ]
    whole = sum(each.bytes for each in between)
    if whole < _LARGE:
        return [], 0
    most = min(_MOST, max(_FEWEST, _BLOCK * rows // whole), rows - 1)
    fits = [n for n in range(_FEWEST, most + 1) if rows % n == 0]
    again = sum(each.again for each in group) * (rows // fits[-1]) if fits else 0
    return between, fits[-1] if fits and again <= 2 * whole else 0


def _in_blocks(group: Sequence[_Step], between: Sequence[Buffer], rows: int) -> For:
    """The loop over blocks."""
    names = {name for each in group for name in (*each.effects.defines, *each.effects.uses)}
    name = f"{between[0].name}_block"
    while name in names:
        name += "_"
    block = Variable(INDEX, name)
    axes = {name: axis for each in group for name, axis in each.axes.items()}
    small = {each.name: axes[each.name] for each in between}
    body: list[Statement] = [
        Allocate(replace(each, shape=_with(each.shape, small[each.name], rows))) for each in between
    ]
    for step in group:
        if isinstance(step.statement, Call):
            body.append(_call_of(step, small, block, rows))
        else:
            assert isinstance(step.statement, For)
            body.append(_loop_of(step.statement, small, block, rows))
    return For(name, index(group[0].rows // rows), tuple(body))


def _call_of(step: _Step, small: dict[str, int], block: Expr, rows: int) -> Call:
    call = step.statement
    assert isinstance(call, Call)
    of = {**dict(call.parameters), "m": rows}
    views = []
    for view, name in zip(call.views, "abc", strict=True):
        axis = None if name == "b" else step.axes[view.buffer]
        if axis is not None and view.buffer not in small:
            view = replace(view, indices=_with(view.indices, axis, times(block, rows)))
        if axis is not None and view.buffer in small and axis == len(view.indices) - 1:
            of[f"{name}_column"] = rows  # a row is a column of the buffer, which has fewer now
        views.append(view)
    return replace(call, views=tuple(views), parameters=tuple(of.items()))


def _loop_of(loop: For, small: dict[str, int], block: Expr, rows: int) -> For:
    """The turns of a block, with the places of small buffers from its first row."""
    turn = Variable(INDEX, loop.variable)
    row = {loop.variable: plus(times(block, rows), turn)}

    def change(expression: Expr) -> Expr:
        if isinstance(expression, Load) and expression.buffer in small:
            axis = small[expression.buffer]
            new = [
                turn if at == axis else change(each) for at, each in enumerate(expression.indices)
            ]
            return Load(expression.dtype, expression.buffer, tuple(new))
        if isinstance(expression, Variable):
            return substitute(expression, row)
        return replace_children(expression, tuple(map(change, children(expression))))

    def stored(body: Body) -> Body:
        return tuple([map_bodies(_store(each), stored) for each in body])

    def _store(statement: Statement) -> Statement:
        if isinstance(statement, Store) and statement.buffer in small:
            indices = _with(statement.indices, small[statement.buffer], turn)
            return Store(statement.buffer, indices, statement.value, statement.combine)
        return statement

    return replace(loop, extent=index(rows), body=stored(map_deep(loop.body, change)))


def _with(values: Sequence[T], axis: int, value: T) -> tuple[T, ...]:
    """Values with another one at a place."""
    return (*values[:axis], value, *values[axis + 1 :])

"""Compensated summation: long floating-point sums are computed in blocks, whose totals are added.

    for i in 5000000:      var s_low = 0.0
      s add= x[i]          for block in 39063:
                             var s_part = 0.0
                             for i from block * 128 to minimum(block * 128 + 128, 5000000):
                               s_part add= x[i]
                             let sum = s + s_part
                             let seen = sum - s
                             s_low = s_low + (s - (sum - seen) + (s_part - seen))
                             s = sum
                           let sum_2 = s + s_low
                           s = where(sum_2 == sum_2, sum_2, s)

The rounding error of a sum grows with the number of additions to one variable. A block has at most
`MAX_ADDITIONS` of them. The rounding error of adding its total is summed separately (TwoSum: Knuth,
volume 2; Ogita, Rump and Oishi 2005), so the error does not grow with the number of blocks. The
order of iterations does not change, so the loops may compute other things too. A sum may be an
element of a
buffer, such as the sum of a column.

Sums at data-dependent indices, as in a scatter, are not rewritten.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from weft_compiler.ir.expressions import (
    Apply,
    Expr,
    Load,
    Variable,
    add,
    apply,
    index,
    is_same,
    number,
    walk as parts,
    where,
)
from weft_compiler.ir.loops import nest, num_iterations, strip_mine
from weft_compiler.ir.mutator import StatementMutator, keep_if_unchanged, map_bodies, with_body
from weft_compiler.ir.names import Names, declared_names, used_names, variable_names
from weft_compiler.ir.program import (
    Allocate,
    Assign,
    Body,
    Buffer,
    For,
    Let,
    Order,
    Program,
    Statement,
    Store,
    Var,
    While,
    bodies,
    expressions,
    loads,
    walk,
)
from weft_compiler.passes.effects import Buffers, interface_buffers, with_allocations
from weft_compiler.passes.framework import Context
from weft_compiler.passes.scope import ScopedMutator
from weft_tensor.dtypes import DType

MAX_ADDITIONS: Final = 64
"""Maximum number of additions to one variable, or to a lane of it, in a block."""
_LANE_BYTES: Final = 8
"""Size of the widest element type: a vector loop has at least one lane for each of these bytes."""
_MIN_ADDITIONS: Final = 8
"""Minimum number of additions to each sum in a block; adding its total costs several."""
_UNKNOWN_TRIP_COUNT: Final = 1 << 20
"""Trip count that is assumed if it is unknown."""

_Indices = tuple[Expr, ...]


def compensate_sums(program: Program, context: Context) -> Program:
    """Split long sums into blocks whose totals are added with compensation."""
    compensation = _Compensation(Names(program), interface_buffers(program), context)
    return with_body(program, compensation.rewrite_program(program.body))


@dataclass(frozen=True, slots=True, eq=False)
class _Sum:
    """A variable, or elements of a buffer, that a loop only adds to.

    Attributes:
      shape: shape of the buffer; None for a variable.
      places: the indices of each addition; empty for a variable.
      variables: the variables of the loops whose iterations add to separate elements.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...] | None
    places: tuple[_Indices, ...]
    variables: frozenset[str]

    def axes(self, body: Body) -> tuple[int, ...]:
        """Return the axes along which a body adds to several elements."""
        inner_names = declared_names(body)
        return tuple(
            axis
            for axis, indices in enumerate(zip(*self.places, strict=True))
            if variable_names(indices) & inner_names
            or not all(is_same(item, indices[0]) for item in indices)
        )

    def sizes(self, axes: Sequence[int]) -> tuple[int, ...]:
        """Return the sizes of some axes."""
        return tuple((self.shape or ())[axis] for axis in axes)

    def is_updated_by(self, statement: Statement) -> bool:
        """Return True if a statement itself adds to it."""
        if self.shape is None:
            return isinstance(statement, Assign) and statement.name == self.name
        return isinstance(statement, Store) and statement.buffer == self.name

    def value(self, position: Sequence[Expr]) -> Expr:
        """Return the variable, or the element at some indices."""
        return _value(self.name, self.dtype, None if self.shape is None else position)

    def update(self, position: Sequence[Expr], value: Expr) -> Statement:
        """Return the statement that stores a new value."""
        return _put(self.name, None if self.shape is None else position, value)


def _value(name: str, dtype: DType, position: Sequence[Expr] | None) -> Expr:
    return Variable(dtype, name) if position is None else Load(dtype, name, tuple(position))


def _put(name: str, position: Sequence[Expr] | None, value: Expr) -> Statement:
    return Assign(name, value) if position is None else Store(name, tuple(position), value)


class _Compensation(ScopedMutator):
    """Mutator of loops with long sums.

    Args:
      names: creates fresh names.
      context: the register size determines the minimal number of lanes.
    """

    def __init__(self, names: Names, buffers: Buffers, context: Context) -> None:
        super().__init__(buffers, context)
        self._name = names.new
        self._lanes = max(1, context.vector_bytes // _LANE_BYTES)

    def rewrite_program(self, body: Body) -> Body:
        """Rewrite the statements of a program; each loop nest remains a single statement."""
        self.buffers = with_allocations(self.buffers, body)
        statements: list[Statement] = []
        for item in body:
            new = self.rewrite_statement(item)
            if any(isinstance(part, Allocate) for part in new) and len(new) > 1:
                new = (For(self._name("once"), index(1), new),)
            statements += new
        return keep_if_unchanged(body, statements)

    def rewrite_statement(self, statement: Statement) -> Body:
        """Return a statement; a loop is surrounded by the statements that compensate its sums."""
        compensated: Body = (statement,)
        if isinstance(statement, For) and statement.order is not Order.PARALLEL:
            sums = _collect_sums(statement, self.buffers)
            long = [item for item in sums if self._is_long(statement, item)]
            if long:
                compensated = self._compensate(statement, long)
        return tuple(map(self.rewrite_bodies, compensated))

    def _is_long(self, loop: For, summation: _Sum) -> bool:
        depth = self._depth_of(loop, summation)
        if depth <= MAX_ADDITIONS:
            return False
        totals = math.prod(summation.sizes(summation.axes(loop.body)))
        is_profitable = (
            totals * _MIN_ADDITIONS <= MAX_ADDITIONS * _num_additions(loop, summation) / depth
        )
        if is_profitable:
            self.context.record_applied(summation.name, "summed in blocks over %s", loop.variable)
        else:
            self.context.record_missed(
                summation.name, "a block would add too few terms to each total"
            )
        return is_profitable

    # ------------------------------------------------------------------------------ depths

    def _depth(self, body: Body, summation: _Sum) -> int:
        """Return the length of the longest chain of additions to an element, or to a lane of it."""
        return sum(self._depth_of(item, summation) for item in body)

    def _depth_of(self, statement: Statement, summation: _Sum) -> int:
        if summation.is_updated_by(statement):
            return 1
        inner = max((self._depth(body, summation) for body in bodies(statement)), default=0)
        if isinstance(statement, For) and statement.variable not in summation.variables:
            # Each lane of a vector loop has a partial sum, which shortens the chain of additions.
            return -(-_trip_count(statement) // self._lanes_of(statement)) * inner
        return inner * (_UNKNOWN_TRIP_COUNT if isinstance(statement, While) else 1)

    def _lanes_of(self, loop: For) -> int:
        return self._lanes if loop.order is Order.VECTOR and not _divides_integers(loop.body) else 1

    # ------------------------------------------------------------------------------ blocks

    def _compensate(self, loop: For, sums: Sequence[_Sum]) -> Body:
        """Return a loop with compensated sums, with the statements before and after it."""
        totals = [_Total(item, item.axes(loop.body), self._name) for item in sums]
        begins = [new for total in totals for new in total.emit_before()]
        ends = [new for total in totals for new in total.emit_after()]
        return (*begins, self._strip_mine(loop, totals), *ends)

    def _strip_mine(self, loop: For, totals: Sequence[_Total]) -> For:
        """Split a loop into blocks with partial sums, which are then added to the totals."""
        depths = {total: self._depth(loop.body, total.summation) for total in totals}
        deeper = [key for key, depth in depths.items() if depth > MAX_ADDITIONS]
        local_totals = [total for total in totals if total not in deeper]
        if deeper:
            loop = replace(loop, body=self._rewrite_inner(loop.body, deeper))
        if not local_totals:
            return loop
        size = min(MAX_ADDITIONS // depths[item] for item in local_totals) * self._lanes_of(loop)
        if size == 1:
            return replace(loop, body=self._add_by_parts(loop.body, local_totals))
        name = self._name("block")
        return strip_mine(
            loop, size, name, lambda inner: self._add_by_parts((inner,), local_totals)
        )

    def _rewrite_inner(self, body: Body, totals: Sequence[_Total]) -> Body:
        """Rewrite the body of a loop whose iterations each exceed a block."""
        statements: list[Statement] = []
        for item in body:
            depths = {total: self._depth_of(item, total.summation) for total in totals}
            long = [total for total, depth in depths.items() if depth > MAX_ADDITIONS]
            short = [total for total, depth in depths.items() if 0 < depth <= MAX_ADDITIONS]
            if long and isinstance(item, For) and item.order is not Order.PARALLEL:
                item = self._strip_mine(item, long)
            elif long:
                item = map_bodies(item, lambda inner, long=long: self._rewrite_inner(inner, long))  # type: ignore[misc]
            statements += self._add_by_parts((item,), short)
        return tuple(statements)

    def _add_by_parts(self, body: Body, totals: Sequence[_Total]) -> Body:
        """Return statements that add to parts, and then add the parts to the totals."""
        begins: list[Statement] = []
        ends: list[Statement] = []
        for total in totals:
            started, body, added = total.split_part(body)
            begins += started
            ends += added
        return (*begins, *body, *ends)


class _Total:
    """A sum with its accumulated rounding error.

    Args:
      summation: the sum.
      axes: the axes along which its loop adds to several elements.
      name: creates fresh names.
    """

    def __init__(self, summation: _Sum, axes: tuple[int, ...], name: Callable[[str], str]) -> None:
        self.summation = summation
        self._axes, self._name = axes, name
        self._low = name(f"{summation.name}_low")

    def emit_before(self) -> Body:
        """Return the statements before the loop."""
        return self._emit_zeros(self._low, self._axes)

    def emit_after(self) -> Body:
        """Return the statements after the loop, which preserve infinities."""

        def end(*position: Expr) -> Body:
            place = self._place(self._axes, position)
            total = self.summation.value(place)
            low = _value(
                self._low, self.summation.dtype, None if self.summation.shape is None else position
            )
            corrected = self._define(add(total, low))
            value = Variable(self.summation.dtype, corrected.name)
            # The error term of an infinite total is inf - inf, which is NaN. The total is then
            # returned without it.
            is_number = apply("equal", value, value)
            return (corrected, self.summation.update(place, where(is_number, value, total)))

        return _vector_nest(self._name, self.summation.sizes(self._axes), end)

    def split_part(self, body: Body) -> tuple[Body, Body, Body]:
        """Redirect a body to a part.

        Return it, the setup of the part, and its addition to the sum.
        """
        axes, part = self.summation.axes(body), self._name(f"{self.summation.name}_part")
        return (
            self._emit_zeros(part, axes),
            _PartialSum(self.summation, part, axes).rewrite_body(body),
            self._emit_two_sum(part, axes),
        )

    def _emit_zeros(self, name: str, axes: Sequence[int]) -> Body:
        zero = number(0, self.summation.dtype)
        if self.summation.shape is None:
            return (Var(name, zero),)
        buffer = Buffer(name, self.summation.dtype, self.summation.sizes(axes))
        fill = _vector_nest(
            self._name, buffer.shape, lambda *position: (Store(name, position, zero),)
        )
        return (Allocate(buffer), *fill)

    def _emit_two_sum(self, part: str, axes: Sequence[int]) -> Body:
        """Return the TwoSum of the sum and a part."""
        dtype, is_stored = self.summation.dtype, self.summation.shape is not None

        def two_sum(*position: Expr) -> Body:
            place = self._place(axes, position)
            lost = tuple(place[axis] for axis in self._axes) if is_stored else None
            high, low = self.summation.value(place), _value(self._low, dtype, lost)
            term = _value(part, dtype, position if is_stored else None)
            total = self._define(add(high, term))
            new = Variable(dtype, total.name)
            rounded = self._define(apply("sub", new, high))
            rounded_term = Variable(dtype, rounded.name)
            of_high = apply("sub", high, apply("sub", new, rounded_term))
            error = add(of_high, apply("sub", term, rounded_term))
            return (
                total,
                rounded,
                _put(self._low, lost, add(low, error)),
                self.summation.update(place, new),
            )

        return _vector_nest(self._name, self.summation.sizes(axes), two_sum)

    def _define(self, value: Expr) -> Let:
        return Let(self._name("sum"), value)

    def _place(self, axes: Sequence[int], position: Sequence[Expr]) -> list[Expr]:
        """Return the indices of an element from those along some axes."""
        by_axis = dict(zip(axes, position, strict=True))
        return [by_axis.get(axis, place) for axis, place in enumerate(self.summation.places[0])]


class _PartialSum(StatementMutator):
    """Mutator that redirects the additions to a sum to a part of it.

    Args:
      part: the name of the variable or buffer of the part.
      axes: the axes of the sum that the part has.
    """

    def __init__(self, summation: _Sum, part: str, axes: Sequence[int]) -> None:
        self._summation, self._part, self._axes = summation, part, axes

    def rewrite_statement(self, statement: Statement) -> Statement | Body:
        if not self._summation.is_updated_by(statement):
            return super().rewrite_statement(statement)
        if isinstance(statement, Store):
            position = tuple(statement.indices[axis] for axis in self._axes)
            return replace(statement, buffer=self._part, indices=position)
        assert isinstance(statement, Assign)
        return replace(statement, name=self._part)


def _vector_nest(
    name: Callable[[str], str], sizes: Sequence[int], body: Callable[..., Body]
) -> Body:
    """Return loops over elements, the innermost a vector loop."""
    new = nest(name, sizes, body)
    return _InnermostVectorization().rewrite_body(new) if sizes else new


class _InnermostVectorization(StatementMutator):
    """Mutator that marks the innermost loops of nests as vector loops."""

    def rewrite_statement(self, statement: Statement) -> Statement | Body:
        if isinstance(statement, For) and not any(isinstance(x, For) for x in statement.body):
            return replace(statement, order=Order.VECTOR)
        return super().rewrite_statement(statement)


# ----------------------------------------------------------------------------------- sums


def _collect_sums(loop: For, buffers: Buffers) -> list[_Sum]:
    """Return the sums that a loop adds to in each iteration and does not use otherwise."""
    inner_names = declared_names(loop.body)
    starts = {
        item.variable: variable_names((item.start,))
        for item in walk((loop,))
        if isinstance(item, For) and item.start is not None
    }
    loops = {item.variable for item in walk(loop.body) if isinstance(item, For)}
    additions_of: dict[str, list[tuple[Statement, _Indices]]] = {}
    for item in walk(loop.body):
        if isinstance(item, Assign) and item.name not in inner_names:
            additions_of.setdefault(item.name, []).append((item, ()))
        elif isinstance(item, Store) and item.buffer not in inner_names:
            additions_of.setdefault(item.buffer, []).append((item, item.indices))
    used = used_names(loop.body) | {load.buffer for load in loads(loop.body)}
    sums = []
    for name, additions in additions_of.items():
        if name in used or not all(_is_addition(item) for item, _ in additions):
            continue
        places = tuple([indices for _, indices in additions])
        indexing = variable_names([item for indices in places for item in indices])
        variables = indexing | {start for item in indexing for start in starts.get(item, ())}
        plain = not any(isinstance(p, Load) for i in places for item in i for p in parts(item))
        if plain and loop.variable not in variables and variables & inner_names <= loops:
            shape = buffers[name].shape if name in buffers else None
            dtype = _added_value(additions[0][0]).dtype
            sums.append(_Sum(name, dtype, shape, places, frozenset(variables)))
    return sums


def _added_value(statement: Statement) -> Expr:
    assert isinstance(statement, Assign | Store)
    return statement.value


def _is_addition(statement: Statement) -> bool:
    return (
        isinstance(statement, Assign | Store)
        and statement.combine == "add"
        and statement.value.dtype.is_floating
    )


def _trip_count(loop: For) -> int:
    count = num_iterations(loop)
    return _UNKNOWN_TRIP_COUNT if count is None else math.ceil(count)


def _num_additions(statement: Statement, summation: _Sum) -> int:
    """Return the number of additions to all elements of a sum."""
    if summation.is_updated_by(statement):
        return 1
    inner = sum(_num_additions(item, summation) for body in bodies(statement) for item in body)
    if isinstance(statement, For):
        return inner * _trip_count(statement)
    return inner * (_UNKNOWN_TRIP_COUNT if isinstance(statement, While) else 1)


def _divides_integers(body: Body) -> bool:
    """Return True if integers are divided, because vector instructions cannot do this."""
    return any(
        isinstance(part, Apply)
        and part.dtype.is_integer
        and part.primitive in ("div", "floor_div", "floor_mod", "trunc_mod")
        for item in walk(body)
        for expression in expressions(item)
        for part in parts(expression)
    )

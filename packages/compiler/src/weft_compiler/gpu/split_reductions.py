"""Deterministic split reductions: threads compute partial results, a second kernel combines them.

    for i in 30000:                  for b in 938:
      for j in 10:                     for j in 10:
        s[j] add= x[i, j]                var own = -0.0
                                         for i in 32:
                                           if b * 32 + i < 30000:
                                             own add= x[b * 32 + i, j]
                                         parts[b, j] = own
                                     for j in 10:
                                       var whole = -0.0
                                       for b in 938:
                                         whole add= parts[b, j]
                                       s[j] add= whole

The number of parts depends only on the loops. Reductions into variables are split in the same way,
for the whole program or for few rows. In this module "sum" means any combination: also products,
minima, maxima and bitwise operations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from weft_compiler.gpu.launches import (
    PerfectNest,
    is_parallel,
    parallel_prefix,
    perfect_nest,
    static_extent,
    total_iterations,
)
from weft_compiler.ir.expressions import (
    INDEX,
    Expr,
    Load,
    Variable,
    apply,
    index,
    number,
    substitute,
    walk as parts_of,
)
from weft_compiler.ir.indices import plus, times
from weft_compiler.ir.mutator import StatementMutator, substitute_body, with_body
from weft_compiler.ir.names import Names, used_names, variable_names
from weft_compiler.ir.nests import nests_of
from weft_compiler.ir.program import (
    Allocate,
    Assign,
    Body,
    Buffer,
    Call,
    For,
    If,
    Let,
    Program,
    Statement,
    Store,
    Var,
    While,
    loads,
    walk,
)
from weft_compiler.passes.effects import Buffers, effects_of, interface_buffers, with_allocations
from weft_compiler.passes.framework import Context
from weft_tensor.dtypes import DType

FEW_ROWS: Final = 128
"""Number of rows below which one block per row leaves most of a GPU idle."""
LONG: Final = 1 << 15
"""Minimum number of elements of a row for which several blocks divide the row."""
PART: Final = 1 << 12
"""Minimum number of elements that a block sums."""
_MOST: Final = 1 << 10
"""Maximum number of blocks that compute partial sums, over all rows."""
_THREADS: Final = 1 << 14
"""Approximate number of threads that compute column sums."""
COLUMN: Final = 32
"""Minimum number of elements of a column that a thread sums."""

_LEAST: Final[Mapping[str, float]] = {"add": -0.0, "mul": 1, "maximum": -np.inf, "minimum": np.inf}


def split_column_sums(program: Program, context: Context) -> Program:
    """Split sums into buffers: each thread sums into a private variable; these are added."""
    return _split(program, context, _of_buffers)


def split_row_sums(program: Program, context: Context) -> Program:
    """Split long sums into variables: several blocks compute partial sums, which are added."""
    return _split(program, context, _of_variables)


def _split(
    program: Program,
    context: Context,
    find: Callable[[Body, Buffers], _ReductionNest | None],
) -> Program:
    buffers = with_allocations(interface_buffers(program), program.body)
    names = Names(program)
    begins: list[Statement] = [
        statement for statement in program.body if isinstance(statement, Allocate)
    ]
    body: list[Statement] = []
    for nest in nests_of(program):
        result = find(nest, buffers)
        if result is None:
            body += nest
            continue
        totals = ", ".join([statement.name for statement in result.totals])
        context.record_applied(totals, "combined from %d parts", result.parts)
        allocated, statements = result.cut(names)
        begins += allocated
        body += statements
    return with_body(program, (*begins, *body))


@dataclass(frozen=True, slots=True)
class _Total:
    """The target of a reduction.

    Attributes:
      name: the name of the variable or the buffer.
      place: the indices in the buffer; None for a variable.
    """

    name: str
    combine: str
    dtype: DType
    place: tuple[Expr, ...] | None

    @property
    def neutral(self) -> Expr:
        """Return the identity element of the combiner."""
        if self.dtype.is_bool:
            return number(self.combine == "bit_and", self.dtype)
        if self.combine.startswith("bit"):
            return number(-1 if self.combine == "bit_and" else 0, self.dtype)
        value = _LEAST[self.combine]
        if self.dtype.is_integer:
            if np.isfinite(value):
                return number(int(value), self.dtype)
            limits = np.iinfo(self.dtype.numpy)
            return number(int(limits.min if value < 0 else limits.max), self.dtype)
        return number(value, self.dtype)


@dataclass(frozen=True, slots=True)
class _ReductionNest:
    """The reductions in a nest, one for each iteration of the loops in `outer_loops`.

    Attributes:
      totals: the targets.
      outer_loops: the loops whose iterations have their own totals.
      summed: the reduced loops, with constant trip counts.
      body: the body of the innermost reduced loop.
      parts: the approximate number of parts of each total.
      surrounding: if the totals are variables, the statements before and after the reduced loops.
    """

    totals: tuple[_Total, ...]
    outer_loops: PerfectNest
    summed: PerfectNest
    body: Body
    parts: int
    surrounding: tuple[Body, Body] | None = None

    def cut(self, names: Names) -> tuple[Body, Body]:
        """Return buffers for the partial results, and the statements that replace the nest."""
        blocks, inner, body = self._split_loops(names)
        indices = tuple([Variable(INDEX, loop.variable) for loop in (*blocks, *self.outer_loops)])
        shape = tuple([static_extent(loop) or 0 for loop in (*blocks, *self.outer_loops)])
        partial_names = {total.name: names.new(f"{total.name}_own") for total in self.totals}
        begin = [Var(partial_names[total.name], total.neutral) for total in self.totals]
        partial_body = (
            *begin,
            *wrap_in_loops(inner, _Accumulation(partial_names).rewrite_body(body)),
        )
        if not blocks and self.surrounding is None:
            ends = [self._store_totals(total, partial_names[total.name]) for total in self.totals]
            return (), wrap_in_loops(self.outer_loops, (*partial_body, *ends))
        buffers = {
            total.name: Buffer(names.new(f"{total.name}_parts"), total.dtype, shape)
            for total in self.totals
        }
        ends = [
            Store(
                buffers[total.name].name, indices, Variable(total.dtype, partial_names[total.name])
            )
            for total in self.totals
        ]
        first = wrap_in_loops((*blocks, *self.outer_loops), (*partial_body, *ends))
        loaded = {k: Load(total.dtype, total.name, indices) for k, total in buffers.items()}
        second = self._combining_loops(blocks, loaded, names)
        return tuple(map(Allocate, buffers.values())), (*first, *second)

    def _combining_loops(
        self, blocks: PerfectNest, parts: Mapping[str, Load], names: Names
    ) -> Body:
        """Return the loops that combine the partial results."""
        if self.surrounding is not None:
            steps = [Assign(total.name, parts[total.name], total.combine) for total in self.totals]
            prologue, epilogue = self.surrounding
            return wrap_in_loops(
                self.outer_loops, (*prologue, *wrap_in_loops(blocks, steps), *epilogue)
            )
        total_names = {total.name: names.new(f"{total.name}_whole") for total in self.totals}
        begin = [Var(total_names[total.name], total.neutral) for total in self.totals]
        steps = [
            Assign(total_names[total.name], parts[total.name], total.combine)
            for total in self.totals
        ]
        ends = [self._store_totals(total, total_names[total.name]) for total in self.totals]
        return wrap_in_loops(self.outer_loops, (*begin, *wrap_in_loops(blocks, steps), *ends))

    def _split_loops(self, names: Names) -> tuple[PerfectNest, PerfectNest, Body]:
        """Return the loops over the parts, the loops within each part, and the body."""
        blocks: list[For] = []
        remainder, body, remaining_parts = list(self.summed), self.body, self.parts
        while remainder and remaining_parts > 1:
            loop = remainder.pop(0)
            extent = static_extent(loop) or 0
            if extent <= remaining_parts:
                blocks.append(loop)
                remaining_parts //= max(1, extent)
                continue
            even = (
                count
                for count in range(remaining_parts, remaining_parts // 2, -1)
                if extent % count == 0
            )
            length = -(-extent // next(even, remaining_parts))
            block, name = Variable(INDEX, names.new("block")), names.new(loop.variable)
            within_block = For(name, index(length), ())
            blocks.append(For(block.name, index(-(-extent // length)), ()))
            iteration = plus(times(block, length), Variable(INDEX, name))
            body = _for_iteration(
                body, loop.variable, iteration, extent if extent % length else None, names
            )
            remainder.insert(0, within_block)
            break
        return tuple(blocks), tuple(remainder), body

    def _store_totals(self, total: _Total, variable: str) -> Statement:
        assert total.place is not None
        return Store(total.name, total.place, Variable(total.dtype, variable), total.combine)


def _for_iteration(
    body: Body, variable: str, iteration: Expr, bound: int | None, names: Names
) -> Body:
    """Return a body for one iteration, guarded by a bound."""
    if bound is None:
        return substitute_body(body, {variable: iteration})
    index_variable = Variable(
        INDEX, names.new(variable)
    )  # a name, because ranges are tracked by name
    body = substitute_body(body, {variable: index_variable})
    return (
        Let(index_variable.name, iteration),
        If(apply("less", index_variable, index(bound)), body),
    )


def _of_buffers(nest: Body, buffers: Buffers) -> _ReductionNest | None:
    """Return a nest as a reduction into elements of buffers.

    Some of its loops select the elements.
    """
    outermost = nest[0]
    if len(nest) > 1 or not isinstance(outermost, For) or _has_others(nest):
        return None
    chain = perfect_nest(outermost)
    names, body = _push_in(chain)
    totals = _find_stored_totals(body, buffers)
    combined = frozenset(total.name for total in totals)
    kept_loops = tuple([loop for loop in chain if is_parallel(loop, chain, buffers)])
    summed = tuple([loop for loop in chain if loop not in kept_loops])
    if not totals or not summed or not _are_free(chain, buffers, combined):
        return None
    within_nest = _defined_names(nest) - {loop.variable for loop in kept_loops}
    if any(variable_names(total.place or ()) & within_nest for total in totals):
        return None
    if any(load.buffer in combined for load in loads((*names, *body))):
        return None
    parts = min(
        total_iterations(summed) // COLUMN, -(-_THREADS // max(1, total_iterations(kept_loops)))
    )
    return _ReductionNest(totals, kept_loops, summed, (*names, *body), parts)


def _of_variables(nest: Body, buffers: Buffers) -> _ReductionNest | None:
    """Return a nest as a reduction into variables, for the program or for each of a few rows."""
    outermost = nest[0]
    outer_loops: PerfectNest = (
        perfect_nest(outermost) if len(nest) == 1 and isinstance(outermost, For) else ()
    )
    names, body = _push_in(outer_loops) if outer_loops else ((), nest)
    index = [k for k, statement in enumerate(body) if isinstance(statement, For)]
    if len(index) != 1 or _has_others(nest) or not _are_free(outer_loops, buffers):
        return None
    loop, prologue, epilogue = body[index[0]], (*names, *body[: index[0]]), body[index[0] + 1 :]
    assert isinstance(loop, For)
    inner_buffers = with_allocations(buffers, body)
    summed = parallel_prefix(loop, inner_buffers)
    rows, length = max(1, total_iterations(outer_loops)), total_iterations(summed)
    if not summed or rows >= FEW_ROWS or length < LONG:
        return None
    totals = _find_assigned_totals(loop)
    first = {statement.name for statement in prologue if isinstance(statement, Var)}
    written = effects_of((loop,), inner_buffers).writes.keys()
    values: dict[str, Expr] = {}
    for statement in prologue:
        if isinstance(statement, Let):
            values[statement.name] = substitute(statement.value, values)
        elif not isinstance(statement, Var):
            return None
    if (
        not totals
        or {statement.name for statement in totals} != first
        or _loaded_buffers(values) & written
    ):
        return None
    inner_names, inner = _push_in(summed)
    inner = substitute_body((*inner_names, *inner), values)
    if used_names(inner) & first or not all(
        isinstance(statement, Let | Store | Assign) for statement in epilogue
    ):
        return None
    parts = min(length // PART, -(-_MOST // rows))
    return _ReductionNest(totals, outer_loops, summed, inner, parts, (prologue, epilogue))


def _has_others(nest: Body) -> bool:
    """Return True if a nest has calls or loops of unknown trip count, which prevent splitting."""
    return any(
        isinstance(statement, Call | While)
        or (isinstance(statement, For) and static_extent(statement) is None)
        for statement in walk(nest)
    )


def _push_in(chain: PerfectNest) -> tuple[Body, Body]:
    """Move the names that are defined between the loops of a nest into its body."""
    names = [statement for loop in chain[:-1] for statement in loop.body[:-1]]
    return tuple(names), chain[-1].body


def _are_free(chain: PerfectNest, buffers: Buffers, combined: frozenset[str] = frozenset()) -> bool:
    return all(is_parallel(loop, chain, buffers, combined) for loop in chain)


def _find_stored_totals(body: Body, buffers: Buffers) -> tuple[_Total, ...]:
    """Return the elements of outer buffers that a body combines values into, once each."""
    stores = [statement for statement in walk(body) if isinstance(statement, Store)]
    names = [statement.buffer for statement in stores]
    return tuple(
        [
            _Total(statement.buffer, statement.combine, statement.value.dtype, statement.indices)
            for statement in stores
            if statement.combine is not None
            and statement.buffer in buffers
            and names.count(statement.buffer) == 1
        ]
    )


def _find_assigned_totals(loop: For) -> tuple[_Total, ...]:
    """Return the variables defined outside that a loop combines values into."""
    own_names = {
        statement.name for statement in walk(loop.body) if isinstance(statement, Let | Var)
    }
    names: dict[str, _Total] = {}
    for statement in walk(loop.body):
        if isinstance(statement, Assign) and statement.name not in own_names:
            assert statement.combine is not None, "the loop's turns are free"
            names[statement.name] = _Total(
                statement.name, statement.combine, statement.value.dtype, None
            )
    return tuple(names.values())


def _defined_names(nest: Body) -> set[str]:
    """Return the names that a nest defines, including loop variables."""
    names = {statement.name for statement in walk(nest) if isinstance(statement, Let | Var)}
    return names | {statement.variable for statement in walk(nest) if isinstance(statement, For)}


def _loaded_buffers(values: Mapping[str, Expr]) -> set[str]:
    """Return the buffers that expressions load from."""
    result = [part for value in values.values() for part in parts_of(value)]
    return {part.buffer for part in result if isinstance(part, Load)}


class _Accumulation(StatementMutator):
    """Mutator that redirects reductions from buffers or variables to other variables.

    Args:
      variables: the variables, by the buffers and variables that they replace.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def rewrite_statement(self, statement: Statement) -> Statement | Body:
        if isinstance(statement, Store) and statement.buffer in self._variables:
            name = self._variables[statement.buffer]
            return Assign(name, statement.value, statement.combine)
        if isinstance(statement, Assign) and statement.name in self._variables:
            return replace(statement, name=self._variables[statement.name])
        return super().rewrite_statement(statement)


def wrap_in_loops(chain: Sequence[For], body: Sequence[Statement]) -> Body:
    """Wrap a body in copies of loops."""
    result = tuple(body)
    for loop in reversed(chain):
        result = (For(loop.variable, loop.extent, result),)
    return result

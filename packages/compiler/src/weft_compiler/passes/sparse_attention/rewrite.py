"""Sparse attention: skips columns whose probability is exactly zero, as after a causal mask.

    for block in 16:                       for i ...: counts[block] maximum= ... mask[i, j] ...
      call gemm(q[..], k, s, n=1024)       for block in 16:
      for i in 64:                           let n = where(bounded, counts[block], 1024)
        ... p[i, j] of s[i, j] + mask ...    call gemm(q[..], k, s, n=n)
      call gemm(p, v, y[..], k=1024)         for i in 64: ... j in n ...
                                             call gemm(p, v, y[..], k=n)

A probability is exp(x - m) divided by a sum. It is exactly zero if the score x is far enough below
the maximum m of its row. x depends on a product s and on a mask, which is known before s. If s is
in [-BOUND, BOUND] and x is monotonic in s, then x is between its values at the two bounds. `counts`
has the number of columns to compute for each block of rows: after these columns all scores are too
low for any products within the bounds. The norms of the operands prove the bounds before the
product: |q k| <= |q| |k|. If they do not prove them, for example because of NaN, all columns are
computed.

Finite factors of zero probabilities contribute nothing; the same norms prove that they are finite.
The same bound lets us skip the rows of v for these columns and, in the gradient, the products that
multiply zero probabilities. Blocks that are read elsewhere are filled with zeros, and their number
of columns is recorded.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from weft_compiler.ir.expressions import (
    INDEX,
    Constant,
    Expr,
    Load,
    Variable,
    apply,
    index,
    is_same,
    number,
    walk as parts,
    where,
)
from weft_compiler.ir.indices import is_number, over
from weft_compiler.ir.mutator import with_body
from weft_compiler.ir.names import Names
from weft_compiler.ir.program import (
    Allocate,
    Assign,
    Body,
    Buffer,
    Call,
    For,
    Let,
    Program,
    Statement,
    Store,
    Var,
    loads,
    walk,
)
from weft_compiler.ir.ranges import affine
from weft_compiler.passes.effects import (
    Buffers,
    Effects,
    effects_of,
    interface_buffers,
    with_allocations,
)
from weft_compiler.passes.framework import Context
from weft_compiler.passes.sparse_attention.column_counts import (
    EXP_UNDERFLOW,
    MAX_DEPTH,
    MAX_SCORE,
    MAX_SQUARED_NORM,
    ROUNDING,
    CountEmitter,
    is_monotone,
    scale_factors,
    substitute_scores,
)
from weft_compiler.passes.sparse_attention.zero_columns import (
    COLUMN,
    ColumnLoops,
    LoopFacts,
    MatchFailure,
    RowDefinitions,
    Softmax,
    require,
    static_extent,
    uses_variable,
)
from weft_compiler.routines.gemm import Gemm, Matmul
from weft_tensor import dtypes

_PRODUCTS: Final = (Gemm, Matmul)
_MIN_COLUMNS: Final = 256
"""Minimum number of columns for which skipping pays off."""

_NOT_ALIGNED: Final = "its blocks of rows do not match those of the probabilities"
_NO_PRODUCT: Final = "probabilities are used by a routine other than a matrix product"
_NOT_FIRST: Final = "probabilities are not the first operand of a product"
_NO_MATRIX: Final = "an operand of a product is not a matrix of a buffer"


def skip_masked_columns(program: Program, context: Context) -> Program:
    """Skip the computations for attention probabilities that are exactly zero."""
    names = Names(program)
    buffers = with_allocations(interface_buffers(program), program.body)
    probabilities: dict[str, _StoredProbabilities] = {}
    body: list[Statement] = []
    for statement in program.body:
        outer = _TopLevelStatement(program, names, buffers, statement, probabilities, context)
        rewritten = outer.visit(statement, (), buffers)
        body += [*outer.statements_before, rewritten]
    return with_body(program, tuple(body))


class _StoredProbabilities(NamedTuple):
    """Probabilities that are stored in memory completely.

    Attributes:
      counts: the buffer with the number of possibly nonzero columns for each block of rows.
      rows: the number of rows of a block.
      blocks: the number of blocks.
    """

    counts: str
    rows: int
    blocks: int


class _TopLevelStatement:
    """A top-level statement of the program.

    Attributes:
      statements_before: the statements before it.
    """

    def __init__(
        self,
        program: Program,
        names: Names,
        buffers: Buffers,
        statement: Statement,
        stored: dict[str, _StoredProbabilities],
        context: Context,
    ) -> None:
        self._program, self.context = program, context
        self.names, self.buffers, self.stored = names, buffers, stored
        self.statements_before: list[Statement] = []
        self._statement = statement

    @functools.cached_property
    def written(self) -> Collection[str]:
        """Return the buffers that the statement writes."""
        return effects_of((self._statement,), self.buffers).writes.keys()

    def is_only_writer(self, name: str) -> bool:
        """Return True if no other statement writes a buffer."""
        return all(
            statement is self._statement
            or name not in effects_of((statement,), self.buffers).writes
            for statement in self._program.body
        )

    def visit(self, statement: Statement, loops: tuple[For, ...], buffers: Buffers) -> Statement:
        """Rewrite a statement that contains blocks of rows, at any depth, to skip columns."""
        if not isinstance(statement, For):
            return statement
        enclosing_loops = (*loops, statement)
        inner = with_allocations(buffers, statement.body)
        statements: list[Statement] = []
        for inner_statement in statement.body:
            blocks = _try_rewrite(inner_statement, enclosing_loops, self, inner)
            statements += blocks or [self.visit(inner_statement, enclosing_loops, inner)]
        if all(a is b for a, b in zip(statements, statement.body, strict=False)):
            return statement
        return replace(statement, body=tuple(statements))


def _try_rewrite(
    statement: Statement, loops: tuple[For, ...], outer: _TopLevelStatement, buffers: Buffers
) -> list[Statement]:
    """Return a loop over blocks of rows that skips columns, with its setup.

    None if that is not possible.
    """
    if not isinstance(statement, For) or not isinstance(statement.extent, Constant):
        return []
    if not any(isinstance(body_statement, Call) for body_statement in statement.body):
        return []
    statements_before, stored_before = list(outer.statements_before), dict(outer.stored)
    try:
        rewritten = _AttentionLoop(statement, loops, outer, buffers).rewrite()
        outer.context.record_applied(statement.variable, "masked columns are skipped")
        return rewritten
    except MatchFailure as failure:
        outer.context.record_missed(statement.variable, str(failure))
        outer.statements_before[:] = statements_before
        outer.stored.clear()
        outer.stored.update(stored_before)
        return []


class _AttentionLoop:
    """A loop over blocks of rows."""

    def __init__(
        self, loop: For, loops: tuple[For, ...], outer: _TopLevelStatement, buffers: Buffers
    ) -> None:
        self.loop, self.loops, self.outer = loop, loops, outer
        self.outside = buffers
        self.buffers = with_allocations(buffers, loop.body)
        self.written = effects_of((loop,), buffers).writes.keys()
        self.names = outer.names
        local = {
            statement.buffer.name for statement in loop.body if isinstance(statement, Allocate)
        }
        columns = Variable(INDEX, self.names.new("columns"))
        self.facts = LoopFacts(self.names, local, columns)
        self.operands: dict[str, Load] = {}
        self.statements_before: list[Statement] = []

    def rewrite(self) -> list[Statement]:
        """Return the statements before the loop, and the rewritten loop."""
        self.facts.softmax = self._find_softmax()
        counts = (
            self._emit_counts(self.facts.softmax)
            if self.facts.softmax
            else self._find_stored_counts()
        )
        early, late = self._split_at_count(
            [(statement, self._rewrite_statement(statement)) for statement in self.loop.body]
        )
        require(late, "no statement depends on the number of columns")
        guards, guard_statements = self._emit_guards(early)
        count = where(guards, counts, index(self.facts.num_columns))
        clamped = apply("clamp", count, index(1), index(self.facts.num_columns))
        body = (
            *early,
            *guard_statements,
            Let(self.facts.columns.name, clamped),
            *self._emit_stored_counts(),
            *late,
        )
        return [*self.statements_before, replace(self.loop, body=body)]

    def _split_at_count(
        self, pairs: Sequence[tuple[Statement, Statement]]
    ) -> tuple[list[Statement], list[Statement]]:
        """Return the statements before the columns are counted, and those after.

        Args:
          pairs: statements and their replacements.
        """
        early: list[Statement] = []
        late: list[Statement] = []
        effects: list[Effects] = []
        for statement, new in pairs:
            effects_here = effects_of((statement,), self.buffers)
            stays = new is not statement or any(
                effects_here.conflicts(effect) for effect in effects
            )
            if stays and not isinstance(statement, Allocate):
                late.append(new)
                effects.append(effects_here)
            else:
                early.append(new)
        return early, late

    # ------------------------------------------------------------------ what is zero

    def _find_softmax(self) -> Softmax | None:
        """Find the first softmax over the rows of a product."""
        products = {
            statement.c.buffer: statement.n
            for statement in self.loop.body
            if isinstance(statement, _PRODUCTS) and statement.c.buffer in self.facts.local
        }
        for statement in self.loop.body:
            if isinstance(statement, For):
                rows = RowDefinitions(statement)
                for inner, assign in rows.maxima:
                    value = rows.expand(assign.value, inner)
                    scores = [
                        x for x in parts(value) if isinstance(x, Load) and x.buffer in products
                    ]
                    if scores and len({str(x) for x in scores}) == 1:
                        *_, row, column = scores[0].indices
                        by_element = column is COLUMN and str(row) == statement.variable
                        require(by_element, "the softmax is not over the rows of a product")
                        self.facts.num_columns = products[scores[0].buffer]
                        return Softmax(scores[0].buffer, value, statement, assign.name)
        return None

    def _find_stored_counts(self) -> Expr:
        """Return the number of columns of the stored probabilities that the blocks read."""
        counts: list[tuple[str, Expr]] = []
        for statement in self.loop.body:
            for load in loads((statement,)):
                if load.buffer in self.outer.stored and isinstance(statement, For | Call):
                    counts.append((load.buffer, self._stored_count(load, statement)))
        require(counts, "it neither computes a softmax of a product nor reads probabilities")
        is_one = len({(name, str(count)) for name, count in counts}) == 1
        require(is_one, "it reads probabilities of several softmaxes")
        name, count = counts[0]
        self.facts.zero.add(name)
        self.facts.num_columns = self.outside[name].shape[-1]
        return count

    def _stored_count(self, load: Load, user: Statement) -> Expr:
        """Return the number of columns in a block of stored probabilities."""
        probabilities = self.outer.stored[load.buffer]
        *leading, row, _ = load.indices
        if isinstance(user, For):
            rows = static_extent(user)
            is_aligned = affine(row) == {self.loop.variable: rows, user.variable: 1}
            require(is_aligned and not uses_variable(leading, user.variable), _NOT_ALIGNED)
        else:
            if not isinstance(user, _PRODUCTS):
                raise MatchFailure(_NO_PRODUCT)
            rows = user.k if user.a_row == 1 else user.m
            require(affine(row) == {self.loop.variable: rows}, _NOT_ALIGNED)
        require(rows and probabilities.rows % rows == 0, _NOT_ALIGNED)
        require(
            rows * static_extent(self.loop) <= probabilities.rows * probabilities.blocks,
            _NOT_ALIGNED,
        )
        index_variable = over(Variable(INDEX, self.loop.variable), probabilities.rows // rows)
        return Load(INDEX, probabilities.counts, (*leading, index_variable))

    def _reads_sparse(self, loop: For) -> bool:
        """Return True if a loop reads buffers with skipped columns."""
        return bool((self.facts.sparse) & {load.buffer for load in loads((loop,))})

    def _rewrite_statement(self, statement: Statement) -> Statement:
        if isinstance(statement, Call):
            return self._rewrite_product(statement)
        softmax = self.facts.softmax is not None and statement is self.facts.softmax.row
        if isinstance(statement, For) and (softmax or self._reads_sparse(statement)):
            return self._rewrite_rows(statement)
        effects = effects_of((statement,), self.buffers)
        touched = self.facts.partial & (effects.reads.keys() | effects.writes.keys())
        require(not touched, "a statement uses masked columns, which are not computed")
        return statement

    # ------------------------------------------------------------------ products

    def _rewrite_product(self, call: Call) -> Call:
        """Restrict a product to the counted columns."""
        touched = {view.buffer for view in call.views} & (self.facts.sparse)
        if not touched and not self._fills_columns(call):
            return call
        if not isinstance(call, _PRODUCTS) or call.sizes:
            raise MatchFailure(_NO_PRODUCT)
        a = call.a
        self._require_bounded(call.b, (call.k, call.b_row), (call.n, call.b_column))
        if not touched:
            is_plain = not call.accumulate and (call.a_column, call.b_row) == (1, 1)
            require(is_plain and call.c_row == call.n, "the scores are not rows of q times k")
            require(call.k <= MAX_DEPTH, "the vectors are too long to bound rounding errors")
            self._require_bounded(a, (call.m, call.a_row), (call.k, 1))
            self.facts.partial.add(call.c.buffer)
            return self._limit(call, "n")
        is_first = touched == {a.buffer} and a.buffer in self.facts.zero
        require(is_first and is_number(a.indices[-1], 0), _NOT_FIRST)
        if (call.a_row, call.a_column) == (self.facts.num_columns, 1):
            require(call.k == self.facts.num_columns, _NOT_FIRST)
            return self._limit(call, "k")
        is_transposed = (call.a_row, call.a_column) == (1, self.facts.num_columns)
        require(is_transposed and call.m == self.facts.num_columns, _NOT_FIRST)
        require(call.accumulate, "a product of transposed probabilities does not accumulate")
        return self._limit(call, "m")

    def _fills_columns(self, call: Call) -> bool:
        """Return True if a product computes the counted columns for this block only."""
        return (
            isinstance(call, _PRODUCTS)
            and call.c.buffer in self.facts.local
            and call.n == self.facts.num_columns
        )

    def _limit(self, call: Call, size: str) -> Call:
        return replace(call, sizes=((size, self.facts.columns),))

    def _require_bounded(self, view: Load, *axes: tuple[int, int]) -> None:
        """Require that an operand, a matrix in a buffer, is checked for non-finite values.

        Args:
          axes: the size and the stride along each axis of the matrix, in elements.
        """
        shape = self.buffers[view.buffer].shape
        require(view.buffer not in self.facts.sparse and len(shape) >= 2, _NO_MATRIX)
        (rows, _), (columns, _) = sorted(axes, key=lambda axis: axis[1], reverse=True)
        require(sorted(stride for _, stride in axes) == sorted((1, shape[-1])), _NO_MATRIX)
        require(columns <= shape[-1] and is_number(view.indices[-1], 0), _NO_MATRIX)
        if is_number(view.indices[-2], 0):
            require(rows <= shape[-2], _NO_MATRIX)
        elif len(shape) > 2:
            require(affine(view.indices[-2]) == {self.loop.variable: rows}, _NOT_ALIGNED)
            require(rows * static_extent(self.loop) <= shape[-2], _NOT_ALIGNED)
        known_value = self.operands.setdefault(view.buffer, view)
        is_one = all(map(is_same, known_value.indices[:-2], view.indices[:-2]))
        require(is_one, f"products read several matrices of {view.buffer}")

    # ------------------------------------------------------------------ rows

    def _rewrite_rows(self, loop: For) -> For:
        """Rewrite a loop over rows to skip columns."""
        rows = RowDefinitions(loop)
        statements: list[Statement] = []
        allocated = {
            statement.buffer.name for statement in loop.body if isinstance(statement, Allocate)
        }
        cut = ColumnLoops(self.facts, rows, allocated)
        for statement in loop.body:
            touches = {load.buffer for load in loads((statement,))} & (
                self.facts.sparse | cut.partial
            )
            if (
                isinstance(statement, For)
                and static_extent(statement) == self.facts.num_columns
                and touches
            ):
                statements += cut.rewrite(statement)
            else:
                stores = isinstance(statement, Store) and statement.buffer in self.facts.local
                require(not touches and not stores, "a row uses columns outside of loops over them")
                if isinstance(statement, Let):
                    cut.lets[statement.name] = statement.value
                statements.append(statement)
        self.facts.zero |= cut.zero - allocated
        self.facts.partial |= cut.partial - allocated
        return replace(loop, body=tuple(statements))

    # ------------------------------------------------------------------ how many count

    def _emit_counts(self, softmax: Softmax) -> Expr:
        """Emit the computation of the counts before the statement; return the count of a block."""
        require(self.facts.num_columns >= _MIN_COLUMNS, "there are too few columns")
        low, high = [
            substitute_scores(softmax.value, softmax.scores, sign * MAX_SCORE) for sign in (-1, 1)
        ]
        dtype = softmax.value.dtype
        require(
            dtype in EXP_UNDERFLOW and dtype is low.dtype,
            "it computes with an unsupported element type",
        )
        is_additive = is_monotone(softmax.value, softmax.scores)
        require(is_additive, "the mask is not additive")
        self.facts.factors = scale_factors(softmax.value, softmax.scores)
        used = {part.name for part in parts(low) if isinstance(part, Variable)}
        for part in parts(low):
            if isinstance(part, Load):
                is_outside = part.buffer in self.outer.buffers
                is_known = is_outside and part.buffer not in self.outer.written
                require(is_known, "the mask is computed in the same loop")
        is_scaled = all(factor.dtype is dtype for factor in self.facts.factors)
        require(is_scaled, "the scores are scaled by another type")
        axes = [loop for loop in (*self.loops, self.loop) if loop.variable in used]
        row = softmax.row if softmax.row.variable in used else None
        require(all(map(static_extent, axes)), "the number of rows is unknown")
        known_values = {loop.variable for loop in axes} | ({row.variable} if row else set())
        is_mask = used <= known_values | {COLUMN.name} and COLUMN.name in used
        require(is_mask, "no mask depends on the column alone or on row and column")
        # Examining the mask pays if several softmaxes share it.
        unused_loops = [loop for loop in self.loops if loop.variable not in used]
        is_shared = row is None or any(static_extent(loop) > 1 for loop in unused_loops)
        require(is_shared, "the mask is not shared by several heads or sequences")
        counts = Buffer(
            self.names.new("counts"), INDEX, tuple([static_extent(loop) for loop in axes]) or (1,)
        )
        fill = CountEmitter(self.names, dtype, self.facts.num_columns, self.facts.factors).emit(
            counts, axes, row, low, high
        )
        self.outer.statements_before += [Allocate(counts), *fill]
        index_variable: list[Expr] = [Variable(INDEX, loop.variable) for loop in axes]
        return Load(INDEX, counts.name, tuple(index_variable) or (index(0),))

    def _emit_guards(self, early: Sequence[Statement]) -> tuple[Expr, Body]:
        """Return the condition that operands are finite and scores bounded, and its statements.

        Returns: also the statements in the block, for operands that are computed there.
        """
        lengths: dict[str, Variable] = {}
        local_statements: list[Statement] = []
        filled = effects_of(early, self.buffers).writes
        for name, view in self.operands.items():
            is_known = name in filled if name in self.facts.local else name not in self.written
            require(is_known, f"{name} is not complete before the columns are counted")
            length, statements = self._emit_norm(view)
            lengths[name] = length
            (local_statements if name in self.facts.local else self.statements_before).extend(
                statements
            )
            if name not in self.facts.local:
                is_fixed = not uses_variable(view.indices[:-2], self.loop.variable)
                require(is_fixed, f"each block reads another matrix of {name}")
        condition: Expr = number(True, dtypes.bool_)
        for length in lengths.values():
            finite = apply("less", length, number(MAX_SQUARED_NORM, length.dtype))
            condition = apply("bit_and", condition, finite)
        if self.facts.softmax is not None:
            call = next(
                statement
                for statement in self.loop.body
                if isinstance(statement, _PRODUCTS)
                and statement.c.buffer == self.facts.softmax.scores
            )
            q, k = [lengths[view.buffer] for view in (call.a, call.b)]
            limit = number(MAX_SCORE**2 * (1 - 64 * ROUNDING), q.dtype)
            condition = apply("bit_and", condition, apply("less", apply("mul", q, k), limit))
        return condition, tuple(local_statements)

    def _emit_norm(self, view: Load) -> tuple[Variable, Body]:
        """Emit the largest squared norm of a row of the last two dimensions."""
        buffer = self.buffers[view.buffer]
        maximum = Variable(view.dtype, self.names.new(f"{view.buffer}_most"))
        total = Variable(view.dtype, self.names.new(f"{view.buffer}_square"))
        i, j = [Variable(INDEX, self.names.new(name)) for name in ("i", "j")]
        x = Load(view.dtype, view.buffer, (*view.indices[:-2], i, j))
        zero = number(0, view.dtype)
        columns = For(
            j.name,
            index(buffer.shape[-1]),
            (Assign(total.name, apply("mul", x, x), "add"),),
        )
        row = (Var(total.name, zero), columns, Assign(maximum.name, total, "maximum"))
        return maximum, (Var(maximum.name, zero), For(i.name, index(buffer.shape[-2]), row))

    def _emit_stored_counts(self) -> Body:
        """Emit stores of the numbers of columns of probabilities that are stored as a whole."""
        stores: list[Statement] = []
        for name in sorted(self.facts.zero - self.facts.local - self.outer.stored.keys()):
            store = next(
                (statement, inner)
                for statement in self.loop.body
                if isinstance(statement, For)
                for inner in walk(statement.body)
                if isinstance(inner, Store) and inner.buffer == name
            )
            rows, (*leading, row, _) = static_extent(store[0]), store[1].indices
            probabilities = self.outer.buffers.get(name)
            if probabilities is None or uses_variable(leading, store[0].variable):
                continue
            if not self.outer.is_only_writer(name) or affine(row) != {
                self.loop.variable: rows,
                store[0].variable: 1,
            }:
                continue
            shape = (*probabilities.shape[:-2], static_extent(self.loop))
            counts = Buffer(self.names.new(f"{name}_columns"), INDEX, shape)
            self.outer.statements_before.append(Allocate(counts))
            block = Variable(INDEX, self.loop.variable)
            stores.append(Store(counts.name, (*leading, block), self.facts.columns))
            self.outer.stored[name] = _StoredProbabilities(
                counts.name, rows, static_extent(self.loop)
            )
        return tuple(stores)

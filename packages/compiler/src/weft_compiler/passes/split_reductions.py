"""Reduction splitting: splits loops that combine values into blocks with partial results.

    for i in 1024:                 parallel b in 16:
      s[j] add= x[i, j]              own[j] = 0.0
                                     for i in 64:
                                       own[j] add= x[b * 64 + i, j]
                                     parts[b, j] = own[j]
                                   for b in 16:
                                     s[j] add= parts[b, j]

The number of blocks depends only on the loop, so results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from weft_compiler.ir.expressions import (
    INDEX,
    Constant,
    Expr,
    Load,
    Variable,
    index,
    number,
)
from weft_compiler.ir.indices import plus, times
from weft_compiler.ir.loops import nest
from weft_compiler.ir.mutator import (
    StatementMutator,
    substitute_body,
    with_body,
)
from weft_compiler.ir.names import Names, used_names
from weft_compiler.ir.program import (
    Allocate,
    Assign,
    Body,
    Buffer,
    Call,
    For,
    If,
    Let,
    Order,
    Program,
    Statement,
    Store,
    Var,
    While,
    loads,
    walk,
)
from weft_compiler.ir.work import estimate_work
from weft_compiler.passes.effects import Buffers, effects_of, interface_buffers
from weft_compiler.passes.framework import Context
from weft_compiler.passes.parallelize import (
    can_reorder,
    has_disjoint_stores,
)
from weft_compiler.passes.scope import ScopedMutator
from weft_tensor.dtypes import DType

MIN_WORK: Final = 200_000
"""Minimum number of operations of a loop that is split, because each block adds some."""
_BLOCK_COUNTS: Final = (16, 15, 14, 13, 12, 11, 10, 9, 8, 20, 18, 24, 32, 7, 6, 5, 4, 3, 2)
"""Preferred numbers of blocks; the first one that divides the trip count is used."""
_MIN_SHARED_BYTES: Final = 256
"""Minimum size of a partial result, in bytes, for which blocks combine values into it directly."""
_MIN_WORK_PER_ELEMENT: Final = 8
"""Minimum number of operations for each element of a result, which blocks combine again."""


def split_reductions(program: Program, context: Context) -> Program:
    """Split loops that combine values into blocks with partial results."""
    splitter = _Splitter(Names(program), interface_buffers(program), context)
    return with_body(program, splitter.rewrite_body(program.body))


_Nest = Callable[[Sequence[int], Callable[..., Statement]], Body]


class _Splitter(ScopedMutator):
    """Mutator that splits loops.

    Args:
      names: creates fresh names for variables and partial results.
    """

    def __init__(self, names: Names, buffers: Buffers, context: Context) -> None:
        super().__init__(buffers, context)
        self._name = names.new

    def rewrite_statement(self, statement: Statement) -> Statement | Body:
        buffers = self.buffers
        if not isinstance(statement, For | While | If) or estimate_work(statement) < MIN_WORK:
            return statement
        if isinstance(statement, For):
            if can_reorder(statement, buffers, combines=False):
                return statement
            combined = self._reduced_values(statement, buffers)
            blocks = _num_blocks(statement)
            if combined is None:
                self.context.record_missed(
                    statement.variable, "its iterations do not only combine values"
                )
            elif not blocks:
                self.context.record_missed(
                    statement.variable, "no number of blocks divides its range"
                )
            else:
                size = sum(buffers[name].size for name in combined if name in buffers)
                if size * blocks * _MIN_WORK_PER_ELEMENT <= estimate_work(statement):
                    self.context.record_applied(statement.variable, "split into %d blocks", blocks)
                    return self._split(statement, combined, blocks, buffers)
                self.context.record_missed(statement.variable, "its partial results are too large")
        return self.rewrite_bodies(statement)

    def _reduced_values(self, loop: For, buffers: Buffers) -> dict[str, tuple[str, DType]] | None:
        """Return the targets that iterations combine values into, with the combiner.

        None if they depend on each other.
        """
        effects = effects_of(loop.body, buffers)
        if effects.ends:
            return None
        allocated = {item.buffer.name for item in walk(loop.body) if isinstance(item, Allocate)}
        names = {item.name for item in walk(loop.body) if isinstance(item, Let | Var)}
        targets: dict[str, tuple[str, DType]] = {}
        shared = {
            name
            for name in effects.writes
            if name not in allocated and not has_disjoint_stores(loop, name, effects)
        }
        for item in walk(loop.body):
            match item:
                case Store(buffer=name, value=value, combine=combine) if name in shared:
                    dtype = value.dtype
                case Assign(name=name, value=value, combine=combine) if name not in names:
                    dtype = value.dtype
                case Call(views=views):
                    if shared & {view.buffer for view in views}:
                        return None
                    continue
                case _:
                    continue
            if combine not in _IDENTITY or targets.setdefault(name, (combine, dtype))[0] != combine:
                return None
        read = {load.buffer for load in loads(loop.body)} | used_names(loop.body)
        return None if read & targets.keys() or shared - targets.keys() else targets

    def _split(
        self, loop: For, combined: Mapping[str, tuple[str, DType]], blocks: int, buffers: Buffers
    ) -> Body:
        assert isinstance(loop.extent, Constant)
        block, block_size = Variable(INDEX, self._name("block")), int(loop.extent.value) // blocks
        iteration = plus(times(block, block_size), Variable(INDEX, loop.variable))
        body = substitute_body(loop.body, {loop.variable: iteration})
        allocations: Body = ()
        block_body: Body = (replace(loop, extent=index(block_size), body=body),)
        combinations: Body = ()
        for name, (combine, dtype) in combined.items():
            shape = buffers[name].shape if name in buffers else ()
            parts = Buffer(self._name(f"{name}_parts"), dtype, (blocks, *shape))
            part = _PartialResult(name, combine, parts, block, name in buffers)
            private_name = (
                "" if parts.bytes >= _MIN_SHARED_BYTES * blocks else self._name(f"{name}_own")
            )
            allocations = (*allocations, Allocate(parts))
            block_body = part.emit_partial(block_body, private_name, self._nest)
            combinations = (*combinations, *part.emit_combination(self._nest))
        return (
            *allocations,
            For(block.name, index(blocks), block_body, Order.PARALLEL),
            *combinations,
        )

    def _nest(self, shape: Sequence[int], store: Callable[..., Statement]) -> Body:
        return nest(lambda _: self._name("at"), shape, lambda *position: (store(*position),))


@dataclass(frozen=True, slots=True)
class _PartialResult:
    """Partial results of a value that all iterations combine into.

    Attributes:
      name: name of the variable or the buffer.
      parts: the buffer of the partial results.
      block: the index of the block.
      stored: True for a buffer.
    """

    name: str
    combine: str
    parts: Buffer
    block: Expr
    stored: bool

    @property
    def _identity(self) -> Expr:
        """Return the identity element of the combiner."""
        dtype, value = self.parts.dtype, _IDENTITY[self.combine]
        if dtype.is_integer and not np.isfinite(value):
            # Integers have no infinities, so the limits of the type are the identity elements.
            limits = np.iinfo(dtype.numpy)
            return number(int(limits.min if value < 0 else limits.max), dtype)
        return number(value, dtype)

    def emit_partial(self, body: Body, private_name: str, nest: _Nest) -> Body:
        """Return the statements of a block, which combine values into its partial result.

        Args:
          private_name: the name of a block-local buffer for small partial results, which would
            otherwise share cache lines; "" for none.
        """
        shape, dtype, parts = self.parts.shape[1:], self.parts.dtype, self.parts.name
        if not self.stored:
            stored = Store(parts, (self.block,), Variable(dtype, private_name))
            redirected = _Redirection(self.name, private_name).rewrite_body(body)
            return (Var(private_name, self._identity), *redirected, stored)
        if private_name:
            first = nest(shape, lambda *position: Store(private_name, position, self._identity))
            last = nest(
                shape,
                lambda *position: Store(
                    parts, (self.block, *position), Load(dtype, private_name, position)
                ),
            )
            allocated = Allocate(Buffer(private_name, dtype, shape))
            redirected = _Redirection(self.name, private_name).rewrite_body(body)
            return (allocated, *first, *redirected, *last)
        first = nest(shape, lambda *position: Store(parts, (self.block, *position), self._identity))
        return (*first, *_Redirection(self.name, parts, (self.block,)).rewrite_body(body))

    def emit_combination(self, nest: _Nest) -> Body:
        """Return the statements that combine the partial results."""
        dtype = self.parts.dtype

        def step(*position: Expr) -> Statement:
            value = Load(dtype, self.parts.name, position)
            if self.stored:
                return Store(self.name, position[1:], value, self.combine)
            return Assign(self.name, value, self.combine)

        return nest(self.parts.shape, step)


def _num_blocks(loop: For) -> int:
    """Return the number of blocks of a loop; 0 if its trip count is unknown or has no divisor."""
    if loop.order is not Order.SERIAL or not isinstance(loop.extent, Constant):
        return 0
    trip_count = int(loop.extent.value)
    return next(
        (count for count in _BLOCK_COUNTS if trip_count >= count and trip_count % count == 0), 0
    )


class _Redirection(StatementMutator):
    """Mutator that replaces the target of stores and assignments.

    Args:
      name: the target, a buffer or a variable.
      other: its replacement.
      block: indices of the replacement before those of a store.
    """

    def __init__(self, name: str, other: str, block: tuple[Expr, ...] = ()) -> None:
        self._name, self._target, self._block = name, other, block

    def rewrite_statement(self, statement: Statement) -> Statement | Body:
        if isinstance(statement, Store) and statement.buffer == self._name:
            indices = (*self._block, *statement.indices)
            return replace(statement, buffer=self._target, indices=indices)
        if isinstance(statement, Assign) and statement.name == self._name:
            return replace(statement, name=self._target)
        return super().rewrite_statement(statement)


_IDENTITY: Final = {"add": 0, "mul": 1, "maximum": -np.inf, "minimum": np.inf}

"""Rematerialization: large temporaries are computed again for later uses instead of being kept.

    call gemm(q, k, s, ...)                call gemm(q, k, s, ...)
    for i in 4096:                         for i in 4096:
      ... p[i, j] of s[i, j] ...             ... p[i, j] of s[i, j] ...
    call gemm(p, v, y, ...)                call gemm(p, v, y, ...)
    call gemm(y, w, z, ...)                call gemm(y, w, z, ...)
    ...                                    ...
    for i in 4096:                         call gemm(q, k, s_2, ...)
      ... p[i, j] ...                      for i in 4096:
                                             ... p_2[i, j] of s_2[i, j] ...
                                             ... p_2[i, j] ...

A gradient takes what was computed on the way forward. Where that is large, and follows from what is
much smaller by products of few terms and elementwise functions, it is computed a second time before
those who need it later; what is small, as the sum of each row, is kept. Then neither copy is in
memory as a whole, as both are made in tiles of rows with what takes them (`passes.tile`): a step
of attention needs memory that grows with the length of a sequence, and not with its square. It is
tried out: what stays whole nevertheless is not computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from weft_compiler.ir.mutator import Renaming, with_body
from weft_compiler.ir.names import Names
from weft_compiler.ir.nests import defined_names
from weft_compiler.ir.program import (
    Allocate,
    Body,
    Call,
    For,
    Let,
    Program,
    Statement,
    Var,
    walk,
)
from weft_compiler.passes.effects import effects_of, interface_buffers, with_allocations
from weft_compiler.passes.framework import Context
from weft_compiler.passes.parallelize import estimate_work

_MIN_BYTES: Final = 1 << 26
"""Bytes from which on a temporary is computed again: to keep half as much takes less time."""
_MAX_BYTES_LEFT: Final = 1 << 23
"""Bytes of it that there may be at a time afterwards."""
_MIN_SIZE_RATIO: Final = 8
"""Ratio of its size to that of its operands, at least."""
_MAX_WORK: Final = 32
"""Operations that may be done again for each of its elements."""

_Producers = frozenset[str]
"""Buffers that are filled anew, so that one of them can be."""
_LateUses = dict[int, set[str]]
"""Of statements of a program that is made, by place, what would be computed again before them."""


def rematerialize(
    program: Program, context: Context, shrink: Callable[[Program], Program]
) -> Program:
    """Return the program with large temporaries computed again where that saves their memory.

    Args:
      shrink: runs the later passes that make buffers smaller, on trial.
    """
    flat = _TopLevel(program)
    chains: dict[str, _Producers] = {}
    for name in flat.large_temporaries():
        if chain := flat.producers(name):
            chains[name] = chain
        else:
            context.missed(name, "its producers take too much work, or have other effects")
    if not chains:
        return program
    shrunk = shrink(program)
    late_uses = _late_uses(shrunk, chains)
    while late_uses:
        recomputation = _Recomputation(flat, shrunk, chains, late_uses)
        sizes = _buffer_sizes(shrink(recomputation.program))
        whole = recomputation.impossible | {
            name
            for name, twins in recomputation.twins.items()
            if any(sizes.get(each, 0) > _MAX_BYTES_LEFT for each in (name, *twins))
        }
        if not whole:
            for name, twins in recomputation.twins.items():
                context.applied(name, "computed again as %s", ", ".join(twins))
            return recomputation.program
        for name in sorted(whole):
            context.missed(name, "it would stay in memory as a whole, or its operands change")
        remaining = {position: names - whole for position, names in late_uses.items()}
        late_uses = {position: names for position, names in remaining.items() if names}
    return program


def _late_uses(shrunk: Program, names: Mapping[str, object]) -> _LateUses:
    """Return the temporaries that are kept for statements after their producer.

    Returns: for which statements which.
    """
    allocated = {each.buffer.name for each in shrunk.body if isinstance(each, Allocate)}
    uses: _LateUses = {}
    filled: set[str] = set()
    buffers = with_allocations(interface_buffers(shrunk), shrunk.body)
    for position, statement in enumerate(shrunk.body):
        effects = effects_of((statement,), buffers)
        if read := effects.reads.keys() & filled:
            uses[position] = read
        filled |= effects.writes.keys() & names.keys() & allocated
    return uses


def _buffer_sizes(program: Program) -> dict[str, int]:
    """Bytes of the buffers of a program."""
    allocated = [each.buffer for each in walk(program.body) if isinstance(each, Allocate)]
    return {buffer.name: buffer.bytes for buffer in allocated}


class _TopLevel:
    """The statements of a program's own body, and which of them fill and take each temporary."""

    def __init__(self, program: Program) -> None:
        self.program = program
        outer = with_allocations(interface_buffers(program), program.body)
        self.effects = [effects_of((each,), outer) for each in program.body]
        self.buffers = {
            each.buffer.name: each.buffer for each in program.body if isinstance(each, Allocate)
        }
        self.fills: dict[str, list[int]] = {}
        self._reads: dict[str, list[int]] = {}
        for at, each in enumerate(self.effects):
            for name in each.writes:
                self.fills.setdefault(name, []).append(at)
            for name in each.reads:
                self._reads.setdefault(name, []).append(at)

    def large_temporaries(self) -> Iterator[str]:
        """Large temporaries that several statements take once they are filled."""
        for name, buffer in self.buffers.items():
            if buffer.bytes >= _MIN_BYTES and name in self.fills:
                filled = self.fills[name][-1]
                if sum(at > filled for at in self._reads.get(name, ())) > 1:
                    yield name

    def producers(self, name: str) -> _Producers:
        """Return the buffers to compute again for a temporary; empty if that is too much work."""
        chain: set[str] = set()
        waiting = [name]
        size = self.buffers[name].bytes
        while waiting:
            each = waiting.pop()
            if each in chain:
                continue
            chain.add(each)
            if not all(
                self._is_pure_producer(position, each) for position in self.fills.get(each, ())
            ):
                return frozenset()
            waiting += [
                other
                for other in self._producer_inputs(each)
                if other in self.buffers and self.buffers[other].bytes * _MIN_SIZE_RATIO > size
            ]
        total = sum(
            estimate_work(self.program.body[position])
            for each in chain
            for position in self.fills[each]
        )
        return frozenset(chain if total <= _MAX_WORK * self.buffers[name].size else ())

    def _is_pure_producer(self, at: int, name: str) -> bool:
        """Return True if a statement only fills one temporary, before others read it."""
        own, statement = self.effects[at], self.program.body[at]
        return (
            isinstance(statement, For | Call)
            and own.writes.keys() == {name}
            and own.uses <= own.defines
            and not own.ends
            and all(
                reader in self.fills[name] or reader > at for reader in self._reads.get(name, ())
            )
        )

    def _producer_inputs(self, name: str) -> set[str]:
        """Return the buffers that the producers of a temporary read."""
        return {other for at in self.fills[name] for other in self.effects[at].reads} - {name}

    def can_recompute(self, chain: _Producers, before: int) -> bool:
        """Return True if the producers of buffers can run again before a statement."""
        return all(
            not any(at < later < before for later in self.fills.get(other, ()))
            for name in chain
            for at in self.fills[name]
            for other in self.effects[at].reads.keys() - chain
        )


class _Recomputation:
    """A program with temporaries computed again.

    Args:
      made: what passes make of it as it is.
      chains: of temporaries what is filled anew for each.
      wanted: what is computed again for statements of `made`.

    Attributes:
      twins: of each of these its copies.
      impossible: those that cannot be, as where what they are computed from is not there any more.
    """

    def __init__(
        self,
        flat: _TopLevel,
        shrunk: Program,
        chains: Mapping[str, _Producers],
        late_uses: _LateUses,
    ) -> None:
        self._flat, self._chains = flat, chains
        self._names = Names(flat.program)
        self.twins: dict[str, list[str]] = {}
        self.impossible: set[str] = set()
        self._inserted: dict[int, Body] = {}
        self._renames: dict[int, Mapping[str, str]] = {}
        for position, names in late_uses.items():
            self._recompute_before(names, shrunk.body[position])
        self.program = with_body(
            flat.program,
            tuple(
                [
                    new
                    for position, each in enumerate(flat.program.body)
                    for new in (*self._inserted.get(position, ()), *self._renamed(position, each))
                ]
            ),
        )

    def _renamed(self, at: int, statement: Statement) -> Body:
        names = self._renames.get(at)
        return Renaming(names).rewrite_body((statement,)) if names else (statement,)

    def _recompute_before(self, names: set[str], statement: Statement) -> None:
        """Fill temporaries anew before what has become a statement of the made program."""
        flat, defined = self._flat, defined_names((statement,))
        users = [
            position
            for position, each in enumerate(flat.effects)
            if (each.writes.keys() | each.defines) & defined and position not in self._renames
        ]
        readers = [position for position in users if flat.effects[position].reads.keys() & names]
        if not readers:  # what has no name, as a check, cannot be found again
            self.impossible |= names
            return
        first = readers[0]
        possible = {name for name in names if flat.can_recompute(self._chains[name], first)}
        self.impossible |= names - possible
        recomputed = frozenset[str]().union(*[self._chains[name] for name in possible])
        twins, self._inserted[first] = self._clone_producers(recomputed)
        for name in possible:
            self.twins.setdefault(name, []).append(twins[name])
        self._renames |= dict.fromkeys([position for position in users if position >= first], twins)

    def _clone_producers(self, recomputed: _Producers) -> tuple[dict[str, str], Body]:
        """Names for buffers that are filled anew, and the statements that do so."""
        flat = self._flat
        twins = {name: self._names.new(name) for name in flat.buffers if name in recomputed}
        allocated = [
            Allocate(replace(flat.buffers[name], name=twin)) for name, twin in twins.items()
        ]
        fills = sorted({position for name in recomputed for position in flat.fills[name]})
        copies = [
            new for position in fills for new in self._clone(flat.program.body[position], twins)
        ]
        return twins, (*allocated, *copies)

    def _clone(self, statement: Statement, twins: Mapping[str, str]) -> Body:
        """A statement with other buffers, and names of its own."""
        declared = {
            each.variable if isinstance(each, For) else each.name
            for each in walk((statement,))
            if isinstance(each, For | Let | Var)
        }
        names = {**twins, **{name: self._names.new(name) for name in declared}}
        return Renaming(names).rewrite_body((statement,))

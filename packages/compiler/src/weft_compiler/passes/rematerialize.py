"""Rematerialization: recomputes large temporaries for later uses instead of keeping them.

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

A gradient reads forward values. If a large one is computed from much smaller operands, by products
with few terms and elementwise functions, it is computed again before its later uses. Small values,
such as row sums, are kept. Each copy is then tiled together with its users (`passes.tile`), so none
is ever in memory as a whole, and the memory of an attention step grows with the sequence length
instead of its square. The later passes run as a trial: temporaries that are not tiled are not
recomputed.
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
from weft_compiler.ir.work import estimate_work
from weft_compiler.passes.effects import effects_of, interface_buffers, with_allocations
from weft_compiler.passes.framework import Context

_MIN_BYTES: Final = 1 << 26
"""Minimal size of a rematerialized temporary, in bytes. Keeping half as much is faster than
recomputing it.
"""
_MAX_BYTES_LEFT: Final = 1 << 23
"""Maximum size of its tiles after rematerialization, in bytes."""
_MIN_SIZE_RATIO: Final = 8
"""Minimum ratio of its size to the size of its operands."""
_MAX_WORK: Final = 32
"""Maximum number of operations for recomputing one of its elements."""

_Producers = frozenset[str]
"""The buffers that must be filled again in order to recompute one of them."""
_LateUses = dict[int, set[str]]
"""The temporaries to recompute before each statement of the optimized program, by its position."""


def rematerialize(
    program: Program, context: Context, shrink: Callable[[Program], Program]
) -> Program:
    """Recompute large temporaries if that saves their memory.

    Args:
      shrink: runs the later passes that shrink buffers, as a trial.
    """
    flat = _TopLevel(program)
    chains: dict[str, _Producers] = {}
    for name in flat.large_temporaries():
        if chain := flat.producers(name):
            chains[name] = chain
        else:
            context.record_missed(name, "its producers need too much work, or have other effects")
    if not chains:
        return program
    shrunk = shrink(program)
    late_uses = _late_uses(shrunk, chains)
    # Recomputing one temporary changes how others are tiled. So each round tries the remaining ones
    # together, until all of them shrink.
    while late_uses:
        recomputation = _Recomputation(flat, shrunk, chains, late_uses)
        sizes = _buffer_sizes(shrink(recomputation.program))
        recomputed = recomputation.impossible | {
            name
            for name, counterparts in recomputation.twins.items()
            if any(sizes.get(item, 0) > _MAX_BYTES_LEFT for item in (name, *counterparts))
        }
        if not recomputed:
            for name, counterparts in recomputation.twins.items():
                context.record_applied(name, "computed again as %s", ", ".join(counterparts))
            return recomputation.program
        for name in sorted(recomputed):
            context.record_missed(
                name, "it would still be in memory as a whole, or its operands change"
            )
        remaining = {position: names - recomputed for position, names in late_uses.items()}
        late_uses = {position: names for position, names in remaining.items() if names}
    return program


def _late_uses(shrunk: Program, names: Mapping[str, object]) -> _LateUses:
    """Return temporaries that are used after the users of their producer.

    Returns: the temporaries, by the position of the statement that uses them late.
    """
    allocated = {item.buffer.name for item in shrunk.body if isinstance(item, Allocate)}
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
    """Return the sizes of the buffers of a program, in bytes."""
    allocated = [item.buffer for item in walk(program.body) if isinstance(item, Allocate)]
    return {buffer.name: buffer.bytes for buffer in allocated}


class _TopLevel:
    """The top-level statements of a program, with the producers and the users of each temporary."""

    def __init__(self, program: Program) -> None:
        self.program = program
        outer = with_allocations(interface_buffers(program), program.body)
        self.effects = [effects_of((item,), outer) for item in program.body]
        self.buffers = {
            item.buffer.name: item.buffer for item in program.body if isinstance(item, Allocate)
        }
        self.fills: dict[str, list[int]] = {}
        self._reads: dict[str, list[int]] = {}
        for index, effect in enumerate(self.effects):
            for name in effect.writes:
                self.fills.setdefault(name, []).append(index)
            for name in effect.reads:
                self._reads.setdefault(name, []).append(index)

    def large_temporaries(self) -> Iterator[str]:
        """Return large temporaries that several statements read."""
        for name, buffer in self.buffers.items():
            if buffer.bytes >= _MIN_BYTES and name in self.fills:
                filled = self.fills[name][-1]
                if sum(index > filled for index in self._reads.get(name, ())) > 1:
                    yield name

    def producers(self, name: str) -> _Producers:
        """Return the buffers to fill again for a temporary; empty if that is too much work."""
        chain: set[str] = set()
        waiting = [name]
        size = self.buffers[name].bytes
        while waiting:
            item = waiting.pop()
            if item in chain:
                continue
            chain.add(item)
            if not all(
                self._is_pure_producer(position, item) for position in self.fills.get(item, ())
            ):
                return frozenset()
            waiting += [
                operand
                for operand in self._producer_inputs(item)
                if operand in self.buffers and self.buffers[operand].bytes * _MIN_SIZE_RATIO > size
            ]
        total = sum(
            estimate_work(self.program.body[position])
            for item in chain
            for position in self.fills[item]
        )
        return frozenset(chain if total <= _MAX_WORK * self.buffers[name].size else ())

    def _is_pure_producer(self, index: int, name: str) -> bool:
        """Return True if a statement only fills one temporary, before other statements read it."""
        statement_effects, statement = self.effects[index], self.program.body[index]
        return (
            isinstance(statement, For | Call)
            and statement_effects.writes.keys() == {name}
            and statement_effects.uses <= statement_effects.defines
            and not statement_effects.ends
            and all(
                reader in self.fills[name] or reader > index for reader in self._reads.get(name, ())
            )
        )

    def _producer_inputs(self, name: str) -> set[str]:
        """Return the buffers that the producers of a temporary read."""
        return {operand for index in self.fills[name] for operand in self.effects[index].reads} - {
            name
        }

    def can_recompute(self, chain: _Producers, position: int) -> bool:
        """Return True if the producers of some buffers can run again before a statement."""
        return all(
            not any(index < later < position for later in self.fills.get(operand, ()))
            for name in chain
            for index in self.fills[name]
            for operand in self.effects[index].reads.keys() - chain
        )


class _Recomputation:
    """A program with recomputed temporaries.

    Args:
      made: the program after a trial optimization without recomputation.
      chains: for each temporary, the buffers to fill again.
      wanted: the temporaries to recompute before statements of `made`.

    Attributes:
      twins: the copies of each temporary.
      impossible: temporaries that cannot be recomputed, for example because their operands were
        overwritten.
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
                    for position, item in enumerate(flat.program.body)
                    for new in (*self._inserted.get(position, ()), *self._renamed(position, item))
                ]
            ),
        )

    def _renamed(self, index: int, statement: Statement) -> Body:
        names = self._renames.get(index)
        return Renaming(names).rewrite_body((statement,)) if names else (statement,)

    def _recompute_before(self, names: set[str], statement: Statement) -> None:
        """Recompute temporaries before a statement of the optimized program."""
        flat, defined = self._flat, defined_names((statement,))
        users = [
            position
            for position, effect in enumerate(flat.effects)
            if (effect.writes.keys() | effect.defines) & defined and position not in self._renames
        ]
        readers = [position for position in users if flat.effects[position].reads.keys() & names]
        if not readers:  # a statement that defines no name, such as a check, cannot be identified
            self.impossible |= names
            return
        first = readers[0]
        possible = {name for name in names if flat.can_recompute(self._chains[name], first)}
        self.impossible |= names - possible
        recomputed = frozenset[str]().union(*[self._chains[name] for name in possible])
        counterparts, self._inserted[first] = self._clone_producers(recomputed)
        for name in possible:
            self.twins.setdefault(name, []).append(counterparts[name])
        self._renames |= dict.fromkeys(
            [position for position in users if position >= first], counterparts
        )

    def _clone_producers(self, recomputed: _Producers) -> tuple[dict[str, str], Body]:
        """Return new names for recomputed buffers, and the statements that fill them."""
        flat = self._flat
        counterparts = {name: self._names.new(name) for name in flat.buffers if name in recomputed}
        allocated = [
            Allocate(replace(flat.buffers[name], name=counterpart))
            for name, counterpart in counterparts.items()
        ]
        fills = sorted({position for name in recomputed for position in flat.fills[name]})
        copies = [
            new
            for position in fills
            for new in self._clone(flat.program.body[position], counterparts)
        ]
        return counterparts, (*allocated, *copies)

    def _clone(self, statement: Statement, counterparts: Mapping[str, str]) -> Body:
        """Copy a statement with other buffers and fresh names."""
        declared = {
            item.variable if isinstance(item, For) else item.name
            for item in walk((statement,))
            if isinstance(item, For | Let | Var)
        }
        names = {**counterparts, **{name: self._names.new(name) for name in declared}}
        return Renaming(names).rewrite_body((statement,))

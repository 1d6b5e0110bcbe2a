"""Which statements of a program become one kernel, and whose turns its threads take.

A program runs as launches, one after the other.  Each computes a loop nest, in one of two ways:

- THREADS: each thread takes one turn of the free loops of a perfect nest, neighbours the turns of
  the innermost one, and runs what is inside by itself.
- ROWS: each block takes turns of the outer loops.  All of its threads run what is inside together:
  they share the turns of the free loops there, combine what these combine, and wait for each other
  where one reads what another has written.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from weft_compiler.ir.expressions import INDEX, Constant, Expr, Variable, substitute, walk as parts
from weft_compiler.ir.nests import nests_of
from weft_compiler.ir.program import (
    Allocate,
    Body,
    Call,
    For,
    If,
    Let,
    Program,
    Statement,
    Store,
    Var,
    While,
    expressions,
    loads,
    walk,
)
from weft_compiler.ir.ranges import affine
from weft_compiler.passes.effects import (
    Buffers,
    accesses,
    effects_of,
    interface_buffers,
    with_allocations,
)
from weft_compiler.passes.parallelize import can_reorder, estimate_work
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

WARP: Final = 32
FLAT: Final = 256
"""Threads of a block where each takes a turn by itself."""

MIN_ITERATIONS: Final = 32
"""Turns of a loop that are worth being shared by the threads of a block."""
_MOST: Final = 256
"""Threads of a block for a row, at most; a power of two."""
_MOST_ALONE: Final = 1024
"""The same where there is one row."""
BLOCK_BYTES: Final = 40 << 10
"""Memory that a block may have to itself; some more is for what its warps combine."""
_BLOCKS: Final = 1 << 16
"""Blocks of a launch by rows, at most; each then takes several."""
_FEW: Final = 1 << 14
"""Threads that a GPU has to have at least to be busy."""
_TOO_MUCH: Final = 1 << 22
"""Operations of one thread from which on a kernel takes tens of milliseconds."""

_INTEGERS: Final = (dtypes.int32, dtypes.int64, dtypes.uint32, dtypes.uint64)


def is_atomic(combine: str, dtype: DType) -> bool:
    """Whether a GPU combines an element of memory with a value in one instruction."""
    if combine == "add":
        return dtype in (dtypes.float32, dtypes.float64, *_INTEGERS)
    return combine != "mul" and dtype in _INTEGERS


class LaunchKind(enum.Enum):
    """How threads share a launch: see the module."""

    THREADS = "threads"
    ROWS = "rows"


PerfectNest = tuple[For, ...]
"""Loops, each the only statement but for names in the one before."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Statements that become a kernel.

    Attributes:
      body: what it computes.
      loops: those whose turns are taken one by a thread, or one by a block.
      shared: of ROWS, the chains of loops whose turns the threads of a block share.
      atomic: the buffers whose stores are atomic.
      count: how many turns of `loops` there are; of a routine, how many parts.
      threads: of each block.
    """

    way: LaunchKind
    body: Body
    loops: PerfectNest
    shared: tuple[PerfectNest, ...]
    atomic: frozenset[str]
    count: int
    threads: int

    @property
    def blocks(self) -> int:
        """How many blocks it is launched with."""
        if self.way is LaunchKind.THREADS:
            return -(-self.count // self.threads)
        return min(self.count, _BLOCKS)


def launches_of(program: Program, atomics: bool) -> list[Launch]:
    """The launches of a program.

    Args:
      atomics: whether floating-point numbers may be summed in whichever order threads come.
    Raises: UnimplementedError: too little of it can be done by many threads at once.
    """
    buffers = with_allocations(interface_buffers(program), program.body)
    return [_launch(group, buffers, atomics) for group in _groups(program)]


def _groups(program: Program) -> list[Body]:
    """The nests of a program; those that a name is used across are one."""
    groups: list[list[Statement]] = []
    defined: dict[str, int] = {}
    for nest in nests_of(program):
        used = [defined[name] for name in _variables(nest) if name in defined]
        first = min(used, default=len(groups))
        groups[first:] = [[each for group in groups[first:] for each in group] + list(nest)]
        defined = {name: min(at, first) for name, at in defined.items()}
        defined |= {each.name: first for each in nest if isinstance(each, Let | Var)}
    return [tuple(group) for group in groups]


def _variables(body: Body) -> set[str]:
    return {
        part.name
        for each in walk(body)
        for expression in expressions(each)
        for part in parts(expression)
        if isinstance(part, Variable)
    }


def _launch(group: Body, buffers: Buffers, atomics: bool) -> Launch:
    only = group[0]
    if len(group) == 1 and isinstance(only, Call):
        count = dict(only.parameters).get("blocks", 1)
        return Launch(LaunchKind.THREADS, group, (), (), frozenset(), count, FLAT)
    chain = perfect_nest(only) if len(group) == 1 and isinstance(only, For) else ()
    free = [loop for loop in chain if is_parallel(loop, chain, buffers)]
    atomic: frozenset[str] = frozenset()
    if len(free) < len(chain) and total_iterations(free) < _FEW:
        free, atomic = _with_atomics(chain, free, buffers, atomics)
    inner = chain[-1].body if chain else group
    if len(free) == len(chain) and not atomic:
        shared = parallel_nests(inner, with_allocations(buffers, inner))
        if _is_by_rows(chain, inner, shared):
            longest = max(map(total_iterations, shared))
            most = _MOST if chain else _MOST_ALONE
            threads = min(most, max(WARP, 1 << (longest - 1).bit_length()))
            return Launch(
                LaunchKind.ROWS, group, chain, shared, atomic, total_iterations(chain), threads
            )
    count = total_iterations(free)
    if sum(map(estimate_work, group)) // max(1, count) > _TOO_MUCH:
        raise errors.UnimplementedError("too little of it can be done by many threads at once")
    return Launch(LaunchKind.THREADS, group, tuple(free), (), atomic, count, FLAT)


def _with_atomics(
    chain: PerfectNest, free: list[For], buffers: Buffers, atomics: bool
) -> tuple[list[For], frozenset[str]]:
    """The loops of a chain that are free where stores are atomic, and what is stored to so."""
    combined = _combined(chain[0].body, buffers, atomics)
    more = [loop for loop in chain if is_parallel(loop, chain, buffers, combined)]
    return (more, combined) if len(more) > len(free) else (free, frozenset())


def _combined(body: Body, buffers: Buffers, floating: bool) -> frozenset[str]:
    """The buffers that are only combined with values, in one way that is atomic.

    Args:
      floating: also those whose sums depend on the order.
    """
    ways: dict[str, set[str | None]] = {}
    for each in walk(body):
        if isinstance(each, Store):
            ways.setdefault(each.buffer, set()).add(each.combine)
    read = {load.buffer for load in loads(body)}
    found = set()
    for buffer, how in ways.items():
        combine = next(iter(how))
        if buffer in read or len(how) > 1 or combine is None or buffer not in buffers:
            continue
        dtype = buffers[buffer].dtype
        if is_atomic(combine, dtype) and (floating or not dtype.is_floating):
            found.add(buffer)
    return frozenset(found)


def perfect_nest(loop: For) -> PerfectNest:
    """A loop, the only one inside of it, and so on."""
    found = [loop]
    while True:
        *names, last = found[-1].body
        if not isinstance(last, For) or not all(isinstance(each, Let) for each in names):
            return tuple(found)
        found.append(last)


def total_iterations(chain: Iterable[For]) -> int:
    """How many turns loops of known extents have together."""
    return math.prod([static_extent(loop) or 0 for loop in chain])


def static_extent(loop: For) -> int | None:
    """How many turns a loop has, where it is known."""
    return max(0, int(loop.extent.value)) if isinstance(loop.extent, Constant) else None


def is_parallel(
    loop: For, chain: PerfectNest, buffers: Buffers, atomic: Iterable[str] = ()
) -> bool:
    """Whether the turns of a loop of a chain may run in any order, whatever the others do."""
    if static_extent(loop) is None:
        return False
    apart = {*atomic, *disjoint_buffers(loop, buffers)}
    if not can_reorder(loop, buffers, combines=False, may_end=True, atomic=apart):
        return False
    outside = [name for each in chain[: chain.index(loop)] for name in each.body[:-1]]
    read = effects_of(outside, buffers).reads.keys()
    return read.isdisjoint(effects_of(loop.body, buffers).writes)


def disjoint_buffers(loop: For, buffers: Buffers) -> frozenset[str]:
    """The buffers of which each turn of a loop has a range to itself.

    As of `s[4 * i + j]` where j is below 4, whose turns are told by ranges of what is inside.
    """
    effects = effects_of(loop.body, buffers)
    inner = {each.variable: each for each in walk(loop.body) if isinstance(each, For)}
    extents = {name: static_extent(each) for name, each in inner.items()}
    names: dict[str, Expr] = {}
    for each in walk(loop.body):
        if isinstance(each, Let) and each.value.dtype is INDEX:
            names[each.name] = substitute(each.value, names)
    defined = {each.name for each in walk(loop.body) if isinstance(each, Let | Var)}

    def begin_of(index: Expr) -> dict[str, int] | None:
        """Where the range begins that an index is in, in one turn; None where it is not known."""
        terms = affine(substitute(index, names))
        if terms is None or terms.keys() & defined:
            return None
        ends = [(factor, extents[name]) for name, factor in terms.items() if name in extents]
        if any(factor < 0 or extent is None for factor, extent in ends):
            return None
        length = 1 + sum(factor * max(0, (extent or 0) - 1) for factor, extent in ends)
        if length > abs(terms.get(loop.variable, 0)):
            return None
        return {name: factor for name, factor in terms.items() if name not in extents}

    found = set()
    for buffer in effects.writes:
        known = [place for place in accesses(effects, buffer) if place is not None]
        if len(known) == len(list(accesses(effects, buffer))) and any(
            begins[0] is not None and all(each == begins[0] for each in begins)
            for begins in (list(map(begin_of, indices)) for indices in zip(*known, strict=True))
        ):
            found.add(buffer)
    return frozenset(found)


def parallel_nests(body: Body, buffers: Buffers) -> tuple[PerfectNest, ...]:
    """The chains of free loops of a body that all threads of a block run together."""
    found: list[PerfectNest] = []
    for each in body:
        if isinstance(each, For):
            chain = parallel_prefix(each, buffers)
            inside = with_allocations(buffers, each.body)
            found += [chain] if chain else parallel_nests(each.body, inside)
        elif isinstance(each, If):
            for side in (each.then, each.otherwise):
                found += parallel_nests(side, with_allocations(buffers, side))
        elif isinstance(each, While):
            found += parallel_nests(each.body, with_allocations(buffers, each.body))
    return tuple(found)


def parallel_prefix(loop: For, buffers: Buffers) -> PerfectNest:
    """The loops of a chain, from the first on, whose turns may run in any order."""
    found: list[For] = []
    chain = perfect_nest(loop)
    for each in chain:
        free = static_extent(each) is not None and can_reorder(
            each, buffers, combines=True, may_end=True, atomic=disjoint_buffers(each, buffers)
        )
        outside = [name for one in chain[: chain.index(each)] for name in one.body[:-1]]
        read = effects_of(outside, buffers).reads.keys()
        if not free or not read.isdisjoint(effects_of(each.body, buffers).writes):
            break
        found.append(each)
    return tuple(found)


def _is_by_rows(chain: PerfectNest, inner: Body, shared: Sequence[PerfectNest]) -> bool:
    """Whether blocks take the turns of a chain, and threads those of the loops inside."""
    if (
        not shared
        or max(map(total_iterations, shared)) < MIN_ITERATIONS
        or _has_other_loops(inner, shared)
    ):
        return False
    if any(isinstance(each, Call) for each in walk(inner)):
        return False
    if total_iterations(chain) < _FEW // WARP:
        return True
    return _neighbours(inner, {each[-1].variable for each in shared}) >= _neighbours(
        inner, {chain[-1].variable}
    )


def _has_other_loops(body: Body, shared: Sequence[PerfectNest]) -> bool:
    """Whether all threads of a block would do the same in some loop."""
    first = {id(chain[0]) for chain in shared}

    def other(each: Statement) -> bool:
        if isinstance(each, While):
            return True
        if isinstance(each, If):
            return any(map(other, (*each.then, *each.otherwise)))
        if not isinstance(each, For) or id(each) in first:
            return False
        inside = any(id(deeper) in first for deeper in walk(each.body))
        return not inside or any(map(other, each.body))

    return any(map(other, body))


def _neighbours(body: Body, variables: set[str]) -> int:
    """How many accesses of neighbouring turns of some loops are to neighbouring elements."""
    accesses = [load.indices for load in loads(body)]
    accesses += [each.indices for each in walk(body) if isinstance(each, Store)]
    count = 0
    for indices in accesses:
        terms = affine(indices[-1]) if indices else None
        count += terms is not None and any(terms.get(name) == 1 for name in variables)
    return count


def allocated_bytes(body: Body) -> int:
    """Bytes of the buffers that a body allocates."""
    return sum(each.buffer.bytes for each in walk(body) if isinstance(each, Allocate))

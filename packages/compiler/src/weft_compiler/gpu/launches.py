"""Partition of a program into kernels, and the assignment of iterations to threads.

A program runs as a sequence of launches.  Each computes a loop nest, in one of two ways:

- THREADS: each thread runs one iteration of the independent loops of a perfect nest; adjacent
  threads run adjacent iterations of the innermost one.
- ROWS: each block runs iterations of the outer loops.  All of its threads run their body together:
  they divide the iterations of the independent loops in it, reduce values across the block, and
  wait at barriers before they read data of other threads.
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
from weft_compiler.ir.work import estimate_work
from weft_compiler.passes.effects import (
    Buffers,
    accesses,
    effects_of,
    interface_buffers,
    with_allocations,
)
from weft_compiler.passes.parallelize import can_reorder
from weft_compiler.routines.philox import Philox
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

WARP: Final = 32
FLAT: Final = 256
"""Threads of a block for launches of kind THREADS."""

MIN_ITERATIONS: Final = 32
"""Smallest trip count worth dividing among the threads of a block."""
_MOST: Final = 256
"""Maximum number of threads of a block that processes a row; a power of two."""
_MOST_ALONE: Final = 1024
"""The same if there is only a single row."""
BLOCK_BYTES: Final = 40 << 10
"""Maximum shared memory of a block in bytes, not counting that for reductions across warps."""
_BLOCKS: Final = 1 << 16
"""Maximum number of blocks of a launch of kind ROWS; each then processes several rows."""
_FEW: Final = 1 << 14
"""Minimum number of threads that keep a GPU busy."""
_TOO_MUCH: Final = 1 << 22
"""Operations of one thread for which a kernel would take tens of milliseconds."""

_INTEGERS: Final = (dtypes.int32, dtypes.int64, dtypes.uint32, dtypes.uint64)


def is_atomic(combine: str, dtype: DType) -> bool:
    """Return True if a GPU has an atomic instruction for the combiner and type."""
    if combine == "add":
        return dtype in (dtypes.float32, dtypes.float64, *_INTEGERS)
    return combine != "mul" and dtype in _INTEGERS


class LaunchKind(enum.Enum):
    """The ways to assign iterations to threads; see the module."""

    THREADS = "threads"
    ROWS = "rows"


PerfectNest = tuple[For, ...]
"""Nested loops, outermost first.

Each contains only the next one, apart from definitions of names.
"""


@dataclass(frozen=True, slots=True)
class Launch:
    """Statements that run as one kernel.

    Attributes:
      body: the statements.
      loops: the loops whose iterations are assigned to threads, or to blocks.
      shared: for ROWS, the perfect nests whose iterations the threads of a block divide.
      atomic: the buffers with atomic stores.
      count: the number of iterations of `loops`, or of parts of a routine.
      threads: the number of threads per block.
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
        """The number of blocks of the launch."""
        if self.way is LaunchKind.THREADS:
            return -(-self.count // self.threads)
        return min(self.count, _BLOCKS)


def launches_of(program: Program, atomics: bool) -> list[Launch]:
    """Return the launches of a program.

    Args:
      atomics: True if floats may be summed in any order of threads.
    Raises: UnimplementedError: too few operations of the program can run in parallel for a GPU.
    """
    buffers = with_allocations(interface_buffers(program), program.body)
    return [_launch(group, buffers, atomics) for group in _groups(program)]


def _groups(program: Program) -> list[Body]:
    """Return the nests of a program; nests that share a name are in one group."""
    groups: list[list[Statement]] = []
    defined: dict[str, int] = {}
    for nest in nests_of(program):
        used = [defined[name] for name in _variables(nest) if name in defined]
        first = min(used, default=len(groups))
        groups[first:] = [
            [nest_statement for group in groups[first:] for nest_statement in group] + list(nest)
        ]
        defined = {name: min(index, first) for name, index in defined.items()}
        defined |= {statement.name: first for statement in nest if isinstance(statement, Let | Var)}
    return [tuple(group) for group in groups]


def _variables(body: Body) -> set[str]:
    return {
        part.name
        for statement in walk(body)
        for expression in expressions(statement)
        for part in parts(expression)
        if isinstance(part, Variable)
    }


def _launch(group: Body, buffers: Buffers, atomics: bool) -> Launch:
    statement = group[0]
    if len(group) == 1 and isinstance(statement, Call):
        count = statement.blocks if isinstance(statement, Philox) else 1
        return Launch(LaunchKind.THREADS, group, (), (), frozenset(), count, FLAT)
    chain = perfect_nest(statement) if len(group) == 1 and isinstance(statement, For) else ()
    free = [loop for loop in chain if is_parallel(loop, chain, buffers)]
    atomic: frozenset[str] = frozenset()
    if len(free) < len(chain) and total_iterations(free) < _FEW:
        free, atomic = _with_atomics(chain, free, buffers, atomics)
    inner = chain[-1].body if chain else group
    if len(free) == len(chain) and not atomic:
        shared = parallel_nests(inner, with_allocations(buffers, inner))
        if _is_by_rows(chain, inner, shared):
            longest = max(map(total_iterations, shared))
            maximum = _MOST if chain else _MOST_ALONE
            threads = min(maximum, max(WARP, 1 << (longest - 1).bit_length()))
            return Launch(
                LaunchKind.ROWS, group, chain, shared, atomic, total_iterations(chain), threads
            )
    count = total_iterations(free)
    if sum(map(estimate_work, group)) // max(1, count) > _TOO_MUCH:
        raise errors.UnimplementedError(
            "too few operations of the program can run in parallel for a GPU"
        )
    return Launch(LaunchKind.THREADS, group, tuple(free), (), atomic, count, FLAT)


def _with_atomics(
    chain: PerfectNest, free: list[For], buffers: Buffers, atomics: bool
) -> tuple[list[For], frozenset[str]]:
    """Return the loops that atomic stores make independent, and the buffers with such stores."""
    combined = _combined_buffers(chain[0].body, buffers, atomics)
    independent = [loop for loop in chain if is_parallel(loop, chain, buffers, combined)]
    return (independent, combined) if len(independent) > len(free) else (free, frozenset())


def _combined_buffers(body: Body, buffers: Buffers, floating: bool) -> frozenset[str]:
    """Return the buffers that a body accesses only by one atomic combiner.

    Args:
      floating: True to include sums of floats, which depend on the order.
    """
    combiners: dict[str, set[str | None]] = {}
    for statement in walk(body):
        if isinstance(statement, Store):
            combiners.setdefault(statement.buffer, set()).add(statement.combine)
    read = {load.buffer for load in loads(body)}
    names = set()
    for buffer, used_combiners in combiners.items():
        combine = next(iter(used_combiners))
        if buffer in read or len(used_combiners) > 1 or combine is None or buffer not in buffers:
            continue
        dtype = buffers[buffer].dtype
        if is_atomic(combine, dtype) and (floating or not dtype.is_floating):
            names.add(buffer)
    return frozenset(names)


def perfect_nest(loop: For) -> PerfectNest:
    """Return a loop, the only loop inside it, and so on: a perfect nest."""
    result = [loop]
    while True:
        *lets, inner = result[-1].body
        if not isinstance(inner, For) or not all(isinstance(let, Let) for let in lets):
            return tuple(result)
        result.append(inner)


def total_iterations(chain: Iterable[For]) -> int:
    """Return the product of the trip counts of loops."""
    return math.prod([static_extent(loop) or 0 for loop in chain])


def static_extent(loop: For) -> int | None:
    """Return the trip count of a loop; None if it is not constant."""
    return max(0, int(loop.extent.value)) if isinstance(loop.extent, Constant) else None


def is_parallel(
    loop: For, chain: PerfectNest, buffers: Buffers, atomic: Iterable[str] = ()
) -> bool:
    """Return True if the iterations of a loop in a nest may run in any order."""
    if static_extent(loop) is None:
        return False
    disjoint = {*atomic, *disjoint_buffers(loop, buffers)}
    if not can_reorder(loop, buffers, combines=False, may_end=True, atomic=disjoint):
        return False
    outside = [name for outer in chain[: chain.index(loop)] for name in outer.body[:-1]]
    read = effects_of(outside, buffers).reads.keys()
    return read.isdisjoint(effects_of(loop.body, buffers).writes)


def disjoint_buffers(loop: For, buffers: Buffers) -> frozenset[str]:
    """Return the buffers in which each iteration of a loop uses a separate range.

    For example `s[4 * i + j]` with j below 4: the range of the inner index proves it.
    """
    effects = effects_of(loop.body, buffers)
    inner = {
        statement.variable: statement for statement in walk(loop.body) if isinstance(statement, For)
    }
    extents = {name: static_extent(statement) for name, statement in inner.items()}
    names: dict[str, Expr] = {}
    for statement in walk(loop.body):
        if isinstance(statement, Let) and statement.value.dtype is INDEX:
            names[statement.name] = substitute(statement.value, names)
    defined = {statement.name for statement in walk(loop.body) if isinstance(statement, Let | Var)}

    def begin_of(index: Expr) -> dict[str, int] | None:
        """Return the start of the range of an index in one iteration; None if unknown."""
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

    disjoint = set()
    for buffer in effects.writes:
        known_values = [place for place in accesses(effects, buffer) if place is not None]
        if len(known_values) == len(list(accesses(effects, buffer))) and any(
            begins[0] is not None and all(statement == begins[0] for statement in begins)
            for begins in (
                list(map(begin_of, indices)) for indices in zip(*known_values, strict=True)
            )
        ):
            disjoint.add(buffer)
    return frozenset(disjoint)


def parallel_nests(body: Body, buffers: Buffers) -> tuple[PerfectNest, ...]:
    """Return the nests of independent loops whose iterations the threads of a block divide."""
    results: list[PerfectNest] = []
    for statement in body:
        if isinstance(statement, For):
            chain = parallel_prefix(statement, buffers)
            inner_buffers = with_allocations(buffers, statement.body)
            results += [chain] if chain else parallel_nests(statement.body, inner_buffers)
        elif isinstance(statement, If):
            for side in (statement.then, statement.otherwise):
                results += parallel_nests(side, with_allocations(buffers, side))
        elif isinstance(statement, While):
            results += parallel_nests(statement.body, with_allocations(buffers, statement.body))
    return tuple(results)


def parallel_prefix(loop: For, buffers: Buffers) -> PerfectNest:
    """Return the leading loops of a nest whose iterations may run in any order."""
    results: list[For] = []
    chain = perfect_nest(loop)
    for inner in chain:
        free = static_extent(inner) is not None and can_reorder(
            inner, buffers, combines=True, may_end=True, atomic=disjoint_buffers(inner, buffers)
        )
        outside = [name for outer in chain[: chain.index(inner)] for name in outer.body[:-1]]
        read = effects_of(outside, buffers).reads.keys()
        if not free or not read.isdisjoint(effects_of(inner.body, buffers).writes):
            break
        results.append(inner)
    return tuple(results)


def _is_by_rows(chain: PerfectNest, inner: Body, shared: Sequence[PerfectNest]) -> bool:
    """Return True if a nest should be launched with one block for each row."""
    if (
        not shared
        or max(map(total_iterations, shared)) < MIN_ITERATIONS
        or _has_other_loops(inner, shared)
    ):
        return False
    if any(isinstance(statement, Call) for statement in walk(inner)):
        return False
    if total_iterations(chain) < _FEW // WARP:
        return True
    return _num_coalesced(
        inner, {statement[-1].variable for statement in shared}
    ) >= _num_coalesced(inner, {chain[-1].variable})


def _has_other_loops(body: Body, shared: Sequence[PerfectNest]) -> bool:
    """Return True if a body has loops that all threads of a block would repeat."""
    first = {id(chain[0]) for chain in shared}

    def has_other_loop(statement: Statement) -> bool:
        if isinstance(statement, While):
            return True
        if isinstance(statement, If):
            return any(map(has_other_loop, (*statement.then, *statement.otherwise)))
        if not isinstance(statement, For) or id(statement) in first:
            return False
        has_shared = any(id(deeper) in first for deeper in walk(statement.body))
        return not has_shared or any(map(has_other_loop, statement.body))

    return any(map(has_other_loop, body))


def _num_coalesced(body: Body, variables: set[str]) -> int:
    """Return the number of accesses that are contiguous across iterations of some loops."""
    accesses = [load.indices for load in loads(body)]
    accesses += [statement.indices for statement in walk(body) if isinstance(statement, Store)]
    count = 0
    for indices in accesses:
        terms = affine(indices[-1]) if indices else None
        count += terms is not None and any(terms.get(name) == 1 for name in variables)
    return count


def allocated_bytes(body: Body) -> int:
    """Return the size of the buffers that a body allocates, in bytes."""
    return sum(
        statement.buffer.bytes for statement in walk(body) if isinstance(statement, Allocate)
    )

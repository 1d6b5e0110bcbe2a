"""The loop nests that a program runs one after the other, and what each computes and moves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

from weft_compiler.ir.expressions import Apply, Expr, Load, Variable, walk as parts
from weft_compiler.ir.loops import num_iterations
from weft_compiler.ir.program import (
    Allocate,
    Assign,
    Body,
    Call,
    Check,
    For,
    If,
    Let,
    Program,
    Statement,
    Store,
    Var,
    While,
    bodies,
    expressions,
    walk,
)
from weft_compiler.routines import routine

_MOVES: Final = frozenset(("cast", "bitcast"))
"""Primitives that compute nothing."""


def nests_of(program: Program) -> list[Body]:
    """The statements of a program but for allocations, a loop nest or a call in each part.

    A part begins with the variables that its loop combines into, and ends with what is made of
    them.  What else is computed outside of loops has parts of its own.
    """
    found: list[list[Statement]] = []
    for statement in program.body:
        if not isinstance(statement, Allocate):
            if not found or not _belongs(statement, found[-1]):
                found.append([])
            found[-1].append(statement)
    return [tuple(nest) for nest in found]


def _belongs(statement: Statement, nest: Sequence[Statement]) -> bool:
    """Whether a statement is of one part with those before it."""
    has_loop = any(isinstance(each, For | While | If | Call) for each in nest)
    has_variable = any(isinstance(each, Var) for each in nest)
    only_begun = all(isinstance(each, Let | Var) for each in nest)
    if isinstance(statement, Var | For | While | If | Call):
        return only_begun
    return has_variable or not has_loop


def defined_names(nest: Body) -> set[str]:
    """The buffers that a nest stores to, the names that it defines, and what it checks."""
    found = {each.buffer for each in walk(nest) if isinstance(each, Store)}
    found |= {each.name for each in walk(nest) if isinstance(each, Let | Var)}
    found |= {each.message for each in walk(nest) if isinstance(each, Check)}
    for each in walk(nest):
        if isinstance(each, Call):
            called = routine(each.routine)
            named = zip(called.views, each.views, strict=True)
            found |= {view.buffer for name, view in named if name in called.writes}
    return found


def flops(nest: Body) -> int | None:
    """Floating-point operations of a nest; None where it has loops of unknown length.

    A function such as exp is one, and so is what combines a value with others. Of branches both
    count.
    """
    count = _flops(nest)
    return None if count is None else round(count)


def _flops(nest: Body) -> Fraction | None:
    count = Fraction(0)
    for each in nest:
        if isinstance(each, While):
            return None
        inner = [_flops(body) for body in bodies(each)]
        known = [number for number in inner if number is not None]
        if len(known) < len(inner):
            return None
        trip_count = num_iterations(each) if isinstance(each, For) else 1
        if trip_count is None:
            return None
        count += trip_count * sum(known) + _own_flops(each)
    return count


def _own_flops(statement: Statement) -> int:
    if isinstance(statement, Call):
        if not statement.views[-1].dtype.is_floating:
            return 0
        return 2 * routine(statement.routine).work(dict(statement.parameters))
    count = sum(
        part.primitive not in _MOVES
        and any(operand.dtype.is_floating for operand in (part, *part.operands))
        for expression in expressions(statement)
        for part in parts(expression)
        if isinstance(part, Apply)
    )
    if isinstance(statement, Assign | Store) and statement.combine is not None:
        count += statement.value.dtype.is_floating
    return count


def bytes_moved(nest: Body, program: Program) -> int:
    """Bytes of memory that a nest reads and writes, each element of a buffer counted once a way.

    Buffers that it has to itself, and single constants, are not counted.
    """
    own = {each.buffer.name for each in walk(nest) if isinstance(each, Allocate)}
    own |= {name for name, value in program.constants.items() if value.size == 1}
    sites: dict[tuple[str, bool], dict[str, int]] = {}
    for buffer, write, site, elements in _accesses(nest, {}):
        if buffer not in own:
            known = sites.setdefault((buffer, write), {})
            known[site] = max(elements, known.get(site, 0))
    buffers = program.buffers
    return sum(
        buffers[name].dtype.size * min(buffers[name].size, sum(of.values()))
        for (name, _), of in sites.items()
    )


_Accesses = Iterator[tuple[str, bool, str, int]]
"""A buffer, whether it is written, the place as text, and how many elements at most."""


def _accesses(body: Body, loops: Mapping[str, int]) -> _Accesses:
    for each in body:
        inner = dict(loops)
        if isinstance(each, Call):
            yield from _of_call(each, loops)
            continue
        for expression in expressions(each):
            for part in parts(expression):
                if isinstance(part, Load):
                    yield part.buffer, False, str(part), _elements(part.indices, loops)
        if isinstance(each, Store):
            site = str([str(index) for index in each.indices])
            elements = _elements(each.indices, loops)
            yield each.buffer, True, site, elements
            if each.combine is not None:
                yield each.buffer, False, site, elements
        if isinstance(each, For):
            times = num_iterations(each) or 1
            start = () if each.start is None else (each.start,)
            inner[each.variable] = math.ceil(times * _elements(start, loops))
        for within in bodies(each):
            yield from _accesses(within, inner)


def _of_call(call: Call, loops: Mapping[str, int]) -> _Accesses:
    """What a routine touches at most: of each view a part of the buffer from its first element."""
    called = routine(call.routine)
    times = math.prod(loops.values())
    for name, view in zip(called.views, call.views, strict=True):
        spans = called.spans(dict(call.parameters), view.dtype.size)
        yield view.buffer, name in called.writes, str(view), times * spans[name]


def _elements(indices: tuple[Expr, ...], loops: Mapping[str, int]) -> int:
    """How many elements a place stands for: by the loops whose variables it tells."""
    used = {part.name for index in indices for part in parts(index) if isinstance(part, Variable)}
    if used - loops.keys():  # what it is computed from is not looked at
        return math.prod(loops.values())
    return math.prod(loops[name] for name in used)

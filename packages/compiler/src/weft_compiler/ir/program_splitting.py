"""Programs split into their outermost loop nests; each nest becomes a program.

Equal layers of a network become equal nests over different buffers. Since buffers are numbered in
the order of use, their programs have equal text and are compiled once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from weft_compiler.ir.canonical import canonical
from weft_compiler.ir.expressions import Expr, Load, Variable, walk as parts
from weft_compiler.ir.names import used_names
from weft_compiler.ir.nests import nests_of
from weft_compiler.ir.outline_constants import outline_constants
from weft_compiler.ir.program import (
    Allocate,
    Assign,
    Body,
    Buffer,
    Call,
    Check,
    Let,
    Program,
    Statement,
    Store,
    Var,
    expressions,
    walk,
)

_NEAR: Final = 2
"""Maximum number of nests between the computation and the last use of a scalar in a piece."""


class Piece(NamedTuple):
    """Some statements of a program.

    Attributes:
      program: the statements, with names that do not depend on the rest of the program.
      buffers: the names of its inputs and outputs in the original program.
      checks: the number of checks before it.
      numbers: arrays for the last inputs of the program; they are stored in the code that calls it.
      thread: bytes of each thread's part of the arena, in addition to the requirements of its code.
    """

    program: Program
    buffers: tuple[str, ...]
    checks: int
    numbers: tuple[np.ndarray, ...] = ()
    thread: int = 0


def pieces_of(program: Program) -> list[Piece]:
    """Split a program into pieces, which are equivalent to it when they run in sequence.

    A piece is one nest, or a few nests that share a scalar. A scalar that later nests use is passed
    through a buffer of rank 0. Values that depend only on inputs, such as a size, are computed
    again in each piece. A buffer that only one piece uses is allocated there.
    """
    lets = _input_names(program)
    bodies, scalars = _bodies(program, lets)
    allocated = {
        statement.buffer.name: statement
        for statement in program.body
        if isinstance(statement, Allocate)
    }
    allocated |= {statement.name: Allocate(statement) for statement in scalars}
    self_contained = [(*_required_definitions(body, lets), *body) for body in bodies]
    touched = [_used_buffers(body) for body in self_contained]
    users = Counter(name for names in touched for name in names)
    buffers = program.buffers | {statement.name: statement for statement in scalars}
    pieces: list[Piece] = []
    checks = 0
    for body, names in zip(self_contained, touched, strict=True):
        local = [name for name in names if name in allocated and users[name] == 1]
        shared = [name for name in names if name not in local]
        statements = (*[allocated[name] for name in local], *body)
        pieces.append(_piece(program, buffers, statements, shared, checks))
        checks += sum(isinstance(statement, Check) for statement in walk(body))
    return [
        piece._replace(program=program, numbers=numbers)
        for piece, (program, numbers) in zip(
            pieces, outline_constants([piece.program for piece in pieces]), strict=True
        )
    ]


def bodies_of(program: Program) -> list[Body]:
    """Return the statements of each piece of a program, with the names of the program."""
    return _bodies(program, _input_names(program))[0]


def _bodies(program: Program, lets: Mapping[str, Let]) -> tuple[list[Body], list[Buffer]]:
    """Return the statements of each piece, and the buffers of scalars that are passed on.

    Args:
      lets: definitions that each piece computes itself.
    """
    known_values = set(lets.values())
    remainder = tuple([statement for statement in program.body if statement not in known_values])
    nests, scalars = _pass_scalars(nests_of(replace(program, body=remainder)))
    return _merge_sharing_nests(nests), scalars


def _piece(
    program: Program, buffers: Mapping[str, Buffer], body: Body, texts: Sequence[str], checks: int
) -> Piece:
    """Return a piece of some statements.

    `texts` are the buffers that it shares with other pieces.
    """
    written = set(_written_buffers(body))
    inputs = [name for name in texts if name not in written]
    outputs = [name for name in texts if name in written]
    numbers = {
        name: program.constants[name]
        for name in inputs
        if name in program.constants and program.constants[name].size == 1
    }
    part = Program(
        program.name,
        tuple([buffers[name] for name in inputs]),
        tuple([buffers[name] for name in outputs]),
        body,
        numbers,
        frozenset(outputs),
    )
    return Piece(canonical(part), (*inputs, *outputs), checks)


def _input_names(program: Program) -> dict[str, Let]:
    """Return the top-level names that depend only on inputs and are computed without loops."""
    inputs = {operand.name for operand in program.inputs}
    lets: dict[str, Let] = {}

    def is_known(part: Expr) -> bool:
        if isinstance(part, Load):
            return part.buffer in inputs
        return not isinstance(part, Variable) or part.name in lets

    for operand in program.body:
        if isinstance(operand, Let) and all(map(is_known, parts(operand.value))):
            lets[operand.name] = operand
    return lets


def _required_definitions(body: Body, lets: dict[str, Let]) -> Iterator[Let]:
    """Yield the definitions that a body uses, directly or through other definitions."""
    used = _used_names(body)
    for name, let in reversed(lets.items()):
        if name in used:
            used |= _used_names((let,))
    yield from (let for name, let in lets.items() if name in used)


def _pass_scalars(nests: Sequence[Body]) -> tuple[list[Body], list[Buffer]]:
    """Pass scalars to later nests through buffers.

    Otherwise a norm that scales the updates of all variables would join them all to one piece. If
    the last user is near, the nests stay one piece, which is cheaper to compile.

    Returns: the nests, and the buffers of the scalars.
    """
    definitions = {
        statement.name: (position, statement.value.dtype)
        for position, nest in enumerate(nests)
        for statement in nest
        if isinstance(statement, Let | Var)
    }
    users: dict[str, set[int]] = {name: set() for name in definitions}
    for position, nest in enumerate(nests) if definitions else ():
        for name in _used_names(nest) & definitions.keys():
            users[name].add(position)
        for statement in walk(nest):
            if (
                isinstance(statement, Assign)
                and definitions.get(statement.name, (position,))[0] != position
            ):
                del definitions[statement.name]
    passed: list[list[Statement]] = [list(nest) for nest in nests]
    scalars = []
    for name, (definer, dtype) in definitions.items():
        later_users = users[name] - {definer}
        if max(later_users, default=definer) - definer <= _NEAR:
            continue
        buffer = Buffer(f"{name}.scalar", dtype, ())
        scalars.append(buffer)
        passed[definer].append(Store(buffer.name, (), Variable(dtype, name)))
        for position in later_users:
            passed[position].insert(0, Let(name, Load(dtype, buffer.name, ())))
    return [tuple(nest) for nest in passed], scalars


def _merge_sharing_nests(nests: Sequence[Body]) -> list[Body]:
    """Merge nests that share names, including all nests between them."""
    defined = {
        statement.name: position
        for position, nest in enumerate(nests)
        for statement in nest
        if isinstance(statement, Let | Var)
    }
    reach = list(range(len(nests)))
    for position, nest in enumerate(nests):
        for name in _used_names(nest):
            if name in defined:
                reach[defined[name]] = max(reach[defined[name]], position)
    closed: list[list[Statement]] = []
    end = -1
    for position, nest in enumerate(nests):
        if position > end:
            closed.append([])
        closed[-1] += nest
        end = max(end, reach[position])
    return [tuple(statement) for statement in closed]


def _used_names(body: Body) -> set[str]:
    """Return the names that a body uses or assigns."""
    return used_names(body) | {
        statement.name for statement in walk(body) if isinstance(statement, Assign)
    }


def _used_buffers(body: Body) -> dict[str, None]:
    """Return the buffers that a body uses but does not allocate, in the order of first use."""
    buffers: dict[str, None] = {}
    for statement in walk(body):
        for expression in expressions(statement):
            buffers |= {part.buffer: None for part in parts(expression) if isinstance(part, Load)}
        if isinstance(statement, Store):
            buffers[statement.buffer] = None
    allocated = {
        statement.buffer.name for statement in walk(body) if isinstance(statement, Allocate)
    }
    return {name: None for name in buffers if name not in allocated}


def _written_buffers(body: Body) -> Iterator[str]:
    """Return the buffers that a body stores to."""
    for statement in walk(body):
        if isinstance(statement, Store):
            yield statement.buffer
        elif isinstance(statement, Call):
            yield from (view.buffer for view in statement.outputs)

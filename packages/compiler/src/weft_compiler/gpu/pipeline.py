"""The passes of programs for GPUs; whose turns threads take is seen when kernels are made."""

from __future__ import annotations

from dataclasses import replace

from weft_compiler.ir.expressions import Expr, Load, Variable, substitute, walk as parts
from weft_compiler.ir.nests import nests_of
from weft_compiler.ir.program import (
    Allocate,
    Assign,
    Body,
    Buffer,
    Let,
    Program,
    Statement,
    Store,
    Var,
    expressions,
    walk,
)
from weft_compiler.ir.rewrite import map_deep
from weft_compiler.ir.verifier import verify
from weft_compiler.passes.contract import contract
from weft_compiler.passes.merge import merge_loops
from weft_compiler.passes.simplify import simplify


def optimise_for_gpu(program: Program) -> Program:
    """The program after the passes that GPUs need, verified."""
    for each in (simplify, merge_loops, contract, in_memory):
        program = each(program)
    verify(program)
    return program


def in_memory(program: Program) -> Program:
    """The program with names that several nests use in memory, so that these are kernels each.

    Else a sum of all elements and what is made of it would be one kernel, of one block.
    """
    nests = nests_of(program)
    used = [_names(nest) for nest in nests]
    kept: dict[str, Expr] = {}
    begins: list[Statement] = [each for each in program.body if isinstance(each, Allocate)]
    body: list[Statement] = []
    for at, nest in enumerate(nests):
        body += map_deep(nest, lambda expression: substitute(expression, kept))
        for each in nest:
            if not isinstance(each, Let | Var):
                continue
            if _is_used_later(each.name, nests[at + 1 :], used[at + 1 :]):
                dtype = each.value.dtype
                buffer = Buffer(f"{each.name}_kept", dtype, ())
                begins.append(Allocate(buffer))
                body.append(Store(buffer.name, (), Variable(dtype, each.name)))
                kept[each.name] = Load(dtype, buffer.name, ())
    return replace(program, body=(*begins, *body)) if kept else program


def _names(nest: Body) -> set[str]:
    return {
        part.name
        for each in walk(nest)
        for expression in expressions(each)
        for part in parts(expression)
        if isinstance(part, Variable)
    }


def _is_used_later(name: str, nests: list[Body], used: list[set[str]]) -> bool:
    """Whether later nests use a name, and none of them changes it."""
    changed = any(
        isinstance(each, Assign) and each.name == name for nest in nests for each in walk(nest)
    )
    return not changed and any(name in names for names in used)

"""Pieces of a program that differ in floating-point numbers alone: made one, which loads them.

Steps of a chain have factors and offsets of their own, as the turns of a schedule that was unrolled
do. What is added, subtracted and multiplied is the same to compute when it is loaded; other numbers
stay, as code depends on them: a division by a power of two is a product, say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from weft_compiler.ir.expressions import (
    Apply,
    Constant,
    Expr,
    Load,
    children,
    index,
    replace_children,
)
from weft_compiler.ir.program import Body, Buffer, Program, Statement
from weft_compiler.ir.rewrite import map_bodies, map_expressions
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

_NAME: Final = "numbers"
"""Of the buffers that numbers are loaded from; canonical names of others are shorter."""
_LOADED: Final = frozenset({"add", "sub", "mul"})
_TYPES: Final = (dtypes.float32, dtypes.float64)


class Alike(NamedTuple):
    """A program whose numbers are inputs, its last ones.

    Attributes:
      program: with them.
      numbers: an array for each of these inputs.
    """

    program: Program
    numbers: tuple[np.ndarray, ...]


def alike(programs: Sequence[Program]) -> list[Alike]:
    """Programs of canonical names, those made one that differ in numbers alone."""
    written = [_text(each) for each in programs]
    different = dict(zip(written, programs, strict=True))
    if len(different) == 1:
        return [Alike(each, ()) for each in programs]
    templates = {text: _template(program) for text, program in different.items()}
    texts = {text: _text(template.program) for text, template in templates.items()}
    shared = list(texts.values())
    several = {text for text, of in texts.items() if shared.count(of) > 1}
    return [
        templates[text] if text in several else Alike(program, ())
        for text, program in zip(written, programs, strict=True)
    ]


def _text(program: Program) -> str:
    """Return a program as text, with the values of its constants: those are in its code."""
    constants = [
        f"{name}={value.tobytes().hex()}" for name, value in sorted(program.constants.items())
    ]
    return "\n".join([str(program), *constants])


def _template(program: Program) -> Alike:
    """A program with its numbers as inputs."""
    found: dict[DType, list[float]] = {}
    body = _body(program.body, found)
    arrays = tuple([np.array(values, dtype.numpy) for dtype, values in found.items()])
    buffers = [
        Buffer(f"{_NAME}.{dtype.name}", dtype, (len(values),)) for dtype, values in found.items()
    ]
    return Alike(replace(program, body=body, inputs=(*program.inputs, *buffers)), arrays)


def _body(body: Body, found: dict[DType, list[float]]) -> Body:
    return tuple([_statement(each, found) for each in body])


def _statement(statement: Statement, found: dict[DType, list[float]]) -> Statement:
    changed = map_expressions(statement, lambda each: _loading(each, found))
    return map_bodies(changed, lambda body: _body(body, found))


def _loading(expression: Expr, found: dict[DType, list[float]]) -> Expr:
    """An expression that loads its numbers."""
    new = []
    loads = isinstance(expression, Apply) and expression.primitive in _LOADED
    for child in children(expression):
        if loads and isinstance(child, Constant) and child.dtype in _TYPES:
            values = found.setdefault(child.dtype, [])
            values.append(child.value)
            child = Load(child.dtype, f"{_NAME}.{child.dtype.name}", (index(len(values) - 1),))
        else:
            child = _loading(child, found)
        new.append(child)
    return replace_children(expression, tuple(new))

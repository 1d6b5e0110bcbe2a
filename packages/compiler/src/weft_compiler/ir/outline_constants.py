"""Constant outlining: pieces that differ only in constants share code, which loads the constants.

For example, the steps of an unrolled recurrent network access different rows. Loading a constant
costs nothing if it is added to, subtracted from or multiplied with a float, or if it is an offset
of an index. Other constants stay in the code, because the quality of the code depends on them: a
stride determines vectorization, and a division by a power of two becomes a multiplication.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from weft_compiler.ir.expressions import (
    INDEX,
    Apply,
    Constant,
    Expr,
    Load,
    Variable,
    children,
    index,
    replace_children,
)
from weft_compiler.ir.mutator import Mutator, map_expressions
from weft_compiler.ir.program import (
    Allocate,
    Buffer,
    For,
    Let,
    Program,
    Statement,
    Store,
)
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

_NAME: Final = "numbers"
"""Prefix of the names of buffers with outlined constants; it is longer than canonical names, so it
cannot collide with them.
"""
_LOADED: Final = frozenset({"add", "sub", "mul"})
_TYPES: Final = (dtypes.float32, dtypes.float64)

_Site = tuple[DType, int]
"""The position of a constant: its type, and its index among the constants of this type."""


class OutlinedProgram(NamedTuple):
    """A program whose outlined constants are its last inputs.

    Attributes:
      program: the program.
      numbers: the array of each of these inputs.
    """

    program: Program
    numbers: tuple[np.ndarray, ...]


def outline_constants(programs: Sequence[Program]) -> list[OutlinedProgram]:
    """Return programs in canonical form; programs that differ only in constants become equal."""
    written = [_text(program) for program in programs]
    different = dict(zip(written, programs, strict=True))
    result = {text: OutlinedProgram(program, ()) for text, program in different.items()}
    groups: dict[str, dict[str, _Template]] = {}
    for text, program in different.items() if len(different) > 1 else ():
        template = _Template(program)
        groups.setdefault(template.text, {})[text] = template
    for group in groups.values():
        if len(group) > 1:
            sites = _find_varying([template.values for template in group.values()])
            for text, template in group.items():
                result[text] = _outline_group(different[text], template, sites)
    return [result[text] for text in written]


def _text(program: Program) -> str:
    """Return the text of a program, including the values of its constants."""
    constants = [
        f"{name}={value.tobytes().hex()}" for name, value in sorted(program.constants.items())
    ]
    return "\n".join([str(program), *constants])


def _find_varying(values: Sequence[dict[_Site, float]]) -> set[_Site]:
    """Return the positions of the constants that differ among the programs of a group."""
    return {
        site
        for site, first in values[0].items()
        if any(str(constants[site]) != str(first) for constants in values[1:])  # -0.0 is not 0.0
    }


def _outline_group(
    program: Program, template: _Template, sites: Collection[_Site]
) -> OutlinedProgram:
    """Return a program that loads the constants at some positions instead of containing them."""
    loads = _Loads(sites)
    body = loads.rewrite_body(program.body)
    numbers: dict[DType, list[float]] = {}
    for dtype, position in _sort_sites(sites):
        numbers.setdefault(dtype, []).append(template.values[dtype, position])
    arrays = tuple([np.array(values, dtype.numpy) for dtype, values in numbers.items()])
    buffers = [Buffer(_buffer(dtype), dtype, (len(number),)) for dtype, number in numbers.items()]
    new_body = (*loads.offsets(), *body)
    return OutlinedProgram(
        replace(program, body=new_body, inputs=(*program.inputs, *buffers)), arrays
    )


def _sort_sites(sites: Collection[_Site]) -> list[_Site]:
    """Return positions grouped by type, in the order of the program."""
    return sorted(sites, key=lambda site: (site[0].name, site[1]))


def _buffer(dtype: DType) -> str:
    return f"{_NAME}.{dtype.name}"


class _ConstantMutator(Mutator):
    """Mutator that replaces the constants that may be outlined, in a fixed order."""

    def replaced(self, constant: Constant) -> Expr:
        """Return the replacement of a constant."""
        raise NotImplementedError

    def rewrite_statement(self, statement: Statement) -> Statement:
        if isinstance(statement, Allocate):
            return statement
        if isinstance(statement, Store):
            indices = tuple([self._rewrite_index(item) for item in statement.indices])
            value = self.rewrite_expression(statement.value)
            return replace(statement, indices=indices, value=value)
        if not isinstance(statement, For):
            statement = map_expressions(statement, self.rewrite_expression)
        return self.rewrite_bodies(statement)

    def _rewrite_index(self, expression: Expr) -> Expr:
        """Rewrite an index; a constant index may be loaded as a whole."""
        if isinstance(expression, Constant):
            return self.replaced(expression)
        return self.rewrite_expression(expression)

    def rewrite_expression(self, expression: Expr) -> Expr:
        """Return an expression with the constants inside it replaced."""
        if isinstance(expression, Load):
            return replace_children(expression, tuple(map(self._rewrite_index, expression.indices)))
        primitive = expression.primitive if isinstance(expression, Apply) else ""
        new = []
        for child in children(expression):
            if isinstance(child, Constant) and _is_loaded(primitive, child.dtype):
                new.append(self.replaced(child))
            else:
                new.append(self.rewrite_expression(child))
        return replace_children(expression, tuple(new))


def _is_loaded(primitive: str, dtype: DType) -> bool:
    """Return True if a constant operand of a primitive may be loaded; strides may not."""
    if dtype is INDEX:
        return primitive in ("add", "sub")
    return primitive in _LOADED and dtype in _TYPES


class _Template(_ConstantMutator):
    """A program without its constants.

    Attributes:
      values: the constants.
      text: the program, with all constants of a type written the same.
    """

    def __init__(self, program: Program) -> None:
        self.values: dict[_Site, float] = {}
        self._counts: dict[DType, int] = {}
        self.text = _text(replace(program, body=self.rewrite_body(program.body)))

    def replaced(self, constant: Constant) -> Expr:
        position = self._counts.get(constant.dtype, 0)
        self._counts[constant.dtype] = position + 1
        self.values[constant.dtype, position] = constant.value
        return Variable(constant.dtype, _NAME)


class _Loads(_ConstantMutator):
    """Mutator that replaces the constants at some positions by loads."""

    def __init__(self, sites: Collection[_Site]) -> None:
        self._sites = sites
        self._counts: dict[DType, int] = {}
        self._places: dict[_Site, int] = {}
        counts: dict[DType, int] = {}
        for site in _sort_sites(sites):
            self._places[site] = counts.get(site[0], 0)
            counts[site[0]] = self._places[site] + 1

    def offsets(self) -> list[Let]:
        """Return the statements that load index offsets; they precede all loops."""
        return [
            Let(f"{_NAME}{position}", Load(dtype, _buffer(dtype), (index(position),)))
            for (dtype, _), position in self._places.items()
            if dtype is INDEX
        ]

    def replaced(self, constant: Constant) -> Expr:
        dtype = constant.dtype
        position = self._counts.get(dtype, 0)
        self._counts[dtype] = position + 1
        place = self._places.get((dtype, position))
        if place is None:
            return constant
        if dtype is INDEX:
            return Variable(dtype, f"{_NAME}{place}")
        return Load(dtype, _buffer(dtype), (index(place),))

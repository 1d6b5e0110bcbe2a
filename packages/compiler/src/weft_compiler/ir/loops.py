"""Construction of loops, and their trip counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from weft_compiler.ir.expressions import (
    INDEX,
    Apply,
    Constant,
    Expr,
    Load,
    Variable,
    apply,
    index,
    is_same,
    number,
)
from weft_compiler.ir.indices import Operand, plus, reshape_indices, times
from weft_compiler.ir.program import Body, Buffer, For, Store

Unique = Callable[[str], str]


def nest(unique: Unique, sizes: Sequence[int], body: Callable[..., Body]) -> Body:
    """Return nested loops over sizes; `body` maps their variables to the innermost statements."""
    if 0 in sizes:
        return ()
    variables = [Variable(INDEX, unique("i")) for _ in sizes]
    statements = body(*variables)
    for variable, size in reversed(list(zip(variables, sizes, strict=True))):
        statements = (For(variable.name, index(size), statements),)
    return statements


def load(buffer: Buffer, shape: Sequence[int], position: Sequence[Operand]) -> Load:
    """Load an element.

    `position` is its position in `shape`, which may differ from the buffer's shape.
    """
    return Load(buffer.dtype, buffer.name, tuple(reshape_indices(position, shape, buffer.shape)))


def fill(unique: Unique, buffer: Buffer, value: Expr) -> Body:
    """Set all elements of a buffer to a value."""
    return nest(unique, buffer.shape, lambda *position: (Store(buffer.name, position, value),))


def strip_mine(loop: For, size: int, block: str, body: Callable[[For], Body]) -> For:
    """Split a serial or vector loop into a loop over blocks of iterations.

    Args:
      size: the number of iterations of a block; the last block may have fewer.
      block: the name of the new loop's variable.
      body: maps the inner loop, over one block, to the statements for the block.
    """
    start = times(Variable(INDEX, block), size)
    inner = replace(loop, start=start, extent=apply("minimum", plus(start, size), loop.extent))
    if isinstance(loop.extent, Constant):
        count: Expr = index(-(-int(loop.extent.value) // size))
    else:
        count = apply("floor_div", plus(loop.extent, size - 1), number(size, INDEX))
    return For(block, count, body(inner))


def num_iterations(loop: For) -> Fraction | None:
    """Return the number of iterations; None if it is unknown.

    For an inner loop over a block of iterations, whose size varies, return the mean; if the number
    of blocks is unknown, return the maximum.
    """
    match loop:
        case For(extent=Constant(value=extent), start=None):
            return Fraction(max(0, int(extent)))
        case For(
            extent=Apply(
                primitive="floor_div", operands=(Constant(value=extent), Constant(value=size))
            ),
            start=None,
        ) if size:
            return Fraction(max(0, int(extent) // int(size)))
        case For(
            start=start,
            extent=Apply(
                primitive="minimum",
                operands=(
                    Apply(primitive="add", operands=(first, Constant(value=size))),
                    extent,
                ),
            ),
        ) if start is not None and is_same(start, first):
            if not isinstance(extent, Constant):
                return Fraction(int(size))
            return Fraction(int(extent.value), -(-int(extent.value) // int(size)))
    return None

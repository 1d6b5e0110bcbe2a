"""Loops that rules and passes write themselves, where each element by itself does not say it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft_compiler.ir.expressions import INDEX, Expr, Load, Variable, index
from weft_compiler.ir.indices import Operand, reshaped
from weft_compiler.ir.program import Body, Buffer, For, Store

Unique = Callable[[str], str]


def nest(unique: Unique, sizes: Sequence[int], body: Callable[..., Body]) -> Body:
    """Loops over sizes, with what `body` makes of their variables inside."""
    if 0 in sizes:
        return ()
    variables = [Variable(INDEX, unique("i")) for _ in sizes]
    found = body(*variables)
    for variable, size in reversed(list(zip(variables, sizes, strict=True))):
        found = (For(variable.name, index(size), found),)
    return found


def load(buffer: Buffer, shape: Sequence[int], at: Sequence[Operand]) -> Load:
    """An element of a tensor of a shape, in memory whose shape may be another."""
    return Load(buffer.dtype, buffer.name, tuple(reshaped(at, shape, buffer.shape)))


def filled(unique: Unique, buffer: Buffer, value: Expr) -> Body:
    """Every element of a buffer is a value."""
    return nest(unique, buffer.shape, lambda *at: (Store(buffer.name, at, value),))

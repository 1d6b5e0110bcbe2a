"""Runtime strides: buffers whose inner axes vary become flat, with indices computed from the size.

Passes see buffers with the maximal sizes of their axes. In memory, elements are dense for the size
of a call, as in the caller's arrays. After the passes, each such buffer becomes flat, and its
indices are combined with strides that depend on the size:

    x: float32[16, 192, 64]           x: float32[196608]
    y[i, j] = x[i, j, 3]              y[i, j] = x[(i * size + j) * 64 + 3]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from weft_compiler.ir.expressions import Expr, Load, apply, index
from weft_compiler.ir.indices import is_number, plus
from weft_compiler.ir.mutator import Mutator, map_expressions
from weft_compiler.ir.program import (
    Allocate,
    Body,
    Buffer,
    Call,
    Program,
    Statement,
    Store,
    walk,
)

Shape = tuple[int, ...]


class Layout:
    """The runtime sizes of the axes of a buffer.

    Args:
      shape: the maximal sizes.
      sizes: the sizes at run time; None for axes that do not vary.
    """

    def __init__(self, shape: Shape, sizes: Sequence[Expr | None]) -> None:
        self.shape = shape
        self._sizes = tuple(sizes)

    def without_axes(self, shape: Shape) -> Layout | None:
        """Return the layout of a buffer that has lost some axes; None if it is not known which."""
        if shape == self.shape:
            return self
        candidates = {
            tuple([self._sizes[axis] for axis in axes])
            for axes in combinations(range(len(self.shape)), len(shape))
            if tuple([self.shape[axis] for axis in axes]) == shape
        }
        return Layout(shape, candidates.pop()) if len(candidates) == 1 else None

    @property
    def has_runtime_strides(self) -> bool:
        """True if an axis other than the first varies."""
        return any(size is not None for size in self._sizes[1:])

    def flat_index(self, indices: Sequence[Expr]) -> Expr:
        """Return the flat index of an element."""
        total: Expr = index(0)
        for position, size, largest in zip(indices, self._sizes, self.shape, strict=True):
            step = index(largest) if size is None else size
            total = plus(_product(total, step), position)
        return total


def _product(x: Expr, y: Expr) -> Expr:
    if is_number(x, 0) or is_number(y, 1):
        return x
    return y if is_number(x, 1) else apply("mul", x, y)


def with_runtime_strides(program: Program, layouts: Mapping[str, Layout]) -> Program | None:
    """Return an optimized program whose buffers are dense for the size of a call.

    Temporaries that are not accessed by routines keep the strides of the maximal sizes.

    Args:
      layouts: the layouts before the passes, by buffer.
    Returns: None if a routine accesses a buffer whose layout is not known after the passes.
    """
    called = {
        view.buffer
        for statement in walk(program.body)
        if isinstance(statement, Call)
        for view in statement.views
    }
    shared = {buffer.name for buffer in (*program.inputs, *program.outputs)}
    known_values: dict[str, Layout] = {}
    for name, buffer in program.buffers.items():
        layout = layouts.get(name)
        if layout is None:
            continue
        layout = layout.without_axes(buffer.shape)
        if layout is not None and layout.has_runtime_strides:
            known_values[name] = layout
        elif layout is None and name in called | shared:
            return None
    if not known_values:
        return program
    flattening = _Flattening(known_values)
    return replace(
        program,
        inputs=tuple(map(flattening.flat, program.inputs)),
        outputs=tuple(map(flattening.flat, program.outputs)),
        body=flattening.rewrite_body(program.body),
    )


class _Flattening(Mutator):
    """Mutator that replaces buffers by flat ones."""

    def __init__(self, layouts: Mapping[str, Layout]) -> None:
        self._layouts = layouts

    def flat(self, buffer: Buffer) -> Buffer:
        """Return a buffer with one axis if its strides depend on the size.

        Else the buffer itself.
        """
        return replace(buffer, shape=(buffer.size,)) if buffer.name in self._layouts else buffer

    def _indices(self, buffer: str, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        layout = self._layouts.get(buffer)
        return indices if layout is None else (layout.flat_index(indices),)

    def rewrite_expression(self, expression: Expr) -> Expr:
        new = super().rewrite_expression(expression)
        if isinstance(new, Load) and new.buffer in self._layouts:
            return Load(new.dtype, new.buffer, self._indices(new.buffer, new.indices))
        return new

    def rewrite_statement(self, statement: Statement) -> Statement | Body:
        new = map_expressions(statement, self.rewrite_expression)
        if isinstance(new, Store):
            new = replace(new, indices=self._indices(new.buffer, new.indices))
        elif isinstance(new, Allocate):
            new = replace(new, buffer=self.flat(new.buffer))
        return self.rewrite_bodies(new)

"""Loops during lowering: definitions of what an iteration computes.

A variable of a loop is a `Value` without a definition. Its memory keeps its value during an
iteration, where definitions read its elements, and receives the next value at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from weft_compiler.ir.expressions import Expr
from weft_compiler.ir.program import Statement
from weft_compiler.lower.values import Definition, Value

Path = tuple[tuple[Value, bool], ...]
"""Predicates and the value each must have, the outermost first."""


@dataclass(eq=False)
class Effect:
    """A side effect of an iteration on a TensorArray or a stack.

    Attributes:
      takes: the values whose elements it reads.
      path: the condition under which it happens.
      write: emits its statements; called once, for the end of an iteration.
    """

    takes: Sequence[Value]
    path: Path
    write: Callable[[Emitter], None]


class Emitter:
    """Interface by which an effect emits statements."""

    def emit(self, statement: Statement) -> None:
        """Add a statement."""
        raise NotImplementedError

    def nest(self, sizes: Sequence[int], write: Callable[..., None]) -> None:
        """Add loops over sizes; `write` adds their body and receives their variables."""
        raise NotImplementedError

    def resolved(self, expression: Expr) -> Expr:
        """Convert an expression of definitions to one of programs, inside a nest."""
        raise NotImplementedError

    def unique(self, name: str) -> str:
        """Return a name that is not used yet."""
        raise NotImplementedError

    def name_of(self, value: Value) -> str:
        """Return the name of the buffer of a value in memory."""
        raise NotImplementedError


@dataclass(eq=False)
class LoopBody:
    """A loop and the definitions of its values.

    Attributes:
      name: for error messages and dumps.
      variables: loop-carried values, in memory.
      initial: their initial values.
      test: the condition: True if there is another iteration.
      next_values: the values of the variables in the next iteration.
      effects: side effects of the body, in order.
      condition_effects: side effects of the condition, which run once more than the body.
      node_values: the values of nodes in an iteration.
      paths: conditions of values that only one side of a branch needs.
      captures: outer values that the loop reads from memory, each with its value inside.
      results: the final values, by variables.
      max_iterations: the limit on the trip count; None if there is none.
      has_side_effects: True if the loop or a loop inside it has effects.
    """

    name: str
    variables: list[Value] = field(default_factory=list)
    initial: list[Value] = field(default_factory=list)
    test: Value | None = None
    next_values: list[Value] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    condition_effects: list[Effect] = field(default_factory=list)
    node_values: list[Value] = field(default_factory=list)
    paths: dict[Value, Path] = field(default_factory=dict)
    captures: list[tuple[Value, Value]] = field(default_factory=list)
    results: dict[Value, Value] = field(default_factory=dict)
    max_iterations: int | None = None
    has_side_effects: bool = False

    def add_effect(self, effect: Effect) -> None:
        """Add an effect: to the condition if that is not complete yet, else to the body."""
        (self.condition_effects if self.test is None else self.effects).append(effect)


@dataclass(eq=False)
class LastValue(Definition):
    """The final value of a variable of an inner loop."""

    loop: LoopBody

    @property
    def operands(self) -> list[Value]:
        """The values that the loop reads from memory."""
        return [*self.loop.initial, *[outer for outer, _ in self.loop.captures]]

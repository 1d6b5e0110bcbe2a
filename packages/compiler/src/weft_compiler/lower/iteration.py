"""Loops during lowering: definitions of the values of an iteration.

A loop variable is a `Value` without a definition. Definitions read its elements from its memory
during an iteration, and its next value is stored there at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from weft_compiler.ir.expressions import Expr
from weft_compiler.ir.program import Statement
from weft_compiler.lower.values import Definition, Value

Path = tuple[tuple[Value, bool], ...]
"""Predicates with the value that each must have, the outermost first."""


@dataclass(eq=False)
class Effect:
    """A side effect of an iteration on a TensorArray or a stack.

    Attributes:
      takes: the values whose elements it uses.
      path: the condition under which it happens.
      write: emits its statements; it is called once, at the end of an iteration.
    """

    takes: Sequence[Value]
    path: Path
    write: Callable[[Emitter], None]


class Emitter:
    """Interface through which an effect emits statements."""

    def emit(self, statement: Statement) -> None:
        """Add a statement."""
        raise NotImplementedError

    def nest(self, sizes: Sequence[int], write: Callable[..., None]) -> None:
        """Emit nested loops over sizes; `write` receives their variables and emits their body."""
        raise NotImplementedError

    def resolve_expression(self, expression: Expr) -> Expr:
        """Convert an expression of definitions to an expression of the program, inside a nest."""
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
      test: the condition, which is true if another iteration follows.
      next_values: the values of the variables in the next iteration.
      effects: side effects of the body, in order.
      condition_effects: side effects of the condition, which run once more than the body.
      node_values: the values of nodes in an iteration.
      paths: the paths of values that only one side of a branch needs.
      captures: outer values that the loop reads from memory, each with its value inside.
      results: the final values, by variable.
      max_iterations: the limit on the trip count; None if there is none.
      has_side_effects: True if the loop or a loop inside it has side effects.
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
        """Add a side effect: to the condition while that is being built, then to the body."""
        (self.condition_effects if self.test is None else self.effects).append(effect)


@dataclass(eq=False)
class LastValue(Definition):
    """The final value of a variable of an inner loop."""

    loop: LoopBody

    @property
    def operands(self) -> list[Value]:
        """The values that the loop reads from memory."""
        return [*self.loop.initial, *[outer for outer, _ in self.loop.captures]]

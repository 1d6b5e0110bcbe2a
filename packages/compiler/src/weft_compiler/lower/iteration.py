"""Loops as they are lowered: what a turn makes of the variables, as definitions of their elements.

A variable of a loop is a `Value` without a definition: memory that keeps its value during a turn,
in which definitions take its elements, and gets the next one at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from weft_compiler.ir.expressions import Expr
from weft_compiler.ir.program import Statement
from weft_compiler.lower.values import Definition, Value

Path = tuple[tuple[Value, bool], ...]
"""The predicates that must have come out one way or the other, the outermost first."""


@dataclass(eq=False)
class Effect:
    """What a turn does besides: to a TensorArray or a stack.

    Attributes:
      takes: values whose elements it takes.
      path: when it happens.
      write: from what resolves an expression, to statements; called once for each turn's end.
    """

    takes: Sequence[Value]
    path: Path
    write: Callable[[Emitter], None]


class Emitter:
    """What an effect writes with."""

    def emit(self, statement: Statement) -> None:
        """Add a statement."""
        raise NotImplementedError

    def nest(self, sizes: Sequence[int], write: Callable[..., None]) -> None:
        """Add loops over sizes, with what `write` adds for their variables inside."""
        raise NotImplementedError

    def resolved(self, expression: Expr) -> Expr:
        """An expression of definitions as one of programs; within a nest."""
        raise NotImplementedError

    def unique(self, name: str) -> str:
        """A name that nothing else has."""
        raise NotImplementedError

    def name_of(self, value: Value) -> str:
        """The buffer of a value in memory."""
        raise NotImplementedError


@dataclass(eq=False)
class LoopBody:
    """A loop.

    Attributes:
      name: for people.
      variables: in memory.
      initial: their first values.
      test: whether there is another turn.
      following: the next values.
      effects: of turns, in their order.
      tested: of the test, which happen once more than there are turns.
      made: what nodes give in a turn.
      paths: of values that are needed in one side of a branch only: when that is.
      taken: values of outside that the loop takes from memory, and as what.
      results: the last values, by variables.
      most: how many turns there is room for; None for any number.
      acts: whether it has effects, or loops inside have.
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
        """Add an effect, of the test as long as nobody knows what that gives."""
        (self.condition_effects if self.test is None else self.effects).append(effect)


@dataclass(eq=False)
class LastValue(Definition):
    """What a variable of a loop inside of another has after the last turn."""

    loop: LoopBody

    @property
    def operands(self) -> list[Value]:
        """What the loop takes from memory."""
        return [*self.loop.initial, *[outer for outer, _ in self.loop.captures]]

"""Writer of programs of loops: loop-invariant values first, then the iterations."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from weft_compiler.ir.expressions import (
    INDEX,
    Constant,
    Expr,
    Load,
    Variable,
    apply,
    index,
)
from weft_compiler.ir.indices import plus
from weft_compiler.ir.program import (
    Allocate,
    Assign,
    Buffer,
    If,
    Program,
    Statement,
    Store,
    Var,
    While,
    loads,
)
from weft_compiler.lower.analysis import (
    ValueFacts,
    analyze,
    find_materialized,
    memory_of,
    order_updates,
    pending_checks,
)
from weft_compiler.lower.iteration import Effect, Emitter, LastValue, LoopBody, Path
from weft_compiler.lower.values import Elements, ScatterUpdate, Value, compute_value
from weft_compiler.lower.writer import NestWriter, predicates_of
from weft_tensor import dtypes

_WORTH_KEEPING: Final = 2
"""Minimum cost, in operations per element, of loop-invariant values that are hoisted."""


@dataclass(eq=False)
class LoopInterface:
    """Inputs and outputs of a loop's program, in addition to its variables.

    Attributes:
      inputs: the inputs in the order of the program.
      is_output: a flag for each variable, True if its final value is an output.
      outputs: the outputs in the order of the program, which follow those of `is_output` variables.
      copies: outputs that are initialized from an input, or with zeros.
      goes_on: True if the last output says whether the loop has more iterations to run.
    """

    inputs: Sequence[Value]
    is_output: Sequence[bool]
    outputs: Sequence[Value]
    copies: Sequence[tuple[Value, Value | None]]
    goes_on: bool


def write_loop(loop_body: LoopBody, outside: LoopInterface, name: str) -> Program:
    """Return the program of a loop."""
    return _LoopWriter(outside.inputs).program_of(loop_body, outside, name)


class _LoopWriter(NestWriter, Emitter):
    """Writer of loops, including nested ones."""

    def __init__(self, inputs: Sequence[Value]) -> None:
        super().__init__(inputs, (), ())
        self._constants: dict[Value, None] = {}
        self._fixed: set[Value] = set()

    # ---------------------------------------------------------------------- as an Emitter

    def emit(self, statement: Statement) -> None:
        self._emit(statement)

    def nest(self, sizes: Sequence[int], write: Callable[..., None]) -> None:
        self._nest(sizes, write)

    def resolve_expression(self, expression: Expr) -> Expr:
        return self._resolve(expression)

    def unique(self, name: str) -> str:
        return self._unique(name)

    def name_of(self, value: Value) -> str:
        return self._buffers[value].name

    # ---------------------------------------------------------------------- programs

    def program_of(self, loop_body: LoopBody, outside: LoopInterface, name: str) -> Program:
        """Return the program of a loop."""
        name = self._unique(name)
        finals: list[Buffer] = []
        for variable, expected in zip(loop_body.variables, outside.is_output, strict=True):
            self._buffers[variable] = self._buffer(variable)
            if expected:
                last = self._buffers[variable]
                finals.append(last if last.shape else self._buffer(variable))
        for value in outside.outputs:
            self._buffers[value] = self._buffer(value)
        for value, first in outside.copies:
            self._copy(value, first)
        goes_on = self._loop(loop_body, [buffer.name for buffer in finals])
        position = iter(finals)
        for variable, requested in zip(loop_body.variables, outside.is_output, strict=True):
            final = next(position) if requested else None
            if final is not None and not final.shape:
                state_buffer = self._buffers[variable]
                self._emit(Store(final.name, (), Load(state_buffer.dtype, state_buffer.name, ())))
        outputs = [*finals, *[self._buffers[value] for value in outside.outputs]]
        if outside.goes_on:
            continues = Buffer(self._unique("goes_on"), dtypes.bool_, ())
            self._emit(Store(continues.name, (), goes_on))
            outputs.append(continues)
        body = tuple(self._body)
        used = {load.buffer for load in loads(body)}
        known_values = [value for value in self._constants if self._buffers[value].name in used]
        return Program(
            name,
            tuple([self._buffers[value] for value in (*self._inputs, *known_values)]),
            tuple(outputs),
            body,
            {self._buffers[value].name: value.constant for value in known_values},
        )

    def _copy(self, value: Value, first: Value | None) -> None:
        """Initialize memory from an input, or with zeros."""
        target = self._buffers[value]
        zero = Constant(value.dtype, 0)

        def store(*position: Expr) -> None:
            begin = (
                zero if first is None else Load(value.dtype, self._buffers[first].name, position)
            )
            self._emit(Store(target.name, position, begin))

        self._nest(value.shape, store)

    # ---------------------------------------------------------------------- loops

    def _loop(self, loop_body: LoopBody, declared: Sequence[str] = ()) -> Expr:
        """Write a loop; return an expression that is true if the loop stopped with iterations left.

        Args:
          declared: names of buffers of variables that are declared already.
        """
        for variable, initial in zip(loop_body.variables, loop_body.initial, strict=True):
            buffer = self._buffers[variable]
            if buffer.name not in declared:
                self._emit(Allocate(buffer))
            self._copy_value(buffer, initial)
        assert loop_body.test is not None
        following = [
            (old, _next(old, new, loop_body))
            for old, new in zip(loop_body.variables, loop_body.next_values, strict=True)
            if new is not old
        ]
        tested_taken = _read_values(loop_body.condition_effects)
        effect_operands = [*tested_taken, *_read_values(loop_body.effects)]
        news = [new for _, new in following]
        expected = [loop_body.test, *news, *effect_operands]
        following = _copy_shared(following, expected, loop_body)
        news = [new for _, new in following]
        expected = [loop_body.test, *news, *effect_operands]
        checks = pending_checks(loop_body.node_values, expected)
        loop_body.paths |= {
            check: loop_body.paths.get(value, ()) for value, check in checks.items()
        }
        # The last roots are analyzed first, so that predicates precede the values they guard.
        facts = analyze([*expected, *checks.values(), *reversed(_predicates(loop_body))])
        self._declare(facts)
        self._outputs += news
        stored = set(find_materialized(facts, {*self._buffers, *news, *effect_operands}))
        varying = self._find_varying(loop_body, facts)
        self._fixed.update(loop_body.variables)  # they are invariant in inner loops
        stored |= {v for v in facts if v not in self._buffers and _is_dear(v, facts[v], varying)}
        self._compute_values([value for value in facts if value not in varying], stored, facts, {})
        decided = predicates_of([effect.path for effect in loop_body.condition_effects])
        tested = analyze([loop_body.test, *tested_taken, *decided])
        on, continues = self._flag("on", True), self._flag("more", False)
        count = Variable(INDEX, self._unique("turn"))
        if loop_body.max_iterations is not None:
            self._emit(Var(count.name, index(0)))
        outer, self._body = self._body, []
        self._compute_values([v for v in tested if v in varying], stored, facts, loop_body.paths)
        test = loop_body.test
        self._nest((), lambda: self._emit(Assign(on.name, self._resolve(_only_element(test)))))
        if loop_body.max_iterations is not None:
            is_below_limit = apply("less", count, index(loop_body.max_iterations))
            self._emit(
                Assign(continues.name, apply("bit_and", on, apply("invert", is_below_limit)))
            )
            self._emit(Assign(on.name, apply("bit_and", on, is_below_limit)))
        self._write_condition_effects(loop_body, continues)
        inner, self._body = self._body, []
        remaining = [value for value in facts if value in varying and value not in tested]
        self._iteration(loop_body, remaining, stored, facts, following)
        if loop_body.max_iterations is not None:
            self._emit(Assign(count.name, plus(count, 1)))
        inner.append(If(on, tuple(self._body)))
        self._body = [*outer, While(on, tuple(inner))]
        return continues

    def _write_condition_effects(self, loop_body: LoopBody, continues: Variable) -> None:
        """Write the effects of a condition, unless the next call runs that iteration."""
        outer, self._body = self._body, []
        for effect in loop_body.condition_effects:
            self._guarded(effect.path, partial(effect.write, self))
        effects, self._body = tuple(self._body), outer
        if effects and loop_body.max_iterations is not None:
            self._emit(If(continues, (), effects))
        else:
            self._body += effects

    def _flag(self, name: str, value: bool) -> Variable:
        flag = Variable(dtypes.bool_, self._unique(name))
        self._emit(Var(flag.name, Constant(dtypes.bool_, value)))
        return flag

    def _copy_value(self, buffer: Buffer, initial: Value) -> None:
        result = compute_value(buffer.name, initial.dtype, initial.shape, initial.at)
        self._declare(analyze([result]))
        self._nest(
            buffer.shape,
            lambda *position: self._emit(
                Store(buffer.name, position, self._resolve(initial.at(*position)))
            ),
        )

    def _iteration(
        self,
        loop_body: LoopBody,
        values: Sequence[Value],
        stored: set[Value],
        facts: Mapping[Value, ValueFacts],
        following: Sequence[tuple[Value, Value]],
    ) -> None:
        """Write one iteration: values, effects, then the updates of the variables."""
        news = {new for _, new in following}
        self._compute_values([v for v in values if v not in news], stored, facts, loop_body.paths)
        for new in news:
            for requirement in new.requires:
                self._require(requirement)
        for effect in loop_body.effects:
            self._guarded(effect.path, partial(effect.write, self))
        for old, new in following:
            self._buffers[new] = self._buffers[old]
        late: list[tuple[Value, Buffer]] = []
        for old, new, needs_copy in order_updates(following, facts, self._buffers):
            if needs_copy:
                late.append((new, self._compute_separately(new)))
            else:
                self._update(new, self._buffers[old])
        for new, copy in late:
            self._move(copy, self._buffers[new])

    def _declare(self, facts: Mapping[Value, ValueFacts]) -> None:
        """Declare the buffers of constants."""
        for value in facts:
            if value.constant is not None and value not in self._buffers:
                self._constants.setdefault(value)
                self._buffers[value] = self._buffer(value)

    def _find_varying(self, loop_body: LoopBody, facts: Mapping[Value, ValueFacts]) -> set[Value]:
        """Return the values that are not loop-invariant."""
        variables = set(loop_body.variables)
        for value, fact in facts.items():
            fixed = value in self._inputs or value in self._constants
            leaf = value.definition is None and not fixed and value not in self._fixed
            is_conditional = value.requires and loop_body.paths.get(value)
            acts = (
                isinstance(value.definition, LastValue) and value.definition.loop.has_side_effects
            )
            if (
                leaf
                or is_conditional
                or acts
                or not variables.isdisjoint(
                    [*fact.takes, *map(memory_of, fact.written), *fact.written]
                )
            ):
                variables.add(value)
        return variables

    def _compute_values(
        self,
        values: Sequence[Value],
        stored: set[Value],
        facts: Mapping[Value, ValueFacts],
        paths: Mapping[Value, Path],
    ) -> None:
        for value in values:
            if value in stored or value.requires:
                self._compute(value, facts, paths, value in stored)

    def _compute(
        self,
        value: Value,
        facts: Mapping[Value, ValueFacts],
        paths: Mapping[Value, Path],
        keep: bool = True,
    ) -> None:
        """Check the requirements of a value and compute it into memory."""
        path = paths.get(value, ())
        for requirement in value.requires:
            self._guarded(path, partial(self._require, requirement))
        if not keep or value in self._buffers:
            return
        if isinstance(value.definition, LastValue):
            self._inner(value.definition.loop, path)
            return
        self._buffers[value] = self._buffer(value)
        if not path:
            self._write(value)
            return
        self._emit(Allocate(self._buffers[value]))
        self._outputs.append(value)  # which has memory
        self._guarded(path, lambda: self._write(value))

    def _inner(self, loop_body: LoopBody, path: Path) -> None:
        """Write an inner loop, which computes all of its results together."""
        for outer, capture in loop_body.captures:
            self._buffers[capture] = self._buffers[memory_of(outer)]
            self._fixed.add(capture)
        for variable, result in loop_body.results.items():
            self._buffers[variable] = self._buffers[result] = self._buffer(result)
            self._emit(Allocate(self._buffers[variable]))
        remaining = [v for v in loop_body.variables if v not in loop_body.results]
        for variable in remaining:
            self._buffers[variable] = self._buffer(variable)
        result_names = [self._buffers[variable].name for variable in loop_body.results]
        self._guarded(path, partial(self._loop, loop_body, result_names))


def _next(old: Value, new: Value, loop_body: LoopBody) -> Value:
    """Return the next value of a variable: updated in place, or a copy if others read it too."""
    in_place = isinstance(new.definition, ScatterUpdate) and loop_body.next_values.count(new) == 1
    return new if in_place else _copy_value(old, new)


def _copy_value(old: Value, new: Value) -> Value:
    return compute_value(f"{old.name}_next", old.dtype, old.shape, new.at)


def _copy_shared(
    following: Sequence[tuple[Value, Value]], values: Sequence[Value], loop_body: LoopBody
) -> list[tuple[Value, Value]]:
    """Return the next values of variables, copied if something else uses them.

    A variable's memory is written at the end of an iteration; the value must have no other users
    then. A check counts as a user, unless it is the value's own.
    """
    uncopied = [new for _, new in following if not isinstance(new.definition, ScatterUpdate)]
    remaining = [value for value in loop_body.node_values if value.requires and value not in values]
    facts = analyze([*values, *uncopied, *remaining])
    return [
        (old, _copy_value(old, new) if facts[new].users or facts[new].in_memory else new)
        for old, new in following
    ]


def _read_values(effects: Sequence[Effect]) -> list[Value]:
    return [
        compute_value(value.name, value.dtype, value.shape, value.at)
        for effect in effects
        for value in effect.takes
    ]


def _predicates(loop_body: LoopBody) -> list[Value]:
    effects = [*loop_body.condition_effects, *loop_body.effects]
    return predicates_of([*loop_body.paths.values(), *[effect.path for effect in effects]])


def _only_element(value: Value) -> Expr:
    """Return the element of a value of rank 0."""
    return value.at()


def _is_dear(value: Value, facts: ValueFacts, varying: Container[Value]) -> bool:
    """Return True if a loop-invariant value is expensive enough to be computed before the loop."""
    return (
        value not in varying
        and isinstance(value.definition, Elements)
        and facts.cost >= _WORTH_KEEPING
        and any(user in varying for user in facts.users)
    )

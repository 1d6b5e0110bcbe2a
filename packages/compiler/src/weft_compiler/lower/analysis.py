"""Analysis of definitions: operands, cost, and which values to materialize."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from weft_compiler.ir.expressions import INDEX, Apply, Expr, Variable, apply, children, number
from weft_compiler.lower.iteration import LastValue
from weft_compiler.lower.values import (
    ComplexElements,
    Element,
    Elements,
    Reduction,
    ScatterUpdate,
    Select,
    StatementDefinition,
    Value,
    compute_value,
)
from weft_tensor import dtypes

DEEPEST: Final = 32
"""Maximal nesting of values that are computed where they are used.

Deeper values are materialized.
"""

_EXPENSIVE: Final = frozenset(
    {
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "cos",
        "cosh",
        "div",
        "erf",
        "erfc",
    }
    | {"exp", "expm1", "floor_div", "floor_mod", "lgamma", "log", "log1p", "pow", "reciprocal"}
    | {"sin", "sinh", "sqrt", "tan", "tanh", "trunc_mod"}
    | {"igamma", "igammac", "igamma_grad_a", "betainc", "zeta", "polygamma"}
)
_CHEAP: Final = 3
"""Maximum cost, in operations per element, of a value that is recomputed at each use."""
_WORTH_CHOOSING: Final = 1 << 12
"""Minimum cost of a tensor, in operations, for which a branch computes only the selected side."""


@dataclass
class ValueFacts:
    """Facts about a value.

    Attributes:
      takes: the values whose elements its definition reads, with the number of elements.
      written: the values that its definition reads from memory.
      cost: operations per element.
      users: the values whose definitions read its elements.
      repeated: True if a user reads some elements several times.
      in_memory: True if a definition reads it from memory.
    """

    takes: dict[Value, int] = field(default_factory=dict)
    written: Sequence[Value] = ()
    cost: int = 0
    users: set[Value] = field(default_factory=set)
    repeated: bool = False
    in_memory: bool = False


def analyze(outputs: Iterable[Value]) -> dict[Value, ValueFacts]:
    """Return the facts of all values that `outputs` depend on, operands before users."""
    result: dict[Value, ValueFacts] = {}
    facts: dict[Value, ValueFacts] = {}
    waiting = list(outputs)
    while waiting:
        value = waiting[-1]
        if value in result:
            waiting.pop()
            continue
        if value not in facts:
            facts[value] = facts_of(value)
        needed = [*facts[value].takes, *facts[value].written]
        missing = [dependency for dependency in needed if dependency not in result]
        if missing:
            waiting += missing
            continue
        waiting.pop()
        result[value] = facts[value]
        for dependency, count in result[value].takes.items():
            result[dependency].users.add(value)
            result[dependency].repeated |= count > dependency.size
        for dependency in result[value].written:
            result[dependency].in_memory = True
    return result


def pending_checks(values: Iterable[Value], expected: Iterable[Value]) -> dict[Value, Value]:
    """Return checks for unused values that have requirements.

    A kernel reports invalid operands even if its result is unused, and compiled code must too.

    Returns: a value without cost but with the same requirements, for each unused value and each
      value that only unused ones use.
    """
    used = analyze(expected)
    unused = analyze([value for value in values if value not in used])
    return {value: _check(value) for value in unused if value.requires and value not in used}


def _check(value: Value) -> Value:
    check = compute_value(value.name, dtypes.int32, (), lambda: number(0, dtypes.int32))
    check.requires = value.requires
    return check


def find_materialized(facts: dict[Value, ValueFacts], values: Iterable[Value]) -> list[Value]:
    """Return the values to compute once and store in memory, in order.

    Args:
      values: the values that are already in memory.
    """
    materialized = set(values)
    result = []
    depth: dict[Value, int] = {}
    cost: dict[Value, int] = {}
    for value, fact in facts.items():
        depth[value] = cost[value] = 0
        if value in materialized:
            continue
        depth[value] = 1 + max((depth[operand] for operand in fact.takes), default=0)
        cost[value] = fact.cost + sum(cost[operand] for operand in fact.takes)
        if _should_materialize(value, fact, cost[value]) or depth[value] > DEEPEST:
            result.append(value)
            depth[value] = cost[value] = 0
    return result


def order_updates(
    updates: Sequence[tuple[Value, Value]],
    facts: Mapping[Value, ValueFacts],
    stored: Container[Value],
) -> list[tuple[Value, Value, bool]]:
    """Order updates so that each value is read before it is replaced.

    Args:
      updates: pairs of a value in memory and its replacement, which has no other users.
      stored: all values in memory.
    Returns: the updates in order. The flag of each is True if its new value must be computed in a
      separate buffer and copied at the end, because updates read values that the others replace.
    """
    news = {old: new for old, new in updates}
    readers: dict[Value, set[Value]] = {new: set() for _, new in updates}
    for _, new in updates:
        waiting, visited = [new], {new}
        while waiting:
            fact = facts[waiting.pop()]
            for dependency in (*fact.takes, *fact.written):
                if dependency in news and news[dependency] is not new:
                    readers[news[dependency]].add(new)
                elif dependency not in stored and dependency not in visited:
                    visited.add(dependency)
                    waiting.append(dependency)
    result: list[tuple[Value, Value, bool]] = []
    remaining = list(updates)
    while remaining:
        ordered = {new for _, new, _ in result}
        ready = [item for item in remaining if not readers[item[1]] - ordered]
        result += [(old, new, not ready) for old, new in ready or remaining[:1]]
        remaining = [item for item in remaining if item not in (ready or remaining[:1])]
    return result


def memory_of(value: Value) -> Value:
    """Return the value in memory that contains `value`, if it is materialized."""
    return value if value.dense_of is None else memory_of(value.dense_of)


def _should_materialize(value: Value, facts: ValueFacts, cost: int) -> bool:
    """Return True if the value should be materialized.

    Args:
      cost: operations per element, including values computed in place.
    """
    if facts.in_memory or not isinstance(value.definition, Elements):
        return True
    if isinstance(value.definition, Select) and cost * value.size >= _WORTH_CHOOSING:
        return cost > _CHEAP
    return cost > _CHEAP if facts.repeated else cost > 1 and len(facts.users) > 1


def facts_of(value: Value) -> ValueFacts:
    """Return the facts about a value that follow from its definition alone."""
    if not isinstance(value.definition, Elements | Reduction):
        return _facts_of(value)
    if value.facts is None or value.facts[0] is not value.requires:
        value.facts = value.requires, _facts_of(value)
    facts: ValueFacts = value.facts[1]
    return ValueFacts(facts.takes, facts.written, facts.cost)


def _facts_of(value: Value) -> ValueFacts:
    facts = ValueFacts()
    if isinstance(value.definition, StatementDefinition | ScatterUpdate | LastValue):
        facts.written = list(map(memory_of, value.definition.operands))
    for expression, space in _computed_expressions(value):
        count = math.prod(space)
        for part in count_subexpressions(expression):
            if isinstance(part, Element):
                facts.takes[part.value] = facts.takes.get(part.value, 0) + count
            elif isinstance(part, Apply) and part.dtype is not INDEX:
                facts.cost += 10 if part.primitive in _EXPENSIVE else 1
    return facts


def _computed_expressions(value: Value) -> Iterator[tuple[Expr, Sequence[int]]]:
    """Yield the expressions of a definition over its index variables, each with its index space."""
    definition = value.definition
    for item in value.requires:
        yield item.condition(*_variables(item.space)), item.space
    if isinstance(definition, ComplexElements):
        position = _variables(value.shape[:-1])
        yield apply("add", *definition.parts(*position)), value.shape[:-1]
    elif isinstance(definition, Elements):
        yield definition.element(*_variables(value.shape)), value.shape
    elif isinstance(definition, ScatterUpdate):
        yield definition.before.at(*_variables(value.shape)), value.shape
    elif isinstance(definition, Reduction):
        yield definition.element(*_variables(definition.space)), definition.space


def _variables(shape: Sequence[int]) -> list[Variable]:
    return [Variable(INDEX, f"i{axis}") for axis in range(len(shape))]


def operands_of(expression: Expr) -> tuple[Expr, ...]:
    """Return the operands of an expression of a definition."""
    return expression.indices if isinstance(expression, Element) else children(expression)


def count_subexpressions(expression: Expr) -> dict[Expr, int]:
    """Return the number of uses of each distinct subexpression."""
    result = {expression: 1}
    waiting = [expression]
    while waiting:
        for operand in operands_of(waiting.pop()):
            if operand not in result:
                waiting.append(operand)
            result[operand] = result.get(operand, 0) + 1
    return result

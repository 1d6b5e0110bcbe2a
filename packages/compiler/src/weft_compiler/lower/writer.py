"""Writer of the loop nests of a region: one for each value that is materialized."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

from weft_compiler.ir.expressions import (
    INDEX,
    Apply,
    Constant,
    Expr,
    Load,
    Variable,
    apply,
    index,
    number,
    replace_children,
    walk as walk_parts,
)
from weft_compiler.ir.indices import plus, times
from weft_compiler.ir.program import (
    Allocate,
    Assign,
    Body,
    Buffer,
    Call,
    Check,
    For,
    If,
    Let,
    Program,
    Statement,
    Store,
    Var,
    loads,
    walk,
)
from weft_compiler.lower.analysis import (
    analyze,
    count_subexpressions,
    find_materialized,
    memory_of,
    operands_of,
    order_updates,
)
from weft_compiler.lower.conditions import Conditions
from weft_compiler.lower.iteration import Path
from weft_compiler.lower.origins import Fused
from weft_compiler.lower.values import (
    ComplexElements,
    Element,
    Elements,
    Indices,
    PartialUpdate,
    Reduction,
    Requirement,
    ScatterUpdate,
    Select,
    StatementDefinition,
    Value,
    compute_value,
)
from weft_tensor import dtypes

_CHECKED_TOGETHER: Final = 1024
"""Number of elements that are checked before the program ends because of an invalid one."""
_CHECKED_SINGLY: Final = 16
"""Maximum number of elements with a separate check each. Small, because code is shared only
among sizes on the same side of the limit."""


def write(
    name: str,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    updates: Sequence[tuple[Value, Value]] = (),
    fused: Fused | None = None,
    paths: Mapping[Value, Path] = MappingProxyType({}),
    checks: Sequence[Value] = (),
) -> Program:
    """Return the program that computes values, with a loop nest for each materialized one.

    Args:
      inputs: values whose memory the caller provides; unused constants are omitted.
      outputs: distinct values that are not inputs.
      updates: pairs of a value in memory and its replacement.
      fused: a dict that receives the values computed for each buffer and each check.
      paths: the paths of values that only one side of a branch needs.
      checks: unused values, which are evaluated only for their requirements.
    """
    writer = NestWriter(inputs, outputs, updates, paths, checks)
    program = writer.program(name)
    if fused is not None:
        fused.update(writer.fused)
    return program


class NestWriter:
    """Writer of loop nests for the materialized values, one after another."""

    def __init__(
        self,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        updates: Sequence[tuple[Value, Value]],
        paths: Mapping[Value, Path] = MappingProxyType({}),
        checks: Sequence[Value] = (),
    ) -> None:
        self._paths = paths
        self._checks = checks
        self._inputs = inputs
        self._updates = updates
        self._outputs = [*outputs, *[new for _, new in updates]]
        self._names: Counter[str] = Counter()
        self._buffers: dict[Value, Buffer] = {}
        self._known_expressions: list[dict[str, Expr]] = []
        self._body: list[Statement] = []
        self.fused: Fused = {}
        self._current_group: set[Value] = set()
        self._stored_first: set[Value] = set()
        self._begun: dict[PartialUpdate, dict[int, Buffer]] = {}
        self._required = Conditions()
        for value in (*inputs, *outputs):
            self._buffers[value] = self._buffer(value)
        for old, new in updates:
            self._buffers[old] = self._buffers[new] = self._buffer(old)

    def program(self, name: str) -> Program:
        """Return the program of all outputs and updates."""
        predicates = predicates_of(self._paths.values())
        # The last roots are analyzed first, so that predicates precede the values they guard.
        facts = analyze([*self._outputs, *self._checks, *reversed(predicates)])
        self._take([fact for fact in facts if fact.constant is not None])
        for value in dict.fromkeys([*find_materialized(facts, self._buffers), *predicates]):
            if value not in self._buffers:
                self._buffers[value] = self._buffer(value)
        replaced = {new: old for old, new in self._updates}
        for value in facts:
            path = self._paths.get(value, ())
            for requirement in value.requires:
                self._current_group = self.fused.setdefault(requirement.message, {value})
                self._guarded(path, partial(self._require_together, requirement, not path))
            if value in self._buffers and value.definition is not None and value not in replaced:
                if path and value not in self._outputs:
                    self._allocate(self._buffers[value])
                    self._stored_first.add(value)
                self._guarded(path, partial(self._write, value))
        late: list[tuple[Value, Buffer]] = []
        for old, new, needs_copy in order_updates(self._updates, facts, self._buffers):
            if needs_copy:
                late.append((new, self._compute_separately(new)))
            else:
                self._update(new, self._buffers[old])
        for new, copy in late:
            self._move(copy, self._buffers[new])
            self.fused.setdefault(self._buffers[new].name, {new})
        used = {load.buffer for load in loads(tuple(self._body))}
        inputs = [
            value
            for value in self._inputs
            if value.constant is None or self._buffers[value].name in used
        ]
        constants = {
            self._buffers[value].name: value.constant
            for value in inputs
            if value.constant is not None
        }
        return Program(
            self._unique(name),
            tuple([self._buffers[value] for value in inputs]),
            tuple([self._buffers[value] for value in self._outputs]),
            tuple(self._body),
            constants,
            frozenset(self._buffers[old].name for old, _ in self._updates),
        )

    def _take(self, constants: Sequence[Value]) -> None:
        """Add the constants that rules created to the inputs of the program."""
        new = [value for value in constants if value not in self._buffers]
        self._inputs = [*self._inputs, *new]
        self._buffers |= {value: self._buffer(value) for value in new}

    def _buffer(self, value: Value) -> Buffer:
        return Buffer(self._unique(value.name), value.dtype, value.shape, value.is_complex)

    def _unique(self, name: str) -> str:
        plain = re.sub(r"\W", "_", name)
        plain = plain if plain[:1].isalpha() else f"v{plain}"
        self._names[plain] += 1
        count = self._names[plain]
        return plain if count == 1 else self._unique(f"{plain}_{count}")

    # ---------------------------------------------------------------------------- loops

    def _write(self, value: Value) -> None:
        buffer = self._buffers[value]
        self._current_group = self.fused.setdefault(buffer.name, {value})
        if value not in self._outputs and value not in self._stored_first:
            self._body.append(Allocate(buffer))
        definition = value.definition
        if isinstance(definition, Select):
            self._choose(definition, buffer)
        elif isinstance(definition, ComplexElements):
            self._fill_pairs(buffer, definition.parts)
        elif isinstance(definition, Elements):
            self._fill(buffer, definition.element)
        elif isinstance(definition, ScatterUpdate):
            self._change(value, definition, buffer)
        elif isinstance(definition, Reduction):
            last = len(definition.space) - 1
            by_rows = last >= 0 and last not in definition.axes and definition.axes
            (self._reduce_rows if by_rows else self._reduce)(value, definition)
        else:
            assert isinstance(definition, StatementDefinition)
            operands = [self._buffers[memory_of(operand)] for operand in definition.operands]
            self._body.extend(definition.write(self._unique, buffer, *operands))

    def _fill(self, buffer: Buffer, element: Callable[..., Expr]) -> None:
        self._nest(
            buffer.shape,
            lambda *position: self._emit(
                Store(buffer.name, position, self._resolve(element(*position)))
            ),
        )

    def _fill_pairs(self, buffer: Buffer, parts: Callable[..., tuple[Expr, Expr]]) -> None:
        """Write loops that store both parts of a complex element together."""

        def store(*indices: Expr) -> None:
            for part_index, value in enumerate(parts(*indices)):
                self._emit(Store(buffer.name, (*indices, index(part_index)), self._resolve(value)))

        self._nest(buffer.shape[:-1], store)

    def _choose(self, select: Select, buffer: Buffer) -> None:
        """Write a branch that fills a buffer from one of two values."""
        outer = self._body
        sides: list[Body] = []
        for side in (select.then, select.otherwise):
            self._body = []
            if self._buffers.get(side) != buffer:
                self._fill(buffer, side.at)
            sides.append(tuple(self._body))
        self._body = outer
        self._emit_if(self._decided(select.predicate), *sides)

    def _guarded(self, path: Path, write: Callable[[], object]) -> None:
        """Emit statements under the predicates of a path; `write` emits them."""
        if not path:
            write()
            return
        (predicate, side), *remaining = path
        condition = self._decided(predicate)
        outer, self._body = self._body, []
        self._guarded(tuple(remaining), write)
        body, self._body = tuple(self._body), outer
        self._emit_if(condition, *((body, ()) if side else ((), body)))

    def _allocate(self, buffer: Buffer) -> None:
        """Allocate a buffer before the last branch, which fills it."""
        position = len(self._body)
        self._body.insert(
            position - 1 if position and isinstance(self._body[-1], If) else position,
            Allocate(buffer),
        )

    def _decided(self, predicate: Value) -> Expr:
        exprs: list[Expr] = []
        self._nest((), lambda: exprs.append(self._resolve(predicate.at())))
        return exprs[0]

    def _emit_if(self, condition: Expr, if_true: Body, if_false: Body) -> None:
        """Emit a branch.

        If the previous statement is a branch with the same condition, merge them.
        """
        last = self._body[-1] if self._body else None
        if (
            isinstance(last, If)
            and str(last.condition) == str(condition)
            and {
                part.buffer for part in walk_parts(condition) if isinstance(part, Load)
            }.isdisjoint(_stored((last,)))
        ):
            self._body.pop()
            if_true, if_false = (*last.then, *if_true), (*last.otherwise, *if_false)
        if if_true or if_false:
            self._emit(If(condition, if_true, if_false))

    def _update(self, value: Value, buffer: Buffer) -> None:
        """Write loops that replace a value in memory, via a copy if they read other elements."""
        if isinstance(value.definition, ScatterUpdate):
            return self._change(value, value.definition, buffer)
        num_before = len(self._body)
        self._write(value)
        written = tuple(self._body[num_before:])
        stored = {
            tuple(map(str, item.indices))
            for item in walk(written)
            if isinstance(item, Store) and item.buffer == buffer.name
        }
        read = {
            tuple(map(str, load.indices)) for load in loads(written) if load.buffer == buffer.name
        }
        if read <= stored:
            return
        del self._body[num_before:]
        self._move(self._compute_separately(value), buffer)

    def _change(self, value: Value, scatter_update: ScatterUpdate, buffer: Buffer) -> None:
        """Write an in-place update, once the memory of its variables contains their old values."""
        old_value = scatter_update.before
        if self._buffers.get(old_value) != buffer:
            first = compute_value(value.name, value.dtype, value.shape, old_value.at)
            self._buffers[first] = buffer
            self._stored_first.add(first)
            self._update(first, buffer)
        self.fused.setdefault(buffer.name, set()).add(value)
        started = self._begun.setdefault(scatter_update.change, {})
        started[scatter_update.which] = buffer
        if len(started) == len(scatter_update.change.before):
            states = [started[i] for i in range(len(started))]
            operands = [self._buffers[memory_of(operand)] for operand in scatter_update.operands]
            self._body.extend(scatter_update.change.write(self._unique, states, *operands))

    def _compute_separately(self, value: Value) -> Buffer:
        """Compute the replacement of a value in memory into a separate buffer."""
        replaced, copy = self._buffers[value], self._buffer(value)
        self._buffers[value] = copy
        self._body.append(Allocate(copy))
        if isinstance(value.definition, ScatterUpdate):
            self._change(value, value.definition, copy)
        else:
            self._write(value)
        self._buffers[value] = replaced
        return copy

    def _move(self, source: Buffer, target: Buffer) -> None:
        self._nest(
            source.shape,
            lambda *position: self._emit(
                Store(target.name, position, Load(source.dtype, source.name, position))
            ),
        )

    def _require(self, requirement: Requirement) -> None:
        def check(*position: Expr) -> None:
            self._emit(Check(self._resolve(requirement.condition(*position)), requirement.message))

        self._nest(requirement.space, check)

    def _require_together(self, requirement: Requirement, is_always: bool) -> None:
        """Write a check of a requirement for an index space, unless an earlier check implies it.

        Args:
          is_always: True if the check is on all paths, so that later checks may rely on it.
        """
        conditions = self._required.missing_part(requirement, is_always)
        if conditions is None:
            return
        *rows, count = requirement.space or (1,)
        has_rows = math.prod(rows) > 1
        in_blocks = has_rows or count > _CHECKED_SINGLY
        holds = Variable(dtypes.bool_, self._unique("holds"))

        def check(*index: Expr) -> None:
            for condition in conditions(*index):
                resolved = self._resolve(condition)
                check = Check(resolved, requirement.message)
                self._emit(Assign(holds.name, resolved, "bit_and") if in_blocks else check)

        num_before = len(self._body)
        self._nest(requirement.space, check)
        if in_blocks and len(self._body) > num_before:
            loops = self._body.pop()
            self._emit(self._emit_checked(loops, len(rows), holds, requirement, has_rows))

    def _emit_checked(
        self,
        loops: Statement,
        depth: int,
        holds: Variable,
        requirement: Requirement,
        has_rows: bool,
    ) -> Statement:
        """Return loops with a check after each row, or after each block of a single row.

        The structure does not depend on the number of elements, so that other sizes can share the
        code.

        Args:
          loops: the loops, which combine conditions into the variable `holds`.
          depth: the number of loops around the innermost one.
        """
        assert isinstance(loops, For)
        if depth:
            (inner_loop,) = loops.body
            body = self._emit_checked(inner_loop, depth - 1, holds, requirement, has_rows)
            is_row = depth == 1 and has_rows
            return replace(
                loops,
                body=self._combine_conditions(body, holds, requirement) if is_row else (body,),
            )
        if has_rows:
            return loops
        block, size = Variable(INDEX, self._unique("block")), _CHECKED_TOGETHER
        start = times(block, size)
        end = apply("minimum", plus(start, size), loops.extent)
        blocks = apply("floor_div", plus(loops.extent, size - 1), index(size))
        inner = replace(loops, start=start, extent=end)
        return For(block.name, blocks, self._combine_conditions(inner, holds, requirement))

    def _combine_conditions(
        self, loop: Statement, holds: Variable, requirement: Requirement
    ) -> Body:
        """Return a loop that combines conditions into a variable, and the check of the variable."""
        start = Var(holds.name, number(True, dtypes.bool_))
        return start, loop, Check(holds, requirement.message)

    def _reduce(self, value: Value, reduction: Reduction) -> None:
        """Write a reduction: one accumulator per result, with the reduced axes as inner loops."""
        buffer = self._buffers[value]
        inner = [size for axis, size in enumerate(reduction.space) if axis in reduction.axes]

        def result(*position: Expr) -> None:
            total = Variable(reduction.initial.dtype, self._unique("total"))
            self._emit(Var(total.name, reduction.initial))

            def combine(*reduced: Expr) -> None:
                resolved = self._resolve(
                    reduction.element(*_reduction_indices(reduction, position, reduced))
                )
                self._emit(Assign(total.name, resolved, reduction.combine))

            self._nest(inner, combine)
            self._emit(Store(buffer.name, position, total))

        self._nest(value.shape, result)

    def _reduce_rows(self, value: Value, reduction: Reduction) -> None:
        """Write a reduction row by row, so that inner loops access contiguous memory."""
        name = self._buffers[value].name
        self._nest(
            value.shape, lambda *position: self._emit(Store(name, position, reduction.initial))
        )

        def combine(*indices: Expr) -> None:
            position = tuple([i for axis, i in enumerate(indices) if axis not in reduction.axes])
            resolved = self._resolve(reduction.element(*indices))
            self._emit(Store(name, position, resolved, reduction.combine))

        self._nest(reduction.space, combine)

    def _nest(self, sizes: Sequence[int], write: Callable[..., None]) -> None:
        """Write loops over sizes; `write` emits their body and receives their variables."""
        if 0 in sizes:
            return
        variables = [Variable(INDEX, self._unique("i")) for _ in sizes]
        outer, self._body = self._body, []
        self._known_expressions.append({})
        write(*variables)
        self._known_expressions.pop()
        body: Body = tuple(self._body)
        for variable, size in reversed(list(zip(variables, sizes, strict=True))):
            body = (For(variable.name, index(size), body),)
        self._body = [*outer, *body]

    def _emit(self, statement: Statement) -> None:
        self._body.append(statement)

    # ---------------------------------------------------------------------- expressions

    def _resolve(self, expression: Expr) -> Expr:
        """Replace `Element`s in an expression by loads, or by the names of values computed before.

        Shared subexpressions get names too.
        """
        uses = count_subexpressions(expression)
        resolved: dict[Expr, Expr] = {}

        def resolve(part: Expr) -> Expr:
            if part not in resolved:
                new = tuple(map(resolve, operands_of(part)))
                if isinstance(part, Element):
                    resolved[part] = self._element(part.value, new)
                else:
                    resolved[part] = self._share(replace_children(part, new), uses[part])
            return resolved[part]

        return resolve(expression)

    def _share(self, expression: Expr, uses: int) -> Expr:
        if uses < 2 or not isinstance(expression, Apply):
            return expression
        name = Variable(expression.dtype, self._unique("shared"))
        self._emit(Let(name.name, expression))
        return name

    def _element(self, value: Value, indices: Indices) -> Expr:
        buffer = self._buffers.get(value)
        if buffer is not None:
            if value.constant is not None and value.size == 1:
                return Constant(value.dtype, value.constant.reshape(-1)[0].item())
            return Load(value.dtype, buffer.name, indices)
        assert isinstance(value.definition, Elements)
        self._current_group.add(value)
        key = f"{id(value)}[{', '.join(map(str, indices))}]"
        variable = self._known_expressions[-1].get(key)
        if variable is None:
            computed = self._resolve(value.definition.element(*indices))
            variable = computed
            if isinstance(computed, Apply):
                variable = Variable(value.dtype, self._unique(value.name))
                self._emit(Let(variable.name, computed))
            self._known_expressions[-1][key] = variable
        return variable


def predicates_of(paths: Iterable[Path]) -> list[Value]:
    """Return the predicates of some paths, the outermost first."""
    return list(dict.fromkeys(predicate for path in paths for predicate, _ in path))


def _stored(body: Body) -> set[str]:
    """Return the buffers that a body may store to."""
    result = {item.buffer for item in walk(body) if isinstance(item, Store)}
    return result | {
        view.buffer for item in walk(body) if isinstance(item, Call) for view in item.views
    }


def _reduction_indices(reduction: Reduction, indices: Indices, reduced: Indices) -> list[Expr]:
    """Return indices in the space of a reduction from those of result and reduced axes."""
    remaining = {True: iter(reduced), False: iter(indices)}
    return [next(remaining[axis in reduction.axes]) for axis in range(len(reduction.space))]

"""Verifier of programs: names, types, bounds, and the independence of iterations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from weft_compiler.ir.expressions import (
    INDEX,
    Apply,
    Expr,
    Load,
    Variable,
    apply,
    children,
    substitute,
    walk,
)
from weft_compiler.ir.program import (
    COMBINERS,
    Allocate,
    Assign,
    Body,
    Buffer,
    Call,
    Check,
    For,
    If,
    Let,
    Order,
    Program,
    Statement,
    Store,
    Var,
    While,
    expressions,
    loads,
    operand_names,
    walk as walk_statements,
)
from weft_compiler.ir.ranges import Range, affine, implied_ranges, range_of
from weft_graph.ir.scalar import PRIMITIVES, kind
from weft_tensor import errors
from weft_tensor.dtypes import DType


def verify(program: Program) -> None:
    """Check a program.

    Raises: InternalError: a rule of `weft_compiler.ir.program` is violated; the message states the
      rule and shows the statement.
    """
    scope = _Scope()
    for buffer in (*program.inputs, *program.outputs):
        scope.declare(buffer.name, "program")
        scope.buffers[buffer.name] = buffer
    scope.writable = {buffer.name for buffer in program.outputs}
    if not program.updated <= scope.writable:
        odd = sorted(program.updated - scope.writable)
        raise errors.InternalError(f"{odd} are updated but are not outputs")
    for name, value in program.constants.items():
        declared = next((operand for operand in program.inputs if operand.name == name), None)
        if declared is None or (value.dtype, value.shape) != (declared.dtype.numpy, declared.shape):
            raise errors.InternalError(
                f"the constant {name!r} is not an input, or its type differs from the input's"
            )
    _verify_body(program.body, scope)


@dataclass
class _Scope:
    """Names, buffers and ranges that are visible at a statement."""

    names: dict[str, DType] = field(default_factory=dict)
    assignable: set[str] = field(default_factory=set)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    writable: set[str] = field(default_factory=set)
    ranges: dict[str, Range] = field(default_factory=dict)
    definitions: dict[str, Expr] = field(default_factory=dict)
    loops: list[tuple[For, _Scope]] = field(default_factory=list)

    def inner(self) -> _Scope:
        return _Scope(
            dict(self.names),
            set(self.assignable),
            dict(self.buffers),
            set(self.writable),
            dict(self.ranges),
            dict(self.definitions),
            list(self.loops),
        )

    def declare(self, name: str, statement: object) -> None:
        if name in self.names or name in self.buffers:
            _fail(statement, f"{name!r} is already declared")


def _verify_body(body: Body, scope: _Scope) -> None:
    for statement in body:
        for expression in expressions(statement):
            _verify_expression(expression, scope, statement)
        _verify_statement(statement, scope)


def _verify_statement(statement: Statement, scope: _Scope) -> None:
    match statement:
        case For():
            _verify_loop(statement, scope)
        case While(condition=condition, body=body):
            _require_bool(condition, statement)
            _verify_body(body, scope.inner())
        case If(condition=condition, then=then, otherwise=otherwise):
            _require_bool(condition, statement)
            inner = scope.inner()
            _learn(condition, inner)
            _verify_body(then, inner)
            _verify_body(otherwise, scope.inner())
        case Check(condition=condition):
            _require_bool(condition, statement)
            _learn(condition, scope)
        case Let(name=name, value=value) | Var(name=name, value=value):
            scope.declare(name, statement)
            scope.names[name] = value.dtype
            if isinstance(statement, Var):
                scope.assignable.add(name)
            elif value.dtype.is_integer:
                scope.ranges[name] = range_of(value, scope.ranges)
                scope.definitions[name] = substitute(value, scope.definitions)
        case Assign(name=name, value=value, combine=combine):
            if name not in scope.assignable or scope.names[name] is not value.dtype:
                _fail(statement, f"no `var` {name!r} of type {value.dtype.name} is visible")
            _verify_combine(combine, value.dtype, statement)
            _verify_assigned_in_loops(statement, scope)
        case Allocate(buffer=buffer):
            scope.declare(buffer.name, statement)
            scope.buffers[buffer.name] = buffer
            scope.writable.add(buffer.name)
        case Store(buffer=name, indices=indices, value=value, combine=combine):
            if name not in scope.writable:
                _fail(statement, f"{name!r} must be an output or allocated in the program")
            _verify_access(name, value.dtype, indices, scope, statement)
            _verify_combine(combine, value.dtype, statement)
            _verify_stored_in_loops(statement, scope)
        case Call():
            _verify_call(statement, scope)


def _verify_loop(loop: For, scope: _Scope) -> None:
    scope.declare(loop.variable, loop)
    if loop.extent.dtype is not INDEX:
        _fail(loop, f"an int64 extent was required, got {loop.extent.dtype.name}")
    low = 0
    if loop.start is not None:
        low = range_of(loop.start, scope.ranges).low
        if loop.start.dtype is not INDEX or low < 0 or loop.order is Order.PARALLEL:
            _fail(loop, "a start must be an int64 of at least 0, and the loop must not be parallel")
    if loop.order is Order.VECTOR:
        for statement in walk_statements(loop.body):
            if isinstance(statement, For | While | Allocate | Call):
                _fail(loop, f"a vector loop must not contain {type(statement).__name__}")
    inner = scope.inner()
    inner.names[loop.variable] = INDEX
    high = range_of(loop.extent, scope.ranges).high - 1
    inner.ranges[loop.variable] = Range(low, max(low, high))
    inner.loops.append((loop, scope))
    _verify_body(loop.body, inner)


def _verify_expression(expression: Expr, scope: _Scope, statement: Statement) -> None:
    for child in children(expression):
        _verify_expression(child, scope, statement)
    match expression:
        case Variable(name=name, dtype=dtype):
            if scope.names.get(name) is not dtype:
                _fail(statement, f"no variable {name!r} of type {dtype.name} is visible")
        case Load(buffer=name, indices=indices, dtype=dtype):
            if name not in scope.buffers:
                _fail(statement, f"no buffer {name!r} is visible")
            _verify_access(name, dtype, indices, scope, statement)
        case Apply(primitive=primitive, operands=operands, dtype=dtype):
            explicit_type = dtype if PRIMITIVES[primitive].result == "given" else None
            if apply(primitive, *operands, dtype=explicit_type).dtype is not dtype:
                _fail(statement, f"{primitive} does not return {dtype.name}")


def _verify_access(
    name: str, dtype: DType, indices: tuple[Expr, ...], scope: _Scope, statement: Statement
) -> None:
    buffer = scope.buffers[name]
    if buffer.dtype is not dtype:
        _fail(statement, f"{name!r} has elements of type {buffer.dtype.name}, not {dtype.name}")
    if len(indices) != len(buffer.shape):
        _fail(statement, f"{name!r} has {len(buffer.shape)} dimensions, not {len(indices)}")
    for axis, (index, size) in enumerate(zip(indices, buffer.shape, strict=True)):
        if index.dtype is not INDEX:
            _fail(statement, f"an int64 index was required, got {index.dtype.name}")
        result = range_of(index, scope.ranges)
        if not Range(0, size - 1).contains(result):
            _fail(
                statement,
                f"index {axis} of {name!r}, {index}, can be from {result.low} to {result.high}, "
                f"but the dimension has {size} elements",
            )


def _verify_combine(combine: str | None, dtype: DType, statement: Statement) -> None:
    if combine is not None and (
        combine not in COMBINERS or kind(dtype) not in PRIMITIVES[combine].kinds
    ):
        _fail(
            statement,
            f"{combine!r} is not an associative combination of values of type {dtype.name}",
        )


def _verify_assigned_in_loops(assign: Assign, scope: _Scope) -> None:
    """Check that parallel iterations change an outer variable only by combining values into it."""
    for loop, outside in scope.loops:
        if assign.name not in outside.names or loop.order is Order.SERIAL:
            continue
        if loop.order is Order.PARALLEL or assign.combine is None:
            _fail(
                assign,
                f"iterations of the {loop.order.value} loop over {loop.variable!r} must not assign "
                f"to {assign.name!r}",
            )
        for statement in walk_statements(loop.body):
            read = any(
                _mentions(each_expression, assign.name)
                for each_expression in expressions(statement)
            )
            if read or (
                isinstance(statement, Assign)
                and statement.name == assign.name
                and statement.combine != assign.combine
            ):
                _fail(
                    assign,
                    f"{assign.name!r} is undefined until the loop over {loop.variable!r} ends",
                )


def _verify_stored_in_loops(store: Store, scope: _Scope) -> None:
    """Check that iterations that may run in any order store to different elements."""
    for depth, (loop, outside) in enumerate(scope.loops):
        if loop.order is Order.SERIAL or store.buffer not in outside.buffers:
            continue
        inner_variables = {inner.variable for inner, _ in scope.loops[depth + 1 :]}
        separating_axes = [
            axis
            for axis, index in enumerate(store.indices)
            if _is_injective(
                substitute(index, scope.definitions), loop.variable, inner_variables, scope
            )
        ]
        if not separating_axes:
            _fail(
                store,
                f"iterations of the loop over {loop.variable!r} may store to the same element of "
                f"{store.buffer!r}",
            )
        _verify_loaded_as_stored(store, separating_axes, loop, scope)


def _is_injective(index: Expr, variable: str, inner_variables: set[str], scope: _Scope) -> bool:
    """Return True if an index differs for different values of a loop's variable."""
    terms = affine(index)
    if not terms or not terms.get(variable):
        return False
    span = 0
    for name, factor in terms.items():
        if name in inner_variables:
            limits = scope.ranges[name]
            span += abs(factor) * (limits.high - limits.low)
        elif (
            name and name != variable and not any(name == loop.variable for loop, _ in scope.loops)
        ):
            return False
    return span < abs(terms[variable])


def _verify_loaded_as_stored(
    store: Store, separating_axes: list[int], loop: For, scope: _Scope
) -> None:
    """Check that iterations load from a buffer that they write only their own elements."""
    for load in loads(loop.body):
        if load.buffer == store.buffer and not any(
            str(substitute(load.indices[index], scope.definitions))
            == str(substitute(store.indices[index], scope.definitions))
            for index in separating_axes
        ):
            _fail(
                store,
                f"{load} may read an element that another iteration of the loop over "
                f"{loop.variable!r} stores",
            )


def _verify_call(call: Call, scope: _Scope) -> None:
    names = operand_names(type(call))
    for number in call.numbers:
        if number.dtype is not INDEX or any(isinstance(part, Load) for part in walk(number)):
            _fail(call, "a number must be an int64 expression without loads")
    views = {}
    for name, view in zip(names.views, call.views, strict=True):
        if name in names.outputs and view.buffer not in scope.writable:
            _fail(call, f"{view.buffer!r} must be an output or allocated in the program")
        buffer = scope.buffers[view.buffer]
        first = sum(
            range_of(index, scope.ranges).high * stride
            for index, stride in zip(view.indices, buffer.strides, strict=True)
        )
        views[name] = (buffer.dtype, buffer.size - first)
    _verify_sizes(call, scope)
    wrong = call.error(views)
    if wrong:
        _fail(call, wrong)


def _verify_sizes(call: Call, scope: _Scope) -> None:
    known_values = dict(call.parameters)
    for name, size in call.sizes:
        result = range_of(size, scope.ranges)
        if size.dtype is not INDEX or not Range(1, known_values.get(name, 0)).contains(result):
            _fail(
                call,
                f"{name} must be from 1 to {known_values.get(name, 0)}, but can be from "
                f"{result.low} to {result.high}",
            )


def _mentions(expression: Expr, name: str) -> bool:
    return any(isinstance(part, Variable) and part.name == name for part in walk(expression))


def _learn(condition: Expr, scope: _Scope) -> None:
    for name, limits in implied_ranges(condition, scope.ranges).items():
        if name not in scope.assignable:
            scope.ranges[name] = scope.ranges.get(name, limits).intersect(limits)


def _require_bool(condition: Expr, statement: Statement) -> None:
    if not condition.dtype.is_bool:
        _fail(statement, f"a bool was required as the condition, got {condition.dtype.name}")


def _fail(statement: object, label: str) -> NoReturn:
    first = str(statement).splitlines()[0]
    raise errors.InternalError(f"invalid program at `{first}`: {label}")

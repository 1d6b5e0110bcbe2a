"""Lowering of a region to a program, for given shapes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from weft_compiler.ir.expressions import Expr, apply, index, number, scalar_expression, where
from weft_compiler.ir.program import Program
from weft_compiler.layouts import STATE
from weft_compiler.lower.analysis import analyze, facts_of, memory_of, pending_checks
from weft_compiler.lower.complex_numbers import (
    is_complex,
    lower_complex,
    stored_shape,
    stored_value,
    unsupported_complex_reason,
)
from weft_compiler.lower.iteration import Path
from weft_compiler.lower.origins import Fused, nodes_of, origins
from weft_compiler.lower.registry import (
    Operation,
    Unsupported,
    Update,
    require,
    rule_of,
    update_of,
)
from weft_compiler.lower.values import (
    Requirement,
    ScatterUpdate,
    Select,
    Value,
    broadcast,
    compute_value,
    select_value,
    update_if,
)
from weft_compiler.lower.writer import write
from weft_graph.ir.code_generators import MAX_SMALL_ELEMENTS, Branches, RegionRequest
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import NodeSpec, lookup_op
from weft_graph.ir.scalar import Scalar, applications
from weft_graph.ir.traits import Role
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

Shape = tuple[int, ...]

_DIVIDES: Final = {"div", "floor_div", "floor_mod", "trunc_mod", "reciprocal"}


def unsupported_reason(node: Node) -> str:
    """Return why a node cannot be lowered for any shapes, or ""."""
    traits = node.op_def.traits
    update = update_of(node.type)
    if node.role is Role.SWITCH and _passes_variable(node):
        return ""
    if update is not None:
        operand_types = [
            state_type(node),
            *[source.dtype for source in node.inputs[update.states :]],
        ]
        odd_types = [dtype.name for dtype in operand_types if not is_computable(dtype)]
        return f"it has values of type {odd_types[0]}" if odd_types else ""
    odd = [out.dtype for out in (*node.inputs, *node.outputs) if not is_stored(out.dtype)]
    if odd:
        return f"it has values of type {odd[0].name}"
    routed = node.role in (Role.SWITCH, Role.MERGE)
    if is_complex(node) and not routed:
        return unsupported_complex_reason(node)
    if routed or traits.identity or rule_of(node.type) is not None:
        return ""
    if traits.scalar is None or traits.scalar.by_kernel:
        return f"there is no lowering rule for {node.type}"
    return _missing_primitive_reason(node)


def _missing_primitive_reason(node: Node) -> str:
    """Return why the code generator cannot compute an elementwise op, or ""."""
    definition = node.op_def.traits.scalar
    assert definition is not None
    scalar = definition.expression([v.dtype.base_dtype for v in node.inputs], node.outputs[0].dtype)
    for part in applications(scalar):
        if part.name == "next_after" and part.dtype.size == 2:
            return f"{part.name} cannot be compiled for {part.dtype.name}"
    return ""


def lower(
    request: RegionRequest,
    name: str | None = None,
    fused: dict[str, list[Node]] | None = None,
    direct: bool = False,
) -> Program:
    """Lower nodes, including their updates of variables, to a program.

    Args:
      request: the nodes, and the shapes and known values to compile them for.
      name: the name of the program; by default that of the request.
      fused: a dict that receives the nodes computed for each buffer and each check.
      direct: use direct convolution, not an algorithm with fewer multiplications.
    Returns: a program with the inputs and outputs of the request, in its order. After the inputs
      follow the states of the random streams, if there are `rng_nodes`, and the constants that the
      program uses. If a random node is in a branch, an additional bool output says which random
      nodes have run. Variables that nodes change are not inputs, but outputs that are updated in
      place; they come last, in the order of `updated_variables`.
    Raises: Unsupported: the nodes cannot be lowered with these shapes.
    """
    members, inputs, outputs, shapes, known_value, branches, _ = request
    counterparts = specialize(members, inputs, shapes, known_value)
    values: dict[Output, Value] = {
        counterparts[input_]: _input_value(input_, counterparts[input_]) for input_ in inputs
    }
    rows = {member: row for row, member in enumerate(rng_nodes(members))}
    streams = Value("streams", dtypes.uint64, (len(rows), STATE))
    states = {state: values[counterparts[state]] for state in updated_variables(members)}
    olds = set(states.values())
    result: list[tuple[Node, Sequence[Value]]] = []
    ways = PathConditions(branches, counterparts, values)
    for member in members:
        if member.role is Role.SWITCH:
            continue
        path = ways.of(member)
        if update_of(member.type) is not None:
            change = _change(member, counterparts, values, olds)
            result.append((member, change))
            for source, new in zip(changed_variables(member), change, strict=True):
                values[counterparts[source]] = ways.value_after(
                    path, new, values[counterparts[source]]
                )
            continue
        if member.role is Role.MERGE:
            values |= zip(
                [counterparts[output] for output in member.outputs],
                ways.join_branches(member),
                strict=True,
            )
            continue
        for node in dict.fromkeys(counterparts[output].node for output in member.outputs):
            stream = (streams, rows[member]) if member in rows else None
            results = lower_node(node, [values[source] for source in node.inputs], stream, direct)
            for output, value in zip(node.outputs, results, strict=True):
                assert (value.dtype, value.shape) == stored_type(output), (node, value)
                values[output] = value
        result.append((member, [values[counterparts[output]] for output in member.outputs]))
        ways.note(result[-1][1], path)
    gives = _output_values(outputs, counterparts, values, ways)
    leaving = list(zip(outputs, gives, strict=True))
    if any(ways.of(member) for member in rows):
        gives.append(ways.executed_mask(rows))
    first = [values[counterparts[input_]] for input_ in inputs if input_ not in states]
    constants = [value for value in values.values() if value.constant is not None]
    lasts = [values[counterparts[state]] for state in states]
    updates = list(zip(states.values(), _copy_shared(lasts, gives), strict=True))
    interval = [value for _, results in result for value in results]
    checks = pending_checks(interval, [*gives, *[new for _, new in updates]])
    ways.paths |= {check: ways.paths.get(value, ()) for value, check in checks.items()}
    reads = list(dict.fromkeys([*first, *([streams] if rows else []), *constants]))
    filled: Fused = {}
    name = name or request.name
    program = write(name, reads, gives, updates, filled, ways.paths, list(checks.values()))
    if fused is not None:
        result += [(output.node, [value]) for output, value in leaving]
        fused.update(nodes_of(filled, origins(result, [*first, *states.values()])))
    return program


def _output_values(
    outputs: Sequence[Output],
    counterparts: Mapping[Output, Output],
    values: Mapping[Output, Value],
    ways: PathConditions,
) -> list[Value]:
    """Return the values that fill the outputs, without duplicates.

    An output that is an input, or equals an earlier output, becomes a copy.
    """
    expected: list[Value] = []
    for output in outputs:
        value = values[counterparts[output]]
        if value.definition is None or value in expected:
            value = compute_value(output.node.name, value.dtype, value.shape, value.at)
            ways.note([value], ways.of(output.node))
        value.is_complex = output.dtype.is_complex
        expected.append(value)
    return expected


def _input_value(source: Output, output: Output) -> Value:
    """Return the value of an input, as a constant if it is known."""
    constant = output.node.attrs["value"] if output.node.role is Role.CONSTANT else None
    if output.dtype.is_complex and constant is not None:
        constant = stored_value(constant)
    value = Value(source.node.name, *stored_type(output), constant=constant)
    value.is_complex = output.dtype.is_complex
    return value


class PathConditions:
    """Conditions under which values are computed, from the branches of their nodes."""

    def __init__(
        self,
        branches: Branches,
        outputs: Mapping[Output, Output],
        values: Mapping[Output, Value],
    ) -> None:
        self._branches = branches
        self._twins = outputs
        self._values = values
        self._visited: set[Value] = set()
        self.paths: dict[Value, Path] = {}

    def of(self, member: Node) -> Path:
        """Return the path on which a node runs."""
        path = self._branches.paths.get(member, ())
        return tuple([(self._predicate(switch), side) for switch, side in path])

    def _predicate(self, switch: Node) -> Value:
        value = self._values[self._twins[switch.inputs[1]]]
        require(value.shape == (), "the predicate of a conditional must be a scalar")
        return value

    def join_branches(self, merge: Node) -> list[Value]:
        """Return the results of a Merge: the selected value, and the index of its input."""
        switch, side = self._branches.sides[merge]
        predicate = self._predicate(switch)
        values = [self._values[self._twins[source]] for source in merge.inputs]
        then, otherwise = values[side], values[not side]
        input_indices = [number(position, dtypes.int32) for position in (side, not side)]
        result = [
            select_value(merge.name, predicate, then, otherwise),
            compute_value(
                merge.name, dtypes.int32, (), lambda: where(predicate.at(), *input_indices)
            ),
        ]
        self.note(result, self.of(merge))
        return result

    def value_after(self, path: Path, new: Value, old: Value) -> Value:
        """Return the value of a variable after an update that runs under `path`.

        Selects are nested from the inside out: the predicate of an inner branch has a value only
        inside the outer branch.
        """
        self.note([new], path)
        definition = new.definition
        if (
            path
            and isinstance(definition, ScatterUpdate)
            and list(definition.change.before) == [old]
        ):
            # The requirements of `new` were noted above and are checked under the path.
            new = update_if(path, new)
            self.note([new], ())
            return new
        for position, (predicate, side) in reversed(list(enumerate(path))):
            then, otherwise = (new, old) if side else (old, new)
            new = select_value(new.name, predicate, then, otherwise)
            self.note([new], path[:position])
        return new

    def executed_mask(self, drawing: Iterable[Node]) -> Value:
        """Return a vector that says which of the random nodes have run."""
        ran = [self._runs(self.of(member)) for member in drawing]

        def element(position: Expr) -> Expr:
            result = ran[-1].at()
            for row, runs in list(enumerate(ran))[-2::-1]:
                result = where(apply("equal", position, index(row)), runs.at(), result)
            return result

        return compute_value("drew", dtypes.bool_, (len(ran),), element)

    def _runs(self, path: Path) -> Value:
        """Return a bool scalar that is true if `path` is taken."""
        yes, no = [
            compute_value("runs", dtypes.bool_, (), partial(number, value, dtypes.bool_))
            for value in (True, False)
        ]
        result = yes
        for position, (predicate, side) in reversed(list(enumerate(path))):
            then, otherwise = (result, no) if side else (no, result)
            result = select_value("runs", predicate, then, otherwise)
            self.note([result], path[:position])
        return result

    def note(self, values: Sequence[Value], path: Path) -> None:
        """Record the path of new values, and of the values that they are computed from."""
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            if value in self._visited or value.definition is None:
                continue
            self._visited.add(value)
            if path:
                self.paths[value] = path
            facts = facts_of(value)
            waiting += [*facts.takes, *facts.written]


def rng_nodes(members: Sequence[Node]) -> list[Node]:
    """Return the nodes that draw random numbers from a separate stream."""
    return [member for member in members if member.op_def.traits.random]


def updated_variables(members: Sequence[Node]) -> list[Output]:
    """Return the variables that nodes change, as references and handles without duplicates.

    A reference that such a node returns is replaced by the one that it received as its first input.
    """
    changes = [member for member in members if changed_variables(member)]
    states = states_of(changes)
    return list(
        dict.fromkeys(states[source] for member in changes for source in changed_variables(member))
    )


def states_of(members: Sequence[Node]) -> dict[Output, Output]:
    """Map references and handles that nodes change or return to the inputs that they came from."""
    outputs: dict[Output, Output] = {}
    for member in members:
        for source in changed_variables(member):
            outputs.setdefault(source, source)
        if changed_variables(member):
            outputs |= {output: outputs[member.inputs[0]] for output in member.outputs}
    return outputs


def changed_variables(node: Node) -> Sequence[Output]:
    """Return the references and handles of the variables that a node changes."""
    update = update_of(node.type)
    return node.inputs[: update.states] if update is not None else ()


def reads_state(node: Node) -> bool:
    """Return True if a node reads the variable that is its input."""
    if len(node.inputs) != 1 or len(node.outputs) != 1 or not is_computable(node.outputs[0].dtype):
        return False
    source = node.inputs[0].dtype
    gives_value = not node.outputs[0].dtype.is_ref
    by_reference = source.is_ref and node.op_def.traits.identity and gives_value
    return by_reference or (source is dtypes.resource and rule_of(node.type) is not None)


def _passes_variable(node: Node) -> bool:
    """Return True if the input of the node is the reference or the handle of a variable."""
    dtype = node.inputs[0].dtype
    return dtype.is_ref or dtype is dtypes.resource


def state_type(node: Node) -> DType:
    """Return the element type of the variables that a node changes."""
    dtype: DType = node.attrs["T" if "T" in node.attrs else "dtype"]
    return dtype.base_dtype


def _change(
    node: Node,
    outputs: Mapping[Output, Output],
    values: Mapping[Output, Value],
    olds: Collection[Value],
) -> Sequence[Value]:
    """Return the new values of the variables that a node changes.

    Args:
      olds: the values that are stored in the memory of variables.
    """
    update = update_of(node.type)
    assert update is not None
    states = update.states if update.rows is not None else len(node.inputs)
    operands = [values[outputs[source]] for source in node.inputs]
    operands[states:] = [_copy_if_aliased(value, olds) for value in operands[states:]]
    require(
        len({outputs[source] for source in changed_variables(node)}) == update.states,
        f"{node.name} updates the same variable twice",
    )
    return new_values(node, update, operands)


def _copy_if_aliased(value: Value, olds: Collection[Value]) -> Value:
    """Return a value, as a copy if it is in the memory of a variable.

    Updates of rows need the copy, because they write to that memory before all elements are read.
    """
    is_aliased = memory_of(value) in olds
    return compute_value(value.name, value.dtype, value.shape, value.at) if is_aliased else value


def _copy_shared(lasts: Sequence[Value], values: Sequence[Value]) -> list[Value]:
    """Return the final values of variables, copied if something else uses them.

    They are written to the variables' memory at the end and must have no other users then.
    """
    facts = analyze([*values, *lasts])
    used = {
        value for value in lasts if facts[value].users or facts[value].in_memory or value in values
    }
    return [_restore_updates(value) if value in used else value for value in lasts]


def _restore_updates(value: Value) -> Value:
    """Return another value with the same elements, and the updates undone."""
    definition = value.definition
    if isinstance(definition, Select):
        return select_value(value.name, definition.predicate, definition.then, definition.otherwise)
    return compute_value(value.name, value.dtype, value.shape, value.at)


def new_values(node: Node, update: Update, operands: Sequence[Value]) -> list[Value]:
    """Return the new values of the variables that a node changes."""
    if update.rows is not None:
        return list(update.rows(node, operands))
    assert update.new is not None
    shape = operands[0].shape
    for position, operand in enumerate(operands):
        expected = () if position in update.scalars else shape
        require(
            operand.shape == expected,
            f"{operand.name} has shape {operand.shape}, its variable {expected}",
        )
    arguments = [
        Scalar("input", operand.dtype, (), position) for position, operand in enumerate(operands)
    ]
    return [
        compute_value(f"{old.name}_new", old.dtype, shape, _elements(new, operands))
        for old, new in zip(operands, update.new(node.attrs, *arguments), strict=False)
    ]


def _elements(scalar: Scalar, operands: Sequence[Value]) -> Callable[..., Expr]:
    def element(*position: Expr) -> Expr:
        return scalar_expression(
            scalar,
            lambda i: operands[i].at(*position[: operands[i].rank] if operands[i].rank else ()),
        )

    return element


def specialize(
    members: Sequence[Node],
    inputs: Sequence[Output],
    shapes: Sequence[Shape],
    given_values: Mapping[int, Any],
) -> dict[Output, Output]:
    """Copy nodes to a new graph with all shapes known.

    Returns: the copies of the inputs and of the members' outputs.
    Raises: Unsupported: a shape depends on values that are known only when a step runs.
    """
    graph = Graph()
    outputs: dict[Output, Output] = {}
    types_of = {
        source: member.outputs[0].dtype
        for member in members
        if reads_state(member)
        for source in member.inputs
    }
    types_of |= {
        source: state_type(member) for member in members for source in changed_variables(member)
    }
    states = states_of(members)
    for position, (input_output, shape) in enumerate(zip(inputs, shapes, strict=True)):
        node = input_output.node
        name = graph.unique_name(node.name)
        if node.role is Role.CONSTANT:
            outputs[input_output] = graph.add_copy(node, name, ()).outputs[0]
            continue
        dtype = types_of.get(input_output, input_output.dtype.base_dtype)
        attrs: dict[str, Any] = {"dtype": dtype}
        attrs |= {"value": given_values[position]} if position in given_values else {"shape": shape}
        op = lookup_op("Const" if position in given_values else "Placeholder")
        counterpart = graph.add_derived(node, op, name, (), attrs, [dtype], [shape])
        outputs[input_output] = counterpart.outputs[0]
    for member in members:
        if update_of(member.type) is not None:
            outputs.update({output: outputs[states[output]] for output in member.outputs})
            continue
        if member.role is Role.SWITCH:
            outputs.update({output: outputs[member.inputs[0]] for output in member.outputs})
            continue
        if member.role is Role.MERGE:
            shapes_of = [shape_of(outputs[source]) for source in member.inputs]
            require(
                shapes_of[0] == shapes_of[1],
                f"{member.name} merges values of shapes {shapes_of[0]} and {shapes_of[1]}",
            )
            for output, shape in zip(member.outputs, (shapes_of[0], ()), strict=True):
                attrs = {"dtype": output.dtype, "shape": shape}
                name, op = graph.unique_name(member.name), lookup_op("Placeholder")
                counterpart = graph.add_derived(
                    member, op, name, (), attrs, [output.dtype], [shape]
                )
                outputs[output] = counterpart.outputs[0]
            continue
        sources = tuple([outputs[source] for source in member.inputs])
        outputs.update(zip(member.outputs, copy_node(graph, member, sources), strict=True))
    return outputs


def copy_node(graph: Graph, node: Node, sources: tuple[Output, ...]) -> list[Output]:
    """Copy a node to a graph with all shapes known; return its outputs.

    Args:
      sources: its inputs, with known shapes.
    Raises: Unsupported: a shape depends on values that are known only when a step runs.
    """
    rule = node.op_def.shape_rule
    try:
        if reads_state(node):
            result = [sources[0].dims]
        else:
            result = list(rule(NodeSpec(sources, node.attrs))) if rule is not None else []
    except errors.OpError as error:
        raise Unsupported(f"{node.name} has no result for these shapes: {error}") from error
    types = [output.dtype for output in node.outputs]
    require(len(result) == len(types), f"the output shapes of {node.name} are unknown")
    name = graph.unique_name(node.name)
    counterpart = graph.add_derived(node, node.op_def, name, sources, node.attrs, types, result)
    return [
        copy if copy.dims is not None and None not in copy.dims else _constant_twin(graph, copy)
        for copy in counterpart.outputs
    ]


def _constant_twin(graph: Graph, output: Output) -> Output:
    """Return an output as a constant if a shape depends on its value.

    Raises: Unsupported: the value is known only when a step runs.
    """
    node, value = output.node, constant_value(output)
    if value is None:
        raise Unsupported(f"the output shapes of {node.name} depend on values")
    name = graph.unique_name(node.name)
    attrs = {"dtype": output.dtype, "value": value}
    const = lookup_op("Const")
    counterpart = graph.add_derived(node, const, name, (), attrs, [output.dtype], [value.shape])
    return counterpart.outputs[0]


def lower_node(
    node: Node,
    inputs: Sequence[Value],
    stream: tuple[Value, int] | None = None,
    direct: bool = False,
) -> Sequence[Value]:
    """Return the values of a node's results."""
    known_values = [constant_value(output) for output in node.outputs]
    if all(value is not None for value in known_values):
        return list(map(_known, node.outputs, known_values))
    if node.op_def.traits.identity:
        return [inputs[0]]
    operation = Operation(node, inputs, stream, direct)
    if is_complex(node):
        return lower_complex(operation)
    rule = rule_of(node.type)
    if rule is None:
        require(not unsupported_reason(node), unsupported_reason(node))
        return [_elementwise(operation)]
    result = rule(operation)
    return [result] if isinstance(result, Value) else result


def _known(output: Output, value: Any) -> Value:
    """Return the value of an output whose content is known at compile time.

    Short integer vectors and uniform arrays are written as literals in the program. Unlike constant
    buffers, literals can vary with the size in a polymorphic program. A vector such as a shape is
    written in the same way even if its elements happen to be equal.
    """
    if output.dtype.is_complex:
        return Value(output.name, *stored_type(output), constant=stored_value(value))
    array, shape, dtype = np.asarray(value), shape_of(output), output.dtype
    numbers = array.reshape(-1)
    if array.ndim == 1 and dtype.is_integer and 1 < array.size <= MAX_SMALL_ELEMENTS:

        def element(offset: Expr) -> Expr:
            result: Expr = number(numbers[-1].item(), dtype)
            for position, item in list(enumerate(numbers.tolist()))[-2::-1]:
                is_it = apply("equal", offset, index(position))
                result = where(is_it, number(item, dtype), result)
            return result

        return compute_value(output.name, dtype, shape, element)
    if array.size > 1 and array.tobytes() == numbers[:1].tobytes() * array.size:
        constant = number(numbers[0].item(), dtype)
        return compute_value(output.name, dtype, shape, lambda *_: constant)
    return Value(output.name, dtype, shape, constant=value)


def _elementwise(op: Operation) -> Value:
    """Apply the scalar definition of an op to operands that broadcast."""
    definition = op.node.op_def.traits.scalar
    assert definition is not None
    scalar = definition.expression([value.dtype for value in op.inputs], op.dtype())

    def element(*position: Expr) -> Expr:
        return scalar_expression(
            scalar,
            lambda i: op.inputs[i].at(*broadcast(op.inputs[i].shape, position)),
            lambda name: op.node.attrs[name],
        )

    result = compute_value(op.name, op.dtype(), op.shape(), element)
    result.requires = tuple(_divisors(op, scalar))
    return result


def _divisors(op: Operation, scalar: Scalar) -> list[Requirement]:
    """Return the requirements of integer arithmetic: no divisor is 0 and no exponent is negative.

    Kernels check the same conditions.
    """
    parts = [part for part in applications(scalar) if part.dtype.is_integer]
    divided = [part.args[-1] for part in parts if part.name in _DIVIDES]
    powers = [part.args[1] for part in parts if part.name == "pow" and not part.dtype.is_unsigned]
    if 0 in op.shape():
        return []
    return [
        *[_require_comparison(op, item, "not_equal", "a divisor other than 0") for item in divided],
        *[
            _require_comparison(op, power, "greater_equal", "an exponent of 0 or more")
            for power in powers
        ],
    ]


def _require_comparison(op: Operation, part: Scalar, primitive: str, label: str) -> Requirement:
    """Require that a part of a definition compares to 0 by `primitive` for all elements."""

    def condition(*position: Expr) -> Expr:
        difference = scalar_expression(
            part,
            lambda i: op.inputs[i].at(*broadcast(op.inputs[i].shape, position)),
            lambda name: op.node.attrs[name],
        )
        return apply(primitive, difference, number(0, part.dtype))

    space = op.inputs[part.value].shape if part.name == "input" else op.shape()
    return Requirement(space, condition, f"{label} was required")


def is_computable(dtype: DType) -> bool:
    """Return True if programs can compute with values of the type."""
    return dtype.is_bool or dtype.is_integer or dtype.is_floating


def is_stored(dtype: DType) -> bool:
    """Return True if programs can compute with the type, or with the parts of a complex type."""
    return is_computable(dtype) or dtype.is_complex


def stored_type(output: Output) -> tuple[DType, Shape]:
    """Return the type and the sizes of the tensor that represents an output in a program."""
    return output.dtype.base_dtype.real_dtype, stored_shape(output, shape_of(output))


def shape_of(output: Output) -> Shape:
    """Return the sizes of an output whose shape is fully known."""
    assert output.dims is not None
    return tuple([size for size in output.dims if size is not None])

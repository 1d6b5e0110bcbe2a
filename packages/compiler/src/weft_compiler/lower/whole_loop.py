"""Lowering of a whole loop to a program, for given shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from weft_compiler.ir.expressions import Expr, apply, cast, index, number, where
from weft_compiler.ir.program import Program, Store
from weft_compiler.layouts import STATE
from weft_compiler.lower.analysis import facts_of, memory_of
from weft_compiler.lower.iteration import Effect, Emitter, LastValue, LoopBody, Path
from weft_compiler.lower.loop_writer import LoopInterface, write_loop
from weft_compiler.lower.region import (
    copy_node,
    is_computable,
    lower_node,
    new_values,
    shape_of,
    state_type,
)
from weft_compiler.lower.registry import require, update_of
from weft_compiler.lower.tensor_lists import TensorListLowering
from weft_compiler.lower.unique_rows import unique_rows, updates_of_rows
from weft_compiler.lower.values import ScatterUpdate, Value, compute_value, select_value, update_if
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.traits import Role
from weft_graph.passes.flow import only_waits
from weft_graph.passes.functional_form import Block, Branch, Loop, nodes_in
from weft_graph.passes.whole_loops import (
    STRIDE,
    USES,
    Extent,
    Use,
    WholeLoop,
    first_value,
    gradient_source,
    next_value,
    passes_variable,
    reads_rows,
    updated_references,
)
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

Shape = tuple[int, ...]

_TAG: Final = 3
"""The word of a stream's state that receives the number of the iteration."""


def lower_loop(
    name: str,
    loop: WholeLoop,
    shapes: Sequence[Shape],
    extents: Sequence[Extent],
    final: bool,
) -> Program:
    """Lower a loop to a program; see `weft_graph.passes.whole_loops.LoopRequest` for its signature.

    Args:
      shapes, extents, final: as in `LoopRequest`, whose `is_resumable` is `final`.
    Raises: Unsupported: the loop cannot be lowered with these shapes.
    """
    return _Lowering(loop, shapes, extents).program(name, final)


class _Lowering:
    def __init__(self, loop: WholeLoop, shapes: Sequence[Shape], extents: Sequence[Extent]) -> None:
        self._loop_region = loop
        self._shapes = shapes
        self._graph = Graph()
        self._twins: dict[Output, Output] = {}
        self._values: dict[Output, Value] = {}
        self._visited: set[Value] = set()
        self._keepers = [
            TensorListLowering(tensor_list, extent)
            for tensor_list, extent in zip(loop.kept, extents, strict=True)
        ]
        self._keeper = {node: keeper for keeper in self._keepers for node in keeper.storage.nodes}
        self._streams = Value("streams", dtypes.uint64, (len(loop.rng_nodes), STATE))
        self._drawn_flags = Value("drew", dtypes.uint8, (len(loop.rng_nodes),))
        self._rows = {node: row for row, node in enumerate(loop.rng_nodes)}
        self._counts: list[Value] = []
        self._held_variables: set[Value] = set()

    def program(self, name: str, final: bool) -> Program:
        loop = self._loop_region
        inputs: list[Value] = []
        brought: dict[Node, Value] = {}
        variables = loop.enters[: len(loop.variables)] if final else ()
        for position, (enter, shape) in enumerate(zip(loop.enters, self._shapes, strict=True)):
            source = enter.inputs[0].node
            dtype = enter.outputs[0].dtype
            if position in loop.reads:
                dtype = self._type_read_of(position)
            elif position in loop.updates:
                dtype = self._type_changed_at(position)
            if dtype.is_ref or not is_computable(dtype):
                continue
            if source.role is Role.CONSTANT and enter not in variables:
                value = Value(source.name, dtype, shape, constant=source.attrs["value"])
            else:
                value = Value(enter.name, dtype, shape)
                inputs.append(value)
            brought[enter] = value
        loop_body = self._loop(loop.loop, brought)
        outputs: list[Value] = []
        copies: list[tuple[Value, Value | None]] = []
        if loop.rng_nodes:
            outputs.append(self._drawn_flags)
            copies.append((self._drawn_flags, None))
        for keeper in self._keepers:
            keeper.require_known()
            inputs += keeper.inputs
            outputs += keeper.outputs
            copies += keeper.copies
            if final and keeper.storage.use is Use.PUSH:
                limit = keeper.extent.shape[0]
                loop_body.max_iterations = (
                    limit
                    if loop_body.max_iterations is None
                    else min(limit, loop_body.max_iterations)
                )
        inputs += [self._streams] if loop.rng_nodes else []
        is_output_used = [final or item for item in loop.wanted()]
        # Updated variables, iteration counters, and the counts of values left on stacks.
        is_output_used += [True] * (len(loop_body.variables) - len(is_output_used))
        goes_on = loop_body.max_iterations is not None
        return write_loop(
            loop_body, LoopInterface(inputs, is_output_used, outputs, copies, goes_on), name
        )

    def _type_read_of(self, position: int) -> DType:
        """Return the type of a variable that the loop reads, by its position."""
        loop = self._loop_region
        dtype = loop.enters[position].outputs[0].dtype
        if dtype.is_ref:
            return dtype.base_dtype
        node = next(node for node in loop.nodes if loop.variable_read_by(node) == position)
        return node.outputs[0].dtype

    def _type_changed_at(self, position: int) -> DType:
        """Return the type of a variable that the loop updates, by its position."""
        loop = self._loop_region
        changes = (
            state_type(node)
            for node in loop.nodes
            for source in updated_references(node)
            if loop.variable_at(source) == position
        )
        return next(changes)

    def _add_iteration_counter(self, loop_body: LoopBody) -> None:
        """Add an iteration counter to the loop, which selects an iteration's random numbers."""
        none, one = number(0, dtypes.int64), number(1, dtypes.int64)
        iteration = Value("turn", dtypes.int64, ())
        loop_body.variables.append(iteration)
        loop_body.initial.append(compute_value("no_turn", iteration.dtype, (), lambda: none))
        loop_body.next_values.append(
            compute_value(
                "next_turn", iteration.dtype, (), lambda: apply("add", iteration.at(), one)
            )
        )
        self._counts.append(iteration)

    def _draw(self, node: Node, path: Path, loop_body: LoopBody) -> tuple[Value, int]:
        """Return a node's random state in an iteration; add the effect that records its use."""
        row, counts = self._rows[node], list(self._counts)

        def element(_: Expr, position: Expr) -> Expr:
            word = self._streams.at(row, position)
            tag = word
            for depth, iteration in enumerate(counts):
                stream = apply("mul", tag, number(STRIDE, dtypes.uint64)) if depth else tag
                tag = apply("add", stream, cast(iteration.at(), dtypes.uint64))
            return where(apply("equal", position, index(_TAG)), tag, word)

        def note(out: Emitter) -> None:
            out.emit(Store(out.name_of(self._drawn_flags), (index(row),), number(1, dtypes.uint8)))

        loop_body.add_effect(Effect((), path, note))
        loop_body.has_side_effects = True
        return compute_value(f"{node.name}_state", dtypes.uint64, (1, STATE), element), 0

    # ---------------------------------------------------------------------- loops

    def _loop(self, loop: Loop, brought: dict[Node, Value]) -> LoopBody:
        """Build the definitions of a loop.

        Args:
          brought: the values of the loop's Enter nodes.
        """
        frame = loop.frame
        loop_body = LoopBody(frame.name)
        for enter, value in brought.items():
            if value.constant is not None:
                self._is_constant(enter.outputs[0], value)
            else:
                self._is(enter.outputs[0], value)
        for merge in frame.merges:
            first = brought[first_value(merge)]
            variable = Value(merge.name, first.dtype, first.shape)
            loop_body.variables.append(variable)
            loop_body.initial.append(first)
            self._is(merge.outputs[0], variable)
        draws = any(node in self._rows for node in nodes_in([loop]))
        states = self._states_of(loop, updated_references)
        olds = {position: self._state(position) for position in states}
        for key, first in olds.items():
            if first.dense_of is not None or first.definition is not None:
                first = compute_value(first.name, first.dtype, first.shape, first.at)
            loop_body.initial.append(first)
            variable = Value(first.name, first.dtype, first.shape)
            loop_body.variables.append(variable)
            self._held_variables.add(variable)
            self._is(self._root(key), variable)
        if draws:
            self._add_iteration_counter(loop_body)
        self._block(loop.test, (), loop_body)
        assert frame.cond is not None
        loop_body.test = self._value(frame.cond.inputs[0])
        require(loop_body.test.shape == (), "the condition of a loop must be a scalar")
        self._block(loop.body, (), loop_body)
        nexts = [self._value(next_value(merge)) for merge in frame.merges]
        for merge, variable, following in zip(
            frame.merges, loop_body.variables, nexts, strict=False
        ):
            require(
                following.shape == variable.shape,
                f"{merge.name} changes its shape from {variable.shape} to {following.shape}",
            )
        # The next values of iteration counters come last.
        loop_body.next_values[:0] = [*nexts, *[self._state(position) for position in states]]
        if draws:
            self._counts.pop()
        return loop_body

    def _block(self, block: Block, path: Path, loop_body: LoopBody) -> None:
        for step in block:
            if isinstance(step, Branch):
                predicate = self._value(step.pred)
                require(predicate.shape == (), "the predicate of a conditional must be a scalar")
                for side, inner in enumerate(step.sides):
                    self._block(inner, (*path, (predicate, bool(side))), loop_body)
            elif isinstance(step, Loop):
                self._inner(step, path, loop_body)
            else:
                self._node(step, path, loop_body)

    def _inner(self, loop: Loop, path: Path, enclosing: LoopBody) -> None:
        """Build the definitions of a loop inside another loop."""
        frame = loop.frame
        brought: dict[Node, Value] = {}
        captures: list[tuple[Value, Value]] = []
        first = {first_value(merge) for merge in frame.merges}
        states = self._states_of(loop, updated_references)
        olds = {
            position: self._state(position)
            for position in self._states_of(loop, lambda n: n.inputs)
        }
        for key, old in olds.items():
            if key not in states and old.definition is not None:
                inner_variable = Value(old.name, old.dtype, old.shape)
                captures.append((old, inner_variable))
                self._is(self._root(key), inner_variable)
        for enter in frame.enters:
            state = self._updated_at(enter.inputs[0]) is not None
            if state or not self._is_value(enter.inputs[0]):
                continue
            value = self._value(enter.inputs[0])
            if value.dense_of is not None or (enter in first and value.definition is not None):
                value = compute_value(value.name, value.dtype, value.shape, value.at)
            if enter not in first:
                is_variable = value.definition is None
                inner_variable = (
                    value if is_variable else Value(value.name, value.dtype, value.shape)
                )
                captures.append((value, inner_variable))
                value = inner_variable
            brought[enter] = value
        loop_body = self._loop(loop, brought)
        for position, old in olds.items():
            self._is(self._root(position), old)
        for variable, offset in zip(loop_body.variables[len(frame.merges) :], states, strict=False):
            result = Value(variable.name, variable.dtype, variable.shape, LastValue(loop_body))
            loop_body.results[variable] = result
            self._note([result], path, enclosing)
            self._set_variable(offset, result, path, enclosing)
        loop_body.captures += [*captures, *[(iteration, iteration) for iteration in self._counts]]
        enclosing.has_side_effects |= loop_body.has_side_effects
        for exit_ in frame.exits:
            merge = exit_.inputs[0].node.inputs[0].node
            variable = loop_body.variables[frame.merges.index(merge)]
            if variable not in loop_body.results:
                result = Value(exit_.name, variable.dtype, variable.shape, LastValue(loop_body))
                loop_body.results[variable] = result
                self._note([result], path, enclosing)
            self._is(exit_.outputs[0], loop_body.results[variable])
        if loop_body.has_side_effects:
            require(bool(loop_body.results), f"the results of the loop {frame.name} are unused")
            enclosing.add_effect(Effect(list(loop_body.results.values())[:1], path, lambda _: None))

    # ---------------------------------------------------------------------- nodes

    def _node(self, node: Node, path: Path, loop_body: LoopBody) -> None:
        if node.role is Role.CONSTANT:
            self._constant(node)
        elif (
            updated_references(node)
            and self._loop_region.variable_at(updated_references(node)[0]) is not None
        ):
            self._change(node, path, loop_body)
        elif node.role in (Role.SWITCH, Role.LOOP_COND):
            source = node.inputs[0]
            if self._is_value(source) and self._updated_at(source) is None:
                for output in node.outputs:
                    self._twins[output] = self._counterpart(source)
        elif node.role is Role.MERGE:
            self._merge(node, path, loop_body)
        elif node.role is Role.TRIGGER or only_waits(node) or node in self._loop_region.stacks:
            return
        elif passes_variable(node):
            if self._is_value(node.inputs[0]):
                self._twins[node.outputs[0]] = self._counterpart(node.inputs[0])
        elif gradient_source(node):
            self._twins[node.outputs[1]] = self._counterpart(node.inputs[1])
        elif node.type in USES:
            self._keep(node, path, loop_body)
        elif updates_of_rows(node):
            self._unique(node, path, loop_body)
        else:
            self._compute(node, path, loop_body)

    def _keep(self, node: Node, path: Path, loop_body: LoopBody) -> None:
        """Lower an operation on a TensorArray or a stack."""
        operands = [self._value(s) for s in node.inputs if is_computable(s.dtype)]
        result = self._keeper[node].done(node, operands, path, loop_body)
        loop_body.has_side_effects = True
        self._note(result, path, loop_body)
        if node.outputs[0].dtype is not dtypes.resource:
            self._is(node.outputs[0], result[0])

    def _compute(self, node: Node, path: Path, loop_body: LoopBody) -> None:
        """Lower a node that has no side effects."""
        sources = tuple([self._counterpart(source) for source in node.inputs])
        rows = reads_rows(node)
        counterparts = (
            self._gather_rows(node, sources) if rows else copy_node(self._graph, node, sources)
        )
        self._twins.update(zip(node.outputs, counterparts, strict=True))
        for counterpart in dict.fromkeys(item.node for item in counterparts):
            stream = self._draw(node, path, loop_body) if node in self._rows else None
            results = lower_node(
                counterpart, [self._values[source] for source in counterpart.inputs], stream
            )
            self._note(results, path, loop_body)
            for output, value in zip(counterpart.outputs, results, strict=True):
                self._values[output] = value

    def _gather_rows(self, node: Node, sources: tuple[Output, ...]) -> Sequence[Output]:
        """Gather rows from the current value of a variable."""
        variable, indices = map(shape_of, sources)
        require(bool(variable), f"{node.name} gathers rows of a scalar")
        gather, name = lookup_op("Gather"), self._graph.unique_name(node.name)
        types = {"Tparams": sources[0].dtype, "Tindices": sources[1].dtype}
        dims = (*indices, *variable[1:])
        counterpart = self._graph.add_derived(
            node, gather, name, sources, types, [sources[0].dtype], [dims]
        )
        return counterpart.outputs

    def _unique(self, node: Node, path: Path, loop_body: LoopBody) -> None:
        """Lower the `Unique` of a sparse gradient: the distinct row indices."""
        update = updates_of_rows(node)[0]
        position = self._loop_region.variable_at(updated_references(update)[0])
        assert position is not None
        shape = self._state(position).shape
        require(bool(shape) and shape[0] > 0, "the variable is a scalar, so it has no rows")
        result = unique_rows(node, self._value(node.inputs[0]), shape[0])
        self._note(result, path, loop_body)
        for output, value in zip(node.outputs, result, strict=True):
            self._is(output, value)

    def _change(self, node: Node, path: Path, loop_body: LoopBody) -> None:
        """Lower a node that updates variables."""
        update = update_of(node.type)
        assert update is not None
        indices = [self._loop_region.variable_at(source) for source in updated_references(node)]
        operands = [self._value(source) for source in node.inputs]
        if update.rows is not None:  # it writes to memory that other operands may be read from
            states = update.states
            operands[states:] = [self._copy_if_aliased(value) for value in operands[states:]]
        new = new_values(node, update, operands)
        self._note(new, path, loop_body)
        for position, value in zip(indices, new, strict=True):
            assert position is not None
            self._set_variable(position, value, path, loop_body)

    def _copy_if_aliased(self, value: Value) -> Value:
        """Return a value, as a copy if it is in the memory of a variable."""
        if memory_of(value) not in self._held_variables:
            return value
        return replace(
            compute_value(value.name, value.dtype, value.shape, value.at), count=value.count
        )

    def _set_variable(self, position: int, new: Value, path: Path, loop_body: LoopBody) -> None:
        """Set the value of a variable from this point on, if `path` is taken."""
        old = self._state(position)
        definition = new.definition
        if (
            path
            and isinstance(definition, ScatterUpdate)
            and list(definition.change.before) == [old]
        ):
            # The requirements of `new` were noted by the caller and are checked under the path.
            new = update_if(path, new)
            self._note([new], (), loop_body)
            path = ()
        for depth, (predicate, side) in reversed(list(enumerate(path))):
            then, otherwise = (new, old) if side else (old, new)
            new = select_value(new.name, predicate, then, otherwise)
            self._note([new], path[:depth], loop_body)
        self._is(self._root(position), new)

    def _states_of(self, loop: Loop, outputs_of: Callable[[Node], Sequence[Output]]) -> list[int]:
        """Return the positions of updated variables among the outputs that `outputs_of` selects."""
        sources = [source for node in nodes_in([loop]) for source in outputs_of(node)]
        result = {self._loop_region.variable_at(source) for source in sources}
        return sorted(
            position
            for position in result
            if position is not None and position in self._loop_region.updates
        )

    def _updated_at(self, output: Output) -> int | None:
        """Return the position of the variable that an output refers to.

        None if the loop does not update it.
        """
        position = self._loop_region.variable_at(output)
        return position if position in self._loop_region.updates else None

    def _root(self, position: int) -> Output:
        """Return the output that represents an updated variable."""
        return self._loop_region.enters[position].outputs[0]

    def _state(self, position: int) -> Value:
        """Return the current value of a variable."""
        return self._values[self._twins[self._root(position)]]

    def _constant(self, node: Node) -> None:
        value = node.attrs["value"]
        known_value = Value(node.name, node.outputs[0].dtype, value.shape, constant=value)
        self._is_constant(node.outputs[0], known_value)

    def _merge(self, node: Node, path: Path, loop_body: LoopBody) -> None:
        """Lower a Merge: select the value of the branch that is taken."""
        flow = self._loop_region.flow
        lower, upper = [flow.output_guard(source) for source in node.inputs]
        ((pred, side),) = upper - lower
        predicate = self._value(pred)
        first, second = [self._value(source) for source in node.inputs]
        then, otherwise = (second, first) if side else (first, second)
        require(
            first.shape == second.shape,
            f"{node.name} merges values of shapes {first.shape} and {second.shape}",
        )
        result = compute_value(
            node.name,
            first.dtype,
            first.shape,
            lambda *position: where(predicate.at(), then.at(*position), otherwise.at(*position)),
        )
        input_index = compute_value(
            node.name,
            dtypes.int32,
            (),
            lambda: where(
                predicate.at(), number(side, dtypes.int32), number(1 - side, dtypes.int32)
            ),
        )
        self._note([result, input_index], path, loop_body)
        self._is(node.outputs[0], result)
        self._is(node.outputs[1], input_index)

    def _note(self, values: Sequence[Value], path: Path, loop_body: LoopBody) -> None:
        """Record the path of new values, and of the values that they are computed from."""
        loop_body.node_values += values
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            if value in self._visited or value.definition is None:
                continue
            self._visited.add(value)
            if path:
                loop_body.paths[value] = path
            facts = facts_of(value)
            waiting += [*facts.takes, *facts.written]

    # ---------------------------------------------------------------------- values

    def _is_value(self, output: Output) -> bool:
        """Return True if the output is lowered to a value; most references are not."""
        return output in self._twins or (is_computable(output.dtype) and not output.dtype.is_ref)

    def _value(self, output: Output) -> Value:
        return self._values[self._counterpart(output)]

    def _counterpart(self, output: Output) -> Output:
        """Return the counterpart of an output in the specialized graph; constants need no Enter."""
        node = output.node
        position = self._updated_at(output)
        if position is not None:
            return self._twins[self._root(position)]
        if output not in self._twins and node.role is Role.CONSTANT:
            self._constant(node)
        return self._twins[output]

    def _is(self, output: Output, value: Value) -> None:
        """Set the value of an output, whose type and shape are known."""
        self._add(output, value, "Placeholder", {"shape": value.shape})

    def _is_constant(self, output: Output, value: Value) -> None:
        self._add(output, value, "Const", {"value": value.constant})

    def _add(self, output: Output, value: Value, op: str, attrs: dict[str, Any]) -> None:
        attrs = {"dtype": value.dtype, **attrs}
        node = output.node
        counterpart = self._graph.add_derived(
            node,
            lookup_op(op),
            self._graph.unique_name(node.name),
            (),
            attrs,
            [value.dtype],
            [value.shape],
        )
        self._twins[output] = counterpart.outputs[0]
        self._values[counterpart.outputs[0]] = value

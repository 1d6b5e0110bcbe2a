"""Conditionals and loops: Switch, Merge, Enter and Exit become If and While.

The functional form of a step (`weft_graph.passes.functional_form`) consists of blocks. A branch
becomes a subgraph that reads values of the outer graph and returns the values used there. A loop
becomes two subgraphs: the condition, and the body, which recomputes the parts of the condition that
it needs. Loop invariants are computed before the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from weft_exec.executor.priority import is_update, sort_by_priority
from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import is_back_edge
from weft_graph.ir.traits import Role
from weft_graph.passes.flow import Flow, Frame, predicate
from weft_graph.passes.functional_form import Block, Branch, Loop, Step, Structurer
from weft_lite.convert.errors import NotInLiteError
from weft_lite.convert.lowered import TYPES, Lowered, Value
from weft_lite.convert.registry import Builder, OpKind, describe_location
from weft_lite.convert.shapes import shape_change_error
from weft_lite.schema.tables import IfOptions, WhileOptions
from weft_tensor import errors

_LOOP_ROLES = (Role.EXIT, Role.NEXT_ITERATION, Role.ENTER, Role.TRIGGER)


def is_handle(output: Output) -> bool:
    """Return True if an output is a handle or reference of a variable or a TensorArray."""
    return output.dtype.is_ref or output.dtype.name == "resource"


class FlowLowering:
    """Lowering of the nodes of a step, including its conditionals and loops.

    Args:
      nodes: nodes in topological order.
      builder: receives the lowered ops.
      rule: function that lowers a node that is not control flow.
    """

    def __init__(
        self, nodes: Sequence[Node], builder: Builder, rule: Callable[[Node], None]
    ) -> None:
        self._nodes = sort_by_priority(nodes)
        self._builder = builder
        self._rule = rule
        self._flow = Flow(self._nodes)

    def run(self, fetches: Sequence[Output]) -> None:
        """Lower all nodes.

        Raises: UnimplementedError: the control flow does not consist of conditionals and loops, or
          a fetch is in a branch.
        """
        self._check(fetches)
        self._block(Structurer(self._nodes, self._flow, is_update).block(self._flow.root))

    def _check(self, fetches: Sequence[Output]) -> None:
        """Raise UnimplementedError for unsupported control flow."""
        problems = [
            f"loop {frame.name}: {frame.problem}" for frame in self._flow.frames if frame.problem
        ]
        problems += [
            f"{output.name} is computed only inside a branch or a loop"
            for output in fetches
            if self._flow.output_guard(output)
            or self._flow.frame.get(output.node, self._flow.root) is not self._flow.root
        ]
        if problems:
            raise errors.UnimplementedError(
                "lite computes conditionals and while loops: " + "; ".join(problems)
            )

    def _block(self, block: Block) -> None:
        """Lower the steps of a block in order."""
        for index, step in enumerate(block):
            if isinstance(step, Branch):
                self._branch(step, block[index + 1 :])
            elif isinstance(step, Loop):
                self._loop(step)
            else:
                self._node(step)

    def _node(self, node: Node) -> None:
        """Lower a node: control flow here, other nodes by their rules."""
        builder = self._builder
        if node.role in (Role.SWITCH, Role.LOOP_COND):
            if not is_handle(node.inputs[0]):
                self._pass(node.inputs[0], node.outputs)
        elif node.role is Role.MERGE:
            if not builder.has(node.outputs[0]) and not is_handle(node.inputs[0]):
                self._merge(node)
        elif node.role not in _LOOP_ROLES:
            self._rule(node)

    def _pass(self, source: Output, results: Iterable[Output]) -> None:
        """Use the value of `source` for `results`."""
        array = self._builder.array(source)
        if array is not None and array.dtype.name not in TYPES:
            for output in results:
                self._builder.fold(output, array)
            return
        value = self._builder.value(source)
        for output in results:
            self._builder.same(output, value)

    @contextmanager
    def _subgraph(self) -> Iterator[Lowered]:
        """Return a context that adds ops to a new subgraph."""
        builder, result = self._builder, Lowered()
        around = builder.scope, builder.channels_last
        builder.lowered.bodies.append(result)
        builder.scope, builder.channels_last = result, dict(builder.channels_last)
        try:
            yield result
        finally:
            builder.scope, builder.channels_last = around

    # ------------------------------------------------------------------ conditionals

    def _branch(self, branch: Branch, after: Block) -> None:
        """Lower a branch to an If; `after` are the steps that follow it."""
        bodies = self._builder.lowered.bodies
        sides, numbers = [], []
        for block in branch.sides:
            with self._subgraph() as subgraph:
                numbers.append(len(bodies))
                self._block(block)
            sides.append(subgraph)
        results: list[Value] = []
        for node in after:
            if isinstance(node, Node) and node.role is Role.MERGE and not is_handle(node.inputs[0]):
                pred, pair = self._sides_of(node)
                if pred is branch.pred and all(map(self._builder.has, pair)):
                    results += self._join(node, pair, sides)
        for position, block in enumerate(branch.sides):
            results += self._export_values(block, position, sides)
        self._if(branch.pred, numbers, results)

    def _merge(self, node: Node) -> None:
        """Lower a Merge whose two inputs are already computed."""
        numbers, sides = [], []
        for _ in range(2):
            with self._subgraph() as subgraph:
                numbers.append(len(self._builder.lowered.bodies))
                sides.append(subgraph)
        pred, pair = self._sides_of(node)
        self._if(pred, numbers, self._join(node, pair, sides))

    def _if(self, pred: Output, numbers: Sequence[int], results: list[Value]) -> None:
        """Add an If of two subgraphs."""
        options = IfOptions(then_subgraph=numbers[1], else_subgraph=numbers[0])
        self._builder.add(OpKind.If, [self._builder.value(pred)], results, options, pred.node.name)

    def _sides_of(self, merge: Node) -> tuple[Output, list[Output]]:
        """Return the predicate of a Merge, and its inputs for False and for True."""
        lower, upper = [self._flow.output_guard(source) for source in merge.inputs]
        differing = upper - lower
        if len(differing) != 1:
            raise errors.UnimplementedError(
                f"lite supports Merge only in conditionals: no predicate selects the input of "
                f"{merge.name}"
            )
        ((pred, side),) = differing
        return pred, list(merge.inputs if side else merge.inputs[::-1])

    def _join(self, merge: Node, pair: Sequence[Output], sides: Sequence[Lowered]) -> list[Value]:
        """Add the two inputs of a Merge to the results of two subgraphs; return its results."""
        builder = self._builder
        values = [builder.value(source) for source in pair]
        if any(value in builder.arrays for value in values):
            result = builder.like(values[0], merge.name)
        else:
            try:
                result = builder.result(merge.outputs[0])
            except NotInLiteError as error:
                raise _describe_refusal(merge, error) from error
            if values[0].declared != values[1].declared:
                result.declared = (-1,) * len(result.shape)
        builder.same(merge.outputs[0], result)
        for side, value in zip(sides, values, strict=True):
            side.outputs.append(value)
        matches = [result]
        if merge.outputs[1].consumers():
            matches.append(builder.result(merge.outputs[1]))
            for side, source in zip(sides, pair, strict=True):
                index = np.int32(merge.inputs.index(source))
                side.outputs.append(builder.constant(f"{merge.name}/index", index))
        return matches

    def _export_values(self, block: Block, position: int, sides: Sequence[Lowered]) -> list[Value]:
        """Return the branch values that are used outside, as zeros for the other branch."""
        builder, inside, results = self._builder, set(_nodes_of(block)), []
        for node in _nodes_of_block(block):
            for output in node.outputs:
                users = [
                    user
                    for user in output.consumers()
                    if user not in inside and not builder.has_results(user)
                ]
                if not users or not builder.has(output) or output.node.role is Role.CONSTANT:
                    continue
                value = builder.value(output)
                if value.array is not None or value not in _values_of(sides[position]):
                    continue
                result = builder.like(value, value.name)
                sides[position].outputs.append(value)
                sides[1 - position].outputs.append(builder.zeros(value, sides[1 - position]))
                builder.same(output, result)
                results.append(result)
        return results

    # ------------------------------------------------------------------ loops

    def _loop(self, loop: Loop) -> None:
        """Lower a loop to a While."""
        builder, frame = self._builder, loop.frame
        for enter in frame.enters:
            if not is_handle(enter.inputs[0]):
                self._pass(enter.inputs[0], enter.outputs)
        merges = [merge for merge in frame.merges if not is_handle(merge.inputs[0])]
        changing = _loop_dependent_nodes(loop, merges)
        test = [step for step in loop.test if set(_nodes_of([step])) & changing]
        self._block([step for step in loop.test if not set(_nodes_of([step])) & changing])
        initial, variables = self._variables(merges)
        needed = _required_steps(
            test, [*loop.body, *[_next_iteration_value(m).node for m in merges]]
        )
        with self._subgraph() as cond:
            numbers = [len(builder.lowered.bodies)]
            for merge, variable in zip(merges, variables, strict=True):
                builder.same(merge.outputs[0], variable)
            self._block(test)
            assert frame.cond is not None
            cond.outputs.append(builder.value(frame.cond.inputs[0]))
        builder.forget(output for node in _nodes_of(test) for output in node.outputs)
        with self._subgraph() as body:
            numbers.append(len(builder.lowered.bodies))
            body.inputs += variables
            self._block([*needed, *loop.body])
            body.outputs += self._next_values(merges, variables)
        results = [builder.like(variable, variable.name) for variable in variables]
        builder.add(OpKind.While, [*initial], results, WhileOptions(*numbers), frame.name)
        self._lower_exits(frame, dict(zip(merges, results, strict=True)))

    def _variables(self, merges: Sequence[Node]) -> tuple[list[Value], list[Value]]:
        """Return the initial values of loop variables, and the variables inside the loop."""
        builder = self._builder
        initial, variables = [], []
        for merge in merges:
            (source,) = [input_ for input_ in merge.inputs if not is_back_edge(merge, input_)]
            first = builder.value(source)
            try:
                bound = None if first in builder.arrays else builder.shape_of(merge.outputs[0])
            except NotInLiteError as error:
                raise _describe_refusal(merge, error) from error
            like = builder.like(first, merge.name)
            if bound is not None and bound != first.shape:
                like.shape, like.declared = bound, (-1,) * len(bound)
            initial.append(first)
            variables.append(like)
        return initial, variables

    def _next_values(self, merges: Sequence[Node], variables: Sequence[Value]) -> list[Value]:
        """Return the next values of loop variables, copied if needed so that all are distinct."""
        builder, result = self._builder, []
        for merge, variable in zip(merges, variables, strict=True):
            value = builder.value(_next_iteration_value(merge))
            same_rank = len(value.shape) == len(variable.shape)
            if not same_rank or (
                merge.name not in builder.shapes.named
                and any(s > limit for s, limit in zip(value.shape, variable.shape, strict=True))
            ):
                raise _describe_refusal(
                    merge, shape_change_error(merge.name, variable.shape, value.shape)
                )
            if value in variables and value is not variable:
                copy = builder.like(value, f"{value.name}/next")
                builder.add(OpKind.Copy, [value], [copy], None, merge.name)
                value = copy
            if value.declared != variable.declared:
                variable.declared = (-1,) * len(variable.shape)
            result.append(value)
        return result

    def _lower_exits(self, frame: Frame, results: dict[Node, Value]) -> None:
        """Use the results of a While for the exits of a loop."""
        for node in frame.exits:
            merge = node.inputs[0].node.inputs[0].node
            if merge in results:
                self._builder.same(node.outputs[0], results[merge])


def _describe_refusal(node: Node, error: NotInLiteError) -> NotInLiteError:
    """Add the node and its source line to an error."""
    return NotInLiteError(f"{node.name} ({node.type}): {error}{describe_location(node)}")


def _next_iteration_value(merge: Node) -> Output:
    """Return the value of a loop variable in the next iteration."""
    (next_value,) = [source for source in merge.inputs if is_back_edge(merge, source)]
    return next_value.node.inputs[0]


def _nodes_of_block(block: Sequence[Step]) -> Iterator[Node]:
    """Yield the nodes of a block and the exits of its loops, without the nodes inside loops."""
    for step in block:
        if isinstance(step, Branch):
            for side in step.sides:
                yield from _nodes_of_block(side)
        elif isinstance(step, Loop):
            yield from step.frame.exits
        else:
            yield step


def _nodes_of(block: Sequence[Step]) -> Iterator[Node]:
    """Yield all nodes of a block, including those of nested branches and loops."""
    for step in block:
        if isinstance(step, Branch):
            for side in step.sides:
                yield from _nodes_of(side)
        elif isinstance(step, Loop):
            frame = step.frame
            yield from (*frame.enters, *frame.merges, *frame.following, *frame.exits)
            yield from _nodes_of(step.test)
            yield from _nodes_of(step.body)
        else:
            yield step


def _values_of(graph: Lowered) -> set[Value]:
    """Return the results of all ops of a graph."""
    return {value for op in graph.ops for value in op.outputs}


def _loop_dependent_nodes(loop: Loop, merges: Sequence[Node]) -> set[Node]:
    """Return the nodes that depend on loop variables."""
    result = {*merges, *_nodes_of(loop.body)}
    stack = [*merges]
    inside = {*_nodes_of(loop.test)}
    while stack:
        for user in stack.pop().consumers:
            if user in inside and user not in result:
                result.add(user)
                stack.append(user)
    return result


def _required_steps(test: Sequence[Step], users: Iterable[Step]) -> list[Step]:
    """Return the steps of a condition on which `users` depend, directly or indirectly."""
    expected = {source.node for node in _nodes_of([*users]) for source in node.inputs}
    expected.update(step for step in users if isinstance(step, Node))
    expected.update(_predicate_nodes(users))
    steps: list[Step] = []
    for step in reversed(test):
        nodes = set(_nodes_of([step]))
        if nodes & expected:
            steps.append(step)
            expected.update(source.node for node in nodes for source in node.inputs)
            expected.update(_predicate_nodes([step]))
    return steps[::-1]


def _predicate_nodes(block: Iterable[Step]) -> Iterator[Node]:
    """Yield the nodes that compute predicates of branches and are not inputs of a Merge."""
    for step in block:
        if isinstance(step, Branch):
            yield step.pred.node
            for side in step.sides:
                yield from _predicate_nodes(side)
        elif isinstance(step, Loop):
            yield from _predicate_nodes([*step.test, *step.body])
        elif step.role is Role.SWITCH:
            yield predicate(step).node

"""Export of branches and loops as If, Loop and Scan of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import is_back_edge
from weft_graph.ir.traits import Role
from weft_graph.passes.flow import Flow
from weft_graph.passes.functional_form import Block, Branch, Loop, Structurer, nodes_in
from weft_io.onnx.export_graph import Body, ExportedNode, Subgraph, Value, as_sequence
from weft_io.onnx.node_export import NodeExport
from weft_io.onnx.stacking import Stacking, State
from weft_tensor import dtypes


class _Conditional:
    """A conditional whose branches are being exported; its results are added merge by merge."""

    def __init__(self) -> None:
        self.sides = (Subgraph("else"), Subgraph("then"))
        self.node: ExportedNode | None = None


class FlowExport:
    """Exports the nodes of a step, with control flow in functional form.

    Args:
      body: receives the nodes.
      nodes: the nodes of the step in topological order.
      live: the nodes whose data the results need.
      add: function that adds a node that is not control flow.
      refuse: function that records an unsupported node with the reason.
    """

    def __init__(
        self,
        body: Body,
        nodes: Sequence[Node],
        live: set[Node],
        add: Callable[[Node], None],
        refuse: Callable[[Node, str], None],
    ) -> None:
        self._body = body
        self._live = live
        self._add = add
        self._refuse = refuse
        self._flow = Flow(nodes)
        self._structurer = Structurer(nodes, self._flow, lambda node: False)

    def is_plain(self) -> bool:
        """Return True if all loops are as `while_loop` builds them; record the others."""
        wrong = [frame for frame in self._flow.frames if frame.problem]
        for frame in wrong:
            first = [*frame.enters, *frame.merges, *self._live][0]
            self._refuse(first, f"{frame.label} cannot be exported as a loop: {frame.problem}")
        return not wrong

    def run(self) -> None:
        """Export everything; all loops must have the form of `while_loop`."""
        self._write(self._structurer.block(self._flow.root))

    def _write(self, block: Block) -> None:
        conditionals: dict[Output, _Conditional] = {}
        for step in block:
            if isinstance(step, Branch):
                self._write_sides(step, conditionals)
            elif isinstance(step, Loop):
                if any(merge in self._live for merge in step.frame.merges):
                    self._write_loop(step)
            elif step in self._live:
                self._write_node(step, conditionals)

    def _write_node(self, node: Node, conditionals: dict[Output, _Conditional]) -> None:
        values = self._body.values
        if node.role is Role.MERGE:
            values[node.outputs[0]] = self._merge(node, conditionals)
        elif node.role is Role.SWITCH:
            for output in node.outputs:
                values[output] = values[node.inputs[0]]
        elif node.role is Role.LOOP_COND:
            values[node.outputs[0]] = values[node.inputs[0]]
        else:
            self._add(node)

    # --------------------------------------------------------------------- conditions

    def _write_sides(self, branch: Branch, conditionals: dict[Output, _Conditional]) -> None:
        result = conditionals.get(branch.pred)
        if result is None or result.node is not None:
            result = conditionals[branch.pred] = _Conditional()
        for side, block in zip(result.sides, branch.sides, strict=True):
            with self._body.in_subgraph(side):
                self._write(block)

    def _merge(self, node: Node, conditionals: dict[Output, _Conditional]) -> Value:
        """Return the value of a Merge of two branches."""
        lower, upper = (self._flow.output_guard(source) for source in node.inputs)
        differs = upper - lower
        pred, side = next(iter(differs), (None, -1))
        if len(differs) != 1 or not isinstance(pred, Output) or node.outputs[1].consumers():
            self._refuse(node, "it does not merge the two branches of one condition")
            return Value(node.outputs[0].dtype.base_dtype)
        match = conditionals.setdefault(pred, _Conditional())
        if match.node is None:
            branches = dict(zip(("else_branch", "then_branch"), match.sides, strict=True))
            match.node = ExportedNode("If", [self._body.values[pred]], [], branches, node.name)
            self._body.nodes.append(match.node)
        sources = [self._body.values[source] for source in node.inputs]
        for index, branch in enumerate(match.sides):
            with self._body.in_subgraph(branch):
                self._give(branch, sources[1] if index == side else sources[0], node.name)
        result = Value(sources[0].dtype, sequence=sources[0].sequence)
        match.node.outputs.append(result)
        return result

    def _give(self, graph: Subgraph, value: Value, name: str) -> None:
        """Add an output to a graph; the value may belong to an enclosing graph."""
        output = as_sequence(self._body, value, name)
        copy = Value(output.dtype, sequence=output.sequence)
        self._body.nodes.append(ExportedNode("Identity", [output], [copy], {}, name))
        graph.outputs.append(copy)

    # -------------------------------------------------------------------------- loops

    def _write_loop(self, loop: Loop) -> None:
        """Export a loop; ONNX evaluates the condition before the loop and after each iteration."""
        values, frame = self._body.values, loop.frame
        assert frame.cond is not None
        for enter in frame.enters:
            self._add_constant(enter.inputs[0])
            if enter.inputs[0] in values:
                values[enter.outputs[0]] = values[enter.inputs[0]]
        merges = [merge for merge in frame.merges if merge in self._live]
        fillings = [self._source(merge, is_back=False).filling for merge in merges]
        inputs = [self._from(merge, is_back=False) for merge in merges]
        goes_on = self._evaluate_condition(loop, merges, inputs)

        body = Subgraph("body")
        with self._body.in_subgraph(body):
            iteration, first = Value(dtypes.int64, dims=()), Value(dtypes.bool_, dims=())
            carried = [
                Value(item.dtype, sequence=item.sequence, dims=merge.outputs[0].dims)
                for item, merge in zip(inputs, merges, strict=True)
            ]
            body.inputs += [iteration, first, *carried]
            self._evaluate_condition(loop, merges, carried)
            _forget(loop.body, self._body)
            self._write(loop.body)
            new = [self._from(merge, is_back=True) for merge in merges]
            for value in (self._evaluate_condition(loop, merges, new), *new):
                self._give(body, value, frame.name)

        results = [Value(item.dtype, sequence=item.sequence) for item in inputs]
        states = [
            State(*item)
            for item in zip(
                merges, inputs, fillings, carried, body.outputs[1:], results, strict=True
            )
        ]
        stacking = Stacking(frame.name, goes_on, body, states, self._body.opset)
        stacking.add(NodeExport(frame.cond, self._body))
        result = dict(zip(merges, results, strict=True))
        for leave in frame.exits:
            merge = leave.inputs[0].node.inputs[0].node
            if merge in result:
                values[leave.outputs[0]] = result[merge]

    def _source(self, merge: Node, is_back: bool) -> Value:
        """Return the initial value of a loop variable, or with `is_back` its next value."""
        (source,) = (item for item in merge.inputs if is_back_edge(merge, item) == is_back)
        result = source.node.inputs[0]
        self._add_constant(result)
        return self._body.values[result]

    def _add_constant(self, source: Output) -> None:
        """Add a constant that enters a loop, in case it comes after the loop in node order."""
        if source not in self._body.values and source.node.role is Role.CONSTANT:
            self._add(source.node)

    def _from(self, merge: Node, is_back: bool) -> Value:
        """Return the source of a Merge, as a sequence if it is a TensorArray."""
        return as_sequence(self._body, self._source(merge, is_back), merge.name)

    def _evaluate_condition(
        self, loop: Loop, merges: Sequence[Node], state: Sequence[Value]
    ) -> Value:
        """Return the value of the loop condition for a state."""
        _forget(loop.test, self._body)
        values, cond = self._body.values, loop.frame.cond
        assert cond is not None
        for merge, value in zip(merges, state, strict=True):
            values[merge.outputs[0]] = value
        self._write(loop.test)
        return values[cond.inputs[0]]


def _forget(block: Block, body: Body) -> None:
    """Forget the values of a block's nodes, so that they are exported again."""
    for node in nodes_in(block):
        for output in node.outputs:
            body.values.pop(output, None)

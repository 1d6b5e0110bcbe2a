"""Values inside of loops, which further loop variables carry out of them.

A probed model has for each value of a loop's body a loop variable that keeps the value of the last
iteration. A flat graph has the bodies without the loops: each node is computed from recorded values
of the same iteration, as outside of loops.
"""

from __future__ import annotations

__all__ = ["LoopProbes", "insert_probes"]

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from weft_graph import proto
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import sort_nodes
from weft_graph.ir.traits import Role
from weft_graph.messages.import_graph_def import import_graph_def
from weft_graph.messages.tensor_proto import make_tensor_proto
from weft_graph.passes.flow import ALWAYS, Flow, Frame
from weft_io.porting.parameter_files import Array
from weft_tensor.dtypes import DType, as_dtype

FLOWS: Final = frozenset(
    f"TensorArray{name}V3" for name in ("", "Write", "Scatter", "Split", "Grad")
)
"""Ops whose results order accesses to a TensorArray and have no value of their own."""

_PREFIX: Final = "probe"


class LoopProbes(NamedTuple):
    """A model with probes in its loops.

    Attributes:
      graph: the model's graph with the probes.
      probed: the tensors of the model that have probes.
      outputs: the values of the last iterations, by the names of these tensors.
      counts: the numbers of iterations, by the names of the loops' conditions.
      flat: a graph of the loops' bodies without loops.
      tensors: the probed tensors that are compared, in the order of the graph.
      names: the names of the probed tensors in `flat`, by their own.
      frames: the name of the condition of each probed tensor's loop, by the tensor's name.
      conditions: the condition of each loop, by its name.
    """

    graph: Graph
    probed: Sequence[Output]
    outputs: Mapping[str, Output]
    counts: Mapping[str, Output]
    flat: Graph
    tensors: Sequence[Output]
    names: Mapping[str, str]
    frames: Mapping[str, str]
    conditions: Mapping[str, Output]

    @property
    def ends(self) -> list[Output]:
        """The outputs and the counts."""
        return [*self.outputs.values(), *self.counts.values()]

    def in_flat_graph(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values, or what else belongs to tensors, by their names in the flat graph.

        Args:
          values: by the names of tensors of the probed graph.
        """
        outside = {name: value for name, value in values.items() if not name.startswith(_PREFIX)}
        probed = {
            self.names[name]: values[tensor.name]
            for name, tensor in self.outputs.items()
            if tensor.name in values and name in self.names
        }
        return {**outside, **probed}

    def num_iterations(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """Return the recorded numbers of iterations, by the names of the loops' conditions."""
        return {
            name: values[tensor.name]
            for name, tensor in self.counts.items()
            if tensor.name in values
        }


Shapes = Mapping[Output, tuple[int, ...]]


def insert_probes(
    inputs: Sequence[Output],
    outputs: Sequence[Output],
    recorded: Sequence[Output],
    shapes: Shapes | None = None,
) -> LoopProbes | None:
    """Return a model's probes; None if it has no loop with values that could be recorded.

    Flows of TensorArrays, loop conditions, and nodes in branches inside of loops have no probes.

    Args:
      inputs, outputs: the ends of the model.
      recorded: tensors outside of loops that are recorded in any case.
      shapes: the shapes of the tensors to record. Without them, all tensors are, and the loop
        variables change their shapes in the first iteration, which only kernels support.
    """
    nodes = _ancestors(outputs) | {tensor.node for tensor in inputs}
    order = sort_nodes(nodes)
    flow = Flow(order)
    if len(flow.frames) == 1:
        return None
    definition = outputs[0].graph.as_graph_def()
    for entry in definition.node:
        entry.attr.pop("_output_shapes", None)
    probing = _Probing(definition, order, flow, shapes)
    for frame in reversed(flow.frames[1:]):  # inner loops first: their probes are values around
        probing.add_loop(frame)
    if not probing.ends:
        return None
    flat = _Flat(definition, flow, probing.values, {*inputs, *recorded})
    for node in order:
        flat.add(node)
    with Graph().as_default() as graph:
        import_graph_def(definition, name="")
    with Graph().as_default() as flat_graph:
        import_graph_def(flat.definition, name="")
    compared = [tensor for tensor in probing.values if tensor in flat.computed]
    return LoopProbes(
        graph=graph,
        probed=list(probing.values),
        outputs={
            tensor.name: graph.get_tensor_by_name(f"{end}:0")
            for tensor, end in probing.ends.items()
        },
        counts={name: graph.get_tensor_by_name(f"{end}:0") for name, end in probing.counts.items()},
        flat=flat_graph,
        tensors=sorted(compared, key=lambda tensor: (tensor.node.index, tensor.index)),
        names={tensor.name: name for tensor, name in flat.names.items()},
        frames={tensor.name: name for tensor, name in probing.values.items()},
        conditions={node.name: node.outputs[0] for node in order if node.role is Role.LOOP_COND},
    )


def _ancestors(outputs: Sequence[Output]) -> set[Node]:
    ancestors: set[Node] = set()
    pending = [output.node for output in outputs]
    while pending:
        node = pending.pop()
        if node not in ancestors:
            ancestors.add(node)
            pending += [source.node for source in node.inputs]
            pending += node.controls
    return ancestors


class _Probing:
    """Adds probes to a graph.

    Attributes:
      values: the tensors with probes, with the names of their loops' conditions.
      ends: the name of the node outside of all loops that has the value of each such tensor.
      counts: the same for the numbers of iterations, by the names of the loops' conditions.
    """

    def __init__(
        self, definition: Any, order: Sequence[Node], flow: Flow, shapes: Shapes | None
    ) -> None:
        self.values: dict[Output, str] = {}
        self.ends: dict[Output, str] = {}
        self.counts: dict[str, str] = {}
        self._definition = definition
        self._order = order
        self._flow = flow
        self._shapes = shapes
        self._flows = _flows(order)
        self._entries: dict[str, Any] = {}
        self._pivots: dict[Frame, str] = {}

    def add_loop(self, frame: Frame) -> None:
        """Add probes of all values of a loop's body, unless it runs conditionally."""
        path = _path(frame)
        if not all(_is_regular(enclosing) for enclosing in path):
            return
        assert frame.cond is not None
        condition = frame.cond.name
        values = [tensor for tensor in self._body(frame) if self._can_keep(tensor)]
        for tensor in values:
            shape = () if self._shapes is None else self._shapes[tensor]
            zeros = np.zeros(shape, tensor.dtype.as_numpy_dtype)
            self.values[tensor] = condition
            self.ends[tensor] = self._carry_out(path, tensor.name, zeros)
        if values:
            self.counts[condition] = self._carry_out(path, None, np.zeros([], np.int32))

    def _body(self, frame: Frame) -> list[Output]:
        """Return the loop variables at the beginning of an iteration, and the body's values."""
        assert frame.cond is not None
        guard = frozenset({(frame.cond.outputs[0], 1)})
        inside = [
            tensor
            for node in self._order
            if self._flow.frame[node] is frame and self._flow.guard(node) == guard
            if node.inputs and (not node.traits.routes or node.role is Role.EXIT)
            for tensor in node.outputs
        ]
        return [*_variables(frame), *inside]

    def _can_keep(self, tensor: Output) -> bool:
        known = self._shapes is None or tensor in self._shapes
        dtype = tensor.dtype
        plain = not dtype._is_ref_dtype and np.dtype(dtype.as_numpy_dtype).kind in "iufbcV"
        return known and plain and tensor not in self._flows and bool(tensor.consumers())

    def _carry_out(self, path: Sequence[Frame], value: str | None, begin: Array) -> str:
        """Add a loop variable to a loop and to those around it; return the node after the last.

        Args:
          path: the loop, then those around it.
          value: the tensor whose value of the last iteration the variable keeps; None to count.
          begin: the initial value.
        """
        for frame in path:
            assert frame.cond is not None and frame.parent is not None
            enter = self._node(
                "Enter", [self._constant(frame.parent, begin)], begin,
                frame_name=frame.name, is_constant=False,
                parallel_iterations=frame.parallel_iterations,
            )  # fmt: skip
            merge = self._node("Merge", [enter, enter], begin, N=2)
            switch = self._node("Switch", [merge, frame.cond.name], begin)
            if value is None:
                one = self._constant(frame, np.ones([], begin.dtype))
                value = self._node("AddV2", [f"{switch}:1", one], begin)
            following = self._node("NextIteration", [value], begin)
            self._entries[merge].input[1] = following
            value = self._node("Identity", [self._node("Exit", [switch], begin)], begin)
        assert value is not None
        return value

    def _constant(self, frame: Frame, value: Array) -> str:
        """Add a constant to each iteration of a loop, or outside of all loops."""
        controls = [] if frame.parent is None else [f"^{self._pivot(frame)}"]
        return self._node("Const", controls, value, value=make_tensor_proto(value))

    def _pivot(self, frame: Frame) -> str:
        """Return a node of a loop that runs in each iteration, but not after the last."""
        if frame not in self._pivots:
            variable = _variables(frame)[0]
            entry = f"{_PREFIX}/pivot_{len(self._pivots)}"
            _add(self._definition, entry, "Identity", [variable.name], T=variable.dtype)
            self._pivots[frame] = entry
        return self._pivots[frame]

    def _node(self, kind: str, inputs: Sequence[str], like: Array, **attrs: Any) -> str:
        """Add a node for values of an array's type; return its name."""
        name = f"{_PREFIX}/{kind}_{len(self._entries)}"
        key = "dtype" if kind == "Const" else "T"
        attrs[key] = as_dtype(like.dtype)
        self._entries[name] = _add(self._definition, name, kind, inputs, **attrs)
        return name


class _Flat:
    """Builds a graph that computes the bodies of loops once.

    Attributes:
      names: the name in the flat graph of each tensor that it has.
      computed: the tensors that it computes from others; the remaining ones must be fed.
    """

    def __init__(
        self, definition: Any, flow: Flow, probed: Mapping[Output, str], fed: set[Output]
    ) -> None:
        self.definition = proto.GraphDef()
        self.definition.library.CopyFrom(definition.library)
        self.definition.versions.CopyFrom(definition.versions)
        self.names: dict[Output, str] = {}
        self.computed: set[Output] = set()
        self._entries = {entry.name: entry for entry in definition.node}
        self._flow = flow
        self._known = fed | probed.keys()

    def add(self, node: Node) -> None:
        """Add a node; without its inputs, add placeholders for its known results."""
        frame, guard = self._flow.frame[node], self._flow.guard(node)
        can_have = all(source in self.names for source in node.inputs)
        if node.role is Role.ENTER:
            if node.attrs["is_constant"] and can_have:
                source = node.inputs[0]
                dtype = source.dtype
                _add(self.definition, node.name, "Identity", [self.names[source]], T=dtype)
                self.names[node.outputs[0]] = f"{node.name}:0"
            return
        always = ALWAYS if frame.cond is None else frozenset({(frame.cond.outputs[0], 1)})
        copies = can_have and guard == always and not node.traits.routes
        if copies and (node.inputs or node.role is Role.CONSTANT):
            entry = self.definition.node.add()
            entry.CopyFrom(self._entries[node.name])
            entry.ClearField("input")
            entry.input.extend(self.names[source] for source in node.inputs)
            self.names.update((tensor, tensor.name) for tensor in node.outputs)
            self.computed.update(node.outputs if node.inputs else ())
            return
        for tensor in node.outputs:
            if tensor in self._known:
                name = node.name if tensor.index == 0 else f"{node.name}__{tensor.index}"
                shape = proto.TensorShapeProto()
                shape.CopyFrom(tensor.shape.as_proto())
                _add(self.definition, name, "Placeholder", [], dtype=tensor.dtype, shape=shape)
                self.names[tensor] = f"{name}:0"


def _add(definition: Any, name: str, kind: str, inputs: Sequence[str], **attrs: Any) -> Any:
    entry = definition.node.add(name=name, op=kind, input=inputs)
    for key, value in attrs.items():
        attr = entry.attr[key]
        if isinstance(value, DType):
            attr.type = value.as_datatype_enum
        elif isinstance(value, bool):
            attr.b = value
        elif isinstance(value, int):
            attr.i = value
        elif isinstance(value, str):
            attr.s = value.encode()
        elif isinstance(value, proto.TensorShapeProto):
            attr.shape.CopyFrom(value)
        else:
            attr.tensor.CopyFrom(value)
    return entry


def _variables(frame: Frame) -> list[Output]:
    """Return the loop variables at the beginning of an iteration."""
    return [
        switch.outputs[1]
        for merge in frame.merges
        for switch in merge.outputs[0].consumers()
        if switch.role is Role.SWITCH
    ]


def _path(frame: Frame) -> list[Frame]:
    """Return a loop and the loops around it, from the inside."""
    path = []
    while frame.parent is not None:
        path.append(frame)
        frame = frame.parent
    return path


def _is_regular(frame: Frame) -> bool:
    """Return True if a loop is structured and runs in each iteration of the loop around it."""
    parent = frame.parent
    assert parent is not None
    always = ALWAYS if parent.cond is None else frozenset({(parent.cond.outputs[0], 1)})
    return not frame.problem and frame.cond is not None and frame.guard == always


def _flows(order: Sequence[Node]) -> set[Output]:
    """Return the flows of TensorArrays and their handles."""
    flows: set[Output] = set()
    count = -1
    while len(flows) > count:
        count = len(flows)
        for node in order:
            passes = node.traits.routes or node.traits.identity
            if node.type in FLOWS or (passes and any(t in flows for t in node.inputs)):
                flows.update(node.outputs)
    return flows

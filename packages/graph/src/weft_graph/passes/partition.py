"""Partitioning: splitting a step into one graph per device, connected by Send and Receive.

A value that is needed on another device is sent there once, by name (paper, section 3.2.2). A
Receive inside a loop runs in every iteration. Its device therefore has a part of the loop: some of
the loop variables, or an empty loop with the same number of iterations (paper, section 4.4). Such a
part receives the predicate in each iteration from the device that computes it. Dead values are sent
as dead, so conditionals need no special treatment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from weft_graph.ir.device_spec import DeviceParts, parse
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.step_graph import Part, StepGraph, is_back_edge
from weft_graph.ir.traits import Role
from weft_graph.ops.step import DEPTH, EXTEND, GUARD, RECEIVE, SEND, TRUNCATE
from weft_graph.passes.compression import Lossy, nothing_is_lossy
from weft_graph.passes.flow import Flow, Frame, Guard, dependencies_of, is_free, sort_topologically
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims

DeviceOf = Callable[[Node], str]


def partition(
    step: StepGraph,
    nodes: Sequence[Node],
    device_of: DeviceOf,
    home: str,
    gates: Mapping[str, str] = MappingProxyType({}),
    delays: Mapping[tuple[Output, str], Node] | None = None,
    lossy: Lossy = nothing_is_lossy,
) -> dict[str, Part] | None:
    """Split a step into one part per device.

    Args:
      step: the pruned and optimized step; it is not modified.
      nodes: its live nodes in execution order.
      device_of: function that returns the device of a node with a kernel.
      home: the device of nodes that can run anywhere.
      gates: mapping from devices with separate memory to their host device, through which feeds and
        fetches are transferred.
      delays: by value and device, a node of the device that the Receive of the value waits for. It
        must run in every step and must not depend on users of the value on the device.
      lossy: predicate of the values to send with half of their bits.
    Returns: the parts by device; None if a single device without separate memory has all nodes.
    Raises: InvalidArgumentError: the frames of loops are inconsistent, or a handle is used in
      another task.
    """
    flow = Flow(nodes)
    devices = Assignment(nodes, flow, device_of, home, gates)
    if len(devices.used) < 2 and not devices.remote_devices:
        return None
    return _Partitioner(step, flow, devices, delays or {}, lossy).run(nodes)


class Assignment:
    """The device of each node, including those that only route or forward values.

    A loop variable is on the device that computes its next value, so that it is not transferred in
    each iteration. Other routing nodes are on the device of their input.

    Args:
      home: the device of nodes without inputs.
      gates: as in `partition`.
    Attributes:
      used: the devices that run nodes.
      remote_devices: those of them with memory separate from their host's.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        flow: Flow,
        device_of: DeviceOf,
        home: str,
        gates: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._device_of = device_of
        self.home = home
        self._assigned: dict[Node, str] = {}
        for frame in reversed(flow.frames[1:]):  # inner loops give values to outer ones
            for merge in frame.merges:
                self._assign_variable(merge)
        used = {self.of(node): None for node in nodes if not is_anywhere(node)}
        self._gates = gates
        self.remote_devices = frozenset(gates).intersection(used)
        if self.remote_devices:
            used = {**{gates[name]: None for name in used if name in self.remote_devices}, **used}
        self.used = list(used) or [home]

    def of(self, node: Node) -> str:
        """Return the device of a node."""
        device = self._assigned.get(node)
        if device is None:
            device = self._assigned[node] = self._trace_device(node)
        return device

    def gate(self, device: str) -> str:
        """Return the device through which feeds and fetches of a device are transferred."""
        return self._gates[device] if device in self.remote_devices else device

    def _trace_device(self, node: Node) -> str:
        while goes_along(node):
            device = self._assigned.get(node)
            if device is not None:
                return device
            node = next(s.node for s in node.inputs if not is_back_edge(node, s))
        if is_anywhere(node):
            return self.home
        return self._assigned.get(node) or self._device_of(node)

    def crosses(self, need: Node, node: Node) -> bool:
        """Return True if a node may wait for a transfer of `need`."""
        if is_anywhere(need):
            return (
                need.role is Role.ARGUMENT
                and bool(self.remote_devices)
                and self._can_be_remote(node)
            )
        return is_anywhere(node) or self.of(need) != self.of(node)

    def _can_be_remote(self, node: Node) -> bool:
        return is_anywhere(node) or self.of(node) in self.remote_devices

    def _assign_variable(self, merge: Node) -> None:
        following = next(s.node for s in merge.inputs if is_back_edge(merge, s))
        device = self._trace_device(following.inputs[0].node)
        self._assigned[merge] = self._assigned[following] = device


def goes_along(node: Node) -> bool:
    """Return True if a node runs on the device of its input, which it only routes or forwards."""
    if node.traits.routes or node.role is Role.LOOP_COND:
        return True
    return node.traits.identity and not node.device and "_class" not in node.attrs


def depths(
    nodes: Sequence[Node],
    flow: Flow,
    devices: Assignment,
    delays: Mapping[tuple[Output, str], Node],
) -> dict[Node, int]:
    """Return the largest number of sequential transfers before each node.

    A node never waits for one of a larger depth, so nodes of the same depth can run as one unit.
    Nodes in a loop have at least the depth of all values that enter it, because it may start on any
    device; nodes after it have at least the depth of all nodes in it.
    """
    depth_of: dict[Node, int] = {}
    begins: dict[Frame, int] = {}
    ends: dict[Frame, int] = {}
    loops = len(flow.frames) > 1
    limit = 3 * len(nodes) + 3  # a transfer, the begin and the end of a loop before each
    changed = True
    while changed:  # depths only grow, and none depends on itself: back edges do not count
        changed = False
        for node in nodes:
            depth = 0
            for need in dependencies_of(node):
                depth = max(depth, depth_of[need] + devices.crosses(need, node))
            for delay in _delays_of(node, devices, delays):
                depth = max(depth, depth_of.get(delay, 0) + 1)
            frame = flow.frame[node]
            if node.role is Role.ENTER:
                begins[frame] = max(begins.get(frame, 0), depth + 1)
            elif node in frame.merges:
                depth = max(depth, begins.get(frame, 0))
            elif node.role is Role.EXIT:
                depth = max(depth, ends.get(flow.frame[node.inputs[0].node], 0))
            if depth > limit:
                raise errors.InternalError(f"{node.name!r} waits for nodes that wait for it")
            changed = changed or depth_of.get(node) != depth
            depth_of[node] = depth
            parent: Frame | None = frame
            while parent is not None and parent.parent is not None:
                ends[parent] = max(ends.get(parent, 0), depth)
                parent = parent.parent
        if not loops and not delays:  # then what a node needs came before it
            break
    return depth_of


def _delays_of(
    node: Node, devices: Assignment, delays: Mapping[tuple[Output, str], Node]
) -> list[Node]:
    """Return the nodes that delay the Receives of a node's inputs."""
    if not delays or is_anywhere(node):
        return []
    device = devices.of(node)
    return [delays[s, device] for s in node.inputs if (s, device) in delays]


def is_anywhere(node: Node) -> bool:
    """Return True if each part has a separate copy of a node: constants, feeds and Enters.

    References stay on the device of their variable.
    """
    role = node.role
    if role is Role.ENTER:
        return not node.outputs[0].dtype.is_ref
    return role is Role.ARGUMENT or (role is Role.CONSTANT and not node.controls)


def is_movable(dtype: DType) -> bool:
    """Return True if values of a type can move between devices; handles cannot."""
    return dtype is not dtypes.resource and dtype is not dtypes.variant


def task_of(device: str) -> DeviceParts:
    """Return the job, replica and task of a device."""
    return DeviceParts(*parse(device)[:3])


def _index_in(indices: dict[Node, int], node: Node) -> int:
    return indices.get(node, -1)


class _Part:
    """A part under construction.

    Attributes:
      graph: graph of the part.
      values: counterparts of outputs of the whole step.
      signals: nodes that signal the end of nodes of other parts.
      triggers: nodes that run in every iteration of a loop.
    """

    def __init__(self, device: str, step_graph: Graph) -> None:
        self.device = device
        self.graph = Graph()
        self.graph.functions = step_graph.functions
        self.graph.origins = step_graph.origins
        self.values: dict[Output, Output] = {}
        self.nodes: dict[Node, Node] = {}
        self.signals: dict[Node, Node] = {}
        self.triggers: dict[Frame, Node] = {}
        self.sends: list[Node] = []
        self.feeds: dict[int, Output] = {}

    def add(
        self,
        op: str,
        name: str,
        inputs: Sequence[Output],
        attrs: dict[str, Any],
        types: Sequence[DType],
        shapes: Sequence[Dims],
        template: Node,
    ) -> Node:
        """Add a node without a counterpart in the whole step."""
        name = self.graph.unique_name(name)
        op_def = lookup_op(op)
        return self.graph.add_derived(template, op_def, name, tuple(inputs), attrs, types, shapes)


def _convert_value(part: _Part, op: str, value: Output, dtype: DType) -> Output:
    name = f"{value.node.name}/{op.strip('_').lower()}"
    return part.add(op, name, [value], {}, [dtype], [value.dims], value.node).outputs[0]


class _Partitioner:
    """Copies the nodes of a step into the parts of their devices."""

    def __init__(
        self,
        step: StepGraph,
        flow: Flow,
        devices: Assignment,
        delays: Mapping[tuple[Output, str], Node],
        lossy: Lossy,
    ) -> None:
        self._delays = delays
        self._lossy = lossy
        self._step = step
        self._flow = flow
        self._devices = devices
        self._parts = {name: _Part(name, step.graph) for name in devices.used}
        self._feeds = {feed.node: i for i, feed in enumerate(step.feeds)}
        self._waiting: list[tuple[Node, Frame, _Part]] = []
        self._late: list[tuple[Node, Node, _Part]] = []
        self._depths: dict[Node, int] = {}
        self._guards: dict[Guard, int] = {}

    def run(self, nodes: Sequence[Node]) -> dict[str, Part]:
        """Return the parts by device."""
        self._depths = depths(nodes, self._flow, self._devices, self._delays)
        for node in nodes:
            if not is_anywhere(node):
                self._copy(node, self._parts[self._devices.of(node)])
        for node in nodes:
            if node.role is Role.MERGE:
                self._close_loops(node, self._parts[self._devices.of(node)])
        while self._waiting:  # small loops wait for predicates in their turn
            receive, frame, part = self._waiting.pop()
            controls = (*receive.controls, self._trigger(frame, part))
            part.graph.set_control_inputs(receive, controls, reason="partition")
        for receive, delay, part in self._late:
            controls = (*receive.controls, part.nodes[delay])
            part.graph.set_control_inputs(receive, controls, reason="delay")
        return self._result(nodes)

    def _result(self, nodes: Sequence[Node]) -> dict[str, Part]:
        fetches: dict[str, list[int]] = {name: [] for name in self._parts}
        fetched: dict[str, list[Output]] = {name: [] for name in self._parts}
        for i, output in enumerate(self._step.fetches):
            gate = self._gate_of(output)
            fetches[gate].append(i)
            fetched[gate].append(self._value(output, self._parts[gate]))
        result = {}
        for name, part in self._parts.items():
            outputs = fetched[name]
            targets = [part.nodes[t] for t in self._step.targets if t in part.nodes]
            step = StepGraph(
                part.graph, list(part.feeds.values()), outputs, [*targets, *part.sends]
            )
            # What is not of the whole comes as early as it can, so that the rest keeps its order.
            indices = {part.nodes[node]: i for i, node in enumerate(nodes) if node in part.nodes}
            order = sort_topologically(step.live_nodes(), partial(_index_in, indices))
            result[name] = Part(step, order, list(part.feeds), fetches[name])
        return result

    def _gate_of(self, output: Output) -> str:
        if is_anywhere(output.node):
            return next(iter(self._parts))
        return self._devices.gate(self._devices.of(output.node))

    # ------------------------------------------------------------------ copies

    def _copy(self, node: Node, part: _Part) -> Node:
        counterpart = part.graph.add_copy(
            node, node.name, self._inputs(node, part), self._attrs(node)
        )
        counterpart.device = node.device
        if node.forward is not None:
            counterpart.forward = part.nodes.get(node.forward)
        if node.controls:
            controls = [self._end(control, part) for control in node.controls]
            controls_here = [control for control in controls if control is not None]
            if controls_here:
                part.graph.set_control_inputs(counterpart, controls_here, reason="partition")
        part.nodes[node] = counterpart
        part.values.update(zip(node.outputs, counterpart.outputs, strict=True))
        return counterpart

    def _attrs(self, node: Node) -> dict[str, Any]:
        return {**node.attrs, DEPTH: self._depths[node]} if node.role is Role.EXIT else node.attrs

    def _inputs(self, node: Node, part: _Part) -> tuple[Output, ...]:
        """Return the inputs of a copy; a back edge has a placeholder until its source exists."""
        if node.role is not Role.MERGE:
            return tuple([self._value(source, part) for source in node.inputs])
        ahead = [s for s in node.inputs if not is_back_edge(node, s)]
        placeholder = self._value(ahead[0], part)
        return tuple(
            [placeholder if is_back_edge(node, s) else self._value(s, part) for s in node.inputs]
        )

    def _close_loops(self, node: Node, part: _Part) -> None:
        counterpart = part.nodes[node]
        for i, source in enumerate(node.inputs):
            if is_back_edge(node, source):
                part.graph.replace_input(
                    counterpart, i, self._value(source, part), reason="partition"
                )

    def _value(self, output: Output, part: _Part) -> Output:
        """Return an output's counterpart in a part."""
        counterpart = part.values.get(output)
        if counterpart is not None:
            return counterpart
        node = output.node
        fed = node in self._feeds
        if is_anywhere(node) and not (
            fed and self._has_device_memory(part) and is_movable(output.dtype)
        ):
            copy = self._copy(node, part)
            if fed:
                part.feeds[self._feeds[node]] = copy.outputs[0]
            return part.values[output]
        gate = self._devices.gate(part.device) if is_anywhere(node) else self._devices.of(node)
        source = self._parts[gate]
        value = self._value(output, source)
        lossy = self._lossy(output, source.device, part.device)
        if lossy:
            value = _convert_value(source, TRUNCATE, value, dtypes.bfloat16)
        guard = self._flow.output_guard(output)
        received = self._transfer(value, source, part, output.name, node, guard)
        delay = self._delays.get((output, part.device))
        if delay is not None:
            self._late.append((received.node, delay, part))
        if lossy:
            received = _convert_value(part, EXTEND, received, dtypes.float32)
        part.values[output] = received
        return received

    def _has_device_memory(self, part: _Part) -> bool:
        return part.device in self._devices.remote_devices

    def _end(self, node: Node, part: _Part) -> Node | None:
        """Return a node of a part that finishes after `node`; None if no wait is needed."""
        if is_anywhere(node):
            return self._value(node.outputs[0], part).node if node.role is Role.ENTER else None
        source = self._parts[self._devices.of(node)]
        if source is part:
            return part.nodes[node]
        signal = part.signals.get(node)
        if signal is None:
            token = source.add(
                "Const",
                f"{node.name}/over",
                (),
                {"value": np.zeros((), np.int32), "dtype": dtypes.int32},
                [dtypes.int32],
                [()],
                node,
            )
            source.graph.set_control_inputs(token, [source.nodes[node]], reason="partition")
            guard = self._flow.guard(node)
            name = f"^{node.name}"
            signal = self._transfer(token.outputs[0], source, part, name, node, guard).node
            part.signals[node] = signal
        return signal

    # ------------------------------------------------------------------ transfers

    def _transfer(
        self,
        value: Output,
        source: _Part,
        part: _Part,
        name: str,
        origin: Node,
        guard: Guard,
    ) -> Output:
        """Send a value of one part to another.

        Args:
          name: name of the value in the whole step.
          origin: the node of the whole step that produces it, or whose end it signals.
          guard: the guard under which it is alive.
        """
        node = value.node
        if not is_movable(value.dtype) and task_of(source.device) != task_of(part.device):
            raise errors.InvalidArgumentError(
                f"{name!r} is used on {part.device}, but a handle cannot leave its task: colocate "
                "its consumers with it",
                op=origin.type,
                node=origin.name,
                line=origin.line or None,
            )
        frame = self._flow.frame[origin]
        attrs = {
            "tensor_name": name,
            "send_device": source.device,
            "recv_device": part.device,
        }
        dtype = value.dtype.base_dtype
        send = source.add(SEND, f"{node.name}/send", [value], {"T": dtype, **attrs}, [], [], node)
        send.device = source.device
        source.sends.append(send)
        receive = part.add(
            RECEIVE,
            f"{node.name}/recv",
            (),
            {
                "tensor_type": dtype,
                **attrs,
                DEPTH: self._depths[origin] + 1,
                **({GUARD: self._guards.setdefault(guard, len(self._guards) + 1)} if guard else {}),
            },
            [dtype],
            [value.dims],
            node,
        )
        receive.device = part.device
        if frame is not self._flow.root:
            self._waiting.append((receive, frame, part))
        return receive.outputs[0]

    def _trigger(self, frame: Frame, part: _Part) -> Node:
        """Return a node of a part that runs in every iteration of a loop, even the last one."""
        trigger = part.triggers.get(frame)
        if trigger is None:
            merges = [part.nodes[merge] for merge in frame.merges if merge in part.nodes]
            trigger = part.triggers[frame] = (
                merges[0] if merges else self._make_follower_loop(frame, part)
            )
        return trigger

    def _make_follower_loop(self, frame: Frame, part: _Part) -> Node:
        """Add a loop with the same iterations as a loop of other parts; return its first node."""
        assert frame.cond is not None
        template = frame.cond
        name = f"{frame.name}/control"
        start = self._start(frame, part, name)
        dtype = start.dtype
        loop = {
            "T": dtype,
            "frame_name": frame.name,
            "is_constant": False,
            "parallel_iterations": frame.parallel_iterations,
        }
        enter = part.add("Enter", f"{name}/Enter", [start], loop, [dtype], [()], template)
        types, shapes = [dtype, dtypes.int32], [(), ()]
        loop_inputs = [enter.outputs[0], enter.outputs[0]]
        merge = part.add(
            "Merge", f"{name}/Merge", loop_inputs, {"T": dtype, "N": 2}, types, shapes, template
        )
        part.triggers[frame] = merge
        pred = self._value(frame.cond.outputs[0], part)
        switch = part.add(
            "Switch",
            f"{name}/Switch",
            [merge.outputs[0], pred],
            {"T": dtype},
            [dtype, dtype],
            [(), ()],
            template,
        )
        following = part.add(
            "NextIteration",
            f"{name}/NextIteration",
            [switch.outputs[1]],
            {"T": dtype},
            [dtype],
            [()],
            template,
        )
        part.graph.replace_input(merge, 1, following.outputs[0], reason="partition")
        return merge

    def _start(self, frame: Frame, part: _Part, name: str) -> Output:
        """Return a small value of the enclosing frame, available when the loop is entered."""
        sources = [enter.inputs[0] for enter in frame.enters]
        value = next((v for v in sources if not is_free(v.node)), sources[0])
        source = part if is_anywhere(value.node) else self._parts[self._devices.of(value.node)]
        rank = source.add(
            "Rank",
            f"{name}/start",
            [self._value(value, source)],
            {"T": value.dtype.base_dtype},
            [dtypes.int32],
            [()],
            value.node,
        )
        if source is part:
            return rank.outputs[0]
        guard = self._flow.output_guard(value)
        return self._transfer(rank.outputs[0], source, part, f"{name}/start", value.node, guard)

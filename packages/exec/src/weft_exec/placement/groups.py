"""Constraints on the devices of nodes: colocation, kernels, device requests."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from weft_exec.config import SessionConfig
from weft_exec.devices.description import DeviceDescription
from weft_exec.kernels.description import has_kernel_on, kernels_on
from weft_graph.ir.device_spec import DeviceParts, DeviceSpec
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role, State
from weft_tensor import dtypes, errors

_log = logging.getLogger("weft")


class Group:
    """Nodes that must be on one device.

    Attributes:
      members: the nodes by name, in order of addition.
      stateful: True if a member keeps state between steps.
      holds: True if a member owns state whose reference or handle other nodes receive.
    """

    __slots__ = ("_able_devices", "holds", "members", "stateful")

    def __init__(self, node: Node) -> None:
        self.members = {node.name: node}
        self._able_devices: dict[int, int] = {}
        self.stateful = node.op_def.stateful
        self.holds = _owns_state(node)

    @property
    def requests(self) -> dict[str, str]:
        """The devices that members request, with the name of a requesting member.

        If a member owns a variable or another resource, its request applies to all users.
        """
        if len(self.members) == 1:
            ((name, node),) = self.members.items()
            return {node.device: name} if node.device else {}
        return {
            node.device: name
            for name, node in self.members.items()
            if node.device and (not self.holds or _owns_state(node))
        }

    def runs_on(self, kind: int, device: DeviceDescription) -> bool:
        """Return True if a device has kernels for all members of the group; results are cached.

        Args:
          kind: a number that devices with the same kernels share.
        """
        cached = self._able_devices.get(kind, 0)
        for node in islice(self.members.values(), cached, None):
            if not _runs_on(device, node):
                break
            cached += 1
        self._able_devices[kind] = cached
        return cached == len(self.members)


class Groups:
    """The groups of a session's nodes, found by union-find over the whole graph.

    Nodes are grouped by colocation, or because one uses the other's reference or handle. State
    without a requested task is in the task that `settle` was called with, or else in the task of
    the first device. Its location must not depend on performance, because other clients have to
    find it.
    """

    def __init__(self, devices: Sequence[DeviceDescription], config: SessionConfig) -> None:
        self._devices = devices
        self._spans_tasks = len({device.task for device in devices}) > 1
        self._soft = config.allow_soft_placement
        self._kinds = _first_equivalent_devices(devices)
        self._parents: dict[str, str] = {}
        self._groups: dict[str, Group] = {}
        self._moved_names: set[str] = set()
        self._matching: dict[str, tuple[int, ...]] = {"": tuple(range(len(devices)))}
        self._homes: dict[str, DeviceParts | errors.OpError] = {}

    def extend(self, nodes: Iterable[Node]) -> None:
        """Add new nodes."""
        has_several = len(self._devices) > 1
        is_distant = self._spans_tasks
        for node in nodes:
            if "_class" in node.attrs:
                for name in node.colocation:
                    colocated = node.graph.find_node(name)
                    if colocated is not None:
                        self._unite(colocated, node)
            if not node.op_def.simple:
                for arg, source in zip(node.op_def.inputs, node.inputs, strict=False):
                    if arg.is_ref:
                        self._unite(source.node, node)
            if has_several:
                for source in node.inputs:
                    holder = _state_owner(source, node, is_distant)
                    if holder is not None:
                        self._unite(holder, node)

    def root(self, name: str) -> str:
        """Return the name of the group of a node; the node's own name if it is alone."""
        parents = self._parents
        while name in parents:
            parent = parents[name]
            if parent in parents:
                parents[name] = parents[parent]
            name = parent
        return name

    def group(self, node: Node) -> Group:
        """Return the group of a node, including the node itself."""
        group = self._groups.get(self.root(node.name))
        if group is None:
            return Group(node)
        if node.name not in group.members:
            group.members[node.name] = node
        return group

    def is_unconstrained(self, node: Node) -> bool:
        """Return True if a node's device is only restricted by the available kernels."""
        name = node.name
        return not (
            node.device or self._spans_tasks or name in self._parents or name in self._groups
        )

    def _unite(self, a: Node, b: Node) -> None:
        first, second = self.root(a.name), self.root(b.name)
        own_group = self._groups.setdefault(first, Group(a))
        other_group = self._groups.setdefault(second, Group(b))
        own_group.members.setdefault(a.name, a)
        other_group.members.setdefault(b.name, b)
        if first != second:
            self._parents[second] = first
            own_group.members.update(other_group.members)
            own_group.stateful = own_group.stateful or other_group.stateful
            own_group.holds = own_group.holds or other_group.holds
            del self._groups[second]

    # ---------------------------------------------------------------- candidates

    def candidates(self, node: Node, group: Group) -> tuple[int, ...]:
        """Return the numbers of the devices that may run a group.

        Args:
          node: the member that is to be placed.
        Raises:
          UnimplementedError: no device of the session has a kernel for the node.
          InvalidArgumentError: no device meets the requests of the group.
        """
        able = self._able_devices(node)
        if not able:
            raise self._no_kernel_error(node)
        result = able
        for request in group.requests:
            matching = self._matching_devices(request)
            result = [i for i in result if i in matching]
        if self._spans_tasks and _has_state(node, group) and not _requests_task(group):
            home = self._home_task(group)
            result = [i for i in result if self._devices[i].task == home]
        if len(group.members) > 1:
            kinds = {self._kinds[i] for i in result}
            kinds = {kind for kind in kinds if group.runs_on(kind, self._devices[kind])}
            result = [i for i in result if self._kinds[i] in kinds]
        if result:
            return tuple(result)
        if self._soft:
            able = self._devices_near(able, group)
            if node.name not in self._moved_names:
                self._moved_names.add(node.name)
                _log.warning(
                    "%s requests %s, which is not available; it is placed on %s",
                    node.name,
                    _describe_group(group),
                    self._devices[able[0]].name,
                )
            return (able[0],)
        raise self._conflict_error(node, group, able)

    def check_device(self, node: Node) -> None:
        """Check the requested device of a node that is copied to every partition that uses it.

        Raises: InvalidArgumentError: the node requests a device that does not exist.
        """
        if not self._soft and not self._matching_devices(node.device):
            raise self._conflict_error(node, Group(node), self._able_devices(node))

    def without_task(self, nodes: Iterable[Node]) -> list[Node]:
        """Return the nodes that create or look up state without a requested task."""
        return [
            node
            for node in nodes
            if node.traits.state is State.CREATES and not _requests_task(self.group(node))
        ]

    def settle(self, device_parts: Mapping[str, DeviceParts | errors.OpError]) -> None:
        """Set the tasks of the state of some nodes by name, or errors for unknown nodes."""
        self._homes.update(device_parts)

    def _home_task(self, group: Group) -> DeviceParts:
        """Return the task of state without a requested task."""
        for name in group.members:
            result = self._homes.get(name)
            if isinstance(result, errors.OpError):
                raise result
            if result is not None:
                return result
        return self._devices[0].task

    def _devices_near(self, able: list[int], group: Group) -> list[int]:
        """Return the devices in the tasks that a group requests, or all if there are none."""
        tasks = [DeviceSpec(*DeviceSpec.from_string(r).parts[:3]) for r in group.requests]
        nearby = [i for i in able if all(task.matches(self._devices[i].spec) for task in tasks)]
        return nearby or able

    def _able_devices(self, node: Node) -> list[int]:
        if len(self._kinds) == 1:
            return [0] if _runs_on(self._devices[0], node) else []
        kinds = {k for k in set(self._kinds) if _runs_on(self._devices[k], node)}
        return [i for i, kind in enumerate(self._kinds) if kind in kinds]

    def _matching_devices(self, request: str) -> tuple[int, ...]:
        result = self._matching.get(request)
        if result is None:
            spec = DeviceSpec.from_string(request)
            result = tuple([i for i, d in enumerate(self._devices) if spec.matches(d.spec)])
            self._matching[request] = result
        return result

    def _conflict_error(
        self, node: Node, group: Group, able: Sequence[int]
    ) -> errors.InvalidArgumentError:
        names = ", ".join(device.name for device in self._devices)
        lacking = [
            f"; no kernel of {member.type} ({name}), colocated with it, for {device.type}"
            for device in [self._devices[k] for k in dict.fromkeys([self._kinds[i] for i in able])]
            for name, member in group.members.items()
            if not _runs_on(device, member)
        ]
        return errors.InvalidArgumentError(
            f"no device meets the requests {_describe_group(group)} and has a kernel "
            f"of {node.type}: the session has {names}, and "
            f"{', '.join(self._devices[i].name for i in able)} "
            f"have the kernel{''.join(lacking[:3])}",
            op=node.type,
            node=node.name,
            line=node.line or None,
        )

    def _no_kernel_error(self, node: Node) -> errors.OpError:
        distinct = sorted([self._devices[k] for k in set(self._kinds)], key=lambda d: d.type)
        types = sorted({device.type for device in distinct})
        kinds = {k: v.name for k, v in node.attrs.items() if hasattr(v, "as_numpy_dtype")}
        offered = [
            f"{node.type} on {device.type} takes "
            + ", ".join(
                f"{key} in {{{', '.join(allowed)}}}" for key, allowed in kernel.dtypes.items()
            )
            for device in distinct
            for kernel in kernels_on(device, node.type)
        ]
        hint = f"; {'; '.join(offered)}" if offered else ""
        return errors.UnimplementedError(
            f"no kernel of {node.type} for {', '.join(types)} with {kinds}{hint}",
            op=node.type,
            node=node.name,
            line=node.line or None,
        )


def _runs_on(device: DeviceDescription, node: Node) -> bool:
    return node.traits.routes or node.role is Role.LOOP_COND or has_kernel_on(device, node)


def _first_equivalent_devices(devices: Sequence[DeviceDescription]) -> list[int]:
    """Return for each device the number of the first device that has the same kernels."""
    first: dict[tuple[str, int], int] = {}
    return [
        first.setdefault((device.type, 0 if device.kernels is None else id(device.kernels)), i)
        for i, device in enumerate(devices)
    ]


def _state_owner(source: Output, node: Node, is_distant: bool) -> Node | None:
    """Return the node that owns the reference or resource handle that `node` uses, if any.

    A handle inside a branch or a loop is traced to its source outside. If there are several tasks
    (`is_distant`), handles are also traced through calls and datasets, because they cannot leave
    a task.
    """
    holder = source.node
    if source.dtype is not dtypes.resource and not (is_distant and source.dtype is dtypes.variant):
        return holder if source.dtype.is_ref and node.traits.identity else None
    while holder.traits.routes and holder.inputs:
        holder = holder.inputs[0].node
    return (
        None
        if _forwards_handles(node, is_distant) or _forwards_handles(holder, is_distant)
        else holder
    )


def _forwards_handles(node: Node, is_distant: bool) -> bool:
    """Return True if a node only forwards handles without using their resources."""
    return node.traits.routes or (node.role is Role.CALL and not is_distant)


def _is_handle(output: Output) -> bool:
    return output.dtype.is_ref or output.dtype is dtypes.resource


def _owns_state(node: Node) -> bool:
    """Return True if a node creates a reference or handle for others and reads none itself."""
    return any(map(_is_handle, node.outputs)) and not any(map(_is_handle, node.inputs))


def _has_state(node: Node, group: Group) -> bool:
    """Return True if a group owns state, instead of only using the state of another group."""
    return group.holds or (group.stateful and not any(map(_is_handle, node.inputs)))


def _requests_task(group: Group) -> bool:
    """Return True if a request of a group names a job or a task."""
    parts = [DeviceSpec.from_string(request).parts for request in group.requests]
    return any(job is not None or task is not None for job, _, task, *_ in parts)


def _describe_group(group: Group) -> str:
    requested = [f"{device} ({name})" for device, name in group.requests.items()]
    return ", ".join(requested) or f"for colocation of {', '.join(group.members)}"

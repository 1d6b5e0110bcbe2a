"""Choosing a device for each node; stateful nodes once per session (paper, sections 3.2.1, 4.3)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from weft_exec.config import SessionConfig
from weft_exec.device import Device
from weft_exec.kernels.registry import Kernel, find_kernel, kernels_of
from weft_graph.device_spec import DeviceSpec
from weft_graph.functions.state import CALLS
from weft_graph.node import Node, Output
from weft_graph.ops.control_flow import ROUTING
from weft_tensor import dtypes, errors

_log = logging.getLogger("weft")

_PASSING = ROUTING | CALLS
"""Nodes that pass handles on, and do nothing with what is behind them."""


class Placer:
    """Places the nodes of one session.

    Nodes that must be together (by colocation, or because one takes the other's reference or
    handle) form a group, found over the whole graph and not only what a Run needs.  A group goes to
    the first device that meets all its requests and has kernels for all its members; one with state
    stays there.
    """

    def __init__(self, devices: Sequence[Device], config: SessionConfig) -> None:
        self._devices = devices
        self._config = config
        self._parents: dict[str, str] = {}
        self._members: dict[str, list[Node]] = {}
        self._pinned: dict[str, Device] = {}

    def extend(self, nodes: Iterable[Node]) -> None:
        """Take note of new nodes of the session's graph."""
        for node in nodes:
            if "_class" in node.attrs:
                for name in node.colocation:
                    other = node.graph.find_node(name)
                    if other is not None:
                        self._unite(other, node)
            if not node.op_def.simple:
                for arg, source in zip(node.op_def.inputs, node.inputs, strict=False):
                    if arg.is_ref:
                        self._unite(source.node, node)
            if len(self._devices) > 1:
                for source in node.inputs:
                    if _is_used(source, node):
                        self._unite(source.node, node)

    def _find(self, name: str) -> str:
        parents = self._parents
        while name in parents:
            parent = parents[name]
            if parent in parents:
                parents[name] = parents[parent]
            name = parent
        return name

    def _unite(self, a: Node, b: Node) -> None:
        first, second = self._find(a.name), self._find(b.name)
        members = self._members.setdefault(first, [a])
        others = self._members.setdefault(second, [b])
        if first != second:
            self._parents[second] = first
            members.extend(others)
            del self._members[second]
            pinned = self._pinned.pop(second, None)
            if pinned is not None:
                self._pinned.setdefault(first, pinned)

    def place(self, node: Node) -> tuple[Device, Kernel]:
        """The device and kernel of a node.

        Raises:
          UnimplementedError: no device of the session has a kernel for it.
          InvalidArgumentError: its device request cannot be met.
        """
        group = self._find(node.name)
        device = self._pinned.get(group)
        kernel = None if device is None else find_kernel(node, device.type)
        if device is None or kernel is None:
            members = dict.fromkeys([node, *self._members.get(group, ())])
            device, kernel = self._choose(node, list(members))
            if any(member.op_def.stateful for member in members):
                self._pinned[group] = device
            if self._config.log_device_placement:
                _log.warning("%s: (%s): %s", node.name, node.type, device.name)
        return device, kernel

    def may_wait(self, node: Node) -> bool:
        """Whether a node waits for something other than its inputs, on any device it may be on."""
        kernels = [find_kernel(node, device.type) for device in self._devices]
        return any(kernel is not None and kernel.asynchronous for kernel in kernels)

    def _choose(self, node: Node, members: Sequence[Node]) -> tuple[Device, Kernel]:
        able = [(d, k) for d in self._devices if (k := find_kernel(node, d.type)) is not None]
        if not able:
            raise self._no_kernel(node)
        requests = [DeviceSpec.from_string(member.device) for member in members if member.device]
        for device, kernel in able:
            if all(request.matches(device.spec) for request in requests) and all(
                member.type in ROUTING or find_kernel(member, device.type) is not None
                for member in members
            ):
                return device, kernel
        if self._config.allow_soft_placement:
            _log.warning(
                "%s requests %s, which is not available; it runs on %s",
                node.name,
                _requests(members),
                able[0][0].name,
            )
            return able[0]
        names = ", ".join(device.name for device in self._devices)
        raise errors.InvalidArgumentError(
            f"no device meets the requests {_requests(members)} and has a kernel of {node.type}: "
            f"the session has {names}, and {', '.join(d.name for d, _ in able)} have the kernel",
            op=node.type,
            node=node.name,
            line=node.line or None,
        )

    def _no_kernel(self, node: Node) -> errors.OpError:
        types = sorted({device.type for device in self._devices})
        kinds = {k: v.name for k, v in node.attrs.items() if hasattr(v, "as_numpy_dtype")}
        offered = [
            f"{kernel.op} on {kernel.device_type} takes "
            + ", ".join(
                f"{key} in {{{', '.join(sorted(d.name for d in allowed))}}}"
                for key, allowed in kernel.dtypes.items()
            )
            for device_type in types
            for kernel in kernels_of(node.type, device_type)
        ]
        hint = f"; {'; '.join(offered)}" if offered else ""
        return errors.UnimplementedError(
            f"no kernel of {node.type} for {', '.join(types)} with {kinds}{hint}",
            op=node.type,
            node=node.name,
            line=node.line or None,
        )


def _is_used(source: Output, node: Node) -> bool:
    """Whether `node` uses the resource behind a handle, or reads a reference at its own time."""
    if source.dtype is dtypes.resource:
        return node.type not in _PASSING and source.node.type not in _PASSING
    return source.dtype.is_ref and node.type == "Identity"


def _requests(members: Sequence[Node]) -> str:
    return ", ".join(f"{m.device} ({m.name})" for m in members if m.device) or "for colocation"

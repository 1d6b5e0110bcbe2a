"""Choosing a device for each node; stateful nodes once per session (paper, sections 3.2.1, 4.3)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from weft_exec.config import SessionConfig
from weft_exec.device import Device
from weft_exec.kernels.registry import Kernel, find_kernel, kernels_of
from weft_graph.device_spec import DeviceSpec
from weft_graph.node import Node
from weft_tensor import errors

_log = logging.getLogger("weft")


class Placer:
    """Places the nodes of one session.

    A node goes to the first device that meets its request and has a kernel for its element types;
    nodes that are colocated go together, after their first stateful member.
    """

    def __init__(self, devices: Sequence[Device], config: SessionConfig) -> None:
        self._devices = devices
        self._config = config
        self._pinned: dict[str, Device] = {}

    def pin(self, nodes: Iterable[Node]) -> None:
        """Place the stateful nodes among `nodes`, and all that is colocated with them, for good."""
        for node in nodes:
            if node.op_def.stateful and node.name not in self._pinned:
                for name in node.colocation:
                    if name in self._pinned:
                        self._pinned[node.name] = self._pinned[name]
                        break

    def place(self, node: Node) -> tuple[Device, Kernel]:
        """The device and kernel of a node.

        Raises:
          UnimplementedError: no device of the session has a kernel for it.
          InvalidArgumentError: its device request cannot be met.
        """
        device = self._pinned.get(node.name)
        if device is None:
            device = self._choose(node)
            if node.op_def.stateful:
                self._pinned[node.name] = device
            if self._config.log_device_placement:
                _log.info("%s: (%s): %s", node.name, node.type, device.name)
        kernel = find_kernel(node, device.type)
        assert kernel is not None
        return device, kernel

    def _choose(self, node: Node) -> Device:
        able = [d for d in self._devices if find_kernel(node, d.type) is not None]
        if not able:
            raise self._no_kernel(node)
        for name in node.colocation:
            pinned = self._pinned.get(name)
            if pinned is not None and pinned in able:
                return pinned
        if not node.device:
            return able[0]
        request = DeviceSpec.from_string(node.device)
        for device in able:
            if request.matches(device.spec):
                return device
        if self._config.allow_soft_placement:
            _log.warning(
                "%s requests %s, which is not available; it runs on %s",
                node.name,
                node.device,
                able[0].name,
            )
            return able[0]
        names = ", ".join(device.name for device in self._devices)
        raise errors.InvalidArgumentError(
            f"the request for device {node.device!r} cannot be met: the session has {names}, "
            f"of which {', '.join(d.name for d in able)} have a kernel",
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

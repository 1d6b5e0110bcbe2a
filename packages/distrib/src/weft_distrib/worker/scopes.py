"""The scope of a session in a task: devices and state, and permissions of partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from weft_exec.devices.device import Device, KernelFunction
from weft_exec.resources.containers import SharedResources
from weft_exec.resources.file_access import FileRoots, restrict_files
from weft_exec.resources.resources import ResourceManager
from weft_graph.ir.node import Node
from weft_graph.ir.traits import State
from weft_tensor import errors

_PATHS: Final = frozenset({"filename", "filenames", "data_source_name"})
"""Inputs with names of files that are opened after the kernel has run, such as files of datasets.
"""


class Scope:
    """A session's view of a task.

    Attributes:
      devices: the devices by name.
      resources: the state of the session; its private part ends with the session.
    """

    def __init__(self, devices: Mapping[str, Device], resources: ResourceManager) -> None:
        self.devices = dict(devices)
        self.resources = resources


class Scopes:
    """The scopes of all sessions in one task.

    Args:
      task: the name of the task.
      devices, resources: the devices and the state of the task, which sessions with clients in this
        process use.
      roots: the file roots of all other sessions.
    """

    def __init__(
        self,
        task: str,
        devices: Mapping[str, Device],
        resources: ResourceManager,
        roots: FileRoots,
    ) -> None:
        self._guard = _Guard(task, roots)
        self._devices, self._resources = devices, resources
        self._by_session: dict[int, Scope] = {}

    def _scope_for(self, resources: ResourceManager, trusted: bool) -> Scope:
        guard = None if trusted else self._guard
        visible_devices = {
            name: device.seen_by(resources, guard) for name, device in self._devices.items()
        }
        return Scope(visible_devices, resources)

    def host(self, trusted: bool) -> Device:
        """Return a device that does not belong to a session; `trusted` is as for `of`."""
        return next(iter(self._scope_for(self._resources, trusted).devices.values()))

    def of(self, session: int, isolated: bool, trusted: bool) -> Scope:
        """Return the scope of a session.

        Args:
          isolated: True if the session does not share state with others.
          trusted: True if the client is in this process.
        """
        result = self._by_session.get(session)
        if result is None:
            resources = ResourceManager() if isolated else SharedResources(self._resources)
            result = self._by_session.setdefault(session, self._scope_for(resources, trusted))
        return result

    def forget(self, session: int) -> None:
        """Drop the private state of a session."""
        scope = self._by_session.pop(session, None)
        if scope is not None:
            scope.resources.own.clear()


class _Guard:
    """Restricts the kernels of sessions whose client is in another process."""

    def __init__(self, task: str, roots: FileRoots) -> None:
        self._task = task
        self._roots = roots

    def __call__(
        self, node: Node, make: Callable[[], KernelFunction], asynchronous: bool
    ) -> KernelFunction:
        traits = node.traits
        if traits.host_code:
            raise errors.PermissionDeniedError(
                f"{node.type} calls a Python function of the client's process, but is placed on "
                f"{self._task}: place it on the client's task",
                op=node.type,
                node=node.name,
                line=node.line or None,
            )
        if not (traits.reads_files or traits.writes_files):
            return make()
        with restrict_files(self._roots):
            result = make()
        if asynchronous:
            return self._asynchronous(node, result)
        return self._synchronous(node, result)

    def _synchronous(self, node: Node, kernel_function: KernelFunction) -> KernelFunction:
        roots, path_inputs = self._roots, _path_inputs(node)
        late = path_inputs if node.traits.state is State.CREATES else []

        def run(*inputs: Any) -> Any:
            _check(roots, inputs, late)
            with restrict_files(roots):
                return kernel_function(*inputs)

        return run

    def _asynchronous(self, node: Node, kernel_function: KernelFunction) -> KernelFunction:
        roots, path_inputs = self._roots, _path_inputs(node)

        def run(ctx: Any, inputs: Any, done: Any) -> Any:
            _check(roots, inputs, path_inputs)
            with restrict_files(roots):
                return kernel_function(ctx, inputs, done)

        return run


def _path_inputs(node: Node) -> list[int]:
    """Return the inputs of a node that are names of files."""
    names = [argument.name for argument in node.op_def.inputs]
    simple = len(names) == len(node.inputs)
    return [i for i, name in enumerate(names) if name in _PATHS] if simple else []


def _check(roots: FileRoots, inputs: Any, path_inputs: list[int]) -> None:
    for index in path_inputs:
        for path in np.asarray(inputs[index]).ravel().tolist():
            if path:  # a cache in memory has none
                roots.check(path.decode("utf-8", "surrogateescape"))

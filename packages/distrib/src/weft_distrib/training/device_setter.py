"""Device functions of replicated programs: variables on servers, other nodes on workers."""

from __future__ import annotations

__all__ = ["GreedyLoadBalancingStrategy", "byte_size_load_fn", "replica_device_setter"]

from collections.abc import Callable, Sequence
from typing import Any

from weft_distrib.cluster.spec import ClusterSpec
from weft_graph.ir.device_spec import DeviceSpec
from weft_graph.ir.node import Node
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.traits import Role
from weft_tensor import errors
from weft_tensor.shape import TensorShape

_OTHER_STATE = frozenset(
    {
        "AutoReloadVariable",
        "HashTable",
        "HashTableV2",
        "MutableDenseHashTable",
        "MutableDenseHashTableV2",
        "MutableHashTable",
        "MutableHashTableOfTensors",
        "MutableHashTableOfTensorsV2",
        "MutableHashTableV2",
        "BoostedTreesEnsembleResourceHandleOp",
        "BoostedTreesQuantileStreamResourceHandleOp",
    }
)
"""Ops whose state TensorFlow stores on parameter servers like variables; part of its API."""


def _is_state(node: Node) -> bool:
    return lookup_op(node.type).traits.role is Role.VARIABLE or node.type in _OTHER_STATE


class _RoundRobin:
    """Strategy that selects the parameter servers in turn."""

    def __init__(self, tasks: int) -> None:
        self._tasks, self._next = tasks, 0

    def __call__(self, node: Node) -> int:
        task = self._next
        self._next = (task + 1) % self._tasks
        return task


def byte_size_load_fn(op: Node) -> float:
    """Return the size of a variable in bytes, which is its load on a parameter server.

    Args:
      op: the node of a variable with a known shape.
    Raises: InvalidArgumentError: the shape is not known.
    """
    count = TensorShape(op.attrs["shape"]).num_elements()
    if count is None:
        raise errors.InvalidArgumentError(
            "byte_size_load_fn requires variables with static shapes, but the shape of a "
            "variable is unknown",
            node=op.name,
        )
    return float(count * op.attrs["dtype"].size)


class GreedyLoadBalancingStrategy:
    """Strategy that assigns each variable to the parameter server with the least load.

    Args:
      num_tasks: the number of parameter servers.
      load_fn: returns the load of a variable, from its node.

    Examples:
      >>> balance = weft_distrib.GreedyLoadBalancingStrategy(2, weft_distrib.byte_size_load_fn)
      >>> with wf.device(wf.train.replica_device_setter(2, ps_strategy=balance)):
      ...     large, small, more = (wf.Variable(wf.zeros([n])) for n in (100, 10, 20))
      >>> [v.device for v in (large, small, more)]
      ['/job:ps/task:0', '/job:ps/task:1', '/job:ps/task:1']
    """

    def __init__(self, num_tasks: int, load_fn: Callable[[Node], float]) -> None:
        self._load_fn = load_fn
        self._loads = [0.0] * num_tasks

    def __call__(self, op: Node) -> int:
        """Return the number of the parameter server for a variable."""
        task = self._loads.index(min(self._loads))
        self._loads[task] += self._load_fn(op)
        return task


class _ReplicaDevices:
    """The device function that `replica_device_setter` returns."""

    def __init__(
        self,
        ps_device: str,
        worker_device: str,
        merge_devices: bool,
        is_state: Callable[[Node], bool],
        strategy: Callable[[Node], int],
    ) -> None:
        self._ps = DeviceSpec.from_string(ps_device).parts
        self._worker = DeviceSpec.from_string(worker_device).parts
        self._merge = merge_devices
        self._is_state = is_state
        self._strategy = strategy

    def __call__(self, node: Node) -> str:
        if not self._merge and node.device:
            return node.device
        requested_parts = DeviceSpec.from_string(node.device or "").parts
        if self._is_state(node):
            device = self._ps
            untold = requested_parts.task is None and device.task is None
            if device.job and requested_parts.job in (None, device.job) and untold:
                device = device._replace(task=self._strategy(node))
        else:
            device = self._worker
        return device.merge(requested_parts).to_string()


def replica_device_setter(
    ps_tasks: int = 0,
    ps_device: str = "/job:ps",
    worker_device: str = "/job:worker",
    merge_devices: bool = True,
    cluster: Any = None,
    ps_ops: Sequence[str] | None = None,
    ps_strategy: Callable[[Any], int] | None = None,
) -> Callable[[Any], str] | None:
    """Return a device function for `tf.device` that distributes variables over parameter servers.

    Args:
      ps_tasks: the number of parameter servers; ignored if `cluster` is set.
      ps_device: the device of the parameter servers, which names their job.
      worker_device: the device of all other nodes.
      merge_devices: True to merge with a device that is requested inside, False to replace it.
      cluster: an argument of `ClusterSpec`.
      ps_ops: the op types that are placed on parameter servers; by default variables and tables.
      ps_strategy: returns the number of the server for a node; by default servers are used in turn.
    Returns: the function, or None if there are no parameter servers.
    Raises:
      InvalidArgumentError: `ps_device` does not name a job.
      InvalidTypeError: `ps_strategy` cannot be called.

    Examples:
      >>> cluster = {"ps": ["ps0:2222", "ps1:2222"], "worker": ["w0:2222"]}
      >>> with wf.device(wf.train.replica_device_setter(cluster=cluster)):
      ...     a, b = wf.Variable(1.0), wf.Variable(2.0)
      ...     c = a + b
      >>> a.device, b.device, c.device
      ('/job:ps/task:0', '/job:ps/task:1', '/job:worker')
    """
    if cluster is not None:
        spec = ClusterSpec(cluster)
        job = DeviceSpec.from_string(ps_device).job
        if job is None:
            raise errors.InvalidArgumentError(f"ps_device must name a job, got {ps_device!r}")
        ps_tasks = spec.num_tasks(job) if job in spec.jobs else 0
    if ps_tasks == 0:
        return None
    if ps_strategy is None:
        ps_strategy = _RoundRobin(ps_tasks)
    if not callable(ps_strategy):
        raise errors.InvalidTypeError(f"ps_strategy must be a function, got {ps_strategy!r}")
    named = None if ps_ops is None else frozenset(ps_ops)
    is_state = _is_state if named is None else lambda node: node.type in named
    return _ReplicaDevices(ps_device, worker_device, merge_devices, is_state, ps_strategy)

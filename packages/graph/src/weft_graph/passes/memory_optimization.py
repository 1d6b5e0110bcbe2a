"""Memory optimization of a step: options, and their passes for ordering and recomputation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from weft_graph.ir.node import Node
from weft_graph.ir.step_graph import RunOrder, StepGraph, reorder_nodes
from weft_graph.passes.flow import Flow
from weft_graph.passes.memory import BytesOf, MemoryLimits, estimate_memory, static_bytes
from weft_graph.passes.memory_order import order_for_memory
from weft_graph.passes.partition import Assignment
from weft_graph.passes.recompute import Recompute, recompute
from weft_tensor import errors

_RECOMPUTES = frozenset({"MANUAL", "HEURISTICS", "RECOMPUTATION_HEURISTICS"})
_ORDERS = frozenset({"HEURISTICS", "SCHEDULING_HEURISTICS"})
_SWAPS = frozenset({"HEURISTICS", "SWAPPING_HEURISTICS"})

MODES = frozenset({"DEFAULT_MEM_OPT", "NO_MEM_OPT"}) | _RECOMPUTES | _ORDERS | _SWAPS
"""The names of `RewriterConfig.MemOptType`."""


@dataclass(frozen=True)
class MemoryOptions:
    """Options of memory optimization.

    Attributes:
      mode: a name of `RewriterConfig.MemOptType`. DEFAULT_MEM_OPT does nothing without a limit;
        with a limit it equals HEURISTICS.
      scope: name scope of gradient nodes, `memory_optimizer_target_node_name_scope`.
      limits: memory limits of devices in bytes, by name; 0 to minimize memory. If empty, only
        optimizations without a limit run: rematerialization of cheap nodes, and reordering.
      bytes_of: sizes of values.
      device_of: function that returns the device of a node with a kernel; None if there is only
        one, named "".
      spaces: the memory space of devices that share one.
      host: the device of nodes without a source.
      run_order: sorts live nodes into execution order.
    Raises: InvalidArgumentError: the mode is unknown, or a limit is negative.
    """

    mode: str = "DEFAULT_MEM_OPT"
    scope: str = "gradients/"
    limits: Mapping[str, int] = field(default_factory=dict)
    bytes_of: BytesOf = static_bytes
    device_of: Callable[[Node], str] | None = None
    spaces: Mapping[str, str] = field(default_factory=dict)
    host: str = ""
    run_order: RunOrder = list

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise errors.InvalidArgumentError(
                f"memory_optimization must be one of {sorted(MODES)}, got {self.mode!r}"
            )
        for name, limit in self.limits.items():
            if limit < 0:
                raise errors.InvalidArgumentError(
                    f"a memory limit must be at least 0 bytes, got {limit} for {name or 'a step'}"
                )

    @property
    def resolved_mode(self) -> str:
        """The mode with defaults resolved."""
        if self.mode != "DEFAULT_MEM_OPT":
            return self.mode
        return "HEURISTICS" if self.limits else "NO_MEM_OPT"

    @property
    def swaps(self) -> bool:
        """True if values may be swapped to the host."""
        return self.resolved_mode in _SWAPS


def optimize_memory(step: StepGraph, options: MemoryOptions) -> int:
    """Reduce the memory of a step as its options request.

    Reordering is first because it is free, then recomputation. Swapping, for the remaining excess,
    is done after placement. Common subexpressions must have been merged before.

    Returns: the number of changes: the number of copied nodes, plus 1 for a new order.
    """
    mode = options.resolved_mode
    changes = 0
    if mode in _ORDERS:
        changes += _reorder(step, options)
    if mode in _RECOMPUTES:
        changes += _recompute(step, options)
    return changes


def _reorder(step: StepGraph, options: MemoryOptions) -> int:
    nodes = list(options.run_order(step.live_nodes()))
    device_of = _devices(nodes, options)
    order = order_for_memory(nodes, step.fetches, options.bytes_of, device_of)
    if order == nodes:
        return 0
    reorder_nodes(step, order, {})
    step.changes["order"] += 1
    return 1


def _recompute(step: StepGraph, options: MemoryOptions) -> int:
    """Recompute hinted nodes, and others if requested or if a limit is exceeded."""
    candidates = Recompute.HINTS if options.mode == "MANUAL" else Recompute.CHEAP
    memory = None
    if options.limits and candidates is not Recompute.HINTS:
        nodes = list(options.run_order(step.live_nodes()))
        memory = MemoryLimits(options.limits, _devices(nodes, options), options.spaces)
        estimate = estimate_memory(
            nodes, step.fetches, options.bytes_of, memory.device_of, memory.spaces
        )
        if memory.excess(estimate.peak) <= 0:
            return 0
        candidates = Recompute.ALL
    return recompute(
        step,
        candidates,
        scope=options.scope,
        memory=memory,
        bytes_of=options.bytes_of,
        run_order=options.run_order,
    )


def _devices(nodes: Sequence[Node], options: MemoryOptions) -> Callable[[Node], str] | None:
    """Return a function from a node to its device, or None if there is only one."""
    if options.device_of is None:
        return None
    return Assignment(nodes, Flow(nodes), options.device_of, options.host).of

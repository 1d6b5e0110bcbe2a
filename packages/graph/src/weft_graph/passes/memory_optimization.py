"""Keeping a step's memory small: recomputation, order and swapping by one set of options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from weft_graph.node import Node
from weft_graph.passes.flow import Flow
from weft_graph.passes.memory import BytesOf, estimate_memory, sizes_of
from weft_graph.passes.memory_order import ordered_for_memory
from weft_graph.passes.partition import Assignment
from weft_graph.passes.recompute import Recompute, recompute
from weft_graph.passes.step_graph import RunOrder, StepGraph, place_new_nodes
from weft_graph.passes.swap import swap_to_host
from weft_tensor import errors

_RECOMPUTES = frozenset({"MANUAL", "HEURISTICS", "RECOMPUTATION_HEURISTICS"})
_ORDERS = frozenset({"HEURISTICS", "SCHEDULING_HEURISTICS"})
_SWAPS = frozenset({"HEURISTICS", "SWAPPING_HEURISTICS"})

MODES = frozenset({"DEFAULT_MEM_OPT", "NO_MEM_OPT"}) | _RECOMPUTES | _ORDERS | _SWAPS
"""The names of `RewriterConfig.MemOptType`."""


@dataclass(frozen=True)
class MemoryOptions:
    """What is done about memory.

    Attributes:
      mode: a name of `RewriterConfig.MemOptType`. DEFAULT_MEM_OPT does nothing without a limit, and
        with one what HEURISTICS does.
      scope: name scope of gradient nodes, `memory_optimizer_target_node_name_scope`.
      limit: bytes that a device should need at most; 0 for as few as possible. None for what needs
        no limit: cheap nodes are computed again and the order is chosen, nothing is swapped.
      measured: bytes of outputs by name, where they are known from earlier steps.
      unknown: bytes of outputs of whose shapes nothing is known.
      dimension: what a size that is not known counts as, such as that of a batch.
      device_of: the device of a node that has a kernel; needed for swapping.
      host: the device that values are swapped to; "" for none.
      run_order: puts live nodes into the order in which they run.
    Raises: InvalidArgumentError: the mode is unknown, or the limit negative.
    """

    mode: str = "DEFAULT_MEM_OPT"
    scope: str = "gradients/"
    limit: int | None = None
    measured: Mapping[str, int] = field(default_factory=dict)
    unknown: int = 0
    dimension: int = 32
    device_of: Callable[[Node], str] | None = None
    host: str = ""
    run_order: RunOrder = list

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise errors.InvalidArgumentError(
                f"memory_optimization must be one of {sorted(MODES)}, got {self.mode!r}"
            )
        if self.limit is not None and self.limit < 0:
            raise errors.InvalidArgumentError(
                f"a memory limit must be at least 0 bytes, got {self.limit}"
            )

    @property
    def applied(self) -> str:
        """The mode, with what the default stands for."""
        if self.mode != "DEFAULT_MEM_OPT":
            return self.mode
        return "NO_MEM_OPT" if self.limit is None else "HEURISTICS"


def optimize_memory(step: StepGraph, options: MemoryOptions) -> int:
    """Let a step need less memory, in the ways that its options ask for.

    An order that needs less comes first, since it costs nothing; then recomputation; then, for what
    is still too much, swapping.  Common subexpressions must have been merged before.

    Returns: the number of changes: nodes copied, values swapped, and 1 for a new order.
    """
    mode = options.applied
    bytes_of = sizes_of(options.measured, options.unknown, options.dimension)
    changes = 0
    if mode in _ORDERS:
        changes += _reorder(step, options, bytes_of)
    if mode in _RECOMPUTES and not _fits(step, options, bytes_of):
        changes += recompute(
            step,
            _what(mode, options.limit),
            scope=options.scope,
            limit=options.limit,
            bytes_of=bytes_of,
            run_order=options.run_order,
        )
    if mode in _SWAPS and options.limit is not None and options.host and options.device_of:
        changes += swap_to_host(
            step,
            options.device_of,
            options.host,
            options.limit,
            bytes_of=bytes_of,
            run_order=options.run_order,
        )
    return changes


def _what(mode: str, limit: int | None) -> Recompute:
    if mode == "MANUAL":
        return Recompute.HINTS
    return Recompute.CHEAP if limit is None else Recompute.ALL


def _fits(step: StepGraph, options: MemoryOptions, bytes_of: BytesOf) -> bool:
    """Whether no device needs more than the limit; hints are followed in any case."""
    if options.limit is None or options.mode == "MANUAL":
        return False
    nodes = options.run_order(step.live_nodes())
    found = estimate_memory(nodes, step.fetches, bytes_of, _devices(nodes, options))
    return found.largest <= options.limit


def _devices(nodes: Sequence[Node], options: MemoryOptions) -> Callable[[Node], str] | None:
    """The device of any node, or None where devices are not told apart."""
    if options.device_of is None:
        return None
    return Assignment(nodes, Flow(nodes), options.device_of, options.host).of


def _reorder(step: StepGraph, options: MemoryOptions, bytes_of: BytesOf) -> int:
    nodes = list(options.run_order(step.live_nodes()))
    order = ordered_for_memory(nodes, step.fetches, bytes_of, _devices(nodes, options))
    if order == nodes:
        return 0
    place_new_nodes(step, order, {})
    step.changes["order"] += 1
    return 1

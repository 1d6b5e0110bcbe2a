"""`RunMetadata.cost_graph`: the nodes of a step with their estimated costs."""

from __future__ import annotations

__all__ = ["fill_cost_graph"]

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from weft_exec.costs.model import CostModel
from weft_exec.devices.description import DeviceDescription
from weft_graph.ir.node import Node

if TYPE_CHECKING:
    from weft_graph import proto


def fill_cost_graph(
    message: proto.RunMetadata,
    nodes: Iterable[Node],
    device_of: Callable[[Node], DeviceDescription],
    model: CostModel,
) -> None:
    """Replace `message.cost_graph` by the costs of some nodes.

    Times are in microseconds. A node's id is its index in `nodes`; inputs from other nodes are left
    out. A node is final if no other one uses its outputs, and inaccurate if it was never measured.

    Args:
      message: RunMetadata.
      nodes: the nodes of a step, before or after partitioning.
      device_of: returns the device of a node.
      model: the cost model.
    """
    numbers = {node: number for number, node in enumerate(nodes)}
    used = {source for node in numbers for source in _sources(node)}
    message.ClearField("cost_graph")
    for node, number in numbers.items():
        entry = message.cost_graph.node.add(name=node.name, id=number, is_final=node not in used)
        _fill_inputs(entry, node, numbers)
        _fill_outputs(entry, node, model)
        _fill_costs(entry, node, device_of(node), model)


def _sources(node: Node) -> list[Node]:
    return [*(source.node for source in node.inputs), *node.controls]


def _fill_inputs(entry: Any, node: Node, numbers: dict[Node, int]) -> None:
    for source in node.inputs:
        if source.node in numbers:
            entry.input_info.add(preceding_node=numbers[source.node], preceding_port=source.index)
    entry.control_input.extend(numbers[n] for n in node.controls if n in numbers)


def _fill_outputs(entry: Any, node: Node, model: CostModel) -> None:
    for output in node.outputs:
        info = entry.output_info.add(
            size=model.nbytes(output),
            alias_input_port=-1,
            dtype=output.dtype.as_datatype_enum,
        )
        if output.dims is None:
            info.shape.unknown_rank = True
            continue
        for size in output.dims:
            info.shape.dim.add(size=-1 if size is None else size)


def _fill_costs(entry: Any, node: Node, device: DeviceDescription, model: CostModel) -> None:
    performance, work = device.performance, model.work(node)
    entry.device = device.name
    entry.compute_cost = _to_microseconds(model.seconds(node, device))
    entry.compute_time = _to_microseconds(work.flops / performance.flops)
    entry.memory_time = _to_microseconds(work.bytes / performance.bandwidth)
    entry.persistent_memory_size = model.persistent_bytes(node)
    entry.inaccurate = not model.is_measured(node, device)


def _to_microseconds(seconds: float) -> int:
    return min(round(seconds * 1e6), 2**63 - 1)

"""The cost graph of RunMetadata."""

from __future__ import annotations

import numpy as np

import weft as wf
from weft_exec.costs import CostModel, fill_cost_graph
from weft_exec.devices.description import DeviceDescription
from weft_exec.devices.performance import default_performance
from weft_exec.tracing.records import NodeRecord

NAME = "/job:localhost/replica:0/task:0/device:CPU:0"
CPU = DeviceDescription(NAME, "CPU", default_performance("CPU"))


def test_nodes_with_their_costs() -> None:
    with wf.Graph().as_default() as graph:
        x = wf.placeholder(wf.float32, (None, 200), name="x")
        w = wf.get_variable("w", [200, 300], use_resource=True)
        with wf.control_dependencies([wf.no_op("first")]):
            weights = wf.identity(w, name="read")
        product = wf.matmul(x, weights, name="product")
        loose = wf.tanh(wf.placeholder(wf.float32), name="loose")
        model = CostModel()
        model.observe([NodeRecord(product.op, CPU.name, 0, 10**9, 1, 0, (4 * 64 * 300,))] * 99)
        metadata = wf.RunMetadata()
        metadata.cost_graph.node.add(name="stale")
        kept = list(graph.nodes)
        fill_cost_graph(metadata, iter(kept), lambda node: CPU, model)
    found = {node.name: node for node in metadata.cost_graph.node}
    assert list(found) == [node.name for node in kept]
    node = found["product"]
    assert [node.id for node in metadata.cost_graph.node] == list(range(len(kept)))
    assert [i.preceding_node for i in node.input_info] == [
        found[source.node.name].id for source in product.op.inputs
    ]
    waiting = [node for node in kept if node.control_inputs]
    assert waiting
    for each in waiting:
        assert list(found[each.name].control_input) == [found["first"].id]
    assert node.device == CPU.name
    assert node.output_info[0].size == 4 * 64 * 300
    assert [dim.size for dim in node.output_info[0].shape.dim] == [-1, 300]
    assert node.output_info[0].dtype == 1
    assert node.output_info[0].alias_input_port == -1
    assert abs(node.compute_cost - 10**6) < 10**4
    assert node.compute_time == round(2 * 64 * 200 * 300 / 5e10 * 1e6)
    assert node.memory_time == round(4 * (64 * 200 + 200 * 300 + 64 * 300) / 1e10 * 1e6)
    assert node.is_final
    assert not node.inaccurate
    assert found["w"].persistent_memory_size == 4 * 200 * 300
    assert found["w"].inaccurate
    assert not found["x"].is_final
    assert found["loose"].output_info[0].shape.unknown_rank
    assert loose.op.name in found


def test_inputs_from_elsewhere_are_left_out() -> None:
    with wf.Graph().as_default():
        x = wf.constant(np.ones(3, np.float32))
        y = wf.tanh(x)
        metadata = wf.RunMetadata()
        fill_cost_graph(metadata, [y.op], lambda node: CPU, CostModel())
    (node,) = metadata.cost_graph.node
    assert len(node.input_info) == 0
    assert node.output_info[0].size == 12

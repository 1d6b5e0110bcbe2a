"""Descriptions: placing over devices that this process does not have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import weft as wf
from weft import errors
from weft_exec.config import SessionConfig
from weft_exec.costs import CostModel
from weft_exec.devices.description import (
    HOST,
    DeviceDescription,
    KernelDescription,
    link_between,
)
from weft_exec.devices.device import make_devices
from weft_exec.devices.performance import NETWORK, SAME_MEMORY, DevicePerformance, LinkPerformance
from weft_exec.kernels.description import describe_kernels, kernels_on, runs_on, waits_on
from weft_exec.placement import Placer
from weft_exec.resources.resources import ResourceManager
from weft_graph.ir.device_spec import DeviceParts
from weft_graph.passes import prune
from weft_graph.passes.partition import partition

FAST = DevicePerformance(flops=1e14, bandwidth=1e12, overhead=1e-6)
MATMUL = {"MatMul": [KernelDescription({"T": ["float32"]})]}


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as made:
        yield made


def local(task: int, count: int = 1) -> list[DeviceDescription]:
    config = SessionConfig(device_count={"CPU": count, "GPU": 0})
    made = make_devices(ResourceManager(), config, DeviceParts("worker", 0, task))
    return [device.describe(made) for device in made]


def elsewhere(kernels: Any = MATMUL) -> DeviceDescription:
    """An accelerator of another task, of a type that this process has never heard of."""
    name = "/job:worker/replica:0/task:1/device:NPU:0"
    made = DeviceDescription(name, "NPU", FAST, 1 << 30, "npu 0", {}, kernels)
    return DeviceDescription.from_dict(json.loads(json.dumps(made.to_dict())))


def test_devices_are_made_for_a_job_and_task() -> None:
    first, second = local(3, 2)
    assert first.name == "/job:worker/replica:0/task:3/device:CPU:0"
    assert second.name == "/job:worker/replica:0/task:3/device:CPU:1"
    with wf.Session(config=wf.ConfigProto(device_count={"CPU": 1})) as session:
        (own, *_) = session.list_devices()
    assert own.name == "/job:localhost/replica:0/task:0/device:CPU:0"


def test_a_description_is_plain_data() -> None:
    (cpu,) = local(0)
    data = json.loads(json.dumps(cpu.to_dict()))
    assert DeviceDescription.from_dict(data) == cpu
    links = {cpu.name: LinkPerformance(1e9, 1e-3)}
    told = DeviceDescription(
        "/job:a/replica:0/task:2/device:GPU:1", "GPU", FAST, 7, "gpu 1", links, MATMUL
    )
    assert DeviceDescription.from_dict(json.loads(json.dumps(told.to_dict()))) == told


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": None},
        {"performance": [1.0]},
        {"performance": ["fast", 1, 1]},
        {"links": [1]},
        {"links": {"a": [1.0]}},
        {"kernels": {"MatMul": [{"dtype": []}]}},
        {"kernels": 3},
        {"memory_limit": "much"},
    ],
)
def test_what_is_no_description_is_refused(wrong: dict[str, Any]) -> None:
    data = {**elsewhere().to_dict(), **wrong}
    if wrong == {"name": None}:
        del data["name"]
    with pytest.raises(errors.InvalidArgumentError, match="no description of a device"):
        DeviceDescription.from_dict(data)


def test_memories_of_two_tasks_are_two() -> None:
    (first, beside), (other,) = local(0, 2), local(1)
    assert first.memory_space == other.memory_space == HOST
    assert first.memory == beside.memory != other.memory
    assert link_between(first, beside) == SAME_MEMORY
    assert link_between(first, other) == NETWORK


def test_kernels_are_told_as_this_process_registers_them() -> None:
    told = describe_kernels("CPU")
    (cpu,) = local(0)
    far = DeviceDescription(cpu.name, "CPU", FAST, kernels=told)
    assert kernels_on(far, "MatMul") == kernels_on(cpu, "MatMul") != []
    x = wf.placeholder(wf.float32, [2, 2])
    text = wf.placeholder(wf.string, [2])
    queue = wf.FIFOQueue(1, [wf.float32])
    for node in (wf.matmul(x, x).op, wf.string_join([text, text]).op, queue.dequeue().op):
        assert runs_on(far, node) and runs_on(cpu, node)
        assert waits_on(far, node) == waits_on(cpu, node)
    assert waits_on(far, queue.dequeue().op)
    assert not runs_on(elsewhere(), wf.cos(x).op)


def test_a_graph_is_placed_and_cut_over_devices_of_other_processes() -> None:
    x = wf.placeholder(wf.float32, [2000, 2000], name="x")
    a = wf.matmul(x, x, name="a")
    b = wf.cos(a, name="b")
    c = wf.matmul(wf.cast(b, wf.float64), wf.cast(x, wf.float64), name="c")
    devices = [*local(0), elsewhere()]
    placer = Placer(devices, SessionConfig(), CostModel)
    placer.extend(x.graph.nodes)
    step = prune([], [c], [])
    placed = placer.assign(step.live_nodes())
    found = {node.name: place for node, place in placed.places.items()}
    npu, cpu = devices[1].name, devices[0].name
    assert (found["a"], found["b"], found["c"]) == (npu, cpu, cpu)  # no float64 there, and no Cos
    nodes = step.live_nodes()
    parts = partition(step, nodes, placed.places.__getitem__, cpu, {npu: cpu})
    assert parts is not None and set(parts) == {npu, cpu}
    assert [n.type for n in parts[npu].nodes if n.type == "MatMul"] == ["MatMul"]


def test_a_request_that_a_device_has_no_kernel_for_says_so() -> None:
    x = wf.placeholder(wf.float32, [3, 3])
    with wf.device("/job:worker/task:1/device:NPU:0"):
        y = wf.cos(x)
    placer = Placer([*local(0), elsewhere()], SessionConfig(), CostModel)
    placer.extend(x.graph.nodes)
    with pytest.raises(errors.InvalidArgumentError, match=r"NPU:0 .* has a kernel of Cos"):
        placer.assign([x.op, y.op])
    nothing = Placer([elsewhere()], SessionConfig(), CostModel)
    with pytest.raises(errors.UnimplementedError, match=r"MatMul on NPU takes T in \{float32\}"):
        nothing.place(wf.matmul(wf.cast(x, wf.float64), wf.cast(x, wf.float64)).op)

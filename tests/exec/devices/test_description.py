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
from weft_exec.executor.overlap import Overlap
from weft_exec.kernels.description import describe_kernels, has_kernel_on, kernels_on, may_wait_on
from weft_exec.placement import Placer
from weft_exec.resources.resources import ResourceManager
from weft_exec.session.planning import PartPlanner
from weft_graph.functions.defun import Defun
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
        {"memory_limit": -1},
        {"memory_limit": float("inf")},
        {"name": "/job:worker/task:1"},
        {"name": "/job:worker/replica:0/task:1/npu:0"},
        {"name": "/job:a;b/replica:0/task:1/device:NPU:0"},
        {"name": "nonsense:"},
        {"name": 3},
        {"type": "GPU"},
        {"performance": [0.0, 1, 1]},
        {"performance": [1.0, float("nan"), 1]},
        {"links": {"a": [1.0, -1.0]}},
        {"kernels": {"MatMul": [{"dtypes": 3, "asynchronous": False}]}},
        {"kernels": {"MatMul": 3}},
    ],
)
def test_what_is_no_description_is_refused(wrong: dict[str, Any]) -> None:
    data = {**elsewhere().to_dict(), **wrong}
    if wrong == {"name": None}:
        del data["name"]
    with pytest.raises(errors.InvalidArgumentError, match=r"not a device description|device name"):
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
        assert has_kernel_on(far, node) and has_kernel_on(cpu, node)
        assert may_wait_on(far, node) == may_wait_on(cpu, node)
    assert may_wait_on(far, queue.dequeue().op)
    assert not has_kernel_on(elsewhere(), wf.cos(x).op)


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


def planner(*devices: DeviceDescription, soft: bool = False) -> PartPlanner:
    config = SessionConfig(allow_soft_placement=soft)
    (host,) = make_devices(ResourceManager(), SessionConfig(device_count={"CPU": 1, "GPU": 0}))
    made = PartPlanner(devices, host, config, Overlap.EVERYTHING)
    made.extend(wf.get_default_graph().nodes)
    return made


def named(name: str, **more: Any) -> DeviceDescription:
    kind = name.split(":")[-2]
    return DeviceDescription(f"/job:{name}", kind, FAST, **more)


WORKERS = (
    named("worker/replica:0/task:0/device:CPU:0"),
    named("worker/replica:0/task:1/device:CPU:0"),
    named("ps/replica:0/task:1/device:CPU:0"),
)


def test_devices_that_cannot_be_a_cluster_are_refused() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="at least one device"):
        planner()
    with pytest.raises(
        errors.InvalidArgumentError, match=r"devices must have different names, but /job:ps/"
    ):
        planner(*WORKERS, WORKERS[2])
    with pytest.raises(errors.InvalidArgumentError, match="its name must have the form"):
        planner(named("worker/task:1/device:CPU:0"))


@pytest.mark.parametrize(
    ("request_", "task"),
    [
        ("", 0),
        ("/job:ps", 2),
        ("/task:1/device:CPU:0", 1),
        ("/job:worker/task:1", 1),
        ("/device:CPU:0", 0),
        ("/cpu:0", 0),
    ],
)
def test_partial_names_are_met_by_a_device_of_some_task(request_: str, task: int) -> None:
    x = wf.placeholder(wf.float32, [3])
    with wf.device(request_ or None):
        y = wf.negative(x)
    assert list(planner(*WORKERS).parts([x], [y], [])) == [WORKERS[task].name]


def test_what_nobody_has_is_refused_and_soft_placement_stays_in_the_task() -> None:
    x = wf.placeholder(wf.float32, [3])
    with wf.device("/job:ps/device:GPU:0"):
        y = wf.negative(x)
    with wf.device("/job:evaluator"):
        z = wf.negative(x)
    for wanted in (y, z):
        with pytest.raises(errors.InvalidArgumentError, match="no device meets the requests"):
            planner(*WORKERS).parts([x], [wanted], [])
        with pytest.raises(errors.InvalidArgumentError, match="no device meets the requests"):
            planner(WORKERS[0]).parts([x], [wanted], [])
    assert list(planner(*WORKERS, soft=True).parts([x], [y], [])) == [WORKERS[2].name]
    assert list(planner(*WORKERS, soft=True).parts([x], [z], [])) == [WORKERS[0].name]


def test_feeds_and_fetches_of_an_accelerator_go_by_a_host_of_its_task() -> None:
    x = wf.placeholder(wf.float32, [3])
    with wf.device("/job:ps/device:NPU:0"):
        y = wf.negative(x)
    kernels = {"Neg": [KernelDescription()]}
    npu = named("ps/replica:0/task:1/device:NPU:0", memory_space="npu 0", kernels=kernels)
    parts = planner(*WORKERS, npu).parts([x], [y], [])
    assert {name: (part.feeds, part.fetches) for name, part in parts.items()} == {
        WORKERS[2].name: ((0,), (0,)),
        npu.name: ((), ()),
    }


def test_handles_do_not_leave_their_task() -> None:
    with wf.device("/job:ps"):
        v = wf.get_variable("v", initializer=1.0, use_resource=True)
        numbers = wf.data.Dataset.range(3)

    @Defun(wf.resource, func_name="described_read", noinline=True)
    def read(handle: Any) -> Any:
        return wf.raw_ops.ReadVariableOp(resource=handle, dtype=wf.float32)

    with wf.device("/job:worker/task:0"):
        y = read(v.handle)  # goes to where the variable is
        w = wf.get_variable("w", initializer=1.0, use_resource=True)
    iterator = numbers.batch(2).make_initializable_iterator()
    one = wf.placeholder(wf.bool, [])
    either = wf.cond(one, lambda: wf.identity(v.handle), lambda: wf.identity(w.handle))
    z = wf.raw_ops.ReadVariableOp(resource=either, dtype=wf.float32)
    made = planner(*WORKERS)
    assert list(made.parts([], [y], [])) == [WORKERS[2].name]
    assert len(made.parts([], [], [iterator.initializer])) == 1
    with pytest.raises(errors.InvalidArgumentError, match="cannot leave its task"):
        made.parts([one], [z], [])

"""Estimates, measurements, and how they are blended."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import weft as wf
from weft_exec.costs import CostModel, DevicePerformance, LinkPerformance
from weft_exec.costs.measurements import Mean, Ratio, Table
from weft_exec.devices.description import HOST, DeviceDescription
from weft_exec.devices.performance import DEVICES, UNKNOWN_DEVICE, default_performance
from weft_exec.tracing.records import NodeRecord, records_of
from weft_exec.tracing.step_trace import StepTrace
from weft_graph.functions.defun import Declare, Defun
from weft_graph.ir.builder import create
from weft_graph.ir.device_spec import DeviceSpec
from weft_graph.ir.node import Node

HOME = "/job:localhost/replica:0/task:0"


def device(name: str = "/device:CPU:0", **attributes: Any) -> DeviceDescription:
    spec = DeviceSpec.from_string(name if name.startswith("/job") else HOME + name)
    kind, full = spec.device_type or "", spec.to_string()
    found = {"memory_space": HOST if kind == "CPU" else full, **attributes}
    found.setdefault("performance", default_performance(kind))
    return DeviceDescription(full, kind, **found)


CPU, OTHER_CPU, GPU = device(), device("/device:CPU:1"), device("/device:GPU:0")


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as made:
        yield made


def placeholder(*shape: int | None) -> wf.Tensor:
    return wf.placeholder(wf.float32, shape)


def matmul(m: int | None = 100, k: int = 200, n: int = 300, name: str | None = None) -> Node:
    node: Node = wf.matmul(placeholder(m, k), placeholder(k, n), name=name).op
    return node


def record(node: Node, seconds: float, where: Any = CPU, *sizes: int, **kw: Any) -> NodeRecord:
    start = 1_700_000_000_000_000_000
    end = start + round(seconds * 1e9)
    return NodeRecord(node, where.name, start, end, 1, sum(sizes), sizes, **kw)


# ----------------------------------------------------------------------- static


def test_time_is_launch_and_the_slower_of_arithmetic_and_memory() -> None:
    model = CostModel()
    cpu = DEVICES["CPU"]
    flops, nbytes = 2 * 100 * 200 * 300, 4 * (20000 + 60000 + 30000)
    assert flops / cpu.flops > nbytes / cpu.bandwidth
    assert model.seconds(matmul(), CPU) == pytest.approx(cpu.overhead + flops / cpu.flops)
    added = wf.add(placeholder(1000), placeholder(1000)).op
    assert model.seconds(added, CPU) == pytest.approx(cpu.overhead + 12000 / cpu.bandwidth)
    assert model.seconds(added, device("/device:TPU:0")) == pytest.approx(
        UNKNOWN_DEVICE.overhead + 12000 / UNKNOWN_DEVICE.bandwidth
    )
    assert model.seconds(added, CPU) < model.seconds(added, GPU)
    big = matmul(2000, 2000, 2000)
    assert model.seconds(big, CPU) > model.seconds(big, GPU)


def test_a_device_may_tell_its_own_figures() -> None:
    slow = device(performance=DevicePerformance(flops=1e3, bandwidth=1e3, overhead=2.0))
    assert CostModel().seconds(matmul(), slow) == pytest.approx(2.0 + 12_000_000 / 1e3)


def test_real_devices_of_a_session_are_understood() -> None:
    from weft_exec.config import SessionConfig
    from weft_exec.devices.device import make_devices
    from weft_exec.resources.resources import ResourceManager

    config = SessionConfig(device_count={"CPU": 2})
    first, second = [d.describe() for d in make_devices(ResourceManager(), config)[:2]]
    model = CostModel()
    assert model.seconds(matmul(), first) == model.seconds(matmul(), CPU)
    assert model.transfer_seconds(1 << 30, first, second) == pytest.approx(1e-5)


def test_transfers_go_by_link() -> None:
    model = CostModel()
    remote = device("/job:worker/replica:0/task:1/device:CPU:0")
    assert model.transfer_seconds(10**9, CPU, CPU) == 0
    assert model.transfer_seconds(10**9, CPU, OTHER_CPU) == pytest.approx(1e-5)
    assert model.transfer_seconds(10**9, CPU, GPU) == pytest.approx(0.1 + 2e-5)
    assert model.transfer_seconds(10**9, GPU, device("/device:GPU:1")) == pytest.approx(0.10002)
    assert model.transfer_seconds(10**9, CPU, remote) == pytest.approx(1 + 2.5e-4)
    assert model.transfer_seconds(0, remote, CPU) == pytest.approx(2.5e-4)
    near = [replace(each, machine="m") for each in (CPU, remote)]
    assert model.transfer_seconds(10**9, *near) == pytest.approx(0.2 + 2.5e-4)
    assert model.transfer_seconds(0, near[0], remote) == pytest.approx(2.5e-4)


def test_a_device_may_tell_of_its_links_from_either_end() -> None:
    fast = LinkPerformance(bandwidth=1e12, latency=0.0)
    joined = device("/device:GPU:1", links={GPU.name: fast})
    model = CostModel()
    assert model.transfer_seconds(10**9, joined, GPU) == pytest.approx(1e-3)
    assert model.transfer_seconds(10**9, GPU, joined) == pytest.approx(1e-3)
    assert model.transfer_seconds(10**9, CPU, joined) == pytest.approx(0.10002)


def test_variables_keep_their_bytes() -> None:
    model = CostModel()
    plain = wf.Variable(np.zeros((3, 5), np.float64), name="plain")
    handle = wf.get_variable("handle", [7, 2], use_resource=True)
    assert model.persistent_bytes(plain.op) == 120
    assert model.persistent_bytes(handle.op) == 56
    assert model.persistent_bytes(matmul()) == 0
    unknown = create("VarHandleOp", [], {"dtype": wf.float32, "shape": (None, 2)})
    assert model.persistent_bytes(unknown) == 4 * 32 * 2


def test_the_body_of_a_call_counts() -> None:
    @Defun(wf.float32, noinline=True)
    def body(x: Any) -> Any:
        x.set_shape([300, 300])
        return wf.matmul(wf.matmul(x, x), x)

    called = body(placeholder(300, 300)).op
    assert called.type in ("PartitionedCall", "StatefulPartitionedCall")
    model = CostModel()
    one = matmul(300, 300, 300)
    assert 2 * model.seconds(one, CPU) < model.seconds(called, CPU) < 3 * model.seconds(one, CPU)
    before = model.seconds(called, CPU)
    model.observe([record(one, 10.0)] * 20)
    assert model.seconds(called, CPU) > 1000 * before


# ----------------------------------------------------------------------- unknown shapes


def test_unknown_sizes_are_assumed_until_they_are_measured() -> None:
    model = CostModel()
    node = matmul(None, 200, 300)
    assert model.nbytes(node.outputs[0]) == 4 * 32 * 300
    assert model.work(node).flops == 2 * 32 * 200 * 300
    model.observe([record(node, 1e-3, CPU, 4 * 1024 * 300)])
    assert model.nbytes(node.outputs[0]) == 4 * 1024 * 300
    assert model.work(node).flops == 2 * 1024 * 200 * 300
    assert model.work(node).bytes == 4 * (1024 * 200 + 200 * 300 + 1024 * 300)


def test_what_was_measured_upstream_tells_of_the_consumers() -> None:
    model = CostModel()
    node = matmul(None, 200, 300)
    after = wf.tanh(node.outputs[0]).op
    model.observe([record(node, 1e-3, CPU, 4 * 1024 * 300)])
    assert model.work(after).flops == 1024 * 300
    assert model.nbytes(after.outputs[0]) == 4 * 1024 * 300


def test_unknown_sizes_elsewhere_are_taken_for_the_usual_one() -> None:
    model = CostModel()
    model.observe([record(matmul(None, 200, 300), 1e-3, CPU, 4 * 1024 * 300)])
    assert model.nbytes(placeholder(None, 7)) == 4 * 1024 * 7


def test_unknown_ranks_and_several_unknown_sizes() -> None:
    model = CostModel()
    loose = wf.placeholder(wf.float32)
    assert model.nbytes(loose) == 4 * 32
    both = wf.tanh(placeholder(None, None, 8)).op
    assert model.nbytes(both.outputs[0]) == 4 * 32 * 32 * 8
    model.observe([record(both, 1e-3, CPU, 4 * 100 * 8)])
    assert model.nbytes(both.outputs[0]) == 4 * 100 * 8
    assert model.work(both).flops == 800
    any_rank = wf.tanh(loose).op
    model.observe([record(any_rank, 1e-3, CPU, 4 * 77)])
    assert model.work(any_rank).flops == 77


def test_empty_outputs_and_wrong_numbers_of_sizes() -> None:
    model = CostModel()
    node = wf.tanh(placeholder(None, 8)).op
    model.observe([record(node, 1e-3, CPU, 1, 2, 3)])
    assert model.nbytes(node.outputs[0]) == 4 * 32 * 8
    model.observe([record(node, 1e-3, CPU, 0)])
    assert model.nbytes(node.outputs[0]) == 0
    assert model.seconds(node, GPU) > 0
    empty = wf.tanh(placeholder(0, None)).op
    model.observe([record(empty, 1e-3, CPU, 0)])
    assert model.nbytes(empty.outputs[0]) == 0


def test_one_kind_serves_nodes_whose_unknown_sizes_turn_out_equal() -> None:
    model = CostModel()
    node, exact, other = matmul(None, 64, 64), matmul(512, 64, 64), matmul(8, 64, 64)
    model.observe([record(node, 0.5, CPU, 4 * 512 * 64)] * 30)
    assert model.seconds(exact, CPU) == pytest.approx(0.5, rel=0.2)
    assert model.seconds(other, CPU) < 0.1


def test_shapes_that_become_known_later_count_at_once() -> None:
    model, x = CostModel(), placeholder(None, 200)
    node = wf.tanh(x).op
    assert model.work(node).flops == 32 * 200
    x.set_shape([64, 200])
    node.outputs[0].set_shape([64, 200])
    assert model.work(node).flops == 64 * 200
    assert model.nbytes(node.outputs[0]) == 4 * 64 * 200


def test_a_model_keeps_no_graph_alive() -> None:
    model = CostModel()
    with wf.Graph().as_default() as made:
        node = matmul(None)
        after = wf.tanh(node.outputs[0]).op
        model.observe([record(node, 1e-3, CPU, 1200), record(after, 1e-3, CPU, 1200)])
        assert model.seconds(after, CPU) > 0
        assert model.nbytes(after.outputs[0]) == 1200
    gone = weakref.ref(node)
    del made, node, after
    gc.collect()
    assert gone() is None


# ----------------------------------------------------------------------- measured


def test_many_measurements_outweigh_the_estimate_and_few_do_not() -> None:
    model, node = CostModel(), matmul()
    static = model.seconds(node, CPU)
    gone = [static]
    for _ in range(40):
        model.observe([record(node, 0.25)])
        gone.append(model.seconds(node, CPU))
    assert gone == sorted(gone)
    assert gone[1] < 0.05
    assert gone[-1] == pytest.approx(0.25, rel=0.01)


def test_a_first_run_counts_less() -> None:
    model, node = CostModel(), matmul()
    model.observe([record(node, 10.0)])
    model.observe([record(node, 0.001)] * 30)
    assert model.seconds(node, CPU) < 0.05
    mean = Mean(10.0, 0.25).add(0.001, 1.0)
    assert mean.value == pytest.approx(0.25 / 1.25 * 10 + 0.001 / 1.25)


def test_later_measurements_replace_older_ones() -> None:
    model, node = CostModel(), matmul()
    model.observe([record(node, 1.0)] * 100)
    model.observe([record(node, 0.01)] * 40)
    assert model.seconds(node, CPU) == pytest.approx(0.01, rel=0.3)


def test_equal_nodes_share_and_changed_ones_do_not() -> None:
    model, node = CostModel(), matmul(name="here")
    static = model.seconds(matmul(100, 200, 301), CPU)
    model.observe([record(node, 0.25)] * 60)
    assert model.seconds(matmul(name="there"), CPU) == pytest.approx(0.25, rel=0.1)
    factor = Ratio().merge(model._measurements.ratios["CPU"]).factor
    assert model.seconds(matmul(100, 200, 301), CPU) == pytest.approx(static * factor)
    with wf.Graph().as_default():
        changed = matmul(100, 200, 299, name="here")
        assert changed.name == node.name
        assert not model.is_measured(changed, CPU)


def test_attributes_that_shapes_do_not_show_count() -> None:
    model = CostModel()
    a, b = placeholder(64, 64), placeholder(64, 64)
    plain, transposed = wf.matmul(a, b).op, wf.matmul(a, b, transpose_b=True).op
    images = placeholder(1, 8, 8, 1)
    small, large = (wf.nn.max_pool(images, [1, k, k, 1], [1, 2, 2, 1], "SAME").op for k in (2, 3))
    assert small.outputs[0].dims == large.outputs[0].dims
    for one, other in ((plain, transposed), (small, large)):
        model.observe([record(one, 0.25)] * 60)
        assert model.seconds(one, CPU) == pytest.approx(0.25, rel=0.1)
        assert model._entry(one).exact.text != model._entry(other).exact.text
    assert model._measurements.ops.get(("CPU", model._entry(transposed).exact.text)) is None
    assert model._measurements.ops.get(("CPU", model._entry(large).exact.text)) is None


def test_the_device_type_scales_what_was_never_measured() -> None:
    model, other = CostModel(), wf.add(placeholder(10**6), placeholder(10**6)).op
    static, on_gpu = model.seconds(other, CPU), model.seconds(other, GPU)
    node = matmul()
    model.observe([record(node, 3 * model.seconds(node, CPU))] * 200)
    assert model.seconds(other, CPU) == pytest.approx(3 * static, rel=0.1)
    assert model.seconds(other, GPU) == on_gpu


def test_python_functions_say_nothing_of_each_other() -> None:
    model = CostModel()
    slow, fast = (
        wf.py_func(lambda x: x, [placeholder(3)], wf.float32, name=n).op for n in ("slow", "fast")
    )
    before = model.seconds(fast, CPU)
    model.observe([record(slow, 5.0)] * 30)
    assert model.seconds(fast, CPU) == before
    assert model.seconds(slow, CPU) > 4


def test_waiting_is_not_working_and_clocks_may_go_back() -> None:
    model, node = CostModel(), matmul(None)
    before = model.seconds(node, CPU)
    model.observe([record(node, 60.0, CPU, 4 * 32 * 300, waited=True), record(node, -1.0)])
    assert model.seconds(node, CPU) == before
    assert model.nbytes(node.outputs[0]) == 4 * 32 * 300


def test_records_of_a_session_with_one_device_name_none() -> None:
    model, node = CostModel(), matmul()
    model.observe(iter([NodeRecord(node, "", 0, 10**9, 1, 0)] * 20))
    assert model.is_measured(node, CPU)
    assert not model.is_measured(node, GPU)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.floats(0, 1e6))
def test_blends_lie_between(values: list[float], estimate: float) -> None:
    mean = Mean(values[0], 0.25)
    for value in values[1:]:
        mean = mean.add(value, 1.0)
    slack = 1e-6 * (1 + max(values))
    assert min(values) - slack <= mean.value <= max(values) + slack
    low, high = sorted((mean.value, estimate))
    assert low - slack <= mean.blend(estimate) <= high + slack


def test_ratios_are_sane_whatever_was_measured() -> None:
    assert Ratio().factor == 1
    assert Ratio(1e9, 1e-9, 1000).factor <= 1000
    assert Ratio(0.0, 1.0, 1000).factor == 1
    assert Ratio(1e-9, 1e9, 1e9).factor >= 1e-3
    assert 1 < Ratio(2.0, 1.0, 1.0).factor < 1.5


# ----------------------------------------------------------------------- bounds and threads


def test_tables_forget_what_was_not_set_for_the_longest_time() -> None:
    table: Table[int] = Table(3)
    for key in "abcad":
        table.put((key,), ord(key))
    assert [key for key, _ in table.items()] == [("c",), ("a",), ("d",)]


def test_a_model_is_bounded() -> None:
    model = CostModel(node_limit=10, op_limit=5)
    nodes = [wf.tanh(placeholder(None, size)).op for size in range(1, 40)]
    for node, size in zip(nodes, range(1, 40), strict=True):
        model.observe([record(node, 1e-3, CPU, 4 * 3 * size)])
    found = model._measurements
    assert (len(found.nodes), len(found.ops), len(found.sizes)) == (10, 5, 10)
    assert model.is_measured(nodes[-1], CPU)
    assert not model.is_measured(nodes[0], CPU)


def test_profiles_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft_exec.costs.model._MOST_PROFILES", 8)
    model = CostModel()
    for size in range(1, 40):
        model.seconds(wf.tanh(placeholder(size)).op, CPU)
    assert len(model._profiles) <= 8


def test_threads_observe_ask_save_and_load_at_once(tmp_path: Any) -> None:
    model = CostModel(node_limit=50, op_limit=20)
    nodes = [matmul(None if i % 2 else i + 1, i + 1, 3, name=f"n{i}") for i in range(100)]
    model.save(tmp_path / "costs")
    failures: list[BaseException] = []
    switch = sys.getswitchinterval()

    def repeat(work: Any) -> None:
        try:
            for turn in range(60):
                work(turn)
        except BaseException as error:
            failures.append(error)
            raise

    def ask(turn: int) -> None:
        for node in nodes:
            assert model.seconds(node, CPU) > 0
            assert model.nbytes(node.outputs[0]) > 0

    def observe(turn: int) -> None:
        model.observe([record(node, 1e-4, CPU, 12 * (1 + turn)) for node in nodes])

    def keep(turn: int) -> None:
        if turn % 10 == 0:
            model.save(tmp_path / "costs")
            model.load(tmp_path / "costs")

    sys.setswitchinterval(1e-5)
    try:
        threads = [
            threading.Thread(target=repeat, args=(w,)) for w in (ask, ask, observe, observe, keep)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
    assert failures == []
    assert len(model._measurements.nodes) == 50


# ----------------------------------------------------------------------- real steps


def traced(session: wf.Session, fetches: Any, feeds: Any, monkeypatch: Any) -> list[NodeRecord]:
    traces: list[StepTrace] = []

    class Kept(StepTrace):
        def __init__(self) -> None:
            super().__init__()
            traces.append(self)

    with monkeypatch.context() as patched:
        patched.setattr("weft_exec.session.base.StepTrace", Kept)
        options = wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE)
        session.run(fetches, feeds, options=options, run_metadata=wf.RunMetadata())
    return records_of(traces[0])


def test_recursive_functions_end() -> None:
    @Defun(wf.int32, func_name="fact")
    def fact(n: Any) -> Any:
        return wf.cond(
            n <= 1,
            lambda: wf.constant(1),
            lambda: n * Declare("fact", [("n", wf.int32)], [("o", wf.int32)])(n - 1),
        )

    called = fact(wf.placeholder(wf.int32, [])).op
    assert 0 < CostModel().seconds(called, CPU) < 1e-3


@pytest.mark.parametrize("cpus", [1, 2])
@pytest.mark.kernels
def test_a_traced_step_teaches_the_model(cpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = placeholder(None, 16)
    w = wf.Variable(np.ones((16, 4), np.float32))
    hidden = wf.matmul(x, w, name="hidden")
    with wf.device(f"/cpu:{cpus - 1}"):
        low, high = wf.split(wf.tanh(hidden, name="squash"), 2, axis=1)
    total = wf.reduce_sum(low) + wf.reduce_sum(high)
    model = CostModel()
    with wf.Session(config=wf.ConfigProto(device_count={"CPU": cpus})) as session:
        session.run(wf.global_variables_initializer())
        for _ in range(5):
            records = traced(session, total, {x: np.ones((48, 16), np.float32)}, monkeypatch)
            model.observe(records)
    assert {"hidden", "squash"} <= {r.node.name for r in records}
    assert all(sum(r.sizes) == r.output_bytes for r in records)
    assert model.is_measured(hidden.op, CPU)
    assert model.nbytes(hidden) == 48 * 4 * 4
    assert model.nbytes(low) == model.nbytes(high) == 48 * 2 * 4
    assert model.work(hidden.op).flops == 2 * 48 * 16 * 4
    assert 0 < model.seconds(hidden.op, CPU) < 1


def test_what_waits_tells_sizes_but_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = wf.FIFOQueue(10, [wf.float32], shapes=[[5]])
    batch = queue.dequeue_many(wf.placeholder_with_default(3, []))
    with wf.Session() as session:
        for _ in range(3):
            session.run(queue.enqueue((np.ones(5, np.float32),)))
        records = traced(session, wf.reduce_sum(batch), None, monkeypatch)
    model = CostModel()
    model.observe(records)
    waited = [r for r in records if r.waited]
    assert [r.sizes for r in waited] == [(60,)]
    assert model.nbytes(batch) == 60
    assert not model.is_measured(batch.op, CPU)

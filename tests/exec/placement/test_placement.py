"""Placement: requests, colocation, the simulated run, memory; and the session's report."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from google.protobuf import text_format

import weft as wf
from weft import errors
from weft_exec.config import SessionConfig
from weft_exec.costs import CostModel
from weft_exec.devices.description import DeviceDescription
from weft_exec.devices.device import Device
from weft_exec.placement import Placer
from weft_exec.resources.containers import SessionResources
from weft_exec.tracing.records import NodeRecord
from weft_graph.ir.device_spec import DeviceSpec
from weft_tensor.allocator import CpuAllocator

SIZE = 300


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as made:
        yield made


def devices(*limits: int | None) -> list[Device]:
    """CPUs with limits of their memory."""
    config = SessionConfig(device_count={"CPU": len(limits)})
    return [
        Device(
            DeviceSpec("localhost", 0, 0, "CPU", i),
            CpuAllocator(limit),
            SessionResources(),
            config,
        )
        for i, limit in enumerate(limits)
    ]


def descriptions(*limits: int | None) -> list[DeviceDescription]:
    return [device.describe() for device in devices(*limits)]


def placer(*limits: int | None, **options: Any) -> Placer:
    made = Placer(descriptions(*limits), SessionConfig(**options), CostModel)
    made.extend(wf.get_default_graph().nodes)
    return made


def places(made: Placer) -> dict[str, str]:
    """The device of each node of the default graph by name."""
    found = made.assign(wf.get_default_graph().nodes)
    return {node.name: device[-5:] for node, device in found.places.items()}


def session(count: int = 2, **options: Any) -> wf.Session:
    return wf.Session(config=wf.ConfigProto(device_count={"CPU": count}, **options))


def product(x: Any, name: str) -> Any:
    return wf.matmul(x, wf.ones([SIZE, SIZE]), name=name)


# ------------------------------------------------------------------------- the simulated run


def test_independent_branches_spread() -> None:
    x = wf.placeholder(wf.float32, [SIZE, SIZE])
    for branch in "abc":
        y = x
        for i in range(3):
            y = product(y, f"{branch}{i}")
    found = places(placer(None, None, None))
    for branch in "abc":  # nothing is gained by leaving a branch
        assert len({found[f"{branch}{i}"] for i in range(3)}) == 1
    assert len({found[f"{branch}0"] for branch in "abc"}) == 3


def test_what_is_small_stays_with_its_inputs() -> None:
    x = wf.placeholder(wf.float32, [10])
    with wf.device("/cpu:0"):
        x = wf.cos(x)
    with wf.device("/cpu:1"):
        y = wf.sin(x, name="pinned")
    for i in range(50):
        wf.add(y, float(i), name=f"after{i}")
        wf.add(x, float(i), name=f"other{i}")
    found = places(placer(None, None))
    assert {found[f"after{i}"] for i in range(50)} == {"CPU:1"}
    assert {found[f"other{i}"] for i in range(50)} == {"CPU:0"}


def test_transfers_count() -> None:
    """A product goes to another device only if that is quicker than to wait for its own."""
    x = wf.placeholder(wf.float32, [SIZE, SIZE])
    with wf.device("/cpu:0"):
        busy = product(x, "busy")
    product(x, "beside")
    product(busy, "after")
    found = places(placer(None, None))
    assert (found["beside"], found["after"]) == ("CPU:1", "CPU:0")


def test_state_goes_to_its_first_user_and_stays() -> None:
    x = wf.placeholder(wf.float32, [SIZE, SIZE])
    weights = [wf.Variable(wf.zeros([SIZE, SIZE]), name=f"w{i}") for i in range(2)]
    with wf.device("/cpu:1"):
        y = wf.matmul(x, weights[0], name="first")
    z = wf.matmul(x, weights[1], name="second")
    train = [w.assign_sub(w * 0.1) for w in weights]
    made = placer(None, None)
    found = places(made)
    assert found["w0"] == found["w0/read"] == found["w0/Assign"] == "CPU:1"
    assert found["w1"] == found["second"]
    assert found[train[0].op.name] == "CPU:1"
    # Another step begins elsewhere, and does not move it.
    with wf.device("/cpu:0"):
        other = weights[0] + 1.0
    made.extend([other.op])
    assert places(made)["w0"] == "CPU:1"
    assert y is not z


def test_a_loop_that_asks_for_nothing_stays_whole() -> None:
    x = wf.placeholder(wf.float32, [SIZE, SIZE])

    def body(i: Any, a: Any) -> Any:
        return i + 1, product(a, "one") + product(a, "two")

    wf.while_loop(lambda i, _: i < 3, body, [0, x])
    found = places(placer(None, None))
    assert len({found[name] for name in ("while/one", "while/two", "while/add", "while/Less")}) == 1


def test_loops_that_ask_are_placed_node_by_node() -> None:
    x = wf.placeholder(wf.float32, [SIZE, SIZE])

    def body(i: Any, a: Any) -> Any:
        with wf.device("/cpu:1"):
            b = product(a, "one")
        return i + 1, b + product(a, "two")

    y = wf.while_loop(lambda i, _: i < 3, body, [0, x])[1]
    found = places(placer(None, None))
    assert (found["while/one"], found["while/two"]) == ("CPU:1", "CPU:0")
    with session() as made:
        value = made.run(y, {x: np.zeros((SIZE, SIZE))})
        assert (value == 0).all()


def sleepy(x: Any) -> Any:
    return x


def test_what_was_measured_beats_what_was_estimated() -> None:
    """By their bytes these calls cost nothing; steps that were traced know better."""
    x = wf.placeholder(wf.float32, [])
    calls = [wf.py_func(sleepy, [x], wf.float32, name=f"call{i}") for i in range(4)]
    costs = CostModel()
    made = Placer(descriptions(None, None), SessionConfig(), lambda: costs)
    made.extend(wf.get_default_graph().nodes)
    assert set(places(made).values()) == {"CPU:0"}
    fresh = Placer(descriptions(None, None), SessionConfig(), lambda: costs)
    fresh.extend(wf.get_default_graph().nodes)
    for _ in range(20):
        costs.observe(
            NodeRecord(call.op, devices(None)[0].name, 0, 20_000_000, 0, 4) for call in calls
        )
    found = places(fresh)
    assert sorted(found[call.op.name] for call in calls) == ["CPU:0"] * 2 + ["CPU:1"] * 2
    # What did not know better has them all on one device, where they take twice as long.
    before, after = [each.assign(wf.get_default_graph().nodes).report() for each in (made, fresh)]
    assert before.seconds > 1.9 * after.seconds


# ------------------------------------------------------------------------- constraints


def test_requests_and_colocation() -> None:
    x = wf.placeholder(wf.float32, [SIZE, SIZE])
    with wf.device("/cpu:1"):
        a = wf.matmul(x, x, name="a")
    with wf.get_default_graph().colocate_with(a):
        product(x, "b")
    with wf.device("/device:CPU:2"), wf.device(lambda op: "/job:localhost"):
        product(x, "c")
    found = places(placer(None, None, None))
    assert [found[name] for name in "abc"] == ["CPU:1", "CPU:1", "CPU:2"]


def test_what_contradicts_itself_is_named() -> None:
    graph = wf.get_default_graph()
    with wf.device("/cpu:1"):
        a = wf.sin(1.0, name="a")
    with wf.device("/cpu:0"):
        b = wf.sin(2.0, name="b")
    with graph.colocate_with(a), graph.colocate_with(b):
        wf.sin(3.0, name="c")
    with pytest.raises(errors.InvalidArgumentError, match=r"CPU:0 \([bc]\).*CPU:1 \(a\)"):
        places(placer(None, None))


def test_devices_that_do_not_exist() -> None:
    with wf.device("/cpu:7"):
        wf.sin(1.0, name="lost")
    with pytest.raises(errors.InvalidArgumentError, match=r"CPU:7 \(lost\).*the session has"):
        places(placer(None, None))
    assert places(placer(None, None, allow_soft_placement=True))["lost"] == "CPU:0"


# ------------------------------------------------------------------------- memory


def test_variables_go_where_there_is_room() -> None:
    for i in range(4):
        wf.Variable(wf.zeros([250]), name=f"v{i}")
    found = places(placer(2100, 2100))
    assert sorted(found[f"v{i}"] for i in range(4)) == ["CPU:0"] * 2 + ["CPU:1"] * 2


def test_no_room_is_an_error_that_says_how_much() -> None:
    for i in range(3):
        wf.Variable(wf.zeros([250]), name=f"v{i}")
    match = (
        r"v2.* keep 1000 bytes.*CPU:0 \(1088 bytes, 1000 taken\).*CPU:1 \(1088 bytes, 1000 taken"
    )
    with pytest.raises(errors.ResourceExhaustedError, match=match):
        places(placer(1100, 1100))


def test_no_room_where_they_are_asked_for() -> None:
    with wf.device("/cpu:0"):
        for i in range(2):
            wf.Variable(wf.zeros([250]), name=f"v{i}")
    with pytest.raises(errors.ResourceExhaustedError, match=r"v1.*requested: /device:CPU:0"):
        places(placer(1100, None))


def test_values_that_are_still_needed_take_room() -> None:
    x = wf.placeholder(wf.float32, [SIZE, SIZE])
    with wf.device("/cpu:0"):
        kept = [product(x, f"kept{i}") for i in range(3)]
    product(kept[0], "new")
    wf.add_n(kept, name="sum")
    nbytes = 4 * SIZE * SIZE
    assert places(placer(None, None))["new"] == "CPU:1"  # since CPU:0 is busy
    assert places(placer(10 * nbytes, nbytes // 2))["new"] == "CPU:0"


# ------------------------------------------------------------------------- explanations


def test_explain_says_where_and_why(tmp_path: Path) -> None:
    x = wf.placeholder(wf.float32, [SIZE, SIZE], name="x")
    v = wf.Variable(wf.zeros([SIZE, SIZE]), name="v")
    with wf.device("/cpu:1"):
        a = wf.matmul(x, v, name="a")
    b = product(x, "b")
    y = wf.add(a, b, name="y")
    with session() as made:
        report = made.explain(y, [x])
        parts = sorted(device.name for device in made.list_devices())
        assert list(report.stages)[:2] == ["pruned", "optimized"]
        assert sorted(report.stages)[:2] == parts
        assert report.placement["a"].reason == "requested"
        assert report.placement["v"].device.endswith("CPU:1")
        assert report.placement["b"].reason == "earliest finish"
        assert all(math.isfinite(t) for t in report.placement["b"].candidates.values())
        assert {name for name, *_ in report.placement.transfers} <= {"a:0", "b:0"}
        text = str(report)
        assert "b " in text and "earliest finish" in text and "/device:CPU:1" in text
        paths = report.save(tmp_path / "plan")
        names = [Path(p).name.removesuffix(".pbtxt") for p in paths]
        assert names[:2] == ["0-pruned", "1-optimized"]
        assert {name[2:] for name in names[2:4]} == {"device-CPU-0", "device-CPU-1"}
        assert names[4:] == ["placement.txt", "placement.svg"]
        graphs = [text_format.Parse(Path(p).read_text(), wf.GraphDef()) for p in paths[2:4]]
        ops = [{node.op for node in graph.node} for graph in graphs]
        assert {"_Recv", "_Send"} <= ops[0] | ops[1]
        made.run(v.initializer)
        assert (made.run(y, {x: np.ones((SIZE, SIZE))}) == SIZE).all()


def test_the_picture() -> None:
    x = wf.placeholder(wf.float32, [SIZE, SIZE], name="x")
    a, b = product(x, "a<&>".replace("<&>", "_")), product(x, "b")
    y = wf.add(a, b, name="y")
    for i in range(3000):
        y = y * 1.0 + float(i)
    with session(3) as made:
        svg = made.explain(y, [x]).svg()
    root = ElementTree.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    titles = [title.text or "" for title in root.iter(f"{space}title")]
    assert any(title.startswith("a_: MatMul") for title in titles)
    assert len(titles) < 3000  # what could not be seen is drawn together


def test_one_device_is_explained_too() -> None:
    y = wf.sin(wf.placeholder(wf.float32, [], name="x"), name="y")
    with session(1) as made:
        report = made.explain([y], ["x:0"])
        assert list(report.stages) == ["pruned", "optimized"]
        assert report.placement["y"].reason == "the only device with kernels for it"
        with pytest.raises(errors.NotFoundError):
            made.explain("nothing:0")


def test_log_device_placement(caplog: pytest.LogCaptureFixture) -> None:
    y = wf.sin(wf.placeholder(wf.float32, [], name="x"), name="y")
    with session(2, log_device_placement=True) as made:
        for _ in range(2):
            made.run(y, {"x:0": 0.0})
    name = "/job:localhost/replica:0/task:0/device:CPU:0"
    assert [r.message for r in caplog.records].count(f"y: (Sin): {name}") == 1


# ------------------------------------------------------------------------- early receives


class Island(Device):
    """A CPU with its own memory, to which values are copied."""

    memory_space = "island"

    def from_host(self, value: Any) -> Any:
        copy = self.allocator.empty(value.shape, value.dtype)
        copy[...] = value
        return copy


@pytest.fixture
def island(monkeypatch: pytest.MonkeyPatch) -> Device:
    """The second device of the sessions of a test."""
    host, other = devices(None, None)
    made = Island(other.spec, CpuAllocator(), other.resources, other.config)
    monkeypatch.setattr("weft_exec.session.targets.local.make_devices", lambda *_: [host, made])
    return made


def test_what_is_received_early_is_received_late(island: Device) -> None:
    """A chain that takes a value from the host at each link, all of which are there at once."""
    x = wf.placeholder(wf.float32, [SIZE, SIZE])
    with wf.device("/cpu:0"):
        values = [wf.sin(x + float(i)) for i in range(20)]
    with wf.device("/cpu:1"):
        total = wf.zeros([SIZE, SIZE])
        for value in values:
            total = wf.matmul(wf.tanh(total), value)
    feed = {x: np.random.default_rng(0).normal(size=(SIZE, SIZE))}
    results, peaks = [], []
    for level in (-1, 0):
        options = wf.OptimizerOptions(opt_level=level)
        config = wf.ConfigProto(graph_options=wf.GraphOptions(optimizer_options=options))
        with wf.Session(config=config) as made:
            parts = made.explain(total, [x]).stages
            late = [n for n in parts[island.name].node if n.op == "_Recv" and n.input]
            assert len(late) >= 15 if level == 0 else not late
            island.allocator.reset_peak()
            results.append(made.run(total, feed))
            peaks.append(island.allocator.statistics().peak_bytes_in_use / (4 * SIZE * SIZE))
    np.testing.assert_array_equal(*results)
    assert peaks[1] < 0.7 * peaks[0], peaks


def test_a_value_that_others_wait_for_is_not_held_up(island: Device) -> None:
    """A late Receive must not delay a value that another device waits for."""
    x = wf.placeholder(wf.float32, [SIZE, SIZE])
    here, there = x, x
    for _ in range(6):
        with wf.device("/cpu:1"):
            there = wf.matmul(there, here) * 0.01
        with wf.device("/cpu:0"):
            here = wf.matmul(there, here) * 0.01
    feed = {x: np.random.default_rng(0).normal(size=(SIZE, SIZE))}
    with wf.Session() as made:
        value = made.run(here, feed)
    assert np.isfinite(value).all()


def test_conditional_values_are_not_held_up(island: Device) -> None:
    x, p = wf.placeholder(wf.float32, [SIZE, SIZE]), wf.placeholder(wf.bool, [])
    with wf.device("/cpu:0"):
        y = wf.cond(p, lambda: wf.sin(x), lambda: wf.cos(x))
    with wf.device("/cpu:1"):
        z = x
        for _ in range(5):
            z = wf.matmul(z, x) * 0.01
        w = wf.cond(p, lambda: z @ y, lambda: z - y)
    with wf.Session() as made:
        for pred in (True, False):
            assert made.run(w, {x: np.zeros((SIZE, SIZE)), p: pred}).shape == (SIZE, SIZE)


# ------------------------------------------------------------------------- measured steps


def test_steps_are_measured_and_placed_anew() -> None:
    """Calls that look cheap are spread over the devices once it is known how long they take."""

    x = wf.placeholder(wf.float32, [])
    calls = [wf.cast(wf.strings.length(wf.as_string(x)), wf.float32)]
    calls += [wf.reduce_sum(wf.svd(wf.fill([120, 120], x + float(i)))[0]) for i in range(4)]
    y = wf.add_n(calls)
    options = wf.GraphOptions(build_cost_model=2, build_cost_model_after=1)
    with session(graph_options=options) as made:
        run = made.make_callable(y, [x])
        metadata = wf.RunMetadata()
        for i in range(8):
            value = made.run(y, {x: 1.0}, run_metadata=metadata)
            assert bool(metadata.cost_graph.node) == (i >= 2)
            assert run(1.0) == value
        node = next(n for n in metadata.cost_graph.node if n.name.startswith("Svd"))
        assert node.compute_cost > 0 and not node.inaccurate


def test_measurements_are_kept(tmp_path: Path) -> None:
    x = wf.placeholder(wf.float32, [SIZE, SIZE])
    y = product(x, "y")
    feed = {x: np.zeros((SIZE, SIZE))}
    options = wf.GraphOptions(build_cost_model=1)
    with session(graph_options=options) as made:
        for _ in range(4):
            made.run(y, feed)
        made.cost_model.save(tmp_path / "costs.json")
        first = made._backend._devices[0].describe()
        seconds = made.cost_model.seconds(y.op, first)
    with session() as made:
        estimated = made.cost_model.seconds(y.op, first)
        made.cost_model.load(tmp_path / "costs.json")
        assert made.cost_model.seconds(y.op, first) == seconds != estimated
    with pytest.raises(errors.InvalidArgumentError, match="build_cost_model must be at least 0"):
        session(graph_options=wf.GraphOptions(build_cost_model=-1))


def test_the_graphs_of_the_parts_come_with_the_metadata() -> None:
    x = wf.placeholder(wf.float32, [])
    with wf.device("/cpu:1"):
        y = wf.sin(x, name="sine")
    z = wf.cos(y, name="cosine")
    options, metadata = wf.RunOptions(output_partition_graphs=True), wf.RunMetadata()
    with wf.device("/cpu:0"):
        z = wf.cos(y, name="cosine")
    with session() as made:
        made.run(z, {x: 0.0}, options, metadata)
    ops = sorted(sorted(node.op for node in graph.node) for graph in metadata.partition_graphs)
    assert ops == [["Cos", "_Recv"], ["Sin", "_Arg", "_Send"]]
    with session(1) as made:
        made.run(wf.tanh(x), {x: 0.0}, options, metadata := wf.RunMetadata())
    assert [sorted(n.op for n in g.node) for g in metadata.partition_graphs] == [["Tanh", "_Arg"]]


def test_a_type_of_device_that_nobody_has_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = wf.ConfigProto(device_count={"cpu": 2, "CPU": 2})
    with caplog.at_level(logging.WARNING, "weft"):
        for _ in range(2):
            with wf.Session(config=config) as made:
                assert len(made.list_devices()) == 2
    (said,) = [line for line in caplog.messages if "device_count" in line]
    assert "'cpu'" in said and "CPU" in said

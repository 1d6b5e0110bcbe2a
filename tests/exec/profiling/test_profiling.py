"""Pictures and tables of traced steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from weft_testing.timelines import assert_forward, events_of

import weft as wf
from weft_tensor import errors

BUILDER = wf.profiler.ProfileOptionBuilder


@pytest.fixture(autouse=True)
def graph() -> wf.Graph:
    with wf.Graph().as_default() as made:
        yield made


def _program(kind: str) -> wf.Tensor:
    """A graph whose step has a loop of five iterations, or two devices."""
    x = wf.fill([30, 30], 0.01)
    if kind == "devices":
        with wf.device("/cpu:0"):
            slow = wf.matmul(wf.random_uniform([400, 400]), wf.ones([400, 400]), name="slow")
        with wf.device("/cpu:1"):
            other = wf.exp(slow)
        with wf.device("/cpu:0"):
            return wf.tanh(wf.matmul(other, slow))

    def body(i: Any, value: Any) -> Any:
        value = wf.tanh(wf.matmul(value, x) + wf.exp(value))
        if kind == "nested":
            value = wf.while_loop(
                lambda j, _: j < 3, lambda j, v: (j + 1, wf.sin(wf.exp(v)) * 0.1), [0, value]
            )[1]
        return i + 1, value

    result = wf.while_loop(lambda i, _: i < 5, body, [0, x])[1]
    return wf.gradients(result, x)[0] if kind == "gradient" else result


def _traced(session: wf.Session, fetch: Any, feeds: Any) -> Any:
    metadata = wf.RunMetadata()
    options = wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE)
    session.run(fetch, feeds, options=options, run_metadata=metadata)
    return metadata.step_stats


@pytest.fixture
def metadata(graph: wf.Graph) -> Any:
    """Trace a step of a small model."""
    x = wf.random_uniform([10, 20], name="x")
    y = wf.layers.dense(x, 5, name="dense")
    total = wf.reduce_sum(wf.nn.relu(y), name="loss/total")
    metadata = wf.RunMetadata()
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        options = wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE)
        session.run(total, options=options, run_metadata=metadata)
    return metadata


class TestTimeline:
    def test_nodes_arrows_and_memory(self, metadata: Any) -> None:
        timeline = wf.timeline.Timeline(metadata.step_stats)
        text = timeline.generate_chrome_trace_format(show_memory=True)
        events = json.loads(text)["traceEvents"]
        (process,) = [e for e in events if e["ph"] == "M"]
        assert process["args"]["name"].endswith("CPU:0 Compute")
        nodes = {e["args"]["name"]: e for e in events if e["ph"] == "X"}
        product = nodes["dense/MatMul"]
        assert product["name"] == "MatMul" and product["cat"] == "Op" and product["dur"] >= 0
        assert product["args"]["input0"].startswith("x") and product["pid"] == process["pid"]
        starts = [e for e in events if e["ph"] == "s"]
        ends = {e["id"]: e for e in events if e["ph"] == "t"}
        assert starts and all(ends[e["id"]]["name"] == e["name"] for e in starts)
        assert any(e["ph"] == "C" and e["args"]["bytes"] > 0 for e in events)
        plain = json.loads(timeline.generate_chrome_trace_format(show_dataflow=False))
        assert {e["ph"] for e in plain["traceEvents"]} == {"M", "X"}

    @pytest.mark.parametrize("mode", ["now", "off"])
    @pytest.mark.parametrize("kind", ["loop", "gradient", "nested", "devices"])
    def test_no_arrow_points_backwards(
        self, kind: str, mode: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("WEFT_JIT", mode)
        config = wf.ConfigProto(device_count={"CPU": 2})
        with wf.Session(config=config) as session:
            stats = _traced(session, _program(kind), {})
        events = events_of(stats)
        assert_forward(events)
        bars = [e for e in events if e["ph"] == "X"]
        assert all(bar["dur"] > 0 for bar in bars if bar["cat"] != "Wait")
        assert any(bar["dur"] % 1 for bar in bars)
        if mode == "off" and kind != "devices":
            products = [e["args"] for e in bars if e["args"]["name"] == "while/MatMul"]
            assert len({e.get("iteration") for e in products}) == len(products) >= 5
            arrows = [e for e in events if e["ph"] == "s" and e["name"] == "while/MatMul"]
            assert len(arrows) >= 5

    @pytest.mark.parametrize("mode", ["now", "off"])
    def test_estimates_are_marked(self, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WEFT_JIT", mode)
        with wf.Session() as session:
            stats = _traced(session, _program("loop"), {})
        bars = [e for e in events_of(stats) if e["ph"] == "X"]
        estimated = {e["args"]["name"] for e in bars if "estimated" in e["args"]}
        assert estimated == {e["args"]["name"] for e in bars if e["cat"] == "Estimate"}
        labels = [node.timeline_label for device in stats.dev_stats for node in device.node_stats]
        assert len(estimated) == len([text for text in labels if ", estimated" in text])
        assert bool(estimated) == (mode == "now")

    def test_a_receive_begins_when_its_value_was_sent(self) -> None:
        config = wf.ConfigProto(device_count={"CPU": 2})
        with wf.Session(config=config) as session:
            events = events_of(_traced(session, _program("devices"), {}))
        bars = {e["args"]["name"]: e for e in events if e["ph"] == "X"}
        (receive,) = [
            e for e in bars.values() if e["name"] == "_Recv" and "slow" in e["args"]["name"]
        ]
        slow = bars["slow"]
        assert receive["ts"] >= slow["ts"] + slow["dur"]
        wait = bars[receive["args"]["name"] + " (wait)"]
        assert wait["cat"] == "Wait" and wait["dur"] > 0
        assert wait["ts"] + wait["dur"] == pytest.approx(receive["ts"], abs=1e-3)

    def test_of_nothing(self) -> None:
        text = wf.timeline.Timeline(wf.RunMetadata().step_stats).generate_chrome_trace_format()
        assert json.loads(text) == {"traceEvents": []}


def test_a_fetched_variable_is_in_the_trace(graph: wf.Graph) -> None:
    variable = wf.Variable([1.0, 2.0], name="v")
    metadata = wf.RunMetadata()
    with wf.Session() as session:
        session.run(variable.initializer)
        options = wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE)
        session.run(variable, options=options, run_metadata=metadata)
    ((stats,),) = [device.node_stats for device in metadata.step_stats.dev_stats]
    assert stats.node_name == "v" and stats.memory[0].total_bytes == 8


class TestProfile:
    @pytest.mark.kernels
    def test_by_type_of_op(self, metadata: Any, capsys: Any) -> None:
        found = wf.profiler.profile(
            run_meta=metadata, cmd="op", options=BUILDER.time_and_memory(min_micros=0, min_bytes=0)
        )
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "node name | exec_micros | requested_bytes"
        assert any(line.startswith("MatMul | ") and "200B" in line for line in lines)
        times = [kind.exec_micros for kind in found.children]
        assert times == sorted(times, reverse=True)
        assert found.total_exec_micros == sum(times) > 0

    @pytest.mark.kernels
    def test_by_scope(self, metadata: Any, capsys: Any) -> None:
        options = BUILDER(BUILDER.time_and_memory(0, 0)).order_by("name").build()
        found = wf.profiler.profile(run_meta=metadata, options=options)
        dense = next(part for part in found.children if part.name == "dense")
        product = next(part for part in dense.children if part.name == "dense/MatMul")
        assert dense.exec_micros == 0
        assert dense.total_requested_bytes >= product.requested_bytes == 200
        assert "\n    dense/MatMul (" in capsys.readouterr().out
        flat = BUILDER(options).with_empty_output().build()
        graph = wf.profiler.profile(run_meta=metadata, cmd="graph", options=flat)
        assert "dense/MatMul" in {part.name for part in graph.children}
        assert graph.total_exec_micros == found.total_exec_micros
        assert capsys.readouterr().out == ""

    def test_parameters_and_operations(self, metadata: Any, capsys: Any) -> None:
        options = BUILDER.trainable_variables_parameter()
        assert wf.profiler.profile(options=options).total_parameters == 105
        assert "dense/kernel (100/100)" in capsys.readouterr().out
        found = wf.profiler.profile(cmd="op", options=BUILDER.float_operation())
        kinds = {kind.name: kind.float_ops for kind in found.children}
        assert kinds["MatMul"] == 2 * 10 * 20 * 5

    def test_names_and_depth(self, metadata: Any, capsys: Any) -> None:
        builder = BUILDER(BUILDER.time_and_memory(0, 0))
        builder.with_node_names(hide_name_regexes=["dense/.*"], show_name_regexes=["dense", "x"])
        wf.profiler.profile(run_meta=metadata, options=builder.build())
        assert "dense/" not in capsys.readouterr().out
        flat = BUILDER(BUILDER.time_and_memory(0, 0)).with_max_depth(1).build()
        wf.profiler.profile(run_meta=metadata, options=flat)
        assert "loss/total" not in capsys.readouterr().out

    def test_files(self, metadata: Any, tmp_path: Path) -> None:
        report, trace = tmp_path / "report.txt", tmp_path / "trace.json"
        builder = BUILDER(BUILDER.time_and_memory())
        wf.profiler.profile(
            run_meta=metadata, options=builder.with_file_output(str(report)).build()
        )
        assert report.read_text().startswith("node name | ")
        wf.profiler.profile(
            run_meta=metadata, options=builder.with_timeline_output(str(trace)).build()
        )
        assert json.loads(trace.read_text())["traceEvents"]

    def test_what_is_refused(self, metadata: Any) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="cmd must be"):
            wf.profiler.profile(cmd="advise")
        with pytest.raises(errors.InvalidArgumentError, match="'speed' cannot be selected"):
            wf.profiler.profile(options=BUILDER().select(["speed"]).build())
        with pytest.raises(errors.InvalidArgumentError, match="is not valid"):
            wf.profiler.profile(options=BUILDER.float_operation() | {"output": "pprof:x"})

    def test_several_steps(self, metadata: Any) -> None:
        profiler = wf.profiler.Profiler()
        profiler.add_step(1, wf.RunMetadata())
        profiler.add_step(2, metadata)
        builder = BUILDER(BUILDER.time_and_memory()).with_empty_output()
        assert profiler.profile_name_scope(builder.build()).total_exec_micros > 0
        assert profiler.profile_operations(builder.with_step(1).build()).total_exec_micros == 0
        assert profiler.profile_graph(builder.with_step(2).build()).total_exec_micros > 0


@pytest.mark.kernels
def test_a_long_step_is_explained_by_its_longest_nodes(tmp_path: Path) -> None:
    x = wf.placeholder(wf.float32, [64, 64])
    y = x
    for k in range(30):
        y = wf.matmul(y, x, name=f"product{k}")
    with wf.Session() as session:
        report = session.explain(y, [x])
    text = str(report)
    assert "and 10 nodes that take at most as long" in text
    assert text.count("product") == 20
    report.save(tmp_path)
    assert "product29" in (tmp_path / "placement.txt").read_text()

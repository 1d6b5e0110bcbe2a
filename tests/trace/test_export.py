"""Exported traces have every event, nested intervals, and arrows that point forwards in time."""

import io
import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from weft_testing.synthetic_trace import Cluster, random_settings, write_cluster

from weft_trace import EVENT, Kind, Lane, LaneKind, Node, Process, Step, Writer, load
from weft_trace.export import FORMATS
from weft_trace.export.perfetto import _varint
from weft_trace.export.tracks import boundaries, make_tracks


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "a"
    settings = replace(random_settings(3), clock_offset=0, iterations=4)
    write_cluster(path, Cluster(settings, 3), 2)
    return load(path)


def export(trace, name):
    file = io.BytesIO()
    FORMATS[name](trace, file)
    return file.getvalue()


def count_events(trace):
    return int((trace.events["kind"] != Kind.BUFFER).sum())


def test_tracks_have_each_event_once_and_nest(trace):
    tracks = make_tracks(trace)
    events = [event for track in tracks for event in track.events]
    assert len(events) == len(set(events)) == count_events(trace)
    for track in tracks:
        stack, last = [], 0
        for boundary in boundaries(trace, track):
            assert boundary.time >= last
            last = boundary.time
            if boundary.is_start:
                stack.append(boundary.event)
            else:
                assert stack.pop() == boundary.event
        assert not stack


def test_chrome(trace):
    data = json.loads(export(trace, "chrome"))["traceEvents"]
    phases = Counter(event["ph"] for event in data)
    assert phases["X"] == count_events(trace)
    assert phases["s"] == phases["f"] > 50
    starts = {event["id"]: event for event in data if event["ph"] == "s"}
    slices = {}
    for event in data:
        if event["ph"] == "X":
            slices.setdefault((event["pid"], event["tid"]), []).append(event)
    for end in (event for event in data if event["ph"] == "f"):
        start = starts[end["id"]]
        assert start["ts"] <= end["ts"]
        for arrow in (start, end):
            around = slices[arrow["pid"], arrow["tid"]]
            assert any(s["ts"] <= arrow["ts"] <= s["ts"] + s["dur"] + 1e-3 for s in around)
    durations = [event["dur"] for event in data if event["ph"] == "X"]
    assert sum(durations) * 1000 == pytest.approx(
        (trace.events["end"] - trace.events["start"])[trace.events["kind"] != Kind.BUFFER].sum()
    )
    assert any(event["name"].endswith("(estimate)") for event in data if event["ph"] == "X")


def test_speedscope(trace):
    data = json.loads(export(trace, "speedscope"))
    frames = data["shared"]["frames"]
    assert {"name": "loss/mean", "file": "model.py"}.items() <= frames[
        next(i for i, frame in enumerate(frames) if frame["name"] == "loss/mean")
    ].items()
    total = 0
    for profile in data["profiles"]:
        stack, last = [], profile["startValue"]
        for event in profile["events"]:
            assert last <= event["at"] <= profile["endValue"]
            last = event["at"]
            if event["type"] == "O":
                stack.append(event["frame"])
                total += 1
            else:
                assert stack.pop() == event["frame"]
        assert not stack
    assert total == count_events(trace)


def test_perfetto_is_read_by_its_own_messages(trace):
    messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    data = messages.Trace.FromString(export(trace, "perfetto"))
    names, categories, tracks, begins, ends = {}, {}, {}, [], []
    depths = Counter()
    for packet in data.packet:
        for name in packet.interned_data.event_names:
            names[name.iid] = name.name
        for name in packet.interned_data.event_categories:
            categories[name.iid] = name.name
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        assert event.track_uuid in tracks
        if event.type == event.TYPE_SLICE_BEGIN:
            depths[event.track_uuid] += 1
            begins.append((packet.timestamp, names[event.name_iid], event))
        elif event.type == event.TYPE_SLICE_END:
            depths[event.track_uuid] -= 1
            ends.append(packet.timestamp)
    assert not any(depths.values()) and len(begins) == len(ends) == count_events(trace)
    origin = int(trace.events["start"][0])
    shown = trace.events[trace.events["kind"] != Kind.BUFFER]
    assert sorted((t, n) for t, n, _ in begins) == sorted(
        (int(e["start"]) - origin, name)
        for e in shown
        for name in [trace.nodes[e["node"]].name + (" (estimate)" if e["flags"] & 1 else "")]
    )
    assert set(categories.values()) == {"step", "phase", "kernel", "region", "generated",
                                        "receive", "transfer", "wait", "python"}  # fmt: skip
    flows = [n for _, _, event in begins for n in event.flow_ids]
    assert sorted(flows) == sorted(n for _, _, e in begins for n in e.terminating_flow_ids)
    assert len(flows) > 50
    counters = [t for t in tracks.values() if t.HasField("counter")]
    assert len(counters) == len({s["lane"] for s in trace.samples})
    _, _, mean = next(row for row in begins if row[1] == "loss/mean")
    details = {a.name: a.string_value or a.int_value for a in mean.debug_annotations}
    assert details["op"] == "Mean" and details["line"].startswith("model.py:")


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, b"\0"), (127, b"\x7f"), (300, b"\xac\x02"), (-1, b"\xff" * 9 + b"\x01")],
)
def test_varint(value, encoded):
    assert _varint(value) == encoded


@pytest.mark.parametrize("name", FORMATS)
def test_empty_trace(tmp_path, name):
    with Writer(tmp_path / "a"):
        pass
    export(load(tmp_path / "a"), name)


@pytest.mark.parametrize("name", FORMATS)
def test_names_are_data(tmp_path, name):
    hostile = 'x"</script>\n\\\u2028'
    with Writer(tmp_path / "a") as writer:
        writer.lane(Lane(writer.process(Process(hostile, 1, hostile)), LaneKind.THREAD, hostile))
        writer.node(Node(hostile, hostile, hostile, hostile))
        writer.step(Step(0, hostile, 0))
        rows = np.zeros(2, EVENT)
        rows["kind"] = [Kind.KERNEL, 200]
        writer.events(rows)
    data = export(load(tmp_path / "a"), name)
    if name != "perfetto":
        assert hostile in strings_of(json.loads(data))


def strings_of(value):
    """The strings of a JSON value."""
    if isinstance(value, dict | list):
        items = value.values() if isinstance(value, dict) else value
        return {text for item in items for text in strings_of(item)}
    return {value} if isinstance(value, str) else set()

"""Levels of detail contain every event, and few rows."""

import numpy as np
import pytest
from weft_testing.synthetic_trace import Cluster, random_settings, write_cluster

from weft_trace import EVENT, Kind, load, writer
from weft_trace.chunks import ChunkType
from weft_trace.levels import compute_levels
from weft_trace.reader import TraceFile


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "run.weft-trace"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "MIN_EVENTS", 1000)
        write_cluster(path, Cluster(random_settings(1), 1), events=200_000)
    return path


def test_a_large_file_has_levels_that_account_for_all_events(path):
    with TraceFile(path) as file:
        levels, steps = file.overview()
        events = file.events()
        assert not file.warnings
    np.testing.assert_array_equal(steps, events[events["kind"] == Kind.STEP])
    duration = (events["end"] - events["start"]).sum()
    assert len(levels) < len(events) / 3
    for level in np.unique(levels["level"]):
        rows = levels[levels["level"] == level]
        assert rows["count"].sum() == len(events)
        assert rows["busy"].sum() == duration
        assert (np.diff(rows["start"]) >= 0).all()
        short = rows[(rows["span"] < 1 << level) | (rows["count"] > 1)]
        keys = np.stack([short["kind"], short["lane"], short["start"] >> level])
        assert np.unique(keys, axis=1).shape == keys.shape


def test_levels_of_the_file_are_those_computed_from_its_events(path):
    with TraceFile(path) as file:
        stored, events = file.overview().levels, file.events()
    computed = compute_levels([events])
    for name in ("count", "busy"):
        assert stored[name].sum() == computed[name].sum()
    assert np.unique(stored["level"]).tolist() == np.unique(computed["level"]).tolist()


def test_the_node_of_a_row_is_that_of_the_longest_event():
    events = np.zeros(6000, EVENT)
    events["start"] = np.arange(6000) * 10
    events["end"] = events["start"] + 5
    events["node"] = np.arange(6000)
    events["end"][77] += 300
    rows = compute_levels([events])
    row = rows[np.argmin(rows["start"])]
    assert row["node"] == 77 and row["count"] == 103


def test_events_in_an_interval_are_those_that_overlap_it(path):
    events = load(path).events
    first, last = (int(t) for t in np.quantile(events["start"], [0.4, 0.41]))
    overlapping = events[(events["start"] <= last) & (events["end"] >= first)]
    with TraceFile(path) as file:
        read = file.events(first, last)
    np.testing.assert_array_equal(read["start"], overlapping["start"])
    assert len(read) < len(events) / 20


def test_a_file_without_levels_has_the_same_overview(path, tmp_path):
    data = path.read_bytes()
    with TraceFile(path) as file:
        stored = file.overview()
        end = min(h.offset for h in file._headers if h.type == ChunkType.STEPS)
    (tmp_path / "killed").write_bytes(data[:end])
    with TraceFile(tmp_path / "killed") as file:
        computed = file.overview()
    np.testing.assert_array_equal(stored.steps, computed.steps)
    np.testing.assert_array_equal(stored.levels, computed.levels)

"""FileWriter: contents of its files."""

from __future__ import annotations

import os
import re
import socket
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_io import summary
from weft_io.summary import event_file
from weft_io.summary.reading import summary_iterator
from weft_tensor import errors

Events = Callable[[Path], list[Any]]
Scalar = Callable[[str, float], summary.Summary]


def steps(events: list[Any]) -> list[int]:
    return [event.step for event in events]


# ------------------------------------------------------------------------------------ files


def test_a_file_has_tensorflows_name_and_begins_with_the_version(tmp_path: Path) -> None:
    before = int(time.time())
    summary.FileWriter(tmp_path / "new" / "folder", filename_suffix=".tail").close()
    (file,) = (tmp_path / "new" / "folder").iterdir()
    match = re.fullmatch(r"events\.out\.tfevents\.(\d{10})\.(.+)\.tail", file.name)
    assert match and match[2] == socket.gethostname()
    assert before <= int(match[1]) <= time.time()
    (event,) = summary_iterator(file)
    assert event.file_version == "brain.Event:2"
    assert before <= event.wall_time <= time.time()


def test_files_of_one_second_are_apart_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scalar: Scalar
) -> None:
    monkeypatch.setattr(event_file.time, "time", lambda: 1234567890.5)
    for i in range(3):
        with summary.FileWriter(tmp_path) as writer:
            writer.add_summary(scalar("a", i), i)
    files = sorted(tmp_path.iterdir())
    assert [int(file.name.split(".")[3]) for file in files] == [1234567890 + i for i in range(3)]
    assert [list(summary_iterator(file))[1].step for file in files] == [0, 1, 2]


def test_directories_are_paths_or_urls(tmp_path: Path) -> None:
    for logdir in (tmp_path / "a", f"{tmp_path}/b", f"file://{tmp_path}/c"):
        with summary.FileWriter(logdir) as writer:
            assert writer.get_logdir() == os.fspath(logdir)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b", "c"}


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(errors.OpError, match="making an event file in"):
        summary.FileWriter(tmp_path / "file" / "folder")


# -------------------------------------------------------------------------------- summaries


def test_summaries_as_bytes_and_as_messages(tmp_path: Path, events: Events, scalar: Scalar) -> None:
    written = scalar("a", 0.5)
    before = time.time()
    with summary.FileWriter(tmp_path) as writer:
        writer.add_summary(written, 3)
        writer.add_summary(written.SerializeToString(), np.int64(4))
        writer.add_summary(written)
        writer.add_summary(b"", -1)
        writer.add_summary(written, 2**40)
    read = events(tmp_path)
    assert [event.summary for event in read[:3]] == [written] * 3
    assert steps(read) == [3, 4, 0, -1, 2**40]
    times = [event.wall_time for event in read]
    assert before <= times[0] and times == sorted(times) and times[-1] <= time.time()


def test_messages_of_other_libraries(tmp_path: Path, events: Events) -> None:
    theirs = pytest.importorskip("tensorboard.compat.proto.summary_pb2")
    message = theirs.Summary(value=[theirs.Summary.Value(tag="a", simple_value=2.0)])
    with summary.FileWriter(tmp_path) as writer:
        writer.add_summary(message, 1)
    (event,) = events(tmp_path)
    assert event.summary.SerializeToString() == message.SerializeToString()


def test_metadata_are_told_once_per_tag(tmp_path: Path, events: Events) -> None:
    def described(*tags: str) -> bytes:
        values = [
            summary.Summary.Value(
                tag=tag, simple_value=1.0, metadata=summary.SummaryMetadata(display_name=tag)
            )
            for tag in tags
        ]
        return summary.Summary(value=values).SerializeToString()

    with summary.FileWriter(tmp_path) as writer:
        for tags in (["a"], ["a", "b"], ["a", "b"]):
            writer.add_summary(described(*tags))
    told = [[v.HasField("metadata") for v in event.summary.value] for event in events(tmp_path)]
    assert told == [[True], [False, True], [False, False]]


def test_what_is_no_summary(tmp_path: Path, events: Events) -> None:
    with summary.FileWriter(tmp_path) as writer:
        with pytest.raises(
            errors.InvalidArgumentError, match="is required, but the 1 bytes cannot"
        ):
            writer.add_summary(b"\xff")
        with pytest.raises(errors.InvalidTypeError, match="Summary message is required, got int"):
            writer.add_summary(5)
        with pytest.raises(errors.InvalidTypeError, match="Summary message is required, got Event"):
            writer.add_summary(summary.Event())
        with pytest.raises(errors.InvalidArgumentError, match="64 bits"):
            writer.add_summary(b"", 2**63)
    assert events(tmp_path) == []


def test_any_event(tmp_path: Path, events: Events, scalar: Scalar) -> None:
    event = summary.Event(wall_time=12.5, step=7, summary=scalar("a", 1.0))
    with summary.FileWriter(tmp_path) as writer:
        writer.add_event(event)
        with pytest.raises(errors.InvalidTypeError, match="Event message is required"):
            writer.add_event(b"")
    assert events(tmp_path) == [event]


# ------------------------------------------------------------------------ graphs, logs, runs


def small_graph() -> wf.Graph:
    with wf.Graph().as_default() as graph:
        wf.add_to_collection("mine", wf.constant([1.0, 2.0], name="a"))
    return graph


def test_a_writer_begins_with_its_graph(tmp_path: Path, events: Events) -> None:
    graph = small_graph()
    summary.FileWriter(tmp_path, graph).close()
    first, second = events(tmp_path)
    assert first.graph_def == graph.as_graph_def(add_shapes=True).SerializeToString()
    assert b"_output_shapes" in first.graph_def
    meta = wf.MetaGraphDef.FromString(second.meta_graph_def)
    assert meta.graph_def == graph.as_graph_def(add_shapes=True)
    assert meta.collection_def["mine"].node_list.value == ["a:0"]


@pytest.mark.parametrize("former", [False, True])
def test_graphs_as_messages(tmp_path: Path, events: Events, former: bool) -> None:
    message = small_graph().as_graph_def()
    with summary.FileWriter(tmp_path) as writer:
        writer.add_graph(None, 1, message) if former else writer.add_graph(message, 1)
    (event,) = events(tmp_path)
    assert (event.graph_def, event.step) == (message.SerializeToString(), 1)


def test_what_is_no_graph(tmp_path: Path) -> None:
    with summary.FileWriter(tmp_path) as writer:
        with pytest.raises(errors.InvalidArgumentError, match="graph or graph_def"):
            writer.add_graph(small_graph(), graph_def=small_graph())
        for bad in (None, "graph", wf.MetaGraphDef()):
            with pytest.raises(errors.InvalidTypeError, match="a Graph or a GraphDef is required"):
                writer.add_graph(bad)
        with pytest.raises(errors.InvalidTypeError, match="MetaGraphDef message is required"):
            writer.add_meta_graph(wf.GraphDef())


def test_logs_and_runs(tmp_path: Path, events: Events) -> None:
    x = wf.placeholder(wf.float32, [])
    metadata = wf.RunMetadata()
    options = wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE)
    with wf.Session() as session:
        session.run(x + 1.0, {x: 1.0}, options, metadata)
    log = summary.SessionLog(status=summary.SessionLog.CHECKPOINT, checkpoint_path="/model-3")
    with summary.FileWriter(tmp_path) as writer:
        writer.add_session_log(log, 3)
        writer.add_run_metadata(metadata, "step 3", 3)
        with pytest.raises(errors.InvalidArgumentError, match="'step 3' were already added"):
            writer.add_run_metadata(metadata, "step 3", 4)
        writer.add_run_metadata(metadata, "step 4", 4)
    logged, first, second = events(tmp_path)
    assert (logged.session_log, logged.step) == (log, 3)
    assert [e.tagged_run_metadata.tag for e in (first, second)] == ["step 3", "step 4"]
    assert wf.RunMetadata.FromString(first.tagged_run_metadata.run_metadata) == metadata
    assert metadata.step_stats.dev_stats[0].node_stats


# ---------------------------------------------------------------------------------- closing


def test_what_is_added_to_a_closed_writer_is_dropped_with_a_warning(
    tmp_path: Path, events: Events, scalar: Scalar
) -> None:
    writer = summary.FileWriter(tmp_path)
    writer.close()
    writer.close()
    for add in (
        lambda: writer.add_summary(scalar("a", 1.0)),
        lambda: writer.add_event(summary.Event()),
        lambda: writer.add_session_log(summary.SessionLog()),
        writer.flush,
    ):
        with pytest.warns(UserWarning, match="is closed") as caught:
            add()
        assert caught[0].filename == __file__
    assert events(tmp_path) == []


def test_a_writer_goes_on_in_a_new_file(tmp_path: Path, scalar: Scalar) -> None:
    writer = summary.FileWriter(tmp_path, filename_suffix=".v")
    writer.add_summary(scalar("a", 0.0), 0)
    writer.reopen()  # nothing: it is open
    assert len(list(tmp_path.iterdir())) == 1
    writer.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        writer.reopen()
        writer.add_summary(scalar("a", 1.0), 1)
    writer.close()
    first, second = [list(summary_iterator(file)) for file in sorted(tmp_path.iterdir())]
    assert [first[0].file_version, second[0].file_version] == ["brain.Event:2"] * 2
    assert (steps(first[1:]), steps(second[1:])) == ([0], [1])


# ------------------------------------------------------------------------------ TensorBoard


def test_tensorboard_reads_it(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with wf.Graph().as_default() as graph, wf.Session() as session:
        x = wf.placeholder(wf.float32, [3], name="x")
        with wf.name_scope("in"):
            summary.scalar("total", wf.reduce_sum(x))
        summary.histogram("spread", x)
        summary.image("picture", wf.reshape(x, [1, 1, 3, 1]))
        summary.audio("sound", wf.reshape(x, [1, 3]), 8000)
        summary.text("words", wf.as_string(x))
        merged = summary.merge_all()
        with summary.FileWriter(tmp_path, graph) as writer:
            for step in range(5):
                writer.add_summary(session.run(merged, {x: [0.0, step, 0.5]}), step)
            writer.add_run_metadata(wf.RunMetadata(), "run")
    everything = accumulator.STORE_EVERYTHING_SIZE_GUIDANCE
    read = accumulator.EventAccumulator(str(tmp_path), size_guidance=everything)
    read.Reload()
    found = read.Tags()
    assert found["scalars"] == ["in/total"]
    assert (found["histograms"], found["images"]) == (["spread"], ["picture/image/0"])
    assert (found["audio"], found["tensors"]) == (["sound/audio/0"], ["words"])
    assert found["graph"] and found["meta_graph"] and found["run_metadata"] == ["run"]
    assert [(s.step, s.value) for s in read.Scalars("in/total")] == [(i, i + 0.5) for i in range(5)]
    assert read.Histograms("spread")[4].histogram_value.num == 3
    picture = read.Images("picture/image/0")[0]
    assert (picture.width, picture.height) == (3, 1)
    assert read.Audio("sound/audio/0")[0].sample_rate == 8000
    assert read.SummaryMetadata("words").plugin_data.plugin_name == "text"
    assert read.Tensors("words")[2].tensor_proto.string_val[1] == b"2.000000"
    assert {node.name for node in read.Graph().node} >= {"x", "in/total", "spread", "words"}

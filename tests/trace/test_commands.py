"""`weft trace summary`, `diff`, `whatif` and `export` on synthetic traces."""

import argparse
import json
from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest
from weft_testing.synthetic_trace import Cluster, random_settings, write_cluster

from weft_trace import Lane, LaneKind, Node, Process, Writer, commands
from weft_trace.commands import add
from weft_trace.commands.output import count, format_time


def weft_trace(*arguments):
    parser = argparse.ArgumentParser()
    add(parser)
    options = parser.parse_args(list(map(str, arguments)))
    return options.run(options)


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """A trace, one with slower Conv2D, and their truths."""
    folder = tmp_path_factory.mktemp("trace")
    settings = replace(random_settings(3), clock_offset=0)
    slow = replace(settings, scales={"Conv2D": 3.0})
    truths = [
        write_cluster(folder / name, Cluster(some, 3), 5)
        for name, some in (("a", settings), ("b", slow))
    ]
    return folder / "a", folder / "b", *truths


def run_json(capsys, *arguments):
    assert weft_trace(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_summary(traces, capsys):
    path, _, truth, _ = traces
    summary = run_json(capsys, "summary", path)
    (step,) = summary["steps"]
    assert step["num_steps"] == 5 and step["duration"] in truth.step_ns
    assert sum(step["critical_path"]["categories"].values()) == step["duration"]
    for task in step["tasks"]:
        assert sum(task["categories"].values()) == step["duration"]
    assert [s["task"] for s in summary["stragglers"]] == [f"/job:worker/task:{truth.straggler}"]
    gains = step["gains"]
    assert gains[0]["option"].startswith(f"--task worker{truth.straggler}=")
    assert [g["saved"] for g in gains] == sorted((g["saved"] for g in gains), reverse=True)
    assert summary["memory"][0]["holders"]


def test_summary_as_text(traces, capsys):
    path, _, truth, _ = traces
    assert weft_trace("summary", path) == 0
    text = capsys.readouterr().out
    for part in (
        "Critical path of step", "compute", "wait for peers", "Conv2D (estimate)",
        "Changes with the largest predicted gain", f"task worker{truth.straggler} as fast",
        "Memory of", "model.py:",
    ):  # fmt: skip
        assert part in text
    assert max(map(len, text.splitlines())) < 200


def test_options_of_gains_predict_what_the_summary_says(traces, capsys):
    path = traces[0]
    (step,) = run_json(capsys, "summary", path)["steps"]
    for gain in step["gains"]:
        (row,) = run_json(capsys, "whatif", path, *gain["option"].split(" ", 1))
        assert row["recorded"] - row["predicted"] == gain["saved"]


def test_whatif(traces, capsys):
    path, _, _, slower = traces
    (row,) = run_json(capsys, "whatif", path, "--op", "Conv2D=3")
    true = slower.step_ns[row["step"]]
    assert row["predicted"] == pytest.approx(true, rel=0.05)
    assert weft_trace("whatif", path, "--link", "ps0=1Mbit", "--wait", "input=0") == 0
    assert "+" in capsys.readouterr().out


def test_slower_links_make_steps_longer(traces, capsys):
    path = traces[0]
    times = [
        run_json(capsys, "whatif", path, "--link", f"ps0={rate}")[0]["predicted"]
        for rate in ("100Gbit", "1Gbit", "100Mbit", "10Mbit")
    ]
    assert times == sorted(times) and times[-1] > 2 * times[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "needs a change"),
        (["--op", "Conv3D=0.5"], "matches nothing in the trace; there are Conv2D"),
        (["--op", "Conv2D"], "expects PATTERN=FACTOR"),
        (["--threads", "0"], "at least 1"),
    ],
)
def test_wrong_options_are_reported(traces, capsys, options, message):
    assert weft_trace("whatif", traces[0], *options) == 2
    assert message in capsys.readouterr().err


def test_diff_names_what_became_slower(traces, capsys):
    before, after, a, _ = traces
    difference = run_json(capsys, "diff", before, after)
    (step,) = difference["steps"]
    assert step["before"] == sorted(a.step_ns[1:])[1] or step["before"] in range(*minmax(a))
    assert step["difference"] == step["after"] - step["before"] > 0
    assert step["ops"][0]["name"] == "Conv2D"
    assert step["ops"][0]["after"] == pytest.approx(3 * step["ops"][0]["before"], rel=0.01)
    assert step["critical_path"][0]["name"] == "compute"
    assert weft_trace("diff", before, after) == 0
    text = capsys.readouterr().out
    assert "slower" in text and "Kernels per step by op" in text


def minmax(truth):
    return min(truth.step_ns), max(truth.step_ns) + 1


def test_other_labels_are_listed(traces, tmp_path, capsys):
    with Writer(tmp_path / "empty"):
        pass
    assert weft_trace("diff", traces[0], tmp_path / "empty") == 0
    output = capsys.readouterr()
    assert "Only before: step" in output.out and "no steps with the same" in output.err


def test_export(traces, tmp_path):
    assert weft_trace("export", traces[0], "--format", "chrome", "-o", tmp_path / "out") == 0
    assert json.loads((tmp_path / "out").read_text())["traceEvents"]


def test_damaged_and_foreign_files(traces, tmp_path, capsys):
    data = traces[0].read_bytes()
    (tmp_path / "cut").write_bytes(data[: len(data) * 2 // 3])
    assert weft_trace("summary", tmp_path / "cut") == 0
    assert "were not read" in capsys.readouterr().err
    (tmp_path / "notes").write_text("notes")
    assert weft_trace("summary", tmp_path / "notes") == 2
    assert "not a trace of weft" in capsys.readouterr().err


def test_trace_without_steps(tmp_path, capsys):
    with Writer(tmp_path / "a") as writer:
        writer.lane(Lane(writer.process(Process("task", 1, "h")), LaneKind.THREAD, "main"))
        writer.node(Node("y", "MatMul"))
    assert weft_trace("summary", tmp_path / "a") == 0
    assert "no complete step" in capsys.readouterr().out


def test_terminal_commands_in_names_are_escaped(tmp_path, capsys):
    settings = random_settings(1)
    cluster = Cluster(settings, 1)
    cluster.tasks[0] = "/job:\x1b[2J/task:0"
    write_cluster(tmp_path / "a", cluster, 2)
    assert weft_trace("summary", tmp_path / "a") == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text and "\\x1b[2J" in text


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (0, "0 ns"), (999, "999 ns"), (1500, "1.50 µs"), (12_345_678, "12.3 ms"),
        (-2_000_000, "-2.00 ms"), (123_456_789_012, "123 s"),
    ],
)  # fmt: skip
def test_times_have_three_digits(time, text):
    assert format_time(time) == text


def test_packages_add_actions(monkeypatch):
    record = EntryPoint("record", "weft_distrib.commands.record:add", commands.GROUP)
    monkeypatch.setattr(commands, "entry_points", lambda group: [record])
    parser = argparse.ArgumentParser()
    add(parser)
    options = parser.parse_args(["record", "grpc://localhost:1", "run.weft-trace", "--steps", "3"])
    assert (options.target, options.file, options.steps) == (
        "grpc://localhost:1", "run.weft-trace", 3,
    )  # fmt: skip


def test_action_that_cannot_be_loaded_hides_no_other(monkeypatch, capsys):
    broken = EntryPoint("broken", "weft_trace.nothing:add", commands.GROUP)
    monkeypatch.setattr(commands, "entry_points", lambda group: [broken])
    parser = argparse.ArgumentParser()
    add(parser)
    options = parser.parse_args(["broken"])
    assert options.run(options) == 2
    assert "broken = weft_trace.nothing:add cannot be loaded" in capsys.readouterr().err
    assert parser.parse_args(["summary", "run.weft-trace"]).run is not None


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [(1, "process", "1 process"), (2, "process", "2 processes"), (1680, "event", "1,680 events")],
)
def test_numbers_have_their_nouns(number, noun, text):
    assert count(number, noun) == text

"""An unmodified TensorBoard in a headless browser shows the events of a training program."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from weft_testing.browser import chrome
from weft_testing.tensorboard import Page, serve

import weft as wf
from weft_io import summary
from weft_io.summary.writer import FileWriter

STEPS = 25


def write_logs(directory: Path) -> None:
    """Write the events of a small training program, one step per minute."""
    rng = np.random.default_rng(0)
    with wf.Graph().as_default() as graph:
        x = wf.placeholder(wf.float32, [None, 8], name="x")
        y = wf.placeholder(wf.float32, [None, 1], name="y")
        with wf.name_scope("hidden"):
            weights = wf.Variable(rng.normal(size=(8, 16)).astype(np.float32), name="weights")
            hidden = wf.tanh(wf.matmul(x, weights))
            summary.histogram("distribution", weights)
        with wf.name_scope("output"):
            last = wf.Variable(rng.normal(size=(16, 1)).astype(np.float32), name="weights")
            output = wf.matmul(hidden, last)
        with wf.name_scope("loss"):
            loss = wf.reduce_mean(wf.square(output - y))
            summary.scalar("mean_square", loss)
        train = wf.train.GradientDescentOptimizer(0.05).minimize(loss)
        summary.image("filters", wf.reshape(weights, [1, 8, 16, 1]))
        summary.text("note", wf.constant("# a *note*"))
        summary.audio("tone", wf.sin(wf.reshape(wf.range(0.0, 800.0), [1, 800])), 8000)
        merged = summary.merge_all()
        feeds = {x: rng.normal(size=(32, 8)), y: rng.normal(size=(32, 1))}
        with FileWriter(directory, graph) as writer, wf.Session() as session:
            session.run(wf.global_variables_initializer())
            start = time.time() - 60 * STEPS
            for step in range(STEPS):
                metadata = wf.RunMetadata()
                options = wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE)
                _, data = session.run([train, merged], feeds, options, metadata)
                event = wf.Event(wall_time=start + 60 * step, step=step)
                event.summary.ParseFromString(data)
                writer.add_event(event)
            writer.add_run_metadata(metadata, "last step", STEPS)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a TensorBoard on the logs."""
    write_logs(tmp_path / "logs" / "run")
    with serve(tmp_path / "logs") as address:
        yield address


@pytest.fixture
def page(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Page]:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    with chrome(tmp_path) as browser:
        yield Page(browser, request.getfixturevalue("server"), tmp_path)


def check_scalars(page: Page) -> None:
    """The curve has all its points, by step, by time since the start, and by the clock."""
    page.open("scalars")
    # A point is a vertex of the line; the last path of the chart is the smoothed curve.
    curve = "parts('vz-line-chart2', 'path').some(p => (p.getAttribute('d') || '').split(/[LC]/)"
    curve += f".length >= {STEPS})"
    labels = "parts('vz-line-chart2', '.x-axis .tick-label').map(text)"
    page.wait(curve)
    assert page.wait("parts('tf-scalar-card', 'tf-card-heading').length") == 1
    page.wait("all('tf-card-heading').map(deep).some(t => t.includes('loss/mean_square'))")
    assert page.wait(f"{labels}.includes('20') && {labels}")
    page.picture("scalars")
    # The last step is 24 minutes, or 0.4 hours, after the first.
    for axis, sign in (("relative", "^0.4$"), ("wall_time", "[0-9]+:[0-9]+")):
        button = f"click(parts('tf-scalar-dashboard', '#{axis}')[0])"
        page.wait(f"{labels}.some(t => /{sign}/.test(t))", button)
        page.wait(curve)
        page.picture(axis)


def check_images(page: Page) -> None:
    page.open("images")
    image = "parts('tf-image-loader', 'img')[0]"
    page.wait(f"{image} && {image}.complete && {image}.naturalWidth == 16")
    assert page.do(f"return {image}.naturalHeight") == 8
    page.picture("images")


def check_distributions(page: Page) -> None:
    page.open("distributions")
    page.wait("parts('vz-distribution-chart', 'path.area').filter(p => p.getAttribute('d')).length")
    page.picture("distributions")
    page.open("histograms")
    shown = "parts('vz-histogram-timeseries', 'g.histogram').length"
    assert page.wait(f"{shown} >= {STEPS} && {shown}") == STEPS
    page.picture("histograms")


def check_text_and_audio(page: Page) -> None:
    page.open("text")
    page.wait("parts('tf-text-loader', 'h1').some(e => text(e) == 'a note')")
    page.open("audio")
    page.wait("parts('tf-audio-loader', 'audio').some(e => e.src)")
    page.picture("audio")


def check_graph(page: Page) -> None:
    """Name scopes are nodes that unfold; a traced step tells times and memory."""
    page.open("graphs")
    nodes = "parts('tf-graph-scene', 'g.node')"
    names = f"{nodes}.map(n => n.dataset.name)"
    shown = set(page.wait(f"{names}.includes('hidden') && {names}"))
    assert {"x", "y", "hidden", "output", "loss", "gradients"} <= shown
    hidden = f"{nodes}.find(n => n.dataset.name == 'hidden')"
    inside = ["hidden/weights", "hidden/MatMul", "hidden/Tanh"]
    page.wait(
        f"{inside}.every(n => {names}.includes(n))",
        f"click({hidden}.querySelector('.buttoncircle'))",
    )
    page.picture("graph")
    button = "parts('tf-graph-controls', 'paper-radio-button').find(e => text(e) == 'Compute time')"
    page.wait(
        f"{button} && !{button}.disabled",
        "parts('tf-graph-controls', 'paper-item').find(e => text(e) == 'last step').click()",
    )
    # What took time is gray no longer.
    loss = f"{nodes}.find(n => n.dataset.name == 'loss')"
    page.wait(
        f"{loss} && !/238, 238, 238/.test({loss}.querySelector('rect').style.fill)",
        f"{button}.click()",
    )
    told = "parts('tf-node-info', '.sub-list-table-row').map(text)"
    rows = page.wait(
        f"{told}.some(t => t.includes('Compute Time')) && {told}",
        f"click({loss}.querySelector('.nodeshape'))",
    )
    assert any(re.search(r"Compute Time\s+[\d.]+ (µs|ms|s)", row) for row in rows), rows
    assert any(re.search(r"Memory\s+[\d.]+ (B|KB|MB)", row) for row in rows), rows
    page.picture("profile")


def test_tensorboard_shows_everything(page: Page) -> None:
    check_scalars(page)
    check_images(page)
    check_distributions(page)
    check_text_and_audio(page)
    check_graph(page)

"""Reports of `Session.explain` on compiled functions: kernels, rates, loops, and the page."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.browser import chrome

import weft as wf
from weft import errors
from weft_compiler.native import program as programs
from weft_compiler.native.arena import Arena
from weft_exec.executor.native.background_compilation import compilation
from weft_exec.session.explain import StepReport
from weft_exec.session.graph_picture import MOST, graph_picture


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("WEFT_JIT", "on")
    with wf.Graph().as_default():
        yield


def softmax_step() -> tuple[Any, Any, Any]:
    """A feed, an update and a loss: two products, a softmax, and Adam."""
    x = wf.placeholder(wf.float32, [None, 16], name="x")
    w = wf.Variable(np.full((16, 5), 0.1, np.float32), name="w")
    logits = wf.matmul(wf.tanh(x), w)
    loss = wf.reduce_mean(wf.square(wf.nn.softmax(logits)))
    return x, wf.train.AdamOptimizer(0.1).minimize(loss), loss


def test_a_report_says_how_regions_run() -> None:
    x = wf.placeholder(wf.float32, [None], name="x")
    y = wf.add(wf.tanh(x) * 2.0, 1.0, name="y")
    with wf.Session() as session:
        assert not session.explain(y, [x]).states
        for size in (10, 10, 20, 20):
            session.run(y, {x: np.zeros(size, np.float32)})
        text = str(session.explain(y, [x]))
        assert len(re.findall(r"waits for [^:]*: kernels took 0\.\d\d s", text)) == 2
        for candidate, profile in compilation()._waiting():
            if any(node.name == "y" for node in candidate.nodes):
                candidate.compile(profile)
        report = session.explain(y, [x])
        assert report.states == {"y": "compiled for 2 choices of shapes"}
        (part,) = report.parts()
        colors = {node.name: node.attr["_XlaCluster"].s.decode() for node in part.node}
        assert colors["y"] == colors["Tanh"] == "y: compiled for 2 choices of shapes"
    with wf.Session() as other:
        assert not other.explain(y, [x]).states


def test_a_loop_has_the_name_of_its_frame() -> None:
    x = wf.placeholder(wf.float32, [8], name="x")
    end = wf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, wf.tanh(a)), [0, x], name="steps")
    slope = wf.gradients(end[1], x)[0]
    with wf.Session() as session:
        names = session.explain(slope, [x]).names
        session.run(slope, {x: np.zeros(8, np.float32)})
    assert [name for name in names if "gradients" not in name] == ["steps/while_context"]
    assert len([name for name in names if name.startswith("gradients/steps_grad")]) == 1


def test_kernels_have_their_nodes_operations_bytes_and_times() -> None:
    x = wf.placeholder(wf.float32, [None], name="x")
    y = wf.add(wf.tanh(x) * 2.0, 1.0, name="y")
    with wf.Session() as session:
        report = session.explain(y, feed_dict={x: np.zeros(1000, np.float32)})
    (function,) = report.functions
    (kernel,) = function.kernels
    assert [node.type for node in kernel.nodes] == ["Tanh", "Mul", "Add"]
    assert (kernel.name, kernel.flops, kernel.bytes) == ("y", 3000, 8000)
    assert kernel.seconds is not None
    assert kernel.seconds > 0
    assert function.seconds > 0
    assert function.arena_bytes == 0
    assert report.limits is not None
    text = str(report)
    assert re.search(r"y +3 +0\.003 +8\.0", text)
    assert "limits, measured with one thread" in text
    assert report.programs["y"] == function.program
    assert "let mul = Tanh * 2.0" in kernel.text
    assert "weft.run" in report.assembly["y"]


def test_remarks_of_passes_are_told_to_who_asks_for_them(tmp_path: Path) -> None:
    x = wf.placeholder(wf.float32, [None], name="x")
    y = wf.reduce_sum(wf.exp(wf.tanh(x) * 2.0), name="y")
    remark = "compensate_sums: total: summed in blocks over i"
    with wf.Session() as session:
        feeds = {x: np.zeros(1000, np.float32)}
        report = session.explain(y, feed_dict=feeds)
        verbose = session.explain(y, feed_dict=feeds, verbose=True)
    (function,) = verbose.functions
    assert len(set(function.remarks)) == len(function.remarks)
    assert remark not in str(report) and f"\n  {remark}\n" in str(verbose), function.remarks
    report.write(tmp_path / "page.html")
    assert remark in (tmp_path / "page.html").read_text(encoding="utf-8")
    report.save(tmp_path / "report")
    assert remark in (tmp_path / "report" / "placement.txt").read_text(encoding="utf-8")


def test_the_step_is_run_once_and_what_it_changes_only_then() -> None:
    x, train, loss = softmax_step()
    values = np.random.default_rng(1).normal(size=(32, 16)).astype(np.float32)
    weights = wf.trainable_variables()[0]
    with wf.Session() as session, wf.Session() as other:
        for each in (session, other):
            each.run(wf.global_variables_initializer())
        other.run([train, loss], {x: values})
        report = session.explain([train, loss], feed_dict={x: values})
        np.testing.assert_allclose(session.run(weights), other.run(weights), rtol=1e-5)
    members = {node.name for function in report.functions for node in function.members}
    shown = {
        node.name
        for function in report.functions
        for kernel in function.kernels
        for node in kernel.nodes
    }
    assert shown <= members
    ops = {node.type for f in report.functions for k in f.kernels for node in k.nodes}
    assert {"Tanh", "MatMul", "Softmax", "ApplyAdam"} <= ops
    products = [k for f in report.functions for k in f.kernels if "call gemm" in k.text]
    assert {k.flops for k in products} == {2 * 32 * 16 * 5}


def test_machine_code_comes_from_the_disk_the_second_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from weft_compiler.native import cache

    monkeypatch.setattr(cache, "directory", lambda: tmp_path)
    x = wf.placeholder(wf.float32, [7])
    y = wf.sin(x) * 3.25 - wf.cos(x)
    with wf.Session() as session:
        found = []
        for _ in range(2):
            report = session.explain(y, feed_dict={x: np.zeros(7)})
            found.append(report.functions[0].from_disk)
            del report
            gc.collect()
    assert found == [False, True]


def test_whole_loops_and_both_sides_of_a_conditional_are_compiled() -> None:
    x = wf.placeholder(wf.float32, [8])

    def body(i: Any, v: Any) -> tuple[Any, Any]:
        return i + 1, wf.tanh(v) * 1.5 + 0.25

    _, y = wf.while_loop(lambda i, v: i < 5, body, [0, x])
    z = wf.cond(wf.reduce_sum(x) > 1e6, lambda: wf.exp(x) * 2.0, lambda: wf.identity(x))
    with wf.Session() as session:
        report = session.explain([y, z], feed_dict={x: np.zeros(8)})
    assert "Tanh" in {op for region in report.compiled for _, op in region}
    members = {node.type for function in report.functions for node in function.members}
    assert {"Exp", "Merge"} <= members


def test_feeds_come_in_one_way() -> None:
    x = wf.placeholder(wf.float32, [])
    with wf.Session() as session:
        with pytest.raises(errors.InvalidArgumentError, match="not both"):
            session.explain(x + 1.0, [x], feed_dict={x: 1.0})
        with pytest.raises(errors.InvalidArgumentError, match="fed"):
            session.explain(x * 2.0 + 1.0, feed_dict={})
        session.close()
        with pytest.raises(errors.FailedPreconditionError):
            session.explain(x * 2.0 + 1.0, feed_dict={x: 1.0})


def test_nothing_is_measured_where_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_JIT", "off")
    x = wf.placeholder(wf.float32, [3])
    with wf.Session() as session:
        report = session.explain(wf.exp(x) + 1.0, feed_dict={x: [0, 0, 0]})
    assert report.functions == []
    assert report.limits is None


def test_a_picture_of_many_nodes_says_what_it_leaves_out() -> None:
    x = wf.placeholder(wf.float32, [3])
    with wf.get_default_graph().as_default() as graph:
        for _ in range(MOST + 10):
            x = wf.identity(x)
        picture = graph_picture([graph.as_graph_def()], [])
    assert "11 more nodes" in picture
    assert picture.count("<rect") == MOST


def test_the_page_opens_in_a_browser_and_shows_the_loops_of_a_kernel(tmp_path: Path) -> None:
    x, train, loss = softmax_step()
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        report = session.explain([train, loss], feed_dict={x: np.ones((8, 16))})
    path = tmp_path / "step.html"
    report.write(path)
    assert set(re.findall(r"\w+://[^\"]+", path.read_text(encoding="utf-8"))) == {
        "http://www.w3.org/2000/svg"  # a name, not an address
    }
    with chrome(tmp_path) as browser:
        browser.get(path.as_uri())
        assert browser.find_element("tag name", "h1").text == "A step, explained"
        kernels = browser.find_elements("css selector", "svg rect.kernel")
        assert len(kernels) == sum(len(function.kernels) for function in report.functions)
        shown = "pre[data-of]:not([hidden])"
        assert browser.find_elements("css selector", shown) == []
        row = browser.find_elements("css selector", "tr[data-kernel]")[0]
        row.click()
        (loops,) = browser.find_elements("css selector", shown)
        assert loops.text == report.functions[0].kernels[0].text
        assert len(browser.find_elements("css selector", "svg rect.kernel.chosen")) == 1
        assert [e for e in browser.get_log("browser") if e["level"] == "SEVERE"] == []


def test_the_report_of_a_step_is_still_text_without_numbers() -> None:
    x = wf.placeholder(wf.float32, [None])
    with wf.Session() as session:
        report = session.explain(wf.exp(x) * 2.0 + 1.0, [x])
    assert isinstance(report, StepReport)
    assert report.compiled
    assert report.programs == {}


def test_regions_of_a_step_work_in_one_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Arena()
    monkeypatch.setattr(programs, "ARENA", own)
    x = wf.placeholder(wf.float32, [300, 40])

    def sums(value: Any, size: int) -> Any:
        wide = wf.matmul(value, wf.ones([40, size])) * 0.1  # in memory, between two products
        return wf.matmul(wf.tanh(wide), wf.ones([size, 40]) * 0.1)

    between = wf.py_func(np.negative, [sums(x, 500)], wf.float32)
    between.set_shape([300, 40])
    y = sums(between, 200)
    values = np.random.default_rng(1).normal(size=(300, 40)).astype(np.float32)
    with wf.Session() as session:
        report = session.explain(y, feed_dict={x: values})
    one, other = sorted(function.arena_bytes for function in report.functions)
    assert 0 < one < other == report.arena_bytes
    assert str(report).count(f"work in one arena of {other:,} bytes") == 1
    monkeypatch.setenv("WEFT_JIT", "now")
    gc.collect()
    with wf.Session(config=wf.ConfigProto(intra_op_parallelism_threads=1)) as session:
        given = session.run(y, {x: values})
        assert own.usage() == (other, 1)
    monkeypatch.setenv("WEFT_JIT", "off")
    with wf.Session() as session:
        np.testing.assert_allclose(given, session.run(y, {x: values}), rtol=1e-4, atol=1e-4)
    del session, report
    gc.collect()
    assert own.usage() == (0, 0)


def test_the_softmax_of_a_loss_is_made_by_rows() -> None:
    """Labels are checked before the loops, not between loops that could be fused."""
    x, labels = wf.placeholder(wf.float32, [64, 2000]), wf.placeholder(wf.int32, [64])
    losses = wf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x)
    loss = wf.reduce_mean(losses)
    feeds = {x: np.ones((64, 2000), np.float32), labels: np.arange(64)}
    with wf.Session() as session:
        report = session.explain([loss, *wf.gradients(loss, x)], feed_dict=feeds)
    assert 0 < report.arena_bytes < 3 * 2000 * 4


def test_random_numbers_are_drawn_in_kernels_that_are_explained() -> None:
    x = wf.placeholder(wf.float32, [64])
    with wf.Session() as session:
        report = session.explain(wf.nn.dropout(wf.tanh(x), rate=0.5), feed_dict={x: np.ones(64)})
    assert {"Tanh"} <= {n.type for f in report.functions for k in f.kernels for n in k.nodes}


def test_many_pieces_are_views_and_many_parts_are_joined_by_kernels() -> None:
    """One such node once kept its whole region from being compiled."""
    x = wf.placeholder(wf.float32, [20, 4])
    y = wf.stack([wf.tanh(row) * float(at) for at, row in enumerate(wf.unstack(x))])
    values = np.random.default_rng(1).normal(size=(20, 4)).astype(np.float32)
    with wf.Session() as session:
        report = session.explain(y, feed_dict={x: values})
        np.testing.assert_allclose(
            session.run(y, {x: values}),
            np.tanh(values) * np.arange(20)[:, None],
            rtol=1e-5,
            atol=1e-6,
        )
    assert dict(report.left) == {
        ("Unpack", "its kernel returns views without copying"): 1,
        ("Pack", "it joins more than 8 tensors"): 1,
    }
    assert {n.type for f in report.functions for k in f.kernels for n in k.nodes} == {"Tanh", "Mul"}


def test_the_page_of_a_loop_is_written(tmp_path: Path) -> None:
    """Cycles of its graph once left rows of the picture without nodes."""
    x = wf.placeholder(wf.float32, [3], name="x")
    _, y = wf.while_loop(lambda i, v: i < 5, lambda i, v: (i + 1, wf.tanh(v) * 2.0), [0, x])
    with wf.Session() as session:
        report = session.explain(wf.exp(y) * 2.0, feed_dict={x: np.ones(3)})
    report.write(tmp_path / "step.html")
    page = (tmp_path / "step.html").read_text(encoding="utf-8")
    assert all(f"<title>while/{name}: " in page for name in ("Merge", "Tanh", "Switch"))

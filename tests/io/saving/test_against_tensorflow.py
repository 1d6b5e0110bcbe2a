"""TensorFlow, if installed, reads the checkpoints written here, and the other way round."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.recorded import same, script, tensors

import weft as wf
from weft_graph import proto
from weft_io.bundle.writer import write_bundle
from weft_io.checkpoint.save_items import Item
from weft_io.saved_model.builder import SavedModelBuilder, simple_save
from weft_io.saved_model.loader import load
from weft_io.saved_model.signature_def_utils import predict_signature_def
from weft_io.saving.bundle_saver_builder import BundleSaverBuilder
from weft_io.saving.meta_graph import import_meta_graph

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("needs TensorFlow", allow_module_level=True)
tf = importlib.import_module("tensorflow.compat.v1")
tf.disable_v2_behavior()


def test_a_bundle_of_all_types(tmp_path: Path) -> None:
    prefix = str(tmp_path / "m")
    grid = script().grid()
    parts = [
        Item("grid", wf.float32, script().box(grid, s), s, i) for i, s in enumerate(script().GRID)
    ]
    write_bundle(prefix, [*(Item(n, d, v) for n, (d, v) in tensors().items()), *parts])
    reader = tf.train.load_checkpoint(prefix)
    assert same(reader.get_tensor("grid"), grid)
    for name, (dtype, value) in tensors().items():
        if not dtype.is_quantized:  # which its reader has no arrays for
            found = reader.get_tensor(name)
            bits = found.view(np.uint16) if dtype is wf.bfloat16 else found
            assert same(bits, value.view(np.uint16) if dtype is wf.bfloat16 else value), name


def test_a_bundle_with_an_index_of_many_blocks(tmp_path: Path) -> None:
    prefix = str(tmp_path / "m")
    names = [f"scope_{i % 37}/layer/block/weights_{i}/Adam" for i in range(20_000)]
    write_bundle(prefix, [Item(n, wf.float32, np.float32(i)) for i, n in enumerate(names)])
    reader = tf.train.load_checkpoint(prefix)
    assert len(reader.get_variable_to_shape_map()) == len(names)
    assert all(reader.get_tensor(names[i]) == i for i in range(0, 20_000, 997))


class Training:
    """A small training program, with a variable of every family."""

    feed = np.arange(8, dtype=np.float32).reshape(2, 4) / 8
    labels = np.float32([[1, 2], [3, 4]])

    def __init__(self) -> None:
        self.x = wf.placeholder(wf.float32, (None, 4), name="x")
        self.t = wf.placeholder(wf.float32, (None, 2), name="t")
        w = wf.get_variable("w", (4, 3), partitioner=wf.fixed_size_partitioner(2))
        b = wf.get_variable("b", (3,), initializer=wf.zeros_initializer(), use_resource=True)
        v = wf.get_variable("v", (3, 2))
        self.y = wf.matmul(wf.nn.relu(wf.matmul(self.x, w.as_tensor()) + b), v, name="y")
        loss = wf.reduce_mean(wf.squared_difference(self.y, self.t), name="loss")
        step = wf.train.get_or_create_global_step()
        rate = wf.train.exponential_decay(0.1, step, 10, 0.9)
        train = wf.train.AdamOptimizer(rate).minimize(loss, step)
        with wf.control_dependencies([train]):
            wf.group(wf.train.ExponentialMovingAverage(0.9).apply([v, b]), name="train")

    def run(self, session: Any, steps: int = 0) -> Any:
        for _ in range(steps):
            session.run("train", {"x:0": self.feed, "t:0": self.labels})
        return session.run("y:0", {"x:0": self.feed})


@pytest.mark.parametrize("form", ["binary", "text", "stripped"])
def test_a_saved_model(tmp_path: Path, form: str) -> None:
    export = str(tmp_path / "model")
    (tmp_path / "words.txt").write_text("one")
    with wf.Graph().as_default(), wf.Session() as session:
        training = Training()
        asset = wf.constant(str(tmp_path / "words.txt"), name="asset")
        path = wf.Variable("", name="path", collections=["local_variables"])
        start = wf.group(wf.assign(path, asset))
        session.run(wf.global_variables_initializer())
        training.run(session, 1)
        builder = SavedModelBuilder(export)
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {"serving_default": predict_signature_def({"x": training.x}, {"y": training.y})},
            assets_collection=[asset],
            main_op=start,
            strip_default_attrs=form == "stripped",
        )
        builder.save(as_text=form == "text")
        wanted = [training.run(session), training.run(session, 2)]
    with tf.Graph().as_default(), tf.Session() as session:
        message = tf.saved_model.loader.load(session, ["serve"], export)
        assert session.run("path:0") == os.path.join(export, "assets", "words.txt").encode()
        assert message.signature_def["serving_default"].outputs["y"].name == "y:0"
        for found in (training.run(session), training.run(session, 2)):
            np.testing.assert_allclose(found, wanted.pop(0), rtol=1e-5)
        # It can be exported again from there, and come home.
        again = str(tmp_path / "again")
        signature = message.signature_def["serving_default"]
        other = tf.saved_model.builder.SavedModelBuilder(again)
        other.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
        other.save()
        last = training.run(session)
    with wf.Graph().as_default(), wf.Session() as session:
        load(session, ["serve"], again)
        np.testing.assert_allclose(training.run(session), last, rtol=1e-5)


def test_a_saved_model_in_version_2(tmp_path: Path) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        training = Training()
        session.run(wf.global_variables_initializer())
        simple_save(session, tmp_path / "m", {"x": training.x}, {"y": training.y})
        wanted = training.run(session)
    program = f"""
import numpy, sys, tensorflow as tf
model = tf.saved_model.load({str(tmp_path / "m")!r}, tags=["serve"])
x = tf.constant(numpy.arange(8).reshape(2, 4) / 8, tf.float32)
numpy.save({str(tmp_path / "y.npy")!r}, model.signatures["serving_default"](x=x)["y"].numpy())
"""
    import subprocess

    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), wanted, rtol=1e-5)


@pytest.mark.parametrize("as_text", [False, True])
def test_a_meta_graph_and_its_checkpoint(tmp_path: Path, as_text: bool) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        training = Training()
        saver = wf.train.Saver(builder=BundleSaverBuilder(), sharded=as_text)
        session.run(wf.global_variables_initializer())
        prefix = saver.save(session, str(tmp_path / "m"), 7)
        saver.export_meta_graph(f"{prefix}.meta", as_text=as_text)
        wanted = [training.run(session), training.run(session, 2)]
    assert tf.train.latest_checkpoint(str(tmp_path)) == prefix
    with tf.Graph().as_default(), tf.Session() as session:
        saver = tf.train.import_meta_graph(f"{prefix}.meta")
        saver.restore(session, prefix)
        for found in (training.run(session), training.run(session, 2)):
            np.testing.assert_allclose(found, wanted.pop(0), rtol=1e-5)
        names = [v.name for v in tf.global_variables()]
        saver.save(session, str(tmp_path / "theirs"), 8)
        last = training.run(session)
    with wf.Graph().as_default() as graph, wf.Session() as session:
        saver = import_meta_graph(str(tmp_path / "theirs-8.meta"), import_scope="in")
        saver.restore(session, str(tmp_path / "theirs-8"))
        assert [v.name for v in graph.get_collection("variables")] == [f"in/{n}" for n in names]
        np.testing.assert_allclose(
            session.run("in/y:0", {"in/x:0": training.feed}), last, rtol=1e-5
        )


def test_initial_values_that_depend_on_other_variables() -> None:
    with wf.Graph().as_default() as graph:
        for kind in (False, True):
            v = wf.Variable([1.0, 2.0], name=f"v{kind}", use_resource=kind)
            wf.Variable(v.initialized_value() * 2.0, name=f"w{kind}")
        message = wf.train.export_meta_graph(graph=graph)
    theirs = tf.MetaGraphDef.FromString(message.SerializeToString())
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.import_meta_graph(theirs)
        session.run(tf.global_variables_initializer())
        assert session.run("wTrue:0").tolist() == session.run("wFalse:0").tolist() == [2.0, 4.0]
    assert isinstance(message, proto.MetaGraphDef)


def test_loops_and_conditionals_with_gradients_there() -> None:
    with wf.Graph().as_default() as graph, wf.Session() as session:
        n = wf.placeholder(wf.int32, (), name="n")
        v = wf.Variable(1.5, name="v")

        def body(i: Any, total: Any) -> Any:
            _, inner = wf.while_loop(lambda j, _: j < i, lambda j, s: (j + 1, s * v), (0, total))
            return i + 1, wf.cond(i % 2 > 0, lambda: inner + v, lambda: inner - 1.0)

        _, total = wf.while_loop(lambda i, _: i < n, body, (0, 1.0))
        wf.identity(total, name="total")
        message = wf.train.export_meta_graph(graph=graph)
        (grad,) = wf.gradients(total, [v])
        session.run(v.initializer)
        wanted = [session.run([total, grad], {n: i}) for i in range(5)]
    theirs = tf.MetaGraphDef.FromString(message.SerializeToString())
    for scope in (None, "a"):
        with tf.Graph().as_default() as graph, tf.Session() as session:
            tf.train.import_meta_graph(theirs, import_scope=scope)
            lead = f"{scope}/" if scope else ""
            total = graph.get_tensor_by_name(f"{lead}total:0")
            (grad,) = tf.gradients(total, tf.global_variables())
            session.run(tf.global_variables_initializer())
            for i, values in enumerate(wanted):
                assert session.run([total, grad], {f"{lead}n:0": i}) == pytest.approx(values)

"""Write the recorded files of this directory with TensorFlow; README.md describes them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent

NUMBERS = (
    *("float32", "float64", "int32", "uint8", "int16", "int8", "int64", "uint16", "uint32"),
    *("uint64", "float16", "bfloat16", "complex64", "complex128", "bool"),
    *("qint8", "quint8", "qint16", "quint16", "qint32"),
)


def tensors() -> dict[str, tuple[str, Any]]:
    """Return the contents of `bundles/types`: name to type and value; bfloat16 as bits."""
    made: dict[str, tuple[str, Any]] = {}
    for i, name in enumerate(NUMBERS):
        rng = np.random.default_rng(i)
        kind = np.dtype("uint16" if name == "bfloat16" else name.removeprefix("q"))
        data = rng.bytes(kind.itemsize * 6)
        value = np.frombuffer(data, np.uint8) % 2 == 1 if name == "bool" else None
        if value is None:
            value = np.frombuffer(data, kind)
            if kind.kind in "fc":
                value = rng.normal(size=6).astype(kind)
        made[f"numbers/{name}"] = name, value[:6].reshape(2, 3)
    words = [b"", b"a", b"\x00\xff", "größe".encode(), b"x" * 300, b"end"]
    made["words"] = "string", np.array(words, object).reshape(3, 2)
    made["word"] = "string", np.array(b"one", object)
    made["no_words"] = "string", np.empty((0, 4), object)
    made["scalar"] = "float32", np.array(2.5, np.float32)
    made["empty"] = "float32", np.zeros((3, 0), np.float32)
    made["long"] = "int32", np.arange(3000, dtype=np.int32)
    made["nämé/with.odd-characters"] = "int64", np.array([7], np.int64)
    return made


def grid() -> Any:
    """Return the contents of `bundles/slices`: "grid" in four boxes, and "rows" in three."""
    return np.arange(5 * 7, dtype=np.float32).reshape(5, 7)


GRID = ("5 7 0,2:0,3", "5 7 0,2:3,4", "5 7 2,3:0,3", "5 7 2,3:3,4")
ROWS = ("5 7 0,2:-", "5 7 2,2:-", "5 7 4,1:-")
PARTIAL = ("100 70,5",)
"""Of "partial", int64 of shape [100], there is only this slice: 70 to 74."""


def box(value: Any, spec: str) -> Any:
    """The part of a value that a text such as "5 7 0,2:-" describes."""
    slices = []
    for axis in spec.split(" ")[-1].split(":"):
        start, _, size = axis.partition(",")
        slices.append(slice(None) if axis == "-" else slice(int(start), int(start) + int(size)))
    return value[tuple(slices)]


# --------------------------------------------------------------------------- with TensorFlow


def save(tf: Any, prefix: Path, items: list[tuple[str, str, Any]]) -> None:
    """Write (name, spec, tensor) triples as one bundle."""
    names, specs, values = zip(*items, strict=True)
    node = tf.raw_ops.SaveV2(
        prefix=str(prefix), tensor_names=names, shape_and_slices=specs, tensors=values
    )
    with tf.Session() as session:
        session.run(node)


def record_bundles(tf: Any) -> None:
    """bundles/: one with all types, one with slices, and one in two shards."""
    folder = fresh("bundles")
    with tf.Graph().as_default():
        items = []
        for name, (kind, value) in tensors().items():
            if kind.startswith("q"):
                tensor = tf.bitcast(tf.constant(value), kind)
            elif kind == "bfloat16":
                tensor = tf.bitcast(tf.constant(value), tf.bfloat16)
            else:
                tensor = tf.constant(value, kind)
            items.append((name, "", tensor))
        save(tf, folder / "types", items)
    with tf.Graph().as_default():
        items = [("grid", spec, tf.constant(box(grid(), spec))) for spec in GRID]
        items += [("rows", spec, tf.constant(box(grid(), spec))) for spec in ROWS]
        items += [("partial", spec, tf.range(70, 75, dtype=tf.int64)) for spec in PARTIAL]
        save(tf, folder / "slices", [*items, ("whole", "", tf.constant(grid()))])
    config = tf.ConfigProto(device_count={"CPU": 2})
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        for device in (0, 1):
            with tf.device(f"/cpu:{device}"):
                tf.get_variable(f"on{device}", initializer=tf.range(3.0) + device)
        table = tf.get_variable(
            "table",
            initializer=tf.constant(grid()),
            partitioner=tf.fixed_size_partitioner(2),
        )
        assert len(list(table)) == 2
        session.run(tf.global_variables_initializer())
        saver = tf.train.Saver(sharded=True, max_to_keep=2)
        for step in (1, 2, 3):
            saver.save(session, str(folder / "model"), step, write_meta_graph=step == 3)
        saver.export_meta_graph(str(folder / "model.pbtxt"), as_text=True)
    state = (folder / "checkpoint").read_text()
    (folder / "checkpoint").write_text(state.replace(f"{folder}/", ""))


def record_graphs(tf: Any) -> dict[str, Any]:
    """Write programs as MetaGraphs and GraphDefs to graphs/; return their results."""
    folder = fresh("graphs")
    return {
        "train": record_training(tf, folder),
        "control": record_control(tf, folder),
        "function": record_function(tf, folder),
        "frozen": record_frozen(tf, folder),
    }


def record_training(tf: Any, folder: Path) -> dict[str, Any]:
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(3)
        x = tf.placeholder(tf.float32, (None, 4), name="x")
        y = tf.placeholder(tf.int64, (None,), name="y")
        table = tf.get_variable(
            "table", (6, 3), partitioner=tf.fixed_size_partitioner(2), dtype=tf.float32
        )
        found = tf.nn.embedding_lookup(table, y % 6, partition_strategy="div")
        with tf.variable_scope("net", regularizer=lambda v: 0.01 * tf.nn.l2_loss(v)):
            w = tf.get_variable("w", (4, 3))
            b = tf.get_variable("b", (3,), initializer=tf.zeros_initializer(), use_resource=True)
        logits = tf.add(tf.matmul(x, w) + b, found, name="logits")
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y % 3, logits=logits), name="loss"
        )
        step = tf.train.get_or_create_global_step()
        rate = tf.train.exponential_decay(0.1, step, 10, 0.5, name="rate")
        averages = tf.train.ExponentialMovingAverage(0.9)
        optimizer = tf.train.AdamOptimizer(rate)
        train = optimizer.minimize(loss, step, name="minimize")
        with tf.control_dependencies([train]):
            train = tf.group(averages.apply([w, b]), name="train")
        for name, item in (("train_op", train), ("losses", loss), ("mine", "text"), ("n", 3)):
            tf.add_to_collection(name, item)
        tf.add_to_collection("floats", 0.5)
        session.run(tf.global_variables_initializer())
        saver = tf.train.Saver(max_to_keep=7)
        feed = {
            "x": (np.arange(20).reshape(5, 4) / 10).tolist(),
            "y": [0, 1, 2, 3, 4],
        }
        feeds = {x: feed["x"], y: feed["y"]}
        session.run(train, feeds)
        saver.save(session, str(folder / "train"), write_state=False)
        wanted = {"loss": loss, "logits": logits, "w": w}
        values = [session.run(wanted, feeds)]
        for _ in range(3):
            session.run(train, feeds)
            values.append(session.run(wanted, feeds))
        return {
            "feed": feed,
            "values": [{name: v.tolist() for name, v in value.items()} for value in values],
            "variables": [v.name for v in tf.global_variables()],
        }


def record_control(tf: Any, folder: Path) -> dict[str, Any]:
    with tf.Graph().as_default(), tf.Session() as session:
        n = tf.placeholder(tf.int32, (), name="n")
        v = tf.Variable(1.5, name="v")

        def body(i: Any, total: Any) -> Any:
            inner = tf.while_loop(lambda j, _: j < i, lambda j, s: (j + 1, s * v), (0, total))
            return i + 1, tf.cond(i % 2 > 0, lambda: inner[1] + v, lambda: inner[1] - 1.0)

        _, total = tf.while_loop(lambda i, _: i < n, body, (0, 1.0), name="loop")
        total = tf.identity(total, name="total")
        tf.identity(tf.gradients(total, v)[0], name="gradient")
        tf.cond(n > 2, lambda: v * 2.0, lambda: v, name="choice")
        session.run(tf.global_variables_initializer())
        saver = tf.train.Saver()
        saver.export_meta_graph(str(folder / "control.meta"))
        names = ["total:0", "gradient:0", "choice/Merge:0"]
        return {
            str(number): [float(x) for x in session.run(names, {n: number})] for number in range(5)
        }


def record_function(tf: Any, folder: Path) -> dict[str, Any]:
    from tensorflow.python.framework import function

    with tf.Graph().as_default() as graph, tf.Session() as session:

        @function.Defun(tf.float32, tf.float32, func_name="weighted")
        def weighted(a: Any, b: Any) -> Any:
            return tf.tanh(a) * 2.0 + b

        x = tf.placeholder(tf.float32, (2,), name="x")
        y = tf.identity(weighted(x, x + 1.0), name="y")
        write(folder / "function.pb", graph.as_graph_def())
        return {"y": session.run(y, {x: [0.5, -1.0]}).tolist()}


def record_frozen(tf: Any, folder: Path) -> dict[str, Any]:
    with tf.Graph().as_default() as graph, tf.Session() as session:
        tf.set_random_seed(5)
        image = tf.placeholder(tf.float32, (None, 8, 8, 1), name="image")
        kernel = tf.get_variable("kernel", (3, 3, 1, 4))
        h = tf.nn.relu(tf.nn.conv2d(image, kernel, strides=[1, 1, 1, 1], padding="SAME"))
        h = tf.nn.max_pool2d(h, 2, 2, "SAME")
        h = tf.reshape(h, (-1, int(np.prod(h.shape[1:]))))
        w = tf.get_variable("w", (h.shape[1], 5))
        tf.nn.softmax(tf.matmul(h, w), name="probabilities")
        session.run(tf.global_variables_initializer())
        frozen = tf.graph_util.convert_variables_to_constants(
            session, graph.as_graph_def(), ["probabilities"]
        )
        # As older programs wrote it: attributes with default values were left out.
        for node in frozen.node:
            for name in ("data_format", "dilations", "explicit_paddings", "transpose_a"):
                if name in node.attr:
                    del node.attr[name]
        write(folder / "frozen.pb", frozen)
        tf.train.write_graph(frozen, str(folder), "frozen.pbtxt")
        value = (np.arange(64).reshape(1, 8, 8, 1) / 64).astype(np.float32)
        return {"probabilities": session.run("probabilities:0", {image: value}).tolist()}


def record_saved_models(tf: Any) -> dict[str, Any]:
    """saved_models/: one of simple_save, and one with two graphs, assets and a main op."""
    folder = fresh("saved_models")
    expected: dict[str, Any] = {}
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, (None, 2), name="x")
        w = tf.get_variable("w", initializer=[[1.0, 2.0], [3.0, 4.0]])
        y = tf.matmul(x, w, name="y")
        session.run(tf.global_variables_initializer())
        tf.saved_model.simple_save(session, str(folder / "simple"), {"x": x}, {"y": y})
        expected["simple"] = {"x": [[1.0, 1.0]], "y": session.run(y, {x: [[1.0, 1.0]]}).tolist()}
    record_rich(tf, folder)
    return expected


def record_rich(tf: Any, folder: Path) -> None:
    os.chdir(folder)  # so that the graph holds no path of the machine
    vocabulary, other = Path("words.txt"), Path("aside")
    vocabulary.write_text("one\ntwo\n")
    other.mkdir()
    (other / "words.txt").write_text("three\n")
    utils = tf.saved_model.signature_def_utils
    constants = tf.saved_model.signature_constants
    builder = tf.saved_model.builder.SavedModelBuilder(str(folder / "rich"))
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.string, (None,), name="examples")
        v = tf.get_variable("v", initializer=[1.0, 2.0], use_resource=True)
        path = tf.Variable("", name="path", collections=[tf.GraphKeys.LOCAL_VARIABLES])
        assets = []
        for name, file in (("first", vocabulary), ("second", other / "words.txt")):
            assets.append(tf.constant(str(file), name=name))
            tf.add_to_collection(tf.GraphKeys.ASSET_FILEPATHS, assets[-1])
        main_op = tf.group(tf.assign(path, assets[1]), name="start")
        scores = tf.add(tf.zeros((tf.shape(x)[0], 2)), v, name="scores")
        sparse = tf.sparse_placeholder(tf.float32, (3, 3), name="sparse")
        total = tf.reduce_sum(sparse.values)
        session.run(tf.global_variables_initializer())
        classify = utils.classification_signature_def(x, tf.constant(["a", "b"]), scores)
        signatures = {
            constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY: classify,
            "regress": utils.regression_signature_def(x, scores[:, 0]),
            "sparse": utils.predict_signature_def({"s": sparse}, {"total": total}),
        }
        builder.add_meta_graph_and_variables(
            session,
            [tf.saved_model.tag_constants.SERVING],
            signatures,
            assets_collection=tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS),
            main_op=main_op,
            strip_default_attrs=True,
        )
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", initializer=[0.0, 0.0], use_resource=True)
        tf.add_to_collection("outputs", tf.add(v, 1.0, name="plus"))
        builder.add_meta_graph(["train", "gpu"], clear_devices=True)
    builder.save(as_text=True)
    vocabulary.unlink()
    shutil.rmtree(other)


def write(path: Path, message: Any) -> None:
    path.write_bytes(message.SerializeToString(deterministic=True))


def fresh(name: str) -> Path:
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def main() -> None:
    """Write everything anew."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    parts: tuple[Callable[[Any], Any], ...] = (record_bundles, record_graphs, record_saved_models)
    expected: dict[str, Any] = {}
    for part in parts:
        expected |= part(tf) or {}
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()

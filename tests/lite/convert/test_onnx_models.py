"""ONNX models: recurrent layers, NCHW, integer products, unknown sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_lite import Interpreter
from weft_lite.commands.main import main
from weft_lite.convert import Converter
from weft_lite.schema.codec import decode
from weft_lite.schema.enums import OpKind

onnx = pytest.importorskip("onnx")
H = onnx.helper
FLOAT, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.BOOL
random = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return random.standard_normal(shape).astype(np.float32)


def info(name: str, shape: Any, dtype: int = FLOAT) -> Any:
    return H.make_tensor_value_info(name, dtype, shape)


def model(nodes: Any, inputs: Any, weights: dict[str, Any], output: Any = None) -> Any:
    """A model with the result "y"."""
    constants = [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = H.make_graph(nodes, "g", inputs, [output or info("y", None)], constants)
    made = H.make_model(graph, opset_imports=[H.make_opsetid("", 17)])
    made.ir_version = 8
    return made


def run_session(proto: Any, **inputs: Any) -> Any:
    with wf.Graph().as_default(), wf.Session() as session:
        imported = wf.onnx.import_model(proto)
        return session.run(
            imported.outputs["y"], {imported.inputs[k]: v for k, v in inputs.items()}
        )


def run_file(content: bytes, **inputs: Any) -> Any:
    return Interpreter(model_content=content).get_signature_runner()(**inputs)["y"]


def kinds(content: bytes) -> list[str]:
    return [OpKind(op.kind).name for op in decode(content).model.ops]


@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_recurrent_layers_convert_as_through_a_session(op: str, gates: int, direction: str) -> None:
    count = 2 if direction == "bidirectional" else 1
    weights = {
        "w": normal(count, gates * 6, 5) * 0.3,
        "r": normal(count, gates * 6, 6) * 0.3,
    }
    node = H.make_node(op, ["x", "w", "r"], ["y"], hidden_size=6, direction=direction)
    proto, x = model([node], [info("x", [4, 2, 5])], weights), normal(4, 2, 5)
    content = Converter.from_onnx(proto).convert()
    np.testing.assert_allclose(run_file(content, x=x), run_session(proto, x=x), 1e-4, 1e-5)
    with wf.Graph().as_default(), wf.Session() as session:
        imported = wf.onnx.import_model(proto)
        ends = [imported.inputs["x"]], [imported.outputs["y"]]
        assert kinds(Converter.from_session(session, *ends).convert()) == kinds(content)


def test_an_exported_dynamic_rnn_converts_under_its_names() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [2, 3, 4], name="x")
        state = wf.placeholder(wf.float32, [2, 5], name="state")
        cell = wf.nn.rnn_cell.GRUCell(5)
        outputs, last = wf.nn.dynamic_rnn(cell, x, initial_state=state)
        fetches = {"y": outputs, "last": last}
        session.run(wf.global_variables_initializer())
        feeds = {x: normal(2, 3, 4), state: normal(2, 5)}
        expected = session.run(fetches, feeds)
        proto = wf.onnx.export(fetches, [x, state], session)
    assert "Scan" in {node.op_type for node in proto.graph.node}
    interpreter = Interpreter(model_content=Converter.from_onnx(proto).convert())
    interpreter.allocate_tensors()
    inputs, ends = interpreter.get_input_details(), interpreter.get_output_details()
    assert [detail["name"] for detail in inputs] == ["x", "state"]
    assert [detail["name"] for detail in ends] == ["y", "last"]
    for detail, value in zip(inputs, feeds.values(), strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    for detail in ends:
        got = interpreter.get_tensor(detail["index"])
        np.testing.assert_allclose(got, expected[detail["name"]], 1e-4, 1e-5)


def test_convolutions_in_branches_take_weights_from_around() -> None:
    weights = {"w": normal(4, 3, 3, 3), "grouped": normal(6, 1, 3, 3)}
    nodes = [H.make_node("Conv", ["x", "w"], ["t"]), H.make_node("Relu", ["t"], ["r"])]
    then = H.make_graph(nodes, "then", [], [info("r", None)])
    nodes = [
        H.make_node("Conv", ["x", "grouped"], ["e"], group=3),
        H.make_node("Slice", ["e", "zero", "four", "one"], ["s"]),
    ]
    other = H.make_graph(nodes, "else", [], [info("s", None)])
    weights |= {k: np.array([v]) for k, v in (("zero", 0), ("four", 4), ("one", 1))}
    node = H.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    inputs = [info("x", [1, 3, 8, 8]), info("c", [], BOOL)]
    proto, x = model([node], inputs, weights, info("y", [1, 4, 6, 6])), normal(1, 3, 8, 8)
    content = Converter.from_onnx(proto).convert()
    for taken in (True, False):
        expected = run_session(proto, x=x, c=taken)
        np.testing.assert_allclose(run_file(content, x=x, c=taken), expected, 1e-4, 1e-5)
        only = Converter.from_onnx(proto, values={"c": taken}).convert()
        assert "If" not in kinds(only)
        np.testing.assert_allclose(run_file(only, x=x), expected, 1e-4, 1e-5)


@pytest.mark.parametrize("depth", [64, 2000])
@pytest.mark.parametrize("is_constant", [True, False])
@pytest.mark.parametrize("dtypes", [("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8")])
def test_products_of_integers_are_exact(
    depth: int, is_constant: bool, dtypes: tuple[str, str]
) -> None:
    limits = [np.iinfo(dtype) for dtype in dtypes]
    shapes = (3, depth), (depth, 5)
    a, b = (
        random.choice([limit.min, limit.max], shape).astype(limit.dtype)
        for limit, shape in zip(limits, shapes, strict=True)
    )
    weights = {"az": np.array(limits[0].max, dtypes[0]), "bz": np.array(limits[1].min, dtypes[1])}
    given = {"a": a} if is_constant else {"a": a, "b": b}
    inputs = [info(k, v.shape, H.np_dtype_to_tensor_dtype(v.dtype)) for k, v in given.items()]
    node = H.make_node("MatMulInteger", ["a", "b", "az", "bz"], ["y"])
    weights |= {"b": b} if is_constant else {}
    proto = model([node], inputs, weights, info("y", None, onnx.TensorProto.INT32))
    content = Converter.from_onnx(proto).convert(samples=given, limit=0.0)
    expected = (a.astype(int) - weights["az"]) @ (b.astype(int) - weights["bz"])
    np.testing.assert_array_equal(run_file(content, **given), expected)


def resized() -> Any:
    """A model that computes sizes with float64 and broadcasts shapes."""
    nodes = [
        H.make_node("Resize", ["x", "", "scales"], ["r"], mode="nearest"),
        H.make_node("Shape", ["r"], ["shape"]),
        H.make_node("Expand", ["one", "shape"], ["ones"]),
        H.make_node("Add", ["r", "ones"], ["y"]),
    ]
    weights = {
        "scales": np.array([1, 1, 1.7, 2], np.float32),
        "one": np.ones([1, 1, 1, 1], np.float32),
    }
    return model(nodes, [info("x", [1, 2, "h", "w"])], weights)


def test_a_pinned_shape_is_computed_with_at_conversion(tmp_path: Path) -> None:
    proto, x = resized(), normal(1, 2, 5, 4)
    with pytest.raises(wf.errors.UnimplementedError, match="support the type float64"):
        Converter.from_onnx(proto, {"x": x.shape}).convert()
    content = Converter.from_onnx(proto, shapes={"x": x.shape}).convert()
    np.testing.assert_allclose(run_file(content, x=x), run_session(proto, x=x), 1e-5)
    interpreter = Interpreter(model_content=content)
    assert interpreter.get_input_details()[0]["shape_signature"].tolist() == [1, 2, 5, 4]
    onnx.save(proto, tmp_path / "resized.onnx")
    words = ["convert", str(tmp_path / "resized.onnx"), "-o", str(tmp_path / "made.weftlite")]
    assert main([*words, "--shape", "x=1,2,5,4"]) == 0
    assert (tmp_path / "made.weftlite").read_bytes() == content


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(wf.errors.InvalidArgumentError, match=r"input 'x'.*\[1,2,\?,\?\]"):
        Converter.from_onnx(resized(), shapes={"x": [1, 3, 5, 4]})
    with pytest.raises(wf.errors.InvalidArgumentError, match=r"inputs \['x'\], got \['z'\]"):
        Converter.from_onnx(resized(), shapes={"z": [1]})
    with wf.Graph().as_default() as graph:
        x = wf.placeholder(wf.float32, [None, 3], name="x")
        y = wf.exp(x)
    with pytest.raises(wf.errors.InvalidArgumentError, match=r"input 'x' has shape \[\?,3\]"):
        Converter(graph, [x], [y], shapes={"x": [2, 4]})
    with pytest.raises(
        wf.errors.NotFoundError, match=r"names that are not inputs: \['z'\]; the inputs are \['x'\]"
    ):
        Converter(graph, [x], [y], shapes={"z": [2, 3]})


@pytest.mark.parametrize("source", ["graph", "session", "frozen", "saved", "checkpoint"])
def test_all_sources_take_shapes(source: str, tmp_path: Path) -> None:
    """A graph whose result has a size that bounds alone do not tell."""
    value = normal(2, 3)
    with wf.Graph().as_default() as graph, wf.Session() as session:
        x = wf.placeholder(wf.float32, [None, 3], name="x")
        rows = wf.cast(wf.ceil(wf.cast(wf.shape(x)[0], wf.float64) * 1.5), wf.int32)
        bias = wf.get_variable("bias", [3], initializer=wf.ones_initializer())
        if source == "graph":
            bias = wf.constant(1.0)
        y = wf.identity(wf.fill([rows, 1], 2.0) * wf.reduce_sum(x + bias, 0, True), name="y")
        session.run(wf.global_variables_initializer())
        expected, shapes = session.run(y, {x: value}), {"x": value.shape}
        if source == "graph":
            made = Converter(graph, [x], [y], shapes=shapes)
        elif source == "session":
            made = Converter.from_session(session, [x], [y], shapes=shapes)
        elif source == "frozen":
            freeze = wf.graph_util.convert_variables_to_constants
            frozen = freeze(session, session.graph_def, ["y"])
            made = Converter.from_frozen_graph(frozen, ["x"], ["y"], shapes=shapes)
        elif source == "saved":
            wf.saved_model.simple_save(session, str(tmp_path / "m"), {"x": x}, {"y": y})
            made = Converter.from_saved_model(tmp_path / "m", shapes=shapes)
        else:
            prefix = wf.train.Saver().save(session, str(tmp_path / "c"))
            made = Converter.from_checkpoint(prefix, ["x"], ["y"], shapes=shapes)
    np.testing.assert_allclose(run_file(made.convert(), x=value), expected, 1e-5)


def test_shapes_that_broadcast_while_sizes_are_open() -> None:
    with wf.Graph().as_default() as graph:
        x = wf.placeholder(wf.float32, [None, 3], name="x")
        z = wf.placeholder(wf.float32, [4, None, 1], name="z")
        shape = wf.broadcast_dynamic_shape(wf.shape(x), wf.shape(z))
        y = wf.identity(wf.broadcast_to(x, shape) + wf.broadcast_to(z, shape), name="y")
    content = Converter(graph, [x, z], [y], {"x": [5, 3], "z": [4, 5, 1]}).convert()
    for rows, others in ((5, 5), (1, 5), (3, 1), (2, 2)):
        interpreter = Interpreter(model_content=content)
        values = normal(rows, 3), normal(4, others, 1)
        for index, value in enumerate(values):
            interpreter.resize_tensor_input(index, value.shape)
        found = interpreter.get_signature_runner()(x=values[0], z=values[1])["y"]
        np.testing.assert_allclose(found, sum(np.broadcast_arrays(*values)), 1e-6)


W = {n: normal(3, 3, 3, n) for n in (2, 8)}
BIAS = normal(8)
NCHW = {
    "conv": lambda x: wf.nn.conv2d(x, W[8], [1, 1, 2, 1], "SAME", data_format="NCHW"),
    "explicit": lambda x: wf.nn.conv2d(
        x, W[8], [1, 1, 1, 1], [[0, 0], [0, 0], [1, 0], [2, 1]], data_format="NCHW"
    ),
    "depthwise": lambda x: wf.nn.depthwise_conv2d(
        x, W[2], [1, 1, 1, 1], "SAME", data_format="NCHW"
    ),
    "transposed": lambda x: wf.nn.conv2d_transpose(
        x, np.moveaxis(W[8], 3, 2), [2, 8, 19, 17], [1, 1, 2, 2], "VALID", "NCHW"
    ),
    "pools": lambda x: (
        wf.nn.max_pool(x, [1, 1, 2, 3], [1, 1, 2, 1], "SAME", "NCHW")
        + wf.nn.avg_pool(x, [1, 1, 2, 3], [1, 1, 2, 1], "SAME", "NCHW")
    ),
    "batch norm": lambda x: wf.layers.batch_normalization(x, axis=1),
    "bias of lines": lambda x: wf.nn.bias_add(wf.reshape(x, [2, 3, 72]), BIAS[:3], "NCHW"),
    "to depth": lambda x: wf.nn.space_to_depth(x[:, :, :8], 2, data_format="NCHW"),
    "to space": lambda x: wf.nn.depth_to_space(
        wf.reshape(x[:, :2], [2, 4, 4, 9]), 2, data_format="NCHW"
    ),
}


@pytest.mark.parametrize("name", NCHW)
def test_images_with_the_channels_first(name: str) -> None:
    value = normal(2, 3, 9, 8)
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, value.shape, name="x")
        y = wf.identity(NCHW[name](x), name="y")
        session.run(wf.global_variables_initializer())
        expected = session.run(y, {x: value})
        content = Converter.from_session(session, [x], [y]).convert()
    np.testing.assert_allclose(run_file(content, x=value), expected, 1e-4, 1e-5)


def test_neighbors_with_the_channels_first_are_transposed_once() -> None:
    with wf.Graph().as_default() as graph:
        x = wf.placeholder(wf.float32, [1, 3, 9, 8], name="x")
        h = wf.nn.bias_add(NCHW["conv"](x), BIAS, "NCHW")
        y = wf.nn.max_pool(wf.nn.relu(h), [1, 1, 2, 2], [1, 1, 2, 2], "SAME", "NCHW", name="y")
    content = Converter(graph, [x], [y]).convert()
    assert kinds(content) == ["Transpose", "Conv2D", "MaxPool", "Transpose"]


def test_branches_do_not_share_transposed_images() -> None:
    with wf.Graph().as_default() as graph:
        x = wf.placeholder(wf.float32, [2, 3, 9, 8], name="x")
        flag = wf.placeholder(wf.bool, [], name="flag")
        taken = wf.cond(flag, lambda: NCHW["conv"](x), lambda: NCHW["conv"](x) * 2.0)
        y = wf.identity(taken + NCHW["conv"](x), name="y")
        with wf.Session() as session:
            value = normal(2, 3, 9, 8)
            content = Converter(graph, [x, flag], [y]).convert()
            for given in (True, False):
                expected = session.run(y, {x: value, flag: given})
                found = run_file(content, x=value, flag=given)
                np.testing.assert_allclose(found, expected, 1e-4, 1e-5)


def test_errors_show_the_line_that_made_the_node_or_none(tmp_path: Path) -> None:
    """The error is not that of the call that converts or reads a file."""

    def refused(made: Converter) -> str:
        with pytest.raises(wf.errors.UnimplementedError) as caught:
            made.convert()
        return str(caught.value)

    with wf.Graph().as_default() as graph, wf.Session() as session:
        x = wf.placeholder(wf.float32, [2, 2], name="x")
        y = wf.linalg.inv(x * wf.get_variable("v", initializer=2.0), name="y")
        line = test_errors_show_the_line_that_made_the_node_or_none.__code__.co_firstlineno + 10
        session.run(wf.global_variables_initializer())
        wf.saved_model.simple_save(session, str(tmp_path / "m"), {"x": x}, {"y": y})
        prefix = wf.train.Saver().save(session, str(tmp_path / "c"))
        frozen = wf.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), ["y"])
        from_session = refused(Converter.from_session(session, [x], [y]))
        pinned = refused(Converter(graph, [x], [wf.linalg.inv(x)], shapes={"x": [2, 2]}))
    assert (
        "y (MatrixInverse): lite does not support the op: convert the parts before and after it "
        f"to separate files; made at {__file__}:{line} in" in from_session
    )
    assert f"made at {__file__}:" in pinned
    node = H.make_node("Det", ["x"], ["y"])
    for made in (
        Converter.from_frozen_graph(frozen, ["x"], ["y"]),
        Converter.from_saved_model(tmp_path / "m"),
        Converter.from_checkpoint(prefix, ["x"], ["y"]),
        Converter.from_onnx(model([node], [info("x", [2, 2])], {})),
    ):
        text = refused(made)
        assert "lite does not support the op" in text and "made at" not in text


def test_training_mode_says_what_to_do() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [2, 3, 9, 8], name="x")
        y = wf.layers.batch_normalization(x, training=True)
        session.run(wf.global_variables_initializer())
        made = Converter.from_session(session, [x], [y])
        with pytest.raises(wf.errors.UnimplementedError) as caught:
            made.convert()
    assert "convert a graph built with training=False" in str(caught.value)
    line = test_training_mode_says_what_to_do.__code__.co_firstlineno + 3
    assert f"made at {__file__}:{line} in" in str(caught.value)


def test_a_bound_number_removes_the_branch_that_does_not_match_the_shapes() -> None:
    """As in detectors of speech, whose window depends on the sampling rate."""
    weights = {"wide": normal(8, 4), "narrow": normal(4, 4), "rate": np.array(16000)}
    branches = [
        H.make_graph([H.make_node("MatMul", ["x", name], [f"{name}_y"])], name, [], [
            info(f"{name}_y", None)
        ])
        for name in ("wide", "narrow")
    ]  # fmt: skip
    nodes = [
        H.make_node("Equal", ["sr", "rate"], ["c"]),
        H.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    inputs = [info("x", ["n", "w"]), info("sr", [], onnx.TensorProto.INT64)]
    proto, value = model(nodes, inputs, weights), normal(2, 8)
    with pytest.raises(wf.errors.OpError, match="narrow"):
        Converter.from_onnx(proto, shapes={"x": [2, 8]}).convert()
    content = Converter.from_onnx(proto, values={"sr": 16000}, shapes={"x": [2, 8]}).convert()
    assert kinds(content) == ["FullyConnected"]
    np.testing.assert_allclose(run_file(content, x=value), value @ weights["wide"], 1e-4, 1e-5)


def test_all_refused_nodes_of_a_model_are_listed() -> None:
    """Those that cannot be imported, and then those that lite cannot compute."""
    nodes = [
        H.make_node("Strange", ["x"], ["a"], name="first"),
        H.make_node("Reshape", ["x", "form"], ["b"], name="fine"),
        H.make_node("Tile", ["b", "form"], ["c"], name="second", domain="other"),
        H.make_node("Conv", ["x", "kernel"], ["y"], name="third"),
    ]
    given = [info("x", [1, 1, 3, 3, 3, 3]), info("form", [2], onnx.TensorProto.INT64)]
    made = model(nodes, given, {"kernel": normal(1, 1, 1, 1, 1, 1)})
    made.opset_import.append(H.make_opsetid("other", 1))
    with pytest.raises(wf.errors.UnimplementedError) as caught:
        Converter.from_onnx(made)
    lines = caught.value.message.splitlines()[1:]
    assert [word for line in lines for word in ("first", "second", "third") if word in line] == [
        "first",
        "second",
        "third",
    ]
    assert all("register an importer" in line for line in lines)

    chain = [
        H.make_node("Det", ["x"], ["a"], name="first"),
        H.make_node("Unique", ["x"], ["b"], name="second"),
        H.make_node("NonZero", ["x"], ["c"], name="third"),
        H.make_node("Shape", ["c"], ["e"]),
        H.make_node("Shape", ["b"], ["d"]),
        H.make_node("Concat", ["d", "e"], ["y"], axis=0),
    ]
    computed = model(chain, [info("x", [3, 3])], {}, info("y", None, onnx.TensorProto.INT64))
    computed.graph.output.append(info("a", None))
    with pytest.raises(wf.errors.UnimplementedError) as caught:
        Converter.from_onnx(computed).convert()
    assert [name for name in ("first", "second", "third") if name in str(caught.value)] == [
        "first",
        "second",
        "third",
    ]

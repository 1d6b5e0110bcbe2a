"""Import of ONNX models: resulting graphs, and errors."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import weft as wf  # noqa: E402
from weft_tensor import errors  # noqa: E402

FLOAT = TensorProto.FLOAT


def _value(name: str, *shape: int | str, dtype: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def _model(nodes: Any, inputs: Any, outputs: Any, weights: Any = (), **more: Any) -> Any:
    tensors = [numpy_helper.from_array(value, name) for name, value in dict(weights).items()]
    graph = helper.make_graph(nodes, "net", inputs, outputs, tensors)
    more.setdefault("opset_imports", [helper.make_opsetid("", 21)])
    return helper.make_model(graph, **more)


def _dense() -> Any:
    weights = {
        "w": np.arange(6, dtype=np.float32).reshape(3, 2),
        "b": np.array([1, -1], np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="fc/matmul"),
        helper.make_node("Add", ["h", "b"], ["y"], name="fc::add"),
    ]
    return _model(nodes, [_value("x", "batch", 3)], [_value("y", "batch", 2)], weights)


def test_a_model_is_nodes_of_the_default_graph(tmp_path: Path) -> None:
    path = tmp_path / "dense.onnx"
    onnx.save(_dense(), path)
    x = np.ones((4, 3), np.float32)
    for source in (path, str(path), path.read_bytes(), _dense()):
        with wf.Graph().as_default() as graph:
            model = wf.onnx.import_model(source)
            assert model.graph is graph
            assert model.inputs["x"].shape.as_list() == [None, 3]
            assert model.outputs["y"].shape.as_list() == [None, 2]
            with wf.Session() as session:
                found = session.run(model.outputs["y"], {model.inputs["x"]: x})
        np.testing.assert_array_equal(found, np.tile([[7.0, 8.0]], (4, 1)))


def test_tensors_stand_in_for_inputs() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        doubled = wf.constant([[1.0, 1.0, 1.0]]) * 2.0
        model = wf.onnx.import_model(_dense(), inputs={"x": doubled, "b": [0.0, 0.0]})
        assert session.run(model.outputs["y"]).tolist() == [[12.0, 18.0]]
        with pytest.raises(errors.InvalidArgumentError, match=r"inputs \['x'\], got \['z'\]"):
            wf.onnx.import_model(_dense(), inputs={"z": doubled})


def test_imported_weights_train() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        model = wf.onnx.import_model(_dense(), trainable=True)
        assert set(model.variables) == {"w", "b"}
        loss = wf.reduce_mean(wf.square(model.outputs["y"] - 1.0))
        step = wf.train.GradientDescentOptimizer(0.02).minimize(loss)
        session.run(wf.global_variables_initializer())
        feeds = {model.inputs["x"]: np.ones((4, 3), np.float32)}
        first = session.run(loss, feeds)
        for _ in range(50):
            session.run(step, feeds)
        assert session.run(loss, feeds) < first / 100


def test_statistics_of_batches_are_no_trainable_weights() -> None:
    weights = {name: np.ones(2, np.float32) for name in ("scale", "bias", "mean", "variance")}
    node = helper.make_node("BatchNormalization", ["x", *weights], ["y"])
    model = _model([node], [_value("x", 1, 2, 3)], [_value("y", 1, 2, 3)], weights)
    with wf.Graph().as_default():
        found = wf.onnx.import_model(model, trainable=True)
        trained = {each.op.name.rsplit("/", 1)[-1] for each in wf.trainable_variables()}
    assert set(found.variables) == set(weights)
    assert trained == {"scale", "bias"}


def test_all_nodes_have_the_line_that_imports_them() -> None:
    with wf.Graph().as_default() as graph:
        wf.onnx.import_model(_dense())
        after = wf.constant(1.0)
    lines = {node.line for node in graph.nodes if node is not after.node}
    (line,) = lines
    assert "test_all_nodes_have" in line and line != after.node.line


def test_constants_are_weights_too() -> None:
    model = _dense()
    for tensor in model.graph.initializer:
        node = helper.make_node("Constant", [], [tensor.name], value=tensor)
        model.graph.node.insert(0, node)
    del model.graph.initializer[:]
    with wf.Graph().as_default(), wf.Session() as session:
        found = wf.onnx.import_model(model, trainable=True)
        session.run(wf.global_variables_initializer())
        feeds = {found.inputs["x"]: np.ones([1, 3], np.float32)}
        loss = wf.reduce_sum(found.outputs["y"])
        before = session.run(loss, feeds)
        session.run(wf.train.GradientDescentOptimizer(0.1).minimize(loss), feeds)
        assert session.run(loss, feeds) < before
    assert set(found.variables) == {"w", "b"}


def test_control_flow_sees_values_around_it() -> None:
    then = helper.make_graph(
        [helper.make_node("Mul", ["x", "two"], ["a"])], "then", [], [_value("a", 2)]
    )
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["b"])], "else", [], [_value("b", 2)])
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    inputs = [_value("c", dtype=TensorProto.BOOL), _value("x", 2)]
    model = _model([node], inputs, [_value("y", 2)], {"two": np.float32([2.0])})
    for condition, expected in ((True, [2.0, 6.0]), (False, [-1.0, -3.0])):
        found = wf.onnx.Backend.run_model(model, [condition, np.float32([1, 3])])
        assert found[0].tolist() == expected


def test_a_gradient_goes_through_a_loop() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["v", "x"], ["w"]),
            helper.make_node("Identity", ["c"], ["d"]),
        ],
        "body",
        [_value("i", dtype=TensorProto.INT64), _value("c", dtype=TensorProto.BOOL), _value("v")],
        [_value("d", dtype=TensorProto.BOOL), _value("w")],
    )
    node = helper.make_node("Loop", ["n", "", "one"], ["y"], body=body)
    weights = {"n": np.array(3, np.int64), "one": np.float32(1)}
    model = _model([node], [_value("x")], [_value("y")], weights)
    with wf.Graph().as_default(), wf.Session() as session:
        found = wf.onnx.import_model(model)
        (slope,) = wf.gradients(found.outputs["y"], found.inputs["x"])
        values = session.run([found.outputs["y"], slope], {found.inputs["x"]: 2.0})
    assert values == [8.0, 12.0]


def test_a_layer_normalization_is_few_nodes() -> None:
    """A transformer has dozens; ONNX's own definition of each is some seventy nodes."""
    weights = {"scale": np.float32([1, 2, 3]), "bias": np.float32([0, 1, 0])}
    node = helper.make_node("LayerNormalization", ["x", *weights], ["y"], axis=-1)
    model = _model([node], [_value("x", "n", 3)], [_value("y", "n", 3)], weights)
    x = np.float32([[1, 2, 6], [0, 0, 3]])
    with wf.Graph().as_default() as graph, wf.Session() as session:
        found = wf.onnx.import_model(model)
        values = session.run(found.outputs["y"], {found.inputs["x"]: x})
        assert len(graph.get_operations()) < 20
    normal = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(values, normal * [1, 2, 3] + [0, 1, 0], rtol=1e-5)


def test_a_strangers_rule() -> None:
    @wf.onnx.importer("Half", domain="com.example")
    def half(operation: Any) -> Any:
        return operation[0] * operation.attribute("factor", 0.5)

    node = helper.make_node("Half", ["x"], ["y"], domain="com.example")
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.example", 1)]
    model = _model([node], [_value("x", 2)], [_value("y", 2)], opset_imports=imports)
    assert wf.onnx.Backend.run_model(model, [np.float32([2, 4])])[0].tolist() == [1.0, 2.0]


def test_functions_of_the_model() -> None:
    function = helper.make_function(
        "local", "Scaled", ["a"], ["b"],
        [
            helper.make_node("Constant", [], ["f"]),
            helper.make_node("Mul", ["a", "f"], ["b"]),
        ],
        [helper.make_opsetid("", 21)], ["factor"],
    )  # fmt: skip
    reference = onnx.AttributeProto(name="value_float", ref_attr_name="factor")
    reference.type = onnx.AttributeProto.FLOAT
    function.node[0].attribute.append(reference)
    node = helper.make_node("Scaled", ["x"], ["y"], domain="local", factor=3.0)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    inputs, outputs = [_value("x", 2)], [_value("y", 2)]
    model = _model([node], inputs, outputs, functions=[function], opset_imports=imports)
    assert wf.onnx.Backend.run_model(model, [np.float32([1, 2])])[0].tolist() == [3.0, 6.0]
    function.node.append(helper.make_node("Scaled", ["b"], ["c"], domain="local"))
    model = _model([node], inputs, outputs, functions=[function], opset_imports=imports)
    with wf.Graph().as_default(), pytest.raises(errors.InvalidArgumentError, match="calls itself"):
        wf.onnx.import_model(model)


# --------------------------------------------------------------------------- bad input


def _calls(count: int, times: int) -> Any:
    """A chain of functions, each of which calls the next one some times."""
    opsets = [helper.make_opsetid("d", 1), helper.make_opsetid("", 21)]
    functions = []
    for i in range(count):
        names = ["x", *(f"t{j}" for j in range(times))]
        inner = [helper.make_node(f"F{i + 1}", [a], [b], domain="d") for a, b in pairwise(names)]
        functions.append(helper.make_function("d", f"F{i}", ["x"], [names[-1]], inner, opsets))
    last = [helper.make_node("Relu", ["x"], ["y"])]
    functions.append(helper.make_function("d", f"F{count}", ["x"], ["y"], last, opsets[1:]))
    call = helper.make_node("F0", ["x"], ["y"], domain="d")
    return _model(
        [call], [_value("x", 1)], [_value("y", 1)], functions=functions, opset_imports=opsets
    )


def test_functions_do_not_unfold_without_end() -> None:
    with wf.Graph().as_default() as graph:
        with pytest.raises(
            errors.ResourceExhaustedError, match=r"ONNX node .*the model's functions expand"
        ):
            wf.onnx.import_model(_calls(14, 2))  # 32,767 nodes of a file of 2 kB
        assert not graph.get_operations(), "it is seen before anything is added"
        with pytest.raises(errors.ResourceExhaustedError, match="50 deep"):
            wf.onnx.import_model(_calls(300, 1))
        wf.onnx.import_model(_calls(20, 1))


@pytest.mark.parametrize(
    ("node", "match"),
    [
        (helper.make_node("Split", ["x"], ["y"], num_outputs=10**9), "Split supports 1 to"),
        (
            helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[10**5] * 2, dilations=[2, 2]),
            "windows must",
        ),
        (helper.make_node("LRN", ["x"], ["y"], size=10**9), "LRN sums 1 to"),
        (
            helper.make_node("ConvTranspose", ["x", "x"], ["y"], group=10**8),
            "group of ConvTranspose must divide",
        ),
        (
            helper.make_node("LpPool", ["x"], ["y"], kernel_shape=[1, 9], pads=[10**8, 0, 0, 0]),
            "of LpPool enlarges",
        ),
    ],
)
def test_attributes_make_no_nodes_without_end(node: Any, match: str) -> None:
    model = _model([node], [_value("x", 1, 1, 4, 4)], [_value("y", "a", "b", "c", "d")])
    with wf.Graph().as_default(), pytest.raises(errors.OpError, match=match):
        wf.onnx.import_model(model)


@pytest.mark.parametrize(
    ("node", "shape", "match"),
    [
        (helper.make_node("Col2Im", ["x", "big", "block"], ["y"]), (1, 4, 4), "windows of Col2Im"),
        (helper.make_node("Col2Im", ["x", "block", "big"], ["y"]), (1, 4, 4), "of Col2Im"),
        (
            helper.make_node("Pad", ["x", "pads"], ["y"], mode="edge"),
            (4, 4),
            "more than the address",
        ),
        (helper.make_node("Expand", ["one", "big"], ["y"]), (1,), "more than the address space"),
        (
            helper.make_node("Resize", ["x", "", "", "big"], ["y"]),
            (4, 4),
            "more than the address space",
        ),
    ],
)
def test_what_no_memory_holds_is_refused_at_once(
    node: Any, shape: tuple[int, ...], match: str
) -> None:
    node.name = "here"
    weights = {
        "big": np.full(2, 10**8),
        "pads": np.full(4, 10**8),
        "block": np.full(2, 2),
        "one": np.ones(1, np.float32),
    }
    model = _model([node], [_value("x", *shape)], [_value("y", "a", "b", "c", "d")], weights)
    with wf.Graph().as_default(), pytest.raises(errors.OpError, match=f"'here'.* {match}"):
        wf.onnx.import_model(model)


def test_windows_that_do_not_fit_are_refused_before_they_are_listed() -> None:
    node = helper.make_node("Col2Im", ["x", "image", "block"], ["y"])
    model = _model(
        [node],
        [_value("x", 1, 4, 4), _value("image", 2, dtype=7), _value("block", 2, dtype=7)],
        [_value("y", "a", "b", "c", "d")],
    )
    prepared = wf.onnx.Backend.prepare(model)
    x = np.ones([1, 4, 4], np.float32)
    with prepared.session:
        (y,) = prepared.run([x, [3, 3], [2, 2]])
        assert y.shape == (1, 1, 3, 3) and y[0, 0, 1, 1] == 4
        with pytest.raises(errors.InvalidArgumentError, match="windows of Col2Im"):
            prepared.run([x, [10**8, 10**8], [2, 2]])


def test_a_result_that_is_left_out_names_its_node() -> None:
    weights = {name: np.ones(3, np.float32) for name in "abcd"}
    node = helper.make_node("BatchNormalization", ["x", *"abcd"], ["y", "mean", "var"], name="here")
    model = _model([node], [_value("x", 1, 3, 4, 4)], [_value("mean", 3)], weights)
    with (
        wf.Graph().as_default(),
        pytest.raises(errors.OpError, match=r"'here'.*'mean' is a result that is left out"),
    ):
        wf.onnx.import_model(model)


@pytest.mark.parametrize(
    ("node", "match"),
    [
        (helper.make_node("Flatten", ["x"], ["y"], axis=1.5), "'axis' must be of the type INT"),
        (helper.make_node("Conv", ["x", "x"], ["y"], strides="ab"), "'strides' must be .* INTS"),
        (helper.make_node("Conv", ["x", "x"], ["y"], pads=[0.5] * 4), "'pads' must be .* INTS"),
        (helper.make_node("Elu", ["x"], ["y"], alpha="a"), "'alpha' must be of the type FLOAT"),
        (helper.make_node("If", ["x"], ["y"], then_branch=1.0), "'then_branch' must be .* GRAPH"),
    ],
)
def test_attributes_are_of_the_types_of_their_ops(node: Any, match: str) -> None:
    node.name = "here"
    model = _model([node], [_value("x", 1, 1, 4, 4)], [_value("y", "a", "b", "c", "d")])
    with (
        wf.Graph().as_default(),
        pytest.raises(errors.InvalidArgumentError, match=f"'here'.* {match}"),
    ):
        wf.onnx.import_model(model)


def test_a_number_that_is_left_out() -> None:
    model = _model([helper.make_node("TopK", ["x"], ["y", "i"], name="here")], [_value("x", 4)], [])
    with (
        wf.Graph().as_default(),
        pytest.raises(errors.InvalidArgumentError, match=r"'here' .*TopK requires k"),
    ):
        wf.onnx.import_model(model)


def test_all_unknown_ops_are_listed_at_once() -> None:
    inner = helper.make_graph(
        [helper.make_node("Odd", [], ["o"], name="c")], "g", [], [_value("o")]
    )
    nodes = [
        helper.make_node("Strange", ["x"], ["h"], name="a"),
        helper.make_node("Strange", ["h"], ["i"], name="b", body=inner),
        helper.make_node("Relu", ["i"], ["y"]),
    ]
    model = _model(nodes, [_value("x", 2)], [_value("y", 2)])
    with pytest.raises(errors.UnimplementedError, match=r"Odd \('c'\) (.|\n)*Strange \('a', 'b'\)"):
        wf.onnx.import_model(model)


def refused_model() -> Any:
    """A model with an unknown op, a computed parameter, too many axes, and a node after them."""
    weights = {"kernel": np.ones((1,) * 6, "float32"), "scales": np.ones(4, "float32")}
    bits = {"domain": "com.microsoft", "K": 16, "N": 4, "block_size": 16}
    nodes = [
        helper.make_node("Strange", ["x"], ["a"], name="first"),
        helper.make_node("MatMulNBits", ["x", "w", "scales"], ["b"], name="second", **bits),
        helper.make_node("Conv", ["image", "kernel"], ["c"], name="third"),
        helper.make_node("Add", ["a", "b"], ["e"], name="dependent"),
        helper.make_node("Relu", ["x"], ["y"], name="fine"),
    ]
    inputs = [
        _value("x", 2, 16),
        _value("w", 4, 1, 8, dtype=TensorProto.UINT8),
        _value("image", 1, 1, 3, 3, 3, 3),
    ]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    outputs = [_value("y", 2, 16), _value("e", 2, 4)]
    return _model(nodes, inputs, outputs, weights, opset_imports=opsets)


def test_all_refused_nodes_are_listed_with_remedies() -> None:
    with wf.Graph().as_default() as graph, pytest.raises(errors.UnimplementedError) as caught:
        wf.onnx.import_model(refused_model())
    lines = caught.value.message.splitlines()
    assert [line.strip().split(";")[0] for line in lines[1:]] == [
        "Strange ('first') is an unknown op",
        "ONNX node 'second' (MatMulNBits): weights of MatMulNBits must be a constant of the model",
        "ONNX node 'third' (Conv): Conv over 4 axes is not supported",
    ]
    assert "register an importer" in lines[1]
    assert "fold it before the export" in lines[2]
    assert "export another form" in lines[3]
    assert caught.value.details["onnx_nodes"] == ["first", "second", "third"]
    assert not graph.get_operations()


def test_errors_name_the_node() -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    model = _model([node], [_value("x", 2, 5)], [_value("y", 2, 2)], {"w": np.zeros((3, 2), "f")})
    with wf.Graph().as_default(), pytest.raises(errors.InvalidArgumentError) as caught:
        wf.onnx.import_model(model)
    assert "ONNX node 'product' (MatMul)" in str(caught.value)


@pytest.mark.parametrize(
    ("nodes", "match"),
    [
        (
            [helper.make_node("Relu", ["gone"], ["y"])],
            "input 'gone' is not produced by an earlier node",
        ),
        (
            [helper.make_node("Relu", ["z"], ["y"]), helper.make_node("Relu", ["y"], ["z"])],
            "'z' is not produced by an earlier node",
        ),
        (
            [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Abs", ["x"], ["y"])],
            "several values have the name 'y'",
        ),
        ([helper.make_node("Relu", [], ["y"])], "Relu lacks its required input 0"),
        ([helper.make_node("Concat", ["x", "x"], ["y"], axis=7)], "axis"),
        ([helper.make_node("Unsqueeze", ["x"], ["y"], axes=[0, 3])], r"in \[-3, 3\), got \[0, 3\]"),
        (
            [helper.make_node("Unsqueeze", ["x"], ["y"], axes=[-4, 0])],
            r"in \[-3, 3\), got \[-4, 0\]",
        ),
        (
            [
                helper.make_node("Unsqueeze", ["x", "axes"], ["image"]),
                helper.make_node("MaxPool", ["image"], ["y"], kernel_shape="ab", name="pool"),
            ],
            r"ONNX node 'pool' \(MaxPool\): the attribute 'kernel_shape' must be of the type INTS",
        ),
        (
            [helper.make_node("Relu", ["x"], ["other"])],
            "the model's output 'y' is not produced by an earlier node",
        ),
    ],
)
def test_damaged_graphs(nodes: Any, match: str) -> None:
    weights = {"axes": np.array([0, 1, 2])}
    model = _model(nodes, [_value("x", 2)], [_value("y", 2)], weights)
    with wf.Graph().as_default(), pytest.raises(errors.InvalidArgumentError, match=match):
        wf.onnx.import_model(model)


def test_inputs_have_names_of_their_own() -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    model = _model([node], [_value("x", 2), _value("x", 3)], [_value("y", 2)])
    with (
        wf.Graph().as_default(),
        pytest.raises(errors.InvalidArgumentError, match="several inputs with the same name"),
    ):
        wf.onnx.import_model(model)


def test_trees_do_not_go_down_without_end() -> None:
    depth = 1001
    rest, leaves = 2 * depth + 1, depth + 1
    node = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=[0] * rest,
        nodes_nodeids=range(rest),
        nodes_featureids=[0] * rest,
        nodes_modes=["BRANCH_LEQ"] * depth + ["LEAF"] * leaves,
        nodes_values=[0.0] * rest,
        nodes_truenodeids=[*range(1, depth + 1), *[0] * leaves],
        nodes_falsenodeids=[*range(depth + 1, rest), *[0] * leaves],
        target_treeids=[0],
        target_nodeids=[depth],
        target_ids=[0],
        target_weights=[1.0],
    )
    versions = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    model = _model([node], [_value("x", 1, 1)], [_value("y", 1, 1)], opset_imports=versions)
    with wf.Graph().as_default(), pytest.raises(errors.ResourceExhaustedError, match="tests deep"):
        wf.onnx.import_model(model)


def test_files_that_are_no_models(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match="no file"):
        wf.onnx.import_model(tmp_path / "none.onnx")
    for data in (b"", b"\xff" * 100, _dense().SerializeToString()[:-40]):
        with wf.Graph().as_default(), pytest.raises(errors.InvalidArgumentError):
            wf.onnx.import_model(data)
    with pytest.raises(errors.InvalidArgumentError, match="path, bytes or a ModelProto"):
        wf.onnx.import_model(3)


@pytest.mark.parametrize(
    "location", ["../secret", "/etc/hostname", "", "none", "link", "nul\0", "a" * 5000]
)
def test_external_data_stays_in_its_folder(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(24))
    (folder / "link").symlink_to(tmp_path / "secret")
    model = _dense()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    match = "a file in the model's folder"
    with wf.Graph().as_default(), pytest.raises(errors.InvalidArgumentError, match=match):
        wf.onnx.import_model(folder / "m.onnx")


def test_external_data_is_read_in_place(tmp_path: Path) -> None:
    onnx.save(
        _dense(), tmp_path / "m.onnx", save_as_external_data=True, location="w", size_threshold=0
    )
    x = np.ones((1, 3), np.float32)
    found = wf.onnx.Backend.run_model(tmp_path / "m.onnx", {"x": x})
    assert found[0].tolist() == [[7.0, 8.0]]
    (tmp_path / "w").write_bytes(bytes(3))
    with wf.Graph().as_default(), pytest.raises(errors.InvalidArgumentError, match="are available"):
        wf.onnx.import_model(tmp_path / "m.onnx")


@pytest.mark.parametrize("kind", ["INT4", "UINT4", "INT2", "UINT2", "FLOAT4E2M1"])
def test_elements_of_less_than_a_byte_beside_the_model(tmp_path: Path, kind: str) -> None:
    values = [0, 1, 0, 1, 1]
    weights = helper.make_tensor("w", TensorProto.DataType.Value(kind), [5], values)
    weights = numpy_helper.from_array(numpy_helper.to_array(weights), "w")
    nodes = [helper.make_node("Cast", ["w"], ["y"], to=TensorProto.FLOAT)]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [5])
    graph = helper.make_graph(nodes, "g", [], [y], [weights])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)]),
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="w",
        size_threshold=0,
    )
    assert (tmp_path / "w").exists()
    assert wf.onnx.Backend.run_model(tmp_path / "m.onnx", {})[0].tolist() == values


@pytest.mark.parametrize("trainable", [True, False])
def test_a_place_in_a_file_is_a_number_of_few_digits(tmp_path: Path, trainable: bool) -> None:
    onnx.save(
        _dense(), tmp_path / "m.onnx", save_as_external_data=True, location="w", size_threshold=0
    )
    model = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    model.graph.initializer[0].external_data.add(key="offset", value="9" * 5000)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with wf.Graph().as_default(), pytest.raises(errors.InvalidArgumentError, match="a number"):
        wf.onnx.import_model(tmp_path / "m.onnx", trainable=trainable)


def _mutated(data: bytes, generator: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(generator.randint(1, 4)):
        at = generator.randrange(len(found))
        kind = generator.randrange(4)
        if kind == 0:
            found[at] = generator.randrange(256)
        elif kind == 1:
            del found[at : at + generator.randint(1, 8)]
        elif kind == 2:
            found[at:at] = bytes(generator.randrange(256) for _ in range(generator.randint(1, 8)))
        else:
            found[at] ^= 1 << generator.randrange(8)
        if not found:
            break
    return bytes(found)


def _attacked(count: int) -> None:
    data, generator = _dense().SerializeToString(), random.Random(5)
    for _ in range(count):
        with wf.Graph().as_default():
            try:
                wf.onnx.import_model(_mutated(data, generator))
            except errors.OpError:
                continue


def test_mutated_models_are_refused_in_words() -> None:
    _attacked(300)


@pytest.mark.long
def test_ten_thousand_mutated_models() -> None:
    _attacked(10_000)


@pytest.mark.parametrize(("taken", "given"), [(0, 1), (1, 1), (1, -1), (-1, 2), (2, -2), (-2, 0)])
def test_axes_of_a_scan_whose_ranks_only_a_run_knows(taken: int, given: int) -> None:
    def info(name: str) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)

    nodes = [helper.make_node("Add", ["s", "x"], ["t"]), helper.make_node("Neg", ["t"], ["y"])]
    body = helper.make_graph(nodes, "turn", [info("s"), info("x")], [info("t"), info("y")])
    axes = {"scan_input_axes": [taken], "scan_output_axes": [given]}
    scan = helper.make_node(
        "Scan", ["first", "xs"], ["last", "ys"], body=body, num_scan_inputs=1, **axes
    )
    ends = [info("first"), info("xs")], [info("last"), info("ys")]
    model = wf.onnx.import_model(helper.make_model(helper.make_graph([scan], "g", *ends)))
    xs = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    sums = np.cumsum(np.moveaxis(xs, taken, 0), 0)
    feeds = {model.inputs["first"]: np.zeros_like(sums[0]), model.inputs["xs"]: xs}
    with wf.Session() as session:
        last, ys = session.run([model.outputs["last"], model.outputs["ys"]], feeds)
    assert np.array_equal(last, sums[-1])
    assert np.array_equal(ys, -np.moveaxis(sums, 0, given))


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [-1, 1])
def test_softmax_over_an_axis_of_what_has_any_rank(op: str, axis: int) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    node = helper.make_node(op, ["x"], ["y"], axis=axis)
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]))
    for shape in ([2, 3], [2, 3, 4]):
        value = np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 50
        (found,) = wf.onnx.Backend.run_model(model, [value])
        shifted = np.exp((value - value.max(axis, keepdims=True)).astype(np.float64))
        want = shifted / shifted.sum(axis, keepdims=True)
        if op == "LogSoftmax":
            want = value - value.max(axis, keepdims=True) - np.log(shifted.sum(axis, keepdims=True))
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("dims", "rest"), [(None, ()), (["n", 2], (0, 2)), ([3, 2], (3, 2))])
def test_a_loop_without_turns_gives_no_rows(dims: Any, rest: tuple[int, ...]) -> None:
    """Undeclared sizes are 0, as in ONNX Runtime."""
    float32, kinds = TensorProto.FLOAT, (TensorProto.INT64, TensorProto.BOOL)
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Identity", ["c"], ["going"]),
        helper.make_node("Add", ["s", "x"], ["new"]),
        helper.make_node("Neg", ["new"], ["row"]),
    ]
    inputs = [info("i", kinds[0], []), info("c", kinds[1], []), info("s", float32, dims)]
    results = [info("going", kinds[1], []), info("new", float32, dims), info("row", float32, dims)]
    body = helper.make_graph(nodes, "body", inputs, results)
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "", "x"], ["last", "rows"], body=body)],
        "net",
        [info("n", kinds[0], []), info("x", float32, None)],
        [info("last", float32, None), info("rows", float32, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    x = np.ones((3, 2), np.float32)
    for count, shape in ((0, (0, *rest)), (2, (2, 3, 2))):
        last, rows = wf.onnx.Backend.run_model(model, {"n": np.int64(count), "x": x})
        assert last.shape == (3, 2)
        assert rows.shape == shape


@pytest.mark.parametrize("declared", [3, "n"])
@pytest.mark.parametrize("computed", [True, False])
@pytest.mark.parametrize("start", [-1, -2, -3, -4, -9, 1, 9])
def test_a_slice_backwards_begins_at_the_first_element_at_the_earliest(
    start: int, computed: bool, declared: int | str
) -> None:
    bounds = {"starts": [start], "ends": [-9], "axes": [1], "steps": [-1]}
    weights = {name: np.int64(each) for name, each in bounds.items()}
    given = [_value("axes", 1, dtype=TensorProto.INT64)] if computed else []
    inputs = [_value("x", 2, declared), *given]
    fed = [weights.pop("axes")] if computed else []
    node = helper.make_node("Slice", ["x", *bounds], ["y"])
    model = _model([node], inputs, [_value("y", 2, "m")], weights)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (found,) = wf.onnx.Backend.run_model(model, [x, *fed])
    assert found.tolist() == x[:, max(start, -3) :: -1].tolist()


def test_a_celu_of_a_scalar_is_one() -> None:
    nodes = [
        helper.make_node("Celu", ["x"], ["y"]),
        helper.make_node("Celu", ["x"], ["z"], alpha=2.0),
    ]
    model = _model(nodes, [_value("x")], [_value("y"), _value("z")])
    found = wf.onnx.Backend.run_model(model, [np.float32(-1.0)])
    assert [each.shape for each in found] == [(), ()]
    np.testing.assert_allclose(found, [np.expm1(-1.0), 2 * np.expm1(-0.5)], rtol=1e-6)


def test_members_of_sequences_have_ranks() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["parts"], axis=1),
        helper.make_node("SequenceInsert", ["parts", "x"], ["more"]),
        helper.make_node("SequenceAt", ["more", "at"], ["member"]),
        helper.make_node("ArgMax", ["member"], ["y"], axis=-1),
        helper.make_node("ConcatFromSequence", ["more"], ["joined"], axis=-1),
        helper.make_node("ArgMax", ["joined"], ["z"], axis=-1),
    ]
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["n", 1]) for name in ("y", "z")
    ]
    model = _model(nodes, [_value("x", "n", 3)], outputs, {"at": np.int64(-1)})
    y, z = wf.onnx.Backend.run_model(model, [np.float32([[0, 2, 1], [5, 4, 3]])])
    assert y.tolist() == [[1], [0]] and z.tolist() == [[1], [0]]


def test_members_of_sequences_have_the_ranks_of_the_branch_that_made_them() -> None:
    branches = {
        key: helper.make_graph(
            [helper.make_node("SequenceConstruct", [name], [key])],
            key,
            [],
            [helper.make_tensor_sequence_value_info(key, TensorProto.FLOAT, None)],
        )
        for key, name in (("then_branch", "x"), ("else_branch", "row"))
    }
    nodes = [
        helper.make_node("If", ["c"], ["s"], **branches),
        helper.make_node("SequenceAt", ["s", "at"], ["y"]),
    ]
    inputs = [_value("c", dtype=TensorProto.BOOL), _value("x", 2, 2)]
    weights = {"at": np.int64(0), "row": np.float32([7.0])}
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    model = _model(nodes, inputs, [out], weights)
    x = np.ones([2, 2], np.float32)
    for condition, expected in ((True, [[1.0, 1.0], [1.0, 1.0]]), (False, [7.0])):
        (found,) = wf.onnx.Backend.run_model(model, [np.bool_(condition), x])
        assert found.tolist() == expected


def _wide(dtype: Any = np.float32, count: int = 3) -> onnx.ModelProto:
    """Sums of products with weights of 16 KB and more, whose names make each begin elsewhere."""
    generator = np.random.default_rng(3)
    weights = [generator.integers(-9, 9, [64, 64]).astype(dtype) for _ in range(count)]
    names = ["w" * (index + 1) for index in range(count)]
    chain = ["x", *(f"h{index}" for index in range(count))]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_model(
        helper.make_graph(
            [
                helper.make_node("Add", [chain[index], names[index]], [chain[index + 1]])
                for index in range(count)
            ],
            "wide",
            [helper.make_tensor_value_info("x", kind, [64, 64])],
            [helper.make_tensor_value_info(chain[-1], kind, [64, 64])],
            [onnx.numpy_helper.from_array(w, name) for w, name in zip(weights, names, strict=True)],
        )
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8, np.int64])
@pytest.mark.parametrize("form", ["path", "bytes", "message"])
def test_large_weights_are_those_of_the_file(tmp_path: Path, dtype: Any, form: str) -> None:
    model = _wide(dtype, 5)
    onnx.save(model, tmp_path / "m.onnx")
    given = {
        "path": tmp_path / "m.onnx",
        "bytes": model.SerializeToString(),
        "message": model,
    }[form]
    with wf.Graph().as_default() as graph, wf.Session() as session:
        found = wf.onnx.import_model(given)
        x = np.zeros([64, 64], dtype)
        y = session.run(found.outputs["h4"], {found.inputs["x"]: x})
        constants = [each.attrs["value"] for each in graph.nodes if each.type == "Const"]
    weights = [onnx.numpy_helper.to_array(each) for each in model.graph.initializer]
    assert len(constants) == 5
    for constant, weight in zip(constants, weights, strict=True):
        np.testing.assert_array_equal(constant, weight)
        assert constant.flags.aligned
        assert not constant.flags.writeable
    np.testing.assert_array_equal(y, sum(weights))


def test_large_weights_that_do_not_fit_are_named() -> None:
    model = _wide()
    model.graph.initializer[1].raw_data = model.graph.initializer[1].raw_data[:-4]
    with wf.Graph().as_default(), pytest.raises(errors.InvalidArgumentError, match="'ww' of shape"):
        wf.onnx.import_model(model.SerializeToString())


def test_models_with_large_weights_that_are_mutated_are_those_that_protobuf_reads() -> None:
    data, generator = _wide(np.int8).SerializeToString(), random.Random(7)
    heads = [index for index in range(len(data)) if b"wide" in data[index : index + 60]]
    heads += [i for each in (b"\n\x01w", b"B\x01w", b"B\x02ww") for i in _around(data, each)]
    same = 0
    for _ in range(150):
        found = bytearray(data)
        found[generator.choice(heads)] = generator.randrange(256)
        with wf.Graph().as_default() as graph:
            try:
                wf.onnx.import_model(bytes(found))
            except errors.OpError:
                continue
        with wf.Graph().as_default() as expected:
            wf.onnx.import_model(onnx.ModelProto.FromString(bytes(found)))
        same += 1
        for ours, theirs in zip(graph.nodes, expected.nodes, strict=True):
            assert ours.name == theirs.name
            np.testing.assert_equal(ours.attrs.get("value"), theirs.attrs.get("value"))
    assert same > 20


def _around(data: bytes, text: bytes) -> Iterator[int]:
    """The places of a text in a model, and those about it."""
    at = data.find(text)
    while at >= 0:
        yield from range(max(at - 12, 0), min(at + 16, len(data)))
        at = data.find(text, at + 1)


def _memory(kind: str) -> int:
    """Bytes of this process as the system counts them: `VmRSS` now, `VmHWM` at most since reset."""
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{kind}:")[1].split()[0]) * 1024


def test_an_import_takes_the_memory_of_the_file_and_little_more(tmp_path: Path) -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pytest.skip("this system does not say what a process had at most")
    weights = [numpy_helper.from_array(np.ones([2**21], np.float32), f"w{i}") for i in range(8)]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2**21]) for name in "xy")
    node = helper.make_node("Sum", ["x", *(each.name for each in weights)], ["y"])
    onnx.save(helper.make_model(helper.make_graph([node], "g", [x], [y], weights)), tmp_path / "m")
    del weights
    size = (tmp_path / "m").stat().st_size
    with wf.Graph().as_default():
        wf.onnx.import_model(_wide().SerializeToString())
        Path("/proc/self/clear_refs").write_text("5")
        before = _memory("VmRSS")
        wf.onnx.import_model(tmp_path / "m")
        assert _memory("VmHWM") - before < 1.3 * size


@pytest.mark.parametrize("x_shape", [(3,), (2, 3), (4, 2, 3), (0, 3)])
@pytest.mark.parametrize("y_shape", [(3,), (3, 5), (4, 3, 5), (3, 0)])
@pytest.mark.parametrize("known", ["none", "x", "y"])
def test_vectors_that_only_a_step_knows_are_rows_and_columns(
    x_shape: tuple[int, ...], y_shape: tuple[int, ...], known: str
) -> None:
    x, y = np.arange(24.0)[: np.prod(x_shape)], np.arange(60.0)[: np.prod(y_shape)]
    x, y = x.reshape(x_shape), y.reshape(y_shape)
    kind = TensorProto.DOUBLE
    given = [
        helper.make_tensor_value_info(name, kind, each.shape if known == name else None)
        for name, each in (("x", x), ("y", y))
    ]
    result = helper.make_tensor_value_info("z", kind, None)
    model = _model([helper.make_node("MatMul", ["x", "y"], ["z"])], given, [result])
    (found,) = wf.onnx.Backend.run_model(model, [x, y])
    np.testing.assert_array_equal(found, np.matmul(x, y))


@pytest.mark.parametrize("size", [0, "n"])
def test_hardmax_over_no_elements_gives_none(size: int | str) -> None:
    given = _value("x", 2, size)
    node = helper.make_node("Hardmax", ["x"], ["y"])
    model = _model([node], [given], [helper.make_tensor_value_info("y", FLOAT, None)])
    (found,) = wf.onnx.Backend.run_model(model, [np.zeros((2, 0), np.float32)])
    assert found.shape == (2, 0)


def test_hardmax_of_an_axis_that_a_step_knows() -> None:
    node = helper.make_node("Hardmax", ["x"], ["y"], axis=0)
    model = _model([node], [_value("x", "n", 3)], [_value("y", "n", 3)])
    x = np.float32([[1, -np.inf, np.nan], [1, -np.inf, 9]])
    (found,) = wf.onnx.Backend.run_model(model, [x])
    assert found.tolist() == [[1, 1, 1], [0, 0, 0]]

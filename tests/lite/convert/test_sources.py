"""Sources of graphs: sessions, frozen graphs, SavedModels, checkpoints, ONNX; and state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_lite import Interpreter
from weft_lite.convert import Converter

X = np.array([[1.0, -2.0, 3.0]], np.float32)


def network() -> tuple[Any, Any]:
    x = wf.placeholder(wf.float32, [None, 3], name="x")
    return x, wf.nn.relu(wf.layers.dense(x, 2), name="y")


def through(content: bytes, **values: Any) -> Any:
    return Interpreter(model_content=content).get_signature_runner()(**values)


@pytest.fixture
def trained() -> Any:
    with wf.Graph().as_default(), wf.Session() as session:
        x, y = network()
        session.run(wf.global_variables_initializer())
        yield session, x, y, session.run(y, {x: X})


def test_a_frozen_graph_as_message_bytes_and_file(trained: Any, tmp_path: Path) -> None:
    session, _, _, wanted = trained
    freeze = wf.graph_util.convert_variables_to_constants
    frozen = freeze(session, session.graph_def, ["y"])
    path = tmp_path / "frozen.pb"
    path.write_bytes(frozen.SerializeToString())
    for given in (frozen, path.read_bytes(), path, str(path)):
        made = Converter.from_frozen_graph(given, ["x"], ["y:0"], {"x": [1, 3]})
        np.testing.assert_allclose(through(made.convert(), x=X)["y:0"], wanted, 1e-5)


def test_a_frozen_graph_that_is_none(trained: Any, tmp_path: Path) -> None:
    session = trained[0]
    with pytest.raises(wf.errors.InvalidArgumentError, match=r"not frozen: .*dense/kernel"):
        Converter.from_frozen_graph(session.graph_def, ["x"], ["y"])
    with pytest.raises(wf.errors.DataLossError, match="not a GraphDef"):
        Converter.from_frozen_graph(b"\xff\xff\xff", ["x"], ["y"])
    with pytest.raises(wf.errors.NotFoundError, match="no tensor 'z:0'"):
        Converter.from_frozen_graph(wf.Graph().as_graph_def(), ["z"], ["y"])
    with pytest.raises(FileNotFoundError):
        Converter.from_frozen_graph(tmp_path / "none.pb", ["x"], ["y"])


def test_a_saved_model_goes_by_the_names_of_its_signature(trained: Any, tmp_path: Path) -> None:
    session, x, y, wanted = trained
    wf.saved_model.simple_save(session, str(tmp_path / "m"), {"picture": x}, {"scores": y})
    made = Converter.from_saved_model(str(tmp_path / "m"), bounds={"picture": [1, 3]})
    content = made.convert(samples={"picture": X})
    np.testing.assert_allclose(through(content, picture=X)["scores"], wanted, 1e-5)
    with pytest.raises(wf.errors.NotFoundError, match=r"no signature 'other'.*serving_default"):
        Converter.from_saved_model(str(tmp_path / "m"), "other")


def test_a_checkpoint(trained: Any, tmp_path: Path) -> None:
    session, _, _, wanted = trained
    prefix = wf.train.Saver().save(session, str(tmp_path / "model"))
    made = Converter.from_checkpoint(prefix, ["x"], ["y"], {"x": [1, 3]})
    np.testing.assert_allclose(through(made.convert(), x=X)["y"], wanted, 1e-5)


def test_an_onnx_model() -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    x, y = (
        helper.make_tensor_value_info("in", 1, ["n", 3]),
        helper.make_tensor_value_info("out", 1, ["n", 2]),
    )
    weights = np.arange(6, dtype=np.float32).reshape(3, 2)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["in", "w"], ["out"])],
        "g",
        [x],
        [y],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    made = Converter.from_onnx(helper.make_model(graph), {"in": [4, 3]})
    interpreter = Interpreter(model_content=made.convert())
    interpreter.resize_tensor_input(0, [1, 3])
    assert interpreter.get_signature_runner()(**{"in": X})["out"].tolist() == (X @ weights).tolist()


def test_outputs_of_one_node_and_one_output_twice() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [4], name="x")
        a, b = wf.split(x, 2, name="halves")
        content = Converter.from_session(session, [x], [a, b, b]).convert()
    found = through(content, x=[1, 2, 3, 4])
    assert {k: v.tolist() for k, v in found.items()} == {
        "halves": [1, 2],
        "halves:1": [3, 4],
        "halves:1_1": [3, 4],
    }


@pytest.mark.parametrize("use_resource", [False, True])
def test_variables_keep_their_value_between_invocations(use_resource: bool) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [2], name="x")
        total = wf.get_variable("total", initializer=[10.0, 20.0], use_resource=use_resource)
        scale = wf.get_variable("scale", initializer=2.0, use_resource=use_resource)
        before = wf.identity(total) * scale
        with wf.control_dependencies([before]):
            added = wf.assign_add(total, x)
        y = wf.identity(wf.stack([before, added * 1.0]), name="y")
        session.run(wf.global_variables_initializer())
        content = Converter.from_session(session, [x], [y], variables=["total"]).convert()
        interpreter = Interpreter(model_content=content)
        run = interpreter.get_signature_runner()
        for _ in range(2):
            session.run(wf.global_variables_initializer())
            for value in ([1, 2], [3, 4]):
                assert run(x=value)["y"].tolist() == session.run(y, {x: value}).tolist()
            interpreter.reset_all_variables()


def test_a_variable_in_a_loop_and_a_branch() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.int32, [], name="x")
        v = wf.get_variable("v", initializer=0, use_resource=True)

        def body(i: Any) -> Any:
            with wf.control_dependencies([v.assign_add(i)]):
                return i + 1

        end = wf.while_loop(lambda i: i < x, body, [0])
        with wf.control_dependencies([end]):
            taken = wf.cond(x > 3, lambda: v.assign_add(100).read_value(), lambda: wf.identity(v))
        y = wf.identity(taken, name="y")
        session.run(wf.global_variables_initializer())
        content = Converter.from_session(session, [x], [y], variables=[v]).convert()
        run = Interpreter(model_content=content).get_signature_runner()
        for value in (3, 5, 0, 2):
            assert run(x=np.int32(value))["y"] == session.run(y, {x: value})


def test_variables_that_are_not_there() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [2], name="x")
        with pytest.raises(wf.errors.NotFoundError, match=r"no variables \['v'\]"):
            Converter.from_session(session, [x], [x + 1.0], variables=["v"])


def test_bounds_of_nothing_are_refused() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [2], name="x")
        made = Converter.from_session(session, [x], [x + 1.0], {"z": [1]})
    with pytest.raises(
        wf.errors.InvalidArgumentError, match=r"no nodes of these names in bounds: \['z'\]"
    ):
        made.convert()

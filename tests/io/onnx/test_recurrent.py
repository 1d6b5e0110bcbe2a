"""Recurrent layers: one kernel where there is one, a loop elsewhere, and gradients of the loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper
from weft_testing.onnx_evaluators import REFERENCE, answers

import weft as wf
from weft_exec.kernels import recurrent
from weft_exec.passes import prepare

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, BATCH, DEPTH, WIDTH = 4, 2, 2, 3


def _layer(op: str, batch: int = BATCH, dtype: Any = np.float32, **attributes: Any) -> Any:
    """A model of one layer, and its feeds."""
    rng = np.random.default_rng(7)
    count = 2 if attributes.get("direction") == "bidirectional" else 1
    gates = GATES[op] * WIDTH

    def drawn(*shape: int) -> Any:
        return (0.5 * rng.standard_normal(shape)).astype(dtype)

    weights = {
        "w": drawn(count, gates, DEPTH),
        "r": drawn(count, gates, WIDTH),
        "b": drawn(count, 2 * gates),
    }
    feeds = {
        "x": drawn(STEPS, batch, DEPTH),
        "lengths": rng.integers(0, STEPS + 1, batch, np.int32),
        "h": drawn(count, batch, WIDTH),
    }
    results = ["every", "last", "cell"][: 3 if op == "LSTM" else 2]
    node = helper.make_node(op, [*list("xwrb"), "lengths", "h"], results, **attributes)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT32 if name == "lengths" else kind, None)
        for name in feeds
    ]
    outputs = [helper.make_tensor_value_info(name, kind, None) for name in results]
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph([node], "net", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)]), feeds


def _ops_and_answers(model: Any, feeds: Any) -> tuple[set[str], Any]:
    with wf.Graph().as_default(), wf.Session() as session:
        found = wf.onnx.import_model(model)
        given = {found.inputs[name]: value for name, value in feeds.items()}
        metadata = wf.RunMetadata()
        options = wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE)
        values = session.run(found.outputs, given, options=options, run_metadata=metadata)
        labels = [n.timeline_label for d in metadata.step_stats.dev_stats for n in d.node_stats]
        return {label.partition(" = ")[2].partition("(")[0] for label in labels}, values


CELLS: list[tuple[str, dict[str, Any]]] = [
    ("LSTM", {}),
    ("LSTM", {"direction": "bidirectional"}),
    ("LSTM", {"direction": "reverse", "batch": 1}),
    ("LSTM", {"activations": ["Sigmoid", "Relu", "Tanh"], "dtype": np.float64}),
    ("GRU", {"dtype": np.float16}),
    ("GRU", {"batch": 1}),
    ("GRU", {"linear_before_reset": 1, "direction": "bidirectional"}),
    ("GRU", {"batch": 0}),
    ("RNN", {}),
    ("RNN", {"activations": ["Relu"], "direction": "reverse"}),
]


@pytest.mark.parametrize(("op", "form"), CELLS)
def test_the_kernel_does_what_the_loop_does(
    op: str, form: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, feeds = _layer(op, hidden_size=WIDTH, **form)
    by_kernel, found = _ops_and_answers(model, feeds)
    assert "_RecurrentLayer" in by_kernel
    assert "NextIteration" not in by_kernel
    monkeypatch.setattr(prepare, "kernels_of", lambda *_: ())
    by_loop, expected = _ops_and_answers(model, feeds)
    assert "_RecurrentLayer" not in by_loop
    tolerance = 1e-2 if form.get("dtype") is np.float16 else 1e-5
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("batch", [1, 3])
def test_directions_give_the_same_together_and_apart(
    op: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, feeds = _layer(op, batch, hidden_size=WIDTH, direction="bidirectional")
    feeds["lengths"][:] = STEPS
    _, together = _ops_and_answers(model, feeds)
    monkeypatch.setattr(recurrent, "_TOGETHER", 0)
    _, apart = _ops_and_answers(model, feeds)
    for name, value in apart.items():
        np.testing.assert_allclose(together[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("batch", [1, 3])
def test_what_is_not_finite_stays_in_its_direction(op: str, batch: int) -> None:
    model, feeds = _layer(op, batch, hidden_size=WIDTH, direction="bidirectional")
    feeds["lengths"][:] = STEPS
    _, finite = _ops_and_answers(model, feeds)
    feeds["x"][-1] = np.nan
    _, found = _ops_and_answers(model, feeds)
    # Infinities and NaNs are computed one direction at a time, which rounds differently.
    forward = found["every"][:-1, 0]
    np.testing.assert_allclose(forward, finite["every"][:-1, 0], rtol=1e-5, atol=1e-6)
    assert np.isnan(found["every"][:, 1]).all()


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_what_is_behind_the_end_of_a_sequence_is_not_seen(op: str, direction: str) -> None:
    model, feeds = _layer(op, hidden_size=WIDTH, direction=direction)
    feeds["lengths"][:] = [STEPS, STEPS - 2]
    _, expected = _ops_and_answers(model, feeds)
    feeds["x"][STEPS - 2 :, 1] = np.nan
    _, found = _ops_and_answers(model, feeds)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def test_values_go_to_the_activations_that_take_some() -> None:
    """In order: one without parameters takes none."""
    model, feeds = _layer(
        "RNN",
        hidden_size=WIDTH,
        direction="bidirectional",
        activations=["Tanh", "LeakyRelu"],
        activation_alpha=[0.5],
    )
    _, both = _ops_and_answers(model, feeds)
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor)[1:], tensor.name))
    node = model.graph.node[0]
    del node.attribute[:]
    own = {"direction": "reverse", "activations": ["LeakyRelu"], "activation_alpha": [0.5]}
    node.attribute.extend(helper.make_attribute(name, value) for name, value in own.items())
    _, one = _ops_and_answers(model, {**feeds, "h": feeds["h"][1:]})
    np.testing.assert_allclose(both["every"][:, 1:], one["every"], rtol=1e-5)


def test_a_gate_far_from_zero_is_shut_or_open() -> None:
    model, feeds = _layer("LSTM", hidden_size=WIDTH)
    feeds["x"] = np.float32([[[-500.0, 500.0]] * BATCH] * STEPS)
    _, found = _ops_and_answers(model, feeds)
    assert all(np.isfinite(value).all() for value in found.values())
    assert np.abs(found["every"]).max() > 0


def test_backward_steps_want_lengths_within_the_steps() -> None:
    model, feeds = _layer("GRU", hidden_size=WIDTH, direction="reverse")
    feeds["lengths"][0] = STEPS + 1
    with pytest.raises(wf.errors.InvalidArgumentError, match="lengths of 0 to 4"):
        _ops_and_answers(model, feeds)


def test_weights_of_other_directions_are_refused() -> None:
    model, feeds = _layer("GRU", hidden_size=WIDTH, direction="bidirectional")
    del model.graph.node[0].attribute[:]
    with pytest.raises(wf.errors.InvalidArgumentError, match="weights of 1 directions, got 2"):
        _ops_and_answers(model, feeds)


def test_what_no_kernel_does_is_a_loop() -> None:
    for form in ({"clip": 0.5}, {"activations": ["Sigmoid", "Elu", "Tanh"]}):
        ops, _ = _ops_and_answers(*_layer("LSTM", hidden_size=WIDTH, **form))
        assert "_RecurrentLayer" not in ops


@pytest.mark.parametrize(("op", "form"), [CELLS[1], CELLS[6], ("RNN", {})])
def test_gradients_are_those_of_differences(op: str, form: dict[str, Any]) -> None:
    model, feeds = _layer(op, hidden_size=WIDTH, **{**form, "dtype": np.float64})
    with wf.Graph().as_default(), wf.Session() as session:
        x, h = (wf.constant(feeds[name]) for name in "xh")
        given = {"x": x, "h": h, "lengths": wf.constant(feeds["lengths"])}
        model = wf.onnx.import_model(model, inputs=given, trainable=True)
        session.run(wf.global_variables_initializer())
        weights = [model.variables[name] for name in "wrb"]
        loss = sum(wf.reduce_sum(wf.sin(each)) for each in model.outputs.values())
        for value in (x, h, *weights):
            shape = value.shape.as_list()
            assert wf.test.compute_gradient_error(value, shape, loss, [], delta=1e-5) < 1e-6
        (slope,) = wf.gradients(loss, [h])
        shape = h.shape.as_list()
        assert wf.test.compute_gradient_error(h, shape, slope, shape, delta=1e-5) < 1e-6


def test_a_layer_survives_a_graph_def() -> None:
    model, feeds = _layer("LSTM", hidden_size=WIDTH)
    with wf.Graph().as_default() as graph, wf.Session() as session:
        found = wf.onnx.import_model(model)
        given = {found.inputs[name]: value for name, value in feeds.items()}
        expected = session.run(found.outputs["every"], given)
        names = {name: tensor.name for name, tensor in found.inputs.items()}
        result, definition = found.outputs["every"].name, graph.as_graph_def()
    with wf.Graph().as_default(), wf.Session() as session:
        wf.import_graph_def(definition, name="")
        values = session.run(result, {names[name]: value for name, value in feeds.items()})
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize(
    "attrs",
    [
        {"_same_as_op": "NoSuchOp"},
        {"_same_as_op": 3},
        {"_same_as_op": "MatMul"},
        {"_same_as_op": "Neg", "_same_as_op_T": wf.float64},
        {"_same_as_op": "_RecurrentLayer", "_same_as_op_cell": "none"},
    ],
)
def test_a_mark_that_does_not_fit_counts_for_nothing(attrs: dict[str, Any]) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        double = wf.Defun(wf.float32, **attrs)(lambda x: x * 2.0)
        assert session.run(double(wf.constant(3.0))) == 6.0


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_a_sequence_without_steps_ends_with_zeros(op: str, direction: str) -> None:
    """Its first state is not its last one, in ONNX Runtime neither."""
    model, feeds = _layer(op, 3, direction=direction, hidden_size=WIDTH)
    feeds["lengths"] = np.int32([0, 2, STEPS])
    _, found = _ops_and_answers(model, feeds)
    assert feeds["h"].all() and not found["last"][:, 0].any() and found["last"][:, 1:].all()
    for values in answers(model, feeds, [REFERENCE]):
        for name, value in zip(found, values, strict=True):
            np.testing.assert_allclose(found[name], value, 1e-4, 1e-6)

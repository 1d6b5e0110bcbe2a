"""Support vector machines and categories, compared with ONNX's reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import weft as wf  # noqa: E402
from weft_tensor import errors  # noqa: E402

FEATURES = 4


def _model(
    op: str, outputs: dict[str, int], kind: int = TensorProto.FLOAT, **attributes: Any
) -> Any:
    node = helper.make_node(op, ["x"], list(outputs), domain="ai.onnx.ml", **attributes)
    given = [helper.make_tensor_value_info("x", kind, None)]
    made = [helper.make_tensor_value_info(name, each, None) for name, each in outputs.items()]
    versions = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(helper.make_graph([node], "g", given, made), opset_imports=versions)


CLASSES = {"label": TensorProto.INT64, "scores": TensorProto.FLOAT}


def _numbers(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _machine(classes: int, kernel: str, **more: Any) -> dict[str, Any]:
    per_class = [3 + each for each in range(classes)]
    total, pairs = sum(per_class), classes * (classes - 1) // 2
    return {
        "kernel_type": kernel,
        "kernel_params": [0.3, 0.1, 3.0],
        "classlabels_ints": [10 * each + 5 for each in range(classes)],
        "coefficients": _numbers(1, (classes - 1) * total).tolist(),
        "support_vectors": _numbers(2, total * FEATURES).tolist(),
        "vectors_per_class": per_class,
        "rho": _numbers(3, pairs).tolist(),
        **more,
    }


def _agree(model: Any, x: Any) -> None:
    expected = ReferenceEvaluator(model).run(None, {"x": x})
    for one, other in zip(wf.onnx.Backend.run_model(model, [x]), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
@pytest.mark.parametrize(("classes", "probable"), [(2, False), (2, True), (4, False)])
def test_classifiers_of_support_vectors(kernel: str, classes: int, probable: bool) -> None:
    slopes = {"prob_a": [-1.5], "prob_b": [0.1]} if probable else {}
    model = _model("SVMClassifier", CLASSES, **_machine(classes, kernel, **slopes))
    _agree(model, _numbers(4, 7, FEATURES))


def test_probabilities_of_classes_fit_those_of_pairs() -> None:
    """Compare several classes with the least squares, because ONNX's evaluator mixes up rows."""
    x, slopes = _numbers(4, 7, FEATURES), {"prob_a": [-1.5] * 6, "prob_b": [0.1] * 6}
    machine = _machine(4, "RBF")
    scores = wf.onnx.Backend.run_model(_model("SVMClassifier", CLASSES, **machine), [x])[1]
    model = _model("SVMClassifier", CLASSES, **machine, **slopes)
    found = wf.onnx.Backend.run_model(model, [x])[1]
    for row, each in zip(found, scores, strict=True):
        won = np.zeros((4, 4))
        won[np.triu_indices(4, 1)] = 1 / (1 + np.exp(-1.5 * each + 0.1))
        won += np.tril(1 - won.T, -1)
        # The sum over pairs of (won[j, i] p[i] - won[i, j] p[j])^2, where p sums to one.
        table = np.diag(np.square(won).sum(0)) - won.T * won
        whole = np.block([[table, np.ones((4, 1))], [np.ones((1, 4)), np.zeros((1, 1))]])
        np.testing.assert_allclose(row, np.linalg.solve(whole, [0, 0, 0, 0, 1])[:4], atol=5e-3)


@pytest.mark.parametrize("transform", ["LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_scores_are_transformed(transform: str) -> None:
    model = _model("SVMClassifier", CLASSES, **_machine(3, "RBF", post_transform=transform))
    _agree(model, _numbers(4, 5, FEATURES))


def test_linear_classifiers_have_no_vectors() -> None:
    weights, x = _numbers(1, 3, FEATURES), _numbers(4, 5, FEATURES)
    given = {"coefficients": weights.ravel().tolist(), "rho": [0.3], "classlabels_ints": [4, 5, 6]}
    labels, scores = wf.onnx.Backend.run_model(_model("SVMClassifier", CLASSES, **given), [x])
    np.testing.assert_allclose(scores, x @ weights.T + np.float32(0.3), rtol=1e-5)
    assert labels.tolist() == [4 + each for each in scores.argmax(1)]


@pytest.mark.parametrize("one_class", [0, 1])
@pytest.mark.parametrize("count", [0, 5])
def test_regression_by_support_vectors(one_class: int, count: int) -> None:
    model = _model(
        "SVMRegressor",
        {"y": TensorProto.FLOAT},
        kernel_type="RBF" if count else "LINEAR",
        kernel_params=[0.3, 0.0, 0.0],
        coefficients=_numbers(1, count or FEATURES).tolist(),
        support_vectors=_numbers(2, max(count, 1) * FEATURES).tolist(),
        n_supports=count,
        rho=[0.2],
        one_class=one_class,
    )
    _agree(model, _numbers(4, 6, FEATURES))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"rho": [1.0]}, "rho of 1 numbers does not have the shape"),
        ({"coefficients": [1.0]}, "coefficients of 1 numbers"),
        ({"support_vectors": []}, "support_vectors"),
        ({"vectors_per_class": [10**12, 1, 1]}, "support_vectors of"),
        ({"vectors_per_class": [20, -10, 2]}, "vectors_per_class has"),
        ({"vectors_per_class": [12]}, "for 3 classes"),
        ({"classlabels_ints": [1]}, "two classes or more"),
        ({"kernel_type": "CUBIC"}, "unknown kernel_type 'CUBIC'"),
        ({"kernel_params": [1.0]}, "gamma, coef0 and degree"),
        ({"post_transform": "HALF"}, "unknown post_transform 'HALF'"),
        ({"prob_a": [1.0] * 3, "prob_b": [1.0]}, "prob_b of 1 numbers"),
    ],
)
def test_damaged_machines(change: dict[str, Any], match: str) -> None:
    given = {**_machine(3, "RBF"), **change}
    model = _model("SVMClassifier", CLASSES, **{k: v for k, v in given.items() if v != []})
    with wf.Graph().as_default(), pytest.raises(errors.InvalidArgumentError, match=match):
        wf.onnx.import_model(model)


def test_categories_have_numbers_and_names() -> None:
    both = {"cats_int64s": [4, 7], "cats_strings": ["four", "seven"]}
    there = _model(
        "CategoryMapper", {"y": TensorProto.INT64}, TensorProto.STRING, default_int64=-3, **both
    )
    words = np.array([["seven", "four"], ["", "seven"]], object)
    assert wf.onnx.Backend.run_model(there, [words])[0].tolist() == [[7, 4], [-3, 7]]
    back = _model("CategoryMapper", {"y": TensorProto.STRING}, TensorProto.INT64, **both)
    found = wf.onnx.Backend.run_model(back, [np.array([7, 0, 4])])[0]
    assert found.tolist() in ([b"seven", b"_Unused", b"four"], ["seven", "_Unused", "four"])


def _tokens(texts: Any, **attributes: Any) -> Any:
    shape = np.shape(texts)
    x = helper.make_tensor_value_info("x", TensorProto.STRING, shape)
    y = helper.make_tensor_value_info("y", TensorProto.STRING, [*shape, None])
    node = helper.make_node(
        "Tokenizer", ["x"], ["y"], domain="com.microsoft", pad_value="#", **attributes
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=imports)
    with wf.Graph().as_default():
        return wf.onnx.Backend.run_model(model, [np.array(texts, object)])[0].tolist()


def test_text_as_tokens() -> None:
    words = {"tokenexp": "[a-z0-9]+", "mincharnum": 1}
    assert _tokens(["the cat, 2!", "", "\n dog"], **words) == [
        ["the", "cat", "2"], ["#", "#", "#"], ["dog", "#", "#"],
    ]  # fmt: skip
    assert _tokens([["a bc"], ["def"]], tokenexp="[a-z]+", mincharnum=2) == [[["bc"]], [["def"]]]
    assert _tokens(["äöü", "x"], separators=[""], mincharnum=1) == [
        ["ä", "ö", "ü"],
        ["x", "#", "#"],
    ]
    assert _tokens(["a,b  c"], separators=[",", " "], mincharnum=1) == [["a", "b", "c"]]
    assert _tokens(["äö,b,"], separators=[","], mincharnum=2) == [["äö"]]
    for wrong in ({}, {**words, "mincharnum": 0}, {**words, "mark": 1}):
        with pytest.raises(errors.OpError, match="Tokenizer"):
            _tokens(["a"], **wrong)


def test_features_of_one_vector_are_a_row() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])
    i = helper.make_tensor_value_info("i", TensorProto.INT64, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])
    node = helper.make_node("ArrayFeatureExtractor", ["x", "i"], ["y"], domain="ai.onnx.ml")
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(helper.make_graph([node], "g", [x, i], [y]), opset_imports=imports)
    with wf.Graph().as_default():
        (found,) = wf.onnx.Backend.run_model(model, [np.float32([1, 2, 3]), np.array([2, 0])])
    assert found.tolist() == [[3.0, 1.0]]


@pytest.mark.parametrize("mode", ["BRANCH_LEQ", "BRANCH_NEQ"])
@pytest.mark.parametrize("missing", [0, 1])
def test_where_a_tree_sends_what_is_missing(mode: str, missing: int) -> None:
    """NaN differs from every number, so it passes a test for inequality in any case."""
    tree = {
        "n_targets": 1,
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_modes": [mode, "LEAF", "LEAF"],
        "nodes_values": [2.0, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "nodes_missing_value_tracks_true": [missing, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [10.0, 20.0],
    }
    model = _model("TreeEnsembleRegressor", {"y": TensorProto.FLOAT}, **tree)
    (found,) = wf.onnx.Backend.run_model(model, [np.float32([[np.nan], [2.0]])])
    there = mode == "BRANCH_LEQ"
    lost = missing or not there
    assert found.tolist() == [[10.0 if lost else 20.0], [10.0 if there else 20.0]]


STUMP = {  # one test of the first feature
    "nodes_nodeids": [0, 1, 2],
    "nodes_treeids": [0, 0, 0],
    "nodes_featureids": [0, 0, 0],
    "nodes_values": [0.0, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}
SIDES = np.float32([[-1.0], [1.0]])


@pytest.mark.parametrize("aggregate", ["SUM", "MIN", "MAX"])
def test_leaves_say_nothing_of_other_targets(aggregate: str) -> None:
    trees = {name: [*each, *each] for name, each in STUMP.items()}
    model = _model(
        "TreeEnsembleRegressor",
        {"y": TensorProto.FLOAT},
        **trees | {"nodes_treeids": [0, 0, 0, 1, 1, 1]},
        n_targets=3,
        target_treeids=[0, 0, 1, 1],
        target_nodeids=[1, 2, 1, 2],
        target_ids=[0, 1, 1, 1],
        target_weights=[2.0, -3.0, -1.0, 5.0],
        aggregate_function=aggregate,
    )
    (found,) = wf.onnx.Backend.run_model(model, [SIDES])
    second = {"SUM": 2.0, "MIN": -3.0, "MAX": 5.0}[aggregate]
    assert found.tolist() == [[2.0, -1.0, 0.0], [0.0, second, 0.0]]


def test_a_score_of_zero_has_no_part_in_softmax_zero() -> None:
    model = _model(
        "TreeEnsembleRegressor",
        {"y": TensorProto.FLOAT},
        **STUMP,
        n_targets=3,
        target_treeids=[0, 0, 0, 0],
        target_nodeids=[1, 1, 2, 2],
        target_ids=[0, 1, 1, 2],
        target_weights=[-1.0, -1.0, 2.0, 2.0],
        post_transform="SOFTMAX_ZERO",
    )
    (found,) = wf.onnx.Backend.run_model(model, [SIDES])
    np.testing.assert_allclose(found, [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]], rtol=1e-6)


def test_two_classes_by_probit_share_one() -> None:
    model = _model(
        "TreeEnsembleClassifier",
        CLASSES,
        **STUMP,
        class_treeids=[0, 0],
        class_nodeids=[1, 2],
        class_ids=[0, 0],
        class_weights=[0.3, 0.8],
        classlabels_int64s=[7, 9],
        post_transform="PROBIT",
    )
    labels, scores = wf.onnx.Backend.run_model(model, [SIDES])
    assert labels.tolist() == [7, 9]
    np.testing.assert_allclose(scores[:, 0], -scores[:, 1], rtol=1e-5)
    np.testing.assert_allclose(scores[:, 1], [-0.5244005, 0.8416212], rtol=1e-5)


def test_products_of_integers_are_written() -> None:
    """Zero points of any shape that the op takes, of rows and of columns."""
    from weft_graph.ops.integer_products import matmul_integer

    a = wf.placeholder(wf.uint8, [2, 3], name="a")
    b = np.int8([[1, -2], [3, 4], [-5, 6]])
    product = matmul_integer(a, b, [[1], [2]], [[3, -4]])
    rows = np.uint8([[1, 2, 255], [0, 7, 9]])
    with wf.Session() as session:
        model = wf.onnx.export({"y": product}, {"a": a}, session)
        expected = session.run(product, {a: rows})
    found = ReferenceEvaluator(model).run(None, {"a": rows})[0]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "attributes",
    [
        {"keys_strings": ["a", "b"], "values_int64s": [1]},
        {"keys_int64s": [1], "values_strings": ["a", "b"]},
        {"keys_int64s": [1, 2]},
        {"values_int64s": [1, 2]},
        {},
    ],
)
def test_each_key_has_a_value(attributes: dict[str, Any]) -> None:
    kind = TensorProto.STRING if "keys_strings" in attributes else TensorProto.INT64
    model = _model("LabelEncoder", {"y": kind}, kind, **attributes)
    with (
        wf.Graph().as_default(),
        pytest.raises(errors.InvalidArgumentError, match="one value per key"),
    ):
        wf.onnx.import_model(model)

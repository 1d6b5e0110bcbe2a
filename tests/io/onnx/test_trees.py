"""Ensembles of trees, by their kernel and a level at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402

import weft as wf  # noqa: E402
from weft_exec.passes import prepare  # noqa: E402
from weft_tensor import errors  # noqa: E402

FEATURES = 5


def _grown(rng: np.random.Generator, trees: int, tests: int, mode: str) -> dict[str, list[Any]]:
    """Trees that grow at a leaf of their own choice, so that some are deep and most leaves not."""
    found: dict[str, list[Any]] = {
        key: []
        for key in ("treeids", "nodeids", "featureids", "modes", "values", "true", "false", "nan")
    }
    for tree in range(trees):
        sons: dict[int, tuple[int, int]] = {}
        open_leaves, count = [0], 1
        for _ in range(tests):
            leaf = open_leaves.pop(-1 if rng.random() < 0.7 else 0)
            sons[leaf] = count, count + 1
            open_leaves += [count, count + 1]
            count += 2
        for node in range(count):
            yes, no = sons.get(node, (0, 0))
            found["treeids"].append(tree)
            found["nodeids"].append(node)
            found["featureids"].append(int(rng.integers(FEATURES)))
            found["modes"].append(mode if node in sons else "LEAF")
            found["values"].append(float(rng.integers(-2, 3)))
            found["true"].append(yes)
            found["false"].append(no)
            found["nan"].append(int(rng.integers(2)))
    return found


def _model(mode: str, double: bool, trees: int = 7, tests: int = 24) -> Any:
    rng = np.random.default_rng(3)
    grown = _grown(rng, trees, tests, mode)
    leaves = [at for at, each in enumerate(grown["modes"]) if each == "LEAF"]
    kind = TensorProto.DOUBLE if double else TensorProto.FLOAT
    values, weights = grown["values"], rng.integers(-9, 9, len(leaves)).astype(float).tolist()
    numbers: dict[str, Any] = {"nodes_values": values, "target_weights": weights}
    if double:
        numbers = {
            f"{key}_as_tensor": helper.make_tensor(key, kind, [len(each)], each)
            for key, each in numbers.items()
        }
    node = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=grown["treeids"],
        nodes_nodeids=grown["nodeids"],
        nodes_featureids=grown["featureids"],
        nodes_modes=grown["modes"],
        nodes_truenodeids=grown["true"],
        nodes_falsenodeids=grown["false"],
        nodes_missing_value_tracks_true=grown["nan"],
        target_treeids=[grown["treeids"][at] for at in leaves],
        target_nodeids=[grown["nodeids"][at] for at in leaves],
        target_ids=[0] * len(leaves),
        **numbers,
    )
    ends = (
        [helper.make_tensor_value_info("x", kind, ["n", None])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1])],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(helper.make_graph([node], "g", *ends), opset_imports=opsets)


def _answer(model: Any, x: Any) -> tuple[Any, set[str]]:
    """The scores, and the ops that ran."""
    with wf.Graph().as_default(), wf.Session() as session:
        found = wf.onnx.import_model(model)
        metadata, options = wf.RunMetadata(), wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE)
        (y,) = session.run(
            list(found.outputs.values()),
            {found.inputs["x"]: x},
            options=options,
            run_metadata=metadata,
        )
        labels = [n.timeline_label for d in metadata.step_stats.dev_stats for n in d.node_stats]
    return y, {label.partition(" = ")[2].partition("(")[0] for label in labels}


@pytest.mark.parametrize(
    ("mode", "double"),
    [(mode, mode == "LT") for mode in ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")],
)
def test_the_kernel_goes_where_the_levels_lead(
    mode: str, double: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, rng = _model(f"BRANCH_{mode}", double), np.random.default_rng(4)
    x = rng.integers(-3, 4, [3_000, FEATURES + 1]).astype(np.float64 if double else np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    x[rng.random(x.shape) < 0.02] = np.inf
    for rows in (x, x[:1], x[:0]):
        found, ops = _answer(model, rows)
        assert "_TreeLeaves" in ops
        with monkeypatch.context() as patch:
            patch.setattr(prepare, "kernels_of", lambda *_: ())
            expected, ops = _answer(model, rows)
        assert "_TreeLeaves" not in ops
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("mode", ["LEQ", "GT", "NEQ"])
def test_machine_code_goes_there_too(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("weft_compiler")
    double = mode == "GT"
    model, rng = _model(f"BRANCH_{mode}", double), np.random.default_rng(5)
    x = rng.integers(-3, 4, [37, FEATURES + 1]).astype(np.float64 if double else np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    x[rng.random(x.shape) < 0.02] = np.inf
    for rows in (x, x[:1], x[:16], x[:0]):
        monkeypatch.setenv("WEFT_JIT", "off")
        expected, _ = _answer(model, rows)
        monkeypatch.setenv("WEFT_JIT", "now")
        found, _ = _answer(model, rows)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    with wf.Graph().as_default(), wf.Session() as session:
        made = wf.onnx.import_model(model)
        report = str(session.explain(list(made.outputs.values()), {made.inputs["x"]: x}))
    assert ": _TreeLeaves" in report and "with kernels: _TreeLeaves" not in report


def test_trees_want_all_their_features() -> None:
    model = _model("BRANCH_LEQ", False)
    with pytest.raises(errors.InvalidArgumentError, match=f"at least {FEATURES} features, got"):
        _answer(model, np.zeros((2, FEATURES - 1), np.float32))


@pytest.mark.parametrize("jit", ["off", "now"])
@pytest.mark.parametrize(
    ("at", "vector", "match"),
    [
        (2, [1, 9, 2], "refers to node 9"),
        (1, [1.0], "the same length"),
        (5, [-1], "refers to node -1"),
        (0, [-1, 0, 0], "at least 0, got -1"),
    ],
)
def test_a_walk_stays_inside_of_its_trees(
    at: int, vector: Any, match: str, jit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mark may come from a file, with any numbers."""
    monkeypatch.setenv("WEFT_JIT", jit)
    from weft_graph.ir.builder import out

    vectors: list[Any] = [
        np.array([0, 0, 0]),
        np.array([1.0, 0.0, 0.0]),
        np.array([1, 1, 2]),
        np.array([2, 1, 2]),
        np.zeros(3, bool),
        np.array([0]),
    ]
    x = np.array([[0.5], [1.5]])
    with wf.Session() as session:
        walk = out("_TreeLeaves", [x, *vectors], {"test": "LEQ", "depth": 1})
        assert session.run(walk).tolist() == [[1], [2]]
        vectors[at] = np.array(vector, vectors[at].dtype)
        with pytest.raises(errors.InvalidArgumentError, match=match):
            session.run(out("_TreeLeaves", [x, *vectors], {"test": "LEQ", "depth": 1}))

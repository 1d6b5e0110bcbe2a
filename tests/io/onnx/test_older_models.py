"""Models of opsets 1 to 6: the earlier semantics of ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402

import weft as wf  # noqa: E402
from weft_tensor import errors  # noqa: E402

X = np.random.default_rng(0).normal(size=(2, 3, 4, 4)).astype(np.float32)
M = X[0, 0]
V = np.float32([1.0, 2.0, 3.0])


def run(version: int, op: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
    """Return the results of one node; all inputs except the first are weights."""
    names = [f"i{each}" for each in range(len(inputs))]
    made = [f"o{each}" for each in range(outputs)]
    weights = [
        onnx.numpy_helper.from_array(*each) for each in zip(inputs[1:], names[1:], strict=True)
    ]
    kind = helper.np_dtype_to_tensor_dtype(inputs[0].dtype)
    graph = helper.make_graph(
        [helper.make_node(op, names, made, **attributes)],
        "old",
        [helper.make_tensor_value_info("i0", kind, inputs[0].shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in made],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=3)
    found = wf.onnx.Backend.run_model(model, [inputs[0]])
    return found[0] if outputs == 1 else found


def _normal(x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
    return (x - mean) / np.sqrt(variance + np.float32(1e-5)) * scale + bias


COLUMN = V.reshape(3, 1, 1)
EACH = [np.abs(X[1]) + np.float32(0.5)] * 4
CASES: list[tuple[Any, Any]] = [
    (lambda: run(1, "Add", X, V, broadcast=1, axis=1), X + COLUMN),
    (lambda: run(6, "Mul", X, M, broadcast=1), X * M),
    (lambda: run(1, "Greater", X, V, broadcast=1, axis=1), X > COLUMN),
    (lambda: run(6, "Gemm", M, M, M[0], broadcast=1), M @ M + M[0]),
    (lambda: run(1, "Reshape", M, shape=[2, -1]), M.reshape(2, 8)),
    (lambda: run(1, "Cast", X, to="INT32"), X.astype(np.int32)),
    (lambda: run(1, "Concat", X), X),
    (
        lambda: run(1, "Pad", M, paddings=[1, 0, 0, 2], mode="constant", value=1.5),
        np.pad(M, [[1, 0], [0, 2]], constant_values=1.5),
    ),
    (lambda: run(1, "Slice", M, starts=[0, 1], ends=[2, 3]), M[:2, 1:3]),
    (lambda: run(1, "Squeeze", X[:1], axes=[0]), X[0]),
    (lambda: run(1, "Tile", M, np.float32(2), np.float32(1)), np.tile(M, [1, 2])),
    (
        lambda: run(1, "Upsample", X, height_scale=2.0, width_scale=2.0),
        X.repeat(2, axis=2).repeat(2, axis=3),
    ),
    (lambda: run(1, "TopK", M, k=1, axis=1, outputs=2)[0], M.max(1, keepdims=True)),
    (lambda: run(1, "Clip", M, min=-0.5, max=0.5), M.clip(-0.5, 0.5)),
    (lambda: run(1, "Dropout", M, is_test=1, ratio=0.5), M),
    (lambda: run(1, "Softmax", X).sum((1, 2, 3)), np.ones(2)),
    (lambda: run(1, "Hardmax", X).sum((1, 2, 3)), np.ones(2)),
    (lambda: run(1, "PRelu", -np.abs(X), V), -np.abs(X) * COLUMN),
    (
        lambda: run(6, "BatchNormalization", X, V, V, V, V, is_test=1),
        _normal(X, *[COLUMN] * 4),
    ),
    (
        lambda: run(6, "BatchNormalization", X, *EACH, is_test=1, spatial=0),
        _normal(X, *EACH),
    ),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_older_forms(case: int) -> None:
    found, expected = CASES[case]
    np.testing.assert_allclose(found(), expected, rtol=1e-5, atol=1e-6)


def test_the_first_gru_has_a_default_of_its_own() -> None:
    """ONNX spells the direction of GRU 1 wrongly, and so do models that name it."""
    x, w, r = np.ones((4, 2, 3), np.float32), np.ones((1, 6, 3)), np.ones((1, 6, 2))
    weights = w.astype(np.float32), r.astype(np.float32)
    first = run(1, "GRU", x, *weights, hidden_size=2, output_sequence=1)
    np.testing.assert_allclose(first, run(7, "GRU", x, *weights, hidden_size=2))


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "match"),
    [
        ("Cast", (M,), {"to": "COLOUR"}, "element type 'COLOUR'"),
        ("Tile", (M, np.float32(2), np.float32(2)), {}, "one axis in"),
        ("BatchNormalization", (X, *EACH), {"spatial": 0, "outputs": 3}, "spatial=0 cannot train"),
        (
            "LSTM",
            (X[0], np.ones((1, 8, 4), np.float32), np.ones((1, 8, 2), np.float32)),
            {"hidden_size": 10**9},
            "hidden_size of LSTM is 1000000000, its weights are of 2",
        ),
    ],
)
def test_what_is_refused(op: str, inputs: Any, attributes: Any, match: str) -> None:
    with pytest.raises(errors.OpError, match=match):
        run(1, op, *inputs, **attributes)

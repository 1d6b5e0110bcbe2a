"""Products in a short type, with casts only at the borders."""

from __future__ import annotations

from typing import Any

import pytest

import weft as wf
from weft_graph.passes import prune, simplify
from weft_graph.passes.mixed_precision import use_short_type

SHORT = [wf.float16, wf.bfloat16]


def rewritten(inputs: list[Any], fetches: list[Any], dtype: Any = wf.bfloat16) -> list[str]:
    """Return the types of the nodes of a rewritten step, with the element type of their results."""
    step = prune(inputs, fetches, [])
    use_short_type(step, dtype)
    step.graph.check_integrity()
    assert [fetch.dtype for fetch in step.fetches] == [fetch.dtype for fetch in fetches]
    return [
        f"{node.type}:{node.outputs[0].dtype.name}"
        for node in step.live_nodes()
        if node.outputs and node.type not in ("_Arg", "Const")
    ]


@pytest.mark.parametrize("dtype", SHORT, ids=lambda dtype: dtype.name)
def test_ops_between_products_are_computed_in_the_short_type(dtype: Any) -> None:
    with wf.Graph().as_default():
        x, v, w = (wf.placeholder(wf.float32, [4, 4]) for _ in range(3))
        y = wf.exp(wf.matmul(wf.nn.relu(wf.matmul(x, v)), w))
        short = dtype.name
        assert rewritten([x, v, w], [y], dtype) == [
            f"Cast:{short}",
            f"Cast:{short}",
            f"MatMul:{short}",
            f"Relu:{short}",
            f"Cast:{short}",
            f"MatMul:{short}",
            "Cast:float32",
            "Exp:float32",
        ]


def test_ops_that_are_sensitive_or_outside_stay_in_float32() -> None:
    with wf.Graph().as_default():
        x, w = wf.placeholder(wf.float32, [4, 4]), wf.placeholder(wf.float32, [4, 4])
        y = wf.tanh(wf.matmul(wf.nn.softmax(wf.matmul(wf.tanh(x), w)), w))
        names = rewritten([x, w], [y])
        assert [name for name in names if name.startswith(("Tanh", "Softmax"))] == [
            "Tanh:float32",
            "Softmax:float32",
            "Tanh:float32",
        ]
        assert names.count("MatMul:bfloat16") == 2
        assert names.count("Cast:bfloat16") == 3  # of w only one


@pytest.mark.parametrize("dtype", [wf.float64, wf.complex64, wf.float16])
def test_other_types_are_left_as_they_are(dtype: Any) -> None:
    with wf.Graph().as_default():
        x = wf.placeholder(dtype, [4, 4])
        assert rewritten([x], [wf.matmul(x, x)]) == [f"MatMul:{dtype.name}"]


def test_nodes_with_control_edges_are_left_as_they_are() -> None:
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [4, 4])
        with wf.control_dependencies([wf.assert_positive(x)]):
            waiting = wf.matmul(x, x)
        with wf.control_dependencies([wf.matmul(x, x)]):
            awaited = wf.identity(x)
        names = rewritten([x], [waiting, awaited])
        assert [name for name in names if name.startswith("MatMul")] == ["MatMul:float32"] * 2


def test_gradients_and_fetches_between_products() -> None:
    with wf.Graph().as_default():
        x, v, w = (wf.placeholder(wf.float32, [4, 4]) for _ in range(3))
        hidden = wf.tanh(wf.matmul(x, v))
        gradients = wf.gradients(wf.reduce_sum(wf.matmul(hidden, w)), [v, w])
        names = rewritten([x, v, w], [hidden, *gradients])
        assert names.count("MatMul:bfloat16") == 4  # one of the five is of a constant
        assert "TanhGrad:bfloat16" in names
        assert "MatMul:float32" not in names


def test_a_loop_keeps_its_variables_in_float32() -> None:
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [4, 4])
        body = [lambda i, y: (i + 1, wf.matmul(y, x))]
        _, last = wf.while_loop(lambda i, _: i < 3, body[0], (0, x))
        names = rewritten([x], [last])
        assert "MatMul:bfloat16" in names
        assert "NextIteration:float32" in names
        step = prune([x], [last], [])
        use_short_type(step, wf.bfloat16)
        simplify(step)
        step.graph.check_integrity()

"""Convolutions have their channels last; later nodes are computed without transposing back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import weft as wf  # noqa: E402
from weft_graph.ir.constant_value import constant_value  # noqa: E402
from weft_graph.ir.step_graph import reachable  # noqa: E402

INTS = dict[str, list[int]]


def _node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def _net(nodes: list[Any], results: list[str], **weights: Any) -> Any:
    """A convolution h of x with shape (2, 4, 6, 6), and nodes that use it."""
    rng = np.random.default_rng(3)
    tensors = {"w": rng.standard_normal((4, 3, 3, 3), np.float32), **weights}
    nodes = [_node("Conv", "x w", "h", pads=[1, 1, 1, 1]), *nodes]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 6, "width"])],
        [onnx.ValueInfoProto(name=name) for name in results],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def _check(model: Any, most: int) -> None:
    """Compare with ONNX's evaluator, and count the transpositions that a step computes."""
    x = np.random.default_rng(4).standard_normal((2, 3, 6, 6), np.float32)
    expected = ReferenceEvaluator(model).run(None, {"x": x})
    with wf.Graph().as_default(), wf.Session() as session:
        made = wf.onnx.import_model(model)
        fetches = list(made.outputs.values())
        for found, wanted in zip(
            session.run(fetches, {made.inputs["x"]: x}), expected, strict=True
        ):
            near = 1e-6 * np.abs(wanted).max()  # of sums that cancel, terms are as large
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=near)
            assert found.dtype == wanted.dtype
        turned = [
            node.name
            for node in reachable([fetch.node for fetch in fetches])
            if node.type == "Transpose" and constant_value(node.outputs[0]) is None
        ]
    assert len(turned) <= most, turned


EACH = np.float32([[[1]], [[2]], [[3]], [[4]]])
AFTER = {
    "one for each channel": ([_node("Add", "h c", "y")], {"c": EACH}),
    "one for each column": ([_node("Mul", "h c", "y")], {"c": np.arange(6, dtype=np.float32)}),
    "a whole constant": ([_node("Sub", "c h", "y")], {"c": np.ones((1, 4, 6, 6), np.float32)}),
    "two of them": ([_node("Relu", "h", "r"), _node("Add", "r h", "y")], {}),
    "squeeze and excite": (
        [
            _node("GlobalAveragePool", "h", "g"),
            _node("HardSigmoid", "g", "s"),
            _node("Mul", "h s", "y"),
        ],
        {},
    ),
    "hard swish": ([_node("HardSwish", "h", "y")], {}),
    "an op that is a function": ([_node("Mish", "h", "y")], {}),
    "means kept": ([_node("ReduceMean", "h a", "y")], {"a": np.int64([-1, 2])}),
    "means": ([_node("ReduceMean", "h a", "y", keepdims=0)], {"a": np.int64([1])}),
    "softmax": ([_node("Softmax", "h", "y", axis=1)], {}),
    "concat": ([_node("Relu", "h", "r"), _node("Concat", "r h", "y", axis=-3)], {}),
    "split": (
        [_node("Split", "h", "a b", axis=1, num_outputs=2), _node("Sub", "a b", "y")],
        {},
    ),
    "slice": (
        [_node("Slice", "h s e a t", "y")],
        {"s": [5, 1], "e": [-9, 3], "a": [3, 1], "t": [-2, 1]},
    ),
    "pad": ([_node("Pad", "h p c", "y")], {"p": [0, 1, 0, 2, 0, 0, 3, 0], "c": np.float32(7)}),
    "reflect": ([_node("Pad", "h p", "y", mode="reflect")], {"p": [0, 0, 1, 2, 0, 0, 3, 1]}),
    "resize": (
        [_node("Resize", "h  s", "y", mode="linear")],
        {"s": np.float32([1, 1, 2, 1.5])},
    ),
    "pool": ([_node("MaxPool", "h", "y", kernel_shape=[2, 2], strides=[2, 2])], {}),
    "normalized": (
        [_node("BatchNormalization", "h one one one one", "y")],
        {"one": np.float32([1, 2, 3, 4])},
    ),
    "prelu": ([_node("PRelu", "h c", "y")], {"c": EACH}),
    "the model's own": (
        [
            _node("Transpose", "h", "t", perm=[0, 2, 3, 1]),
            _node("Add", "t c", "r"),
            _node("Transpose", "r", "y", perm=[0, 3, 1, 2]),
        ],
        {"c": np.float32([1, 2, 3, 4])},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", AFTER)
def test_ops_after_a_convolution_are_computed_before_it_is_turned(case: str) -> None:
    nodes, weights = AFTER[case]
    if case == "resize":  # an optional input is left out
        nodes = [helper.make_node("Resize", ["h", "", "s"], ["y"], mode="linear")]
    last = _node("Conv", "y v", "z", pads=[1, 1, 1, 1])
    wide = 8 if case == "concat" else 2 if case in ("split", "slice") else 5 if case == "pad" else 4
    v = np.ones((2, wide, 3, 3), np.float32)
    if case == "means":
        _check(_net(nodes, ["y"], **weights), most=1)
        return
    _check(_net([*nodes, last], ["z"], v=v, **weights), most=2)  # of the input and the result
    _check(_net(nodes, ["y"], **weights), most=2)


def test_shapes_of_what_is_turned_need_no_values() -> None:
    nodes = [_node("Shape", "h", "s"), _node("ArgMax", "h", "y", axis=1)]
    _check(_net(nodes, ["s", "y"]), most=2)


def test_a_convolution_tells_the_rank_of_its_input() -> None:
    """The rank depends on a condition: one branch removes an axis and adds it again."""
    branches = {
        "then_branch": helper.make_graph(
            [_node("Identity", "h", "a")], "then", [], [onnx.ValueInfoProto(name="a")]
        ),
        "else_branch": helper.make_graph(
            [_node("Squeeze", "h", "b")], "else", [], [onnx.ValueInfoProto(name="b")]
        ),
    }
    nodes = [
        _node("ReduceMax", "h", "m", keepdims=0),
        _node("Less", "zero m", "yes"),
        helper.make_node("If", ["yes"], ["i"], **branches),
        _node("Conv", "i v", "y"),
    ]
    weights = {"zero": np.float32(0), "v": np.ones((2, 4, 1, 1), np.float32)}
    _check(_net(nodes, ["y"], **weights), most=5)


def test_channels_are_turned_where_branches_can_use_them() -> None:
    branch = helper.make_graph(
        [_node("MatMul", "h h", "a")], "branch", [], [onnx.ValueInfoProto(name="a")]
    )
    other = helper.make_graph(
        [_node("Neg", "h", "a")], "other", [], [onnx.ValueInfoProto(name="a")]
    )
    nodes = [
        _node("ReduceMax", "h", "m", keepdims=0),
        _node("Less", "m zero", "yes"),
        helper.make_node("If", ["yes"], ["i"], then_branch=branch, else_branch=other),
        _node("MatMul", "i h", "y"),
    ]
    _check(_net(nodes, ["y"], zero=np.float32(0)), most=4)

"""Thirty faults of ports, planted one at a time: the node with the fault is named, and no other."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_io.porting import compare_activations, record_activations

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(2, 8, 8, 4)).astype(np.float32)
WORDS = np.array([[1, 5], [3, 0]], np.int32)


def network() -> wf.Tensor:
    """Build a network of images and words, whose weights are constants with names."""
    rng = np.random.default_rng(1)

    def weights(name: str, *shape: int) -> wf.Tensor:
        return wf.constant(rng.normal(size=shape).astype(np.float32), name=name)

    x = wf.placeholder(wf.float32, [2, 8, 8, 4], name="x")
    words = wf.placeholder(wf.int32, [2, 2], name="words")
    conv = wf.nn.conv2d(x, weights("kernel", 3, 3, 4, 4), [1, 1, 1, 1], "SAME", name="conv")
    biased = wf.nn.bias_add(conv, weights("bias", 4), name="biased")
    normal, *_ = wf.nn.fused_batch_norm(
        biased, weights("gamma", 4), weights("beta", 4), weights("mean", 4),
        wf.constant([0.5, 1.0, 2.0, 4.0], name="variance"), 1e-3, is_training=False, name="normal",
    )  # fmt: skip
    active = wf.nn.leaky_relu(normal, 0.2, name="active")
    pooled = wf.nn.max_pool2d(active, 2, 2, "VALID", name="pooled")
    depth = wf.nn.depthwise_conv2d_native(
        pooled, weights("depth_kernel", 3, 3, 4, 1), [1, 1, 1, 1], "SAME", name="depth"
    )
    average = wf.nn.avg_pool2d(depth, 2, 2, "SAME", name="average")
    moved = wf.transpose(average, wf.constant([0, 3, 1, 2], name="order"), name="moved")
    flat = wf.reshape(moved, [2, 16], name="flat")
    dense = wf.matmul(flat, weights("dense_kernel", 16, 16), name="dense")
    shifted = wf.add(dense, weights("dense_bias", 16), name="shifted")
    gate = wf.sigmoid(shifted, name="gate")
    table = weights("table", 8, 16)
    embedded = wf.gather(table, words, name="embedded")
    total = wf.reduce_mean(embedded, wf.constant([1], name="axis"), name="total")
    joined = wf.concat([gate, total], wf.constant(1, name="join_axis"), name="joined")
    parts = wf.split(joined, 2, 1, name="parts")
    mixed = wf.subtract(parts[0], parts[1], name="mixed")
    scores = wf.matmul(mixed, weights("score_kernel", 12, 16), transpose_b=True, name="scores")
    scaled = wf.multiply(scores, wf.constant(0.25, name="scale"), name="scaled")
    padded = wf.pad(scaled, wf.constant([[0, 0], [1, 1]], name="paddings"), name="padded")
    window = wf.slice(padded, wf.constant([0, 1], name="begin"), [2, 12], name="window")
    clipped = wf.clip_by_value(window, -2.0, 2.0, name="clipped")
    side = wf.nn.conv2d(x, weights("side_kernel", 1, 1, 4, 16), [1, 1, 1, 1], "SAME", name="side")
    mean = wf.reduce_mean(side, [1, 2], name="side_mean")
    return wf.add(wf.nn.log_softmax(clipped, name="answer"), mean[:, :12], name="result")


def node(graph_def: Any, name: str) -> Any:
    return next(n for n in graph_def.node if n.name == name)


def constant(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Any], None]:
    """Return a fault that changes a constant."""

    def plant(graph_def: Any) -> None:
        tensor = node(graph_def, name).attr["value"].tensor
        value = np.ascontiguousarray(change(wf.make_ndarray(tensor)))
        tensor.CopyFrom(wf.make_tensor_proto(value))

    return plant


def attribute(name: str, key: str, change: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a fault that changes an attribute."""
    return lambda graph_def: change(node(graph_def, name).attr[key])


def op(name: str, to: str) -> Callable[[Any], None]:
    """Return a fault that replaces an op by one with the same signature."""

    def plant(graph_def: Any) -> None:
        node(graph_def, name).op = to

    return plant


def swap(name: str, i: int, j: int) -> Callable[[Any], None]:
    """Return a fault that exchanges two inputs."""

    def plant(graph_def: Any) -> None:
        inputs = node(graph_def, name).input
        inputs[i], inputs[j] = inputs[j], inputs[i]

    return plant


def setting(**fields: Any) -> Callable[[Any], None]:
    def change(attr: Any) -> None:
        for field, value in fields.items():
            if field == "ints":
                attr.list.i[:] = value
            else:
                setattr(attr, field, value)

    return change


def channels_swapped(value: np.ndarray) -> np.ndarray:
    return value[..., [1, 0, *range(2, value.shape[-1])]]


FAULTS = {
    "kernel with rows and columns exchanged": (
        constant("kernel", lambda v: v.transpose(1, 0, 2, 3)), "conv"),
    "kernel with input and output channels exchanged": (
        constant("kernel", lambda v: v.transpose(0, 1, 3, 2)), "conv"),
    "kernel upside down": (constant("kernel", lambda v: v[::-1, ::-1]), "conv"),
    "swapped channels of a kernel": (constant("kernel", channels_swapped), "conv"),
    "wrong padding": (attribute("conv", "padding", setting(s=b"VALID")), "conv"),
    "wrong strides": (attribute("side", "strides", setting(ints=[1, 2, 2, 1])), "side"),
    "wrong dilation": (attribute("conv", "dilations", setting(ints=[1, 2, 2, 1])), "conv"),
    "dropped bias": (constant("bias", np.zeros_like), "biased"),
    "negated bias": (constant("bias", np.negative), "biased"),
    "epsilon of another system": (attribute("normal", "epsilon", setting(f=1e-5)), "normal"),
    "scale and offset exchanged": (swap("normal", 1, 2), "normal"),
    "standard deviation instead of variance": (constant("variance", np.sqrt), "normal"),
    "swapped channels of the mean": (constant("mean", channels_swapped), "normal"),
    "wrong slope": (attribute("active", "alpha", setting(f=0.01)), "active"),
    "average instead of maximum": (op("pooled", "AvgPool"), "pooled"),
    "wrong window": (attribute("average", "ksize", setting(ints=[1, 3, 3, 1])), "average"),
    "depthwise kernel transposed": (
        constant("depth_kernel", lambda v: v.transpose(1, 0, 2, 3)), "depth"),
    "wrong order of axes": (constant("order", lambda v: v[[0, 1, 3, 2]]), "moved"),
    "transposed weight": (constant("dense_kernel", np.transpose), "dense"),
    "missing transposition": (attribute("dense", "transpose_b", setting(b=True)), "dense"),
    "bias rotated by one": (constant("dense_bias", lambda v: np.roll(v, 1)), "shifted"),
    "wrong activation": (op("gate", "Tanh"), "gate"),
    "table shifted by one row": (constant("table", lambda v: np.roll(v, 1, 0)), "embedded"),
    "reduction of the wrong axis": (constant("axis", lambda v: v * 0), "total"),
    "inputs of a concatenation exchanged": (swap("joined", 0, 1), "joined"),
    "operands of a subtraction exchanged": (swap("mixed", 0, 1), "mixed"),
    "scale of another head size": (constant("scale", lambda v: v * np.float32(2**0.5)), "scaled"),
    "padding on one side": (
        constant("paddings", lambda v: v * np.array([2, 0], v.dtype)), "padded"),
    "slice that begins one too early": (constant("begin", np.zeros_like), "window"),
    "softmax instead of its logarithm": (op("answer", "Softmax"), "answer"),
}  # fmt: skip


@pytest.fixture(scope="module")
def original() -> tuple[Any, dict[str, np.ndarray]]:
    with wf.Graph().as_default() as graph, wf.Session() as session:
        answer = network()
        feeds = {"x:0": IMAGES, "words:0": WORDS}
        values = record_activations(session, feeds, [answer])
        computed = {
            name: value
            for name, value in values.items()
            if graph.get_tensor_by_name(name).op.type != "Const"
        }
        return graph.as_graph_def(), computed


def compare(graph_def: Any, recorded: dict[str, np.ndarray]) -> Any:
    with wf.Graph().as_default(), wf.Session() as session:
        wf.import_graph_def(graph_def, name="")
        return compare_activations(session, recorded)


def test_original_agrees(original: Any) -> None:
    result = compare(*original)
    assert result.agrees, str(result)
    assert len(result.matches) >= 23


def test_there_are_thirty() -> None:
    assert len(FAULTS) == 30


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found_and_named(original: Any, fault: str) -> None:
    graph_def, recorded = original
    plant, name = FAULTS[fault]
    changed = wf.GraphDef()
    changed.CopyFrom(graph_def)
    for entry in changed.node:
        entry.attr.pop("_output_shapes", None)
    plant(changed)
    named = compare(changed, recorded).differences
    assert {match.tensor.op.name for match in named} == {name}

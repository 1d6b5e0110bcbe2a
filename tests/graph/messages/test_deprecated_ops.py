"""Graphs that hold ops of before TensorFlow 1.15, which newer ones do the work of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_graph.ir.op_def import lookup_op
from weft_graph.messages.deprecated_ops import _RENAMED_OPS, DEPRECATED_OPS, with_current_ops
from weft_tensor import errors

Array = np.ndarray[Any, Any]
F = wf.float32


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


class Written:
    """A GraphDef of 2016."""

    def __init__(self) -> None:
        self.message = wf.GraphDef()
        self.message.versions.producer = 8

    def constant(self, name: str, value: Any) -> str:
        tensor = wf.make_tensor_proto(value)
        node = self.message.node.add(name=name, op="Const")
        node.attr["value"].tensor.CopyFrom(tensor)
        node.attr["dtype"].type = tensor.dtype
        return name

    def node(self, name: str, op: str, inputs: list[str], **attrs: Any) -> str:
        node = self.message.node.add(name=name, op=op, input=inputs)
        for key, value in attrs.items():
            attr = node.attr[key]
            if isinstance(value, wf.DType):
                attr.type = value.as_datatype_enum
            elif isinstance(value, list) and isinstance(value[0], wf.DType):
                attr.list.type.extend([each.as_datatype_enum for each in value])
            elif isinstance(value, list):
                attr.list.i.extend(value)
            else:
                kinds = {bool: "b", int: "i", float: "f", bytes: "s"}
                setattr(attr, kinds[type(value)], value)
        return name

    def run(self, *fetches: str, first: str | None = None) -> list[Array]:
        with wf.Graph().as_default():
            wf.import_graph_def(self.message, name="")
            with wf.Session() as session:
                if first is not None:
                    session.run(first)
                found: list[Array] = session.run(list(fetches))
                return found


def alone(op: str, inputs: list[Any], outputs: int = 1, **attrs: Any) -> list[Array]:
    """Return the result of one node of constants."""
    graph = Written()
    names = [graph.constant(f"c{i}", value) for i, value in enumerate(inputs)]
    graph.node("y", op, names, **attrs)
    return graph.run(*[f"y:{i}" for i in range(outputs)])


def of_now(value: Any) -> Array:
    with wf.Session() as session:
        found: Array = session.run(value)
        return found


def test_batch_normalization_of_2015() -> None:
    t, m, v, beta, gamma = random(2, 3, 3, 4), *(abs(random(4, seed=i)) for i in range(1, 5))
    for scaled in (False, True):
        (found,) = alone(
            "BatchNormWithGlobalNormalization", [t, m, v, beta, gamma],
            T=F, variance_epsilon=0.01, scale_after_normalization=scaled,
        )  # fmt: skip
        wanted = (t - m) / np.sqrt(v + 0.01) * (gamma if scaled else 1) + beta
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_convolutions_with_their_paddings() -> None:
    image, kernel = random(1, 5, 5, 2), random(3, 3, 2, 3, seed=1)
    pads = np.array([[0, 0], [1, 2], [2, 1], [0, 0]], np.int32)
    conv: dict[str, Any] = {"T": F, "strides": [1, 2, 2, 1], "padding": b"VALID"}
    padded = np.pad(image, pads, "reflect")
    (found,) = alone("FusedPadConv2D", [image, pads, kernel], mode=b"REFLECT", **conv)
    np.testing.assert_allclose(found, of_now(wf.nn.conv2d(padded, kernel, 2, "VALID")), rtol=1e-5)
    size = np.array([7, 8], np.int32)
    (found,) = alone(
        "FusedResizeAndPadConv2D", [image, size, pads, kernel],
        mode=b"SYMMETRIC", resize_align_corners=True, **conv,
    )  # fmt: skip
    resized = of_now(wf.image.resize_bilinear(image, size, align_corners=True))
    padded = np.pad(resized, pads, "symmetric")
    np.testing.assert_allclose(found, of_now(wf.nn.conv2d(padded, kernel, 2, "VALID")), rtol=1e-5)


def test_ops_with_other_arguments() -> None:
    blocks, pads = random(1, 4, 4, 2), np.array([[1, 1], [0, 2]], np.int32)
    (found,) = alone("SpaceToBatch", [blocks, pads], T=F, Tpaddings=wf.int32, block_size=2)
    np.testing.assert_array_equal(found, of_now(wf.space_to_batch(blocks, pads, 2)))
    (back,) = alone("BatchToSpace", [found, pads], T=F, Tidx=wf.int32, block_size=2)
    np.testing.assert_array_equal(back, blocks)
    rows, at, new = random(4, 3), np.array([2, 0], np.int32), random(2, 3, seed=1)
    for op, sign in (("InplaceAdd", 1), ("InplaceSub", -1), ("InplaceUpdate", 0)):
        wanted = rows.copy()
        wanted[at] = wanted[at] + sign * new if sign else new
        for beside in (0, 4, -4):  # which begin again at the end
            (found,) = alone(op, [rows, at + np.int32(beside), new], T=F)
            np.testing.assert_array_equal(found, wanted)
    a, b = random(3, 2), random(3, 4, seed=1)
    (found,) = alone("SparseMatMul", [a, b], Ta=F, Tb=F, transpose_a=True, a_is_sparse=True)
    np.testing.assert_allclose(found, a.T @ b, rtol=1e-5)
    (found,) = alone("ParallelConcat", [a, a], T=F, N=2)
    np.testing.assert_array_equal(found, np.concatenate([a, a]))
    (found,) = alone("Empty", [np.array([2, 3], np.int32)], dtype=F, init=True)
    np.testing.assert_array_equal(found, np.zeros((2, 3)))
    (found,) = alone("Empty", [np.array([2], np.int32)], dtype=wf.bool, init=True)
    assert found.tolist() == [False, False]
    given = [
        np.arange(6, dtype=np.uint8),
        np.array([2, 3], np.int32),
        np.float32(-1),
        np.float32(2),
    ]
    found = alone("QuantizedReshape", given, 3, T=wf.uint8, Tshape=wf.int32)
    assert [each.tolist() for each in found] == [[[0, 1, 2], [3, 4, 5]], -1, 2]


@pytest.mark.parametrize("of_filter", [False, True])
def test_gradients_of_volumes_take_what_they_are_of(of_filter: bool) -> None:
    x, kernel, y = random(1, 5, 5, 5, 2), random(3, 3, 3, 2, 3, seed=1), random(1, 3, 3, 3, 3)
    op = "Conv3DBackpropFilter" if of_filter else "Conv3DBackpropInput"
    (found,) = alone(op, [x, kernel, y], T=F, strides=[1] * 5, padding=b"VALID")
    source = wf.constant(kernel if of_filter else x)
    pair = (x, source) if of_filter else (source, kernel)
    conv = wf.nn.conv3d(*pair, [1] * 5, "VALID")
    np.testing.assert_allclose(
        found, of_now(wf.gradients(conv, source, y)[0]), rtol=1e-4, atol=1e-5
    )


def test_queues_and_readers_whose_handles_were_strings(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n", "utf-8")
    graph = Written()
    graph.node("q", "FIFOQueue", [], component_types=[wf.string], capacity=5)
    graph.constant("v", np.array([str(tmp_path / "a.txt").encode()]))
    graph.node("e", "QueueEnqueueMany", ["q", "v"], Tcomponents=[wf.string])
    graph.node("same", "RefIdentity", ["q"], T=wf.string)
    graph.node("size", "QueueSize", ["same", "^read"])
    graph.node("reader", "TextLineReader", [])
    graph.node("read", "ReaderRead", ["reader", "same"])
    assert graph.run("read:1", "size:0", first="e") == [b"one", 0]


def test_tensor_arrays_and_stacks_of_before() -> None:
    graph = Written()
    for name, value in (("size", 2), ("i", 1), ("z", 0)):
        graph.constant(name, np.int32(value))
    graph.constant("v", random(3))
    graph.constant("flow", np.float32(0))
    graph.node("array", "TensorArrayV2", ["size"], dtype=F)
    graph.node("h", "Identity", ["array"], T=wf.string)
    graph.node("w", "TensorArrayWriteV2", ["h", "i", "v", "flow"], T=F)
    graph.node("both", "TensorArrayWriteV2", ["h", "z", "v", "w"], T=F)
    graph.node("r", "TensorArrayReadV2", ["array", "i", "both"], dtype=F)
    graph.node("s", "Stack", [], elem_type=F)
    graph.node("p", "StackPush", ["s", "v"], T=F)
    graph.node("o", "StackPop", ["s", "^p"], elem_type=F)
    for found in graph.run("r:0", "o:0"):
        np.testing.assert_array_equal(found, random(3))


def test_datasets_by_their_former_names() -> None:
    graph = Written()
    graph.constant("n", np.int64(3))
    graph.node("batches", "BatchDataset", ["elements", "n", "^n"], output_types=[wf.int64])
    graph.node("once", "ExperimentalUniqueDataset", ["batches"], output_types=[wf.int64])
    made = {node.name: node for node in with_current_ops(graph.message).node}
    assert made["once"].op == "UniqueDataset"
    assert made["batches"].op == "BatchDatasetV2"
    assert list(made["batches"].input) == ["elements", "n", "batches/Const", "^n"]


def test_what_does_not_fit_is_refused_by_name() -> None:
    graph = Written()
    graph.constant("c", np.float32(1))
    graph.node("y", "SpaceToBatch", ["c"], T=F)
    with pytest.raises(errors.InvalidArgumentError, match="SpaceToBatch requires 2 inputs, got 1"):
        graph.run("y:0")
    graph = Written()
    graph.node("y", "ExperimentalOfNobodyDataset", [])
    with pytest.raises(errors.NotFoundError, match="OfNobodyDataset"):
        graph.run("y:0")
    graph = Written()
    graph.node("q", "TFRecordReader", [])
    with pytest.raises(errors.PermissionDeniedError, match="TFRecordReaderV2"):
        wf.import_graph_def(graph.message, allowed_ops={"Const"})


def test_names_that_are_taken_stay_free() -> None:
    graph = Written()
    graph.constant("y/Const", np.array([[1, 1], [1, 1]], np.int32))
    graph.constant("x", random(1, 2, 2, 1))
    graph.node("y", "SpaceToBatch", ["x", "y/Const"], T=F, Tpaddings=wf.int32, block_size=2)
    assert graph.run("y:0")[0].shape == (4, 2, 2, 1)


def test_deprecated_ops_are_not_declared_and_those_of_now_are() -> None:
    for new in _RENAMED_OPS.values():
        lookup_op(new)
    for op in DEPRECATED_OPS:
        with pytest.raises(errors.NotFoundError):
            lookup_op(op)


@pytest.mark.parametrize(("producer", "ndims"), [(0, None), (21, None), (22, 0)])
def test_placeholders_that_could_not_say_that_any_shape_will_do(
    producer: int, ndims: int | None
) -> None:
    with wf.Graph().as_default() as graph:
        wf.placeholder(wf.float32, [], name="x")
        wf.placeholder(wf.float32, [2], name="v")
        message = graph.as_graph_def()
    message.versions.producer = producer
    with wf.Graph().as_default():
        x, v = wf.import_graph_def(message, return_elements=["x:0", "v:0"])
    assert x.shape.ndims == ndims and v.shape.as_list() == [2]
    assert message.node[0].attr["shape"].HasField("shape")

"""Signatures and their tensor descriptions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from weft_graph import Graph, proto
from weft_graph.ir.builder import constant
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.messages.tensor_proto import make_ndarray
from weft_graph.ops.array import placeholder
from weft_graph.variables.reference import Variable
from weft_io.saved_model import signature_constants
from weft_io.saved_model.signature_def_utils import (
    build_signature_def,
    classification_signature_def,
    is_valid_signature,
    load_op_from_signature_def,
    op_signature_def,
    predict_signature_def,
    regression_signature_def,
)
from weft_io.saved_model.utils import build_tensor_info, get_tensor_from_tensor_info
from weft_tensor import dtypes, errors


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as made:
        yield made


@pytest.fixture
def words() -> Any:
    return placeholder(dtypes.string, (None,), name="words")


@pytest.fixture
def floats() -> Any:
    return placeholder(dtypes.float32, (None, 2), name="floats")


def test_tensors(floats: Any) -> None:
    info = build_tensor_info(floats)
    assert (info.name, info.dtype) == ("floats:0", proto.DT_FLOAT)
    assert [dim.size for dim in info.tensor_shape.dim] == [-1, 2]
    assert get_tensor_from_tensor_info(info) is floats
    anything = build_tensor_info(placeholder(dtypes.float32))
    assert anything.tensor_shape.unknown_rank
    for resource in (False, True):
        variable = build_tensor_info(Variable([1.0], use_resource=resource))
        assert variable.dtype == proto.DT_FLOAT and len(variable.tensor_shape.dim) == 1
    with pytest.raises(errors.InvalidTypeError, match="a tensor is required"):
        build_tensor_info(3.0)


def test_under_a_scope(graph: Graph) -> None:
    info = build_tensor_info(constant(1.0, name="c"))
    with graph.name_scope("a"):
        inner = constant(2.0, name="c")
    with Graph().as_default():
        assert get_tensor_from_tensor_info(info, graph, "a/") is inner
        with pytest.raises(errors.NotFoundError):
            get_tensor_from_tensor_info(info)


def test_sparse_tensors(graph: Graph) -> None:
    sparse = SparseTensor([[0, 1]], [1.0], [2, 3])
    info = build_tensor_info(sparse)
    assert info.WhichOneof("encoding") == "coo_sparse"
    again = get_tensor_from_tensor_info(info)
    assert isinstance(again, SparseTensor)
    parts = (sparse.indices, sparse.values, sparse.dense_shape)
    assert (again.indices, again.values, again.dense_shape) == parts
    composite = proto.TensorInfo()
    kind = composite.composite_tensor.type_spec
    kind.type_spec_class = proto.TypeSpecProto.SPARSE_TENSOR_SPEC
    for part in parts:
        composite.composite_tensor.components.add(name=part.name)
    third = get_tensor_from_tensor_info(composite)
    assert isinstance(third, SparseTensor) and third.values is sparse.values
    kind.type_spec_class = proto.TypeSpecProto.RAGGED_TENSOR_SPEC
    with pytest.raises(errors.UnimplementedError, match="RAGGED_TENSOR_SPEC"):
        get_tensor_from_tensor_info(composite)
    with pytest.raises(errors.InvalidArgumentError, match="does not name a tensor"):
        get_tensor_from_tensor_info(proto.TensorInfo())


def test_any_signature(floats: Any) -> None:
    info = build_tensor_info(floats)
    made = build_signature_def(
        {"x": info}, {"y": info}, "m", {"a": constant([1, 2]), "b": np.float32(0.5)}
    )
    assert (made.inputs["x"], made.outputs["y"], made.method_name) == (info, info, "m")
    assert make_ndarray(made.defaults["a"]).tolist() == [1, 2]
    assert make_ndarray(made.defaults["b"]) == 0.5
    assert build_signature_def() == proto.SignatureDef()
    with pytest.raises(errors.InvalidArgumentError, match="the default of 'a' must be a constant"):
        build_signature_def(defaults={"a": floats})


def test_the_kinds_of_signatures(words: Any, floats: Any) -> None:
    regression = regression_signature_def(words, floats)
    assert regression.method_name == signature_constants.REGRESS_METHOD_NAME
    assert regression.outputs["outputs"].name == "floats:0"
    for classes, scores in ((words, floats), (None, floats), (words, None)):
        made = classification_signature_def(words, classes, scores)
        wanted = {"classes": classes, "scores": scores}
        assert set(made.outputs) == {name for name, t in wanted.items() if t is not None}
        assert is_valid_signature(made)
    predict = predict_signature_def({"a": floats}, {"b": words, "c": floats})
    assert set(predict.outputs) == {"b", "c"}
    assert is_valid_signature(regression) and is_valid_signature(predict)


def test_what_a_kind_refuses(words: Any, floats: Any) -> None:
    wrong: list[tuple[Any, str]] = [
        (lambda: regression_signature_def(floats, floats), "examples must be string"),
        (lambda: regression_signature_def(words, words), "predictions must be float32"),
        (lambda: regression_signature_def(None, floats), "examples are required"),
        (lambda: regression_signature_def(words, None), "predictions are required"),
        (lambda: classification_signature_def(words, None, None), "classes or scores"),
        (lambda: classification_signature_def(words, floats, None), "classes must be string"),
        (lambda: classification_signature_def(words, words, words), "scores must be float32"),
        (lambda: predict_signature_def({}, {"y": floats}), "inputs are required"),
        (lambda: predict_signature_def({"x": floats}, {}), "outputs are required"),
    ]
    for make, text in wrong:
        with pytest.raises(errors.InvalidArgumentError, match=text):
            make()
    with pytest.raises(errors.InvalidTypeError, match="a tensor is required"):
        predict_signature_def({"x": 3}, {"y": floats})


def test_what_is_not_valid(words: Any, floats: Any) -> None:
    good = regression_signature_def(words, floats)
    assert not is_valid_signature(None) and not is_valid_signature(proto.SignatureDef())
    for change in (
        lambda s: s.inputs["inputs"].__setattr__("dtype", proto.DT_FLOAT),
        lambda s: s.outputs["outputs"].__setattr__("dtype", proto.DT_STRING),
        lambda s: s.outputs["more"].CopyFrom(s.outputs["outputs"]),
        lambda s: s.__setattr__("method_name", "other"),
        lambda s: s.outputs.clear(),
    ):
        bad = proto.SignatureDef()
        bad.CopyFrom(good)
        change(bad)
        assert not is_valid_signature(bad)


def test_operations(graph: Graph) -> None:
    op = constant(1.0, name="c").node
    signature = op_signature_def(op, "key")
    assert load_op_from_signature_def(signature, "key") is op
    with pytest.raises(errors.NotFoundError, match="no output 'other'"):
        load_op_from_signature_def(signature, "other")
    with Graph().as_default(), pytest.raises(errors.NotFoundError):
        load_op_from_signature_def(signature, "key")

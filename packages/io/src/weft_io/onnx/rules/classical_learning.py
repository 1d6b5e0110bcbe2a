"""Classical machine learning: feature preparation, linear models, labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft_graph.ir.builder import constant
from weft_graph.ir.node import Output
from weft_graph.ops.arithmetic import abs as absolute
from weft_graph.ops.comparison import equal, greater, logical_and, not_equal
from weft_graph.ops.gather import gather
from weft_graph.ops.join import concat, stack
from weft_graph.ops.masks import where_v2
from weft_graph.ops.matmul import matmul
from weft_graph.ops.powers import sqrt, square
from weft_graph.ops.reduction import argmax, reduce_any, reduce_max, reduce_sum
from weft_graph.ops.shapes import expand_dims, reshape, shape
from weft_io.onnx.operation import Operation, cast, like
from weft_io.onnx.registry import importer
from weft_io.onnx.rules.scores import class_labels, select_labels, to_floats, transform_scores
from weft_tensor import dtypes, errors

_ML = "ai.onnx.ml"


@importer("ArrayFeatureExtractor", domain=_ML)
def _array_features(operation: Operation) -> Output:
    x = operation[0] if operation.rank() != 1 else expand_dims(operation[0], 0)
    return gather(x, reshape(operation[1], [-1]), axis=-1)


@importer("Binarizer", domain=_ML)
def _binarizer(operation: Operation) -> Output:
    x = operation[0]
    return cast(greater(x, like(operation.attribute("threshold", 0.0), x)), x.dtype)


@importer("Scaler", domain=_ML)
def _scaler(operation: Operation) -> Output:
    x = to_floats(operation[0])
    offset, scale = operation.attribute("offset") or [0.0], operation.attribute("scale") or [1.0]
    return (x - constant(offset, dtypes.float32)) * constant(scale, dtypes.float32)


@importer("Normalizer", domain=_ML)
def _normalizer(operation: Operation) -> Output:
    x, kind = to_floats(operation[0]), operation.attribute("norm", "MAX")
    if kind == "MAX":
        norm = reduce_max(x, -1, True)
    elif kind == "L1":
        norm = reduce_sum(absolute(x), -1, True)
    elif kind == "L2":
        norm = sqrt(reduce_sum(square(x), -1, True))
    else:
        raise errors.InvalidArgumentError(f"norm of Normalizer must be MAX, L1 or L2, got {kind!r}")
    return where_v2(equal(norm, 0.0), x, x / where_v2(equal(norm, 0.0), like(1, norm), norm))


@importer("Imputer", domain=_ML)
def _imputer(operation: Operation) -> Output:
    x = operation[0]
    kind = "floats" if x.dtype.is_floating else "int64s"
    values = operation.required(f"imputed_value_{kind}")
    replaced = operation.attribute(f"replaced_value_{kind[:-1]}", 0)
    if isinstance(replaced, float) and np.isnan(replaced):
        is_missing = not_equal(x, x)
    else:
        is_missing = equal(x, like(replaced, x))
    return where_v2(is_missing, constant(values, x.dtype.base_dtype), x)


@importer("FeatureVectorizer", domain=_ML)
def _vectorizer(operation: Operation) -> Output:
    parts = [to_floats(operation[index]) for index in range(len(operation.inputs))]
    return concat([_as_matrix(part) for part in parts], 1)


def _as_matrix(x: Output) -> Output:
    """Return a matrix unchanged, and a vector as a matrix of one row."""
    if x.dims is None:
        return reshape(x, concat([[1, 1], shape(x)], 0)[-2:])
    return x if len(x.dims) > 1 else reshape(x, [1, -1])


@importer("OneHotEncoder", domain=_ML)
def _one_hot_encoder(operation: Operation) -> Output:
    x = operation[0]
    text = operation.attribute("cats_strings")
    if text:
        categories = constant(np.array([item.encode() for item in text], object))
    else:
        categories = constant(operation.required("cats_int64s"), dtypes.int64)
        x = cast(x, dtypes.int64)
    return cast(equal(expand_dims(x, -1), categories), dtypes.float32)


@importer("LabelEncoder", domain=_ML)
def _label_encoder(operation: Operation) -> Output:
    x = operation[0]
    keys, values, default = _mapping(operation)
    key_values = constant(keys)
    matches = equal(
        expand_dims(x, -1),
        cast(key_values, x.dtype) if x.dtype is not key_values.dtype else key_values,
    )
    if keys.dtype.kind == "f":
        both_nan = logical_and(expand_dims(not_equal(x, x), -1), constant(np.isnan(keys)))
        matches = matches | both_nan
    return _look_up(matches, values, default)


@importer("CategoryMapper", domain=_ML)
def _category_mapper(operation: Operation) -> Output:
    x = operation[0]
    numbers = np.array(operation.required("cats_int64s"), np.int64)
    texts = np.array([item.encode() for item in operation.required("cats_strings")], object)
    if len(numbers) != len(texts):
        raise errors.InvalidArgumentError("CategoryMapper requires one string per integer")
    keys, values, default = texts, numbers, np.array(operation.attribute("default_int64", -1))
    if x.dtype is not dtypes.string:
        keys, values = numbers, texts
        default = np.array(operation.attribute("default_string", "_Unused").encode(), object)
    return _look_up(equal(expand_dims(x, -1), constant(keys)), values, default)


def _look_up(matches: Output, values: Any, default: Any) -> Output:
    """Return the value of the first equal key, or the default."""
    index = argmax(cast(matches, dtypes.int32), -1)
    return where_v2(reduce_any(matches, -1), gather(constant(values), index), constant(default))


def _mapping(operation: Operation) -> tuple[Any, Any, Any]:
    """Return keys, values and the default for unknown keys."""
    result: dict[str, Any] = {}
    kinds = {"strings": object, "int64s": np.int64, "floats": np.float32, "tensor": None}
    for part in ("keys", "values"):
        for kind, dtype in kinds.items():
            entries = operation.attribute(f"{part}_{kind}")
            if entries is None:
                continue
            if dtype is object:
                entries = [item.encode() for item in entries]
            result[part] = np.asarray(entries) if dtype is None else np.array(entries, dtype)
            result[f"{part}_kind"] = kind
    if (
        "keys" not in result
        or "values" not in result
        or len(result["keys"]) != len(result["values"])
    ):
        raise errors.InvalidArgumentError("LabelEncoder requires one value per key")
    default = operation.attribute("default_tensor")
    values = result["values"]
    if default is None:
        if values.dtype == object:
            default = operation.attribute("default_string", "_Unused").encode()
        elif values.dtype.kind == "f":
            default = operation.attribute("default_float", -0.0)
        else:
            default = operation.attribute("default_int64", -1)
    return result["keys"], values, np.asarray(default, values.dtype).reshape(())


@importer("LinearRegressor", domain=_ML)
def _linear_regressor(operation: Operation) -> Output:
    targets = operation.attribute("targets", 1)
    weights = np.array(operation.required("coefficients"), np.float32).reshape(targets, -1)
    result = matmul(to_floats(operation[0]), constant(weights.T.copy()))
    offset = operation.attribute("intercepts")
    if offset:
        result = result + constant(offset, dtypes.float32)
    return transform_scores(result, operation.attribute("post_transform", "NONE"))


@importer("LinearClassifier", domain=_ML)
def _linear_classifier(operation: Operation) -> list[Output]:
    labels = class_labels(operation)
    offset = operation.attribute("intercepts") or [0.0]
    weights = np.array(operation.required("coefficients"), np.float32).reshape(len(offset), -1)
    scores = matmul(to_floats(operation[0]), constant(weights.T.copy()))
    scores = scores + constant(offset, dtypes.float32)
    kind = operation.attribute("post_transform", "NONE")
    if len(labels) == 2 and len(offset) == 1:
        column = scores[:, 0]
        chosen = cast(greater(column, like(0, column)), dtypes.int64)
        if kind == "LOGISTIC":
            second = transform_scores(column, kind)
            return [select_labels(operation, chosen), stack([1.0 - second, second], axis=1)]
        return [
            select_labels(operation, chosen),
            transform_scores(stack([-column, column], axis=1), kind),
        ]
    return [select_labels(operation, argmax(scores, 1)), transform_scores(scores, kind)]


@importer("ZipMap", domain=_ML)
def _zip_map(operation: Operation) -> Output:
    """Return the matrix of probabilities, since weft has no maps; columns are in label order."""
    return operation[0]

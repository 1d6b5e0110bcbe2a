"""Post-processing of the scores of classical models: probabilities and labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft_graph.ir.builder import constant
from weft_graph.ir.node import Output
from weft_graph.ops.comparison import not_equal
from weft_graph.ops.elementary import sigmoid
from weft_graph.ops.gather import gather
from weft_graph.ops.masks import where_v2
from weft_graph.ops.nn import softmax
from weft_graph.ops.special import ndtri
from weft_io.onnx.operation import Operation, cast, like
from weft_tensor import dtypes, errors


def to_floats(x: Output) -> Output:
    """Convert features to float32."""
    return x if x.dtype is dtypes.float32 else cast(x, dtypes.float32)


def transform_scores(scores: Output, kind: str) -> Output:
    """Apply ONNX's `post_transform` to scores.

    Raises: InvalidArgumentError: ONNX has no such kind.
    """
    if kind == "NONE":
        return scores
    if kind == "SOFTMAX":
        return softmax(scores)
    if kind == "LOGISTIC":
        return sigmoid(scores)
    if kind == "SOFTMAX_ZERO":
        is_nonzero = not_equal(scores, 0)
        lowest = where_v2(is_nonzero, scores, like(float("-inf"), scores))
        return where_v2(is_nonzero, softmax(lowest), scores)
    if kind == "PROBIT":
        return ndtri(scores)
    raise errors.InvalidArgumentError(f"unknown post_transform {kind!r}")


def class_labels(operation: Operation) -> np.ndarray[Any, Any]:
    """Return the labels of the classes.

    Raises: InvalidArgumentError: the labels are missing.
    """
    text = operation.attribute("classlabels_strings")
    if text:
        return np.array([item.encode() for item in text], object)
    for name in ("classlabels_int64s", "classlabels_ints"):
        if operation.attribute(name):
            return np.array(operation.attribute(name), np.int64)
    raise errors.InvalidArgumentError(f"{operation.op} requires labels of its classes")


def select_labels(operation: Operation, classes: Output) -> Output:
    """Convert class indices to labels."""
    return gather(constant(class_labels(operation)), classes)

"""Random numbers; a seed is an integer in weft and a float in ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft_graph.ir.node import Output
from weft_graph.ops.comparison import less
from weft_graph.ops.random import multinomial, random_normal, random_uniform
from weft_graph.ops.shapes import shape
from weft_io.onnx.operation import Operation, cast
from weft_io.onnx.registry import importer
from weft_tensor import dtypes
from weft_tensor.dtypes import DType


def _seed(operation: Operation) -> int | None:
    seed = operation.attribute("seed")
    return None if seed is None else int(np.float32(seed).view(np.int32))


def _draw_samples(operation: Operation, sizes: Any, dtype: DType) -> Output:
    seed = _seed(operation)
    if operation.op.startswith("RandomNormal"):
        mean, scale = operation.attribute("mean", 0.0), operation.attribute("scale", 1.0)
        return random_normal(sizes, mean, scale, dtype, seed=seed)
    low, high = operation.attribute("low", 0.0), operation.attribute("high", 1.0)
    return random_uniform(sizes, low, high, dtype, seed=seed)


@importer("RandomNormal", "RandomUniform")
def _random(operation: Operation) -> Output:
    return _draw_samples(
        operation, operation.required("shape"), operation.dtype_of("dtype", dtypes.float32)
    )


@importer("RandomNormalLike", "RandomUniformLike")
def _random_like(operation: Operation) -> Output:
    x = operation[0]
    return _draw_samples(operation, shape(x), operation.dtype_of("dtype", x.dtype.base_dtype))


@importer("Bernoulli")
def _bernoulli(operation: Operation) -> Output:
    x = operation[0]
    drawn = random_uniform(shape(x), dtype=dtypes.float64, seed=_seed(operation))
    return cast(
        less(drawn, cast(x, dtypes.float64)), operation.dtype_of("dtype", x.dtype.base_dtype)
    )


@importer("Multinomial")
def _multinomial(operation: Operation) -> Output:
    dtype = operation.dtype_of("dtype", dtypes.int32)
    count = operation.attribute("sample_size", 1)
    return multinomial(operation[0], count, seed=_seed(operation), output_dtype=dtype)

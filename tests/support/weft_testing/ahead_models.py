"""Models whose code differs between processors, for ahead-of-time compilation.

As a program it compiles them for one machine each: `python -m weft_testing.ahead_models` with
arguments of the form `model/target/cpu/features`. It prints a line for each: the size of the
object, or the error that refuses the model.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import weft as wf
from weft_compiler.ahead import compile_graph
from weft_graph.ir.builder import create
from weft_graph.ir.node import Output
from weft_graph.ops.integer_products import matmul_integer
from weft_tensor import errors


def convnet() -> tuple[dict[str, Output], dict[str, Output], dict[str, Any]]:
    """Build a small network that exercises rounding, functions and types."""
    draw = np.random.default_rng(0)
    x = wf.placeholder(wf.float32, [None, 8, 8, 3], name="x")

    def weights(*shape: int) -> Any:
        return wf.constant(draw.standard_normal(shape).astype("f"))

    h = wf.nn.relu6(wf.nn.conv2d(x, weights(3, 3, 3, 8), 2, "SAME"))
    h = wf.nn.relu(wf.nn.depthwise_conv2d(h, weights(3, 3, 8, 1), [1, 1, 1, 1], "SAME"))
    h = wf.nn.max_pool(wf.nn.conv2d(h, weights(1, 1, 8, 6), 1, "VALID"), 2, 2, "VALID")
    flat = wf.reshape(h, [-1, 24])
    outputs = {
        "scores": wf.nn.softmax(flat @ weights(24, 5) * 0.1),
        "rounded": wf.stack([wf.round(x * 7), wf.floor(x * 7), wf.ceil(x * 7)]),
        "rest": wf.floormod(x, 0.3),
        "functions": wf.stack([wf.tanh(x), wf.erf(x), wf.sin(x * 9), wf.pow(wf.abs(x), 2.5)]),
        "halves": wf.cast(wf.cast(x, wf.float16) * 3, wf.bfloat16),
        "pairs": wf.matmul(wf.cast(flat, wf.bfloat16), wf.cast(weights(24, 35), wf.bfloat16)),
        "windows": wf.nn.conv2d(
            wf.cast(x, wf.bfloat16), wf.cast(weights(3, 3, 3, 40), wf.bfloat16), 1, "SAME"
        ),
        "counts": wf.cast(x * 50, wf.int8) * 3,
        "wide": wf.exp(wf.cast(x, wf.float64)),
    }
    return {"x": x}, outputs, {"x": draw.standard_normal((2, 8, 8, 3)).astype("f")}


def many_ops() -> tuple[dict[str, Output], dict[str, Output], list[Any]]:
    """Build loops over steps, data-dependent loops, and dynamic indexing."""
    draw = np.random.default_rng(1)

    def weights(*shape: int) -> Output:
        return wf.constant((draw.standard_normal(shape) / 2).astype("f"))

    arrays = {
        "x": draw.standard_normal((5, 2, 3)).astype("f"),
        "volume": draw.standard_normal((1, 4, 5, 4, 2)).astype("f"),
        "a": (10 ** draw.uniform(-2, 2, 20)).astype("f"),
        "place": np.array([[0, 1], [2, 0], [2, 3]]),
    }
    given = {key: wf.placeholder(each.dtype, each.shape) for key, each in arrays.items()}
    x, volume, a, place = given.values()
    state, vector = wf.zeros([2, 4]), wf.zeros([4])
    layer = [x, state, state, weights(7, 16), vector, vector, vector, weights(16)]
    cell = [x[0], state, weights(7, 8), weights(7, 4), weights(8), weights(4)]
    steps = {"use_peephole": True}
    count = wf.constant(4, wf.int64)
    sparse = [place, wf.ones([3]), wf.constant([3, 4], wf.int64), weights(4, 6)]
    outputs = {
        "layer": create("BlockLSTM", [count, *layer], steps).outputs[6],
        "cell": create("GRUBlockCell", cell, {}).outputs[3],
        "volumes": wf.nn.conv3d(volume, weights(2, 3, 2, 2, 5), [1, 1, 2, 1, 1], "SAME"),
        "near": wf.nn.lrn(volume[0], 1),
        "gamma": wf.stack([wf.igamma(a, a * 1.2), wf.igammac(a, a), wf.zeta(a + 1, a)]),
        "beta": wf.betainc(a, a + 1, a / (a + 1)),
        "polygamma": wf.polygamma(wf.ones([20]) * 2, a),
        "sparse": create("SparseTensorDenseMatMul", sparse, {}).outputs[0],
        "dense": create("SparseToDense", [place, [3, 4], 2.0, -1.0], {}).outputs[0],
        "mirrored": wf.pad(x, [[0, 0], [1, 0], [2, 1]], "REFLECT"),
    }
    return given, outputs, list(arrays.values())


def products_of_bytes() -> tuple[dict[str, Output], dict[str, Output], list[Any]]:
    """Build products of small integers, whose instructions differ most between processors."""
    draw = np.random.default_rng(0)

    def drawn(dtype: str, *shape: int) -> Any:
        limits = np.iinfo(dtype)
        found = draw.integers(limits.min, limits.max + 1, shape)
        ends = draw.choice([limits.min, limits.max], shape)
        return np.where(draw.random(shape) < 0.4, ends, found).astype(dtype)

    sides = {"strides": [1, 1, 1, 1], "padding": "SAME"}
    inputs: dict[str, Output] = {}
    outputs: dict[str, Output] = {}
    arrays = []
    for dtype in ("int8", "uint8"):
        x = inputs[dtype] = wf.placeholder(dtype, [1, 6, 30, 7])
        arrays.append(drawn(dtype, 1, 6, 30, 7))
        rows, columns = wf.reshape(x, [30, 42]), drawn("int8", 42, 37)
        pair = wf.reshape(x, [42, 30])
        outputs[f"{dtype}_product"] = matmul_integer(rows, columns, 3)
        outputs[f"{dtype}_pair"] = matmul_integer(rows, pair, 0, 5)
        for op, shape in (
            ("Conv2DInteger", (3, 3, 7, 35)),
            ("DepthwiseConv2dInteger", (3, 3, 7, 1)),
        ):
            given = [x, wf.constant(drawn("int8", *shape)), wf.constant(5)]
            outputs[f"{dtype}_{op}"] = create(op, given, sides).outputs[0]
    return inputs, outputs, arrays


def product_of_bytes() -> tuple[dict[str, Output], dict[str, Output], list[Any]]:
    """Build one int8 product, which compiles faster than the other models."""
    x = wf.placeholder(wf.int8, [9, 12], name="x")
    y = matmul_integer(x, np.ones((12, 5), "int8"), 3)
    return {"x": x}, {"y": y}, [np.ones((9, 12), "int8")]


def roots() -> tuple[dict[str, Output], dict[str, Output], list[Any]]:
    """Build float64 square roots, for which some processors lack an instruction."""
    x = wf.placeholder(wf.float64, [5], name="x")
    return {"x": x}, {"y": wf.sqrt(x)}, [np.ones(5)]


SMALL = {"product_of_bytes": product_of_bytes, "roots": roots}
MODELS = SMALL | {"convnet": convnet, "many_ops": many_ops, "products_of_bytes": products_of_bytes}


def compile_one(model: str, target: str, cpu: str, features: str) -> str:
    """Compile a model for a machine.

    Returns: the size of the object, or the class and text of the error that refuses it.
    """
    with wf.Graph().as_default():
        inputs, outputs, arrays = MODELS[model]()
        given = arrays.values() if isinstance(arrays, dict) else arrays
        shapes = {key: array.shape for key, array in zip(inputs, given, strict=True)}
        try:
            made = compile_graph(inputs, outputs, target, shapes=shapes, cpu=cpu, features=features)
        except (errors.InvalidArgumentError, errors.UnimplementedError) as error:
            return f"{type(error).__name__}: {error.message}"
    return str(len(made.object))


if __name__ == "__main__":
    for each in sys.argv[1:]:
        sys.stdout.write(f"{each} {compile_one(*each.split('/'))}\n")
        sys.stdout.flush()

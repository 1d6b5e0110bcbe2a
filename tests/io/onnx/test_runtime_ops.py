"""ONNX Runtime's own ops: by NumPy's formulas, and by ONNX Runtime where it is installed."""

from __future__ import annotations

from importlib.util import find_spec
from math import erf
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import helper, numpy_helper
from weft_testing.onnx_evaluators import REFERENCE, answers

import weft as wf

RNG = np.random.default_rng()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Each test draws the same random numbers, independent of earlier tests."""
    global RNG
    RNG = np.random.default_rng(5)


def drawn(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def small(*shape: int, dtype: Any = np.uint8) -> Any:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def model_of(op: str, inputs: list[Any], outputs: list[Any], domain: str, **attributes: Any) -> Any:
    """A model of one op; an input of None is left out."""
    names = ["" if value is None else f"x{i}" for i, value in enumerate(inputs)]
    given = {name: np.asarray(value) for name, value in zip(names, inputs, strict=True) if name}
    kind = helper.np_dtype_to_tensor_dtype
    results = [f"y{i}" for i in range(len(outputs))]
    graph = helper.make_graph(
        [helper.make_node(op, names, results, domain=domain, **attributes)],
        "net",
        [helper.make_tensor_value_info(n, kind(v.dtype), v.shape) for n, v in given.items()],
        [
            helper.make_tensor_value_info(name, kind(np.dtype(dtype)), None)
            for name, dtype in zip(results, outputs, strict=True)
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), given


def run(
    op: str,
    inputs: list[Any],
    outputs: list[Any],
    domain: str = "com.microsoft",
    **attributes: Any,
) -> list[Any]:
    """Compare weft's results with those of ONNX Runtime; 8-bit results may differ by one."""
    model, feeds = model_of(op, inputs, outputs, domain, **attributes)
    found: list[Any] = list(wf.onnx.Backend.run_model(model, feeds))
    if find_spec("onnxruntime"):
        for values in answers(model, feeds, [REFERENCE]):
            compare(found, values)
    return found


def compare(found: list[Any], expected: list[Any]) -> None:
    for own, other in zip(found, expected, strict=True):
        assert own.dtype == other.dtype
        if own.dtype.kind in "iu":
            np.testing.assert_allclose(own.astype(int), other.astype(int), atol=1)
        else:
            np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-5)


SCALES = np.float32(0.02), np.float32(0.03), np.float32(0.05)


def stored(x: Any, scale: Any, zero: Any) -> Any:
    limits = np.iinfo(zero.dtype)
    return np.clip(np.rint(x / scale) + zero, limits.min, limits.max).astype(zero.dtype)


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_sums_and_products_in_8_bits(op: str, dtype: Any) -> None:
    a, b, zeros = small(2, 3, 4, dtype=dtype), small(3, 1, dtype=dtype), dtype([3, 9, 20])
    inputs = [a, SCALES[0], zeros[0], b, SCALES[1], zeros[1], SCALES[2], zeros[2]]
    found = run(op, inputs, [dtype])
    x, y = (a.astype(int) - int(zeros[0])) * SCALES[0], (b.astype(int) - int(zeros[1])) * SCALES[1]
    compare(found, [stored(x + y if op == "QLinearAdd" else x * y, SCALES[2], zeros[2])])
    found = run(op, inputs[:7], [dtype])
    compare(found, [stored(x + y if op == "QLinearAdd" else x * y, SCALES[2], dtype(0))])


def test_functions_of_one_number_in_8_bits() -> None:
    x, zero = small(2, 3, 4, 4), np.uint8(120)
    real = (x.astype(np.float32) - 120) * SCALES[1]
    ends = [np.float32(1 / 256), np.uint8(0)]
    inputs = [x, SCALES[1], zero, *ends]
    compare(run("QLinearSigmoid", inputs, [np.uint8]), [stored(1 / (1 + np.exp(-real)), *ends)])
    leaky = run("QLinearLeakyRelu", [*inputs[:3], SCALES[2], zero], [np.uint8], alpha=0.25)
    compare(leaky, [stored(np.where(real < 0, real / 4, real), SCALES[2], zero)])
    power = np.exp(real - real.max(-1, keepdims=True))
    soft = run("QLinearSoftmax", inputs, [np.uint8], axis=-1, opset=13)
    compare(soft, [stored(power / power.sum(-1, keepdims=True), *ends)])


@pytest.mark.parametrize("last", [0, 1])
def test_pools_in_8_bits(last: int) -> None:
    x, zero = small(2, 3, 4, 6), np.uint8(7)
    real = (x.astype(np.float32) - 7) * SCALES[0]
    inputs = [x, SCALES[0], zero, SCALES[1], np.uint8(9)]
    axes = (1, 2) if last else (2, 3)
    mean = stored(real.mean(axes, keepdims=True), SCALES[1], np.uint8(9))
    compare(run("QLinearGlobalAveragePool", inputs, [np.uint8], channels_last=last), [mean])
    parts = real.reshape(2, 3, 2, 2, 3, 2).mean((3, 5))
    if not last:
        found = run("QLinearAveragePool", inputs, [np.uint8], kernel_shape=[2, 2], strides=[2, 2])
        compare(found, [stored(parts, SCALES[1], np.uint8(9))])


def test_what_joins_and_chooses_in_8_bits() -> None:
    a, b, zeros = small(2, 3), small(2, 5), np.uint8([4, 8, 100])
    x, y = (a.astype(int) - 4) * SCALES[0], (b.astype(int) - 8) * SCALES[1]
    inputs = [SCALES[2], zeros[2], a, SCALES[0], zeros[0], b, SCALES[1], zeros[1]]
    found = run("QLinearConcat", inputs, [np.uint8], axis=1)
    compare(found, [stored(np.concatenate([x, y], 1), SCALES[2], zeros[2])])
    chosen = RNG.random((2, 3)) < 0.5
    c = b[:, :3]
    inputs = [chosen, a, SCALES[0], zeros[0], c, SCALES[1], zeros[1], SCALES[2], zeros[2]]
    found = run("QLinearWhere", inputs, [np.uint8])
    compare(found, [stored(np.where(chosen, x, y[:, :3]), SCALES[2], zeros[2])])


def test_a_mean_in_8_bits() -> None:
    x = small(2, 3, 4)
    inputs = [x, SCALES[0], np.uint8(7), SCALES[1], np.uint8(9)]
    model, feeds = model_of("QLinearReduceMean", inputs, [np.uint8], "com.microsoft", axes=[1])
    mean = ((x.astype(np.float32) - 7) * SCALES[0]).mean(1, keepdims=True)
    compare([*wf.onnx.Backend.run_model(model, feeds)], [stored(mean, SCALES[1], np.uint8(9))])


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("is_real", [False, True])
def test_products_with_a_bias_in_8_bits(turned: int, is_real: bool) -> None:
    a, b, c = small(3, 5), small(5, 4, dtype=np.int8), RNG.integers(-9999, 9999, 4, np.int32)
    scales = SCALES[1] * np.float32([1, 2, 3, 4])
    product = (a.astype(int) - 9) @ b.astype(int) + c
    real = product * SCALES[0] * scales * 0.5
    b = b.T if turned else b
    ends = [] if is_real else [np.float32(3), np.uint8(99)]
    inputs = [a, SCALES[0], np.uint8(9), b, scales, np.zeros(4, np.int8), c, *ends]
    found = run("QGemm", inputs, [np.float32 if is_real else np.uint8], transB=turned, alpha=0.5)
    compare(found, [real.astype(np.float32) if is_real else stored(real, *ends)])


def test_products_of_8_bits_as_floats() -> None:
    a, b, bias = small(3, 5), small(5, 4, dtype=np.int8), drawn(4)
    scales, zeros = SCALES[1] * np.float32([1, 2, 3, 4]), np.int8([1, -2, 3, 4])
    whole = (a.astype(int) - 9) @ (b.astype(int) - zeros) * SCALES[0] * scales + bias
    inputs = [a, b, SCALES[0], scales, np.uint8(9), zeros, bias]
    compare(run("MatMulIntegerToFloat", inputs, [np.float32]), [whole.astype(np.float32)])
    x = drawn(3, 5)
    (found,) = run("DynamicQuantizeMatMul", [x, b, scales, zeros, bias], [np.float32])
    exact = x @ ((b.astype(np.float32) - zeros) * scales) + bias
    assert np.abs(found - exact).max() < 0.02 * np.abs(exact).max()


def gelu(x: Any) -> Any:
    return (0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2)))).astype(np.float32)


def test_gelus() -> None:
    x, bias = drawn(3, 4), drawn(4)
    compare(run("Gelu", [x], [np.float32]), [gelu(x)])
    compare(run("BiasGelu", [x, bias], [np.float32]), [gelu(x + bias)])
    for given in ([x], [x, bias]):
        (found,) = run("FastGelu", given, [np.float32])
        np.testing.assert_allclose(found, gelu(sum(given)), atol=1e-3)
    (found,) = run("QuickGelu", [x], [np.float32], alpha=2.0)
    np.testing.assert_allclose(found, x / (1 + np.exp(-2 * x)), rtol=1e-5)


@pytest.mark.parametrize(
    ("attributes", "function"),
    [
        ({}, lambda x: x),
        ({"activation": "Relu"}, lambda x: np.maximum(x, 0)),
        ({"activation": "Tanh"}, np.tanh),
        ({"activation": "Sigmoid"}, lambda x: 1 / (1 + np.exp(-x))),
        (
            {"activation": "LeakyRelu", "activation_params": [0.25]},
            lambda x: np.where(x < 0, x / 4, x),
        ),
        (
            {"activation": "Clip", "activation_params": [-0.5, 0.75]},
            lambda x: np.clip(x, -0.5, 0.75),
        ),
        (
            {"activation": "HardSigmoid", "activation_params": [0.5, 0.25]},
            lambda x: np.clip(x / 2 + 0.25, 0, 1),
        ),
    ],
)
def test_convolutions_with_what_comes_after(attributes: dict[str, Any], function: Any) -> None:
    x, w, bias, more = drawn(1, 3, 4, 4), drawn(8, 3, 1, 1), drawn(8), drawn(1, 8, 4, 4)
    plain = np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0]) + bias[:, None, None]
    fits = attributes.get("activation") in (None, "Relu")
    given, sums = ([x, w, bias, more], plain + more) if fits else ([x, w, bias], plain)
    compare(run("FusedConv", given, [np.float32], **attributes), [function(sums)])


@pytest.mark.parametrize("batch", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("matrix", [(0, 0), (1, 0), (0, 1)])
def test_products_with_operands_turned(batch: tuple[int, int], matrix: tuple[int, int]) -> None:
    a, b = drawn(2, 3, 5), drawn(2, 5, 4)
    given = []
    for value, moved, turned in zip((a, b), batch, matrix, strict=True):
        value = np.swapaxes(value, 1, 2) if turned else value
        given.append(np.moveaxis(value, 1, 0) if moved else value)
    flags = {"transA": matrix[0], "transB": matrix[1]}
    flags |= {"transBatchA": batch[0], "transBatchB": batch[1]}
    compare(run("FusedMatMul", given, [np.float32], alpha=0.5, **flags), [a @ b / 2])


def test_a_product_with_a_bias_and_an_activation() -> None:
    a, b, c = drawn(3, 4), drawn(5, 4), drawn(5)
    attributes = {"transB": 1, "alpha": 0.5, "activation": "LeakyRelu", "activation_alpha": 0.25}
    x = a @ b.T / 2 + c
    compare(run("FusedGemm", [a, b, c], [np.float32], **attributes), [np.where(x < 0, x / 4, x)])


def normal(x: Any, scale: Any, bias: Any = 0, centered: bool = True, epsilon: float = 1e-5) -> Any:
    x = x - x.mean(-1, keepdims=True) if centered else x
    return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + epsilon) * scale + bias


def test_normalizations_of_sums() -> None:
    x, skip, scale, beta, bias = drawn(2, 3, 8), drawn(2, 3, 8), *(drawn(8) for _ in range(3))
    total = x + skip + bias
    found = run("SkipLayerNormalization", [x, skip, scale, beta, bias], [np.float32], epsilon=1e-5)
    compare(found, [normal(total, scale, beta)])
    given, name = [x, skip, scale, bias], "SkipSimplifiedLayerNormalization"
    compare(run(name, given, [np.float32], epsilon=1e-5), [normal(total, scale, centered=False)])
    found = run("SimplifiedLayerNormalization", [x, scale], [np.float32], "", epsilon=1e-5, axis=-1)
    compare(found, [normal(x, scale, centered=False)])


def test_embeddings_are_added_and_normalized() -> None:
    ids, segments = RNG.integers(0, 9, (2, 5), np.int32), RNG.integers(0, 2, (2, 5), np.int32)
    words, places, kinds, scale, beta = drawn(9, 8), drawn(6, 8), drawn(2, 8), drawn(8), drawn(8)
    mask = np.int32([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    given = [ids, segments, words, places, kinds, scale, beta, mask]
    found = run("EmbedLayerNormalization", given, [np.float32, np.int32], epsilon=1e-5)
    total = words[ids] + places[:5] + kinds[segments]
    compare(found, [normal(total, scale, beta), np.int32([5, 3])])
    given[1] = given[4] = None
    found = run("EmbedLayerNormalization", given, [np.float32, np.int32], epsilon=1e-5)
    compare(found[:1], [normal(words[ids] + places[:5], scale, beta)])


def attended(query: Any, key: Any, value: Any, heads: int, seen: Any = True) -> Any:
    parts = [np.stack(np.split(each, heads, -1), 1) for each in (query, key, value)]
    scores = parts[0] @ parts[1].swapaxes(2, 3) / np.sqrt(parts[0].shape[-1])
    power = np.exp(np.where(seen, scores, -1e4))
    found = power / power.sum(-1, keepdims=True) @ parts[2]
    return np.concatenate([found[:, i] for i in range(heads)], -1).astype(np.float32)


MASKS = {
    "none": (None, True),
    "lengths": (np.int32([3, 5]), np.arange(5) < np.array([3, 5])[:, None, None, None]),
    "keys": (
        np.int32([[1, 0, 1, 1, 1], [1, 1, 1, 1, 0]]),
        np.array([[1, 0, 1, 1, 1], [1, 1, 1, 1, 0]])[:, None, None] > 0,
    ),
}


@pytest.mark.parametrize("form", MASKS)
def test_attention(form: str) -> None:
    x, w, bias = drawn(2, 5, 8), drawn(8, 24), drawn(24)
    mask, seen = MASKS[form]
    parts = np.split(x @ w + bias, 3, -1)
    found = run("Attention", [x, w, bias, mask], [np.float32], num_heads=2)
    compare(found, [attended(*parts, 2, seen)])
    before = np.tril(np.ones((5, 5), bool)) & seen
    found = run("Attention", [x, w, bias, mask], [np.float32], num_heads=2, unidirectional=1)
    compare(found, [attended(*parts, 2, before)])


def test_lengths_of_attention_may_have_beginnings() -> None:
    kinds, first, end = [np.float32], np.int32([1, 0]), np.int32([5, 3])
    places = np.arange(5)
    seen = ((places >= first[:, None]) & (places < end[:, None]))[:, None, None]
    x, w, bias = drawn(2, 5, 8), drawn(8, 24), drawn(24)
    given = [x, w, bias, np.concatenate([end, first])]
    found = run("Attention", given, kinds, num_heads=2)
    compare(found, [attended(*np.split(x @ w + bias, 3, -1), 2, seen)])
    x, sums = x[:1], np.int32([4, 0, 5, 0, 5])  # of one sequence, and where others would begin
    found = run("Attention", [x, w, bias, sums], kinds, num_heads=2)
    compare(found, [attended(*np.split(x @ w + bias, 3, -1), 2, places < 4)])
    masks = np.int32([[-1, 1, 2, 0, 1]])
    found = run("Attention", [x, w, bias, masks], kinds, num_heads=2)
    compare(found, [attended(*np.split(x @ w + bias, 3, -1), 2, masks[:, None, None] > 0)])


@pytest.mark.parametrize(("steps", "whole"), [(3, 5), (5, 3), (1, 4)])
def test_later_keys_of_another_sequence(steps: int, whole: int) -> None:
    """Queries see keys up to their own place, and the last one all, as in ONNX Runtime."""
    query, key, value = drawn(2, steps, 8), drawn(2, whole, 8), drawn(2, whole, 8)
    seen = np.tril(np.ones((steps, whole), bool))
    seen[-1] = True
    given = [query, key, value]
    found = run("MultiHeadAttention", given, [np.float32], num_heads=2, unidirectional=1)
    compare(found, [attended(query, key, value, 2, seen)])


def test_attention_with_a_past() -> None:
    x, w, bias, past = drawn(2, 3, 8), drawn(8, 24), drawn(24), drawn(2, 2, 2, 4, 4)
    kinds = [np.float32, np.float32]
    found = run("Attention", [x, w, bias, None, past], kinds, num_heads=2, unidirectional=1)
    query, *parts = np.split(x @ w + bias, 3, -1)
    before = [np.concatenate([each[:, 0], each[:, 1]], -1) for each in past]
    key, value = (np.concatenate(pair, 1) for pair in zip(before, parts, strict=True))
    compare(found[:1], [attended(query, key, value, 2, np.tril(np.ones((3, 7), bool), 4))])
    np.testing.assert_allclose(found[1][:, :, :, :4], past)


def test_attention_of_several_inputs() -> None:
    query, key, value = drawn(2, 3, 8), drawn(2, 5, 8), drawn(2, 5, 8)
    bias, more = drawn(24), drawn(1, 2, 3, 5)
    moved = [x + part for x, part in zip((query, key, value), np.split(bias, 3), strict=True)]
    found = run("MultiHeadAttention", [query, key, value, bias], [np.float32], num_heads=2)
    compare(found, [attended(*moved, 2)])
    run("MultiHeadAttention", [query, key, value, bias, None, more], [np.float32], num_heads=2)
    kinds = [np.float32] * 4
    with pytest.raises(wf.errors.UnimplementedError, match="does not support the output qk"):
        run("MultiHeadAttention", [query, key, value], kinds, num_heads=2)


@pytest.mark.parametrize("zeros", [(), (np.uint8(130), np.uint8(120))])
def test_attention_by_a_product_of_8_bits(zeros: tuple[Any, ...]) -> None:
    x, w, bias = small(2, 5, 8), small(8, 24), drawn(24)
    scales = np.float32(0.02), np.float32(0.01)
    mask = np.int32([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    given = [x, w, bias, *scales, mask, *(zeros or (np.uint8(0), np.uint8(0)))]
    (found,) = run("QAttention", given, [np.float32], num_heads=2)
    real = [(a.astype(np.float32) - given[6 + i]) * scales[i] for i, a in enumerate((x, w))]
    expected = run("Attention", [*real, bias, mask], [np.float32], num_heads=2)
    compare([found], expected)


def test_attention_of_packed_inputs() -> None:
    """ONNX Runtime has them on GPUs alone."""
    query, key, value = drawn(2, 5, 8), drawn(2, 5, 8), drawn(2, 5, 8)
    expected = run("MultiHeadAttention", [query, key, value], [np.float32], num_heads=2)
    q, k, v = (each.reshape(2, 5, 2, 4) for each in (query, key, value))
    for inputs in ([np.stack([q, k, v], 3)], [query, np.stack([k, v], 3)]):
        model, feeds = model_of(
            "MultiHeadAttention", inputs, [np.float32], "com.microsoft", num_heads=2
        )
        compare(list(wf.onnx.Backend.run_model(model, feeds)), expected)


def test_attention_over_another_s_heads() -> None:
    query, key, value = drawn(2, 3, 8), drawn(2, 2, 5, 4), drawn(2, 2, 5, 4)
    found = run("MultiHeadAttention", [query, key, value], [np.float32], num_heads=2)
    plain = [each.transpose(0, 2, 1, 3).reshape(2, 5, 8) for each in (key, value)]
    compare(found, run("MultiHeadAttention", [query, *plain], [np.float32], num_heads=2))


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("form", ["", "zeros", "bias"])
def test_products_with_weights_of_few_bits(bits: int, form: str) -> None:
    depth, width, block = 40, 3, 16
    count = -(-depth // block)
    x, scales = drawn(2, 4, depth), np.abs(drawn(width, count)) + 0.1
    packed = small(width, count, block * bits // 8)
    zeros = small(width, -(-count * bits // 8)) if form == "zeros" else None
    bias = drawn(width) if form == "bias" else None
    inputs = [x, packed, scales.ravel(), None if zeros is None else zeros.ravel(), None, bias]
    while inputs[-1] is None:
        inputs.pop()
    attributes = {"K": depth, "N": width, "bits": bits, "block_size": block}
    model, feeds = model_of("MatMulNBits", inputs, [np.float32], "com.microsoft", **attributes)
    for at, value in enumerate(inputs[1:], 1):  # which are constants of the model
        if value is not None:
            model.graph.initializer.append(numpy_helper.from_array(value, f"x{at}"))
    del model.graph.input[1:]
    feeds = {"x0": x}
    found = list(wf.onnx.Backend.run_model(model, feeds))
    numbers = unpacked(packed, bits).reshape(width, count, block).astype(np.float32)
    points = 2 ** (bits - 1) if zeros is None else unpacked(zeros, bits)[:, :count, None]
    weights = ((numbers - points) * scales[..., None]).reshape(width, -1)[:, :depth]
    compare(found, [x @ weights.T + (0 if bias is None else bias)])
    if find_spec("onnxruntime") and bits != 2:
        for values in answers(model, feeds, [REFERENCE]):
            np.testing.assert_allclose(found[0], values[0], 1e-2, 1e-2)


def unpacked(packed: Any, bits: int) -> Any:
    """The numbers in bytes, the low bits first."""
    parts = [packed >> at & (2**bits - 1) for at in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(len(packed), -1)


def test_forms_that_are_not_taken_say_so() -> None:
    packed = [drawn(2, 5, 2, 3, 4), None, None, drawn(24)]
    for op, inputs, attributes in (
        ("MultiHeadAttention", packed, {}),
        ("Attention", [drawn(2, 5, 8), drawn(8, 24), drawn(24)], {"do_rotary": 1}),
        (
            "Attention",
            [drawn(2, 5, 8), drawn(8, 24), drawn(24), np.zeros((2, 1, 5, 5), np.int32)],
            {},
        ),
    ):
        model, feeds = model_of(
            op, inputs, [np.float32], "com.microsoft", num_heads=2, **attributes
        )
        with pytest.raises(wf.errors.UnimplementedError, match=op):
            wf.onnx.Backend.run_model(model, feeds)


def test_an_activation_that_is_unknown_is_refused() -> None:
    inputs = [drawn(1, 1, 2, 2), drawn(1, 1, 1, 1)]
    model, feeds = model_of(
        "FusedConv", inputs, [np.float32], "com.microsoft", activation="NoSuchOp"
    )
    with pytest.raises(wf.errors.InvalidArgumentError, match="NoSuchOp"):
        wf.onnx.Backend.run_model(model, feeds)


def test_what_is_behind_all_ends_has_no_part_in_the_scale() -> None:
    x, bias, lengths = drawn(4, 2, 3), drawn(1, 16), np.int32([2, 2])
    w, r = small(1, 3, 8, dtype=np.int8), small(1, 2, 8, dtype=np.int8)
    scale, zero = np.float32([0.01]), np.zeros(1, np.int8)
    kinds, results = [np.float32] * 3, []
    for factor in (1, 1000):
        x[2:] *= factor
        given = [x, w, r, bias, lengths, None, None, None, scale, zero, scale, zero]
        results.append(run("DynamicQuantizeLSTM", given, kinds, hidden_size=2))
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def _quantized_lstm(x: Any, w: Any, r: Any, bias: Any, lengths: Any, scale: float) -> Any:
    """Return the results of an LSTM with quantized inputs and states, one scale per step."""

    def rounded(x: Any) -> Any:
        low, high = min(x.min(), 0), max(x.max(), 0)
        step = np.float32((high - low) / 255) or np.float32(1)
        zero = np.rint(-low / step)
        return (np.clip(np.rint(x / step) + zero, 0, 255) - zero) * step

    def sigmoid(x: Any) -> Any:
        return 1 / (1 + np.exp(-x))

    (steps, batch, _), width = x.shape, r.shape[1]
    rows = rounded(x) @ (w[0] * np.float32(scale)) + bias[0].reshape(2, -1).sum(0)
    state = cell = np.zeros((batch, width), np.float32)
    every = np.zeros((steps, batch, width), np.float32)
    for step in range(steps):
        there = (lengths > step)[:, None]
        seen = every[step - 1] if step else state
        gates = rows[step] + rounded(seen) @ (r[0] * np.float32(scale))
        i, o, forget, entry = np.split(gates, 4, 1)
        new = sigmoid(forget) * cell + sigmoid(i) * np.tanh(entry)
        shown = sigmoid(o) * np.tanh(new)
        every[step] = np.where(there, shown, 0)
        state, cell = np.where(there, shown, state), np.where(there, new, cell)
    return every, state, cell


@pytest.mark.parametrize("jit", ["off", "now"])
def test_a_state_behind_its_end_has_a_part_in_one_scale(
    jit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_JIT", jit)
    lengths, scale, zero = np.int32([5, 2, 4]), np.float32([0.02]), np.zeros(1, np.int8)
    for _ in range(3):
        x, bias = 0.1 * drawn(5, 3, 3), drawn(1, 32)
        x[:, 1] *= 100  # whose state is the largest, and ends first
        w, r = small(1, 3, 16, dtype=np.int8), small(1, 4, 16, dtype=np.int8)
        given = [x, w, r, bias, lengths, None, None, None, scale, zero, scale, zero]
        model, feeds = model_of(
            "DynamicQuantizeLSTM", given, [np.float32] * 3, "com.microsoft", hidden_size=4
        )
        with wf.Graph().as_default(), wf.Session() as session:
            known = {name: wf.constant(value) for name, value in feeds.items() if name != "x0"}
            found = wf.onnx.import_model(model, inputs=known)
            values = session.run(list(found.outputs.values()), {found.inputs["x0"]: x})
        expected = _quantized_lstm(x, w, r, bias, lengths, 0.02)
        for value, want in zip(values, expected, strict=True):
            np.testing.assert_allclose(value.reshape(want.shape), want, rtol=1e-5, atol=1e-5)

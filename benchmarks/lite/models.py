"""Networks in the API that weft and TensorFlow share, with random weights.

python models.py FOLDER weft | tensorflow | onnxruntime | ncnn [NAME ...]   writes for each
`<name>`, `<name>_int8` and `<name>_int16` (int8 weights, int16 between) what the runtime opens:
`.weftlite` with `.onnx` of floats, `.tflite`, or from the `.onnx` the `_int8.onnx` and, by pnnx,
the `.ncnn.param` with its `.ncnn.bin`. ONNX Runtime has no int16, and what makes int8 for ncnn is
in no wheel.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

Network = tuple[list[Any], list[Any]]
"""The inputs, of which the first is named x, and the outputs, of which the first is named y."""


def _random(tf: Any, shape: Sequence[int], deviation: float) -> Any:
    start = tf.random_normal_initializer(stddev=deviation)
    return tf.get_variable(f"weights_{len(tf.global_variables())}", shape, initializer=start)


def _weights(tf: Any, *shape: int) -> Any:
    """Return weights that keep the magnitude of what they multiply, before a ReLU."""
    return _random(tf, shape, math.sqrt(2 / math.prod(shape[:-1])))


def _bias(tf: Any, width: int) -> Any:
    return _random(tf, [width], 0.1)


def _norm(tf: Any, x: Any) -> Any:
    ones, zeros = [[value] * int(x.shape[3]) for value in (1.0, 0.0)]
    return tf.nn.fused_batch_norm(x, ones, zeros, zeros, ones, is_training=False)[0]


def _dense(tf: Any, x: Any, width: int) -> Any:
    weights, bias = _weights(tf, int(x.shape[-1]), width), _bias(tf, width)
    shape = [int(size) for size in x.shape]
    flat = tf.matmul(tf.reshape(x, [-1, shape[-1]]), weights) + bias
    return tf.reshape(flat, [*shape[:-1], width])


def _conv(tf: Any, x: Any, width: int, size: int, stride: int, act: Any) -> Any:
    filters = _weights(tf, size, size, int(x.shape[3]), width)
    x = _norm(tf, tf.nn.conv2d(x, filters, [1, stride, stride, 1], "SAME"))
    return act(x) if act else x


def _depthwise(tf: Any, x: Any, size: int, stride: int, act: Any) -> Any:
    filters = _random(tf, [size, size, int(x.shape[3]), 1], math.sqrt(2) / size)
    return act(_norm(tf, tf.nn.depthwise_conv2d(x, filters, [1, stride, stride, 1], "SAME")))


def mobilenet_v1(tf: Any) -> Network:
    x = image = tf.placeholder(tf.float32, [1, 224, 224, 3], name="x")
    x = _conv(tf, x, 32, 3, 2, tf.nn.relu6)
    strides = {128: 2, 256: 2, 512: 2, 1024: 2}
    for width in [64, 128, 128, 256, 256, *[512] * 6, 1024, 1024]:
        x = _depthwise(tf, x, 3, strides.pop(width, 1), tf.nn.relu6)
        x = _conv(tf, x, width, 1, 1, tf.nn.relu6)
    x = tf.reduce_mean(x, [1, 2])
    return [image], [tf.nn.softmax(_dense(tf, x, 1000), name="y")]


def mobilenet_v2(tf: Any) -> Network:
    x = image = tf.placeholder(tf.float32, [1, 224, 224, 3], name="x")
    x = _conv(tf, x, 32, 3, 2, tf.nn.relu6)
    rows = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
            (6, 160, 3, 2), (6, 320, 1, 1)]  # fmt: skip
    for factor, width, count, stride in rows:
        for i in range(count):
            before, depth = x, int(x.shape[3])
            if factor > 1:
                x = _conv(tf, x, factor * depth, 1, 1, tf.nn.relu6)
            x = _depthwise(tf, x, 3, stride if i == 0 else 1, tf.nn.relu6)
            x = _conv(tf, x, width, 1, 1, None)
            if i:
                x = x + before
    x = tf.reduce_mean(_conv(tf, x, 1280, 1, 1, tf.nn.relu6), [1, 2])
    return [image], [tf.nn.softmax(_dense(tf, x, 1000), name="y")]


def efficientnet_lite(tf: Any) -> Network:
    """Build EfficientNet-Lite0: filters of 3×3 and 5×5, ReLU6, no squeeze-and-excitation."""
    x = image = tf.placeholder(tf.float32, [1, 224, 224, 3], name="x")
    x = _conv(tf, x, 32, 3, 2, tf.nn.relu6)
    rows = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3),
            (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)]  # fmt: skip
    for factor, width, count, stride, size in rows:
        for i in range(count):
            before, depth = x, int(x.shape[3])
            if factor > 1:
                x = _conv(tf, x, factor * depth, 1, 1, tf.nn.relu6)
            x = _depthwise(tf, x, size, stride if i == 0 else 1, tf.nn.relu6)
            x = _conv(tf, x, width, 1, 1, None)
            if i:
                x = x + before
    x = tf.reduce_mean(_conv(tf, x, 1280, 1, 1, tf.nn.relu6), [1, 2])
    return [image], [tf.nn.softmax(_dense(tf, x, 1000), name="y")]


def mobilenet_v3(tf: Any) -> Network:
    """Build MobileNetV3-Large: hard swish, and squeeze-and-excitation in some of the blocks."""

    def hard_swish(x: Any) -> Any:
        return x * tf.nn.relu6(x + 3.0) * (1 / 6)

    def excite(x: Any) -> Any:
        width = int(x.shape[3])
        gate = tf.reduce_mean(x, [1, 2], keepdims=True)
        gate = _dense(tf, tf.nn.relu(_dense(tf, gate, width // 4)), width)
        return x * (tf.nn.relu6(gate + 3.0) * (1 / 6))

    x = image = tf.placeholder(tf.float32, [1, 224, 224, 3], name="x")
    x = _conv(tf, x, 16, 3, 2, hard_swish)
    rows = [(16, 16, 3, 1, 0, 0), (64, 24, 3, 2, 0, 0), (72, 24, 3, 1, 0, 0), (72, 40, 5, 2, 1, 0),
            (120, 40, 5, 1, 1, 0), (120, 40, 5, 1, 1, 0), (240, 80, 3, 2, 0, 1),
            (200, 80, 3, 1, 0, 1), (184, 80, 3, 1, 0, 1), (184, 80, 3, 1, 0, 1),
            (480, 112, 3, 1, 1, 1), (672, 112, 3, 1, 1, 1), (672, 160, 5, 2, 1, 1),
            (960, 160, 5, 1, 1, 1), (960, 160, 5, 1, 1, 1)]  # fmt: skip
    for inner, width, size, stride, squeezed, hard in rows:
        before, act = x, hard_swish if hard else tf.nn.relu
        x = _conv(tf, x, inner, 1, 1, act)
        x = _depthwise(tf, x, size, stride, act)
        x = _conv(tf, excite(x) if squeezed else x, width, 1, 1, None)
        if stride == 1 and int(before.shape[3]) == width:
            x = x + before
    x = tf.reduce_mean(_conv(tf, x, 960, 1, 1, hard_swish), [1, 2])
    x = hard_swish(_dense(tf, x, 1280))
    return [image], [tf.nn.softmax(_dense(tf, x, 1000), name="y")]


def resnet18(tf: Any) -> Network:
    x = image = tf.placeholder(tf.float32, [1, 224, 224, 3], name="x")
    x = _conv(tf, x, 64, 7, 2, tf.nn.relu)
    x = tf.nn.max_pool(x, [1, 3, 3, 1], [1, 2, 2, 1], "SAME")
    for width in (64, 128, 256, 512):
        for i in range(2):
            stride = 2 if i == 0 and width > 64 else 1
            aside = _conv(tf, x, width, 1, stride, None) if stride == 2 else x
            x = _conv(tf, _conv(tf, x, width, 3, stride, tf.nn.relu), width, 3, 1, None)
            x = tf.nn.relu(x + aside)
    return [image], [tf.nn.softmax(_dense(tf, tf.reduce_mean(x, [1, 2]), 1000), name="y")]


def keywords(tf: Any) -> Network:
    """Build a DS-CNN over 49 frames of 10 coefficients."""
    x = sound = tf.placeholder(tf.float32, [1, 49, 10, 1], name="x")
    x = tf.nn.relu(tf.nn.conv2d(x, _weights(tf, 10, 4, 1, 64), [1, 2, 2, 1], "SAME"))
    for _ in range(4):
        x = _depthwise(tf, x, 3, 1, tf.nn.relu)
        x = _conv(tf, x, 64, 1, 1, tf.nn.relu)
    return [sound], [tf.nn.softmax(_dense(tf, tf.reduce_mean(x, [1, 2]), 12), name="y")]


def tcn(tf: Any) -> Network:
    """Build a causal temporal network: 8 residual blocks of dilated filters over 256 frames."""
    x = frames = tf.placeholder(tf.float32, [1, 256, 64], name="x")
    for i in range(8):
        before = x
        for _ in range(2):
            x = tf.pad(x, [[0, 0], [2 << i, 0], [0, 0]])
            x = tf.nn.conv1d(x, _weights(tf, 3, 64, 64), 1, "VALID", dilations=1 << i)
            x = tf.nn.leaky_relu(x + _bias(tf, 64), 0.1)
        x = x + before
    return [frames], [tf.nn.softmax(_dense(tf, x[:, -1], 10), name="y")]


def unet(tf: Any) -> Network:
    """Build a U-Net over 128×128 pixels: three levels, transposed convolutions on the way up."""

    def twice(x: Any, width: int) -> Any:
        return _conv(tf, _conv(tf, x, width, 3, 1, tf.nn.relu), width, 3, 1, tf.nn.relu)

    x = image = tf.placeholder(tf.float32, [1, 128, 128, 3], name="x")
    levels = []
    for width in (16, 32, 64):
        x = twice(x, width)
        levels.append(x)
        x = tf.nn.max_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
    x = twice(x, 128)
    for level in reversed(levels):
        _, height, wide, width = (int(d) for d in level.shape)
        filters = _weights(tf, 2, 2, width, int(x.shape[3]))
        shape = [1, height, wide, width]
        x = tf.nn.conv2d_transpose(x, filters, shape, [1, 2, 2, 1], "VALID")
        x = twice(tf.concat([x, level], 3), width)
    return [image], [tf.sigmoid(_conv(tf, x, 1, 1, 1, None), name="y")]


def lstm(tf: Any) -> Network:
    """Build 32 unrolled steps of an LSTM with 128 units."""
    x = frames = tf.placeholder(tf.float32, [1, 32, 64], name="x")
    kernel, bias = tf.get_variable("kernel", [192, 512]), tf.get_variable("bias", [512])
    c = h = tf.zeros([1, 128])
    for frame in tf.unstack(x, axis=1):
        i, j, f, o = tf.split(tf.matmul(tf.concat([frame, h], 1), kernel) + bias, 4, axis=1)
        c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
        h = tf.tanh(c) * tf.sigmoid(o)
    return [frames], [tf.nn.softmax(_dense(tf, h, 20), name="y")]


def gru(tf: Any) -> Network:
    """Build 32 unrolled steps of a GRU with 128 units."""
    x = frames = tf.placeholder(tf.float32, [1, 32, 64], name="x")
    gates, candidate = (
        tf.get_variable("gates", [192, 256]),
        tf.get_variable("candidate", [192, 128]),
    )
    b, d = tf.get_variable("b", [256]), tf.get_variable("d", [128])
    h = tf.zeros([1, 128])
    for frame in tf.unstack(x, axis=1):
        r, u = tf.split(tf.sigmoid(tf.matmul(tf.concat([frame, h], 1), gates) + b), 2, axis=1)
        c = tf.tanh(tf.matmul(tf.concat([frame, r * h], 1), candidate) + d)
        h = u * h + (1.0 - u) * c
    return [frames], [tf.nn.softmax(_dense(tf, h, 20), name="y")]


def transformer(tf: Any) -> Network:
    """Build two encoder layers: 128 positions, width 256, 4 heads."""
    x = tokens = tf.placeholder(tf.float32, [1, 128, 256], name="x")

    def norm(x: Any) -> Any:
        mean = tf.reduce_mean(x, [-1], keepdims=True)
        variance = tf.reduce_mean(tf.squared_difference(x, mean), [-1], keepdims=True)
        return (x - mean) * tf.rsqrt(variance + 1e-5)

    def heads(x: Any) -> Any:
        return tf.transpose(tf.reshape(_dense(tf, x, 256), [1, 128, 4, 64]), [0, 2, 1, 3])

    for _ in range(2):
        q, k, v = heads(x), heads(x), heads(x)
        weights = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) * 0.125)
        mixed = tf.reshape(tf.transpose(tf.matmul(weights, v), [0, 2, 1, 3]), [1, 128, 256])
        x = norm(x + _dense(tf, mixed, 256))
        x = norm(x + _dense(tf, tf.nn.relu(_dense(tf, x, 1024)), 256))
    return [tokens], [tf.identity(x, name="y")]


def decoder(tf: Any) -> Network:
    """Build a decoding step of a GPT: 4 layers of width 256, 4 heads, a cache of 128 positions."""
    x = token = tf.placeholder(tf.float32, [1, 256], name="x")
    cache = tf.placeholder(tf.float32, [8, 4, 128, 64], name="cache")
    kept: list[Any] = []

    def norm(x: Any) -> Any:
        mean = tf.reduce_mean(x, [-1], keepdims=True)
        variance = tf.reduce_mean(tf.squared_difference(x, mean), [-1], keepdims=True)
        return (x - mean) * tf.rsqrt(variance + 1e-5)

    def extended(x: Any) -> Any:
        """Drop the oldest position, and add the new one."""
        rows = tf.concat([cache[len(kept), :, 1:], tf.reshape(_dense(tf, x, 256), [4, 1, 64])], 1)
        kept.append(rows)
        return rows

    for _ in range(4):
        y = norm(x)
        q, k, v = tf.reshape(_dense(tf, y, 256), [4, 1, 64]), extended(y), extended(y)
        weights = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) * 0.125)
        x = x + _dense(tf, tf.reshape(tf.matmul(weights, v), [1, 256]), 256)
        y = _dense(tf, norm(x), 1024)
        y = 0.5 * y * (1.0 + tf.tanh(0.79788456 * (y + 0.044715 * y * y * y)))
        x = x + _dense(tf, y, 256)
    logits = tf.identity(_dense(tf, norm(x), 4096), name="y")
    return [token, cache], [logits, tf.stack(kept, name="kept")]


MODELS: dict[str, Callable[[Any], Network]] = {
    "mobilenet_v1": mobilenet_v1,
    "mobilenet_v2": mobilenet_v2,
    "efficientnet_lite": efficientnet_lite,
    "mobilenet_v3": mobilenet_v3,
    "resnet18": resnet18,
    "keywords": keywords,
    "tcn": tcn,
    "unet": unet,
    "lstm": lstm,
    "gru": gru,
    "transformer": transformer,
    "decoder": decoder,
}


def tiny(tf: Any) -> Network:
    """Build a single addition, which measures the cost of a call."""
    x = tf.placeholder(tf.float32, [1, 4], name="x")
    return [x], [tf.add(x, x, name="y")]


def _samples(shapes: Sequence[Sequence[int]]) -> list[list[Any]]:
    """Return two values of inputs of these shapes."""
    random = np.random.default_rng(0)
    return [[random.random(shape, "float32") for shape in shapes] for _ in range(2)]


def _shapes(inputs: Sequence[Any]) -> list[list[int]]:
    return [[int(size) for size in x.shape] for x in inputs]


def _weft(tf: Any, session: Any, network: Network, path: Path) -> None:
    from weft_lite.convert import Converter

    inputs, outputs = network
    converter, names = Converter.from_session(session, inputs, outputs), [x.op.name for x in inputs]
    path.with_suffix(".weftlite").write_bytes(converter.convert())
    tf.onnx.export(outputs, inputs, session, path.with_suffix(".onnx"))
    calibration = [dict(zip(names, each, strict=True)) for each in _samples(_shapes(inputs))]
    for form in ("int8", "int16"):
        small = converter.convert(calibration=calibration, limit=10.0, activations=form)
        path.with_name(f"{path.name}_{form}.weftlite").write_bytes(small)


def _tensorflow(tf: Any, session: Any, network: Network, path: Path) -> None:
    words = tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
    for suffix in ("", "_int8", "_int16"):
        converter = tf.lite.TFLiteConverter.from_session(session, *network)
        if suffix:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.representative_dataset = lambda: iter(_samples(_shapes(network[0])))
        if suffix == "_int16":
            converter.target_spec.supported_ops = [words, tf.lite.OpsSet.TFLITE_BUILTINS]
        path.with_name(f"{path.name}{suffix}.tflite").write_bytes(converter.convert())


def quantize_onnx(path: Path) -> None:
    """Quantize to int8 with ONNX Runtime's tools: unsigned activations, weights per channel."""
    from onnxruntime import InferenceSession, quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    inputs = InferenceSession(str(path)).get_inputs()

    class Samples(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self._left = iter(_samples([each.shape for each in inputs]))

        def get_next(self) -> dict[str, Any] | None:
            sample = next(self._left, None)
            return sample and {x.name: value for x, value in zip(inputs, sample, strict=True)}

    folded = path.with_suffix(".folded")
    quant_pre_process(str(path), str(folded), skip_symbolic_shape=True)
    quantization.quantize_static(
        str(folded), str(path.with_name(f"{path.stem}_int8.onnx")), Samples(), per_channel=True,
        activation_type=quantization.QuantType.QUInt8, weight_type=quantization.QuantType.QInt8,
    )  # fmt: skip
    folded.unlink()


def to_ncnn(path: Path) -> None:
    """Convert a float network of one input for ncnn, if its results are the same there."""
    import pnnx
    from subject import open_file

    origin = open_file(str(path), 1)
    if len(origin.feeds) > 1:
        print(f"{path.stem}: has several inputs, which the program for ncnn does not set")
        return
    ends = [
        f"ncnn{kind}={path.resolve().with_suffix(f'.ncnn.{kind}')}" for kind in ("param", "bin")
    ]
    with TemporaryDirectory() as folder:  # for what else it writes
        copy = shutil.copy(path, folder)
        command = [pnnx.EXEC_PATH, copy, "fp16=0", *ends]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    net = open_file(str(path.with_suffix(".ncnn.param")), 1)
    want, got = origin.invoke()[0], np.array(net.invoke())
    if got.size != want.size or np.abs(got.reshape(want.shape) - want).max() > 1e-3 * want.max():
        for kind in ("param", "bin"):
            path.with_suffix(f".ncnn.{kind}").unlink()
        print(f"{path.stem}: what pnnx makes of it computes something else")


def write(folder: Path, kind: str, names: Sequence[str]) -> None:
    if kind in ("onnxruntime", "ncnn"):
        for name in names:
            (to_ncnn if kind == "ncnn" else quantize_onnx)(folder / f"{name}.onnx")
        return
    if kind == "weft":
        import weft as tf
    else:
        import tensorflow.compat.v1 as tf

        tf.disable_v2_behavior()
    for name in names:
        with tf.Graph().as_default(), tf.Session() as session:
            network = (tiny if name == "tiny" else MODELS[name])(tf)
            session.run(tf.global_variables_initializer())
            (_weft if kind == "weft" else _tensorflow)(tf, session, network, folder / name)


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2], sys.argv[3:] or [*MODELS, "tiny"])

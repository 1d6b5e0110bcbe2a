"""Networks in the API that weft and TensorFlow share, with random weights.

python models.py FOLDER weft | tensorflow | onnxruntime | ncnn [NAME ...]   writes for each
`<name>`, `<name>_int8` and `<name>_int16` (int8 weights, int16 between) what the runtime opens:
`.weftlite` with `.onnx` of floats, `.tflite`, or from the `.onnx` the `_int8.onnx` and, by pnnx,
the `.ncnn.param` with its `.ncnn.bin`. ONNX Runtime has no int16, and what makes int8 for ncnn is
in no wheel.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np


def _weights(tf: Any, *shape: int) -> Any:
    return tf.get_variable(f"weights_{len(tf.global_variables())}", shape)


def _norm(tf: Any, x: Any) -> Any:
    ones, zeros = [[value] * int(x.shape[3]) for value in (1.0, 0.0)]
    return tf.nn.fused_batch_norm(x, ones, zeros, zeros, ones, is_training=False)[0]


def _dense(tf: Any, x: Any, width: int) -> Any:
    weights, bias = _weights(tf, int(x.shape[-1]), width), _weights(tf, width)
    shape = [int(size) for size in x.shape]
    flat = tf.matmul(tf.reshape(x, [-1, shape[-1]]), weights) + bias
    return tf.reshape(flat, [*shape[:-1], width])


def _conv(tf: Any, x: Any, width: int, size: int, stride: int, act: Any) -> Any:
    filters = _weights(tf, size, size, int(x.shape[3]), width)
    x = _norm(tf, tf.nn.conv2d(x, filters, [1, stride, stride, 1], "SAME"))
    return act(x) if act else x


def _depthwise(tf: Any, x: Any, size: int, stride: int, act: Any) -> Any:
    filters = _weights(tf, size, size, int(x.shape[3]), 1)
    return act(_norm(tf, tf.nn.depthwise_conv2d(x, filters, [1, stride, stride, 1], "SAME")))


def mobilenet_v1(tf: Any) -> tuple[Any, Any]:
    x = image = tf.placeholder(tf.float32, [1, 224, 224, 3], name="x")
    x = _conv(tf, x, 32, 3, 2, tf.nn.relu6)
    strides = {128: 2, 256: 2, 512: 2, 1024: 2}
    for width in [64, 128, 128, 256, 256, *[512] * 6, 1024, 1024]:
        x = _depthwise(tf, x, 3, strides.pop(width, 1), tf.nn.relu6)
        x = _conv(tf, x, width, 1, 1, tf.nn.relu6)
    x = tf.reduce_mean(x, [1, 2])
    return image, tf.nn.softmax(_dense(tf, x, 1000), name="y")


def mobilenet_v2(tf: Any) -> tuple[Any, Any]:
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
    return image, tf.nn.softmax(_dense(tf, x, 1000), name="y")


def efficientnet_lite(tf: Any) -> tuple[Any, Any]:
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
    return image, tf.nn.softmax(_dense(tf, x, 1000), name="y")


def resnet18(tf: Any) -> tuple[Any, Any]:
    x = image = tf.placeholder(tf.float32, [1, 224, 224, 3], name="x")
    x = _conv(tf, x, 64, 7, 2, tf.nn.relu)
    x = tf.nn.max_pool(x, [1, 3, 3, 1], [1, 2, 2, 1], "SAME")
    for width in (64, 128, 256, 512):
        for i in range(2):
            stride = 2 if i == 0 and width > 64 else 1
            aside = _conv(tf, x, width, 1, stride, None) if stride == 2 else x
            x = _conv(tf, _conv(tf, x, width, 3, stride, tf.nn.relu), width, 3, 1, None)
            x = tf.nn.relu(x + aside)
    return image, tf.nn.softmax(_dense(tf, tf.reduce_mean(x, [1, 2]), 1000), name="y")


def keywords(tf: Any) -> tuple[Any, Any]:
    """Build a DS-CNN over 49 frames of 10 coefficients."""
    x = sound = tf.placeholder(tf.float32, [1, 49, 10, 1], name="x")
    x = tf.nn.relu(tf.nn.conv2d(x, _weights(tf, 10, 4, 1, 64), [1, 2, 2, 1], "SAME"))
    for _ in range(4):
        x = _depthwise(tf, x, 3, 1, tf.nn.relu)
        x = _conv(tf, x, 64, 1, 1, tf.nn.relu)
    return sound, tf.nn.softmax(_dense(tf, tf.reduce_mean(x, [1, 2]), 12), name="y")


def lstm(tf: Any) -> tuple[Any, Any]:
    """Build 32 unrolled steps of an LSTM with 128 units."""
    x = frames = tf.placeholder(tf.float32, [1, 32, 64], name="x")
    kernel, bias = tf.get_variable("kernel", [192, 512]), tf.get_variable("bias", [512])
    c = h = tf.zeros([1, 128])
    for frame in tf.unstack(x, axis=1):
        i, j, f, o = tf.split(tf.matmul(tf.concat([frame, h], 1), kernel) + bias, 4, axis=1)
        c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
        h = tf.tanh(c) * tf.sigmoid(o)
    return frames, tf.nn.softmax(_dense(tf, h, 20), name="y")


def transformer(tf: Any) -> tuple[Any, Any]:
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
    return tokens, tf.identity(x, name="y")


MODELS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "mobilenet_v1": mobilenet_v1,
    "mobilenet_v2": mobilenet_v2,
    "efficientnet_lite": efficientnet_lite,
    "resnet18": resnet18,
    "keywords": keywords,
    "lstm": lstm,
    "transformer": transformer,
}


def tiny(tf: Any) -> tuple[Any, Any]:
    """Build a single addition, which measures the cost of a call."""
    x = tf.placeholder(tf.float32, [1, 4], name="x")
    return x, tf.add(x, x, name="y")


def _samples(shape: Sequence[int]) -> list[Any]:
    random = np.random.default_rng(0)
    return [random.random(shape, "float32") for _ in range(2)]


def _weft(tf: Any, session: Any, x: Any, y: Any, path: Path) -> None:
    from weft_lite.convert import Converter

    converter, shape = Converter.from_session(session, [x], [y]), [int(d) for d in x.shape]
    path.with_suffix(".weftlite").write_bytes(converter.convert())
    tf.onnx.export([y], [x], session, path.with_suffix(".onnx"))
    for form in ("int8", "int16"):
        calibration = [{"x": each} for each in _samples(shape)]
        small = converter.convert(calibration=calibration, limit=10.0, activations=form)
        path.with_name(f"{path.name}_{form}.weftlite").write_bytes(small)


def _tensorflow(tf: Any, session: Any, x: Any, y: Any, path: Path) -> None:
    shape = [int(d) for d in x.shape]
    words = tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
    for suffix in ("", "_int8", "_int16"):
        converter = tf.lite.TFLiteConverter.from_session(session, [x], [y])
        if suffix:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.representative_dataset = lambda: ([each] for each in _samples(shape))
        if suffix == "_int16":
            converter.target_spec.supported_ops = [words, tf.lite.OpsSet.TFLITE_BUILTINS]
        path.with_name(f"{path.name}{suffix}.tflite").write_bytes(converter.convert())


def quantise_onnx(path: Path) -> None:
    """Quantize to int8 with ONNX Runtime's tools: unsigned activations, weights per channel."""
    from onnxruntime import InferenceSession, quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    given = InferenceSession(str(path)).get_inputs()[0]

    class Samples(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self._left = iter(_samples(given.shape))

        def get_next(self) -> dict[str, Any] | None:
            sample = next(self._left, None)
            return None if sample is None else {given.name: sample}

    folded = path.with_suffix(".folded")
    quant_pre_process(str(path), str(folded), skip_symbolic_shape=True)
    quantization.quantize_static(
        str(folded), str(path.with_name(f"{path.stem}_int8.onnx")), Samples(), per_channel=True,
        activation_type=quantization.QuantType.QUInt8, weight_type=quantization.QuantType.QInt8,
    )  # fmt: skip
    folded.unlink()


def to_ncnn(path: Path) -> None:
    """Convert a float network for ncnn, if its results are the same there."""
    import pnnx
    from subject import open_file

    ends = [
        f"ncnn{kind}={path.resolve().with_suffix(f'.ncnn.{kind}')}" for kind in ("param", "bin")
    ]
    with TemporaryDirectory() as folder:  # for what else it writes
        copy = shutil.copy(path, folder)
        command = [pnnx.EXEC_PATH, copy, "fp16=0", *ends]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    net = open_file(str(path.with_suffix(".ncnn.param")), 1)
    want, got = open_file(str(path), 1).invoke()[0], np.array(net.invoke())
    if got.size != want.size or np.abs(got.reshape(want.shape) - want).max() > 1e-3 * want.max():
        for kind in ("param", "bin"):
            path.with_suffix(f".ncnn.{kind}").unlink()
        print(f"{path.stem}: what pnnx makes of it computes something else")


def write(folder: Path, kind: str, names: Sequence[str]) -> None:
    if kind in ("onnxruntime", "ncnn"):
        for name in names:
            (to_ncnn if kind == "ncnn" else quantise_onnx)(folder / f"{name}.onnx")
        return
    if kind == "weft":
        import weft as tf
    else:
        import tensorflow.compat.v1 as tf

        tf.disable_v2_behavior()
    for name in names:
        with tf.Graph().as_default(), tf.Session() as session:
            x, y = (tiny if name == "tiny" else MODELS[name])(tf)
            session.run(tf.global_variables_initializer())
            (_weft if kind == "weft" else _tensorflow)(tf, session, x, y, folder / name)


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2], sys.argv[3:] or [*MODELS, "tiny"])

"""Networks that should gain from a compiler, for weft or tensorflow.compat.v1 as `tf`."""

from __future__ import annotations

import math
import os
from functools import partial
from typing import Any

import models_v1
import numpy as np
import timing
from models_v1 import placeholder_of, random_floats, random_ids, variable
from timing import Timer

tf: Any = None  # weft or tensorflow.compat.v1

WIDTH, HEADS = 256, 8
GPT_LAYERS, GPT_WIDTH, GPT_HEADS, GPT_WORDS, GPT_LENGTH = 4, 128, 4, 1000, 128


def run(timer: Timer, row: str, fetches: Any, feeds: dict[Any, Any] | None = None) -> None:
    """Measure steps after initializing the variables."""
    threads = timer.threads
    config = tf.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads
    )
    with tf.Session(config=config) as session:
        session.run(tf.global_variables_initializer())
        step = session.make_callable(fetches, feed_list=list(feeds or {}))
        values = list((feeds or {}).values())
        timer.time(row, lambda: step(*values))


def updated(loss: Any, rate: float = 1e-3) -> Any:
    return tf.train.GradientDescentOptimizer(rate).minimize(loss)


def ones(name: str, size: int) -> Any:
    return tf.get_variable(name, [size], initializer=tf.ones_initializer())


def zeros(name: str, size: int) -> Any:
    return tf.get_variable(name, [size], initializer=tf.zeros_initializer())


# ------------------------------------------------------------------------------- elementwise


def layer_norm(x: Any, name: str, width: int) -> Any:
    mean = tf.reduce_mean(x, -1, keepdims=True)
    variance = tf.reduce_mean(tf.square(x - mean), -1, keepdims=True)
    normal = (x - mean) * tf.rsqrt(variance + 1e-5)
    return normal * ones(f"{name}_gain", width) + zeros(f"{name}_offset", width)


def gelu(x: Any) -> Any:
    return 0.5 * x * (1.0 + tf.tanh(0.79788456 * (x + 0.044715 * x * x * x)))


def layer_norm_gelu(timer: Timer) -> None:
    x = placeholder_of(random_floats(4096, 1024))
    y = gelu(layer_norm(x, "norm", 1024))
    run(timer, "layer_norm_gelu", y, {x: random_floats(4096, 1024)})


def cross_entropy(timer: Timer) -> None:
    logits, labels = random_floats(400, 10_000), random_ids(10_000, 400)
    x, t = placeholder_of(logits), placeholder_of(labels)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=t, logits=x)
    loss = tf.reduce_mean(losses)
    run(timer, "cross_entropy", [loss, tf.gradients(loss, x)[0]], {x: logits, t: labels})


def adamw(timer: Timer) -> None:
    """Measure decoupled weight decay of ten variables of a million elements each."""
    size, rate, decay = 1_000_000, 1e-3, 0.01
    variables = [variable(f"p{i}", size) for i in range(10)]
    gradients = [tf.constant(random_floats(size) - 0.5) for _ in variables]
    decayed = [tf.assign_sub(v, rate * decay * v) for v in variables]
    with tf.control_dependencies(decayed):
        optimizer = tf.train.AdamOptimizer(rate)
        step = optimizer.apply_gradients(zip(gradients, variables, strict=True))
    run(timer, "adamw_10M", step)


def products(timer: Timer) -> None:
    """Measure a thousand products of different small matrices."""
    a, b = random_floats(1000, 16, 16), random_floats(1000, 16, 16)
    x, y = placeholder_of(a), placeholder_of(b)
    pairs = zip(tf.unstack(x), tf.unstack(y), strict=True)
    run(
        timer,
        "products_16",
        tf.stack([tf.matmul(left, right) for left, right in pairs]),
        {x: a, y: b},
    )


def small_nodes(timer: Timer) -> None:
    value = random_floats(16)
    x = placeholder_of(value)
    y = x
    for at in range(1000):
        y = tf.tanh(y * 1.01 + x) - 0.1 * (at % 7)
    run(timer, "small_nodes_4000", y, {x: value})


def compiling(timer: Timer) -> None:
    """Measure the first step of 1,000 nodes, with another size each time, without caches."""

    def once(size: int) -> float:
        with tf.Graph().as_default():
            value = random_floats(size)
            x = placeholder_of(value)
            y = x
            for at in range(250):
                y = tf.tanh(y * 1.01 + x) - 0.1 * (at % 7)
            with tf.Session() as session:
                started = timing.clock()
                session.run(y, {x: value})
                return timing.clock() - started

    os.environ["WEFT_CACHE"] = "off"
    once(5)
    timer.report("compile_1000", [once(size) for size in range(7, 12)])


# ------------------------------------------------------------------------------ transformers


def projected(x: Any, inputs: int, outputs: int, name: str) -> Any:
    return tf.matmul(x, variable(f"{name}_w", inputs, outputs)) + zeros(f"{name}_b", outputs)


def attention(x: Any, batch: int, length: int) -> Any:
    """Causal attention of several heads over rows of tokens."""
    size = WIDTH // HEADS
    parts = tf.split(projected(x, WIDTH, 3 * WIDTH, "qkv"), 3, 1)
    q, k, v = (
        tf.transpose(tf.reshape(part, [batch, length, HEADS, size]), [0, 2, 1, 3]) for part in parts
    )
    mask = np.triu(np.full((length, length), -1e9, np.float32), 1)
    scores = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) * (1 / math.sqrt(size)) + mask)
    merged = tf.transpose(tf.matmul(scores, v), [0, 2, 1, 3])
    return projected(tf.reshape(merged, [batch * length, WIDTH]), WIDTH, WIDTH, "out")


def block(timer: Timer, row: str, batch: int, length: int) -> None:
    """A block of a transformer, forward and backward."""
    value = random_floats(batch * length, WIDTH)
    x = placeholder_of(value)
    h = x + attention(layer_norm(x, "first", WIDTH), batch, length)
    wide = gelu(projected(layer_norm(h, "second", WIDTH), WIDTH, 4 * WIDTH, "wide"))
    h += projected(wide, 4 * WIDTH, WIDTH, "narrow")
    run(timer, row, updated(tf.reduce_mean(tf.square(h))), {x: value})


def decoding(timer: Timer) -> None:
    """Measure one token of a small language model with cached keys and values."""
    size = GPT_WIDTH // GPT_HEADS
    token, at = tf.placeholder(tf.int32, [1]), tf.placeholder(tf.int32, [])
    h = tf.gather(variable("words", GPT_WORDS, GPT_WIDTH), token)
    h += tf.reshape(tf.gather(variable("places", GPT_LENGTH, GPT_WIDTH), at), [1, GPT_WIDTH])
    later = -1e9 * tf.cast(tf.range(GPT_LENGTH) > at, tf.float32)
    for layer in range(GPT_LAYERS):
        with tf.variable_scope(f"layer{layer}"):
            normal = layer_norm(h, "first", GPT_WIDTH)
            q, k, v = tf.split(projected(normal, GPT_WIDTH, 3 * GPT_WIDTH, "qkv"), 3, 1)
            kept = []
            for name, value in (("keys", k), ("values", v)):
                cache = tf.get_variable(
                    name,
                    [GPT_LENGTH, GPT_WIDTH],
                    trainable=False,
                    use_resource=False,
                    initializer=tf.zeros_initializer(),
                )
                whole = tf.scatter_update(cache, tf.reshape(at, [1]), value)
                kept.append(tf.reshape(whole, [GPT_LENGTH, GPT_HEADS, size]))
            query = tf.reshape(q, [1, GPT_HEADS, size])
            scores = tf.reduce_sum(query * kept[0], 2) * (1 / math.sqrt(size))
            weights = tf.nn.softmax(tf.transpose(scores) + later)
            seen = tf.reduce_sum(tf.expand_dims(tf.transpose(weights), 2) * kept[1], 0)
            h += projected(tf.reshape(seen, [1, GPT_WIDTH]), GPT_WIDTH, GPT_WIDTH, "out")
            wide = gelu(
                projected(layer_norm(h, "second", GPT_WIDTH), GPT_WIDTH, 4 * GPT_WIDTH, "wide")
            )
            h += projected(wide, 4 * GPT_WIDTH, GPT_WIDTH, "narrow")
    best = tf.argmax(projected(h, GPT_WIDTH, GPT_WORDS, "logits"), 1)
    run(timer, "decode_token", best, {token: random_ids(GPT_WORDS, 1), at: np.int32(100)})


def gru(timer: Timer) -> None:
    """Measure a recurrent network over 100 steps in a loop, forward and backward."""
    steps, batch, size = 100, 32, 128
    value = random_floats(steps, batch, size)
    x = placeholder_of(value)
    gates, bias = variable("gates", 2 * size, 2 * size), ones("bias", 2 * size)
    inner, inner_bias = variable("inner", 2 * size, size), zeros("inner_bias", size)

    def step(h: Any, now: Any) -> Any:
        both = tf.sigmoid(tf.matmul(tf.concat([now, h], 1), gates) + bias)
        reset, keep = tf.split(both, 2, 1)
        new = tf.tanh(tf.matmul(tf.concat([now, reset * h], 1), inner) + inner_bias)
        return keep * h + (1.0 - keep) * new

    states = tf.scan(step, x, tf.zeros([batch, size]))
    run(timer, "gru_100", updated(tf.reduce_mean(tf.square(states))), {x: value})


# -------------------------------------------------------------------------------- convolutions


def conv(x: Any, outputs: int, kernel: int, stride: int, name: str) -> Any:
    w = variable(f"{name}_w", kernel, kernel, x.shape[-1], outputs)
    return tf.nn.conv2d(x, w, [1, stride, stride, 1], "SAME")


def scaled(x: Any, name: str) -> Any:
    """Apply batch normalization in inference mode."""
    size = int(x.shape[-1])
    return x * ones(f"{name}_scale", size) + zeros(f"{name}_shift", size)


def normal(x: Any, name: str) -> Any:
    size = int(x.shape[-1])
    return tf.nn.fused_batch_norm(x, ones(f"{name}_scale", size), zeros(f"{name}_shift", size))[0]


def resnet(timer: Timer) -> None:
    """Measure a training step of eighteen layers, with 8 images of 64×64."""
    images, labels = random_floats(8, 64, 64, 3), random_ids(10, 8)
    x, t = placeholder_of(images), placeholder_of(labels)
    h = tf.nn.relu(normal(conv(x, 64, 3, 1, "stem"), "stem"))
    for stage, size in enumerate((64, 128, 256, 512)):
        for at in range(2):
            name, stride = f"s{stage}{at}", 2 if stage and not at else 1
            y = tf.nn.relu(normal(conv(h, size, 3, stride, f"{name}a"), f"{name}a"))
            y = normal(conv(y, size, 3, 1, f"{name}b"), f"{name}b")
            same = stride == 1 and int(h.shape[-1]) == size
            h = tf.nn.relu(y + (h if same else conv(h, size, 1, stride, f"{name}c")))
    logits = projected(tf.reduce_mean(h, [1, 2]), 512, 10, "head")
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=t, logits=logits)
    run(timer, "resnet_64", updated(tf.reduce_mean(losses)), {x: images, t: labels})


MOBILE = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet(timer: Timer, batch: int) -> None:
    """Measure MobileNetV2 forward at 224×224."""
    images = random_floats(batch, 224, 224, 3)
    x = placeholder_of(images)
    h = tf.nn.relu6(scaled(conv(x, 32, 3, 2, "stem"), "stem"))
    for stage, (factor, size, count, first) in enumerate(MOBILE):
        for at in range(count):
            name, stride = f"m{stage}{at}", first if not at else 1
            inputs = int(h.shape[-1])
            y = h
            if factor != 1:
                y = tf.nn.relu6(scaled(conv(y, factor * inputs, 1, 1, f"{name}a"), f"{name}a"))
            w = variable(f"{name}d", 3, 3, factor * inputs, 1)
            y = tf.nn.depthwise_conv2d(y, w, [1, stride, stride, 1], "SAME")
            y = scaled(conv(tf.nn.relu6(scaled(y, f"{name}b")), size, 1, 1, f"{name}c"), f"{name}c")
            h = h + y if stride == 1 and inputs == size else y
    h = tf.nn.relu6(scaled(conv(h, 1280, 1, 1, "last"), "last"))
    logits = projected(tf.reduce_mean(h, [1, 2]), 1280, 1000, "head")
    run(timer, f"mobilenet_{batch}", tf.nn.softmax(logits), {x: images})


def inception(timer: Timer, batch: int) -> None:
    """Measure nine Inception modules forward at 128×128."""
    images = random_floats(batch, 128, 128, 3)
    x = placeholder_of(images)

    def layer(h: Any, size: int, kernel: int, name: str, stride: int = 1) -> Any:
        return tf.nn.relu(scaled(conv(h, size, kernel, stride, name), name))

    def pool(h: Any, stride: int) -> Any:
        return tf.nn.max_pool(h, [1, 3, 3, 1], [1, stride, stride, 1], "SAME")

    h = layer(pool(layer(x, 64, 7, "stem", 2), 2), 192, 3, "second")
    for at in range(9):
        if at in (0, 2, 7):
            h = pool(h, 2)
        size = 32 * (1 + at // 2)
        parts = [
            layer(h, 2 * size, 1, f"i{at}a"),
            layer(layer(h, 2 * size, 1, f"i{at}b"), 3 * size, 3, f"i{at}c"),
            layer(layer(h, size // 2, 1, f"i{at}d"), size, 5, f"i{at}e"),
            layer(pool(h, 1), size, 1, f"i{at}f"),
        ]
        h = tf.concat(parts, 3)
    logits = projected(tf.reduce_mean(h, [1, 2]), int(h.shape[-1]), 1000, "head")
    run(timer, f"inception_{batch}", tf.nn.softmax(logits), {x: images})


PROGRAMS: dict[str, timing.Program] = {
    "block_128": partial(block, row="block_128", batch=8, length=128),
    "block_1024": partial(block, row="block_1024", batch=1, length=1024),
    "gru_100": gru,
    "resnet_64": resnet,
    **{f"mobilenet_{batch}": partial(mobilenet, batch=batch) for batch in (1, 16)},
    **{f"inception_{batch}": partial(inception, batch=batch) for batch in (1, 16)},
    "adamw_10M": adamw,
    "cross_entropy": cross_entropy,
    "layer_norm_gelu": layer_norm_gelu,
    "products_16": products,
    "small_nodes_4000": small_nodes,
    "decode_token": decoding,
    "compile_1000": compiling,
}


def use(module: Any) -> None:
    global tf
    tf = module
    models_v1.use(module)


if __name__ == "__main__":
    timing.graph_mode(PROGRAMS, use)

"""Graph-mode programs: one program that runs with weft or tensorflow.compat.v1 as `tf`."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import numpy as np
import timing
from timing import Timer

tf: Any = None  # weft or tensorflow.compat.v1

BATCH, CLASSES = 128, 10
MLP_SIZES = [784, 512, 512, CLASSES]
IMAGES, IMAGE_SIDE, KERNEL, CHANNELS = 32, 32, 5, 64
CNN_HEAD = [8 * 8 * CHANNELS, 384, 192, CLASSES]
LM_BATCH, LM_STEPS, LM_HIDDEN, LM_WORDS, LM_LAYERS = 20, 20, 200, 10_000, 2
SG_WORDS, SG_SIZE, SG_BATCH, SG_NEGATIVES = 50_000, 128, 128, 64
CHAIN = 1000
BUILD_DEPTH = 3000


def session(intra: int, inter: int) -> Any:
    threads = {"intra_op_parallelism_threads": intra, "inter_op_parallelism_threads": inter}
    return tf.Session(config=tf.ConfigProto(**threads))


def weights(rng: np.random.RandomState, *shape: int, scale: float = 0.05) -> Any:
    return tf.Variable((rng.randn(*shape) * scale).astype(np.float32))


def bias(size: int) -> Any:
    return tf.Variable(np.zeros(size, np.float32))


def dense_stack(h: Any, sizes: list[int], rng: np.random.RandomState) -> Any:
    """Build fully connected layers with ReLU between them."""
    last = len(sizes) - 2
    for layer, (rows, columns) in enumerate(pairwise(sizes)):
        h = tf.matmul(h, weights(rng, rows, columns)) + bias(columns)
        if layer < last:
            h = tf.nn.relu(h)
    return h


def mean_cross_entropy(labels: Any, logits: Any) -> Any:
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.reduce_mean(losses)


def run_trivial(timer: Timer) -> None:
    x = tf.placeholder(tf.float32, [])
    y = x + 1.0
    value = np.float32(1.0)
    with session(timer.threads, timer.threads) as s:
        call = s.make_callable([y], feed_list=[x])
        timer.time("null_run", lambda: s.run(y, {x: value}))
        timer.time("null_callable", lambda: call(value))


def run_chain(timer: Timer) -> None:
    x, z = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    y = x
    for i in range(CHAIN):
        y = y + z if i % 2 else y * z
    feeds = {x: np.float32(1.0), z: np.float32(1.0)}
    with session(timer.threads, timer.threads) as s:
        timer.time("chain1000", lambda: s.run(y, feeds))


def build(timer: Timer) -> None:
    def make() -> None:
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [8, 8])
            y = x
            for _ in range(BUILD_DEPTH):
                y = tf.tanh(y) + x
            tf.gradients(y, x)

    timer.time("build_6000", make)


def train_mlp(timer: Timer) -> None:
    rng = np.random.RandomState(0)
    x = tf.placeholder(tf.float32, [BATCH, MLP_SIZES[0]])
    t = tf.placeholder(tf.int32, [BATCH])
    loss = mean_cross_entropy(t, dense_stack(x, MLP_SIZES, rng))
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    feeds = {
        x: rng.rand(BATCH, MLP_SIZES[0]).astype(np.float32),
        t: rng.randint(0, CLASSES, BATCH).astype(np.int32),
    }
    with session(timer.threads, timer.threads) as s:
        s.run(tf.global_variables_initializer())
        timer.time("mlp_train", lambda: s.run([train, loss], feeds))


def convolution(h: Any, inputs: int, rng: np.random.RandomState) -> Any:
    """Apply convolution, bias, ReLU and an overlapping pool that halves each side."""
    kernel = weights(rng, KERNEL, KERNEL, inputs, CHANNELS)
    h = tf.nn.relu(tf.nn.conv2d(h, kernel, [1, 1, 1, 1], "SAME") + bias(CHANNELS))
    return tf.nn.max_pool(h, [1, 3, 3, 1], [1, 2, 2, 1], "SAME")


def convnet(timer: Timer) -> None:
    rng = np.random.RandomState(0)
    x = tf.placeholder(tf.float32, [IMAGES, IMAGE_SIDE, IMAGE_SIDE, 3])
    t = tf.placeholder(tf.int32, [IMAGES])
    h = convolution(convolution(x, 3, rng), CHANNELS, rng)
    logits = dense_stack(tf.reshape(h, [IMAGES, CNN_HEAD[0]]), CNN_HEAD, rng)
    loss = mean_cross_entropy(t, logits)
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    images = rng.rand(IMAGES, IMAGE_SIDE, IMAGE_SIDE, 3).astype(np.float32)
    feeds = {x: images, t: rng.randint(0, CLASSES, IMAGES).astype(np.int32)}
    with session(timer.threads, timer.threads) as s:
        s.run(tf.global_variables_initializer())
        timer.time("cnn_infer", lambda: s.run(logits, {x: images}))
        timer.time("cnn_train", lambda: s.run([train, loss], feeds))


def lstm_cell(x: Any, state: tuple[Any, Any], w: Any, b: Any) -> tuple[Any, Any]:
    c, h = state
    i, j, f, o = tf.split(tf.matmul(tf.concat([x, h], 1), w) + b, 4, 1)
    c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
    return c, tf.tanh(c) * tf.sigmoid(o)


def train_lstm(timer: Timer) -> None:
    rng = np.random.RandomState(0)
    ids = tf.placeholder(tf.int32, [LM_BATCH, LM_STEPS])
    targets = tf.placeholder(tf.int32, [LM_BATCH, LM_STEPS])
    embedded = tf.nn.embedding_lookup(weights(rng, LM_WORDS, LM_HIDDEN, scale=0.1), ids)
    cells = [
        (weights(rng, 2 * LM_HIDDEN, 4 * LM_HIDDEN), bias(4 * LM_HIDDEN)) for _ in range(LM_LAYERS)
    ]
    zeros = tf.zeros([LM_BATCH, LM_HIDDEN])
    states = [(zeros, zeros)] * LM_LAYERS
    outputs = []
    for step in range(LM_STEPS):
        h = embedded[:, step]
        for layer, (w, b) in enumerate(cells):
            states[layer] = lstm_cell(h, states[layer], w, b)
            h = states[layer][1]
        outputs.append(h)
    flat = tf.reshape(tf.stack(outputs, 1), [LM_BATCH * LM_STEPS, LM_HIDDEN])
    logits = tf.matmul(flat, weights(rng, LM_HIDDEN, LM_WORDS)) + bias(LM_WORDS)
    loss = mean_cross_entropy(tf.reshape(targets, [-1]), logits)
    variables = tf.trainable_variables()
    gradients, _ = tf.clip_by_global_norm(tf.gradients(loss, variables), 5.0)
    optimizer = tf.train.GradientDescentOptimizer(1.0)
    train = optimizer.apply_gradients(zip(gradients, variables, strict=True))
    feeds = {
        ids: rng.randint(0, LM_WORDS, (LM_BATCH, LM_STEPS)).astype(np.int32),
        targets: rng.randint(0, LM_WORDS, (LM_BATCH, LM_STEPS)).astype(np.int32),
    }
    with session(timer.threads, timer.threads) as s:
        s.run(tf.global_variables_initializer())
        timer.time("lstm_train", lambda: s.run([train, loss], feeds))


def train_skipgram(timer: Timer) -> None:
    rng = np.random.RandomState(0)
    center = tf.placeholder(tf.int32, [SG_BATCH])
    context = tf.placeholder(tf.int32, [SG_BATCH])
    negatives = tf.placeholder(tf.int32, [SG_NEGATIVES])
    embedding = weights(rng, SG_WORDS, SG_SIZE)
    output, output_bias = weights(rng, SG_WORDS, SG_SIZE), bias(SG_WORDS)
    look = tf.nn.embedding_lookup
    e = look(embedding, center)
    true = tf.reduce_sum(e * look(output, context), 1) + look(output_bias, context)
    sampled = tf.matmul(e, look(output, negatives), transpose_b=True)
    sampled = sampled + look(output_bias, negatives)
    cross_entropy = tf.nn.sigmoid_cross_entropy_with_logits
    loss = tf.reduce_mean(cross_entropy(labels=tf.ones_like(true), logits=true)) + tf.reduce_mean(
        tf.reduce_sum(cross_entropy(labels=tf.zeros_like(sampled), logits=sampled), 1)
    )
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    sizes = {center: SG_BATCH, context: SG_BATCH, negatives: SG_NEGATIVES}
    feeds = {x: rng.randint(0, SG_WORDS, size).astype(np.int32) for x, size in sizes.items()}
    with session(timer.threads, timer.threads) as s:
        s.run(tf.global_variables_initializer())
        timer.time("word2vec_train", lambda: s.run([train, loss], feeds))


def elementwise(timer: Timer) -> None:
    rng = np.random.RandomState(0)
    y = tf.Variable(rng.rand(1 << 20).astype(np.float32))
    gelu = 0.5 * y * (1.0 + tf.tanh(0.79788456 * (y + 0.044715 * y * y * y)))
    update = tf.assign(y, (gelu + tf.exp(-y) * tf.sigmoid(y)) * 0.5).op
    with session(timer.threads, timer.threads) as s:
        s.run(tf.global_variables_initializer())
        timer.time("fused_ewise_1M", lambda: s.run(update))


def sparse_product(timer: Timer) -> None:
    """Measure a sparse matrix of 60,000 values times 16 columns, with its gradient."""
    rng = np.random.RandomState(0)
    places = np.unique(rng.randint(0, 20_000, (60_000, 2)), axis=0)
    values = rng.rand(len(places)).astype(np.float32)
    columns = rng.rand(20_000, 16).astype(np.float32)
    sparse, dense = tf.sparse_placeholder(tf.float32), tf.placeholder(tf.float32, [None, 16])
    product = tf.sparse_tensor_dense_matmul(sparse, dense)
    gradient = tf.gradients(tf.reduce_sum(tf.square(product)), dense)[0]
    fed = {sparse: (places, values, [20_000, 20_000]), dense: columns}
    with session(timer.threads, timer.threads) as s:
        timer.time("sparse_product", lambda: s.run(product.op, fed))
        timer.time("sparse_product_gradient", lambda: s.run(gradient.op, fed))


def two_products(timer: Timer) -> None:
    """Measure independent work in one Run and in several, with one BLAS thread each."""
    rng = np.random.RandomState(0)
    left, right = (
        tf.matmul(weights(rng, 1024, 1024), weights(rng, 1024, 1024)).op for _ in range(2)
    )
    with session(intra=1, inter=2) as s:
        s.run(tf.global_variables_initializer())

        def in_turn() -> None:
            s.run(left)
            s.run(right)

        timer.time("two_products_in_turn", in_turn)
        timer.time("two_products_at_once", lambda: s.run([left, right]))


def plan(timer: Timer, op: str, count: int) -> None:
    """Measure the first Run in a new session: planning, without graph construction."""
    x = tf.placeholder(tf.float32, [])
    y = x
    unary = getattr(tf, op)
    for _ in range(count):
        y = unary(y)
    samples: list[float] = []
    end = time.perf_counter() + timer.budget
    while not samples or time.perf_counter() < end:
        with session(timer.threads, timer.threads) as s:
            started = time.perf_counter()
            s.run(y, {x: np.float32(1.0)})
            samples.append(time.perf_counter() - started)
    timer.report(f"plan_{op}_{count}", samples)


PROGRAMS: dict[str, timing.Program] = {
    "trivial": run_trivial,
    "chain": run_chain,
    "build": build,
    "mlp": train_mlp,
    "cnn": convnet,
    "lstm": train_lstm,
    "word2vec": train_skipgram,
    "elementwise": elementwise,
    "sparse_product": sparse_product,
    "two_products": two_products,
} | {
    f"plan_{op}_{count}": lambda timer, op=op, count=count: plan(timer, op, count)
    for op in ("tanh", "negative")
    for count in (1000, 10_000, 100_000)
}


def use(module: Any) -> None:
    global tf
    tf = module


if __name__ == "__main__":
    timing.graph_mode(PROGRAMS, use)

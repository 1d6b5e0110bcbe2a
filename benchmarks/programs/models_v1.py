"""Training steps of small models: one program that runs with weft or tensorflow.compat.v1 as `tf`.

They are written as programs of 2016 to 2019 were: many small ops, optimizers with many small
variables, and sizes at which what surrounds the matrix products counts.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import timing
from timing import Program, Timer

tf: Any = None  # weft or tensorflow.compat.v1

Feeds = dict[Any, Any]


def train(timer: Timer, row: str, fetches: Any, feeds: Feeds) -> None:
    threads = timer.threads
    config = tf.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads
    )
    with tf.Session(config=config) as session:
        session.run(tf.global_variables_initializer())
        timer.time(row, lambda: session.run(fetches, feeds))


def random_floats(*shape: int) -> Any:
    return np.random.RandomState(0).rand(*shape).astype(np.float32)


def random_ids(below: int, *shape: int) -> Any:
    return np.random.RandomState(0).randint(0, below, shape).astype(np.int32)


def placeholder_of(value: Any) -> Any:
    return tf.placeholder(tf.as_dtype(value.dtype), value.shape)


def variable(name: str, *shape: int) -> Any:
    return tf.get_variable(name, shape, initializer=tf.random_normal_initializer(stddev=0.05))


def same(x: Any) -> Any:
    return x


def dense(x: Any, units: int, name: str, activation: Any = same) -> Any:
    """Apply a dense layer to the last axis."""
    with tf.variable_scope(name):
        kernel = variable("kernel", x.shape[-1], units)
        bias = tf.get_variable("bias", [units], initializer=tf.zeros_initializer())
    if len(x.shape) > 2:
        flat = tf.matmul(tf.reshape(x, [-1, kernel.shape[0]]), kernel)
        leading = tf.shape(x)[:-1]
        return activation(tf.reshape(flat, tf.concat([leading, [units]], 0)) + bias)
    return activation(tf.nn.bias_add(tf.matmul(x, kernel), bias))


def mlp(timer: Timer) -> None:
    """Build a digits model: dropout, Adam, accuracy beside the loss."""
    images, digits = random_floats(64, 784), random_ids(10, 64)
    x, labels = placeholder_of(images), placeholder_of(digits)
    h = tf.nn.dropout(dense(x, 256, "one", tf.nn.relu), rate=0.5)
    h = tf.nn.dropout(dense(h, 128, "two", tf.nn.relu), rate=0.5)
    logits = dense(h, 10, "logits")
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    right = tf.equal(tf.argmax(logits, 1, output_type=tf.int32), labels)
    accuracy = tf.reduce_mean(tf.cast(right, tf.float32))
    step = tf.train.AdamOptimizer(1e-3).minimize(loss)
    train(timer, "model_mlp", [step, loss, accuracy], {x: images, labels: digits})


# ----------------------------------------------------------------------------- transformer

HEADS, WIDTH, BLOCKS = 4, 64, 4


def normalized(x: Any, name: str) -> Any:
    """Apply layer normalization, built of small ops."""
    with tf.variable_scope(name):
        gain = tf.get_variable("gain", [WIDTH], initializer=tf.ones_initializer())
        offset = tf.get_variable("offset", [WIDTH], initializer=tf.zeros_initializer())
    mean = tf.reduce_mean(x, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.square(x - mean), axis=-1, keepdims=True)
    return (x - mean) * tf.rsqrt(variance + 1e-5) * gain + offset


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + tf.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * tf.pow(x, 3))))


def attention(x: Any, length: int) -> Any:
    batch = tf.shape(x)[0]

    def heads(part: Any) -> Any:
        return tf.transpose(tf.reshape(part, [batch, length, HEADS, WIDTH // HEADS]), [0, 2, 1, 3])

    q, k, v = (heads(part) for part in tf.split(dense(x, 3 * WIDTH, "qkv"), 3, axis=2))
    scores = tf.matmul(q, k, transpose_b=True) * (1 / math.sqrt(WIDTH // HEADS))
    mask = tf.matrix_band_part(tf.ones([length, length]), -1, 0)
    scores = tf.nn.softmax(scores * mask - 1e10 * (1 - mask))
    merged = tf.transpose(tf.matmul(scores, v), [0, 2, 1, 3])
    return dense(tf.reshape(merged, [batch, length, WIDTH]), WIDTH, "out")


def transformer(timer: Timer, batch: int, length: int) -> None:
    """Build a language model of small ops, with gradient clipping and Adam."""
    words = 200
    text = random_ids(words, batch, length + 1)
    ids = tf.placeholder(tf.int32, [None, length + 1])
    embedding = variable("embedding", words, WIDTH)
    h = tf.gather(embedding, ids[:, :-1]) + variable("positions", length, WIDTH)
    for block in range(BLOCKS):
        with tf.variable_scope(f"block{block}"):
            h += attention(normalized(h, "before"), length)
            inner = dense(normalized(h, "between"), 4 * WIDTH, "wide", gelu)
            h += dense(inner, WIDTH, "narrow")
    logits = tf.tensordot(normalized(h, "last"), embedding, [[2], [1]])
    loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=ids[:, 1:], logits=logits)
    )
    variables = tf.trainable_variables()
    gradients, _ = tf.clip_by_global_norm(tf.gradients(loss, variables), 1.0)
    optimizer = tf.train.AdamOptimizer(1e-3)
    step = optimizer.apply_gradients(zip(gradients, variables, strict=True))
    train(timer, f"model_transformer_{batch}", [step, loss], {ids: text})


# ------------------------------------------------------------------- soft actor and critic


def log_normal(x: Any, mean: Any, log_std: Any) -> Any:
    inside = ((x - mean) / (tf.exp(log_std) + 1e-8)) ** 2 + 2 * log_std + math.log(2 * math.pi)
    return tf.reduce_sum(-0.5 * inside, axis=1)


def policy(observed: Any, actions: int) -> tuple[Any, Any]:
    h = dense(dense(observed, 64, "one", tf.nn.relu), 64, "two", tf.nn.relu)
    mean = dense(h, actions, "mean")
    log_std = tf.clip_by_value(dense(h, actions, "log_std"), -20, 2)
    raw = mean + tf.random_normal(tf.shape(mean)) * tf.exp(log_std)
    log_p = log_normal(raw, mean, log_std)
    log_p -= tf.reduce_sum(2 * (math.log(2) - raw - tf.nn.softplus(-2 * raw)), axis=1)
    return tf.tanh(raw), log_p


def critic(observed: Any, action: Any, name: str) -> Any:
    with tf.variable_scope(name, reuse=tf.AUTO_REUSE):
        h = dense(tf.concat([observed, action], -1), 64, "one", tf.nn.relu)
        return tf.squeeze(dense(dense(h, 64, "two", tf.nn.relu), 1, "value"), axis=1)


def actor_critic(timer: Timer) -> None:
    """Build soft actor-critic: two critics with target copies, a policy and a temperature."""
    batch, size, actions = 64, 17, 6
    values = [
        random_floats(batch, size), random_floats(batch, size), random_floats(batch, actions),
        random_floats(batch), random_floats(batch),
    ]  # fmt: skip
    before, after, action, reward, done = fed = [placeholder_of(value) for value in values]
    with tf.variable_scope("policy"):
        chosen, log_p = policy(before, actions)
    with tf.variable_scope("policy", reuse=True):
        following, next_log_p = policy(after, actions)
    log_alpha = tf.get_variable("log_alpha", [], initializer=tf.zeros_initializer())
    alpha = tf.stop_gradient(tf.exp(log_alpha))
    target = tf.minimum(critic(after, following, "slow1"), critic(after, following, "slow2"))
    backup = tf.stop_gradient(reward + 0.99 * (1 - done) * (target - alpha * next_log_p))
    losses = [tf.reduce_mean((backup - critic(before, action, n)) ** 2) for n in ("q1", "q2")]
    value = tf.minimum(critic(before, chosen, "q1"), critic(before, chosen, "q2"))
    policy_loss = tf.reduce_mean(alpha * log_p - value)
    alpha_loss = -tf.reduce_mean(log_alpha * tf.stop_gradient(log_p - actions))

    def update(loss: Any, *scopes: str) -> Any:
        variables = [v for v in tf.trainable_variables() if v.name.startswith(scopes)]
        return tf.train.AdamOptimizer(3e-4).minimize(loss, var_list=variables)

    first = update(policy_loss, "policy")
    with tf.control_dependencies([first]):
        second = update(losses[0] + losses[1], "q1", "q2")
    with tf.control_dependencies([second]):
        ours, slow = tf.trainable_variables("q"), tf.trainable_variables("slow")
        copies = [tf.assign(s, 0.995 * s + 0.005 * v) for s, v in zip(slow, ours, strict=True)]
    fetches = [first, second, copies, update(alpha_loss, "log_alpha"), policy_loss, *losses]
    train(timer, "model_actor_critic", fetches, dict(zip(fed, values, strict=True)))


# -------------------------------------------------------------------------- images and text


def autoencoder(timer: Timer) -> None:
    """Build a variational autoencoder of digits."""
    images = random_floats(100, 784)
    x = placeholder_of(images)
    h = dense(dense(x, 200, "one", tf.nn.elu), 200, "two", tf.nn.elu)
    mean, log_variance = dense(h, 20, "mean"), dense(h, 20, "log_variance")
    z = mean + tf.exp(0.5 * log_variance) * tf.random_normal(tf.shape(mean))
    h = dense(dense(z, 200, "three", tf.nn.elu), 200, "four", tf.nn.elu)
    logits = dense(h, 784, "logits")
    entropy = tf.nn.sigmoid_cross_entropy_with_logits(labels=x, logits=logits)
    rebuilt = tf.reduce_sum(entropy, 1)
    divergence = -0.5 * tf.reduce_sum(1 + log_variance - mean**2 - tf.exp(log_variance), 1)
    loss = tf.reduce_mean(rebuilt + divergence)
    step = tf.train.AdamOptimizer(1e-3).minimize(loss)
    train(timer, "model_vae", [step, loss], {x: images})


class Lstm:
    """A cell for `dynamic_rnn` that does not need Keras in TensorFlow."""

    def __init__(self, inputs: int, units: int, name: str) -> None:
        self.state_size = (units, units)
        self.output_size = units
        self.kernel = variable(f"{name}_kernel", inputs + units, 4 * units)
        self.bias = variable(f"{name}_bias", 4 * units)

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        return tuple(tf.zeros([batch_size, units], dtype) for units in self.state_size)

    def __call__(self, x: Any, state: Any, scope: Any = None) -> Any:
        c, h = state
        gates = tf.nn.bias_add(tf.matmul(tf.concat([x, h], 1), self.kernel), self.bias)
        i, j, f, o = tf.split(gates, 4, 1)
        c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
        h = tf.tanh(c) * tf.sigmoid(o)
        return h, (c, h)


def tagger(timer: Timer) -> None:
    """Build a tagger of sequences of different lengths: a bidirectional LSTM."""
    batch, steps, words, tags = 32, 30, 2000, 12
    values = [
        random_ids(words, batch, steps), random_ids(tags, batch, steps),
        random_ids(steps - 5, batch) + 5,
    ]  # fmt: skip
    ids, labels, lengths = fed = [placeholder_of(value) for value in values]
    embedded = tf.nn.embedding_lookup(variable("embedding", words, 64), ids)
    cells = [Lstm(64, 64, name) for name in ("forth", "back")]
    outputs, _ = tf.nn.bidirectional_dynamic_rnn(*cells, embedded, lengths, dtype=tf.float32)
    logits = dense(tf.concat(outputs, 2), tags, "logits")
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    mask = tf.sequence_mask(lengths, steps, dtype=tf.float32)
    loss = tf.reduce_sum(losses * mask) / tf.reduce_sum(mask)
    step = tf.train.AdamOptimizer(1e-3).minimize(loss)
    train(timer, "model_tagger", [step, loss], dict(zip(fed, values, strict=True)))


def text_convnet(timer: Timer) -> None:
    """Build a text classifier: convolutions over 3, 4 and 5 words, max pooling, dropout."""
    batch, steps, words, size, filters = 64, 20, 2000, 128, 32
    values = [random_ids(words, batch, steps), random_ids(2, batch)]
    ids, labels = fed = [placeholder_of(value) for value in values]
    embedded = tf.nn.embedding_lookup(variable("embedding", words, size), ids)
    images = tf.expand_dims(embedded, -1)
    pooled = []
    for width in (3, 4, 5):
        kernel = variable(f"kernel{width}", width, size, 1, filters)
        bias = variable(f"bias{width}", filters)
        h = tf.nn.conv2d(images, kernel, strides=[1, 1, 1, 1], padding="VALID")
        h = tf.nn.relu(tf.nn.bias_add(h, bias))
        window = [1, steps - width + 1, 1, 1]
        pooled.append(tf.nn.max_pool(h, ksize=window, strides=[1, 1, 1, 1], padding="VALID"))
    flat = tf.reshape(tf.concat(pooled, 3), [-1, 3 * filters])
    logits = dense(tf.nn.dropout(flat, rate=0.5), 2, "logits")
    loss = tf.reduce_mean(
        tf.nn.softmax_cross_entropy_with_logits_v2(labels=tf.one_hot(labels, 2), logits=logits)
    )
    step = tf.train.AdamOptimizer(1e-3).minimize(loss)
    train(timer, "model_text_cnn", [step, loss], dict(zip(fed, values, strict=True)))


def batch_normalized(x: Any, name: str) -> Any:
    channels = x.shape[-1]
    with tf.variable_scope(name):
        gain = tf.get_variable("gain", [channels], initializer=tf.ones_initializer())
        offset = tf.get_variable("offset", [channels], initializer=tf.zeros_initializer())
    return tf.nn.fused_batch_norm(x, gain, offset)[0]


def doubled(x: Any, channels: int, name: str) -> Any:
    batch, height, width, before = x.shape
    kernel = variable(name, 5, 5, channels, before)
    shape = [batch, 2 * height, 2 * width, channels]
    return tf.nn.conv2d_transpose(x, kernel, shape, [1, 2, 2, 1], "SAME")


def halved(x: Any, channels: int, name: str) -> Any:
    kernel, bias = variable(name, 5, 5, x.shape[-1], channels), variable(f"{name}_bias", channels)
    h = tf.nn.bias_add(tf.nn.conv2d(x, kernel, strides=[1, 2, 2, 1], padding="SAME"), bias)
    return tf.nn.leaky_relu(h)


def generator(z: Any) -> Any:
    with tf.variable_scope("generator"):
        h = tf.reshape(dense(z, 7 * 7 * 32, "start"), [z.shape[0], 7, 7, 32])
        h = tf.nn.relu(batch_normalized(h, "norm1"))
        h = tf.nn.relu(batch_normalized(doubled(h, 16, "up1"), "norm2"))
        return tf.tanh(doubled(h, 1, "up2"))


def discriminator(x: Any) -> Any:
    with tf.variable_scope("discriminator", reuse=tf.AUTO_REUSE):
        h = halved(halved(x, 16, "down1"), 32, "down2")
        return dense(tf.reshape(h, [-1, 7 * 7 * 32]), 1, "logit")


def adversarial(timer: Timer) -> None:
    """Build a generator of transposed convolutions and a discriminator of strided ones."""
    images = random_floats(32, 28, 28, 1)
    x = placeholder_of(images)
    made = generator(tf.random_uniform([32, 50], -1, 1))
    real, fake = discriminator(x), discriminator(made)
    entropy = tf.losses.sigmoid_cross_entropy
    against = entropy(tf.ones_like(real), real) + entropy(tf.zeros_like(fake), fake)
    towards = entropy(tf.ones_like(fake), fake)
    steps = []
    for loss, scope in ((against, "discriminator"), (towards, "generator")):
        variables = tf.trainable_variables(scope)
        steps.append(tf.train.AdamOptimizer(2e-4, beta1=0.5).minimize(loss, var_list=variables))
    train(timer, "model_gan", [steps, against, towards], {x: images})


def word2vec(timer: Timer) -> None:
    """Build skip-gram with noise-contrastive estimation and a candidate sampler of the library."""
    words, size, batch = 10_000, 64, 128
    values = [random_ids(words, batch), random_ids(words, batch, 1).astype(np.int64)]
    center, context = fed = [placeholder_of(value) for value in values]
    looked_up = tf.nn.embedding_lookup(variable("embedding", words, size), center)
    losses = tf.nn.nce_loss(
        weights=variable("nce", words, size), biases=variable("bias", words), labels=context,
        inputs=looked_up, num_sampled=32, num_classes=words,
    )  # fmt: skip
    loss = tf.reduce_mean(losses)
    step = tf.train.GradientDescentOptimizer(1.0).minimize(loss)
    train(timer, "model_word2vec", [step, loss], dict(zip(fed, values, strict=True)))


PROGRAMS: dict[str, Program] = {
    "model_mlp": mlp,
    "model_transformer_2": lambda timer: transformer(timer, batch=2, length=16),
    "model_transformer_16": lambda timer: transformer(timer, batch=16, length=32),
    "model_actor_critic": actor_critic,
    "model_vae": autoencoder,
    "model_tagger": tagger,
    "model_text_cnn": text_convnet,
    "model_gan": adversarial,
    "model_word2vec": word2vec,
}


def use(module: Any) -> None:
    global tf
    tf = module


if __name__ == "__main__":
    timing.graph_mode(PROGRAMS, use)

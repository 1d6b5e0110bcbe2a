"""The cost of recording: steps with and without a trace, in alternating blocks.

    python trace_v1.py weft|tensorflow chain|convnet ROUNDS

Prints a JSON object with the median milliseconds of a step without and with a trace, of the rest of
the work per traced step (writing the file), and the events and bytes per step.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from trace_blocks import measure_blocks, time_block

SUBJECT, PROGRAM, ROUNDS = sys.argv[1], sys.argv[2], int(sys.argv[3])
if SUBJECT == "weft":
    import weft as tf
else:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow.compat.v1 as tf

    tf.disable_eager_execution()


def chain():
    x = tf.placeholder(tf.float32, [])
    y = x
    for _ in range(1000):
        y = y + x
    return y, {x: np.float32(1)}, 20


def convnet():
    rng = np.random.default_rng(0)

    def weight(*shape):
        return tf.Variable((rng.standard_normal(shape) * 0.05).astype(np.float32))

    x = tf.placeholder(tf.float32, [32, 32, 32, 3])
    labels = tf.placeholder(tf.int32, [32])
    h = tf.nn.relu(tf.nn.conv2d(x, weight(5, 5, 3, 64), strides=[1, 1, 1, 1], padding="SAME"))
    h = tf.nn.max_pool(h, ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding="SAME")
    h = tf.nn.relu(tf.nn.conv2d(h, weight(5, 5, 64, 64), strides=[1, 1, 1, 1], padding="SAME"))
    h = tf.nn.max_pool(h, ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding="SAME")
    h = tf.nn.relu(tf.matmul(tf.reshape(h, [32, 4096]), weight(4096, 384)))
    h = tf.nn.relu(tf.matmul(h, weight(384, 192)))
    logits = tf.matmul(h, weight(192, 10))
    loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    )
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    feeds = {x: rng.standard_normal((32, 32, 32, 3)).astype(np.float32), labels: np.arange(32) % 10}
    return [train, loss], feeds, 4


def main():
    fetches, feeds, block = {"chain": chain, "convnet": convnet}[PROGRAM]()
    config = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    events = size = 0
    with tf.Session(config=config) as session, tempfile.TemporaryDirectory() as folder:
        session.run(tf.global_variables_initializer())
        path = Path(folder) / "t.weft-trace"

        def steps(**options):
            return time_block(lambda: session.run(fetches, feeds, **options), block)

        def traced_steps():
            if SUBJECT == "weft":
                with tf.trace(path):
                    took = steps()
                    ended = time.perf_counter()
                return took, (time.perf_counter() - ended) / block * 1e3
            options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
            return steps(options=options, run_metadata=tf.RunMetadata()), 0.0

        result = measure_blocks(steps, traced_steps, ROUNDS)
        if SUBJECT == "weft":
            size = path.stat().st_size / block
            events = len(tf.trace.load(path).events) / block
    print(json.dumps(result | {"events": events, "bytes": size}))


main()

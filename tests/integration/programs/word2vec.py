"""Skip-gram word vectors with nce_loss; gradients of the tables are sparse."""

from __future__ import annotations

import collections
from types import ModuleType

import numpy as np


def program(tf: ModuleType) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(6)
    text = "the quick brown fox jumps over the lazy dog and the dog barks at the fox"
    words = text.split(" ")
    counts = collections.Counter(words).most_common()
    dictionary = {word: i for i, (word, _) in enumerate(counts)}
    data = [dictionary[word] for word in words]
    pairs = [
        (data[i], data[j])
        for i in range(len(data))
        for j in range(max(0, i - 2), min(len(data), i + 3))
        if i != j
    ]
    size = len(dictionary)
    table = rng.uniform(-1, 1, (size, 8)).astype(np.float32)
    negatives = rng.randint(size, size=(12, 5)).astype(np.int64)

    graph = tf.Graph()
    with graph.as_default():
        train_inputs = tf.placeholder(tf.int32, shape=[None])
        train_labels = tf.placeholder(tf.int64, shape=[None, 1])
        sampled = tf.placeholder(tf.int64, shape=[5])
        with tf.device("/cpu:0"):
            embeddings = tf.Variable(table)
            embed = tf.nn.embedding_lookup(embeddings, train_inputs)
            nce_weights = tf.Variable(table * 0.1)
            nce_biases = tf.Variable(tf.zeros([size]))
        expected = tf.fill(tf.shape(train_labels), 0.4), tf.fill([5], 0.4)
        loss = tf.reduce_mean(
            tf.nn.nce_loss(
                weights=nce_weights,
                biases=nce_biases,
                labels=train_labels,
                inputs=embed,
                num_sampled=5,
                num_classes=size,
                sampled_values=(sampled, *expected),
            )
        )
        gradient = tf.gradients(loss, embeddings)[0]
        assert isinstance(gradient, tf.IndexedSlices)
        optimizer = tf.train.GradientDescentOptimizer(1.0).minimize(loss)
        norm = tf.sqrt(tf.reduce_sum(tf.square(embeddings), 1, keepdims=True))
        normalized = embeddings / norm
        valid = tf.nn.embedding_lookup(normalized, tf.constant([0, 1, 2], dtype=tf.int32))
        similarity = tf.matmul(valid, normalized, transpose_b=True)
        nearest = tf.nn.top_k(similarity, k=3)
        init = tf.global_variables_initializer()

    with tf.Session(graph=graph) as session:
        init.run()
        losses = []
        for step in range(12):
            batch = [pairs[(step * 8 + i) % len(pairs)] for i in range(8)]
            inputs, labels = zip(*batch, strict=True)
            feed = {train_inputs: inputs, train_labels: np.array(labels)[:, None]}
            feed[sampled] = negatives[step]
            losses.append(session.run([optimizer, loss], feed_dict=feed)[1])
        return {
            "losses": np.array(losses),
            "similarity": similarity.eval(),
            "nearest": session.run(nearest).indices,
        }

"""Feature columns on the same features, for weft and for TensorFlow.

`python tests/oracle/feature_columns.py`, in an environment with TensorFlow, writes what TensorFlow
computes to `feature_columns.json`, which the suite compares with weft.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RECORDED = Path(__file__).with_suffix(".json")

WORDS = ([[0, 0], [0, 1], [1, 0], [2, 1]], ["red", "blue", "zzz", ""], [3, 2])
FEATURES: dict[str, Any] = {
    "age": [[10.0], [40.0], [65.0]],
    "pair": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
    "flat": [1, 2, 3],
    "id": [[0, 2], [1, -1], [2, 2]],
    "color": [["red"], ["blue"], ["zzz"]],
    "words": WORDS,
    "weights": (WORDS[0], [0.5, 2.0, 1.0, 3.0], [3, 2]),
    "number": [[5], [7], [5]],
}


def cases(tf: Any, vocabulary: str) -> dict[str, Callable[[], Any]]:
    """Return functions that make columns, by name: those of "linear" are for linear models."""
    fc = tf.feature_column
    identity = fc.categorical_column_with_identity
    hashed = fc.categorical_column_with_hash_bucket
    listed = fc.categorical_column_with_vocabulary_list
    lines = fc.categorical_column_with_vocabulary_file
    numeric, indicator, embedding = fc.numeric_column, fc.indicator_column, fc.embedding_column

    def pairs() -> Any:
        return fc.bucketized_column(numeric("pair", 2), [2.0, 4.0])

    def weighted() -> Any:
        return fc.weighted_categorical_column(hashed("words", 7), "weights")

    return {
        "numeric": lambda: [numeric("age"), numeric("pair", 2), numeric("flat", dtype=tf.int64)],
        "normalized": lambda: [numeric("pair", [2], normalizer_fn=lambda x: x / 2.0)],
        "bucketized": lambda: [fc.bucketized_column(numeric("age"), [18, 40, 65]), pairs()],
        "indicator": lambda: [indicator(identity("id", 3))],
        "replaced": lambda: [indicator(identity("number", 6, 2))],
        "hash": lambda: [indicator(hashed("words", 7)), indicator(hashed("number", 5, tf.int64))],
        "list": lambda: [
            indicator(listed("color", ["red", "blue"])),
            indicator(listed("words", ["blue", "red"], num_oov_buckets=2)),
            indicator(listed("number", [7, 5], default_value=0)),
        ],
        "file": lambda: [
            indicator(lines("color", vocabulary, 3, num_oov_buckets=1)),
            embedding(lines("words", vocabulary, 2), 2),
        ],
        "embedding": lambda: [
            embedding(identity("id", 3), 4, combiner="sqrtn"),
            embedding(hashed("words", 7), 2, max_norm=0.5),
        ],
        "weighted": lambda: [indicator(weighted()), embedding(weighted(), 3, combiner="sum")],
        "crossed": lambda: [
            indicator(fc.crossed_column(["color", "words"], 11)),
            indicator(fc.crossed_column([pairs(), "number"], 13, hash_key=5)),
            embedding(fc.crossed_column([identity("id", 3), "color"], 6), 2),
        ],
        "shared": lambda: fc.shared_embedding_columns(
            [listed("words", ["red", "blue"]), listed("color", ["blue", "red"])], 3
        ),
        "linear dense": lambda: [numeric("age"), numeric("pair", 2)],
        "linear sparse": lambda: [
            identity("id", 3), hashed("words", 7), pairs(),
            fc.crossed_column(["color", "words"], 11),
        ],
        "linear weighted": lambda: [weighted(), embedding(identity("id", 3), 2)],
    }  # fmt: skip


def compute(tf: Any, columns: Callable[[], Any], **options: Any) -> dict[str, Any]:
    """Return the names of the variables, in alphabetical order, and the result.

    Variables have the same random values in both systems.
    """
    with tf.Graph().as_default():
        features = {
            key: tf.SparseTensor(*value) if isinstance(value, tuple) else tf.constant(value)
            for key, value in FEATURES.items()
        }
        layer = tf.feature_column.linear_model if options else tf.feature_column.input_layer
        result = layer(features, columns(), **options)
        variables = sorted(tf.global_variables(), key=lambda variable: variable.name)
        random = np.random.RandomState(0)
        with tf.Session() as session:
            session.run([tf.global_variables_initializer(), tf.tables_initializer()])
            for variable in variables:
                variable.load(random.normal(size=variable.shape.as_list()), session)
            value = session.run(result)
    return {"variables": [variable.name for variable in variables], "value": value.tolist()}


def compute_all(tf: Any) -> dict[str, Any]:
    """Return the results of all cases by name."""
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = Path(folder) / "vocabulary.txt"
        vocabulary.write_text("red\nblue\ngreen\n")
        for name, columns in cases(tf, str(vocabulary)).items():
            if not name.startswith("linear"):
                results[name] = compute(tf, columns)
                continue
            for combiner in ("sum", "mean"):
                options = {"units": 2, "sparse_combiner": combiner}
                results[f"{name}, {combiner}"] = compute(tf, columns, **options)
    return results


if __name__ == "__main__":
    import tensorflow.compat.v1 as tensorflow

    tensorflow.disable_eager_execution()
    RECORDED.write_text(json.dumps(compute_all(tensorflow), indent=1) + "\n")

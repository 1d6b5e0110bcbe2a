"""Feature columns compute the same as TensorFlow's, and reject unreadable features."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from weft_testing.loading import load
from weft_testing.workspace import ROOT

import weft as wf

oracle = load(ROOT / "tests/oracle/feature_columns.py")
fc = wf.feature_column


def test_results_and_names_are_those_of_tensorflow() -> None:
    recorded = json.loads(oracle.RECORDED.read_text("utf-8"))
    results = oracle.compute_all(wf)
    assert results.keys() == recorded.keys()
    for name, expected in recorded.items():
        assert results[name]["variables"] == expected["variables"], name
        np.testing.assert_allclose(
            results[name]["value"], expected["value"], 1e-5, 1e-6, err_msg=name
        )


def test_columns_read_parsed_examples() -> None:
    ids = fc.categorical_column_with_identity("id", 4)
    weighted = fc.weighted_categorical_column(ids, "weight")
    columns = [fc.numeric_column("age", default_value=7.0), fc.indicator_column(weighted)]
    feature = {
        "id": wf.train.Feature(int64_list=wf.train.Int64List(value=[1, 3])),
        "weight": wf.train.Feature(float_list=wf.train.FloatList(value=[0.5, 2.0])),
    }
    example = wf.train.Example(features=wf.train.Features(feature=feature)).SerializeToString()
    parsed = wf.parse_example([example], fc.make_parse_example_spec(columns))
    value = wf.Session().run(fc.input_layer(parsed, columns))
    np.testing.assert_array_equal(value, [[7.0, 0.0, 0.5, 0.0, 2.0]])


def test_variables_and_values_by_column() -> None:
    column = fc.embedding_column(fc.categorical_column_with_identity("id", 4), 2)
    number = fc.numeric_column("age")
    features = {"id": [[1]], "age": [[2.0]]}
    variables: dict[Any, Any] = {}
    values: dict[Any, Any] = {}
    with wf.Graph().as_default():
        fc.input_layer(
            features, [column, number], ["mine"], cols_to_vars=variables,
            cols_to_output_tensors=values, trainable=False,
        )  # fmt: skip
        assert [v.op.name for v in variables[column]] == [
            "input_layer/id_embedding/embedding_weights"
        ]
        assert variables[number] == [] and values[number].shape.as_list()[1:] == [1]
        assert wf.get_collection("mine") == variables[column] and not wf.trainable_variables()
        fc.linear_model(features, [number], cols_to_vars=variables)
        assert [v.op.name for v in variables["bias"]] == ["linear_model/bias_weights"]


def test_an_embedding_starts_from_a_checkpoint(tmp_path: Path) -> None:
    table = np.arange(6, dtype=np.float32).reshape(3, 2)
    with wf.Graph().as_default(), wf.Session() as session:
        variable = wf.get_variable("table", initializer=table)
        session.run(wf.global_variables_initializer())
        prefix = wf.train.Saver([variable]).save(session, str(tmp_path / "model"))
    ids = fc.categorical_column_with_identity("id", 3)
    column = fc.embedding_column(ids, 2, ckpt_to_load_from=prefix, tensor_name_in_ckpt="table")
    with wf.Graph().as_default(), wf.Session() as session:
        x = fc.input_layer({"id": [[2]]}, [column])
        session.run(wf.global_variables_initializer())
        np.testing.assert_array_equal(session.run(x), [[4.0, 5.0]])


def test_a_wide_and_deep_model_learns() -> None:
    words = fc.categorical_column_with_hash_bucket("word", 50)
    features = {"word": wf.constant([["a"], ["b"], ["c"], ["d"]]), "x": wf.constant([1.0, 2, 3, 4])}
    deep = [fc.embedding_column(words, 3), fc.numeric_column("x")]
    hidden = wf.layers.dense(fc.input_layer(features, deep), 8, wf.nn.relu)
    answer = fc.linear_model(features, [words]) + wf.layers.dense(hidden, 1)
    loss = wf.losses.mean_squared_error(wf.constant([[1.0], [-1.0], [3.0], [0.0]]), answer)
    train = wf.train.AdamOptimizer(0.1).minimize(loss)
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        first = session.run(loss)
        for _ in range(60):
            session.run(train)
        assert session.run(loss) < 0.05 * first


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fc.input_layer({}, [fc.numeric_column("x")]), "there is no feature 'x'"),
        (lambda: fc.input_layer({"x": 1.0}, [fc.numeric_column("x")]), "must have a batch axis"),
        (lambda: fc.input_layer({}, []), "at least one column"),
        (lambda: fc.input_layer({}, ["x"]), "a feature column is required"),
        (lambda: fc.input_layer({"id": [1]}, fc.categorical_column_with_identity("id", 2)),
         "wrap it with"),
        (lambda: fc.input_layer({"x": [1.0]}, [fc.numeric_column("x")] * 2), "the name 'x'"),
        (lambda: fc.numeric_column("x", dtype=wf.string), "must be an integer or floating-point"),
        (lambda: fc.bucketized_column(fc.numeric_column("x"), [2, 1]), "boundaries must ascend"),
        (lambda: fc.bucketized_column(fc.numeric_column("x", [2, 2]), [1]), "a shape of rank 1"),
        (lambda: fc.categorical_column_with_vocabulary_list("x", ["a", "a"]), "distinct entries"),
        (lambda: fc.categorical_column_with_vocabulary_list("x", ["a"], wf.int64), "does not fit"),
        (lambda: fc.categorical_column_with_vocabulary_list("x", ["a"], None, 0, 2), "exclude"),
        (lambda: fc.categorical_column_with_hash_bucket("x", 9, wf.float32), "must have dtype"),
        (lambda: fc.categorical_column_with_identity("x", 2, 5), "must be in"),
        (lambda: fc.crossed_column(["a"], 5), "at least 2 entries"),
        (lambda: fc.crossed_column(["a", fc.categorical_column_with_hash_bucket("b", 5)], 5),
         "no column with hash buckets"),
        (lambda: fc.crossed_column(["a", fc.numeric_column("b")], 5), "categorical columns, got"),
        (lambda: fc.indicator_column(cast(Any, fc.numeric_column("x"))), "a categorical column"),
        (lambda: fc.embedding_column(fc.categorical_column_with_identity("x", 2), 2, "max"),
         "combiner must be"),
        (lambda: fc.embedding_column(
            fc.categorical_column_with_identity("x", 2), 2, ckpt_to_load_from="a"), "together"),
        (lambda: fc.shared_embedding_columns(
            [fc.categorical_column_with_identity(*a) for a in (("x", 2), ("y", 3))], 2),
         "equal numbers of buckets"),
        (lambda: fc.make_parse_example_spec(
            [fc.numeric_column("x"), fc.numeric_column("x", 2)]), "in different ways"),
        (lambda: fc.input_layer({"x": ["a"]}, [fc.indicator_column(
            fc.categorical_column_with_identity("x", 2))]), "must be integers"),
    ],
)  # fmt: skip
def test_errors_say_what_is_wrong(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(wf.errors.InvalidArgumentError, match=message):
        make()


def test_an_identity_out_of_range_is_an_error_at_run_time() -> None:
    column = fc.indicator_column(fc.categorical_column_with_identity("id", 2))
    with pytest.raises(wf.errors.InvalidArgumentError, match="ids must be below num_buckets"):
        wf.Session().run(fc.input_layer({"id": [[5]]}, [column]))

"""RaggedFeature in parse_example and its kin; the values are TensorFlow's."""

from __future__ import annotations

from typing import Any

import pytest

import weft as wf
from weft import errors

Ragged = wf.io.RaggedFeature
LISTS: list[dict[str, list[Any]]] = [
    {
        "v": [3, 1, 4, 1, 5, 9],
        "splits": [0, 2, 3, 3, 6],
        "outer": [0, 2, 3, 4],
        "lengths": [2, 0, 4],
        "starts": [0, 2, 2],
        "limits": [2, 2, 6],
        "ids": [0, 0, 2, 2, 2, 3],
        "text": [b"a"],
    },
    {
        "v": [2, 7, 1, 8, 2, 8],
        "splits": [0, 3, 4, 5, 6],
        "outer": [0, 1, 1, 4],
        "lengths": [6],
        "starts": [0],
        "limits": [6],
        "ids": [1, 1, 1, 1, 1, 1],
        "text": [b"b", b"c"],
    },
    {"splits": [0], "outer": [0]},
]


def _feature(values: list[Any]) -> wf.train.Feature:
    if values and isinstance(values[0], bytes):
        return wf.train.Feature(bytes_list=wf.train.BytesList(value=values))
    return wf.train.Feature(int64_list=wf.train.Int64List(value=values))


def _features(lists: dict[str, list[Any]]) -> wf.train.Features:
    return wf.train.Features(feature={key: _feature(values) for key, values in lists.items()})


def _examples() -> list[bytes]:
    return [wf.train.Example(features=_features(each)).SerializeToString() for each in LISTS]


def _value(found: Any) -> Any:
    with wf.Session() as session:
        value = session.run(found)
    return value.to_list() if isinstance(found, wf.RaggedTensor) else value.tolist()


CUT = [[[3, 1], [], [4, 1, 5, 9]], [[2, 7, 1, 8, 2, 8]], []]
CASES = {
    "none": ([], [[3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 2, 8], []]),
    "splits": (
        [Ragged.RowSplits("splits")],
        [[[3, 1], [4], [], [1, 5, 9]], [[2, 7, 1], [8], [2], [8]], []],
    ),
    "lengths": ([Ragged.RowLengths("lengths")], CUT),
    "starts": ([Ragged.RowStarts("starts")], CUT),
    "limits": ([Ragged.RowLimits("limits")], CUT),
    "ids": (
        [Ragged.ValueRowIds("ids")],
        [[[3, 1], [], [4, 1, 5], [9]], [[], [2, 7, 1, 8, 2, 8]], []],
    ),
    "uniform": (
        [Ragged.UniformRowLength(2)],
        [[[3, 1], [4, 1], [5, 9]], [[2, 7], [1, 8], [2, 8]], []],
    ),
    "two": (
        [Ragged.RowSplits("outer"), Ragged.RowSplits("splits")],
        [[[[3, 1], [4]], [[]], [[1, 5, 9]]], [[[2, 7, 1]], [], [[8], [2], [8]]], []],
    ),
    "uniform outside": (
        [Ragged.UniformRowLength(2), Ragged.RowSplits("splits")],
        [[[[3, 1], [4]], [[], [1, 5, 9]]], [[[2, 7, 1], [8]], [[2], [8]]], []],
    ),
}


@pytest.mark.parametrize("splits", [wf.int32, wf.int64])
@pytest.mark.parametrize("case", CASES)
def test_values_and_partitions(case: str, splits: wf.DType) -> None:
    partitions, expected = CASES[case]
    feature = Ragged(wf.int64, "v", partitions, splits, validate=True)
    with wf.Graph().as_default():
        batch = wf.io.parse_example(_examples(), {"x": feature})["x"]
        assert batch.row_splits.dtype == splits
        assert _value(batch) == expected
        one = wf.io.parse_single_example(_examples()[0], {"x": feature})
        assert list(one) == ["x"]
        assert _value(one["x"]) == expected[0]


def test_features_of_sequences() -> None:
    feature = Ragged(wf.int64, "v", [Ragged.RowLengths("lengths")])
    lists = {
        key: wf.train.FeatureList(feature=[_feature(each.get(key, [])) for each in LISTS])
        for key in ("v", "lengths")
    }
    text = wf.train.SequenceExample(
        context=_features(LISTS[0]), feature_lists=wf.train.FeatureLists(feature_list=lists)
    ).SerializeToString()
    with wf.Graph().as_default():
        context, steps = wf.io.parse_single_sequence_example(text, {"x": feature}, {"y": feature})
        assert _value(context["x"]) == CUT[0]
        assert _value(steps["y"]) == CUT
        context, _, _ = wf.io.parse_sequence_example([text, text], {"x": feature})
        assert _value(context["x"]) == [CUT[0], CUT[0]]
        with pytest.raises(errors.InvalidArgumentError, match="Unsupported RaggedFeature"):
            wf.io.parse_sequence_example([text], sequence_features={"y": feature})


def test_beside_other_features_and_in_datasets() -> None:
    features = {
        "text": Ragged(wf.string),
        "v": wf.io.VarLenFeature(wf.int64),
        "rows": Ragged(wf.int64, "v", [Ragged.RowLengths("lengths")]),
    }
    with wf.Graph().as_default():
        dataset = wf.data.Dataset.from_tensor_slices(_examples()).batch(3)
        parsed = dataset.map(lambda text: wf.io.parse_example(text, features))
        found = parsed.make_one_shot_iterator().get_next()
        assert list(found) == ["text", "v", "rows"]
        assert _value(found["text"]) == [[b"a"], [b"b", b"c"], []]
        assert _value(found["rows"]) == CUT
        assert _value(wf.sparse.to_dense(found["v"]))[1] == [2, 7, 1, 8, 2, 8]


def test_partitions_that_do_not_fit() -> None:
    with wf.Graph().as_default():
        lengths = Ragged(wf.int64, "v", [Ragged.RowLengths("ids")], validate=True)
        uniform = Ragged(wf.int64, "v", [Ragged.UniformRowLength(4)], validate=True)
        for feature in (lengths, uniform):
            with pytest.raises(errors.InvalidArgumentError):
                _value(wf.io.parse_example(_examples(), {"x": feature})["x"])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"row_splits_dtype": wf.float32}, "int32 or int64"),
        ({"value_key": ""}, "value_key"),
        ({"partitions": "v"}, "list of partitions"),
        ({"partitions": ["v"]}, "must be one of RaggedFeature.RowSplits"),
        ({"partitions": [Ragged.UniformRowLength(0)]}, "UniformRowLength"),
        ({"partitions": [Ragged.RowSplits(3)]}, "RowSplits"),
        ({"validate": 1}, "True or False"),
    ],
)
def test_malformed_features(change: dict[str, Any], what: str) -> None:
    with pytest.raises((TypeError, ValueError), match=what):
        Ragged(**{"dtype": wf.int64, **change})

"""Errors of a dataset's function name the file and record: a table of pipelines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from weft_testing.waiting import rounds

import weft as wf
from weft_tensor import errors

Dataset = wf.data.Dataset


def _parsed(line: Any) -> Any:
    return wf.decode_csv(line, [[0], [0]])


def _number(line: Any) -> Any:
    return wf.string_to_number(line)


PIPELINES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda lines: lines.map(_parsed), "line 3 of {second}"),
    (lambda lines: lines.map(_parsed, num_parallel_calls=4), "line 3 of {second}"),
    (lambda lines: lines.skip(1).take(9).map(_parsed).batch(2), "line 3 of {second}"),
    (lambda lines: lines.filter(lambda x: _parsed(x)[0] > 0), "line 3 of {second}"),
    (lambda lines: lines.repeat(2).map(_parsed).prefetch(2), "line 3 of {second}"),
    (lambda lines: lines.batch(2).map(_parsed), "in the batch that ends with line 4 of {second}"),
    (
        lambda lines: Dataset.from_tensors(0).flat_map(lambda _: lines).map(_parsed),
        "line 3 of {second}",
    ),
    (
        lambda lines: Dataset.range(2).interleave(lambda _: lines, 2).map(_parsed),
        "line 3 of {second}",
    ),
    (lambda lines: Dataset.range(1).concatenate(Dataset.range(2)).map(_divided), ""),
    (lambda lines: lines.prefetch(1).map(_parsed), ""),
    (lambda lines: lines.shuffle(2).map(_parsed), ""),
]


def _divided(x: Any) -> Any:
    return wf.constant(1, wf.int64) // x


def _failure(dataset: Any) -> str:
    next_element = wf.data.make_one_shot_iterator(dataset).get_next()
    with wf.Session() as session, pytest.raises(errors.InvalidArgumentError) as found:
        for _ in rounds():
            session.run(next_element)
    return found.value.message


def test_lines(tmp_path: Path) -> None:
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text("1,2\n3,4\n", encoding="utf-8")
    second.write_text("5,6\n7,8\n9,x\n10,11\n", encoding="utf-8")
    for build, place in PIPELINES:
        with wf.Graph().as_default():
            said = _failure(build(wf.data.TextLineDataset([str(first), str(second)])))
        wanted = f" ({place.format(second=second)})" if place else ""
        assert said.endswith(wanted) and ("(" in said) == bool(place), said


def test_a_line_of_a_later_piece_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text("1,2\n" * 300_000 + "3,x\n", encoding="utf-8")
    lines = wf.data.TextLineDataset(str(path)).skip(299_999).map(_parsed)
    assert _failure(lines).endswith(f" (line 300001 of {path})")


def test_records(tmp_path: Path) -> None:
    path = str(tmp_path / "two.tfrecord")
    with wf.python_io.TFRecordWriter(path) as writer:
        writer.write(wf.train.Example().SerializeToString())
        writer.write(b"garbage")
    features = {"a": wf.FixedLenFeature([], wf.int64, 0)}
    dataset = wf.data.TFRecordDataset(path)
    parsed = dataset.map(lambda record: wf.parse_single_example(record, features))
    assert _failure(parsed).endswith(f"(record 2 of {path})")
    octets = tmp_path / "octets"
    octets.write_bytes(b"1  2  x  ")
    fixed = wf.data.FixedLengthRecordDataset(str(octets), 3).map(_number)
    assert _failure(fixed).endswith(f"(record 3 of {octets})")

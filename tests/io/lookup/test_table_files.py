"""Tables and files: vocabularies, checkpoints, saved models; tables in training and datasets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.parts import Parts

from weft_autodiff.optimizers.training_util import get_or_create_global_step
from weft_exec.session.session import Session
from weft_graph import Graph
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ops.array import placeholder
from weft_graph.variables.reference import tables_initializer
from weft_io.data.dataset import Dataset
from weft_io.lookup import contrib_tables, functions
from weft_io.lookup.initializers import (
    KeyValueTensorInitializer,
    TextFileIndex,
    TextFileInitializer,
)
from weft_io.lookup.tables import DenseHashTable, MutableHashTable, StaticHashTable
from weft_io.lookup.vocabulary import StaticVocabularyTable
from weft_io.saved_model.builder import SavedModelBuilder
from weft_io.saved_model.loader import load
from weft_io.saved_model.signature_def_utils import predict_signature_def
from weft_io.saving.bundle_saver_builder import BundleSaverBuilder
from weft_io.saving.saver import Saver
from weft_io.tracking.checkpoint import Checkpoint
from weft_io.training.monitored_training import MonitoredTrainingSession
from weft_tensor import dtypes, errors

LINE, NUMBER = TextFileIndex.WHOLE_LINE, TextFileIndex.LINE_NUMBER


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    with Graph().as_default():
        yield


def listed(value: Any) -> Any:
    return np.asarray(value).tolist()


def content(path: Path, text: str, *indices: Any, **others: Any) -> Any:
    """Return the pairs that a table reads from a file: type and index of keys, then of values."""
    path.write_bytes(text.encode())
    chosen = indices or (dtypes.string, LINE, dtypes.int64, NUMBER)
    with Graph().as_default(), Session() as session:
        source = TextFileInitializer(str(path), *chosen, **others)
        text_values = source.value_dtype is dtypes.string
        default = "" if text_values else np.zeros((), source.value_dtype.numpy)
        table = StaticHashTable(source, default)
        session.run(table.initializer)
        keys, values = session.run(table.export())
    return dict(zip(listed(keys), listed(values), strict=True))


def test_columns_of_files(tmp_path: Path) -> None:
    path = tmp_path / "words"
    string, int64 = dtypes.string, dtypes.int64
    assert content(path, "a\nb\r\nc d") == {b"a": 0, b"b": 1, b"c d": 2}
    assert content(path, "") == {}
    assert content(path, "a\nb\nc\n", vocab_size=2) == {b"a": 0, b"b": 1}
    assert content(path, "a\nb\n", value_index_offset=5) == {b"a": 5, b"b": 6}
    assert content(path, "a\nb\n", int64, NUMBER, string, LINE) == {0: b"a", 1: b"b"}
    assert content(path, "a\t 1 \nb\t-2\tx", string, 0, int64, 1) == {b"a": 1, b"b": -2}
    found = content(path, "7,1e3\n8,.5", int64, 0, dtypes.float32, 1, delimiter=",")
    assert found == {7: 1000.0, 8: 0.5}
    assert content(path, "a true\nb 0", string, 0, dtypes.bool_, 1, delimiter=" ") == {
        b"a": True,
        b"b": False,
    }


def test_bad_lines_are_named(tmp_path: Path) -> None:
    path = tmp_path / "words"
    string, int64 = dtypes.string, dtypes.int64
    pairs = (string, 0, int64, 1)
    bad = errors.InvalidArgumentError
    with Parts() as parts:
        for what, text, indices, others, error, words in (
            ("empty", "a\n\nc", (), {}, bad, "words: empty line found at line 2"),
            ("short", "a\n", (), {"vocab_size": 2}, bad, "vocab_size in .*: expected 2 but got 1"),
            ("columns", "a\t1\nb\n", pairs, {}, bad, r"words line 2 \(b\): expected at least 2"),
            ("number", "a\t1\nb\tx", pairs, {}, bad, "Field x in line 2 of .*not a valid int64"),
            ("score", "a\t1_0", pairs, {}, bad, "Field 1_0 in line 1"),
            ("range", "a\t1\nb\t300", (string, 0, dtypes.int8, 1), {}, bad, "line 2 .* int8"),
            ("huge", f"a\t{1 << 63}", pairs, {}, bad, "line 1 .* int64"),
            (
                "twice",
                "a\nb\na",
                (),
                {},
                errors.FailedPreconditionError,
                r"Key a has 0 and trying to add value 2 \(line 1 of .*words, line 3 of",
            ),
        ):
            with parts.part(what), pytest.raises(error, match=words):
                content(path, text, *indices, **others)
        for what, arguments, words in (
            ("no name", ("", string, LINE, int64, NUMBER), "`filename` argument required"),
            ("index", ("f", string, -3, int64, NUMBER), "key_index"),
            ("type", ("f", string, NUMBER, int64, LINE), "must be int64"),
            ("size", ("f", string, LINE, int64, NUMBER, 0), "vocab_size"),
            ("no delimiter", ("f", string, 0, int64, 1, None, ""), "one byte, got ''"),
            ("two bytes", ("f", string, 0, int64, 1, None, "é"), "one byte, got 'é'"),
            ("delimiter", ("f", string, LINE, int64, NUMBER, None, ",,"), "one byte"),
        ):
            with parts.part(what), pytest.raises(bad, match=words):
                TextFileInitializer(*arguments)
        with parts.part("no file"), pytest.raises(errors.NotFoundError, match="no_such_file"):
            table = StaticHashTable(
                TextFileInitializer("no_such_file", string, LINE, int64, NUMBER), 0
            )
            Session().run(table.initializer)


def test_functions_that_make_tables(tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_text("emerson\nlake\npalmer\n")
    ids = functions.index_table_from_file(str(path), num_oov_buckets=2)
    plain = functions.index_table_from_file(str(path), default_value=-7)
    words = functions.index_to_string_table_from_file(str(path), vocab_size=2)
    numbers = functions.index_table_from_tensor(np.int32([30, 10]), default_value=9)
    hashed = functions.index_table_from_tensor(["x", "y"], num_oov_buckets=1)
    back = functions.index_to_string_table_from_tensor(["x", "y"])
    with Session() as session:
        session.run(tables_initializer())
        found = session.run(ids.lookup(["lake", "palmer", "other"]))
        assert listed(found[:2]) == [1, 2]
        assert found[2] in (3, 4)
        assert listed(session.run(plain.lookup(["lake", "other"]))) == [1, -7]
        assert listed(session.run(words.lookup(np.int64([1, 2])))) == [b"lake", b"UNK"]
        assert listed(session.run(numbers.lookup(np.int32([10, 20])))) == [1, 9]
        assert listed(session.run(hashed.lookup(["y", "z"]))) == [1, 2]
        assert listed(session.run(back.lookup(np.int64([1, 5])))) == [b"y", b"UNK"]


# ------------------------------------------------------------------------ checkpoints


@pytest.mark.parametrize("builder", [None, BundleSaverBuilder])
def test_mutable_tables_are_saved(builder: Any, tmp_path: Path) -> None:
    words = MutableHashTable(dtypes.string, dtypes.float32, [0.0, 0.0], name="words")
    again = MutableHashTable(dtypes.int64, dtypes.string, "", name="words")
    empty = MutableHashTable(dtypes.string, dtypes.int64, 0, name="empty")
    dense = DenseHashTable(dtypes.int64, dtypes.int64, 0, -1, -2, name="dense")
    saver = Saver(builder=builder() if builder else None)
    with Session() as session:
        session.run(
            [
                words.insert(["a", "b"], [[1.0, 2.0], [3.0, 4.0]]),
                again.insert(np.int64([5]), ["five"]),
                dense.insert(np.int64([6]), np.int64([7])),
            ]
        )
        path = saver.save(session, str(tmp_path / "model"))
    with Session() as session:
        session.run(words.insert(["c"], [[9.0, 9.0]]))
        saver.restore(session, path)
        assert listed(session.run(words.lookup(["a", "b", "c"]))) == [[1, 2], [3, 4], [0, 0]]
        assert listed(session.run(again.lookup(np.int64([5])))) == [b"five"]
        assert session.run([empty.size(), dense.lookup(np.int64(6))]) == [0, 7]


def test_a_training_session_initializes_and_keeps_tables(tmp_path: Path) -> None:
    fixed = StaticHashTable(KeyValueTensorInitializer([1], [2]), -1)
    counts = MutableHashTable(dtypes.int64, dtypes.int64, 0)
    step = get_or_create_global_step()
    change = [counts.insert(np.int64([4]), np.int64([5])), step.assign_add(1)]
    look = [fixed.lookup([1, 3]), counts.lookup(np.int64([4]))]
    for turn in range(2):
        with MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path), save_checkpoint_steps=1
        ) as session:
            if not turn:
                session.run(change)
            assert listed(session.run(look[0])) == [2, -1]
            assert listed(session.run(look[1])) == [5]


def test_a_saved_model_brings_its_vocabulary(tmp_path: Path) -> None:
    vocabulary = tmp_path / "words.txt"
    vocabulary.write_text("to\nbe\n")
    words = TextFileInitializer(str(vocabulary), dtypes.string, LINE, dtypes.int64, NUMBER)
    table = StaticVocabularyTable(words, 1)
    asked = placeholder(dtypes.string, [None], name="asked")
    signature = predict_signature_def({"asked": asked}, {"ids": table.lookup(asked)})
    builder = SavedModelBuilder(str(tmp_path / "model"))
    with Session() as session:
        session.run(tables_initializer())
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {"ids": signature},
            assets_collection=asked.graph.get_collection(GraphKeys.ASSET_FILEPATHS),
            main_op=tables_initializer(),
        )
    builder.save()
    vocabulary.unlink()
    assert (tmp_path / "model" / "assets" / "words.txt").read_text() == "to\nbe\n"
    (tmp_path / "model").rename(tmp_path / "moved")
    with Graph().as_default(), Session() as session:
        found = load(session, ["serve"], str(tmp_path / "moved"))
        ids = found.signature_def["ids"].outputs["ids"].name
        assert listed(session.run(ids, {"asked:0": ["be", "or", "to"]})) == [1, 2, 0]


# ------------------------------------------------------------------------ datasets


def test_a_table_in_the_function_of_a_dataset() -> None:
    table = StaticHashTable(KeyValueTensorInitializer(["a", "b"], [1, 2]), -1)

    def both(word: Any) -> Any:
        inside = StaticHashTable(KeyValueTensorInitializer(["b"], [9]), 0)
        return table.lookup(word), inside.lookup(word)

    dataset = Dataset.from_tensor_slices(["a", "b", "c"])
    made = dataset.map(both, num_parallel_calls=2).batch(3)
    assert [part.as_list() for part in made.output_shapes] == [[None], [None]]
    with pytest.raises(errors.InvalidArgumentError, match="make_initializable_iterator"):
        made.make_one_shot_iterator()
    iterator = made.make_initializable_iterator()
    following = iterator.get_next()
    with Session() as session:
        session.run([tables_initializer(), iterator.initializer])
        assert list(map(listed, session.run(following))) == [[1, 2, -1], [0, 9, 0]]


def test_tables_by_their_former_names() -> None:
    made = contrib_tables.HashTable(
        contrib_tables.KeyValueTensorInitializer(["a"], [1]), -1, "shared", "one"
    )
    words = contrib_tables.index_table_from_tensor(mapping=["x", "y"], num_oov_buckets=1)
    back = contrib_tables.index_to_string_table_from_tensor(mapping=["x"])
    numbers = contrib_tables.MutableHashTable(dtypes.int64, dtypes.int64, 0, "numbers")
    dense = contrib_tables.MutableDenseHashTable(
        dtypes.int64, dtypes.int64, 0, -1, -2, 4, "numbers too"
    )
    with Session() as session:
        session.run([made.init, words.init, back.init])
        assert listed(session.run(made.lookup(["a", "b"]))) == [1, -1]
        assert listed(session.run(words.lookup(["y", "z"]))) == [1, 2]
        assert listed(session.run(back.lookup(np.int64([0, 1])))) == [b"x", b"UNK"]
        assert listed(session.run([numbers.size(), dense.size()])) == [0, 0]
    for table, name in ((made, "shared"), (numbers, "numbers"), (dense, "numbers too")):
        assert table.resource_handle.op.get_attr("shared_name") == name.encode()


def test_a_table_is_saved_by_itself(tmp_path: Path) -> None:
    table = MutableHashTable(dtypes.string, dtypes.int64, -1, name="words", checkpoint=False)
    word = table.lookup(["a", "b"])
    saver, checkpoint = Saver([table]), Checkpoint(table=table)
    with Session() as session:
        session.run(table.insert(["a"], np.int64([1])))
        path = saver.save(session, str(tmp_path / "saver"))
        session.run(table.insert(["a", "b"], np.int64([2, 3])))
        second = checkpoint.save(str(tmp_path / "checkpoint"))
        saver.restore(session, path)
        assert listed(session.run(word)) == [1, -1]
        checkpoint.restore(second).assert_consumed().run_restore_ops()
        assert listed(session.run(word)) == [2, 3]

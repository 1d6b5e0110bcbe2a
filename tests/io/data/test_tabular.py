"""Datasets of comma-separated values, of databases, and of files of examples."""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.parts import Parts

from weft_exec.session.session import Session
from weft_graph import Graph, proto
from weft_io.data.dataset import Dataset
from weft_io.data.experimental import make_saveable_from_iterator
from weft_io.data.files_datasets import TFRecordDataset
from weft_io.data.lookup_tables import index_table_from_dataset, table_from_dataset
from weft_io.data.tabular import (
    CsvDataset,
    SqlDataset,
    TFRecordWriter,
    make_batched_features_dataset,
    make_csv_dataset,
    parse_example_dataset,
)
from weft_io.input.parsing import FixedLenFeature, VarLenFeature
from weft_io.streams import tabular
from weft_tensor import dtypes, errors

STRING, INT = dtypes.string, dtypes.int32


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    with Graph().as_default():
        yield


def plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def elements(dataset: Dataset, most: int = 100) -> list[Any]:
    """The elements; the name of the class of an error for those that fail."""
    following = dataset.make_one_shot_iterator().get_next()
    found: list[Any] = []
    with Session() as session:
        while len(found) < most:
            try:
                found.append(plain(session.run(following)))
            except errors.OutOfRangeError:
                break
            except errors.InvalidArgumentError as error:
                found.append(error.message)
    return found


@pytest.fixture
def written(tmp_path: Path) -> Any:
    def write(text: str, name: str = "file.csv") -> str:
        (tmp_path / name).write_bytes(text.encode())
        return str(tmp_path / name)

    return write


# ------------------------------------------------------------------------------- CSV


def test_records_of_csv_files(written: Any) -> None:
    ints: Any = [[0], [0]]
    for text, defaults, options, wanted in (
        ("1,2\n3,4", ints, {}, [(1, 2), (3, 4)]),
        ("a,b\n1,2\n", ints, {"header": True}, [(1, 2)]),
        ("a,b\n", ints, {"header": True}, []),
        ("", ints, {}, []),
        ("1\n\n3\n", [[7]], {}, [(1,), (7,), (3,)]),
        ('"a\nb",1\r\n"c""d\r\n",2', [STRING, INT], {}, [(b"a\nb", 1), (b'c"d\r\n', 2)]),
        ("1;NA;x\n2;5;y", [INT, [9]], {"field_delim": ";", "na_value": "NA", "select_cols": [0, 1]},
         [(1, 9), (2, 5)]),
        ('a"b,1', [STRING, INT], {"use_quote_delim": False}, [(b'a"b', 1)]),
        ("1.5,-2,7", [[0.0], np.float64([0]), np.int64([0])], {}, [(1.5, -2.0, 7)]),
    ):  # fmt: skip
        assert elements(CsvDataset(written(text), defaults, **options)) == wanted, text


def test_bad_records_are_named_and_left_out(written: Any) -> None:
    path = written("1,2\n3\n\n5,x\n,6\n7,8\n")
    first, short, nothing, number, missing, last = elements(CsvDataset(path, [INT, [0]]))
    assert (first, last) == ((1, 2), (7, 8))
    for message, words in (
        (short, "Expect 2 fields but have 1"),
        (nothing, "Expect 2 fields but have"),
        (number, "not a valid int32"),
        (missing, "required but missing"),
    ):
        assert words in message
    assert f"line 2 of {path}" in short or f"record 2 of {path}" in short


def test_wrong_arguments_of_csv_datasets(written: Any) -> None:
    path = written("1,2\n")
    with Parts() as parts:
        with parts.part("types"), pytest.raises(TypeError, match="complex64"):
            CsvDataset(path, [dtypes.complex64])
        with (
            parts.part("numbers"),
            pytest.raises(errors.InvalidArgumentError, match="the same length"),
        ):
            CsvDataset(path, [INT], select_cols=[0, 1])
        for options, words in (
            ({"select_cols": [1, 0]}, "strictly increasing"),
            ({"field_delim": "ab"}, "only 1 char"),
        ):
            with parts.part(words):
                assert words in elements(CsvDataset(path, [INT, INT], **options), 1)[0]


def test_a_place_in_a_csv_file_is_restored(written: Any) -> None:
    path = written("n\n" + "".join(f'{n},"x\n{n}"\n' for n in range(9)))
    iterator = CsvDataset([path, path], [INT, STRING], header=True).make_initializable_iterator()
    following, saved = iterator.get_next(), make_saveable_from_iterator(iterator)
    state = saved.specs[0].tensor
    with Session() as session:
        session.run(iterator.initializer)
        states = []
        for _ in range(12):
            states.append(session.run(state))
            session.run(following)
    from weft_graph.ops.array import placeholder

    given = placeholder(STRING, ())
    restore = saved.restore([given], None)
    with Session() as session:
        session.run(iterator.initializer)
        for at in (0, 3, 9, 11):
            session.run(restore, {given: states[at]})
            assert plain(session.run(following)) == (at % 9, b"x\n%d" % (at % 9))


def test_only_the_start_of_a_csv_file_is_a_header(written: Any) -> None:
    path = written("a,b\n1,2\n3,4\n")
    for offset, wanted in ((0, [b"1,2", b"3,4"]), (4, [b"1,2", b"3,4"]), (8, [b"3,4"])):
        records = tabular.CsvRecords(path, "", offset, True, b",")
        assert records.read_chunk() == wanted
        assert (records.offset, records.read_chunk()) == (12, [])
        records.close()


@pytest.mark.parametrize("quotes", [True, False])
@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_lines_of_csv_files_end_in_any_way(written: Any, end: str, quotes: bool) -> None:
    lines = ["a,b", "", "c d,", ",e"]
    for last in ("", end):
        path = written(end.join(lines) + last)
        rows = elements(CsvDataset(path, [["-"], ["-"]], use_quote_delim=quotes))
        assert [rows[0], *rows[2:]] == [(b"a", b"b"), (b"c d", b"-"), (b"-", b"e")]
        assert rows[1].startswith("Expect 2 fields but have 1")


def test_ends_of_lines_in_quotes_are_kept(written: Any) -> None:
    path = written('"a\r",b\r"c\n\n",d\r\n"e""\r\n""","f"\r')
    wanted = [(b"a\r", b"b"), (b"c\n\n", b"d"), (b'e"\r\n"', b"f")]
    assert elements(CsvDataset(path, [STRING, STRING])) == wanted


def test_a_stray_quote_spoils_no_other_record(written: Any) -> None:
    path = written('1,2"3\na,b\n"c"d,e\nf,g\nh,"i\nj"x"\nk,l\n')
    rows = elements(CsvDataset(path, [STRING, STRING]))
    assert [row for row in rows if isinstance(row, tuple)] == [
        (b"a", b"b"),
        (b"f", b"g"),
        (b"k", b"l"),
    ]
    assert next(row for row in rows if isinstance(row, str)).startswith("Unquoted fields")
    assert len(rows) == 6


def test_wrong_arguments_of_csv_files_are_refused_at_once(written: Any) -> None:
    path = written("a,b\n")
    with pytest.raises(errors.InvalidArgumentError, match="buffer_size must be at least 1, got 0"):
        CsvDataset(path, [STRING, STRING], buffer_size=0)
    with pytest.raises(errors.InvalidArgumentError, match=r"rank 0 or 1, got shape \[1,1\]"):
        CsvDataset(path, [STRING, [["b"]]])


def test_names_and_types_in_compressed_files(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b'a,"b\nc"\r\n1,"x\ny"\r\n9000000000,\r\n'))
    made = make_csv_dataset(str(path), 2, num_epochs=1, shuffle=False, compression_type="GZIP")
    assert elements(made) == [{"a": [1, 9000000000], "b\nc": [b"x\ny", b""]}]


def test_csv_files_by_names(written: Any, tmp_path: Path) -> None:
    path = written("a,b,c\n1,2.5,x\n3,,y\n5,6,\n")
    made = make_csv_dataset(path, 2, num_epochs=1, shuffle=False)
    assert elements(made) == [
        {"a": [1, 3], "b": [2.5, 0.0], "c": [b"x", b"y"]},
        {"a": [5], "b": [6.0], "c": [b""]},
    ]
    labelled = make_csv_dataset(
        path, 2, num_epochs=1, shuffle=False, label_name="c", select_columns=["c", 0]
    )
    assert elements(labelled)[0] == ({"a": [1, 3]}, [b"x", b"y"])
    other = written("9000000000,7\n", "other.csv")
    typed = make_csv_dataset([other], 1, ["n", "m"], header=False, shuffle=False)
    assert elements(typed, 2) == [{"n": [9000000000], "m": [7]}] * 2
    mixed = make_csv_dataset(path, 3, num_epochs=2, shuffle_seed=1)
    assert sorted(n for batch in elements(mixed) for n in batch["a"]) == [1, 1, 3, 3, 5, 5]
    for options, words in (
        ({"label_name": "z"}, "label_name"),
        ({"select_columns": ["z"]}, "no columns"),
        ({"column_names": ["a", "a", "b"]}, "duplicate"),
        ({"column_defaults": [INT]}, "one entry for each"),
        ({"header": False}, "column_names are required"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=words):
            make_csv_dataset(path, 2, **options)
    with pytest.raises(errors.InvalidArgumentError, match="has no header line with column names"):
        make_csv_dataset(written("", "empty.csv"), 2)
    with pytest.raises(errors.InvalidArgumentError, match="No files matched"):
        make_csv_dataset(str(tmp_path / "none*"), 2)


# ------------------------------------------------------------------------------- databases


def test_rows_of_databases(tmp_path: Path) -> None:
    path = str(tmp_path / "some.db")
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE t (a TEXT, b INTEGER, c REAL)")
        database.execute("INSERT INTO t VALUES ('x', 1, 2.5), (NULL, NULL, NULL), ('9', 3, 4)")
    types = (STRING, dtypes.int64, dtypes.float64)
    rows = SqlDataset("sqlite", path, "SELECT * FROM t ORDER BY rowid", types)
    assert elements(rows) == [(b"x", 1, 2.5), (b"", 0, 0.0), (b"9", 3, 4.0)]
    assert elements(rows.prefetch(1)) == elements(rows)
    flags = SqlDataset("sqlite", path, "SELECT a, b FROM t", (INT, dtypes.bool_))
    assert elements(flags) == ["column 0 of a row must be int32, got b'x'", (0, False), (9, True)]
    with Parts() as parts:
        for driver, query, kinds, words in (
            ("sqlite", "SELECT z FROM t", types, "no such column"),
            ("sqlite", "SELECT a FROM t", types, r"columns in query result \(1\)"),
            ("sqlite", "DELETE FROM t", types, "readonly"),
            ("mysql", "SELECT a FROM t", types, "must be sqlite"),
        ):
            with parts.part(words), pytest.raises(errors.InvalidArgumentError, match=words):
                made = SqlDataset(driver, path, query, kinds).make_one_shot_iterator()
                Session().run(made.get_next())
        with parts.part("no file"), pytest.raises(errors.NotFoundError):
            elements(SqlDataset("sqlite", path + "x", "SELECT 1", (INT,)))


# ------------------------------------------------------------------------------- examples


def example(n: int) -> bytes:
    Feature = proto.Feature
    features = {
        "n": Feature(int64_list=proto.Int64List(value=[n])),
        "words": Feature(bytes_list=proto.BytesList(value=[b"w"] * n)),
    }
    return proto.Example(features=proto.Features(feature=features)).SerializeToString()


def test_files_of_examples(tmp_path: Path) -> None:
    path = str(tmp_path / "examples")
    records = Dataset.from_tensor_slices([example(n) for n in range(5)])
    with Session() as session:
        session.run(TFRecordWriter(path, "GZIP").write(records))
    features: Any = {"n": FixedLenFeature([], dtypes.int64), "words": VarLenFeature(STRING)}
    made = make_batched_features_dataset(
        path, 2, features, reader_args=["GZIP"], label_key="n", num_epochs=1, shuffle=False
    )
    found = elements(made)
    assert [label for _, label in found] == [[0, 1], [2, 3], [4]]
    assert [each["words"][2] for each, _ in found] == [[2, 1], [2, 3], [1, 4]]
    shuffled = make_batched_features_dataset(
        [path], 5, {"n": features["n"]}, reader=lambda f: TFRecordDataset(f, "GZIP")
    )
    assert sorted(elements(shuffled, 1)[0]["n"]) == list(range(5))
    with pytest.raises(errors.InvalidArgumentError, match="label_key"):
        make_batched_features_dataset(path, 2, features, label_key="z")
    with pytest.raises(TypeError, match="serialized examples"):
        Dataset.range(3).apply(parse_example_dataset(features))
    with pytest.raises(TypeError, match="scalar strings"):
        TFRecordWriter(path).write(Dataset.range(3))


def test_tables_of_datasets() -> None:
    words = Dataset.from_tensor_slices(["to", "be", "or"])
    ids = index_table_from_dataset(words, num_oov_buckets=1, vocab_size=2)
    lengths = table_from_dataset(
        Dataset.zip((Dataset.range(3), Dataset.range(3).map(lambda n: n * n))),
        default_value=-1,
        key_dtype=dtypes.int64,
    )
    twice = table_from_dataset(Dataset.zip((words.repeat(2), Dataset.range(6))), default_value=0)
    with Session() as session:
        session.run([ids.initializer, lengths.initializer])
        assert plain(session.run(ids.lookup(["be", "or"]))) == [1, 2]
        assert plain(session.run(lengths.lookup(np.int64([2, 9])))) == [4, -1]
        with pytest.raises(errors.FailedPreconditionError, match=r"Key to has 0 and .* value 3"):
            session.run(twice.initializer)
    for wrong in (Dataset.range(3), words.batch(2)):
        with pytest.raises(TypeError, match="pairs of scalars"):
            table_from_dataset(wrong, default_value=0)

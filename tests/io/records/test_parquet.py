"""Parquet files: columns, rows as examples, damage."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.waiting import rounds

from weft_graph import proto
from weft_io.files import gfile
from weft_io.records.parquet import ParquetSource, parquet_batches
from weft_io.records.reader import Reader
from weft_tensor import errors

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

ROWS = 2500


def write(path: Path, columns: dict[str, Any], group: int = 700) -> str:
    table = pa.table(columns)
    parquet.write_table(table, path, row_group_size=group, write_page_checksum=True)
    return str(path)


def read(path: str, **options: Any) -> dict[str, np.ndarray]:
    batches = list(parquet_batches(path, **{"batch_size": 1000, **options}))
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


@pytest.fixture
def numbers(tmp_path: Path) -> str:
    return write(tmp_path / "n", {"i": np.arange(ROWS), "f": np.arange(ROWS, dtype="f4") / 3})


@pytest.mark.parametrize("size", [1, 100, 700, 701, 5000])
def test_batches_cross_the_row_groups(numbers: str, size: int) -> None:
    batches = list(parquet_batches(numbers, size))
    assert [len(batch["i"]) for batch in batches[:-1]] == [size] * (len(batches) - 1)
    assert np.concatenate([batch["i"] for batch in batches]).tolist() == list(range(ROWS))


def test_columns_and_row_groups_by_choice(numbers: str) -> None:
    got = read(numbers, columns=["f"], row_groups=[3, 0])
    assert got.keys() == {"f"}
    order = [*range(2100, 2500), *range(700)]
    np.testing.assert_array_equal(got["f"], np.array(order, np.float32) / 3)


def test_every_type_that_tensors_have(tmp_path: Path) -> None:
    kinds = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "?")
    columns = {f"c{kind}": np.arange(5).astype(kind) for kind in kinds}
    got = read(write(tmp_path / "t", columns))
    for name, array in columns.items():
        assert got[name].dtype == array.dtype
        np.testing.assert_array_equal(got[name], array)
        assert got[name].flags.writeable


def test_texts_times_and_nested_columns(tmp_path: Path) -> None:
    midnight = datetime.datetime(2020, 1, 1)
    columns = {
        "text": ["ä", "b"],
        "bytes": [b"\xff", b""],
        "words": pa.array(["x", "x"]).dictionary_encode(),
        "fixed": pa.array([b"ab", b"cd"], pa.binary(2)),
        "day": [midnight.date()] * 2,
        "time": pa.array([midnight] * 2, pa.timestamp("ms")),
        "pair": [[1, 2], [3, 4]],
        "vector": pa.array([[1, 2], [3, 4]], pa.list_(pa.float32(), 2)),
        "outer": [{"a": 1, "inner": {"b": "z"}}] * 2,
    }
    got = read(write(tmp_path / "t", columns))
    assert got["text"].tolist() == ["ä".encode(), b"b"]
    assert got["bytes"].tolist() == [b"\xff", b""]
    assert got["words"].tolist() == [b"x", b"x"]
    assert got["fixed"].tolist() == [b"ab", b"cd"]
    assert got["day"].tolist() == [18262] * 2
    assert got["time"].tolist() == [1577836800000] * 2
    assert got["pair"].tolist() == [[1, 2], [3, 4]]
    assert (got["vector"].dtype, got["vector"].shape) == (np.float32, (2, 2))
    assert got["outer.a"].tolist() == [1, 1]
    assert got["outer.inner.b"].tolist() == [b"z", b"z"]
    assert read(str(tmp_path / "t"), columns=["outer.a"]).keys() == {"outer.a"}


def test_nulls(tmp_path: Path) -> None:
    columns = {
        "i": pa.array([1, None], pa.int32()),
        "s": pa.array(["x", None]),
        "f": pa.array([1.5, None], pa.float32()),
    }
    path = write(tmp_path / "t", columns)
    np.testing.assert_array_equal(read(path, columns=["f"])["f"], [1.5, np.nan])
    got = read(path, defaults={"i": -1, "s": "", "f": 0.0})
    assert [got[name].tolist() for name in columns] == [[1, -1], [b"x", b""], [1.5, 0]]
    assert got["i"].dtype == np.int32
    with pytest.raises(errors.InvalidArgumentError, match="'i' of type int32 has nulls"):
        read(path)
    with pytest.raises(errors.InvalidArgumentError, match="'x' cannot replace its nulls"):
        read(path, defaults={"i": "x"})


def test_what_tensors_do_not_have(tmp_path: Path, numbers: str) -> None:
    columns = {"l": [[1], [2, 3]], "d": [decimal.Decimal("1.5")] * 2}
    path = write(tmp_path / "t", columns)
    with pytest.raises(errors.InvalidArgumentError, match="lists of column 'l' have different"):
        read(path, columns=["l"])
    with pytest.raises(errors.InvalidArgumentError, match="'d' has the type decimal"):
        read(path, columns=["d"])
    with pytest.raises(errors.InvalidArgumentError, match="has no column 'g'; it has i, f"):
        read(numbers, columns=["g"])
    with pytest.raises(errors.InvalidArgumentError, match="has 4 row groups, got the number 4"):
        read(numbers, row_groups=[0, 4])


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match="none"):
        read(str(tmp_path / "none"))
    with pytest.raises(errors.FailedPreconditionError, match="directory"):
        read(str(tmp_path))
    (tmp_path / "text").write_bytes(b"no Parquet at all")
    with pytest.raises(errors.DataLossError, match="text is damaged in its footer"):
        read(str(tmp_path / "text"))


def test_urls(tmp_path: Path, numbers: str) -> None:
    gfile.copy(numbers, "memory://parquet/n", overwrite=True)
    assert read("memory://parquet/n")["i"].tolist() == list(range(ROWS))


# ---------------------------------------------------------------------------------- rows


def drain(source: ParquetSource) -> list[bytes]:
    found: list[bytes] = []
    while chunk := source.read_chunk():
        found += chunk
    return found


def test_rows_as_examples(tmp_path: Path) -> None:
    columns = {
        "i": [1, None, 3],
        "b": [True, False, None],
        "f": [1.5, None, -2.0],
        "s": ["x", None, "z"],
        "l": [[1, 2], [], None],
        "w": [["a"], ["b", "c"], []],
    }
    path = write(tmp_path / "t", columns)
    rows = [proto.Example.FromString(data) for data in drain(ParquetSource(path))]
    for i, row in enumerate(rows):
        for name, values in columns.items():
            value = values[i]
            assert (name in row.features.feature) == (value not in (None, []) or value == [])
            if value is None:
                continue
            feature = row.features.feature[name]
            got = list(getattr(feature, feature.WhichOneof("kind") or "int64_list").value)
            expected = value if isinstance(value, list) else [value]
            assert got == [v.encode() if isinstance(v, str) else v for v in expected]


@pytest.mark.parametrize("start", [0, 1, 699, 700, 1024, 2499, 2500])
def test_rows_from_any_place(numbers: str, start: int) -> None:
    rows = drain(ParquetSource(numbers, ["i"], start))
    got = [proto.Example.FromString(row).features.feature["i"].int64_list.value[0] for row in rows]
    assert got == list(range(start, ROWS))


def test_the_reader_goes_on_after_a_restart(numbers: str) -> None:
    reader = Reader("ParquetReader", {"columns": ["i"]})
    reader.start(numbers.encode())
    keys = [reader.read(1)[0][0] for _ in range(800)]
    again = Reader("ParquetReader", {"columns": ["i"]})
    again.restore(reader.serialize())
    while not again.needs_work:
        keys += again.read(100)[0]
    assert keys == [f"{numbers}:{i}".encode() for i in range(ROWS)]


def test_integers_that_features_do_not_have(tmp_path: Path) -> None:
    path = write(tmp_path / "t", {"u": np.array([2**63], np.uint64)})
    with pytest.raises(errors.InvalidArgumentError, match="'u' of type uint64 does not fit int64"):
        ParquetSource(path).read_chunk()


# -------------------------------------------------------------------------------- damage


def check_damage(path: Path, count: int, seed: int) -> dict[str, int]:
    """Damage a file's pages so many times; its footer, which has no checksum, now and then."""
    rng = random.Random(seed)
    wanted = {"i": np.arange(ROWS), "s": [b"row %d" % (i % 37) for i in range(ROWS)]}
    good = Path(write(path, {"i": wanted["i"], "s": wanted["s"]})).read_bytes()
    footer = len(good) - 8 - int.from_bytes(good[-8:-4], "little")
    outcomes = {"error": 0, "same": 0, "footer": 0}
    for _ in range(count):
        data = bytearray(good)
        at = rng.randrange(len(data))
        if rng.random() < 0.2:
            del data[at:]
        else:
            data[at] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        try:
            got = read(str(path))
        except errors.OpError as error:
            assert str(path) in error.message
            outcomes["error"] += 1
            continue
        if at < footer:
            assert got["i"].tolist() == wanted["i"].tolist()
            assert got["s"].tolist() == wanted["s"]
            outcomes["same"] += 1
        else:
            outcomes["footer"] += 1
    return outcomes


def test_damaged_pages_are_noticed(tmp_path: Path) -> None:
    assert check_damage(tmp_path / "r", 300, 0)["error"] > 200


@pytest.mark.long
def test_damaged_pages_are_noticed_in_the_long_run(tmp_path: Path) -> None:
    check_damage(tmp_path / "r", 10_000, 1)


def test_damaged_footers_do_not_end_the_process(tmp_path: Path) -> None:
    """Some damage to the metadata of lists makes pyarrow abort unless it is checked earlier."""
    table = pa.table({"words": [["a"], [], ["b", "c"]], "f": [1.0, 2.0, 3.0]})
    path = tmp_path / "t"
    parquet.write_table(table, path, write_page_checksum=True)
    good = path.read_bytes()
    footer = len(good) - 8 - int.from_bytes(good[-8:-4], "little")
    for at in range(footer, len(good)):
        data = bytearray(good)
        data[at] ^= 1
        path.write_bytes(data)
        with contextlib.suppress(errors.OpError):
            list(parquet_batches(str(path), 2))


def test_reading_goes_on_with_the_next_row_group(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "t", {"i": np.random.default_rng(0).integers(0, 2**60, ROWS)}))
    data = bytearray(path.read_bytes())
    offset = parquet.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    data[offset + 300] ^= 1  # behind the header, which the checksum leaves out
    path.write_bytes(data)
    source = ParquetSource(str(path))
    rows, failures = [], []
    for _ in rounds():
        try:
            chunk = source.read_chunk()
        except errors.DataLossError as error:
            failures.append(error)
            continue
        if not chunk:
            break
        rows += chunk
    (error,) = failures
    assert f"{path} is damaged in row group 1, from offset" in error.message
    assert len(rows) == ROWS - 700

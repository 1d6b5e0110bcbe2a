"""Flipped bits, cut files and claims that the files do not bear out: a named error, never data."""

from __future__ import annotations

import random
import re
import shutil
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from weft_testing.recorded import BUNDLES, same

from weft_graph import proto
from weft_io.bundle.key_encoding import slice_key
from weft_io.bundle.table import table_bytes
from weft_io.checkpoint.reader import CheckpointReader
from weft_tensor import errors

DAMAGE = (errors.DataLossError, errors.NotFoundError, errors.UnimplementedError)
PREFIXES = ("types", "slices", "model-3")
WHERE = re.compile(r"(at byte|, bytes) \d+|is malformed|the file ends|is missing")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damage") / "bundles"
    shutil.copytree(BUNDLES, folder)
    return folder


def read_all(prefix: Path) -> dict[str, object]:
    """Everything that a bundle holds; of one slice that is alone, its shape."""
    reader = CheckpointReader(str(prefix))
    names = reader.get_variable_to_shape_map()
    return {n: reader.get_tensor(n) if n != "partial" else names[n] for n in names}


def damaged(data: bytes, rng: random.Random) -> bytes:
    kind, position = rng.randrange(8), rng.randrange(len(data))
    if kind == 0:
        return data[:position]
    if kind == 1:
        return data[:position] + data[position + rng.randrange(1, 50) :]
    if kind == 2:
        return data[:position] + rng.randbytes(rng.randrange(1, 50)) + data[position:]
    made = bytearray(data)
    for _ in range(1 if kind > 3 else rng.randrange(1, 5)):
        made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
    return bytes(made)


def attack(copy: Path, number: int, seed: int) -> int:
    rng = random.Random(seed)
    good = {prefix: read_all(copy / prefix) for prefix in PREFIXES}
    caught = 0
    for _ in range(number):
        prefix = rng.choice(PREFIXES)
        path = rng.choice(sorted(copy.glob(f"{prefix}.[di]*")))
        data = path.read_bytes()
        path.write_bytes(damaged(data, rng))
        try:
            found = read_all(copy / prefix)
        except DAMAGE as error:
            assert str(path) in str(error) and WHERE.search(str(error)), error
            caught += 1
        else:
            # Only what belongs to no tensor may differ: bytes behind the last one, a lone slice.
            assert found.keys() == good[prefix].keys()
            assert all(same(found[name], good[prefix][name]) for name in found)
        finally:
            path.write_bytes(data)
    return caught


def test_damage_anywhere(copy: Path) -> None:
    assert attack(copy, 400, 1) > 370


@pytest.mark.long
def test_damage_anywhere_often(copy: Path) -> None:
    assert attack(copy, 10_000, 2) > 9_300


def test_every_byte_of_the_data(copy: Path) -> None:
    path = copy / "slices.data-00000-of-00001"
    data = path.read_bytes()
    try:
        for position in range(len(data)):
            bad = bytearray(data)
            bad[position] ^= 0x10
            path.write_bytes(bytes(bad))
            with pytest.raises(errors.DataLossError, match=r"bytes \d+ to \d+, is damaged"):
                CheckpointReader(str(copy / "slices")).verify()
    finally:
        path.write_bytes(data)


# --------------------------------------------------------------------------- claims


@contextmanager
def memory_below(size: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < size
    finally:
        tracemalloc.stop()


def entry(shape: tuple[int, ...], size: int, dtype: int = proto.DT_UINT8) -> proto.BundleEntryProto:
    message = proto.BundleEntryProto(dtype=dtype, size=size)
    for length in shape:
        message.shape.dim.add(size=length)
    return message


def write(folder: Path, entries: dict[bytes, proto.BundleEntryProto], data: bytes) -> str:
    items = {key: message.SerializeToString() for key, message in entries.items()}
    items[b""] = proto.BundleHeaderProto(num_shards=1).SerializeToString()
    (folder / "m.index").write_bytes(table_bytes(sorted(items.items())))
    (folder / "m.data-00000-of-00001").write_bytes(data)
    return str(folder / "m")


def test_a_size_that_the_file_has_not(tmp_path: Path) -> None:
    for shape, kind in (((2**40,), proto.DT_UINT8), ((2**37,), proto.DT_STRING)):
        prefix = write(tmp_path, {b"v": entry(shape, 2**40, kind)}, b"x" * 1000)
        with memory_below(1 << 20), pytest.raises(errors.DataLossError, match="ends at byte 1000"):
            CheckpointReader(prefix).get_tensor("v")


def test_a_slice_of_a_huge_whole(tmp_path: Path) -> None:
    whole = entry((2**40,), 0)
    whole.slices.add().extent.add(start=0, length=4)
    key = slice_key(b"v", [(0, 4)])
    prefix = write(tmp_path, {b"v": whole, key: entry((4,), 4)}, b"abcd")
    with memory_below(1 << 20), pytest.raises(errors.NotFoundError, match="lacks slices"):
        CheckpointReader(prefix).get_tensor("v")


def test_many_tensors_over_the_same_bytes(tmp_path: Path) -> None:
    entries = {b"v%d" % i: entry((1000,), 1000) for i in range(100)}
    prefix = write(tmp_path, entries, b"x" * 1000)
    with pytest.raises(errors.DataLossError, match="share bytes"):
        CheckpointReader(prefix)


def test_many_empty_strings(tmp_path: Path) -> None:
    prefix = write(tmp_path, {b"v": entry((10**5,), 10**5 + 4, proto.DT_STRING)}, b"\0" * 100_004)
    with memory_below(1 << 23), pytest.raises(errors.DataLossError, match="the lengths"):
        CheckpointReader(prefix).get_tensor("v")


def test_reading_takes_the_size_of_the_tensor_and_little_more(tmp_path: Path) -> None:
    from weft_io.bundle.writer import write_bundle
    from weft_io.checkpoint.save_items import Item
    from weft_tensor import dtypes

    value = np.arange(1 << 21, dtype=np.float32)
    half = value.size // 2
    write_bundle(
        str(tmp_path / "m"),
        [
            Item("v", dtypes.float32, value[:half], f"{value.size} 0,{half}"),
            Item("v", dtypes.float32, value[half:], f"{value.size} {half},{half}"),
        ],
    )
    with memory_below(value.nbytes + (1 << 20)):
        assert CheckpointReader(str(tmp_path / "m")).get_tensor("v")[-1] == value[-1]

"""Everything that is written is read back, whole, in part and in parts, also by safetensors."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft_io.checkpoint.reader import CheckpointReader, TensorRequest, read_tensors
from weft_io.checkpoint.writer import Item, remove_checkpoint, write_checkpoint
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import ALL_DTYPES, DType

SAVEABLE = [dtype for dtype in ALL_DTYPES if dtype.is_numpy_compatible]
SHAPES = [(), (1,), (7,), (0,), (3, 0, 2), (2, 3, 4), (300, 70)]


def sample(dtype: DType, shape: tuple[int, ...]) -> Any:
    rng = np.random.default_rng(3)
    if dtype is dtypes.string:
        made = np.empty(int(np.prod(shape)), object)
        for i in range(made.size):
            made[i] = rng.bytes(int(rng.integers(0, 9))) + b"\0"
        return made.reshape(shape)
    if dtype.is_bool:
        return rng.integers(0, 2, shape).astype(bool)
    size = int(np.prod(shape)) * dtype.numpy.itemsize
    return np.frombuffer(rng.bytes(size), dtype.numpy).reshape(shape)


def same(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.tolist() == b.tolist() if a.dtype.hasobject else a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", SAVEABLE, ids=lambda d: d.name)
def test_every_type_and_shape(tmp_path: Path, dtype: DType) -> None:
    values = {f"t{i}": sample(dtype, shape) for i, shape in enumerate(SHAPES)}
    prefix = str(tmp_path / "m")
    write_checkpoint(prefix, [Item(name, dtype, value) for name, value in values.items()])
    names = list(values)[::-1]
    found = read_tensors(prefix, [TensorRequest(name, dtype=dtype) for name in names])
    for name, value in zip(names, found, strict=True):
        assert same(value, values[name])
    reader = CheckpointReader(prefix)
    reader.verify()
    assert reader.get_variable_to_dtype_map() == dict.fromkeys(values, dtype)
    assert reader.get_variable_to_shape_map()["t5"] == [2, 3, 4]
    assert not isinstance(reader.get_tensor("t0"), np.ndarray)


def test_strided_and_read_only_values(tmp_path: Path) -> None:
    base = np.arange(24.0).reshape(4, 6)
    base.flags.writeable = False
    values = {"t": base.T, "s": base[::2, ::-1], "b": np.broadcast_to(base[:1], (3, 6))}
    items = [Item(name, dtypes.float64, value) for name, value in values.items()]
    write_checkpoint(str(tmp_path / "m"), items)
    for name, value in values.items():
        assert same(CheckpointReader(str(tmp_path / "m")).get_tensor(name), value)


@pytest.mark.parametrize("name", ["__metadata__", "a/b:0", "naïve", "", "a b\n", "x" * 5000])
def test_any_name(tmp_path: Path, name: str) -> None:
    write_checkpoint(str(tmp_path / "m"), [Item(name, dtypes.int32, np.int32(4))])
    assert CheckpointReader(str(tmp_path / "m")).get_tensor(name) == 4


def test_names_that_are_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="UTF-8"):
        write_checkpoint(str(tmp_path / "m"), [Item("\udc80", dtypes.int32, np.int32(4))])
    assert not list(tmp_path.iterdir())


def test_handles_are_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidTypeError, match=r"queue.*resource"):
        write_checkpoint(str(tmp_path / "m"), [Item("queue", dtypes.resource, np.empty(()))])


class TestParts:
    value = np.arange(60).reshape(10, 6)

    def save(self, prefix: str, cuts: list[int]) -> None:
        items = []
        for i, (start, end) in enumerate(zip([0, *cuts], [*cuts, 10], strict=True)):
            spec = f"10 6 {start},{end - start}:-"
            items.append(Item("w", dtypes.int64, self.value[start:end], spec, i % 3))
        write_checkpoint(prefix, items)

    @pytest.mark.parametrize("saved", [[], [5], [3, 6, 9]])
    @pytest.mark.parametrize(
        "wanted", ["", "10 6 0,5:-", "10 6 5,5:-", "10 6 2,7:1,3", "10 6 4,0:-", "10 6 9,1:0,6"]
    )
    def test_any_part_from_any_parts(self, tmp_path: Path, saved: list[int], wanted: str) -> None:
        prefix = str(tmp_path / "m")
        self.save(prefix, saved)
        assert len(list(tmp_path.glob("*.safetensors"))) == min(3, len(saved) + 1)
        (found,) = read_tensors(prefix, [TensorRequest("w", wanted)])
        rows, columns = slice(None), slice(None)
        if wanted:
            pairs = [p.split(",") for p in wanted.split(" ")[2].split(":")]
            rows, columns = (
                slice(None) if p == ["-"] else slice(int(p[0]), int(p[0]) + int(p[1]))
                for p in pairs
            )
        assert same(found, self.value[rows, columns])

    @pytest.mark.parametrize("saved", [1, 2, 5])
    @pytest.mark.parametrize("wanted", [1, 3, 10])
    def test_each_stored_part_is_read_once(
        self, tmp_path: Path, saved: int, wanted: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from weft_io.checkpoint.shards import ShardReader

        prefix = str(tmp_path / "m")
        self.save(prefix, [10 * i // saved for i in range(1, saved)])
        real, reads = ShardReader.read, []

        def read(self: ShardReader, name: str, dtype: DType, part: Any, empty: Any) -> Any:
            reads.append(part)
            return real(self, name, dtype, part, empty)

        monkeypatch.setattr(ShardReader, "read", read)
        cuts = [10 * i // wanted for i in range(wanted + 1)]
        boxes = [*itertools.pairwise(cuts), (2, 7), (0, 10)]
        found = read_tensors(prefix, [TensorRequest("w", f"10 6 {a},{b - a}:-") for a, b in boxes])
        assert len(reads) == len(set(map(id, reads))) == saved
        for value, (a, b) in zip(found, boxes, strict=True):
            assert same(value, self.value[a:b])
        for i, one in enumerate(found):
            one[:] = -1
            assert not any((other == -1).any() for other in found[i + 1 :])

    def test_strings_in_parts(self, tmp_path: Path) -> None:
        value = np.array([b"a", b"", b"ccc", b"\0"], object)
        items = [
            Item("s", dtypes.string, value[:1], "4 0,1"),
            Item("s", dtypes.string, value[1:], "4 1,3", 1),
        ]
        write_checkpoint(str(tmp_path / "m"), items)
        whole, part = read_tensors(
            str(tmp_path / "m"), [TensorRequest("s"), TensorRequest("s", "4 0,2")]
        )
        assert same(whole, value) and same(part, value[:2])

    @pytest.mark.parametrize(
        "items",
        [
            [("w", (5,), "10 0,5")],
            [("w", (5,), "10 0,5"), ("w", (5,), "10 4,5")],
            [("w", (5,), "10 0,5"), ("w", (5,), "11 5,5")],
            [("w", (4,), "10 0,5"), ("w", (5,), "10 5,5")],
            [("w", (5,), ""), ("w", (5,), "")],
        ],
    )
    def test_parts_that_make_no_whole(
        self, tmp_path: Path, items: list[tuple[str, tuple[int, ...], str]]
    ) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="'w'"):
            write_checkpoint(
                str(tmp_path / "m"),
                [
                    Item(name, dtypes.int32, np.zeros(shape, np.int32), s)
                    for name, shape, s in items
                ],
            )
        assert not list(tmp_path.iterdir())


class TestRequirements:
    @pytest.fixture
    def prefix(self, tmp_path: Path) -> str:
        prefix = str(tmp_path / "m")
        values = {"weights": np.ones((2, 3), np.float32), "biases": np.ones(3, np.float32)}
        write_checkpoint(prefix, [Item(n, dtypes.float32, v) for n, v in values.items()])
        return prefix

    def test_all_that_is_missing_is_named_with_what_is_near(self, prefix: str) -> None:
        wanted = [TensorRequest("weight"), TensorRequest("biases"), TensorRequest("qqqq")]
        with pytest.raises(errors.NotFoundError, match=r"weight .similar.* weights.*qqqq") as got:
            read_tensors(prefix, wanted)
        assert got.value.details["missing"] == ["weight", "qqqq"]

    def test_another_shape(self, prefix: str) -> None:
        with pytest.raises(errors.InvalidArgumentError, match=r"'weights'.*\[3,3\].*\[2,3\]"):
            read_tensors(prefix, [TensorRequest("weights", dims=(3, 3))])
        with pytest.raises(errors.InvalidArgumentError, match=r"'weights'.*\[4,3\].*\[2,3\]"):
            read_tensors(prefix, [TensorRequest("weights", "4 3 0,2:-")])
        read_tensors(prefix, [TensorRequest("weights", dims=(None, 3))])

    def test_another_type(self, prefix: str) -> None:
        with pytest.raises(errors.InvalidArgumentError, match=r"'weights'.*float64.*float32"):
            read_tensors(prefix, [TensorRequest("weights", dtype=dtypes.float64)])

    def test_no_checkpoint(self, tmp_path: Path) -> None:
        with pytest.raises(errors.NotFoundError, match="none"):
            read_tensors(str(tmp_path / "none"), [])
        with pytest.raises(ValueError, match="none"):
            CheckpointReader(str(tmp_path / "none"))

    def test_a_shard_that_is_gone(self, prefix: str, tmp_path: Path) -> None:
        (shard,) = tmp_path.glob("*.safetensors")
        shard.unlink()
        with pytest.raises(errors.NotFoundError, match=r"safetensors is missing.*weights"):
            read_tensors(prefix, [TensorRequest("weights")])


class TestPlaces:
    def test_a_checkpoint_can_be_renamed(self, tmp_path: Path) -> None:
        write_checkpoint(str(tmp_path / "m-1"), [Item("a", dtypes.int32, np.int32(4))])
        for path in list(tmp_path.iterdir()):
            path.rename(path.with_name(path.name.replace("m-1", "best")))
        assert CheckpointReader(str(tmp_path / "best")).get_tensor("a") == 4

    def test_replacing_and_removing_leave_nothing(self, tmp_path: Path) -> None:
        others = ["m.data", "m.data-00000-of-00001", "m2.index", "m.index.bak", ".hidden",
                  "m.data-00000-of-00001.safetensors", ".m.0123456789abcdef.saved"]  # fmt: skip
        for name in others:
            (tmp_path / name).write_bytes(b"not the saver's")
        for value in range(3):
            items = [Item(f"a{i}", dtypes.int32, np.int32(value), shard=i) for i in range(3)]
            write_checkpoint(str(tmp_path / "m"), items)
            assert CheckpointReader(str(tmp_path / "m")).get_tensor("a1") == value
            assert len(list(tmp_path.iterdir())) == len(others) + 4
        remove_checkpoint(str(tmp_path / "m"))
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)
        remove_checkpoint(str(tmp_path / "m"))

    def test_a_reader_goes_on_while_the_checkpoint_is_replaced(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from weft_io.checkpoint import reader

        prefix = str(tmp_path / "m")
        write_checkpoint(prefix, [Item("a", dtypes.int32, np.int32(1))])
        real, calls = reader.read_index, []

        def slow(prefix: str) -> Any:
            index = real(prefix)
            if not calls:
                write_checkpoint(prefix, [Item("a", dtypes.int32, np.int32(2))])
            calls.append(index)
            return index

        monkeypatch.setattr(reader, "read_index", slow)
        assert read_tensors(prefix, [TensorRequest("a")])[0] == 2
        assert len(calls) == 2

    def test_the_directory_is_made(self, tmp_path: Path) -> None:
        write_checkpoint(str(tmp_path / "a" / "b" / "m"), [Item("a", dtypes.int32, np.int32(1))])
        assert CheckpointReader(str(tmp_path / "a" / "b" / "m")).has_tensor("a")

    def test_a_path_without_a_name(self, tmp_path: Path) -> None:
        write_checkpoint(f"{tmp_path}/", [Item("a", dtypes.int32, np.int32(4))])
        assert CheckpointReader(f"{tmp_path}/").get_tensor("a") == 4


def test_safetensors_reads_the_shards(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    values = {
        dtype.name: sample(dtype, (3, 5))
        for dtype in SAVEABLE
        if not (dtype.is_complex or dtype.is_small or dtype in (dtypes.string, dtypes.bfloat16))
    }
    items = [Item(name, dtypes.as_dtype(name), value) for name, value in values.items()]
    items += [Item("text", dtypes.string, sample(dtypes.string, (3,)))]
    items += [Item("z", dtypes.complex64, sample(dtypes.complex64, (3,)))]
    write_checkpoint(str(tmp_path / "m"), items)
    (shard,) = tmp_path.glob("*.safetensors")
    found = safetensors.load_file(shard)
    assert set(found) == {*values, "text", "z"}
    for name, value in values.items():
        assert same(found[name], value)
    assert found["z"].dtype == np.uint8 and found["z"].shape == (24,)

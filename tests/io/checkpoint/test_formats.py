"""Formats of checkpoints: built-in ones, and one that a package adds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from weft_io.checkpoint import formats
from weft_io.checkpoint.format import PartCheck
from weft_io.checkpoint.reader import CheckpointReader, TensorRequest, read_tensors
from weft_io.checkpoint.regions import Region
from weft_io.checkpoint.save_items import Item
from weft_io.checkpoint.writer import write_checkpoint
from weft_tensor import dtypes, errors

MAGIC = b"plain numbers\n"


class Tensor(NamedTuple):
    dtype: Any
    shape: tuple[int, ...]
    parts: tuple[Any, ...] = ()


class Index(NamedTuple):
    tensors: dict[str, Tensor]
    format: str = "plain"
    save: str = ""
    file_count: int = 1


class Plain:
    """One float per name: names in the index, values in a file beside it."""

    def recognizes(self, data: bytes) -> bool:
        return data.startswith(MAGIC)

    def parse(self, data: bytes, path: str) -> Index:
        names = data.removeprefix(MAGIC).decode().split()
        return Index({name: Tensor(dtypes.float32, ()) for name in names})

    def file_suffixes(self, data: bytes, path: str) -> set[str]:
        return {".data-00000-of-00001"}

    def read(
        self, prefix: str, index: Index, wanted: Sequence[tuple[str, Region]], empty: Any
    ) -> list[Any]:
        values = Path(prefix + ".data-00000-of-00001").read_text().split()
        by_name = dict(zip(index.tensors, values, strict=True))
        return [np.array(by_name[name], np.float32) for name, _ in wanted]

    def checks(self, prefix: str, index: Index) -> Iterator[PartCheck]:
        yield from (PartCheck(name, 4, None) for name in index.tensors)


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A checkpoint in a format that was added."""
    known = list(formats._formats)  # loads those that are found by name
    monkeypatch.setattr(
        formats._formats, "_table", {name: formats._formats.lookup(name) for name in known}
    )
    formats.register_format("plain", Plain())
    (tmp_path / "m.index").write_bytes(MAGIC + b"a b")
    (tmp_path / "m.data-00000-of-00001").write_text("1 2")
    return str(tmp_path / "m")


def test_a_format_of_another_package_is_read(prefix: str) -> None:
    reader = CheckpointReader(prefix)
    assert reader.get_variable_to_shape_map() == {"a": [], "b": []}
    assert reader.get_tensor("b") == 2
    assert [checked.tensor for checked in reader.checks()] == ["a", "b"]
    with pytest.raises(errors.InvalidArgumentError, match="must be int32, got float32"):
        read_tensors(prefix, [TensorRequest("a", dtype=dtypes.int32)])


def test_a_save_replaces_a_checkpoint_of_another_format(prefix: str) -> None:
    write_checkpoint(prefix, [Item("a", dtypes.float32, np.array(3, np.float32))])
    assert CheckpointReader(prefix).get_tensor("a") == 3
    assert not Path(prefix + ".data-00000-of-00001").exists()


def test_a_format_is_registered_once(prefix: str) -> None:
    with pytest.raises(errors.AlreadyExistsError):
        formats.register_format("plain", Plain())


@pytest.mark.parametrize("data", [b"", b"x", b"neither of them"])
def test_what_is_no_index(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "m.index").write_bytes(data)
    with pytest.raises(errors.DataLossError, match=r"m\.index is damaged, .*TensorFlow, weft"):
        CheckpointReader(str(tmp_path / "m"))


def test_names_that_look_like_the_other_format() -> None:
    bundle = b"\0\0\x02\x08\x01\0\x0f\0weft-checkpoint"
    assert type(formats.recognize_format(bundle, "")).__name__ == "BundleFormat"
    assert (
        type(formats.recognize_format(b'{"format":"weft-checkpoint"', "")).__name__ == "WeftFormat"
    )

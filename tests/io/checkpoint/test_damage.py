"""Flipped bits and truncated files: a named error or the correct data, never a partial restore."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft_exec import Session
from weft_graph import Graph
from weft_graph.variables.reference import Variable
from weft_io import Saver, latest_checkpoint
from weft_tensor import errors

DAMAGE = (errors.DataLossError, errors.NotFoundError)


class Model:
    """Variables of both families and several types, saved twice; the older save is a trap."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.variables = {
            "floats": Variable(np.zeros((40, 7), np.float32), name="floats"),
            "words": Variable(np.array([b"", b""], object), name="words"),
            "flags": Variable(np.zeros(9, bool), name="flags", use_resource=True),
            "number": Variable(0, name="number", use_resource=True),
            "complex": Variable(np.zeros(3, np.complex64), name="complex"),
        }
        self.saver = Saver()
        self.session = Session()
        for step in (10, 11):
            self.load(step)
            self.saver.save(self.session, str(directory / "model"), step)
        self.saved = self.read()
        self.load(99)
        self.other = self.read()

    def load(self, step: int) -> None:
        rng = np.random.default_rng(step)
        for name, value in {
            "floats": rng.normal(size=(40, 7)).astype(np.float32),
            "words": np.array([rng.bytes(30), rng.bytes(step)], object),
            "flags": rng.integers(0, 2, 9).astype(bool),
            "number": step,
            "complex": rng.normal(size=3).astype(np.complex64),
        }.items():
            self.variables[name].load(value, self.session)

    def read(self) -> dict[str, Any]:
        values = self.session.run(self.variables)
        return {name: np.asarray(value).tolist() for name, value in values.items()}

    def restore(self) -> errors.OpError | None:
        """Restore the latest checkpoint; on failure, check that the variables are unchanged."""
        try:
            latest = latest_checkpoint(str(self.directory))
            if latest is None:
                raise errors.NotFoundError("there is no checkpoint")
            self.saver.restore(self.session, latest)
        except DAMAGE as error:
            assert self.read() == self.other
            return error
        assert self.read() == self.saved
        self.load(99)
        return None


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    with Graph().as_default():
        made = Model(tmp_path_factory.mktemp("damage"))
        yield made
        made.session.close()


def relevant(model: Model) -> list[Path]:
    """The files that restoring the latest checkpoint reads."""
    return sorted(
        path
        for path in model.directory.iterdir()
        if path.name == "checkpoint"
        or (path.name.startswith("model-11.") and path.suffix != ".meta")
    )


def damaged(data: bytes, rng: random.Random) -> bytes:
    made = bytearray(data)
    kind = rng.randrange(6)
    position = rng.randrange(len(made))
    if kind == 0:
        return data[:position]
    if kind == 1:
        return data[:position] + data[position + rng.randrange(1, 100) :]
    if kind == 2:
        return data[:position] + rng.randbytes(rng.randrange(1, 100)) + data[position:]
    made[position] ^= 1 << rng.randrange(8)
    return bytes(made)


def attack(model: Model, number: int, seed: int) -> int:
    rng = random.Random(seed)
    caught = 0
    for _ in range(number):
        path = rng.choice(relevant(model))
        data = path.read_bytes()
        bad = damaged(data, rng)
        path.write_bytes(bad)
        try:
            error = model.restore()
        finally:
            path.write_bytes(data)
        caught += error is not None
        # The last byte of the first line's remark, say, may change; what is restored may not.
        assert error is not None or bad == data or path.name == "checkpoint", path.name
    assert model.restore() is None
    return caught


def test_damage_anywhere(model: Model) -> None:
    assert attack(model, 300, 1) > 250


@pytest.mark.long
def test_damage_anywhere_often(model: Model) -> None:
    assert attack(model, 10_000, 2) > 9_000


def test_every_bit_of_an_index(model: Model) -> None:
    from weft_io.checkpoint.reader import read_index

    path = model.directory / "model-11.index"
    data = path.read_bytes()
    rng = random.Random(3)
    try:
        for position in range(len(data)):
            bad = bytearray(data)
            bad[position] ^= 1 << rng.randrange(8)
            path.write_bytes(bad)
            with pytest.raises(errors.DataLossError, match=r"model-11\.index"):
                read_index(str(model.directory / "model-11"))
    finally:
        path.write_bytes(data)


def test_a_tensor_is_named_with_its_file_and_place(model: Model) -> None:
    (path,) = model.directory.glob("model-11.*.safetensors")
    data = path.read_bytes()
    try:
        path.write_bytes(data[:-5] + bytes([data[-5] ^ 1]) + data[-4:])
        error = model.restore()
    finally:
        path.write_bytes(data)
    assert isinstance(error, errors.DataLossError)
    assert str(path) in str(error) and "bytes" in str(error) and "tensor '" in str(error)
    assert error.op_type == "RestoreV2" and error.node == "save/RestoreV2"


@pytest.mark.parametrize("suffix", [".index", ".safetensors", "checkpoint"])
def test_a_missing_file(model: Model, suffix: str, tmp_path: Path) -> None:
    (path,) = (path for path in relevant(model) if path.name.endswith(suffix))
    shutil.move(path, tmp_path / "aside")
    try:
        latest = latest_checkpoint(str(model.directory))
        if suffix == ".index":
            assert latest == str(model.directory / "model-10")
            with pytest.raises(errors.NotFoundError):
                model.saver.restore(model.session, str(model.directory / "model-11"))
        elif suffix == "checkpoint":
            assert latest is None
        else:
            assert isinstance(model.restore(), errors.NotFoundError)
    finally:
        shutil.move(tmp_path / "aside", path)
    assert model.read() == model.other


def test_shards_that_were_swapped(model: Model) -> None:
    ten, eleven = (next(model.directory.glob(f"model-{n}.*.safetensors")) for n in (10, 11))
    data = eleven.read_bytes()
    try:
        shutil.copyfile(ten, eleven)
        assert isinstance(model.restore(), errors.DataLossError)
    finally:
        eleven.write_bytes(data)


def test_a_file_that_is_a_directory(model: Model, tmp_path: Path) -> None:
    (path,) = model.directory.glob("model-11.*.safetensors")
    shutil.move(path, tmp_path / "aside")
    path.mkdir()
    try:
        with pytest.raises(errors.OpError):
            model.saver.restore(model.session, str(model.directory / "model-11"))
    finally:
        path.rmdir()
        shutil.move(tmp_path / "aside", path)
    assert model.read() == model.other

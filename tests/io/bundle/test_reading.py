"""Checkpoints that TensorFlow wrote, through everything that reads checkpoints."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.recorded import BUNDLES, same, script, tensors

from weft_exec import Session
from weft_graph import Graph
from weft_graph.variables.partitioning import fixed_size_partitioner
from weft_graph.variables.reference import Variable, global_variables_initializer
from weft_graph.variables.scope import get_variable, variable_scope
from weft_io import (
    CheckpointReader,
    Saver,
    get_checkpoint_state,
    latest_checkpoint,
    list_variables,
    load_checkpoint,
    load_variable,
)
from weft_io.bundle.atomic_replacement import read_bundle_index
from weft_io.bundle.checksum import crc32c, mask_crc
from weft_io.bundle.index import BundleIndex, Entry, Piece
from weft_io.bundle.strings import encode_strings
from weft_io.bundle.writer import write_bundle
from weft_io.checkpoint.reader import TensorRequest, read_tensors
from weft_io.checkpoint.regions import Region
from weft_io.checkpoint.save_items import Item
from weft_io.ops.checkpoint import restore_v2
from weft_io.saving.warm_start import init_from_checkpoint
from weft_tensor import dtypes, errors

TYPES = str(BUNDLES / "types")
SLICES = str(BUNDLES / "slices")


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as made:
        yield made


@pytest.mark.parametrize("name", tensors())
def test_every_type(name: str) -> None:
    dtype, value = tensors()[name]
    reader = CheckpointReader(TYPES)
    assert same(reader.get_tensor(name), value)
    assert same(load_variable(TYPES, name + ":0"), value)
    assert reader.get_variable_to_dtype_map()[name] is dtype
    assert reader.shape(name) == value.shape


def test_looking_into_one() -> None:
    reader = load_checkpoint(TYPES)
    wanted = {name: list(value.shape) for name, (_, value) in tensors().items()}
    assert reader.get_variable_to_shape_map() == wanted
    assert list_variables(TYPES) == sorted(wanted.items())
    assert reader.has_tensor("words") and not reader.has_tensor("word ")
    assert b"words (string) [3, 2]" in reader.debug_string()
    reader.verify()
    with pytest.raises(errors.NotFoundError, match=r"lacks .* wurds \(similar names: words"):
        reader.get_tensor("wurds")


@pytest.mark.parametrize("name", [n for n, (d, _) in tensors().items() if not d.is_quantized])
def test_a_saver_restores(name: str) -> None:
    dtype, value = tensors()[name]
    start = np.full(value.shape, b"?", object) if dtype is dtypes.string else np.zeros_like(value)
    v = Variable(start, name="other", dtype=dtype, use_resource=name.startswith("numbers"))
    with Session() as session:
        Saver({name: v}).restore(session, TYPES)
        assert same(session.run(v), value)


@pytest.mark.parametrize("name", [n for n, (d, _) in tensors().items() if d.is_quantized])
def test_the_op_restores(name: str) -> None:
    dtype, value = tensors()[name]
    (output,) = restore_v2(TYPES, [name], ["2 3 -:1,2"], [dtype])
    with Session() as session:
        assert same(session.run(output), value[:, 1:])


def test_slices_are_joined() -> None:
    reader = CheckpointReader(SLICES)
    for name in ("grid", "rows", "whole"):
        assert same(reader.get_tensor(name), script().grid())
    assert dict(list_variables(SLICES))["partial"] == [100]


@pytest.mark.parametrize("name", ["grid", "rows", "whole"])
@pytest.mark.parametrize(
    "spec", ["5 7 0,5:0,7", "5 7 1,3:2,3", "5 7 4,1:-", "5 7 -:6,1", "5 7 2,0:-", "5 7 0,2:0,3"]
)
def test_any_part_of_them(name: str, spec: str) -> None:
    (found,) = read_tensors(SLICES, [TensorRequest(name, spec)])
    assert same(found, script().box(script().grid(), spec))


def test_a_slice_whose_neighbors_were_not_saved() -> None:
    (found,) = read_tensors(SLICES, [TensorRequest("partial", "100 71,3")])
    assert found.tolist() == [71, 72, 73]
    for spec in ("", "100 69,3", "100 0,2"):
        with pytest.raises(errors.NotFoundError, match="lacks slices of tensor 'partial'"):
            read_tensors(SLICES, [TensorRequest("partial", spec)])


def test_what_is_wanted_is_compared_first() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="must be int32, got float32"):
        read_tensors(TYPES, [TensorRequest("scalar", "", dtypes.int32)])
    with pytest.raises(errors.InvalidArgumentError, match=r"must have shape \[2\], got \[3000\]"):
        read_tensors(TYPES, [TensorRequest("long", "", None, (2,))])


def test_several_files_and_the_state_of_a_directory(tmp_path: Path) -> None:
    shutil.copytree(BUNDLES, tmp_path / "run")
    latest = latest_checkpoint(str(tmp_path / "run"))
    assert latest == str(tmp_path / "run" / "model-3")
    state = get_checkpoint_state(str(tmp_path / "run"))
    assert state is not None
    kept = [f"{tmp_path}/run/model-2", f"{tmp_path}/run/model-3"]
    assert list(state.all_model_checkpoint_paths) == kept
    table = get_variable("table", (5, 7), partitioner=fixed_size_partitioner(3))
    one = get_variable("on1", (3,))
    with Session() as session:
        Saver().restore(session, latest)
        assert same(session.run(table.as_tensor()), script().grid())
        assert session.run(one).tolist() == [1, 2, 3]


def test_a_missing_file_and_a_missing_checkpoint(tmp_path: Path) -> None:
    shutil.copytree(BUNDLES, tmp_path / "run")
    (tmp_path / "run" / "model-3.data-00001-of-00003").unlink()
    reader = CheckpointReader(str(tmp_path / "run" / "model-3"))
    assert same(reader.get_tensor("table"), script().grid())
    with pytest.raises(errors.NotFoundError, match=r"data-00001-of-00003 is missing.*contains on0"):
        reader.get_tensor("on0")
    with pytest.raises(errors.NotFoundError):
        reader.verify()
    with pytest.raises(errors.NotFoundError, match="no valid checkpoint"):
        CheckpointReader(str(tmp_path / "run" / "model-4"))


def test_restoring_changes_nothing_where_something_is_damaged(tmp_path: Path) -> None:
    shutil.copytree(BUNDLES, tmp_path / "run")
    path = tmp_path / "run" / "model-3.data-00002-of-00003"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    variables = [Variable([0.0] * 3, name=name) for name in ("on0", "on1")]
    with Session() as session:
        session.run(global_variables_initializer())
        with pytest.raises(errors.DataLossError, match=r"'on1' in .*, bytes 0 to 12, is damaged"):
            Saver(variables).restore(session, str(tmp_path / "run" / "model-3"))
        assert session.run(variables[0]).tolist() == [0, 0, 0]


def test_the_other_order_of_bytes(tmp_path: Path) -> None:
    values = {n: item for n, item in tensors().items() if item[0] is not dtypes.string}
    data, entries = b"", {}
    for name, (dtype, value) in values.items():
        flat = np.ascontiguousarray(value).reshape(-1)
        unit = dtype.real_dtype.numpy.itemsize
        stored = flat.view(np.uint8).reshape(-1, unit)[:, ::-1].tobytes()
        end = len(data) + len(stored)
        part = Piece(Region.whole_tensor(value.shape), 0, len(data), end, mask_crc(crc32c(stored)))
        entries[name] = Entry(dtype, value.shape, (part,))
        data += stored
    (tmp_path / "big.data-00000-of-00001").write_bytes(data)
    index = BundleIndex("", "", 1, True, entries)
    (tmp_path / "big.index").write_bytes(index.to_bytes())
    reader = CheckpointReader(str(tmp_path / "big"))
    assert all(same(reader.get_tensor(name), value) for name, (_, value) in values.items())


def test_types_that_weft_has_not(tmp_path: Path) -> None:
    prefix = str(tmp_path / "m")
    write_bundle(prefix, [Item("v", dtypes.uint8, np.zeros(3, np.uint8))])
    index = read_bundle_index(prefix)
    index.tensors["v"] = index.tensors["v"]._replace(dtype=dtypes.variant)
    (tmp_path / "m.index").write_bytes(index.to_bytes())
    reader = CheckpointReader(prefix)
    assert reader.get_variable_to_shape_map() == {"v": [3]}
    with pytest.raises(errors.UnimplementedError, match="has type variant, which weft"):
        reader.get_tensor("v")
    reader.verify()


def test_a_bool_that_is_none(tmp_path: Path) -> None:
    prefix = str(tmp_path / "m")
    write_bundle(prefix, [Item("v", dtypes.uint8, np.uint8([0, 1, 2]))])
    index = read_bundle_index(prefix)
    index.tensors["v"] = index.tensors["v"]._replace(dtype=dtypes.bool_)
    (tmp_path / "m.index").write_bytes(index.to_bytes())
    with pytest.raises(errors.DataLossError, match="neither 0 nor 1"):
        load_variable(prefix, "v")


class TestStrings:
    """String tensors whose bytes contradict themselves, with checksums that hold."""

    @staticmethod
    def read(tmp_path: Path, stored: bytes, crc: int, shape: tuple[int, ...]) -> Any:
        part = Piece(Region.whole_tensor(shape), 0, 0, len(stored), mask_crc(crc))
        index = BundleIndex("", "", 1, False, {"s": Entry(dtypes.string, shape, (part,))})
        (tmp_path / "s.index").write_bytes(index.to_bytes())
        (tmp_path / "s.data-00000-of-00001").write_bytes(stored)
        return CheckpointReader(str(tmp_path / "s")).get_tensor("s")

    def test_long_ones(self, tmp_path: Path) -> None:
        value = np.array([b"x" * n for n in (0, 127, 128, 20_000)], object)
        stored, crc = encode_strings(value)
        assert same(self.read(tmp_path, bytes(stored), crc, (4,)), value)

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            (lambda s: s[:-1], r"strings of 5 bytes do not match the data that follows"),
            (lambda s: s + b"!", r"strings of 5 bytes do not match the data that follows"),
            (lambda s: b"\x03" + s[1:], "checksum of the lengths"),
            (lambda s: b"\x80" * len(s), "2 lengths are required, got 0"),
            (lambda s: s[:-1] + b"!", r"its checksum must be 0x[0-9a-f]{8}, got 0x[0-9a-f]{8}"),
        ],
    )
    def test_contradictions(self, tmp_path: Path, change: Any, text: str) -> None:
        stored, crc = encode_strings(np.array([b"ab", b"cde"], object))
        with pytest.raises(errors.DataLossError, match=text):
            self.read(tmp_path, change(bytes(stored)), crc, (2,))


class TestInitFromCheckpoint:
    def test_variables_of_all_kinds(self) -> None:
        with variable_scope("mine"):
            whole = get_variable("whole", (5, 7))
            grid = get_variable("grid", (5, 7), partitioner=fixed_size_partitioner(2))
            rows = Variable(np.zeros((5, 7), np.float32), use_resource=True)
        init_from_checkpoint(SLICES, {"whole": "mine/whole", "grid": list(grid), "rows": rows})
        with Session() as session:
            session.run(global_variables_initializer())
            for value in (whole, grid.as_tensor(), rows):
                assert same(session.run(value), script().grid())

    @pytest.mark.parametrize("own", ["", "mine/"])
    def test_scopes(self, own: str) -> None:
        names = [f"{own}grid", f"{own}rows"]
        made = [get_variable(name, (5, 7)) for name in names]
        parts = get_variable(f"{own}whole", (5, 7), partitioner=fixed_size_partitioner(2))
        init_from_checkpoint(SLICES, [("/", own or "/")])
        with Session() as session:
            session.run(global_variables_initializer())
            assert all(same(session.run(v), script().grid()) for v in (*made, parts.as_tensor()))

    def test_a_scope_of_the_checkpoint(self) -> None:
        v = get_variable("a/b/float32", (2, 3))
        init_from_checkpoint(TYPES, {"numbers/": "a/b/"})
        with Session() as session:
            session.run(v.initializer)
            assert same(session.run(v), tensors()["numbers/float32"][1])

    @pytest.mark.parametrize(
        ("pairs", "kind", "text"),
        [
            ({"gird": "v"}, errors.NotFoundError, "no tensor 'gird' .near names: grid"),
            ({"rows": "w"}, errors.InvalidArgumentError, "there is no variable 'w'"),
            ({"rows": "v/"}, errors.InvalidArgumentError, "map 'scope/' to 'other_scope/'"),
            ({"grid": "small"}, errors.InvalidArgumentError, r"must have shape \[2\]"),
            ({"grid": "whole"}, errors.InvalidArgumentError, "must be int32 for whole:0"),
            ({"grid": 3}, errors.InvalidTypeError, "a variable, a list of its parts or a name"),
        ],
    )
    def test_refusals(self, pairs: Any, kind: Any, text: str) -> None:
        v = get_variable("v", (5, 7))
        get_variable("small", (2,))
        get_variable("whole", (5, 7), dtypes.int32)
        before = v.initializer
        with pytest.raises(kind, match=text):
            init_from_checkpoint(SLICES, {"rows": v, **pairs} if "rows" not in pairs else pairs)
        assert v.initializer is before

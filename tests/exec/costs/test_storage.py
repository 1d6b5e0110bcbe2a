"""Measurements in files: round trips, and errors for damaged or hostile files."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

import weft as wf
from weft_exec.costs import CostModel, storage
from weft_exec.costs.measurements import Mean, Measurements, Ratio
from weft_exec.tracing.records import NodeRecord
from weft_tensor import errors

CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


def model(**limits: int) -> CostModel:
    return CostModel(**limits)


def taught(*names: str, seconds: float = 0.25, times: int = 5) -> CostModel:
    found = CostModel()
    with wf.Graph().as_default():
        for name in names:
            x = wf.placeholder(wf.float32, (None, 7), name=f"x_{name}")
            node = wf.tanh(x, name=name).op
            record = NodeRecord(node, CPU, 0, round(seconds * 1e9), 1, 280, (280,))
            found.observe([record] * times)
    return found


def state(found: CostModel) -> Any:
    kept = found._measurements
    tables = kept.nodes, kept.ops, kept.sizes
    plain = [[(key, _plain(value)) for key, value in table.items()] for table in tables]
    unknown = None if kept.unknown is None else kept.unknown[:2]
    return plain, kept.ratios, unknown


def _plain(value: Any) -> Any:
    return value[:2] if isinstance(value, Mean) else tuple(mean[:2] for mean in value)


def write(path: Path, body: Any) -> Path:
    """A file with a valid checksum and any content."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f'{{"format":"weft cost model","version":1,"bytes":{len(text)},"crc32":'
    path.write_bytes(f'{head}{zlib.crc32(text)},"measurements":'.encode() + text + b"}\n")
    return path


EMPTY = {"texts": [], "nodes": [], "ops": [], "sizes": [], "ratios": {}, "unknown": None}


def test_round_trip(tmp_path: Path) -> None:
    before, after = taught("a", "b", "n" * 400), model()
    before.save(tmp_path / "costs.json")
    after.load(str(tmp_path / "costs.json"))
    assert state(after) == state(before)
    assert os.listdir(tmp_path) == ["costs.json"]
    item = json.loads((tmp_path / "costs.json").read_bytes())
    assert (item["format"], item["version"]) == ("weft cost model", 1)


def test_an_empty_model_round_trips(tmp_path: Path) -> None:
    model().save(tmp_path / "costs")
    after = model()
    after.load(tmp_path / "costs")
    assert state(after) == state(model())


numbers = st.floats(0, 1e18)
weights = st.floats(1e-6, 1e18)
means = st.builds(Mean, numbers, weights)
texts = st.text(max_size=8)


@st.composite
def measurements(draw: st.DrawFn) -> Measurements:
    found = Measurements(8, 8)
    for key, mean in draw(st.dictionaries(st.tuples(texts, texts, texts), means)).items():
        found.nodes.put(key, mean)
    for key2, mean in draw(st.dictionaries(st.tuples(texts, texts), means)).items():
        found.ops.put(key2, mean)
    for key2, many in draw(st.dictionaries(st.tuples(texts, texts), st.lists(means))).items():
        found.sizes.put(key2, tuple(many))
    found.ratios = draw(st.dictionaries(texts, st.builds(Ratio, numbers, numbers, numbers)))
    found.unknown = draw(st.none() | means)
    return found


@given(measurements())
def test_all_measurements_round_trip(
    tmp_path_factory: pytest.TempPathFactory, found: Measurements
) -> None:
    path = str(tmp_path_factory.getbasetemp() / "round")
    storage.write(path, found)
    again = storage.read(path, lambda: Measurements(8, 8))
    one, other = model(), model()
    one._measurements, other._measurements = found, again
    assert state(one) == state(other)


def test_loading_merges(tmp_path: Path) -> None:
    taught("a", "b", seconds=1.0).save(tmp_path / "costs")
    found = taught("b", "c", seconds=3.0)
    found.load(tmp_path / "costs")
    means = {key[1]: mean for key, mean in found._measurements.nodes.items()}
    assert list(means) == ["a", "b", "c"]
    assert means["a"].value == pytest.approx(1.0)
    assert means["b"].value == pytest.approx(2.0)
    assert means["c"].value == pytest.approx(3.0)
    assert means["b"].weight == pytest.approx(2 * 4.25)


def test_what_is_loaded_displaces_nothing_newer(tmp_path: Path) -> None:
    taught("a", "b", "c").save(tmp_path / "costs")
    found = CostModel(node_limit=2)
    found.load(tmp_path / "costs")
    assert [key[1] for key, _ in found._measurements.nodes.items()] == ["b", "c"]


def test_the_first_run_after_loading_is_a_warm_up_again(tmp_path: Path) -> None:
    taught("a").save(tmp_path / "costs")
    once, twice = model(), model()
    for found in (once, twice):
        found.load(tmp_path / "costs")
        with wf.Graph().as_default():
            node = wf.tanh(wf.placeholder(wf.float32, (None, 7), name="x_a"), name="a").op
            record = NodeRecord(node, CPU, 0, 10**9, 1, 280, (280,))
            found.observe([record] * (1 if found is once else 2))
    before, first, second = (
        next(iter(found._measurements.nodes.items()))[1] for found in (taught("a"), once, twice)
    )
    assert first.weight == before.weight + 0.25
    assert second.weight == before.weight + 1.25


def test_saving_replaces_at_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "costs"
    taught("a").save(path)
    before = path.read_bytes()

    def fail(*_: Any) -> None:
        raise OSError("no more room")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="no more room"):
            taught("b").save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["costs"]


def test_places_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match="nowhere"):
        model().save(tmp_path / "nowhere" / "costs")
    with pytest.raises(errors.NotFoundError, match="nothing"):
        model().load(tmp_path / "nothing")


def test_files_that_would_be_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taught("a").save(tmp_path / "costs")
    monkeypatch.setattr(storage, "_LARGEST", 100)
    with pytest.raises(errors.InvalidArgumentError, match=r"costs: .* at most 100 bytes, got \d+"):
        model().load(tmp_path / "costs")
    with pytest.raises(errors.ResourceExhaustedError, match="100"):
        taught("a").save(tmp_path / "other")
    assert os.listdir(tmp_path) == ["costs"]


REFUSED = (errors.DataLossError, errors.InvalidArgumentError)


def refuse(path: Path) -> None:
    found = taught("mine")
    before = state(found)
    with pytest.raises(REFUSED) as caught:
        found.load(path)
    assert str(path) in str(caught.value)
    assert state(found) == before


@given(st.data())
def test_every_flipped_bit_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "flipped"
    taught("a", "b").save(path)
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    refuse(path)


@pytest.mark.parametrize("end", [b"}", b"\n", b"", b"]\n", b"}\n\n", b"}}\n", b"} "])
def test_files_end_where_they_must(end: bytes, tmp_path: Path) -> None:
    taught("a").save(tmp_path / "costs")
    content = (tmp_path / "costs").read_bytes()
    (tmp_path / "costs").write_bytes(content[:-2] + end)
    refuse(tmp_path / "costs")


@pytest.mark.long
def test_every_bit_that_can_be_flipped_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "flipped"
    taught("a").save(path)
    content = path.read_bytes()
    for place in range(len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            path.write_bytes(changed)
            refuse(path)


@given(st.data())
def test_files_that_were_cut_or_continued(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut"
    taught("a", "b").save(path)
    content = path.read_bytes()
    end = data.draw(st.integers(0, len(content) - 1))
    path.write_bytes(content[:end] if data.draw(st.booleans()) else content + content[:end] + b"x")
    refuse(path)


@given(st.binary(max_size=200))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(content)
    refuse(path)
    refuse(write(path, content))


BAD: dict[str, Callable[[], Any]] = {
    "a list": lambda: [],
    "a field missing": lambda: {k: v for k, v in EMPTY.items() if k != "ops"},
    "a field of another type": lambda: {**EMPTY, "nodes": {}},
    "texts that are none": lambda: {**EMPTY, "texts": [3]},
    "a row that is none": lambda: {**EMPTY, "nodes": [7]},
    "a short row": lambda: {**EMPTY, "texts": ["a"], "nodes": [[0, 0, 0]]},
    "a long row": lambda: {**EMPTY, "texts": ["a"], "ops": [[0, 0, 1.0, 1.0, 1.0]]},
    "a place outside": lambda: {**EMPTY, "texts": ["a"], "ops": [[0, 1, 1.0, 1.0]]},
    "a negative place": lambda: {**EMPTY, "texts": ["a"], "ops": [[0, -1, 1.0, 1.0]]},
    "a truth for a place": lambda: {**EMPTY, "texts": ["a"], "ops": [[0, False, 1.0, 1.0]]},
    "negative": lambda: {**EMPTY, "texts": ["a"], "ops": [[0, 0, -1.0, 1.0]]},
    "a truth": lambda: {**EMPTY, "texts": ["a"], "ops": [[0, 0, True, 1.0]]},
    "text": lambda: {**EMPTY, "texts": ["a"], "ops": [[0, 0, "1", 1.0]]},
    "of nothing": lambda: {**EMPTY, "texts": ["a"], "ops": [[0, 0, 1.0, 0]]},
    "too much": lambda: {**EMPTY, "texts": ["a"], "ops": [[0, 0, 1e19, 1.0]]},
    "half a mean": lambda: {**EMPTY, "texts": ["a"], "sizes": [[0, 0, [1.0, 1.0, 1.0]]]},
    "no list of sizes": lambda: {**EMPTY, "texts": ["a"], "sizes": [[0, 0]]},
    "a ratio of two": lambda: {**EMPTY, "ratios": {"CPU": [1.0, 2.0]}},
    "unknown of one": lambda: {**EMPTY, "unknown": [1.0]},
    "not a number": lambda: b'{"texts":[],"ratios":{"CPU":[NaN,1,1]}}',
    "infinite": lambda: b'{"texts":[],"ratios":{"CPU":[Infinity,1,1]}}',
    "infinite by size": lambda: {**EMPTY, "unknown": [10**400, 1]},
    "a number of many digits": lambda: b"1" * 10_000,
    "no JSON": lambda: b"{]",
    "no UTF-8": lambda: b'{"texts":["\xff"]}',
    "deep": lambda: b"[" * 200_000,
}


@pytest.mark.parametrize("case", BAD)
def test_hostile_files_are_refused_whatever_their_checksum(case: str, tmp_path: Path) -> None:
    refuse(write(tmp_path / "costs", BAD[case]()))


def test_bad_rows_name_what_was_required_and_got(tmp_path: Path) -> None:
    path = write(tmp_path / "costs", BAD["negative"]())
    with pytest.raises(errors.DataLossError, match=r"costs: .* between 0 and 1e\+18, got -1\.0"):
        model().load(path)


def test_other_versions_and_other_files(tmp_path: Path) -> None:
    path = tmp_path / "costs"
    path.write_bytes(b'{"format":"weft cost model","version":2,"rows":[]}\n')
    with pytest.raises(
        errors.InvalidArgumentError,
        match=r"costs: .* version 2 is not supported; .* reads version 1",
    ):
        model().load(path)
    path.write_bytes(b"PK\x03\x04")
    with pytest.raises(errors.InvalidArgumentError, match="is not a cost model file"):
        model().load(path)


def test_the_largest_numbers_stay_finite(tmp_path: Path) -> None:
    most = {**EMPTY, "texts": ["CPU", "a"], "nodes": [[0, 1, 1, 1e18, 1e18]], "unknown": [1e18, 1]}
    most["ratios"] = {"CPU": [1e18, 1e-300, 1e18]}
    found = model()
    for _ in range(3):
        found.load(write(tmp_path / "costs", most))
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, (None, 7))
        assert found.nbytes(x) > 0
    found.save(tmp_path / "costs")

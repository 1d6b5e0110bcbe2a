"""Programs with loops and conditionals return the results of TensorFlow.

`control_flow/table.py` holds the table. Each row runs in a line and by the ready queue, with and
without the graph's simplification; its values and derivatives are those that
`control_flow/record.py` recorded in `control_flow/expected.json`. Where TensorFlow has none, they
agree with difference quotients.

With WEFT_TENSORFLOW_PYTHON naming an interpreter that has TensorFlow, the programs run there too,
on other inputs.
"""

from __future__ import annotations

import builtins
import copy
import json
import os
import subprocess
import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.loading import load

import weft
from weft import errors
from weft_graph.control_flow.tensor_array import TensorArray

if not hasattr(weft, "TensorArray"):
    weft.TensorArray = TensorArray  # type: ignore[attr-defined]

PROGRAMS = Path(__file__).parent / "control_flow"
EXPECTED = json.loads((PROGRAMS / "expected.json").read_text())["rows"]
ORACLE = os.environ.get("WEFT_TENSORFLOW_PYTHON")
TOLERANCE = {"float64": 1e-9, "complex128": 1e-9, "float16": 1e-2}
WAYS = [(kind, level) for kind in ("", "READY_QUEUE") for level in (0, -1)]


RECORDER = load(PROGRAMS / "record.py")
PACKAGE = RECORDER.load()
TABLE = PACKAGE.TABLE


def config(kind: str, level: int) -> Any:
    proto = weft.ConfigProto(inter_op_parallelism_threads=2)
    proto.experimental.executor_type = kind
    proto.graph_options.optimizer_options.opt_level = level
    return proto


def test_every_row_is_recorded() -> None:
    assert len(TABLE) >= 80
    assert set(TABLE) == set(EXPECTED)


@pytest.mark.parametrize("name", TABLE)
def test_program(name: str) -> None:
    check(TABLE[name], EXPECTED[name])


def _sampled(names: Iterable[str], step: int) -> list[Any]:
    """All names, most of them for the long tests."""
    return [
        name if at % step == 0 else pytest.param(name, marks=pytest.mark.long)
        for at, name in enumerate(names)
    ]


@pytest.mark.parametrize("name", _sampled(TABLE, 16))
def test_program_compiled(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_JIT", "now")
    check(TABLE[name], EXPECTED[name])


def _rows_on_devices() -> list[str]:
    """Return the built programs, with the values that TensorFlow returned."""
    kept = [name for name, row in TABLE.items() if not row.refused]
    order = {name: min(TABLE[name].order, 1) for name in kept}
    return [name for name in kept if "error" not in EXPECTED[name][f"order {order[name]}"]]


@pytest.mark.parametrize("name", _rows_on_devices())
def test_program_on_three_devices(name: str) -> None:
    """With every node anywhere, so that most edges cross devices, loops' back edges aside."""
    row = TABLE[name]
    expected = EXPECTED[name]["order 1" if row.order else "order 0"]
    built = PACKAGE.build(weft, row, min(row.order, 1))
    assert len(built.derivatives) == min(row.order, 1)
    for node in built.graph.nodes:
        node.device = f"/device:CPU:{zlib.crc32(node.name.encode()) % 3}"
    proto = weft.ConfigProto(device_count={"CPU": 3}, allow_soft_placement=True)
    runs = PACKAGE.run(weft, row, built, proto)
    compare(f"{row.name} on three devices", row, built, runs, copy.deepcopy(expected))


def check(row: Any, recorded: Any) -> None:
    """Run a row in all ways, up to each order, and compare."""
    for order in range(row.order + 1):
        expected = recorded[f"order {order}"]
        if row.refused:
            check_refused(row, expected["error"])
            continue
        built = PACKAGE.build(weft, row, order)
        if len(built.derivatives) < order:
            assert expected["error"] == "NotDifferentiable"
            continue
        for kind, level in WAYS if order == row.order else (WAYS[0], WAYS[-1]):
            runs = PACKAGE.run(weft, row, built, config(kind, level))
            if "error" in expected:
                assert expected["error"] != "NotDifferentiable"
                check_quotients(row, order, runs, config(kind, level))
            else:
                place = f"{row.name}, order {order}, executor {kind or 'LINE'}, level {level}"
                compare(place, row, built, runs, copy.deepcopy(expected))


def check_refused(row: Any, name: str) -> None:
    wanted = getattr(errors, name, None) or getattr(builtins, name)
    for kind, level in WAYS:
        with pytest.raises(wanted):
            PACKAGE.run(weft, row, PACKAGE.build(weft, row, 0), config(kind, level))


def compare(place: str, row: Any, built: Any, runs: Any, expected: Any) -> None:
    check_kinds(place, built.kinds, runs, expected)
    for number, (got, wanted) in enumerate(zip(runs, expected["runs"], strict=True)):
        for part, values in wanted.items():
            if not values:
                continue
            assert got[part].keys() == values.keys(), (place, part)
            for key, value in values.items():
                agree(f"{place}, run {number}, {part}, {key}", row, got[part][key], value)


def check_kinds(place: str, kinds: Any, runs: Any, expected: Any) -> None:
    """Check which derivatives exist and which are sparse; control flow v2 has zeros for None."""
    for order, (mine, wanted) in enumerate(zip(kinds, expected["kinds"], strict=True), 1):
        part = f"order {order}"
        for key, kind in wanted.items():
            if expected["control_flow"] == 2 and "slices" in (kind, mine[key]):
                continue
            if mine[key] == "none" and kind == "dense" and expected["control_flow"] == 2:
                zeros = [each[part].pop(key)[1] for each in expected["runs"]]
                assert not any(np.any(np.asarray(value)) for value in zeros), f"{place}, {key}"
                continue
            assert mine[key] == kind, f"{place}, {part}, {key}: {mine[key]}, not {kind}"


def agree(place: str, row: Any, got: Any, wanted: Any) -> None:
    kind, value = wanted
    found_kind, found = RECORDER.plain(got)
    assert found_kind == kind, place
    if np.asarray(value).dtype.kind != "f":
        assert found == value, place
        return
    tolerance = max(row.loose, TOLERANCE.get(kind, 1e-5))
    found, value = np.asarray(found, np.float64), np.asarray(value, np.float64)
    assert found.shape == value.shape, place
    scale = np.max(np.abs(value), initial=0.0, where=np.isfinite(value))
    np.testing.assert_allclose(
        found, value, rtol=tolerance, atol=tolerance * max(1.0, scale), err_msg=place
    )


def check_quotients(row: Any, order: int, runs: Any, proto: Any) -> None:
    """Compare the derivative along one direction with a difference quotient."""
    for feed, run in zip(row.feeds, runs, strict=True):
        for name, gradient in run.get(f"order {order}", {}).items():
            direction = np.cos(np.arange(gradient.size) + 0.3).reshape(gradient.shape)
            slope = np.sum(gradient * direction)
            quotient = difference(row, order, feed, name, direction, proto)
            np.testing.assert_allclose(slope, quotient, rtol=1e-5, atol=1e-6, err_msg=name)


def difference(row: Any, order: int, feed: Any, name: str, direction: Any, proto: Any) -> float:
    """Return the difference quotient of a weighted sum of derivatives of the next lower order."""
    built = PACKAGE.build(weft, row, order)
    loss, step, found = built.losses[order - 1], 1e-6, []
    source = built.sources[name]
    with weft.Session(graph=built.graph, config=proto) as session:
        session.run(built.initializer)
        start = feed[name] if name in built.inputs else session.run(source)
        for sign in (1.0, -1.0):
            feeds, moved = PACKAGE.fed(built, feed), start + sign * step * direction
            if name in built.inputs:
                feeds[source] = moved
            else:
                source.load(moved, session)
            found.append(session.run(loss, feeds))
    return float((found[0] - found[1]) / (2 * step))


# ------------------------------------------------------------------------------ beside TensorFlow


@cache
def beside(scale: float) -> Any:
    """Return TensorFlow's results on inputs that are `scale` times those of the table."""
    assert ORACLE is not None
    with temporary() as output:
        arguments = [ORACLE, PROGRAMS / "record.py", "--output", output, "--scale", str(scale)]
        subprocess.run(arguments, check=True, capture_output=True)
        return json.loads(output.read_text())["rows"]


def temporary() -> Any:
    import contextlib
    import tempfile

    @contextlib.contextmanager
    def made() -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as directory:
            yield Path(directory) / "expected.json"

    return made()


@pytest.mark.skipif(ORACLE is None, reason="WEFT_TENSORFLOW_PYTHON names no interpreter")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", TABLE if ORACLE else ["all"])
def test_program_beside_tensorflow(name: str) -> None:
    scale = 1.0625
    check(RECORDER.scaled(TABLE[name], scale), beside(scale)[name])

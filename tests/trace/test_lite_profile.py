"""Profiles of weft-lite that are damaged or hostile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from weft_trace.errors import TraceError
from weft_trace.lite_profile import convert_lite_profile
from weft_trace.reader import load

VALID = {
    "format": "weft-lite profile",
    "version": 1,
    "model": "m",
    "host": "h",
    "pid": 1,
    "ops": [["Add", "a", [0, 1], [2]], ["Mul", "b", [2, 2], [3]]],
    "invocations": [[100, 200]],
    "events": [[0, 110, 120], [1, 120, 190]],
}


def test_a_valid_profile_is_converted(tmp_path: Path) -> None:
    (tmp_path / "p").write_text(json.dumps(VALID))
    convert_lite_profile(tmp_path / "p", tmp_path / "t")
    trace = load(tmp_path / "t")
    assert [node.inputs for node in trace.nodes] == [(), (0,), ()]
    assert [int(start) for start in trace.events["start"]] == [100, 110, 120]


@pytest.mark.parametrize(
    "change",
    [
        {"format": "another"},
        {"version": 2},
        {"ops": 5},
        {"ops": [["Add"]]},
        {"events": [[2, 110, 120]]},
        {"events": [[-1, 110, 120]]},
        {"events": [[0, 120, 110]]},
        {"events": [[0, 50, 60]]},
        {"events": [[0, 110]]},
        {"events": [[0, 110, 1 << 63]]},
        {"events": [[0, 110, "x"]]},
        {"invocations": []},
        {"invocations": [[100, 90]]},
        {"pid": None},
    ],
    ids=str,
)
def test_others_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    (tmp_path / "p").write_text(json.dumps(VALID | change))
    with pytest.raises(TraceError, match="is not a profile of weft-lite"):
        convert_lite_profile(tmp_path / "p", tmp_path / "t")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("content", [b"", b"[", b"[]", b"\xff", b"[" * 100_000])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p").write_bytes(content)
    with pytest.raises(TraceError, match="is not a profile of weft-lite"):
        convert_lite_profile(tmp_path / "p", tmp_path / "t")

"""Pictures of the documentation are current: drawings equal, recordings close to a new run."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.workspace import ROOT

sys.path.insert(0, str(ROOT / "docs" / "pictures"))
import event_files
import int8_errors
import journey_curves
import scale_curves
import training_curve
import two_devices

DRAWINGS = ROOT / "docs" / "drawings"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ADVICE = "run hatch run pictures"
USE = re.compile(r"!\[([^\]]*)\]\(([^)]*drawings/([^)#]+))[^)]*\)")
DRAWN = {
    "int8": int8_errors,
    "journeys": journey_curves,
    "trace": two_devices,
    "training": training_curve,
}
MOST_BYTES = 150_000


def recorded(name: str) -> Any:
    return json.loads((ROOT / "docs" / "pictures" / "recorded" / f"{name}.json").read_text())


def drawing(name: str) -> str:
    return (DRAWINGS / name).read_text(encoding="utf-8")


def is_close(new: float, old: float) -> bool:
    """Return True if two runs may differ so much: processors round sums differently."""
    return bool(np.isclose(new, old, rtol=0.05, atol=0.02))


@pytest.mark.parametrize("name", DRAWN)
def test_a_drawing_shows_its_recording(name: str) -> None:
    assert DRAWN[name].draw(recorded(name)) == drawing(f"{name}.svg"), ADVICE


def test_the_placement_is_what_explain_draws() -> None:
    assert two_devices.placement() == drawing("placement.svg"), ADVICE


def test_the_figures_of_the_page_about_scale_show_its_tables() -> None:
    page = scale_curves.PAGE.read_text(encoding="utf-8")
    assert scale_curves.draw(page) == drawing("scale.svg"), ADVICE


def test_the_trace_has_the_events_of_a_new_run() -> None:
    assert two_devices.structure(two_devices.record(1)) == two_devices.structure(
        recorded("trace")
    ), ADVICE


def test_the_int8_errors_are_those_of_a_new_conversion() -> None:
    new: Mapping[str, Mapping[str, float]] = int8_errors.record()
    old = recorded("int8")
    assert new.keys() == old.keys(), ADVICE
    for name, errors in new.items():
        assert errors.keys() == old[name].keys(), ADVICE
        assert all(abs(value - old[name][form]) < 1.0 for form, value in errors.items()), ADVICE


def test_the_training_curve_begins_like_a_new_training() -> None:
    (new,), old = training_curve.record(1), recorded("training")[0]
    assert new.keys() == old.keys()
    assert all(is_close(value, old[name]) for name, value in new.items()), ADVICE


def test_tensorboard_was_given_the_events_of_a_new_training(tmp_path: Path) -> None:
    event_files.write(tmp_path)
    new, old = event_files.record(tmp_path), recorded("tensorboard")
    assert new["graph"] == old["graph"], ADVICE
    assert new["steps"] == old["steps"], ADVICE
    for kind in ("scalars", "histograms"):
        assert new[kind].keys() == old[kind].keys(), ADVICE
        for tag, values in new[kind].items():
            assert all(map(is_close, values, old[kind][tag])), (ADVICE, tag)


def test_the_explain_page_looks_like_a_new_one() -> None:
    pytest.importorskip("selenium", reason="selenium is not installed")
    from screenshots import explain_page, fingerprint

    assert fingerprint(explain_page()) == recorded("explain"), ADVICE


def test_the_viewer_of_traces_looks_like_a_new_one() -> None:
    pytest.importorskip("selenium", reason="selenium is not installed")
    from screenshots import viewer_fingerprint

    assert viewer_fingerprint() == recorded("viewer"), ADVICE


def test_pictures_are_small_and_shown_with_a_text_for_those_who_cannot_see_them() -> None:
    uses = [
        (page, *match) for page in PAGES for match in USE.findall(page.read_text(encoding="utf-8"))
    ]
    assert {name for *_, name in uses} == {path.name for path in DRAWINGS.iterdir()}
    for page, text, target, name in uses:
        assert (page.parent / target).resolve() == DRAWINGS / name, (page.name, target)
        assert len(text.split()) > 3, f"{page.name}: describe {name}"
    assert all(path.stat().st_size <= MOST_BYTES for path in DRAWINGS.iterdir())

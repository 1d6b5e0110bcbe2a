"""Compare the training steps of the examples with TensorFlow and PyTorch.

python benchmarks/journeys.py --tensorflow PYTHON --torch PYTHON
python benchmarks/journeys.py language transformer --rounds 3 --steps 50 --processor-time

TensorFlow runs the programs of the examples unchanged; PyTorch runs twins of their networks. The
subjects alternate. TensorFlow needs tf_keras, and Pillow and matplotlib for the examples that draw.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import subjects

PROGRAMS = Path(__file__).parent / "programs"
TWINS = ("language", "transformer", "segmentation", "inception")
NAMES = ("images", "reinforcement", "tabular", "word2vec", *TWINS)


def measure(command: list[str], options: argparse.Namespace) -> tuple[float, str]:
    """Return the median seconds of a step, or NaN and the last line of the error."""
    environment = subjects.environment(options.threads) | {"TF_USE_LEGACY_KERAS": "1"}
    if options.processor_time:
        environment["WEFT_BENCH_CLOCK"] = "processor"
    numbers = ["--steps", str(options.steps), "--threads", str(options.threads)]
    numbers += ["--warm-up", str(options.warm_up)]
    done = subprocess.run(
        [*command, *numbers], capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        return float("nan"), (done.stderr.strip().splitlines() or ["no message"])[-1]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith('{"row"')]
    return float(json.loads(line)["median"]), ""


def commands(name: str, options: argparse.Namespace) -> dict[str, list[str]]:
    """Return the command of each subject."""
    program = str(PROGRAMS / "journeys_v1.py")
    result = {"weft": [sys.executable, program, name]}
    if options.tensorflow:
        module = ["--module", "tensorflow.compat.v1"]
        result["TensorFlow"] = [options.tensorflow, program, name, *module]
    if options.torch and name in TWINS:
        result["PyTorch"] = [options.torch, str(PROGRAMS / "journeys_torch.py"), name]
    return result


def main() -> None:
    """Print a table: milliseconds per step, and the median ratio to weft in the same round."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--tensorflow", default=os.environ.get("WEFT_BENCH_TENSORFLOW"))
    parser.add_argument("--torch", default=os.environ.get("WEFT_BENCH_TORCH"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument(
        "--warm-up", type=int, default=100, help="steps before those, in which weft compiles"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--processor-time", action="store_true")
    options = parser.parse_args()
    print("| Example | weft | TensorFlow | PyTorch |\n|---|---|---|---|")
    for name in options.names:
        times: dict[str, list[float]] = {}
        reasons = {}
        for _ in range(options.rounds):
            for subject, command in commands(name, options).items():
                seconds, reasons[subject] = measure(command, options)
                times.setdefault(subject, []).append(seconds)
        row = [name]
        for subject in ("weft", "TensorFlow", "PyTorch"):
            if subject not in times:
                row.append("")
            elif reasons[subject]:
                row.append(f"fails: {reasons[subject]}")
            else:
                pairs = zip(times[subject], times["weft"], strict=True)
                ratio = statistics.median(mine / weft for mine, weft in pairs)
                text = f"{1e3 * statistics.median(times[subject]):.1f} ms"
                row.append(text if subject == "weft" else f"{text} ({ratio:.2f}×)")
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()

"""Takes what the training made to devices: files in float and int8, run where nothing else is.

An environment with weft_lite's wheel alone stands for an edge box, and a static program for AArch64
under qemu for a small board. The static program needs qemu-user and ziglang and is left out where
one is missing; `hatch run dev:demo` runs in an environment that has ziglang.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

import digits
import model as network
from rich.console import Console

import weft as wf
from weft_lite import compiling, targets

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1] / "packages" / "lite"
FILES = ("digits.weftlite", "digits-int8.weftlite")


def convert(directory: Path) -> None:
    """Write the newest checkpoint as files for devices: in float, and in int8."""
    training, held_out = digits.load()
    with wf.Graph().as_default(), wf.Session() as session:
        made = network.build(0, 1, serving=True)
        wf.train.Saver().restore(session, wf.train.latest_checkpoint(str(directory)))
        bounds = {"images": [1, 8, 8, 1]}
        converter = wf.lite.Converter.from_session(session, [made.images], [made.logits], bounds)
        (directory / FILES[0]).write_bytes(converter.convert())
        samples = [{"images": image[None]} for image in training.images[:200]]
        (directory / FILES[1]).write_bytes(converter.convert(calibration=samples))
    (directory / "images.bin").write_bytes(held_out.images.tobytes())
    (directory / "labels.bin").write_bytes(held_out.labels.astype("uint8").tobytes())


def clean_environment(directory: Path) -> list[str]:
    """The command of a Python that has weft_lite's wheel and nothing else."""
    wheels, environment = directory / "wheels", directory / "device"
    pip = [sys.executable, "-m", "pip", "--quiet"]
    shutil.rmtree(environment, ignore_errors=True)
    options = ["--no-deps", "--wheel-dir", str(wheels)]
    if compiling.system_compiler():
        options.append("--no-build-isolation")  # otherwise pip fetches ziglang to build with
    call(*pip, "wheel", str(PACKAGE), *options)
    venv.create(environment, with_pip=False)
    python = environment / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    wheel = next(wheels.glob("weftml_lite-*.whl"))
    call(sys.executable, "-m", "pip", "--quiet", "--python", str(python), "install", str(wheel))
    return [str(python), "-I", str(HERE / "device.py")]


def static_program(directory: Path) -> list[str]:
    """The command of a static program for AArch64, with the kernels of the two files."""
    out = directory / "aarch64"
    kinds = targets.kinds_of([directory / name for name in FILES])
    targets.build("aarch64-linux-musl", out, kinds)
    command = [*targets.zig(), "cc", "-target", "aarch64-linux-musl", "-static", "-O2", "-s"]
    command += ["-I", str(out), str(HERE / "device.c"), str(out / "libweft_lite.a")]
    call(*command, "-Wl,--gc-sections", "-o", str(out / "device"))
    return ["qemu-aarch64", str(out / "device")]


def call(*command: str) -> str:
    """What a command prints.

    Raises: SystemExit: it failed; with what it said.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def deploy(directory: Path, console: Console) -> None:
    """Convert, run on both, and print the accuracies; without a C compiler, say so and return."""
    try:
        compiling.compiler()
    except FileNotFoundError:
        console.print("not deployed: install a C compiler, or `hatch run demo:pip install ziglang`")
        return
    with console.status("converting"):
        convert(directory)
    places = {"an environment with weft_lite alone": clean_environment}
    if shutil.which("qemu-aarch64") and has_zig():
        places["a static AArch64 program under qemu"] = static_program
    else:
        console.print("no AArch64 program: that needs qemu-user and ziglang")
    for place, make in places.items():
        with console.status(f"making {place}"):
            command = make(directory)
        for name in FILES:
            files = [directory / each for each in (name, "images.bin", "labels.bin")]
            accuracy = float(call(*command, *map(str, files)))
            size = (directory / name).stat().st_size
            console.print(f"{name} ({size / 1000:.0f} KB) in {place}: {accuracy:.2%}")


def has_zig() -> bool:
    """Whether there is something to compile for other machines with."""
    try:
        targets.zig()
    except targets.LiteError:
        return False
    return True

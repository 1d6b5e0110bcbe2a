"""The measured subjects: weft in this environment, and peers in their own virtual environments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rows import Program

PROGRAM_DIRECTORY = Path(__file__).parent / "programs"
TIMEOUT = 900  # seconds for one child process

REQUIREMENTS = {
    "tensorflow": ["tensorflow-cpu==2.21.0"],
    "torch": ["torch==2.13.0", "numpy"],
    "jax": ["jax==0.10.2", "jaxlib==0.10.2", "orbax-checkpoint"],
}

VERSION = (
    "import importlib.metadata as m, sys; name = sys.argv[1]; "
    "print(*{d.version for d in m.distributions() if d.name in (name, name.removesuffix('-cpu'))})"
)


@dataclass(frozen=True)
class Subject:
    """A framework in one of its modes, and the interpreter that has it."""

    name: str
    title: str
    python: str
    script: tuple[str, ...]
    module: str
    distribution: str
    extra: tuple[tuple[str, str], ...] = ()  # of its environment

    @property
    def peer(self) -> str:
        """Return the name in rows, which is the same with and without the compiler."""
        return self.name.removesuffix("-jit")

    def version(self) -> str:
        command = [self.python, "-c", VERSION, self.distribution]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def run(self, program: Program, threads: int, budget: float) -> dict[str, float]:
        """Run a child process; return each row's median. Raises CalledProcessError."""
        script, *options = self.script
        if program.family:
            script = f"{program.family}_{script}"
        if program.script:
            script, options = program.script, []
            if script == "footprint.py":
                options = ["--module", self.module, "--distribution", self.distribution]
            elif program.script.startswith("gpu_"):
                compiled = ["--compile"] if "--compile" in self.script else []
                options = ["--module", self.module, *compiled]
        command = [self.python, str(PROGRAM_DIRECTORY / script), program.name, *options]
        command += ["--threads", str(threads), "--budget", str(budget)]
        done = subprocess.run(
            command,
            env=environment(threads)
            | (gpu_environment() if "gpu" in program.script else {})
            | dict(self.extra),
            capture_output=True,
            text=True,
            check=True,
            timeout=TIMEOUT,
            preexec_fn=partial(keep_to, threads),
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith('{"row"')]
        return {report["row"]: report["median"] for report in map(json.loads, lines)}


DROPPED = {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH"}


def environment(threads: int) -> dict[str, str]:
    """Return the environment of all subjects: native BLAS kernels, the requested threads, no GPU.

    Python keeps its bytecode, as it does for whoever has not told it otherwise.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in DROPPED}
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads)
    xla = f"--xla_cpu_multi_thread_eigen={str(threads > 1).lower()}"
    return (
        inherited
        | {name: str(value) for name, value in limits.items()}
        | {
            "CUDA_VISIBLE_DEVICES": "",
            "JAX_PLATFORMS": "cpu",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "XLA_FLAGS": f"{xla} intra_op_parallelism_threads={threads}",
        }
    )


def keep_to(count: int) -> None:
    """Limit this process to some processors, because JAX starts one thread per processor."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def gpu_environment() -> dict[str, str]:
    """Return the GPUs that this process may use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    return {"CUDA_VISIBLE_DEVICES": visible, "JAX_PLATFORMS": "cuda,cpu"}


def has_gpu() -> bool:
    """Return True if weft finds a GPU."""
    code = "import weft; print([d.device_type for d in weft.Session().list_devices()])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=TIMEOUT
    )
    return "'GPU'" in done.stdout


WEFT = Subject("weft", "weft", sys.executable, ("v1.py", "--module", "weft"), "weft", "weftml")


def weft(compiled: bool) -> list[Subject]:
    """Return weft with kernels, and with the compiler if requested."""
    jit = (("WEFT_JIT", "now"),)
    return [WEFT, *([replace(WEFT, name="weft-jit", title="weft compiled", extra=jit)] * compiled)]


def peers(pythons: dict[str, str], compiled: bool, jit: bool) -> list[Subject]:
    """Return the peers that have an interpreter, in the order of the table.

    Args:
      compiled: PyTorch through its compiler too.
      jit: TensorFlow with XLA too.
    """
    known = [
        Subject(
            "tensorflow",
            "TensorFlow (v1 graph mode)",
            pythons.get("tensorflow", ""),
            ("v1.py", "--module", "tensorflow.compat.v1"),
            "tensorflow",
            "tensorflow-cpu",
        ),
        Subject(
            "tensorflow-jit",
            "TensorFlow, XLA",
            pythons.get("tensorflow", "") if jit else "",
            ("v1.py", "--module", "tensorflow.compat.v1"),
            "tensorflow",
            "tensorflow-cpu",
            (("TF_XLA_FLAGS", "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"),),
        ),
        Subject(
            "torch", "PyTorch eager", pythons.get("torch", ""), ("torch_rows.py",), "torch", "torch"
        ),
        Subject(
            "torch-compile",
            "PyTorch compile",
            pythons.get("torch", "") if compiled else "",
            ("torch_rows.py", "--compile"),
            "torch",
            "torch",
        ),
        Subject("jax", "JAX jit", pythons.get("jax", ""), ("jax_rows.py",), "jax", "jax"),
    ]
    return [subject for subject in known if subject.python]


def make_peers(directory: Path) -> dict[str, str]:
    """Create the missing environments of the peers under `directory`, with pip."""
    pythons = {}
    for name, requirements in REQUIREMENTS.items():
        home = directory / name
        python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
        if not python.exists():
            venv.create(home, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *requirements], check=True)
        pythons[name] = str(python)
    return pythons

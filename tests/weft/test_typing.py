"""Type checkers know the public names, and refuse others."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """\
import weft as wf
from weft import train
from weft.compat import v1 as tf

optimizer: wf.train.Optimizer = wf.train.AdamOptimizer(0.1)
shape: wf.TensorShape = wf.TensorShape([2])
graph: wf.Graph = wf.get_default_graph()
tensor: wf.Tensor = wf.constant(1.0)
operation: wf.Operation = tensor.op
config = wf.ConfigProto(allow_soft_placement=True)
example = train.Example()
wf.nn.relu(tensor), wf.layers.dense, wf.losses.log_loss, wf.metrics.mean, wf.nn.max_pool2d
wf.random.normal([2]), wf.linalg.diag([1.0]), wf.sparse.to_dense, wf.strings.join, wf.math.log
wf.logging.info("a"), wf.flags.FLAGS, wf.app.run, wf.test.TestCase, wf.errors.OpError
wf.VERSION, wf.__version__, wf.version.GIT, tf.Session, wf.get_logger(), wf.bool, wf.reverse_v2
wf.Sesion
wf.nn.rellu
wf.train.AdanOptimizer
wf.train.Exmaple
wf.random.nromal
wf.trian
tf.constnat
"""
REFUSED = ["GIT", "Sesion", "rellu", "AdanOptimizer", "Exmaple", "nromal", "trian", "constnat"]


def test_names_are_known_and_misspelt_ones_are_not(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    result = subprocess.run(
        [*command, "--no-error-summary", str(program)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    about = [line for line in result.stdout.splitlines() if "program.py" in line]
    refused = [name for line in about for name in re.findall(r'has no attribute "(\w+)"', line)]
    assert refused == REFUSED, result.stdout + result.stderr
    assert len([line for line in about if ": error:" in line]) == len(REFUSED), result.stdout

"""The benchmark harness runs, with every row of weft's in it, if only for a moment each."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import weft  # noqa: F401 # declares the ops
from weft_graph.ir.op_def import registered_ops

RUN = Path(__file__).parents[2] / "benchmarks" / "run.py"

ROWS = {
    ("import", "size", "trivial", "chain", "memory", "plan_tanh_1000", "plan_negative_1000"): {
        "import",
        "import_above_numpy",
        "installed_size",
        "null_run",
        "null_callable",
        "chain1000",
        "memory_reuse_16MB",
        "memory_reuse_touched_16MB",
        "memory_fresh_16MB",
        "plan_tanh_1000",
        "plan_negative_1000",
    },
    ("build", "mlp", "cnn", "lstm", "word2vec", "elementwise", "sparse_product", "two_products"): {
        "build_6000",
        "mlp_train",
        "cnn_train",
        "cnn_infer",
        "lstm_train",
        "word2vec_train",
        "fused_ewise_1M",
        "sparse_product",
        "sparse_product_gradient",
        "two_products_in_turn",
        "two_products_at_once",
    },
    ("model_mlp", "model_word2vec"): {"model_mlp", "model_word2vec"},
    ("products_16", "decode_token"): {"products_16", "decode_token"},
}


@pytest.mark.parametrize("programs", ROWS, ids=lambda names: names[0])
def test_every_row_runs(programs: tuple[str, ...], tmp_path: Path) -> None:
    command = [sys.executable, RUN, *programs, "--rounds", "1", "--budget", "0", "--out", tmp_path]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert not results["failures"]
    (measured,) = results["rounds"]
    assert measured.keys() == ROWS[programs]
    assert all(values["weft"] > 0 for values in measured.values())
    assert (tmp_path / "results.md").read_text(encoding="utf-8").startswith("# Results\n")


def test_reasons_are_of_ops_that_have_kernels() -> None:
    told = json.loads((RUN.parent / "reasons.json").read_text(encoding="utf-8"))
    assert told["ops"].keys() == told["causes"].keys()
    ops = [op for each in told["ops"].values() for op in each]
    assert len(set(ops)) == len(ops)
    assert set(ops) <= set(registered_ops())


@pytest.mark.long
@pytest.mark.parametrize("name", ["reinforcement", "tabular"])
def test_an_example_is_measured(name: str) -> None:
    command = [sys.executable, RUN.with_name("journeys.py"), name]
    done = subprocess.run(
        [*command, "--rounds", "1", "--steps", "2"], capture_output=True, text=True, check=False
    )
    row = done.stdout.splitlines()[-1]
    assert row.startswith(f"| {name} | ") and " ms |" in row, done.stdout + done.stderr

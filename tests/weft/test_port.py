"""`weft port`: reports about programs, and changes to them."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from weft import _port, errors
from weft._port.differences import DIFFERENT
from weft._port.source import PRIVATE, is_module

PROGRAM = """\
# -*- coding: utf-8 -*-
import tensorflow as tf, numpy as np
import os; import tensorflow.compat.v1
from tensorflow.python.ops import rnn_cell
from tensorflow.python.framework import ops
from tensorflow.examples.tutorials.mnist import input_data
math = tf.math
größe = 1; x = tf.placeholder(tf.float32, [größe]); tf.keras.layers.Dense(3)
tf.nn.foo(math.exp(x)); tf.nn.relu(x).op.name; tf.GraphKeys.NOPE; math.nope
tf.scalar_summary; tf.compat.v1.train.Saver(); ops.convert_to_tensor(1)
"""
SAID = """\
4: tensorflow.python.ops.rnn_cell is private; its public names are in tf.nn.rnn_cell
5: tensorflow.python.framework.ops is private; its public names are in tf
6: tf.examples is not in weft
8: tf.keras is not in weft: Keras is not supported; use layers, losses, metrics and train
9: tf.GraphKeys.NOPE is not in weft
9: tf.math.nope is not in weft
9: tf.nn.foo is not in weft
10: tensorflow.python.framework.ops.convert_to_tensor is private; its public names are in tf.
10: tf.scalar_summary is not in weft: use summary.scalar
10: tf.train.Saver differs: checkpoints have weft's own format; TensorFlow's can be read too
"""


def port(*arguments: str | Path) -> int:
    parser = argparse.ArgumentParser()
    _port.add(parser)
    given = parser.parse_args([str(argument) for argument in arguments])
    code: int = given.run(given)
    return code


def test_what_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    assert port(tmp_path) == 1
    said = [
        line.removeprefix(f"{tmp_path}/program.py:") for line in capsys.readouterr().out.split("\n")
    ]
    for line, expected in zip(said, SAID.splitlines(), strict=False):
        assert line.startswith(expected)
    assert any(line.startswith("  missing: GraphKeys.NOPE, examples, keras, ") for line in said)
    assert "  different: train.Saver" in said
    private = "python.framework.ops, python.framework.ops.convert_to_tensor, python.ops.rnn_cell"
    assert f"  private (--write imports the public names): {private}" in said


def test_what_is_changed(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    before = PROGRAM.replace("\n", "\r\n").encode()
    path.write_bytes(before)
    port("--quiet", "--write", path)
    expected = before
    for old, new in (
        (b"import tensorflow as tf, numpy", b"import weft as tf, numpy"),
        (b"import tensorflow.compat.v1\r", b"import weft as tensorflow\r"),
        (b"from tensorflow.python.ops import rnn", b"from weft.nn import rnn"),
        (b"from tensorflow.python.framework import ops", b"import weft as ops"),
    ):
        expected = expected.replace(old, new)
    assert path.read_bytes() == expected
    port("--quiet", "--write", path)
    assert path.read_bytes() == expected


def test_nothing_is_missing_or_nothing_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "program.py"
    path.write_text("from tensorflow.compat.v1 import placeholder as p\np('float32')\n")
    assert port(path) == 0
    assert "nothing is missing" in capsys.readouterr().out
    path.write_text("print 'hello'\n")
    assert port(path) == 2
    assert "Python 2" in capsys.readouterr().out
    with pytest.raises(errors.NotFoundError, match="there is no file or folder"):
        port(path, tmp_path / "absent.py")


def test_the_page_of_differences_has_the_same_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "differences.md").read_text(encoding="utf-8")
    rows = [f"| `{name}` | {words} |\n" for name, words in sorted(DIFFERENT.items())]
    assert "".join(rows) in page


def test_every_private_module_has_its_names_in_a_namespace() -> None:
    for module, namespace in PRIVATE.items():
        assert is_module(namespace), f"{module}: weft has no namespace {namespace!r}"


OLD = """\
from tensorflow.python.client import timeline
import tensorflow.python.client.timeline as tl
from tensorflow.contrib.data import Dataset
import tensorflow as tf
from tensorflow.contrib import data
from tensorflow.python.data.ops.dataset_ops import Dataset as Elements
from tensorflow.python.training.adam import AdamOptimizer
from tensorflow.python.framework import (
    dtypes as types, ops)
from tensorflow.python.ops import array_ops, rnn_cell_impl as cells
types.float32, ops.Graph, array_ops.zeros, cells.GRUCell
timeline.Timeline(None).generate_chrome_trace_format(), tl.Timeline
tf.contrib.data.map_and_batch(abs, 3), data.batch_and_drop_remainder(2), Dataset, Elements
"""


def test_timelines_and_datasets_of_old_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "old.py"
    path.write_text(OLD, encoding="utf-8")
    assert port("--write", path) == 0
    assert "missing:" not in capsys.readouterr().out
    text = path.read_text(encoding="utf-8")
    assert "import weft as types; import weft as ops\n" in text
    assert "import weft as array_ops; import weft.nn.rnn_cell as cells\n" in text
    assert "from weft import timeline\n" in text
    assert "import weft.timeline as tl\n" in text
    assert "from weft.contrib.data import Dataset\n" in text
    assert "from weft.data import Dataset as Elements\n" in text
    assert "from weft.train import AdamOptimizer\n" in text
    assert "tensorflow" not in text


def test_one_use_of_one_name_is_singular(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "program.py").write_text("import tensorflow as tf\ntf.keras\n")
    assert port("--quiet", tmp_path / "program.py") == 1
    assert capsys.readouterr().out.startswith("1 use of 1 name\n")

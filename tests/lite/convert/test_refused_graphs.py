"""Graphs, files and options that the converter and the commands refuse, each with the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_lite import errors as lite_errors
from weft_lite.commands.arrays import feed, read_npy
from weft_lite.convert import Converter
from weft_lite.convert.commands.converting import read_calibration
from weft_lite.convert.compiled import weftlite
from weft_lite.interpreter import Interpreter

FAKE = wf.quantization


def image(channels: int = 4) -> Any:
    return wf.placeholder(wf.float32, [1, channels, 4, 4], name="x")


def ones(*shape: int) -> Any:
    return wf.constant(np.ones(shape, "f"))


def normalized(x: Any) -> Any:
    scale, offset = ones(4), ones(4)
    return wf.nn.fused_batch_norm(wf.reshape(x, [1, 4, 4, 4]), scale, offset, is_training=True)[0]


def grown(x: Any) -> Any:
    array = wf.TensorArray(wf.float32, size=0, dynamic_size=True)
    return array.write(0, wf.reshape(x, [64])).stack()


def split(x: Any, lengths: list[int], begun: bool = False) -> Any:
    array = wf.TensorArray(wf.float32, 2, infer_shape=False)
    array = array.write(0, ones(32)) if begun else array
    return array.split(wf.reshape(x, [64]), lengths).read(0)


def branch(x: Any) -> Any:
    """A value that only one branch of a conditional has."""
    inner: list[Any] = []

    def chosen() -> Any:
        inner.append(wf.tanh(x))
        return inner[0]

    wf.cond(wf.reduce_sum(x) > 0.0, chosen, lambda: x)
    return inner[0]


def longer(x: Any) -> Any:
    """A loop variable whose rows double, without a bound."""
    return wf.while_loop(
        lambda i, _: i < 3,
        lambda i, rows: (i + 1, wf.concat([rows, rows], 0)),
        [0, wf.reshape(x, [4, 16])],
        shape_invariants=[wf.TensorShape([]), wf.TensorShape([None, 16])],
    )[1]


GRAPHS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "pool over channels": (
        lambda x: wf.nn.max_pool(x, [1, 1, 1, 2], [1, 1, 1, 2], "VALID"), "height",
    ),
    "pieces of several sizes": (lambda x: split(x, [24, 40]), "equal static sizes"),
    "pieces into an array in use": (lambda x: split(x, [32, 32], True), "to a new array"),
    "a value of one branch": (branch, "is computed only inside a branch or a loop"),
    "a loop variable that grows": (longer, r"changes shape \[4, 16\] to \[8, 16\]: pass"),
    "batch normalization": (normalized, "is in training mode"),
    "empty range": (lambda x: FAKE.fake_quant_with_min_max_vars(x, 1.0, 1.0), "range is empty"),
    "bits": (lambda x: FAKE.fake_quant_with_min_max_args(x, num_bits=4), "only 8-bit quantization"),
    "per-channel ranges": (
        lambda x: FAKE.fake_quant_with_min_max_vars_per_channel(x, -ones(4), ones(4)),
        "per-channel ranges",
    ),
    "growing array": (grown, r"pass the largest number as bounds="),
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_what_lite_does_not_compute_is_refused_with_the_reason(name: str) -> None:
    build, words = GRAPHS[name]
    with wf.Graph().as_default():
        x = image()
        converter = Converter(x.graph, [x], [wf.identity(build(x), name="y")])
        with pytest.raises(wf.errors.UnimplementedError, match=words):
            converter.convert()


def test_inputs_need_a_rank() -> None:
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, None, name="x")
        with pytest.raises(wf.errors.InvalidArgumentError, match="rank"):
            Converter(x.graph, [x], [x + 1.0]).convert()


NPY = {
    "no file": (lambda d: b"numpy", "not an .npy file"),
    "size": (lambda d: d[:-4], r"shape \(2, 3\) of float32 does not match its 20 bytes"),
    "order": (lambda d: d.replace(b"order': False", b"order': True "), "Fortran"),
    "type": (lambda d: d.replace(b"<f4", b"<c8"), "of a supported type"),
    "long header": (lambda d: d[:6] + b"\2\0\0\0\0\1" + bytes(1 << 24), "too long"),
    "no dictionary": (lambda d: d[:10] + b"(" * 40 + d[50:], "not an .npy file of a"),
}  # fmt: skip


@pytest.mark.parametrize("name", NPY)
def test_arrays_in_files_are_verified(name: str, tmp_path: Path) -> None:
    change, words = NPY[name]
    path = tmp_path / "a.npy"
    np.save(path, np.ones((2, 3), "f"))
    assert read_npy(str(path))[:2] == ("float32", (2, 3))
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(lite_errors.DataLossError, match=words):
        read_npy(str(path))


def test_values_on_the_command_line_fit_their_input(tmp_path: Path) -> None:
    with wf.Graph().as_default():
        n = wf.placeholder(wf.int32, [2], name="n")
        content = Converter(n.graph, [n], [n + 1]).convert()
    np.save(tmp_path / "a.npy", np.ones(2, "f"))
    for text, words in [
        ("1.5,2", "input 'n' is of int32: invalid literal"),
        ("1", "has 2 elements, got 1"),
        (f"1,{1 << 40}", "input 'n' is of int32"),
        (f"@{tmp_path / 'a.npy'}", "input 'n' requires int32, got float32"),
    ]:
        with pytest.raises(lite_errors.InvalidArgumentError, match=words):
            feed(Interpreter(model_content=content), {"n": text}, {})
    with pytest.raises(lite_errors.InvalidArgumentError, match="no input 'm'; the inputs are"):
        feed(Interpreter(model_content=content), {"m": "1"}, {})


def test_a_calibration_file_has_as_many_samples_of_each_input(tmp_path: Path) -> None:
    path = tmp_path / "calibration.npz"
    np.savez(path, x=np.ones((3, 2)), y=np.ones((2, 2)))
    with pytest.raises(lite_errors.InvalidArgumentError, match="different numbers of samples"):
        read_calibration(path)


def test_a_file_of_lite_is_read_whole() -> None:
    with pytest.raises(wf.errors.InvalidArgumentError, match="is read as a whole"):
        weftlite(Path("net.weftlite"), ["x"], [], None, [])

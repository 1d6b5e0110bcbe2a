"""Static shapes of operations whose inputs have an unknown rank, as precise as TensorFlow's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft as wf


def unknown(dtype: Any = wf.float32) -> wf.Tensor:
    return wf.placeholder(dtype)


def raw(op: str, **arguments: Any) -> Any:
    return getattr(wf.raw_ops, op)(**arguments)


WINDOW: dict[str, Any] = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
CASES: dict[str, tuple[Callable[[], Any], tuple[int | None, ...]]] = {
    "Slice": (lambda: wf.slice(unknown(), [0, 1, 0], [4, -1, 5]), (4, None, 5)),
    "Tile": (lambda: wf.tile(unknown(), [2, 0, 1]), (None, 0, None)),
    "Reverse": (lambda: raw("Reverse", tensor=unknown(), dims=[True, False]), (None, None)),
    "MirrorPadGrad": (
        lambda: raw("MirrorPadGrad", input=unknown(), paddings=[[1, 1], [0, 2]], mode="REFLECT"),
        (None, None),
    ),
    "LRNGrad": (
        lambda: raw(
            "LRNGrad", input_grads=unknown(), input_image=unknown(), output_image=unknown()
        ),
        (None,) * 4,
    ),
    "MaxPoolGrad": (
        lambda: raw(
            "MaxPoolGrad", orig_input=unknown(), orig_output=unknown(), grad=unknown(), **WINDOW
        ),
        (None,) * 4,
    ),
    "MaxPoolGradWithArgmax": (
        lambda: raw(
            "MaxPoolGradWithArgmax",
            input=unknown(), grad=unknown(), argmax=unknown(wf.int64), **WINDOW,
        ),
        (None,) * 4,
    ),
    "RaggedTensorToSparse": (
        lambda: raw(
            "RaggedTensorToSparse",
            rt_nested_splits=[wf.constant([0, 2, 3], wf.int64)],
            rt_dense_values=wf.zeros([3, 2]),
        )[0],
        (6, 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_known_of_a_shape(name: str) -> None:
    build, expected = CASES[name]
    with wf.Graph().as_default():
        assert build().dims == expected


def test_rows_of_a_ragged_cross_are_those_of_its_inputs() -> None:
    with wf.Graph().as_default():
        ragged = wf.ragged.constant([["a", "b"], [], ["c"]])
        crossed = wf.ragged.cross([ragged, wf.constant([["d"], ["e"], ["f"]])])
        assert crossed.row_splits.dims == (4,)

"""GPU kernels of softmax and the fused losses: one launch each, which reads every row once."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.gpu.element_types import REAL
from weft_exec.gpu.generated import Source
from weft_exec.kernels.nn import check_label_shapes, shape_of_losses
from weft_exec.kernels.registry import KernelFunction, kernel

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

_FLOATING: Final = {"T": REAL}

# ----------------------------------------------------------------------------- softmax

_SOFTMAX: Final = Source("softmax", T=REAL)
_SPARSE: Final = Source("sparse_cross_entropy", T=REAL, L=("int32", "int64"))
_OF_ROWS: Final = {"Softmax": "softmax", "LogSoftmax": "log_softmax"}


def _rows(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the number of rows, and the number of elements of a row."""
    return prod(shape[:-1]), shape[-1]


@kernel(*_OF_ROWS, device="GPU", dtypes=_FLOATING)
def _softmax(node: Node, device: Device) -> KernelFunction:
    xp, name = device.xp, _OF_ROWS[node.type]
    program = _SOFTMAX.program(xp, T=node.attrs["T"].numpy)

    def run(logits: Any) -> Any:
        logits, result = xp.ascontiguousarray(logits), xp.empty(logits.shape, logits.dtype)
        program.rows(name, *_rows(logits.shape), logits, result)
        return result

    return run


def _losses(
    xp: Any, shape: tuple[int, ...], dtype: np.dtype[Any], of_none: float
) -> tuple[Any, Any]:
    """Return arrays for the losses, which are `of_none` for empty rows, and for the gradients."""
    loss = xp.empty(shape[:-1], dtype) if shape[-1] else xp.full(shape[:-1], of_none, dtype)
    return loss, xp.empty(shape, dtype)


@kernel("SoftmaxCrossEntropyWithLogits", device="GPU", dtypes=_FLOATING)
def _cross_entropy(node: Node, device: Device) -> KernelFunction:
    xp, dtype = device.xp, node.attrs["T"].numpy
    program = _SOFTMAX.program(xp, T=dtype)

    def run(logits: Any, labels: Any) -> Any:
        shape = shape_of_losses(logits, labels)
        contiguous = [xp.ascontiguousarray(xp.broadcast_to(x, shape)) for x in (logits, labels)]
        results = _losses(xp, shape, dtype, 0.0)
        program.rows("cross_entropy", *_rows(shape), *contiguous, *results)
        return results

    return run


@kernel("SparseSoftmaxCrossEntropyWithLogits", device="GPU", dtypes=_FLOATING)
def _sparse_cross_entropy(node: Node, device: Device) -> KernelFunction:
    xp, dtype = device.xp, node.attrs["T"].numpy
    program = _SPARSE.program(xp, T=dtype, L=node.attrs["Tlabels"].numpy)

    def run(logits: Any, labels: Any) -> Any:
        check_label_shapes(logits, labels)
        contiguous = [xp.ascontiguousarray(value) for value in (logits, labels)]
        results = _losses(xp, logits.shape, dtype, np.nan)
        program.rows("sparse_cross_entropy", *logits.shape, *contiguous, *results)
        return results

    return run

"""Kernels of ops that forward their input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import widen_value
from weft_exec.kernels.registry import ANY_DEVICE, ARRAY_DEVICE, KernelFunction, kernel
from weft_tensor import errors
from weft_tensor.shape import compatible_dims, format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


@kernel(
    "Identity",
    "StopGradient",
    "PreventGradient",
    "GuaranteeConst",
    "Snapshot",
    device=ANY_DEVICE,
)
def _identity(node: Node, device: Device) -> KernelFunction:
    return _return_value


def _return_value(x: Any) -> Any:
    return x


@kernel("IdentityN", device=ANY_DEVICE)
def _identity_n(node: Node, device: Device) -> KernelFunction:
    if len(node.outputs) == 1:
        return _return_value

    def run(*inputs: Any) -> tuple[Any, ...]:
        return inputs

    return run


@kernel("CheckNumerics")
def _check_numerics(node: Node, device: Device) -> KernelFunction:
    message: str = node.attrs["message"]

    def run(x: Any) -> Any:
        # The sum is finite unless an element is not, or large ones overflow: then look closely.
        if not np.isfinite(np.sum(widen_value(x))):
            values = widen_value(x)
            result = [
                label
                for label, test in (("NaN", np.isnan), ("Inf", np.isinf))
                if bool(np.any(test(values)))
            ]
            if result:
                raise errors.InvalidArgumentError(
                    f"{message} : Tensor had {' and '.join(result)} values"
                )
        return x

    return run


@kernel("EnsureShape", device=ARRAY_DEVICE)
def _ensure_shape(node: Node, device: Device) -> KernelFunction:
    attr = node.attrs["shape"]

    def run(x: Any) -> Any:
        if not compatible_dims(x.shape, attr):
            raise errors.InvalidArgumentError(
                f"the shape must be compatible with {format_dims(attr)}, got {format_dims(x.shape)}"
            )
        return x

    return run

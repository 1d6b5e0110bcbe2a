"""Lossy compression of transfers between devices (paper, section 5.5)."""

from __future__ import annotations

__all__ = ["lossy_transfers"]

from collections.abc import Iterable
from typing import Any, Final

from weft_graph.ir import builder
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.device_spec import DeviceSpec
from weft_graph.ir.node import Output
from weft_tensor import dtypes, errors

LOSSY: Final = "_lossy_transfers"
"""Attribute of an Identity: the devices to which its value may be sent compressed."""


def lossy_transfers(
    value: Any, devices: str | Iterable[str] | None = None, name: str | None = None
) -> Output:
    """Allow a value to be sent to other devices with half of its bits.

    The lower 16 bits of each float32 are dropped by the sender and replaced by zeros by the
    receiver. The relative error is below 2**-7, toward zero; infinities and NaNs are preserved.
    Uses on the same device, and uses of `value` instead of the result, are not affected. To
    compress all float32 transfers of a session, set `GraphOptions.enable_bfloat16_sendrecv`.

    Args:
      value: float32, any shape.
      devices: full or partial names of the receiving devices that may get compressed values
        ("/gpu:0", "/job:worker"); all by default.
    Returns: the same value on the device of `value`, regardless of the current device scope.
    Raises:
      InvalidTypeError: it is not float32.
      InvalidArgumentError: a device's name is malformed.

    Examples:
      >>> x = wf.constant([1.0, 2.0])
      >>> with wf.device("/cpu:0"):
      ...     y = 2.0 * wf.lossy_transfers(x, "/gpu:0")
      >>> wf.Session().run(y)
      array([2., 4.], dtype=float32)
    """
    value = convert_to_tensor(value)
    if value.dtype.base_dtype is not dtypes.float32:
        raise errors.InvalidTypeError(
            f"only float32 can be sent with lossy compression, got {value.dtype.name}: {value.name}"
        )
    names = [devices] if isinstance(devices, str) else list(devices or [""])
    specs = [DeviceSpec.from_string(device_name).to_string().encode() for device_name in names]
    graph = value.graph
    with graph.colocate_with(None, ignore_existing=True), graph.device(None):
        return builder.out("Identity", [value], {LOSSY: specs}, name)

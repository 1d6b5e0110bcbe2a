"""Permission to lose precision in transfers between devices (paper, section 5.5)."""

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
"""Attribute of an Identity: the devices to which its value may be sent with fewer bits."""


def lossy_transfers(
    value: Any, devices: str | Iterable[str] | None = None, name: str | None = None
) -> Output:
    """Let a value be sent to other devices with half of its bits.

    The lower half of each float32's mantissa is cut off before it is sent, and zeros are put in its
    place where it arrives: the value is off by less than 2**-7 of itself, towards zero; infinities
    and NaNs stay what they are.  Where a value does not leave its device, nothing changes, and what
    uses `value` itself, rather than what this returns, gets it whole.  For all float32 values of a
    session there is `GraphOptions.enable_bfloat16_sendrecv`.

    Args:
      value: float32, any shape.
      devices: the receiving devices for which it holds, in part or whole ("/gpu:0",
        "/job:worker"); all by default.
    Returns: the same value, where `value` is, whatever device is asked for around the call.
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

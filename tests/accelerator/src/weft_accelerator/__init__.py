"""A simulated accelerator: a device that is added to weft from outside."""

from __future__ import annotations

from weft_accelerator.array import DeviceArray
from weft_accelerator.hardware import Accelerator, Limits, accelerator, plug_in

__all__ = ["Accelerator", "DeviceArray", "Limits", "accelerator", "plug_in"]

"""Selection of transfers for lossy compression, which sends half of the bits."""

from __future__ import annotations

from collections.abc import Callable

from weft_graph.ir.device_spec import DeviceSpec
from weft_graph.ir.node import Output
from weft_graph.ir.transfers import LOSSY
from weft_tensor import dtypes

Lossy = Callable[[Output, str, str], bool]
"""Predicate of a value and two devices: True if the transfer may lose precision."""


def nothing_is_lossy(value: Output, source: str, target: str) -> bool:
    """Return False: no transfer is lossy."""
    return False


def lossy_where_asked(all_edges: bool, able: Callable[[str], bool]) -> Lossy:
    """Return the predicate that selects transfers for lossy compression.

    Args:
      all_edges: True to select all float32 values, False for those of `lossy_transfers` only.
      able: predicate of a device, True if it has kernels that compress and decompress.
    """

    def lossy(value: Output, source: str, target: str) -> bool:
        if value.dtype.base_dtype is not dtypes.float32:
            return False
        requested = all_edges or any(
            DeviceSpec.from_string(spec.decode()).matches(DeviceSpec.from_string(target))
            for spec in value.node.attrs.get(LOSSY, ())
        )
        return requested and able(source) and able(target)

    return lossy

"""Storage of a written model's constants: in the message, or in a file next to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from onnx import TensorProto, numpy_helper

from weft_io.onnx.element_types import onnx_type
from weft_io.onnx.export_graph import Value, num_bytes
from weft_tensor import errors

MAX_EMBEDDED_BYTES: Final = 2**31 - 2**24
"""Maximum size of the constants in a message; protobuf messages are below 2 GiB."""

_SMALL: Final = 1024
"""Maximum size in bytes of constants that stay in the message, where shape inference reads them."""

_ALIGNMENT: Final = 4096
"""Alignment of constants in the file in bytes, so that they can be memory-mapped."""


@dataclass
class Placement:
    """The locations of constants; constants without an offset are in the message.

    Attributes:
      name: name of the file next to the model.
      offsets: offsets of the constants in it, in order.
    """

    name: str = ""
    offsets: dict[Value, int] = field(default_factory=dict)


def assign_locations(constants: Sequence[Value], path: Path | None) -> Placement:
    """Choose the locations of constants.

    Args:
      path: path of the model if large constants may be stored in a file next to it.
    Raises:
      ResourceExhaustedError: the constants are too large for one message.
    """
    total = sum(num_bytes(item) for item in constants)
    if path is None:
        if total > MAX_EMBEDDED_BYTES:
            raise errors.ResourceExhaustedError(
                f"a model in one file can have at most {MAX_EMBEDDED_BYTES} bytes of constants, "
                f"got {total}: "
                "write it with external_data=True"
            )
        return Placement()
    result, end = Placement(path.name + ".data"), 0
    for value in constants:
        if num_bytes(value) > _SMALL and not _is_text(value):
            result.offsets[value] = end
            end += -(-num_bytes(value) // _ALIGNMENT) * _ALIGNMENT
    return result


def _is_text(value: Value) -> bool:
    return value.array is not None and value.array.dtype.kind in "OSU"


def to_proto(value: Value, placement: Placement) -> TensorProto:
    """Convert a constant to a message, without its elements if they are in the file."""
    assert value.array is not None
    if value not in placement.offsets:
        return numpy_helper.from_array(value.array, value.name)
    kind = onnx_type(value.dtype)
    result = TensorProto(name=value.name, data_type=kind, dims=value.array.shape)
    result.data_location = TensorProto.EXTERNAL
    entries = {
        "location": placement.name,
        "offset": placement.offsets[value],
        "length": len(_raw(value)),
    }
    for key, entry in entries.items():
        result.external_data.add(key=key, value=str(entry))
    return result


def _raw(value: Value) -> bytes:
    assert value.array is not None
    return numpy_helper.from_array(value.array).raw_data


def write(placement: Placement, path: Path) -> None:
    """Write the file with the constants, if there are any.

    It replaces an older file only when complete, because constants may be mapped from the old one.
    """
    if not placement.offsets:
        return
    part = path.with_name(f"{placement.name}.part")
    try:
        with part.open("wb") as file:
            for value, offset in placement.offsets.items():
                file.seek(offset)
                file.write(_raw(value))
        part.replace(path.with_name(placement.name))
    finally:
        part.unlink(missing_ok=True)

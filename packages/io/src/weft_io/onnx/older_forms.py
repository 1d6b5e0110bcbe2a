"""Forms of ops in older opsets, with attributes instead of inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from weft_graph.ir.node import Node
from weft_io.onnx.export_graph import Value
from weft_tensor import dtypes, errors

_REDUCE: Final = """ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin
    ReduceProd ReduceSumSquare"""
_ATTRIBUTES: Final[Mapping[str, tuple[int, Sequence[str]]]] = {
    **dict.fromkeys(_REDUCE.split(), (18, ["axes"])),
    "Clip": (11, ["min", "max"]),
    "Pad": (11, ["pads", "value"]),
    "ReduceSum": (13, ["axes"]),
    "Slice": (10, ["starts", "ends", "axes", "steps"]),
    "Split": (13, ["split"]),
    "Squeeze": (13, ["axes"]),
    "TopK": (10, ["k"]),
    "Unsqueeze": (13, ["axes"]),
}
"""By op, the opset since which attributes are inputs, and the attributes, from the second input."""

_NUMBERS: Final = frozenset({"k", "max", "min", "value"})
"""Attributes with a single number."""

_NEWER: Final[Mapping[str, tuple[int, str]]] = {
    "Reshape": (14, "allowzero"),
    "Split": (18, "num_outputs"),
}
"""Attributes that older opsets lack and do not need."""

_NEGATIVE_AXES: Final = 11
"""The first opset with negative axes."""

_EXTREMES_BROADCAST: Final = 8
"""The first opset in which Max and Min broadcast."""

Form = tuple[list[Value | None], dict[str, Any]]


def to_older_form(
    op: str, opset: int, inputs: Sequence[Value | None], values: Mapping[str, Any]
) -> Form:
    """Return the inputs and attributes of an op in the form of an opset.

    Raises: UnimplementedError: an input is not a constant, so it cannot become an attribute.
    """
    result, attributes = list(inputs), {k: v for k, v in values.items() if v is not None}
    since_version, name = _NEWER.get(op, (0, ""))
    if opset < since_version:
        attributes.pop(name, None)
    since_version, names = _ATTRIBUTES.get(op, (0, ()))
    if opset < since_version:
        for name, value in zip(names, result[1:], strict=False):
            if value is not None:
                attributes[name] = _attribute(op, opset, name, value)
        result = result[:1]
        if np.any(np.asarray(attributes.pop("steps", 1)) != 1):
            raise errors.UnimplementedError(
                f"opset {opset} of ONNX does not support steps of slices"
            )
    if op == "Resize" and opset < 13:
        empty = Value(dtypes.float32, array=np.zeros(0, np.float32))
        result = [empty if item is None else item for item in result]
    return result, attributes


def _attribute(op: str, opset: int, name: str, value: Value) -> Any:
    if value.array is None:
        raise errors.UnimplementedError(
            f"opset {opset} of ONNX requires {name} of {op} to be a constant"
        )
    return value.array.item() if name in _NUMBERS else value.array.reshape(-1).tolist()


def check(op: str, opset: int, attributes: Mapping[str, Any], node: Node) -> None:
    """Raise UnimplementedError if an op has another meaning in an older opset.

    Args:
      node: the graph's node that is being exported.
    """
    if op in ("Max", "Min") and opset < _EXTREMES_BROADCAST:
        shapes = {source.dims for source in node.inputs}
        if len(shapes) > 1 or None in shapes or any(None in dims for dims in shapes if dims):
            raise errors.UnimplementedError(f"{op} of opset {opset} of ONNX does not broadcast")
    axes = np.asarray([attributes.get("axis", 0), *attributes.get("axes", ())])
    if opset < _NEGATIVE_AXES and np.any(axes < 0):
        raise errors.UnimplementedError(f"opset {opset} of ONNX counts axes of {op} from the front")

"""Gradients of batch normalization by cuDNN; see `cudnn.py` for graphs.

Only gradients use cuDNN, because its engines read an image once and the generated kernels twice.
The forward graph of cuDNN returns only 1 / sqrt(variance + epsilon), from which the variances
cannot be computed accurately enough. With given statistics, both ways take one pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.gpu.cudnn import Cudnn, Sizes, element_type, library_of
from weft_graph.ops.windows import channel_axis

if TYPE_CHECKING:
    from weft_exec.devices.device import Device

_FLOAT = np.dtype(np.float32)


def _nchw_layout(shape: Sizes, data_format: str) -> tuple[list[int], list[int]]:
    """Return sizes and strides in elements of a C-order array, in cuDNN's order (N, C, ...)."""
    axis = channel_axis(data_format) % len(shape)
    steps = [1]
    for size in reversed(shape[1:]):
        steps.append(steps[-1] * size)
    steps.reverse()
    order = [0, axis, *(axis_index for axis_index in range(1, len(shape)) if axis_index != axis)]
    return [shape[axis_index] for axis_index in order], [steps[axis_index] for axis_index in order]


class _Gradients:
    """The gradient graphs of one node."""

    def __init__(self, library: Cudnn, data_format: str, dtype: np.dtype[Any]) -> None:
        self.library = library
        self.data_format = data_format
        self.dtype = dtype

    def build(self, graph: Any, shape: Sizes) -> dict[str, Any]:
        """Build the graph for inputs of a shape; return its tensors by name."""
        module = self.library.module
        sizes, steps = _nchw_layout(shape, self.data_format)
        channels, unit_sizes = sizes[1], [1] * (len(sizes) - 2)
        flat, flat_steps = [1, channels, *unit_sizes], [channels, 1, *[channels] * len(unit_sizes)]
        image_type, kind = element_type(module, self.dtype), element_type(module, _FLOAT)
        images = {"dim": sizes, "stride": steps, "data_type": image_type}
        vectors = {"dim": flat, "stride": flat_steps, "data_type": kind}
        named = {name: graph.tensor(name=name, **images) for name in ("grad", "x")}
        for name in ("scale", "mean", "inverse"):
            named[name] = graph.tensor(name=name, **vectors)
        result = graph.batchnorm_backward(
            grad=named["grad"],
            input=named["x"],
            scale=named["scale"],
            mean=named["mean"],
            inv_variance=named["inverse"],
        )
        for name, tensor in zip(("by_x", "by_scale", "by_offset"), result, strict=True):
            template = images if name == "by_x" else vectors
            tensor.set_output(True).set_data_type(template["data_type"])
            tensor.set_dim(template["dim"]).set_stride(template["stride"])
            named[name] = tensor
        return named

    def run(self, **values: Any) -> None:
        """Execute the graph on arrays in C order by the names of its tensors."""
        shape = values["x"].shape
        key = ("batchnorm_backward", self.dtype.str, self.data_format, shape)
        self.library.run(key, lambda graph: self.build(graph, shape), values)


def gradients(
    device: Device, data_format: str, dtype: np.dtype[Any], kind: np.dtype[Any]
) -> Callable[..., None] | None:
    """Return the function of gradients in training mode; None if cuDNN is not available.

    Args:
      dtype: the element type of the image.
      kind: the element type of the vectors.
    Returns: a function of arrays in C order. Its inputs are grad, x, scale, mean and inverse, which
      is 1 / sqrt(variance + epsilon); its outputs are by_x, by_scale and by_offset.
    """
    if dtype not in (np.dtype(np.float16), _FLOAT) or kind != _FLOAT:
        return None
    library = library_of(device)
    return None if library is None else _Gradients(library, data_format, dtype).run

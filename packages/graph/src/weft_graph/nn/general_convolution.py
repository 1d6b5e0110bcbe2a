"""Transposed convolutions over one to three axes, and window ops with dilation."""

from __future__ import annotations

__all__ = ["conv_transpose", "with_space_to_batch"]

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.node import Output
from weft_graph.nn.convolution import conv1d_transpose, conv2d_transpose
from weft_graph.ops import shapes
from weft_graph.ops.conv import conv3d_transpose
from weft_graph.ops.masks import required_space_to_batch_paddings
from weft_graph.ops.space_to_batch import batch_to_space_nd, space_to_batch_nd
from weft_tensor import errors
from weft_tensor.shape import format_dims


def conv_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Any,
    padding: Any = "SAME",
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
) -> Output:
    """Compute the transpose of a convolution over one, two or three spatial axes.

    Args:
      input: floating, shape (N, S..., C), or (N, C, S...) for a `data_format` of that form.
      filters: same dtype, shape (K..., O, C).
      output_shape: int32, one size for each axis of `input`; its length must be static.
      strides: one number, or one per spatial axis.
      padding: "SAME" or "VALID".
      data_format: "NWC", "NHWC", "NDHWC", "NCW", "NCHW" or "NCDHW"; channels are last by default.
      dilations: in the same form as `strides`.
    Returns: shape `output_shape`.
    Raises: InvalidArgumentError: the number of axes is wrong, or the shapes do not match.

    Examples:
      >>> signal, kernel = wf.ones([1, 3, 2]), wf.ones([2, 4, 2])
      >>> wf.nn.conv_transpose(signal, kernel, [1, 6, 4], strides=2).shape
      TensorShape([Dimension(1), Dimension(6), Dimension(4)])
    """
    sizes = output_shape
    if not isinstance(output_shape, list | tuple | np.ndarray):
        sizes = convert_to_tensor(output_shape)
        if sizes.dims is None or len(sizes.dims) != 1 or sizes.dims[0] is None:
            raise errors.InvalidArgumentError(
                "conv_transpose requires an output_shape of known length, got shape "
                f"{format_dims(sizes.dims)}"
            )
        spatial = sizes.dims[0] - 2
    else:
        spatial = len(output_shape) - 2
    functions: dict[int, Callable[..., Output]] = {
        1: conv1d_transpose,
        2: conv2d_transpose,
        3: conv3d_transpose,
    }
    if spatial not in functions:
        raise errors.InvalidArgumentError(
            f"conv_transpose requires an output_shape of 3 to 5 sizes, got {spatial + 2}"
        )
    layouts = {1: "NWC", 2: "NHWC", 3: "NDHWC"}
    return functions[spatial](
        input,
        filters,
        sizes,
        strides,
        padding,
        data_format=data_format or layouts[spatial],
        dilations=dilations,
        name=name or "conv_transpose",
    )


def with_space_to_batch(
    input: Any,
    dilation_rate: Any,
    padding: str,
    op: Callable[[Output, int, str], Any],
    filter_shape: Any = None,
    spatial_dims: Sequence[int] | None = None,
    data_format: str | None = None,
) -> Any:
    """Apply a window op with dilation, by moving space to the batch and back.

    Args:
      input: any dtype, shape (N, ...).
      dilation_rate: int32, one for each spatial axis.
      padding: "SAME" or "VALID".
      op: called with the regrouped input, the number of spatial axes, and "VALID", or `padding` if
        all rates are 1.
      filter_shape: int32, the sizes of the window along the spatial axes; required for "SAME".
      spatial_dims: the spatial axes in increasing order; by default the first ones after the batch
        axis, or after the channels for a `data_format` such as "NCHW".
    Returns: the result of `op`, with space moved back from the batch.
    Raises: InvalidArgumentError: the axes, rates or padding are invalid.

    Examples:
      >>> x = wf.reshape(wf.range(6.0), [1, 6, 1])
      >>> pairs = lambda x, axes, padding: wf.nn.pool(x, [2], "AVG", padding)
      >>> wf.Session().run(wf.nn.with_space_to_batch(x, [2], "VALID", pairs))[0, :, 0]
      array([1., 2., 3., 4.], dtype=float32)
    """
    value = convert_to_tensor(input)
    rates = _require_static(dilation_rate, "dilation_rate")
    first = 2 if data_format is not None and data_format.startswith("NC") else 1
    axes = list(spatial_dims) if spatial_dims is not None else None
    axes = sorted(axes) if axes is not None else list(range(first, first + len(rates)))
    if len(axes) != len(rates) or axes[0] < 1 or padding.upper() not in ("SAME", "VALID"):
        raise errors.InvalidArgumentError(
            "with_space_to_batch requires one rate for each spatial axis after the batch axis, and "
            f"padding 'SAME' or 'VALID', got rates {rates}, axes {axes} and {padding!r}"
        )
    if all(rate == 1 for rate in rates):
        return op(value, len(rates), padding)
    base_paddings = [(0, 0)] * len(rates)
    if padding.upper() == "SAME":
        if filter_shape is None:
            raise errors.InvalidArgumentError(
                "with_space_to_batch requires filter_shape for padding 'SAME', got None"
            )
        window = _require_static(filter_shape, "filter_shape")
        reach = [(k - 1) * rate for k, rate in zip(window, rates, strict=False)]
        base_paddings = [(total // 2, total - total // 2) for total in reach]
    last = axes[-1]
    block, base = [1] * last, [(0, 0)] * last
    for axis, rate, ends in zip(axes, rates, base_paddings, strict=True):
        block[axis - 1], base[axis - 1] = rate, ends
    sizes = shapes.shape(value)[1 : last + 1]
    pads, crops = required_space_to_batch_paddings(sizes, block, base)
    result = op(space_to_batch_nd(value, block, pads), len(rates), "VALID")
    return batch_to_space_nd(result, block, crops)


def _require_static(value: Any, label: str) -> list[int]:
    """Return the entries of a vector, which must be static."""
    static = constant_value(convert_to_tensor(value))
    if static is None or static.ndim != 1 or static.size == 0 or static.min() < 1:
        raise errors.InvalidArgumentError(
            f"with_space_to_batch requires {label} of known positive numbers, got {static}"
        )
    return [int(entry) for entry in static]

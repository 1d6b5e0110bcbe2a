"""Pooling and its gradients."""

from __future__ import annotations

__all__ = [
    "avg_pool",
    "avg_pool2d",
    "avg_pool3d",
    "max_pool",
    "max_pool2d",
    "max_pool3d",
    "max_pool_with_argmax",
]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, create, out
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.named_results import named_results
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import Traits
from weft_graph.ops import cost_rules
from weft_graph.ops.conv import expand
from weft_graph.ops.shape_rules import vector_as_dims, with_rank
from weft_graph.ops.windows import require_rank, slide_dims
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims, format_dims, merge_dims

# ------------------------------------------------------------------------- shape rules


def pooled_dims(op: str, node: NodeSpec, x: Dims) -> Dims:
    """Return the output shape of pooling; windows may span any axis."""
    rank = len(node.attrs.get("data_format", "NHWC"))
    x = require_rank(op, "input", x, rank)
    ksize, strides = _window(node)
    if ksize is None or strides is None:
        return (None,) * rank
    check_window(op, rank, ksize, strides)
    dilations = (1,) * rank
    return tuple(slide_dims(x, ksize, strides, dilations, node.attrs["padding"], ((0, 0),) * rank))


def _window(node: NodeSpec) -> tuple[Any, Any]:
    """Return the static sizes and strides of windows, from attributes or the last two inputs."""
    if "ksize" in node.attrs:
        return node.attrs["ksize"], node.attrs["strides"]
    static_values = [constant_value(value) for value in node.inputs[-2:]]
    ksize, strides = (None if value is None else value.tolist() for value in static_values)
    return ksize, strides


def check_window(op: str, rank: int, ksize: Any, strides: Any) -> None:
    """Check that there is a positive size and stride for each axis.

    Args:
      ksize, strides: sequences of integers; if the window is an input, its value as nested lists.
    """
    for key, values in (("ksize", ksize), ("strides", strides)):
        numbers = list(values) if isinstance(values, Sequence) else []
        if len(numbers) != rank or not all(isinstance(n, int) and n > 0 for n in numbers):
            raise errors.InvalidArgumentError(
                f"{op} requires {key} of {rank} positive numbers, got {values}"
            )


def _pool_rule(op: str, outputs: int = 1) -> Any:
    def rule(node: NodeSpec) -> Sequence[Dims]:
        return (pooled_dims(op, node, node.inputs[0].dims),) * outputs

    return rule


def _max_grad_rule(op: str) -> Any:
    """Shape rule: (orig_input, orig_output, gradient of the output) to the input's shape."""

    def rule(node: NodeSpec) -> Sequence[Dims]:
        x, y, grad = [value.dims for value in node.inputs[:3]]
        expected = pooled_dims(op, node, x)
        for argument, actual in (("orig_output", y), ("grad", grad)):
            _require(op, argument, expected, actual)
        return (require_rank(op, "orig_input", x, len(node.attrs["data_format"])),)

    return rule


def _max_grad_grad_rule(op: str) -> Any:
    """Shape rule: (orig_input, orig_output, gradient of the input) to the output's shape."""

    def rule(node: NodeSpec) -> Sequence[Dims]:
        x, y, grad = [value.dims for value in node.inputs[:3]]
        _require(op, "grad", x, grad)
        expected = pooled_dims(op, node, merge_dims(x, grad))
        _require(op, "orig_output", expected, y)
        return (merge_dims(expected, y),)

    return rule


def _require(op: str, label: str, expected: Dims, dims: Dims) -> None:
    try:
        merge_dims(expected, dims)
    except errors.InvalidArgumentError:
        raise errors.InvalidArgumentError(
            f"{op} requires {label} of shape {format_dims(expected)}, got {format_dims(dims)}"
        ) from None


def _avg_grad_rule(op: str) -> Any:
    """Shape rule: (orig_input_shape, gradient) to that shape."""

    def rule(node: NodeSpec) -> Sequence[Dims]:
        rank = len(node.attrs["data_format"])
        sizes = vector_as_dims(node.inputs[0], "orig_input_shape")
        x = require_rank(op, "orig_input_shape for a shape", sizes, rank)
        _require(op, "grad", pooled_dims(op, node, x), node.inputs[1].dims)
        return (x,)

    return rule


def _argmax_grad_rule(node: NodeSpec) -> Sequence[Dims]:
    x, grad, argmax = [value.dims for value in node.inputs]
    expected = pooled_dims("MaxPoolGradWithArgmax", node, x)
    _require("MaxPoolGradWithArgmax", "grad", expected, grad)
    _require("MaxPoolGradWithArgmax", "argmax", expected, argmax)
    return (require_rank("MaxPoolGradWithArgmax", "input", x, 4),)


# ------------------------------------------------------------------------ declarations

_WINDOW = {
    "ksize": "list(int) >= 4",
    "strides": "list(int) >= 4",
    "padding": "{'SAME', 'VALID'}",
}
_MAX = {**_WINDOW, "data_format": "{'NHWC', 'NCHW'} = 'NHWC'", "T": "{realnumbertype} = float32"}
_AVG = {**_MAX, "T": "{float16, bfloat16, float32, float64}"}
_3D = {
    "ksize": "list(int) >= 5",
    "strides": "list(int) >= 5",
    "data_format": "{'NDHWC', 'NCDHW'} = 'NDHWC'",
    "T": "{float16, bfloat16, float32, float64}",
}
_ARGMAX = {
    **_WINDOW,
    "Targmax": "{int32, int64} = int64",
    "include_batch_in_index": "bool = false",
    "T": "{realnumbertype}",
}

for _op, _attrs in (("MaxPool", _MAX), ("MaxPool3D", _MAX | _3D)):
    register_op(
        _op,
        ("input: T",),
        ("output: T",),
        _attrs,
        _pool_rule(_op),
        traits=Traits(
            cost=cost_rules.pool(None),
            cost_attrs=(
                "ksize",
                "strides",
                "padding",
                "data_format",
            ),
        ),
        doc="Maximum of each window.",
    )
    register_op(
        f"{_op}Grad",
        ("orig_input: T", "orig_output: T", "grad: T"),
        ("output: T",),
        _attrs,
        _max_grad_rule(f"{_op}Grad"),
        traits=Traits(
            cost=cost_rules.pool(2),
            cost_attrs=(
                "ksize",
                "strides",
                "padding",
                "data_format",
            ),
        ),
        doc="Gradient of max pooling, for the first maximum of each window.",
    )
    register_op(
        f"{_op}GradGrad",
        ("orig_input: T", "orig_output: T", "grad: T"),
        ("output: T",),
        _attrs,
        _max_grad_grad_rule(f"{_op}GradGrad"),
        traits=Traits(
            cost=cost_rules.pool(None),
            cost_attrs=(
                "ksize",
                "strides",
                "padding",
                "data_format",
            ),
        ),
        doc="Second gradient of max pooling: `grad` at the first maximum of each window.",
    )
_WINDOW_INPUTS = ("ksize: int32", "strides: int32")
_MAX_V2 = {key: _MAX[key] for key in ("padding", "data_format", "T")}
register_op(
    "MaxPoolV2",
    ("input: T", *_WINDOW_INPUTS),
    ("output: T",),
    _MAX_V2,
    _pool_rule("MaxPoolV2"),
    doc="Maximum of each window, whose size is an input.",
)
register_op(
    "MaxPoolGradV2",
    ("orig_input: T", "orig_output: T", "grad: T", *_WINDOW_INPUTS),
    ("output: T",),
    _MAX_V2,
    _max_grad_rule("MaxPoolGradV2"),
    doc="Gradient of MaxPoolV2, for the first maximum of each window.",
)
register_op(
    "MaxPoolGradGradV2",
    ("orig_input: T", "orig_output: T", "grad: T", *_WINDOW_INPUTS),
    ("output: T",),
    _MAX_V2,
    _max_grad_grad_rule("MaxPoolGradGradV2"),
    doc="Second gradient of MaxPoolV2: `grad` at the first maximum of each window.",
)
for _op, _input, _attrs in (("AvgPool", "value", _AVG), ("AvgPool3D", "input", _AVG | _3D)):
    register_op(
        _op,
        (f"{_input}: T",),
        ("output: T",),
        _attrs,
        _pool_rule(_op),
        traits=Traits(
            cost=cost_rules.pool(None),
            cost_attrs=(
                "ksize",
                "strides",
                "padding",
                "data_format",
            ),
        ),
        doc="Mean of each window; padding is ignored.",
    )
    register_op(
        f"{_op}Grad",
        ("orig_input_shape: int32", "grad: T"),
        ("output: T",),
        _attrs,
        _avg_grad_rule(f"{_op}Grad"),
        traits=Traits(
            cost=cost_rules.pool(1),
            cost_attrs=(
                "ksize",
                "strides",
                "padding",
                "data_format",
            ),
        ),
        doc="Gradient of average pooling.",
    )
register_op(
    "MaxPoolWithArgmax",
    ("input: T",),
    ("output: T", "argmax: Targmax"),
    _ARGMAX,
    _pool_rule("MaxPoolWithArgmax", 2),
    traits=Traits(
        cost=cost_rules.pool(None),
        cost_attrs=(
            "ksize",
            "strides",
            "padding",
            "data_format",
        ),
    ),
    doc="Maximum of each window, and its flat index in the image.",
)
register_op(
    "MaxPoolGradWithArgmax",
    ("input: T", "grad: T", "argmax: Targmax"),
    ("output: T",),
    _ARGMAX,
    _argmax_grad_rule,
    traits=Traits(
        cost=cost_rules.pool_argmax,
        cost_attrs=(
            "ksize",
            "strides",
            "padding",
            "data_format",
        ),
    ),
    doc="Gradient of MaxPoolWithArgmax.",
)

# --------------------------------------------------------------------------- functions


def _pool(
    op: str, value: Any, ksize: Any, strides: Any, padding: str, data_format: str, name: str | None
) -> Output:
    spatial = len(data_format) - 2
    attrs = {
        "ksize": expand(ksize, "ksize", spatial, data_format),
        "strides": expand(strides, "strides", spatial, data_format),
        "padding": padding.upper(),
        "data_format": data_format,
    }
    return out(op, [value], attrs, name)


def _to_static_sizes(sizes: Any) -> Any:
    """Return sizes as numbers if they are static, else as a tensor."""
    if isinstance(sizes, list | tuple) and any(isinstance(size, Output) for size in sizes):
        sizes = convert_to_tensor(sizes)
    static = constant_value(sizes) if isinstance(sizes, Output) else None
    return sizes if static is None else static.tolist()


def _to_vector(sizes: Any, label: str, data_format: str) -> Output:
    """Return sizes with one entry per axis, as an int32 vector."""
    if not isinstance(sizes, Output):
        return convert_to_tensor(expand(sizes, label, 2, data_format), dtypes.int32)
    with_rank(sizes.dims, 1, f"{label} as a tensor")
    result: Output = out("Cast", [sizes], {"DstT": dtypes.int32})
    return result


def max_pool(
    value: Any = None,
    ksize: Any = None,
    strides: Any = None,
    padding: Any = None,
    data_format: str = "NHWC",
    name: str | None = None,
    input: Any = None,
) -> Output:
    """Return the maximum of each window.

    Args:
      value: real, shape (N, H, W, C) or (N, C, H, W); also `input`.
      ksize: size of the window: one number, (KH, KW), one per axis, or an int32 tensor of these.
      strides: in the same form as `ksize`.
      padding: "SAME" or "VALID"; padding is ignored by the maximum.
      data_format: "NHWC" or "NCHW".
    Returns: shape (N, H', W', C) in the layout of `value`.
    Raises: InvalidArgumentError: the window is too large.

    Examples:
      >>> image = wf.reshape(wf.range(16.0), [1, 4, 4, 1])
      >>> wf.Session().run(wf.nn.max_pool(image, 2, 2, "VALID"))[0, :, :, 0]
      array([[ 5.,  7.],
             [13., 15.]], dtype=float32)
    """
    value = convert_to_tensor(input if value is None else value)
    ksize, strides = _to_static_sizes(ksize), _to_static_sizes(strides)
    if isinstance(ksize, Output) or isinstance(strides, Output):
        window = [
            _to_vector(sizes, argument, data_format)
            for sizes, argument in ((ksize, "ksize"), (strides, "strides"))
        ]
        attrs = {"padding": padding.upper(), "data_format": data_format}
        return out("MaxPoolV2", [value, *window], attrs, name)
    return _pool("MaxPool", value, ksize, strides, padding, data_format, name)


def avg_pool(
    value: Any = None,
    ksize: Any = None,
    strides: Any = None,
    padding: Any = None,
    data_format: str = "NHWC",
    name: str | None = None,
    input: Any = None,
) -> Output:
    """Return the mean of each window, over the positions inside the input only.

    Args:
      value: floating, shape (N, H, W, C) or (N, C, H, W); also `input`.
      ksize, strides, padding, data_format: as for `max_pool`.
    Returns: shape (N, H', W', C) in the layout of `value`.
    Raises: InvalidArgumentError: the window is too large.

    Examples:
      >>> image = wf.reshape(wf.range(16.0), [1, 4, 4, 1])
      >>> wf.Session().run(wf.nn.avg_pool(image, 2, 2, "VALID"))[0, :, :, 0]
      array([[ 2.5,  4.5],
             [10.5, 12.5]], dtype=float32)
    """
    value = convert_to_tensor(input if value is None else value)
    return _pool("AvgPool", value, ksize, strides, padding, data_format, name)


def max_pool3d(
    input: Any,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str = "NDHWC",
    name: str | None = None,
) -> Output:
    """Return the maximum of each window of a volume.

    Args:
      input: floating, shape (N, D, H, W, C) or (N, C, D, H, W).
      ksize, strides: one, three or five numbers.
      padding: "SAME" or "VALID".
      data_format: "NDHWC" or "NCDHW".
    Raises: InvalidArgumentError: the window is too large.

    Examples:
      >>> volume = wf.reshape(wf.range(8.0), [1, 2, 2, 2, 1])
      >>> wf.Session().run(wf.nn.max_pool3d(volume, 2, 2, "VALID")).ravel()
      array([7.], dtype=float32)
    """
    value = convert_to_tensor(input)
    return _pool("MaxPool3D", value, ksize, strides, padding, data_format, name)


def avg_pool3d(
    input: Any,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str = "NDHWC",
    name: str | None = None,
) -> Output:
    """Return the mean of each window of a volume.

    Args:
      input: floating, shape (N, D, H, W, C) or (N, C, D, H, W).
      ksize, strides, padding, data_format: as for `max_pool3d`.
    Returns: shape (N, D', H', W', C) in the layout of `input`.
    Raises: InvalidArgumentError: the window is too large.

    Examples:
      >>> volume = wf.reshape(wf.range(8.0), [1, 2, 2, 2, 1])
      >>> wf.Session().run(wf.nn.avg_pool3d(volume, 2, 2, "VALID")).ravel()
      array([3.5], dtype=float32)
    """
    value = convert_to_tensor(input)
    return _pool("AvgPool3D", value, ksize, strides, padding, data_format, name)


def max_pool_with_argmax(
    input: Any,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str = "NHWC",
    Targmax: Any = None,
    name: str | None = None,
    output_dtype: Any = None,
    include_batch_in_index: bool = False,
) -> tuple[Output, Output]:
    """Return the maximum of each window, and its index.

    Args:
      input: real, shape (N, H, W, C).
      ksize, strides, padding: as for `max_pool`.
      data_format: "NHWC" only.
      Targmax: int64 (the default) or int32; also `output_dtype`.
      include_batch_in_index: count indices from the start of the batch, not of the image.
    Returns: the maxima, shape (N, H', W', C), and (y * W + x) * C + c for each, same shape.
    Raises: InvalidArgumentError: the layout is not NHWC, or the window does not fit.

    Examples:
      >>> image = wf.reshape(wf.range(4.0), [1, 2, 2, 1])
      >>> window = [1, 2, 2, 1]
      >>> wf.Session().run(wf.nn.max_pool_with_argmax(image, window, window, "VALID"))[1]
      array([[[[3]]]])
    """
    if data_format != "NHWC":
        raise errors.InvalidArgumentError(
            f"max_pool_with_argmax requires data_format 'NHWC', got {data_format!r}"
        )
    attrs = {
        "ksize": expand(ksize, "ksize", 2, data_format),
        "strides": expand(strides, "strides", 2, data_format),
        "padding": padding.upper(),
        "Targmax": output_dtype or Targmax or dtypes.int64,
        "include_batch_in_index": include_batch_in_index,
    }
    node = create("MaxPoolWithArgmax", [convert_to_tensor(input)], attrs, name)
    pooled: tuple[Output, Output] = named_results(node)
    return pooled


def max_pool_grad(
    orig_input: Any,
    orig_output: Any,
    grad: Any,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str = "NHWC",
    name: str | None = None,
) -> Output:
    """Return the gradient of `max_pool` with respect to its input, at each window's first maximum.

    Raises: InvalidArgumentError: the shapes do not match.
    """
    attrs = {
        "ksize": expand(ksize, "ksize", 2, data_format),
        "strides": expand(strides, "strides", 2, data_format),
        "padding": padding.upper(),
        "data_format": data_format,
    }
    return out("MaxPoolGrad", [orig_input, orig_output, grad], attrs, name)


avg_pool2d = avg_pool
max_pool2d = max_pool

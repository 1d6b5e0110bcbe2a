"""Arithmetic of quantized tensors: integers with the ranges of numbers they represent."""

from __future__ import annotations

__all__ = ["quantized_avg_pool", "quantized_conv2d", "quantized_max_pool", "quantized_relu_x"]

from collections.abc import Sequence
from typing import Any, NamedTuple

from weft_graph.ir.builder import create
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, ShapeRule, register_op
from weft_graph.ir.traits import NOT_DIFFERENTIABLE
from weft_graph.ops import shape_rules
from weft_graph.ops.conv import expand
from weft_graph.ops.pool import pooled_dims
from weft_graph.ops.quantization import QUANTIZED
from weft_graph.ops.shape_rules import merge_size, with_rank
from weft_graph.ops.windows import check_attrs, slide_dims
from weft_tensor import dtypes
from weft_tensor.shape import Dims

# ------------------------------------------------------------------------- shape rules


def _with_ranges(op: str, rule: ShapeRule, values: int) -> ShapeRule:
    """Return a shape rule for `values` tensors followed by scalar ranges; it adds a range."""

    def with_range(node: NodeSpec) -> Sequence[Dims]:
        for value in node.inputs[values:]:
            with_rank(value.dims, 0, f"{op}: the ends of ranges")
        return (*rule(node), (), ())

    return with_range


def _conv_dims(node: NodeSpec) -> Sequence[Dims]:
    op = "QuantizedConv2D"
    check_attrs(op, node.attrs, "NHWC", ("strides", "dilations"))
    x = with_rank(node.inputs[0].dims, 4, f"{op}: input")
    taps = with_rank(node.inputs[1].dims, 4, f"{op}: filter")
    merge_size(x[3], taps[2], f"{op}: depth of input and filter")
    steps, gaps = node.attrs["strides"][1:3], node.attrs["dilations"][1:3]
    windows = slide_dims(x[1:3], taps[:2], steps, gaps, node.attrs["padding"], ((0, 0),) * 2)
    return ((x[0], *windows, taps[3]),)


def _pool_rule(op: str) -> ShapeRule:
    return lambda node: (pooled_dims(op, node, node.inputs[0].dims),)


def _bias_add_dims(node: NodeSpec) -> Sequence[Dims]:
    (size,) = with_rank(node.inputs[1].dims, 1, "QuantizedBiasAdd: bias")
    x = node.inputs[0].dims
    if x is None:
        return (None,)
    shape_rules.with_rank_at_least(x, 1, "QuantizedBiasAdd: input")
    return ((*x[:-1], merge_size(x[-1], size, "QuantizedBiasAdd: channels and size of bias")),)


# ------------------------------------------------------------------------ declarations

_WINDOW = {
    "ksize": "list(int) >= 4",
    "strides": "list(int) >= 4",
    "padding": "{'SAME', 'VALID'}",
}


def _ends(*names: str) -> tuple[str, ...]:
    return tuple(f"{end}_{name}: float32" for name in names for end in ("min", "max"))


def _declare(
    op: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    attrs: dict[str, str],
    rule: ShapeRule,
    doc: str,
) -> None:
    values = sum("float32" not in text for text in inputs)
    ranged = _with_ranges(op, rule, values)
    register_op(op, inputs, outputs, attrs, ranged, traits=NOT_DIFFERENTIABLE, doc=doc)


_declare(
    "QuantizedConv2D",
    ("input: Tinput", "filter: Tfilter", *_ends("input", "filter")),
    ("output: out_type", *_ends("output")),
    {
        "Tinput": QUANTIZED,
        "Tfilter": QUANTIZED,
        "out_type": f"{QUANTIZED} = qint32",
        "strides": "list(int) >= 4",
        "padding": "{'SAME', 'VALID'}",
        "dilations": "list(int) = [1, 1, 1, 1]",
    },
    _conv_dims,
    "A convolution of quantized images.",
)
_declare(
    "QuantizedMatMul",
    ("a: T1", "b: T2", *_ends("a", "b")),
    ("out: Toutput", *_ends("out")),
    {
        "T1": QUANTIZED,
        "T2": QUANTIZED,
        "Toutput": f"{QUANTIZED} = qint32",
        "transpose_a": "bool = false",
        "transpose_b": "bool = false",
        "Tactivation": f"{QUANTIZED} = quint8",
    },
    shape_rules.matmul,
    "The product of quantized matrices.",
)
for _op, _doc in (("QuantizedAdd", "x + y."), ("QuantizedMul", "x * y.")):
    _declare(
        _op,
        ("x: T1", "y: T2", *_ends("x", "y")),
        ("z: Toutput", *_ends("z")),
        {"T1": QUANTIZED, "T2": QUANTIZED, "Toutput": f"{QUANTIZED} = qint32"},
        shape_rules.broadcast,
        f"{_doc[:-1]} of quantized tensors.",
    )
_declare(
    "QuantizedBiasAdd",
    ("input: T1", "bias: T2", *_ends("input", "bias")),
    ("output: out_type", *_ends("out")),
    {"T1": QUANTIZED, "T2": QUANTIZED, "out_type": QUANTIZED},
    _bias_add_dims,
    "A quantized bias added to the channels.",
)
for _op, _limit in (("QuantizedRelu", ""), ("QuantizedRelu6", ""), ("QuantizedReluX", "x")):
    _declare(
        _op,
        ("features: Tinput", *(["max_value: float32"] if _limit else []), *_ends("features")),
        ("activations: out_type", *_ends("activations")),
        {"Tinput": QUANTIZED, "out_type": f"{QUANTIZED} = quint8"},
        shape_rules.same_shape,
        "A quantized tensor clipped from below by 0, and by 6 or a number from above.",
    )
for _op in ("QuantizedAvgPool", "QuantizedMaxPool"):
    _declare(
        _op,
        ("input: T", *_ends("input")),
        ("output: T", *_ends("output")),
        {"T": QUANTIZED, **_WINDOW},
        _pool_rule(_op),
        "A pool of quantized images.",
    )
_declare(
    "Requantize",
    (
        "input: Tinput",
        "input_min: float32",
        "input_max: float32",
        "requested_output_min: float32",
        "requested_output_max: float32",
    ),
    ("output: out_type", "output_min: float32", "output_max: float32"),
    {"Tinput": QUANTIZED, "out_type": QUANTIZED},
    shape_rules.same_shape,
    "The integers that stand for the same numbers in another range.",
)
_declare(
    "QuantizeDownAndShrinkRange",
    ("input: Tinput", "input_min: float32", "input_max: float32"),
    ("output: out_type", "output_min: float32", "output_max: float32"),
    {"Tinput": QUANTIZED, "out_type": QUANTIZED},
    shape_rules.same_shape,
    "Narrower integers in the range of the numbers that are there.",
)
_declare(
    "RequantizationRange",
    ("input: Tinput", "input_min: float32", "input_max: float32"),
    ("output_min: float32", "output_max: float32"),
    {"Tinput": QUANTIZED},
    lambda node: (),
    "The range of the numbers that are there.",
)

# --------------------------------------------------------------------------- functions


class Quantized(NamedTuple):
    """Quantized integers, and the range that they represent."""

    output: Output
    min_output: Output
    max_output: Output


class Activations(NamedTuple):
    """Quantized integers, and the range that they represent."""

    activations: Output
    min_activations: Output
    max_activations: Output


def quantized_conv2d(
    input: Any,
    filter: Any,
    min_input: Any,
    max_input: Any,
    min_filter: Any,
    max_filter: Any,
    strides: Any,
    padding: str,
    out_type: Any = dtypes.qint32,
    dilations: Any = (1, 1, 1, 1),
    name: str | None = None,
) -> Quantized:
    """Compute `conv2d` of quantized images; integer products are summed without rounding.

    Args:
      input: a quantized type such as quint8, shape (N, H, W, C).
      filter: a quantized type, shape (KH, KW, C, O).
      min_input, max_input, min_filter, max_filter: float32, rank 0: the ranges.
      strides, padding, dilations: as for `conv2d`.
      out_type: qint32.
    Returns: a named tuple of the `output`, shape (N, H', W', O), and its range `min_output`,
      `max_output`.
    Raises: InvalidArgumentError: the shapes do not match.

    Examples:
      >>> image = wf.quantization.quantize(wf.ones([1, 2, 2, 1]), 0.0, 1.0, wf.quint8)
      >>> taps = wf.reshape(image.output, [2, 2, 1, 1])
      >>> ends = [image.output_min, image.output_max]
      >>> found = wf.nn.quantized_conv2d(image.output, taps, *ends, *ends, [1] * 4, "VALID")
      >>> wf.Session().run(wf.dequantize(*found, mode="MIN_FIRST")).round(3).ravel()
      array([4.], dtype=float32)
    """
    attrs = {
        "strides": expand(strides, "strides", 2, "NHWC"),
        "padding": padding.upper(),
        "out_type": out_type,
        "dilations": expand(dilations, "dilations", 2, "NHWC"),
    }
    inputs = [input, filter, min_input, max_input, min_filter, max_filter]
    return Quantized(*create("QuantizedConv2D", inputs, attrs, name).outputs)


def _pool(
    op: str, inputs: list[Any], ksize: Any, strides: Any, padding: str, name: str | None
) -> Quantized:
    attrs = {
        "ksize": expand(ksize, "ksize", 2, "NHWC"),
        "strides": expand(strides, "strides", 2, "NHWC"),
        "padding": padding.upper(),
    }
    return Quantized(*create(op, inputs, attrs, name).outputs)


def quantized_avg_pool(
    input: Any,
    min_input: Any,
    max_input: Any,
    ksize: Any,
    strides: Any,
    padding: str,
    name: str | None = None,
) -> Quantized:
    """Compute `avg_pool` of quantized images.

    Args:
      input: a quantized type such as quint8, shape (N, H, W, C).
      min_input, max_input: float32, rank 0: the range of the input.
      ksize, strides, padding: as for `avg_pool`.
    Returns: a named tuple of the `output`, whose means are truncated to integers, and its range.
    Raises: InvalidArgumentError: the window is too large.

    Examples:
      >>> image = wf.quantization.quantize([[[[0.0], [1.0]]]], 0.0, 1.0, wf.quint8)
      >>> found = wf.nn.quantized_avg_pool(*image, [1, 1, 2, 1], [1] * 4, "VALID")
      >>> wf.Session().run(found.output).ravel()
      array([127], dtype=uint8)
    """
    return _pool("QuantizedAvgPool", [input, min_input, max_input], ksize, strides, padding, name)


def quantized_max_pool(
    input: Any,
    min_input: Any,
    max_input: Any,
    ksize: Any,
    strides: Any,
    padding: str,
    name: str | None = None,
) -> Quantized:
    """Compute `max_pool` of quantized images.

    Args:
      input: a quantized type such as quint8, shape (N, H, W, C).
      min_input, max_input: float32, rank 0: the range of the input.
      ksize, strides, padding: as for `max_pool`.
    Returns: a named tuple of the `output` and its range.
    Raises: InvalidArgumentError: the window is too large.

    Examples:
      >>> image = wf.quantization.quantize([[[[0.0], [1.0]]]], 0.0, 1.0, wf.quint8)
      >>> found = wf.nn.quantized_max_pool(*image, [1, 1, 2, 1], [1] * 4, "VALID")
      >>> wf.Session().run(found.output).ravel()
      array([255], dtype=uint8)
    """
    return _pool("QuantizedMaxPool", [input, min_input, max_input], ksize, strides, padding, name)


def quantized_relu_x(
    features: Any,
    max_value: Any,
    min_features: Any,
    max_features: Any,
    out_type: Any = dtypes.quint8,
    name: str | None = None,
) -> Activations:
    """Clip a quantized tensor to [0, max_value].

    Args:
      features: a quantized type such as quint8, any shape.
      max_value: float32, rank 0.
      min_features, max_features: float32, rank 0: the range of the features.
      out_type: the dtype of `features`.
    Returns: a named tuple of the `activations`, same shape, and their unchanged range.
    Raises: InvalidArgumentError: the dtypes differ.

    Examples:
      >>> x = wf.quantization.quantize([-1.0, 0.5, 1.0], -1.0, 1.0, wf.quint8)
      >>> found = wf.nn.quantized_relu_x(x.output, 0.5, x.output_min, x.output_max)
      >>> wf.Session().run(found.activations)
      array([128, 191, 192], dtype=uint8)
    """
    inputs = [features, max_value, min_features, max_features]
    return Activations(*create("QuantizedReluX", inputs, {"out_type": out_type}, name).outputs)

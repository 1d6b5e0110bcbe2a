"""Quantization: simulated, to integers and back, and concatenation of quantized tensors."""

from __future__ import annotations

__all__ = [
    "dequantize",
    "fake_quant_with_min_max_args",
    "fake_quant_with_min_max_args_gradient",
    "fake_quant_with_min_max_vars",
    "fake_quant_with_min_max_vars_gradient",
    "fake_quant_with_min_max_vars_per_channel",
    "fake_quant_with_min_max_vars_per_channel_gradient",
    "quantize",
    "quantize_and_dequantize",
    "quantize_and_dequantize_v2",
    "quantize_v2",
    "quantized_concat",
]

from collections.abc import Sequence
from typing import Any, NamedTuple

from weft_graph.ir.builder import convert_to_tensor, create, out
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, ShapeRule, register_op
from weft_graph.ir.traits import Traits
from weft_graph.ops import cost_rules
from weft_graph.ops.join import concat_dims
from weft_graph.ops.shape_rules import merge_size, normal_axis, with_rank, with_rank_at_least
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims, merge_dims

QUANTIZED = "{qint8, quint8, qint32, qint16, quint16}"

# ------------------------------------------------------------------------- shape rules


def _check_bits(op: str, node: NodeSpec) -> None:
    bits = node.attrs["num_bits"]
    if not 2 <= bits <= 16:
        raise errors.InvalidArgumentError(f"{op} requires num_bits from 2 to 16, got {bits}")


def _args_rule(op: str) -> ShapeRule:
    """Shape rule: all inputs and the output have the same shape."""

    def rule(node: NodeSpec) -> Sequence[Dims]:
        _check_bits(op, node)
        low, high = node.attrs["min"], node.attrs["max"]
        if not low < high:
            raise errors.InvalidArgumentError(f"{op} requires min < max, got {low} and {high}")
        return (merge_dims(node.inputs[0].dims, node.inputs[-1].dims),)

    return rule


def _vars_rule(op: str, *, per_channel: bool, gradient: bool) -> ShapeRule:
    """Shape rule of inputs (gradients,) x, min, max: outputs have the shapes of x and ranges."""

    def rule(node: NodeSpec) -> Sequence[Dims]:
        _check_bits(op, node)
        *values, low, high = [value.dims for value in node.inputs]
        x = merge_dims(values[0], values[-1])
        if not per_channel:
            for label, dims in (("min", low), ("max", high)):
                with_rank(dims, 0, f"{op}: {label}")
            return (x, (), ()) if gradient else (x,)
        x = with_rank_at_least(x, 1, f"{op}: inputs")
        channels = None if x is None else x[-1]
        for label, dims in (("min", low), ("max", high)):
            (size,) = with_rank(dims, 1, f"{op}: {label}")
            channels = merge_size(channels, size, f"{op}: channels and size of {label}")
        x = x if x is None else (*x[:-1], channels)
        return (x, (channels,), (channels,)) if gradient else (x,)

    return rule


def _range_dims(op: str, node: NodeSpec, x: Dims, low: int) -> tuple[Dims, Dims]:
    """Return the shapes of x and of its range, whose bounds are inputs `low` and `low` + 1."""
    axis, size = node.attrs["axis"], None
    if axis < -1:
        raise errors.InvalidArgumentError(f"{op} requires an axis of -1 or more, got {axis}")
    if axis >= 0 and x is not None:
        size = x[normal_axis(axis, len(x))]
    for position, label in ((low, "the range's minimum"), (low + 1, "the range's maximum")):
        dims = with_rank(node.inputs[position].dims, 0 if axis < 0 else 1, f"{op}: {label}")
        if axis >= 0:
            size = merge_size(size, dims[0], f"{op}: size of axis {axis} and of {label}")
    if axis < 0:
        return x, ()
    return x if x is None else (*x[:axis], size, *x[axis + 1 :]), (size,)


def _quantize_rule(node: NodeSpec) -> Sequence[Dims]:
    mode, half_even = node.attrs["mode"], node.attrs["round_mode"] == "HALF_TO_EVEN"
    if half_even and mode != "SCALED":
        raise errors.InvalidArgumentError(
            f"QuantizeV2 requires mode 'SCALED' for round_mode 'HALF_TO_EVEN', got {mode!r}"
        )
    x, ends = _range_dims("QuantizeV2", node, node.inputs[0].dims, 1)
    return x, ends, ends


def _dequantize_rule(node: NodeSpec) -> Sequence[Dims]:
    return (_range_dims("Dequantize", node, node.inputs[0].dims, 1)[0],)


def _quantize_dequantize_rule(op: str) -> ShapeRule:
    def rule(node: NodeSpec) -> Sequence[Dims]:
        bits = node.attrs.get("num_bits", 8)
        minimum = 2 if node.attrs["signed_input"] else 1
        if not minimum <= bits < 64:
            raise errors.InvalidArgumentError(
                f"{op} requires num_bits from {minimum} to 63, got {bits}"
            )
        if len(node.inputs) == 1:
            return (node.inputs[0].dims,)
        if len(node.inputs) > 3:
            with_rank(node.inputs[3].dims, 0, f"{op}: num_bits")
        return (_range_dims(op, node, node.inputs[0].dims, 1)[0],)

    return rule


def _quantize_dequantize_grad_rule(node: NodeSpec) -> Sequence[Dims]:
    op = "QuantizeAndDequantizeV4Grad"
    x, ends = _range_dims(op, node, merge_dims(node.inputs[0].dims, node.inputs[1].dims), 2)
    return x, ends, ends


def _concat_rule(node: NodeSpec) -> Sequence[Dims]:
    count = node.attrs["N"]
    for value in node.inputs[1 + count :]:
        with_rank(value.dims, 0, "QuantizedConcat: input_mins and input_maxes")
    return concat_dims(node.inputs[1 : 1 + count], node.inputs[0]), (), ()


# ------------------------------------------------------------------------ declarations

_BITS = {"num_bits": "int = 8", "narrow_range": "bool = false"}
_ENDS = {"min": "float = -6.0", "max": "float = 6.0"}
_COST = cost_rules.per_input(6)

register_op(
    "FakeQuantWithMinMaxArgs",
    ("inputs: float32",),
    ("outputs: float32",),
    _ENDS | _BITS,
    _args_rule("FakeQuantWithMinMaxArgs"),
    traits=Traits(cost=_COST, cheap=True),
    doc="The input rounded to one of 2 ** num_bits values from min to max, one of which is 0.",
)
register_op(
    "FakeQuantWithMinMaxArgsGradient",
    ("gradients: float32", "inputs: float32"),
    ("backprops: float32",),
    _ENDS | _BITS,
    _args_rule("FakeQuantWithMinMaxArgsGradient"),
    traits=Traits(cost=_COST),
    doc="The gradients where the input is in the range, 0 elsewhere.",
)
for _suffix in ("", "PerChannel"):
    _op = f"FakeQuantWithMinMaxVars{_suffix}"
    register_op(
        _op,
        ("inputs: float32", "min: float32", "max: float32"),
        ("outputs: float32",),
        _BITS,
        _vars_rule(_op, per_channel=bool(_suffix), gradient=False),
        traits=Traits(cost=_COST, cheap=True),
        doc="Like FakeQuantWithMinMaxArgs, with the range as inputs.",
    )
    register_op(
        f"{_op}Gradient",
        ("gradients: float32", "inputs: float32", "min: float32", "max: float32"),
        (
            "backprops_wrt_input: float32",
            "backprop_wrt_min: float32",
            "backprop_wrt_max: float32",
        ),
        _BITS,
        _vars_rule(f"{_op}Gradient", per_channel=bool(_suffix), gradient=True),
        traits=Traits(cost=_COST),
        doc="The gradients of the input inside the range, and of the bounds outside.",
    )
register_op(
    "QuantizeV2",
    ("input: float32", "min_range: float32", "max_range: float32"),
    ("output: T", "output_min: float32", "output_max: float32"),
    {
        "T": QUANTIZED,
        "mode": "{'MIN_COMBINED', 'MIN_FIRST', 'SCALED'} = 'MIN_COMBINED'",
        "round_mode": "{'HALF_AWAY_FROM_ZERO', 'HALF_TO_EVEN'} = 'HALF_AWAY_FROM_ZERO'",
        "narrow_range": "bool = false",
        "axis": "int = -1",
        "ensure_minimum_range": "float = 0.01",
    },
    _quantize_rule,
    traits=Traits(cost=_COST, differentiable=False),
    doc="Numbers of a range quantized to integers.",
)
register_op(
    "Dequantize",
    ("input: T", "min_range: float32", "max_range: float32"),
    ("output: dtype",),
    {
        "T": QUANTIZED,
        "mode": "{'MIN_COMBINED', 'MIN_FIRST', 'SCALED'} = 'MIN_COMBINED'",
        "narrow_range": "bool = false",
        "axis": "int = -1",
        "dtype": "{bfloat16, float32} = float32",
    },
    _dequantize_rule,
    traits=Traits(cost=_COST, differentiable=False),
    doc="The numbers represented by quantized integers.",
)

_SIGNED = {"signed_input": "bool = true"}
_RANGE_GIVEN_ATTR = {"range_given": "bool = false"}
_TYPE = {"T": "{bfloat16, float16, float32, float64}"}
_AXIS = {"narrow_range": "bool = false", "axis": "int = -1"}
_ROUND = {"round_mode": "{'HALF_TO_EVEN', 'HALF_UP'} = 'HALF_TO_EVEN'"}
_RANGE = ("input: T", "input_min: T", "input_max: T")


def _declare_rounded(version: str, inputs: Sequence[str], attrs: dict[str, str]) -> None:
    op = f"QuantizeAndDequantize{version}"
    register_op(
        op,
        inputs,
        ("output: T",),
        attrs,
        _quantize_dequantize_rule(op),
        traits=Traits(cost=_COST),
        doc="The input rounded to values that integers of num_bits can represent.",
    )


_ROUNDED = _SIGNED | {"num_bits": "int = 8"} | _RANGE_GIVEN_ATTR | _TYPE
_declare_rounded(
    "", ("input: T",), _ROUNDED | {"input_min": "float = 0.0", "input_max": "float = 0.0"}
)
_declare_rounded("V2", _RANGE, _ROUNDED | _ROUND | _AXIS)
_declare_rounded(
    "V3", (*_RANGE, "num_bits: int32"), _SIGNED | {"range_given": "bool = true"} | _TYPE | _AXIS
)
_declare_rounded("V4", _RANGE, _ROUNDED | _ROUND | _AXIS)
register_op(
    "QuantizeAndDequantizeV4Grad",
    ("gradients: T", *_RANGE),
    ("input_backprop: T", "input_min_backprop: T", "input_max_backprop: T"),
    _TYPE | {"axis": "int = -1"},
    _quantize_dequantize_grad_rule,
    traits=Traits(cost=_COST),
    doc="The gradients where the input is in the range, 0 elsewhere and for the range.",
)
register_op(
    "QuantizedConcat",
    ("concat_dim: int32", "values: N * T", "input_mins: N * float32", "input_maxes: N * float32"),
    ("output: T", "output_min: float32", "output_max: float32"),
    {"N": "int >= 2", "T": "type"},
    _concat_rule,
    traits=Traits(differentiable=False),
    doc="The concatenation of quantized tensors, in a range that contains all their ranges.",
)

# --------------------------------------------------------------------------- functions


class Quantized(NamedTuple):
    """Quantized integers, and the range that they represent."""

    output: Output
    output_min: Output
    output_max: Output


class RangeGradients(NamedTuple):
    """Gradients with respect to an input and the bounds of its range."""

    backprops_wrt_input: Output
    backprop_wrt_min: Output
    backprop_wrt_max: Output


def fake_quant_with_min_max_args(
    inputs: Any,
    min: float = -6,
    max: float = 6,
    num_bits: int = 8,
    narrow_range: bool = False,
    name: str | None = None,
) -> Output:
    """Return the inputs quantized to `num_bits` and back.

    The range is adjusted so that 0 is one of the values; values outside are clipped. Gradients pass
    for inputs inside the range (Jacob et al. 2018, section 3).

    Args:
      inputs: float32, any shape.
      min, max: ends of the range.
      num_bits: 2 to 16.
      narrow_range: do not use the lowest value, so that the number of values is odd.
    Returns: the shape of `inputs`.
    Raises: InvalidArgumentError: min is not below max, or num_bits is out of bounds.

    Examples:
      >>> x = wf.constant([-9.0, 0.0, 0.1, 1.3])
      >>> wf.Session().run(wf.quantization.fake_quant_with_min_max_args(x, -1, 2, num_bits=2))
      array([-1.,  0.,  0.,  1.], dtype=float32)
    """
    attrs = {"min": min, "max": max, "num_bits": num_bits, "narrow_range": narrow_range}
    return out("FakeQuantWithMinMaxArgs", [inputs], attrs, name)


def fake_quant_with_min_max_args_gradient(
    gradients: Any,
    inputs: Any,
    min: float = -6,
    max: float = 6,
    num_bits: int = 8,
    narrow_range: bool = False,
    name: str | None = None,
) -> Output:
    """Return the gradient of `fake_quant_with_min_max_args` with respect to its inputs.

    Args:
      gradients: float32, any shape: gradients of the outputs.
      inputs: float32, same shape.
      min, max, num_bits, narrow_range: as for `fake_quant_with_min_max_args`.
    Returns: the gradients where the inputs are inside the range, 0 elsewhere.
    Raises: InvalidArgumentError: as for `fake_quant_with_min_max_args`.

    Examples:
      >>> gradient = wf.quantization.fake_quant_with_min_max_args_gradient
      >>> wf.Session().run(gradient([5.0, 7.0], [0.5, 9.0]))
      array([5., 0.], dtype=float32)
    """
    attrs = {"min": min, "max": max, "num_bits": num_bits, "narrow_range": narrow_range}
    return out("FakeQuantWithMinMaxArgsGradient", [gradients, inputs], attrs, name)


def fake_quant_with_min_max_vars(
    inputs: Any,
    min: Any,
    max: Any,
    num_bits: int = 8,
    narrow_range: bool = False,
    name: str | None = None,
) -> Output:
    """Quantize like `fake_quant_with_min_max_args`, with a learned or measured range.

    For values outside the range, the gradient goes to the nearest bound.

    Args:
      inputs: float32, any shape.
      min, max: float32, rank 0.
      num_bits, narrow_range: as for `fake_quant_with_min_max_args`.
    Returns: the shape of `inputs`; zeros where min and max are 0.
    Raises: InvalidArgumentError: num_bits is out of bounds, or min or max is not a scalar.

    Examples:
      >>> x = wf.constant([-9.0, 0.0, 0.1, 1.3])
      >>> wf.Session().run(wf.quantization.fake_quant_with_min_max_vars(x, -1.0, 2.0, num_bits=2))
      array([-1.,  0.,  0.,  1.], dtype=float32)
    """
    attrs = {"num_bits": num_bits, "narrow_range": narrow_range}
    return out("FakeQuantWithMinMaxVars", [inputs, min, max], attrs, name)


def fake_quant_with_min_max_vars_gradient(
    gradients: Any,
    inputs: Any,
    min: Any,
    max: Any,
    num_bits: int = 8,
    narrow_range: bool = False,
    name: str | None = None,
) -> RangeGradients:
    """Return the gradients of `fake_quant_with_min_max_vars` for its inputs and its range.

    Args:
      gradients: float32, any shape: gradients of the outputs.
      inputs: float32, same shape.
      min, max, num_bits, narrow_range: as for `fake_quant_with_min_max_vars`.
    Returns: a named tuple of the gradients of inputs, min and max.
    Raises: InvalidArgumentError: as for `fake_quant_with_min_max_vars`.

    Examples:
      >>> gradient = wf.quantization.fake_quant_with_min_max_vars_gradient
      >>> [g.tolist() for g in wf.Session().run(gradient([5.0, 7.0], [0.5, 9.0], 0.0, 6.0))]
      [[5.0, 0.0], 0.0, 7.0]
    """
    attrs = {"num_bits": num_bits, "narrow_range": narrow_range}
    node = create("FakeQuantWithMinMaxVarsGradient", [gradients, inputs, min, max], attrs, name)
    return RangeGradients(*node.outputs)


def fake_quant_with_min_max_vars_per_channel(
    inputs: Any,
    min: Any,
    max: Any,
    num_bits: int = 8,
    narrow_range: bool = False,
    name: str | None = None,
) -> Output:
    """Quantize like `fake_quant_with_min_max_vars`, with a range for each last-axis entry.

    Args:
      inputs: float32, shape (..., C).
      min, max: float32, shape (C,).
      num_bits, narrow_range: as for `fake_quant_with_min_max_args`.
    Returns: the shape of `inputs`.
    Raises: InvalidArgumentError: num_bits is out of bounds, or the shapes do not match.

    Examples:
      >>> x = wf.constant([[-9.0, 9.0], [0.4, 0.4]])
      >>> quant = wf.quantization.fake_quant_with_min_max_vars_per_channel
      >>> wf.Session().run(quant(x, [-1.0, 0.0], [2.0, 6.0], num_bits=2))
      array([[-1.,  6.],
             [ 0.,  0.]], dtype=float32)
    """
    attrs = {"num_bits": num_bits, "narrow_range": narrow_range}
    return out("FakeQuantWithMinMaxVarsPerChannel", [inputs, min, max], attrs, name)


def fake_quant_with_min_max_vars_per_channel_gradient(
    gradients: Any,
    inputs: Any,
    min: Any,
    max: Any,
    num_bits: int = 8,
    narrow_range: bool = False,
    name: str | None = None,
) -> RangeGradients:
    """Return the gradients of `fake_quant_with_min_max_vars_per_channel`.

    Args:
      gradients: float32, shape (..., C): gradients of the outputs.
      inputs: float32, same shape.
      min, max, num_bits, narrow_range: as for `fake_quant_with_min_max_vars_per_channel`.
    Returns: a named tuple of the gradients of inputs, min and max.
    Raises: InvalidArgumentError: as for `fake_quant_with_min_max_vars_per_channel`.

    Examples:
      >>> gradient = wf.quantization.fake_quant_with_min_max_vars_per_channel_gradient
      >>> found = gradient([[5.0, 7.0]], [[0.5, 9.0]], [0.0, 0.0], [6.0, 6.0])
      >>> [g.tolist() for g in wf.Session().run(found)]
      [[[5.0, 0.0]], [0.0, 0.0], [0.0, 7.0]]
    """
    attrs = {"num_bits": num_bits, "narrow_range": narrow_range}
    node = create(
        "FakeQuantWithMinMaxVarsPerChannelGradient", [gradients, inputs, min, max], attrs, name
    )
    return RangeGradients(*node.outputs)


def quantize(
    input: Any,
    min_range: Any,
    max_range: Any,
    T: Any,
    mode: str = "MIN_COMBINED",
    round_mode: str = "HALF_AWAY_FROM_ZERO",
    name: str | None = None,
    narrow_range: bool = False,
    axis: int | None = None,
    ensure_minimum_range: float = 0.01,
) -> Quantized:
    """Quantize numbers of a range to integers.

    In mode "MIN_COMBINED" the lowest integer represents min_range and the highest max_range.
    "MIN_FIRST" shifts the range to a multiple of its step. In "SCALED" integer 0 represents 0, and
    the range is widened accordingly.

    Args:
      input: float32, any shape.
      min_range, max_range: float32, rank 0, or with an axis one for each of its entries. The range
        is widened to contain 0.
      T: qint8, quint8, qint16, quint16 or qint32.
      mode: "MIN_COMBINED", "MIN_FIRST" or "SCALED".
      round_mode: "HALF_AWAY_FROM_ZERO"; in mode "SCALED" also "HALF_TO_EVEN".
      narrow_range: in mode "SCALED", do not use the lowest integer.
      axis: axis with a range for each entry; None for a single range.
      ensure_minimum_range: smallest width of the range, relative to its largest number or 1.
    Returns: a named tuple: `output`, of type T and the shape of `input`, and the used range,
      `output_min` and `output_max`.
    Raises: InvalidArgumentError: min_range exceeds max_range, or the shapes or modes do not
      match.

    Examples:
      >>> found = wf.quantization.quantize([0.0, 1.0, 2.55], 0.0, 2.55, wf.quint8)
      >>> wf.Session().run(found.output)
      array([  0, 100, 255], dtype=uint8)
    """
    value = convert_to_tensor(input, dtypes.float32)
    attrs = {
        "T": T,
        "mode": mode,
        "round_mode": round_mode,
        "narrow_range": narrow_range,
        "axis": _axis_of(value, axis),
        "ensure_minimum_range": ensure_minimum_range,
    }
    return Quantized(*create("QuantizeV2", [value, min_range, max_range], attrs, name).outputs)


def quantize_v2(
    input: Any,
    min_range: Any,
    max_range: Any,
    T: Any,
    mode: str = "MIN_COMBINED",
    name: str | None = None,
    round_mode: str = "HALF_AWAY_FROM_ZERO",
    narrow_range: bool = False,
    axis: int | None = None,
    ensure_minimum_range: float = 0.01,
) -> Quantized:
    """Quantize like `quantize`, with another order of arguments.

    Args:
      input, min_range, max_range, T, mode, round_mode, narrow_range: as for `quantize`.
      axis, ensure_minimum_range: as for `quantize`.
    Returns: as `quantize`.
    Raises: InvalidArgumentError: as for `quantize`.

    Examples:
      >>> wf.Session().run(wf.quantize_v2([0.0, 1.0, 2.55], 0.0, 2.55, wf.quint8).output)
      array([  0, 100, 255], dtype=uint8)
    """
    options = (mode, round_mode, name, narrow_range, axis, ensure_minimum_range)
    return quantize(input, min_range, max_range, T, *options)


def dequantize(
    input: Any,
    min_range: Any,
    max_range: Any,
    mode: str = "MIN_COMBINED",
    name: str | None = None,
    axis: int | None = None,
    narrow_range: bool = False,
    dtype: Any = dtypes.float32,
) -> Output:
    """Dequantize integers: the inverse of `quantize` except for rounding.

    Args:
      input: qint8, quint8, qint16, quint16 or qint32, any shape.
      min_range, max_range: float32: the range returned by `quantize`.
      mode, axis, narrow_range: as for `quantize`.
      dtype: float32 or bfloat16.
    Returns: the shape of `input`.
    Raises: InvalidArgumentError: the shapes do not match.

    Examples:
      >>> found = wf.quantization.quantize([0.0, 1.001, 2.55], 0.0, 2.55, wf.quint8)
      >>> wf.Session().run(wf.quantization.dequantize(*found))
      array([0.  , 1.  , 2.55], dtype=float32)
    """
    value = convert_to_tensor(input)
    attrs = {
        "mode": mode,
        "axis": _axis_of(value, axis),
        "narrow_range": narrow_range,
        "dtype": dtype,
    }
    return out("Dequantize", [value, min_range, max_range], attrs, name)


def quantize_and_dequantize(
    input: Any,
    input_min: Any,
    input_max: Any,
    signed_input: bool = True,
    num_bits: int = 8,
    range_given: bool = False,
    round_mode: str = "HALF_TO_EVEN",
    name: str | None = None,
    narrow_range: bool = False,
    axis: int | None = None,
) -> Output:
    """Round the input to values that integers of `num_bits` represent, including 0.

    The gradient is that of the identity.

    Args:
      input: floating, any shape.
      input_min, input_max: same dtype, rank 0, or with an axis one for each of its entries: the
        range, which is widened so that integer 0 represents 0. Used if `range_given`.
      signed_input: use signed integers.
      num_bits: 1 to 63, or 2 with a sign.
      range_given: clip to the range of `input_min` and `input_max`; otherwise use that of the
        input.
      round_mode: "HALF_TO_EVEN" or "HALF_UP".
      narrow_range: do not use the lowest signed integer.
      axis: axis with a range for each entry; None for a single range.
    Returns: the dtype and shape of `input`.
    Raises: InvalidArgumentError: the shapes do not match, or input_min exceeds input_max.

    Examples:
      >>> x = wf.constant([-1.0, 0.3, 0.5])
      >>> wf.Session().run(wf.quantization.quantize_and_dequantize(x, 0.0, 0.0, num_bits=3))
      array([-1.  ,  0.25,  0.5 ], dtype=float32)
    """
    value = convert_to_tensor(input)
    attrs = {
        "signed_input": signed_input,
        "num_bits": num_bits,
        "range_given": range_given,
        "round_mode": round_mode,
        "narrow_range": narrow_range,
        "axis": _axis_of(value, axis),
    }
    return out("QuantizeAndDequantizeV2", [value, input_min, input_max], attrs, name)


def _axis_of(value: Output, axis: int | None) -> int:
    """Return the attribute `axis` of an op: -1 for None, else a nonnegative integer."""
    if axis is None or axis >= 0:
        return -1 if axis is None else axis
    if value.dims is None:
        raise errors.InvalidArgumentError(
            f"a negative axis requires an input of known rank, got axis {axis}"
        )
    return normal_axis(axis, len(value.dims))


def quantize_and_dequantize_v2(
    input: Any,
    input_min: Any,
    input_max: Any,
    signed_input: bool = True,
    num_bits: int = 8,
    range_given: bool = False,
    round_mode: str = "HALF_TO_EVEN",
    name: str | None = None,
    narrow_range: bool = False,
    axis: int | None = None,
) -> Output:
    """Round like `quantize_and_dequantize`; values outside the range have no gradient.

    Args:
      input, input_min, input_max, signed_input, num_bits: as for `quantize_and_dequantize`.
      range_given, round_mode, narrow_range, axis: as for `quantize_and_dequantize`.
    Returns: the dtype and shape of `input`.
    Raises: InvalidArgumentError: as for `quantize_and_dequantize`.

    Examples:
      >>> x = wf.constant([-3.0, 0.3, 0.5])
      >>> y = wf.quantization.quantize_and_dequantize_v2(x, -1.0, 1.0, range_given=True)
      >>> wf.Session().run(wf.gradients(y, x))
      [array([0., 1., 1.], dtype=float32)]
    """
    value = convert_to_tensor(input)
    attrs = {
        "signed_input": signed_input,
        "num_bits": num_bits,
        "range_given": range_given,
        "round_mode": round_mode,
        "narrow_range": narrow_range,
        "axis": _axis_of(value, axis),
    }
    return out("QuantizeAndDequantizeV4", [value, input_min, input_max], attrs, name)


def quantized_concat(
    concat_dim: Any, values: Any, input_mins: Any, input_maxes: Any, name: str | None = None
) -> Quantized:
    """Concatenate quantized tensors along an axis.

    Args:
      concat_dim: int32, rank 0: the axis.
      values: quint8, qint8 or qint32, at least two tensors whose shapes differ only along the axis.
      input_mins, input_maxes: float32, rank 0: the ranges of the values.
    Returns: a named tuple of the `output` and its range, `output_min` and `output_max`; values with
      other ranges are requantized.
    Raises: InvalidArgumentError: the shapes do not match.

    Examples:
      >>> a = wf.quantization.quantize([0.0, 1.0], 0.0, 1.0, wf.quint8)
      >>> b = wf.quantization.quantize([0.0, 2.0], 0.0, 2.0, wf.quint8)
      >>> lows, highs = [a.output_min, b.output_min], [a.output_max, b.output_max]
      >>> both = wf.quantization.quantized_concat(0, [a.output, b.output], lows, highs)
      >>> wf.Session().run([both.output, both.output_max])
      [array([  0, 128,   0, 255], dtype=uint8), np.float32(2.0)]
    """
    inputs = [concat_dim, list(values), list(input_mins), list(input_maxes)]
    return Quantized(*create("QuantizedConcat", inputs, None, name).outputs)

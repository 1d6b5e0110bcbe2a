"""Activations, biases, softmax and fused losses: declarations and single-node functions."""

from __future__ import annotations

__all__ = [
    "bias_add",
    "elu",
    "l2_loss",
    "leaky_relu",
    "log_softmax",
    "relu",
    "relu6",
    "selu",
    "softmax",
    "softmax_cross_entropy_with_logits",
    "softmax_cross_entropy_with_logits_v2",
    "softplus",
    "softsign",
    "sparse_softmax_cross_entropy_with_logits",
]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.scalar import (
    Scalar,
    add,
    attribute,
    cast,
    clamp,
    exp,
    expm1,
    log1p,
    maximum,
    minimum,
    square,
    where,
)
from weft_graph.ir.traits import Traits, elementwise
from weft_graph.ops import casting, cost_rules, shapes
from weft_graph.ops.shape_rules import (
    fixed_shape,
    merge_size,
    merged_shape,
    normal_axis,
    same_shape,
    with_rank,
    with_rank_at_least,
)
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_integer
from weft_tensor.shape import Dims, broadcast_dims, format_dims, merge_dims

_FLOATING = "{float16, bfloat16, float32, float64}"
_FLOAT = {"T": _FLOATING}
_REAL = {"T": "{realnumbertype}"}

# ------------------------------------------------------------------------- shape rules


def _bias_shape(node: NodeSpec) -> Sequence[Dims]:
    value, bias = node.inputs[0].dims, node.inputs[1].dims
    channels_first = node.attrs["data_format"] == "NCHW"
    value = with_rank_at_least(value, 3 if channels_first else 2, "BiasAdd: value")
    (size,) = with_rank(bias, 1, "BiasAdd: bias")
    if value is None:
        return (None,)
    axis = 1 if channels_first else len(value) - 1
    label = (
        f"BiasAdd of {format_dims(value)} in {node.attrs['data_format']}: channels and bias size"
    )
    channels = merge_size(value[axis], size, label)
    return ((*value[:axis], channels, *value[axis + 1 :]),)


def _bias_grad_shape(node: NodeSpec) -> Sequence[Dims]:
    channels_first = node.attrs["data_format"] == "NCHW"
    dims = with_rank_at_least(
        node.inputs[0].dims, 3 if channels_first else 2, "BiasAddGrad: out_backprop"
    )
    if dims is None:
        return ((None,),)
    return ((dims[1 if channels_first else -1],),)


def _softmax_shape(node: NodeSpec) -> Sequence[Dims]:
    return (with_rank_at_least(node.inputs[0].dims, 1, "Softmax: logits"),)


def _cross_entropy_shape(node: NodeSpec) -> Sequence[Dims]:
    op = "SoftmaxCrossEntropyWithLogits"
    features = with_rank(node.inputs[0].dims, 2, f"{op}: features")
    labels = with_rank(node.inputs[1].dims, 2, f"{op}: labels")
    try:
        broadcast = broadcast_dims(features, labels)
    except errors.InvalidArgumentError:
        raise errors.InvalidArgumentError(
            f"{op} requires features and labels of the same shape, "
            f"got {format_dims(features)} and {format_dims(labels)}"
        ) from None
    assert broadcast is not None
    return ((broadcast[0],), broadcast)


def _sparse_cross_entropy_shape(node: NodeSpec) -> Sequence[Dims]:
    op = "SparseSoftmaxCrossEntropyWithLogits"
    batch, classes = with_rank(node.inputs[0].dims, 2, f"{op}: features")
    (count,) = with_rank(node.inputs[1].dims, 1, f"{op}: labels")
    batch = merge_size(batch, count, f"{op}: rows of features and number of labels")
    return ((batch,), (batch, classes))


# ------------------------------------------------------------------ scalar definitions

_SELU_SCALE = 1.0507009873554804934193349852946
_SELU_ALPHA = 1.6732632423543772848170429916717


def _relu(x: Scalar) -> Scalar:
    return maximum(x, 0)


def _relu6(x: Scalar) -> Scalar:
    return clamp(x, 0, 6)


def _elu(x: Scalar) -> Scalar:
    return expm1(minimum(x, 0)) + maximum(x, 0)


def _selu(x: Scalar) -> Scalar:
    return (expm1(minimum(x, 0)) * _SELU_ALPHA + maximum(x, 0)) * _SELU_SCALE


def _softplus(x: Scalar) -> Scalar:
    return log1p(exp(-abs(x))) + maximum(x, 0)


def _softsign(x: Scalar) -> Scalar:
    return x / (abs(x) + 1)


def _leaky_relu(x: Scalar) -> Scalar:
    return where(x > 0, x, x * attribute("alpha", x.dtype))


def _relu_grad(grad: Scalar, x: Scalar) -> Scalar:
    return grad * cast(x > 0, x.dtype)


def _relu6_grad(grad: Scalar, x: Scalar) -> Scalar:
    return grad * cast((x > 0) & (x < 6), x.dtype)


def _elu_grad(grad: Scalar, y: Scalar) -> Scalar:
    return (minimum(y, 0) + 1) * grad


def _selu_grad(grad: Scalar, y: Scalar) -> Scalar:
    return where(y >= 0, _SELU_SCALE, y + _SELU_SCALE * _SELU_ALPHA) * grad


def _softplus_grad(grad: Scalar, x: Scalar) -> Scalar:
    return grad / (exp(-x) + 1)


def _softsign_grad(grad: Scalar, x: Scalar) -> Scalar:
    return grad / square(abs(x) + 1)


def _leaky_relu_grad(grad: Scalar, x: Scalar) -> Scalar:
    return where(x > 0, grad, grad * attribute("alpha", grad.dtype))


# ------------------------------------------------------------------------ declarations


def _declare_activations() -> None:
    leaky = {"alpha": "float = 0.2", "T": f"{_FLOATING} = float32"}
    for op, attrs, function, doc in (
        ("Relu", _REAL, _relu, "max(x, 0)."),
        ("Relu6", _REAL, _relu6, "min(max(x, 0), 6)."),
        ("Elu", _FLOAT, _elu, "exp(x) - 1 where x < 0, else x."),
        ("Selu", _FLOAT, _selu, "scale * (alpha * (exp(x) - 1) where x < 0, else x)."),
        ("Softplus", _FLOAT, _softplus, "log(exp(x) + 1)."),
        ("Softsign", _FLOAT, _softsign, "x / (abs(x) + 1)."),
        ("LeakyRelu", leaky, _leaky_relu, "x where x > 0, else alpha * x."),
    ):
        register_op(
            op,
            ("features: T",),
            ("activations: T",),
            attrs,
            same_shape,
            traits=elementwise(function, in_float32=True, cheap=True),
            doc=doc,
        )
    features, outputs = "features: T", "outputs: T"
    for op, second, attrs, gradient, doc in (
        ("ReluGrad", features, _REAL, _relu_grad, "gradients where features > 0, else 0."),
        ("Relu6Grad", features, _REAL, _relu6_grad, "gradients where 0 < features < 6, else 0."),
        ("EluGrad", outputs, _FLOAT, _elu_grad, "gradients * (outputs + 1) where outputs < 0."),
        ("SeluGrad", outputs, _FLOAT, _selu_grad, "gradients * (outputs + scale * alpha) below 0."),
        ("SoftplusGrad", features, _FLOAT, _softplus_grad, "gradients / (exp(-features) + 1)."),
        ("SoftsignGrad", features, _FLOAT, _softsign_grad, "gradients / (|features| + 1) ** 2."),
        ("LeakyReluGrad", features, leaky, _leaky_relu_grad, "gradients, * alpha below 0."),
    ):
        register_op(
            op,
            ("gradients: T", second),
            ("backprops: T",),
            attrs,
            merged_shape,
            traits=elementwise(gradient, one_shape=True, in_float32=True),
            doc=doc,
        )


def _declare_other_ops() -> None:
    bias = {"T": "{numbertype}", "data_format": "{'NHWC', 'NCHW'} = 'NHWC'"}
    register_op(
        "BiasAdd",
        ("value: T", "bias: T"),
        ("output: T",),
        bias,
        _bias_shape,
        traits=elementwise(add, by_kernel=True, cheap=True, adds=(1,)),
        doc="`value` plus a bias for each channel.",
    )
    register_op(
        "BiasAddGrad",
        ("out_backprop: T",),
        ("output: T",),
        bias,
        _bias_grad_shape,
        traits=Traits(cost=cost_rules.per_input(1), adds=(1,)),
        doc="The sum over all axes except the channel axis.",
    )
    for op, doc in (
        ("Softmax", "exp(x) / sum(exp(x)) along the last axis."),
        ("LogSoftmax", "x - log(sum(exp(x))) along the last axis."),
    ):
        register_op(
            op,
            ("logits: T",),
            ("output: T",),
            {"T": _FLOATING},
            _softmax_shape,
            traits=Traits(cost=cost_rules.per_input(5)),
            doc=doc,
        )
    register_op(
        "SoftmaxCrossEntropyWithLogits",
        ("features: T", "labels: T"),
        ("loss: T", "backprop: T"),
        {"T": _FLOATING},
        _cross_entropy_shape,
        traits=Traits(cost=cost_rules.per_input(9)),
        doc="Cross entropy of each row's softmax with `labels`, and its gradient.",
    )
    register_op(
        "SparseSoftmaxCrossEntropyWithLogits",
        ("features: T", "labels: Tlabels"),
        ("loss: T", "backprop: T"),
        {"T": _FLOATING, "Tlabels": "{int32, int64} = int64"},
        _sparse_cross_entropy_shape,
        traits=Traits(cost=cost_rules.per_input(7)),
        doc="Cross entropy of each row's softmax with one class, and its gradient.",
    )
    register_op(
        "L2Loss",
        ("t: T",),
        ("output: T",),
        {"T": _FLOATING},
        fixed_shape(()),
        traits=Traits(cost=cost_rules.per_input(2)),
        doc="sum(t ** 2) / 2.",
    )


_declare_activations()
_declare_other_ops()

# ------------------------------------------------------------------------- activations


def relu(features: Any, name: str | None = None) -> Output:
    """Compute max(x, 0), elementwise; real, any shape.

    Args:
      features: real, any shape.
    Returns: shape and dtype of `features`.

    Examples:
      >>> wf.Session().run(wf.nn.relu([-1.0, 2.0]))
      array([0., 2.], dtype=float32)
    """
    return out("Relu", [features], name=name)


def relu6(features: Any, name: str | None = None) -> Output:
    """Compute min(max(x, 0), 6), elementwise; real, any shape.

    Args:
      features: real, any shape.
    Returns: shape and dtype of `features`.
    Source: Krizhevsky 2010, Convolutional Deep Belief Networks on CIFAR-10.

    Examples:
      >>> wf.Session().run(wf.nn.relu6([-1.0, 2.0, 8.0]))
      array([0., 2., 6.], dtype=float32)
    """
    return out("Relu6", [features], name=name)


def leaky_relu(features: Any, alpha: float = 0.2, name: str | None = None) -> Output:
    """Compute x where x > 0, else alpha * x.

    Args:
      features: floating, or an integer that is cast to float32; any shape.
      alpha: slope for negative x.
    Returns: shape and dtype of `features`.

    Examples:
      >>> np.round(wf.Session().run(wf.nn.leaky_relu([-1.0, 2.0])), 3)
      array([-0.2,  2. ], dtype=float32)
    """
    value = convert_to_tensor(features)
    if value.dtype.is_integer:
        value = out("Cast", [value], {"DstT": dtypes.float32})
    return out("LeakyRelu", [value], {"alpha": alpha}, name)


def elu(features: Any, name: str | None = None) -> Output:
    """Compute exp(x) - 1 where x < 0, else x; floating, any shape.

    Args:
      features: floating, any shape.
    Returns: shape and dtype of `features`.

    Examples:
      >>> np.round(wf.Session().run(wf.nn.elu([-1.0, 2.0])), 3)
      array([-0.632,  2.   ], dtype=float32)
    """
    return out("Elu", [features], name=name)


def selu(features: Any, name: str | None = None) -> Output:
    """Compute scale * (alpha * (exp(x) - 1) where x < 0, else x); floating, any shape.

    Args:
      features: floating, any shape.
    Returns: shape and dtype of `features`.
    Source: Klambauer et al. 2017, Self-Normalizing Neural Networks.

    Examples:
      >>> np.round(wf.Session().run(wf.nn.selu([-1.0, 2.0])), 3)
      array([-1.111,  2.101], dtype=float32)
    """
    return out("Selu", [features], name=name)


def softplus(features: Any, name: str | None = None) -> Output:
    """Compute log(exp(x) + 1), elementwise; floating, any shape.

    Args:
      features: floating, any shape.
    Returns: shape and dtype of `features`.

    Examples:
      >>> np.round(wf.Session().run(wf.nn.softplus([0.0, 2.0])), 3)
      array([0.693, 2.127], dtype=float32)
    """
    return out("Softplus", [features], name=name)


def softsign(features: Any, name: str | None = None) -> Output:
    """Compute x / (abs(x) + 1), elementwise; floating, any shape.

    Args:
      features: floating, any shape.
    Returns: shape and dtype of `features`.

    Examples:
      >>> wf.Session().run(wf.nn.softsign([-1.0, 3.0]))
      array([-0.5 ,  0.75], dtype=float32)
    """
    return out("Softsign", [features], name=name)


# ----------------------------------------------------------------------- bias and loss


def bias_add(
    value: Any,
    bias: Any,
    data_format: str | None = None,
    name: str | None = None,
) -> Output:
    """Add a bias to each channel of `value`.

    Args:
      value: numeric, shape (N, ..., C), or (N, C, ...) with a channels-first `data_format`.
      bias: same dtype, shape (C,).
      data_format: None, or "N...C" or "NC..." for any rank.
    Returns: shape of `value`.
    Raises: InvalidArgumentError: the number of channels is not the size of `bias`.

    Examples:
      >>> wf.Session().run(wf.nn.bias_add([[1.0, 2.0]], [10.0, 20.0]))
      array([[11., 22.]], dtype=float32)
    """
    first = _is_channels_first(data_format)
    return out("BiasAdd", [value, bias], {"data_format": first}, name)


def _is_channels_first(data_format: str | None) -> str:
    if data_format is None or data_format in ("NHWC", "NDHWC", "NWC", "N...C"):
        return "NHWC"
    if data_format.startswith("NC") or data_format == "N":
        return "NCHW"
    raise errors.InvalidArgumentError(
        f"data_format must be 'N...C' or 'NC...', got {data_format!r}"
    )


def l2_loss(t: Any, name: str | None = None) -> Output:
    """Compute sum(t ** 2) / 2; floating, any shape, to rank 0.

    Args:
      t: floating, any shape.
    Returns: rank 0, dtype of `t`.

    Examples:
      >>> wf.Session().run(wf.nn.l2_loss([3.0, 4.0]))
      np.float32(12.5)
    """
    return out("L2Loss", [t], name=name)


# ---------------------------------------------------------------------------- softmax


def softmax(
    logits: Any, axis: int | None = None, name: str | None = None, dim: int | None = None
) -> Output:
    """Compute exp(x) / sum(exp(x)) along an axis.

    Args:
      logits: floating, at least one axis.
      axis: the last one by default; also `dim`.
    Returns: shape and dtype of `logits`.
    Raises: InvalidArgumentError: the axis is out of range.

    Examples:
      >>> wf.Session().run(wf.nn.softmax([0.0, 0.0]))
      array([0.5, 0.5], dtype=float32)
    """
    return _apply_along_axis("Softmax", logits, _axis(axis, dim), name)


def log_softmax(
    logits: Any, axis: int | None = None, name: str | None = None, dim: int | None = None
) -> Output:
    """Compute x - log(sum(exp(x))) along an axis.

    Args:
      logits: floating, at least one axis.
      axis: the last one by default; also `dim`.
    Returns: shape and dtype of `logits`.
    Raises: InvalidArgumentError: the axis is out of range.

    Examples:
      >>> np.round(wf.Session().run(wf.nn.log_softmax([0.0, 0.0])), 3)
      array([-0.693, -0.693], dtype=float32)
    """
    return _apply_along_axis("LogSoftmax", logits, _axis(axis, dim), name)


def _axis(axis: int | None, dim: int | None) -> int:
    if axis is not None and dim is not None:
        raise errors.InvalidArgumentError("pass only one of axis and dim")
    axis_or_dim = dim if axis is None else axis
    return -1 if axis_or_dim is None else check_integer(axis_or_dim, "axis")


def _apply_along_axis(op: str, logits: Any, axis: int, name: str | None) -> Output:
    value = convert_to_tensor(logits)
    rank = None if value.dims is None else len(value.dims)
    if axis == -1 or (rank is not None and axis == rank - 1):
        return out(op, [value], name=name)
    _require_rank(op, value, axis)
    swapped = swap_with_last(value, axis)
    return swap_with_last(out(op, [swapped]), axis, name)


def _require_rank(op: str, logits: Output, axis: int) -> int:
    if logits.dims is None:
        raise errors.InvalidArgumentError(
            f"{op} along axis {axis} requires logits of known rank, got {logits!r}"
        )
    return len(logits.dims)


def _move_axis_last(value: Output, axis: int, rank: int) -> Output:
    """Move an axis of `value` to the end."""
    axis = normal_axis(axis, rank)
    if axis == rank - 1:
        return value
    other_axes = [i for i in range(rank) if i != axis]
    return out("Transpose", [value, [*other_axes, axis]])


def swap_with_last(value: Output, axis: int, name: str | None = None) -> Output:
    """Swap `axis` and the last axis of a `value` of known rank.

    Raises: InvalidArgumentError: the axis is out of range.
    """
    assert value.dims is not None
    rank = len(value.dims)
    axis = normal_axis(axis, rank)
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]
    return out("Transpose", [value, order], name=name)


# -------------------------------------------------------------------- cross entropies


def sparse_softmax_cross_entropy_with_logits(
    _sentinel: Any = None, labels: Any = None, logits: Any = None, name: str | None = None
) -> Output:
    """Return the cross entropy between softmax(logits) and one class for each row.

    Args:
      labels: int32 or int64, shape (...): classes in [0, C).
      logits: floating, shape (..., C).
    Returns: shape (...), dtype of `logits`.
    Raises: InvalidArgumentError: arguments are positional, or shapes do not match; at run time, a
      label is out of range.

    Examples:
      >>> loss = wf.nn.sparse_softmax_cross_entropy_with_logits(labels=[1], logits=[[0.0, 0.0]])
      >>> np.round(wf.Session().run(loss), 3)
      array([0.693], dtype=float32)
    """
    _require_named_arguments("sparse_softmax_cross_entropy_with_logits", _sentinel, labels, logits)
    labels, logits = convert_to_tensor(labels), convert_to_tensor(logits)
    op = "SparseSoftmaxCrossEntropyWithLogits"
    if logits.dims == ():
        raise errors.InvalidArgumentError("logits cannot be scalars, got shape []")
    if labels.dims is not None and logits.dims is not None:
        if len(labels.dims) != len(logits.dims) - 1:
            raise errors.InvalidArgumentError(
                f"the rank of labels must be one less than that of logits, "
                f"got {format_dims(labels.dims)} and {format_dims(logits.dims)}"
            )
        merge_dims(labels.dims, logits.dims[:-1])
    if logits.dims is not None and len(logits.dims) == 2:
        return out(op, [logits, labels], name=name)
    shape = out("Shape", [labels])
    flat = out(op, [_rows(logits), out("Reshape", [labels, [-1]])])
    result = out("Reshape", [flat, shape], name=name)
    result.dims = merge_dims(result.dims, labels.dims)
    return result


def _rows(value: Output) -> Output:
    """Reshape `value` to a matrix with the same last axis."""
    dims = value.dims
    if dims is not None and dims[-1] is not None:
        return out("Reshape", [value, [-1, dims[-1]]])
    return shapes.reshape(value, out("ConcatV2", [[[-1], shapes.shape(value)[-1:]], 0]))


def softmax_cross_entropy_with_logits_v2(
    labels: Any,
    logits: Any,
    axis: int | None = None,
    name: str | None = None,
    dim: int | None = None,
) -> Output:
    """Return the cross entropy of softmax(logits) and `labels`; both have gradients.

    Args:
      labels: floating, shape (..., C) with C at `axis`: rows that sum to 1.
      logits: same dtype and shape; unscaled log probabilities.
      axis: axis of the classes, the last by default.
    Returns: the shape of `logits` without `axis`.
    Raises: InvalidArgumentError: the shapes do not match.

    Examples:
      >>> loss = wf.nn.softmax_cross_entropy_with_logits_v2([[0.0, 1.0]], [[0.0, 0.0]])
      >>> np.round(wf.Session().run(loss), 3)
      array([0.693], dtype=float32)
    """
    logits = convert_to_tensor(logits)
    kind = logits.dtype.base_dtype
    labels = casting.cast(convert_to_tensor(labels, preferred_dtype=kind), kind)
    axis = _axis(axis, dim)
    op = "SoftmaxCrossEntropyWithLogits"
    if axis != -1:
        rank = _require_rank(op, logits, axis)
        labels, logits = _move_axis_last(labels, axis, rank), _move_axis_last(logits, axis, rank)
    if logits.dims is not None and len(logits.dims) == 2:
        return out(op, [logits, labels], name=name)
    flat = out(op, [_rows(logits), _rows(labels)])
    shape = shapes.shape(logits)[:-1] if logits.dims is None else shapes.shape(logits)
    lead = shape if logits.dims is None else shape[: len(logits.dims) - 1]
    result = out("Reshape", [flat, lead], name=name)
    if logits.dims is not None:
        result.dims = merge_dims(result.dims, logits.dims[:-1])
    return result


def softmax_cross_entropy_with_logits(
    _sentinel: Any = None,
    labels: Any = None,
    logits: Any = None,
    dim: int = -1,
    name: str | None = None,
    axis: int | None = None,
) -> Output:
    """Return the cross entropy of softmax(logits) and `labels`; only `logits` has a gradient.

    Args:
      labels, logits, dim: as for `softmax_cross_entropy_with_logits_v2`; keyword arguments only.
      axis: another name of `dim`.
    Raises: InvalidArgumentError: arguments are positional, or shapes do not match.

    Examples:
      >>> loss = wf.nn.softmax_cross_entropy_with_logits(labels=[[0.0, 1.0]], logits=[[0.0, 0.0]])
      >>> np.round(wf.Session().run(loss), 3)
      array([0.693], dtype=float32)
    """
    _require_named_arguments("softmax_cross_entropy_with_logits", _sentinel, labels, logits)
    fixed_labels = out("StopGradient", [convert_to_tensor(labels)])
    axis_or_dim = dim if axis is None else axis
    return softmax_cross_entropy_with_logits_v2(fixed_labels, logits, axis=axis_or_dim, name=name)


def _require_named_arguments(function: str, sentinel: Any, labels: Any, logits: Any) -> None:
    if sentinel is not None or labels is None or logits is None:
        raise errors.InvalidArgumentError(
            f"{function} must be called with named arguments (labels=..., logits=..., ...)"
        )

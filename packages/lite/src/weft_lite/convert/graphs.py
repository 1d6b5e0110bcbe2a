"""Files as graphs again, for who compiles them: what each op computes, by ops of graphs.

A tensor of bytes with a scale stays bytes; products of such tensors are products of float32, which
are exact as long as sums are below 2 ** 24, and their results are rounded as the runtime rounds
them. Everything else is computed of the real values, and stored again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, create
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_graph.ops.array import placeholder
from weft_lite.convert.lowered import NAMES, Array
from weft_lite.convert.packing import PANEL, unpacked
from weft_lite.convert.sources import Source
from weft_lite.schema import tables as t
from weft_lite.schema.codec import decode
from weft_lite.schema.enums import Activation, DataType, Layout, OpKind, Padding, PadMode, Storage
from weft_tensor import dtypes, errors

Rule = Callable[["_Reader", t.Op], "Sequence[Output] | Output"]

RULES: Final[dict[OpKind, Rule]] = {}


def graph_of(content: bytes) -> Source:
    """The graph that a verified file computes, with the inputs and outputs of its first signature.

    Raises: UnimplementedError: there are ops that no graph here has; lists all.
    """
    model, weights = decode(content)
    unknown = [op for op in model.ops if not _is_known(model, op)]
    held = [each.name for each in model.tensors if each.storage == Storage.VARIABLE]
    lines = [
        f"  op {op.name} ({OpKind(op.kind).name}): no graph says what it computes" for op in unknown
    ]
    lines += [f"  variable {name}: compiled models keep nothing between calls" for name in held]
    if lines:
        raise errors.UnimplementedError(
            f"{len(lines)} parts of the file cannot be compiled; run it by the runtime, or compile "
            "the graph that it was made of:\n" + "\n".join(lines)
        )
    graph = Graph()
    with graph.as_default():
        return _Reader(model, weights).source(graph)


def _is_known(model: t.Model, op: t.Op) -> bool:
    by_images = len(op.inputs) > 3 and op.inputs[3] >= 0 and op.kind <= OpKind.DepthwiseConv2D
    return OpKind(op.kind) in RULES and not by_images


def reads(*kinds: OpKind) -> Callable[[Rule], Rule]:
    """Decorator that registers what some kinds compute."""

    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(kinds, rule))
        return rule

    return register


class _Reader:
    """Adds the nodes of a file to the default graph."""

    def __init__(self, model: t.Model, weights: bytes) -> None:
        self.model = model
        self.weights = weights
        self.values: dict[int, Output] = {}

    def source(self, graph: Graph) -> Source:
        """All of the file."""
        signature = self.model.signatures[0] if self.model.signatures else None
        ends = self.model.subgraphs[0]
        given = signature.inputs if signature else [t.Binding(f"x{i}", i) for i in ends.inputs]
        computed = signature.outputs if signature else [t.Binding(f"y{i}", i) for i in ends.outputs]
        for number in ends.inputs:
            tensor = self.model.tensors[number]
            dims = [None if size < 0 else size for size in tensor.shape]
            self.values[number] = placeholder(NAMES[DataType(tensor.dtype)], dims)
        for op in self.model.ops:
            self._add(op)
        return Source(
            graph,
            {each.name: self.stored(each.tensor) for each in given},
            {each.name: self.stored(each.tensor) for each in computed},
        )

    def _add(self, op: t.Op) -> None:
        found = RULES[OpKind(op.kind)](self, op)
        results = [found] if isinstance(found, Output) else found
        for number, result in zip(op.outputs, results, strict=True):
            self.values[number] = result

    # ------------------------------------------------------------------------- values

    def tensor(self, number: int) -> t.Tensor:
        return self.model.tensors[number]

    def has(self, op: t.Op, at: int) -> bool:
        return at < len(op.inputs) and op.inputs[at] >= 0

    def array(self, number: int) -> Array:
        """A constant as it is stored."""
        tensor = self.tensor(number)
        dtype = np.dtype(NAMES[DataType(tensor.dtype)]).newbyteorder("<")
        count = int(np.prod(tensor.shape, dtype=np.int64))
        found = np.frombuffer(self.weights, dtype, count, tensor.offset)
        return found.reshape(tensor.shape).astype(dtype.newbyteorder("="))

    def is_constant(self, number: int) -> bool:
        return self.tensor(number).storage == Storage.CONSTANT

    def stored(self, number: int) -> Output:
        """A tensor as it is stored."""
        if number not in self.values:
            self.values[number] = convert_to_tensor(self.array(number))
        return self.values[number]

    def real(self, number: int) -> Output:
        """The numbers that a tensor stands for."""
        q = self.tensor(number).quantization
        if q is None or not q.scales:
            return self.stored(number)
        if self.is_constant(number):
            return convert_to_tensor(_real(self.array(number), q))
        x = create("Cast", [self.stored(number)], {"DstT": dtypes.float32}).outputs[0]
        zeros = _along(
            np.array(q.zero_points or [0], np.float32), q, len(self.tensor(number).shape)
        )
        scales = _along(np.array(q.scales, np.float32), q, len(self.tensor(number).shape))
        return node("Mul", node("Sub", x, zeros), scales)

    def result(self, op: t.Op, x: Output, at: int = 0) -> Output:
        """A real result, after the op's activation, as the file stores it."""
        return self.quantised(op.outputs[at], activated(x, _activation(op)))

    def quantised(self, number: int, x: Output) -> Output:
        """Real numbers as a tensor stores them."""
        tensor = self.tensor(number)
        q = tensor.quantization
        if q is None or not q.scales:
            return x
        return self.rounded(tensor, node("Div", x, np.float32(q.scales[0])))

    def rounded(
        self, tensor: t.Tensor, x: Output, least: float = -np.inf, most: float = np.inf
    ) -> Output:
        """Numbers in units of a tensor's scale, less its zero point, as its integers."""
        q = tensor.quantization
        zero = q.zero_points[0] if q and q.zero_points else 0
        kind = np.iinfo(NAMES[DataType(tensor.dtype)])
        low, high = max(least, kind.min - zero), min(most, kind.max - zero)
        cut = node("Minimum", node("Maximum", x, np.float32(low)), np.float32(high))
        whole = node("Add", node("Rint", cut), np.float32(zero))
        return create("Cast", [whole], {"DstT": dtypes.as_dtype(kind.dtype)}).outputs[0]


def node(op: str, *inputs: Any, **attrs: Any) -> Output:
    """The first result of a new node."""
    given = [each if isinstance(each, list) else convert_to_tensor(each) for each in inputs]
    return create(op, given, attrs).outputs[0]


def _along(values: Array, q: t.Quantization, rank: int) -> Array:
    """Numbers for each index of an axis, so that they broadcast."""
    if len(values) == 1:
        return values.reshape(())
    shape = [1] * rank
    shape[q.axis] = len(values)
    return values.reshape(shape)


def _real(stored: Array, q: t.Quantization) -> Array:
    zeros = _along(np.array(q.zero_points or [0], np.float32), q, stored.ndim)
    return (stored.astype(np.float32) - zeros) * _along(
        np.array(q.scales, np.float32), q, stored.ndim
    )


def _activation(op: t.Op) -> Activation:
    return Activation(getattr(op.options, "activation", 0))


def activated(x: Output, activation: Activation) -> Output:
    """Real numbers after an activation."""
    if activation is Activation.RELU:
        return node("Relu", x)
    if activation is Activation.RELU6:
        return node("Relu6", x)
    if activation is Activation.RELU_N1_TO_1:
        return node("Minimum", node("Maximum", x, np.float32(-1)), np.float32(1))
    return x


# --------------------------------------------------------------------------------- products


@reads(OpKind.Conv2D, OpKind.DepthwiseConv2D)
def _conv(r: _Reader, op: t.Op) -> Output:
    options = op.options
    assert isinstance(options, t.ConvOptions)
    x_tensor = r.tensor(op.inputs[0])
    depth, size = x_tensor.shape[3], (options.kernel_h, options.kernel_w)
    if op.kind == OpKind.Conv2D:
        filters = _matrix(r, op.inputs[1], depth, options.channels)
        filters = filters.reshape(*size, depth, options.channels)
    else:
        filters = r.array(op.inputs[1]).reshape(*size, depth, -1)
    attrs = {
        "strides": [1, options.stride_h or 1, options.stride_w or 1, 1],
        "dilations": [1, options.dilation_h or 1, options.dilation_w or 1, 1],
        "padding": Padding(options.padding).name,
    }
    if options.padding == Padding.EXPLICIT:
        attrs["explicit_paddings"] = [0, 0, *options.pads, 0, 0]
    name = "Conv2D" if op.kind == OpKind.Conv2D else "DepthwiseConv2dNative"
    axes = (0, 1, 2) if op.kind == OpKind.Conv2D else (0, 1)
    return _product(r, op, filters, axes, lambda x, w: node(name, x, w, **attrs))


@reads(OpKind.FullyConnected)
def _dense(r: _Reader, op: t.Op) -> Output:
    options = op.options
    assert isinstance(options, t.MatMulOptions)
    shape = r.tensor(op.inputs[0]).shape
    matrix = _matrix(r, op.inputs[1], shape[-1], options.columns)[0]

    def multiply(x: Output, w: Any) -> Output:
        rows = node("Reshape", x, np.array([-1, shape[-1]], np.int32)) if len(shape) != 2 else x
        found = node("MatMul", rows, w)
        if len(shape) == 2:
            return found
        sizes = node("Shape", x, out_type=dtypes.int32)
        kept = node("Slice", sizes, np.array([0], np.int32), np.array([len(shape) - 1], np.int32))
        width = np.array([matrix.shape[1]], np.int32)
        return node(
            "Reshape", found, node("ConcatV2", [kept, convert_to_tensor(width)], np.int32(0))
        )

    return _product(r, op, matrix, (0,), multiply)


def _matrix(r: _Reader, number: int, depth: int, columns: int) -> Array:
    """Weights (taps, depth, columns), out of the panels that kernels read."""
    found, layout = r.array(number), Layout(r.tensor(number).layout)
    if layout is Layout.PLAIN:
        return found.reshape(1, *found.shape)
    if layout is Layout.PANELS4:
        found = found.transpose(0, 1, 2, 4, 3)
        found = found.reshape(*found.shape[:2], -1, PANEL)
    return unpacked(found, columns)[:, :depth]


def _product(
    r: _Reader, op: t.Op, weights: Array, axes: tuple[int, ...], multiply: Callable[..., Output]
) -> Output:
    """A product of real numbers, or of bytes, whose sums are integers."""
    x, out = r.tensor(op.inputs[0]), r.tensor(op.outputs[0])
    bias = r.array(op.inputs[2]) if r.has(op, 2) else None
    if x.quantization is None or not x.quantization.scales:
        q = r.tensor(op.inputs[1]).quantization
        if q is not None and q.scales:  # one for each column, the last axis
            scales = np.array(q.scales, np.float32)
            weights = weights.astype(np.float32) * scales.reshape(-1)
        found = multiply(r.stored(op.inputs[0]), weights.astype(np.float32))
        return r.result(
            op, found if bias is None else node("BiasAdd", found, bias.astype(np.float32))
        )
    own, after = x.quantization, out.quantization
    assert own is not None and after is not None
    zero = own.zero_points[0] if own.zero_points else 0
    plain = create("Cast", [r.stored(op.inputs[0])], {"DstT": dtypes.float32}).outputs[0]
    found = multiply(node("Sub", plain, np.float32(zero)), weights.astype(np.float32))
    if bias is not None:  # the file's has the zero point in it
        sums = weights.astype(np.int64).sum(axes).reshape(-1)
        found = node("BiasAdd", found, (bias.astype(np.int64) + zero * sums).astype(np.float32))
    filters = r.tensor(op.inputs[1]).quantization
    assert filters is not None
    factor = np.float32(own.scales[0]) / np.float32(after.scales[0])
    scaled = node("Mul", found, np.array(filters.scales, np.float32) * factor)
    zero = after.zero_points[0] if after.zero_points else 0
    limits = {Activation.NONE: (-np.inf, np.inf), Activation.RELU: (0, np.inf),
              Activation.RELU6: (0, 6), Activation.RELU_N1_TO_1: (-1, 1)}  # fmt: skip
    ends = [
        float(np.rint(np.float32(end) / np.float32(after.scales[0]) + np.float32(zero))) - zero
        for end in limits[_activation(op)]
    ]
    return r.rounded(out, scaled, *ends)


@reads(OpKind.BatchMatMul)
def _matmul(r: _Reader, op: t.Op) -> Output:
    options = op.options
    left = bool(getattr(options, "transpose_a", 0))
    right = bool(getattr(options, "transpose_b", 0))
    a, b = r.real(op.inputs[0]), r.real(op.inputs[1])
    return r.result(op, node("BatchMatMulV2", a, b, adj_x=left, adj_y=right))


@reads(OpKind.LstmCell)
def _lstm(r: _Reader, op: t.Op) -> list[Output]:
    x, c, h = (r.real(number) for number in op.inputs[:3])
    options = op.options
    assert isinstance(options, t.CellOptions)
    gates = _gates(r, op, [x, h], 3, 4)
    entry, new, forget, leave = create(
        "Split", [convert_to_tensor(np.int32(1)), gates], {"num_split": 4}
    ).outputs
    kept = node("Sigmoid", node("Add", forget, np.float32(options.forget_bias)))
    state = node(
        "Add", node("Mul", kept, c), node("Mul", node("Sigmoid", entry), node("Tanh", new))
    )
    if options.cell_clip:
        clip = np.float32(options.cell_clip)
        state = node("Minimum", node("Maximum", state, -clip), clip)
    return [state, node("Mul", node("Sigmoid", leave), node("Tanh", state))]


def _gates(r: _Reader, op: t.Op, parts: list[Output], weights: int, bias: int) -> Output:
    """Parts side by side times weights."""
    depth = sum(int(part.shape[1]) for part in parts)
    columns = len(r.array(op.inputs[bias]).reshape(-1))
    matrix = _matrix(r, op.inputs[weights], depth, columns)[0]
    q = r.tensor(op.inputs[weights]).quantization
    if q is not None and q.scales:
        matrix = matrix.astype(np.float32) * np.array(q.scales, np.float32)
    joined = node("ConcatV2", parts, np.int32(1))
    return node(
        "BiasAdd", node("MatMul", joined, matrix.astype(np.float32)), r.array(op.inputs[bias])
    )


# --------------------------------------------------------------------------------- elements

_SAME: Final = (
    "Abs Neg Sign Square Sqrt Rsqrt Exp Expm1 Log Log1p Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh "
    "Acosh Atanh Tanh Sigmoid Relu Relu6 Elu Selu Softplus Softsign Erf Erfc Floor Ceil Rint "
    "Reciprocal IsNan IsInf IsFinite LogicalNot Add Sub Mul Maximum Minimum Pow SquaredDifference "
    "Atan2 FloorDiv FloorMod TruncateDiv TruncateMod Less LessEqual Greater GreaterEqual Equal "
    "NotEqual LogicalAnd LogicalOr LogSoftmax"
)


@reads(*[OpKind[name] for name in _SAME.split()])
def _elementwise(r: _Reader, op: t.Op) -> Output:
    return r.result(op, node(OpKind(op.kind).name, *map(r.real, op.inputs)))


@reads(OpKind.Div)
def _div(r: _Reader, op: t.Op) -> Output:
    x, y = map(r.real, op.inputs)
    return r.result(op, node("TruncateDiv" if x.dtype.is_integer else "RealDiv", x, y))


@reads(OpKind.LeakyRelu)
def _leaky(r: _Reader, op: t.Op) -> Output:
    assert isinstance(op.options, t.ElementwiseOptions)
    return r.result(op, node("LeakyRelu", r.real(op.inputs[0]), alpha=op.options.alpha))


@reads(OpKind.Silu)
def _silu(r: _Reader, op: t.Op) -> Output:
    x = r.real(op.inputs[0])
    return r.result(op, node("Mul", x, node("Sigmoid", x)))


@reads(OpKind.HardSwish)
def _hard_swish(r: _Reader, op: t.Op) -> Output:
    x = r.real(op.inputs[0])
    sixth = node("Mul", node("Relu6", node("Add", x, np.float32(3))), np.float32(1 / 6))
    return r.result(op, node("Mul", x, sixth))


@reads(OpKind.Gelu)
def _gelu(r: _Reader, op: t.Op) -> Output:
    x = r.real(op.inputs[0])
    assert isinstance(op.options, t.ElementwiseOptions)
    if op.options.exact:
        inner = node("Erf", node("Mul", x, np.float32(np.sqrt(0.5))))
    else:
        cube = node("Mul", node("Mul", node("Square", x), x), np.float32(0.044715))
        inner = node("Tanh", node("Mul", node("Add", x, cube), np.float32(np.sqrt(2 / np.pi))))
    half = node("Mul", x, np.float32(0.5))
    return r.result(op, node("Mul", half, node("Add", inner, np.float32(1))))


@reads(OpKind.Select)
def _select(r: _Reader, op: t.Op) -> Output:
    return r.result(op, node("SelectV2", *map(r.real, op.inputs)))


@reads(OpKind.Cast)
def _cast(r: _Reader, op: t.Op) -> Output:
    to = dtypes.as_dtype(NAMES[DataType(r.tensor(op.outputs[0]).dtype)])
    if r.is_constant(op.inputs[0]):
        return convert_to_tensor(r.array(op.inputs[0]).astype(to.as_numpy_dtype))
    return node("Cast", r.stored(op.inputs[0]), DstT=to)


@reads(OpKind.Quantize, OpKind.Dequantize, OpKind.Copy)
def _requantise(r: _Reader, op: t.Op) -> Output:
    if r.is_constant(op.inputs[0]) and r.array(op.inputs[0]).dtype == np.float16:
        return convert_to_tensor(r.array(op.inputs[0]).astype(np.float32))
    return r.quantised(op.outputs[0], r.real(op.inputs[0]))


# --------------------------------------------------------------------------------- others


@reads(OpKind.Softmax)
def _softmax(r: _Reader, op: t.Op) -> Output:
    beta = getattr(op.options, "beta", 1.0)
    x = r.real(op.inputs[0])
    return r.result(op, node("Softmax", x if beta == 1.0 else node("Mul", x, np.float32(beta))))


@reads(OpKind.LayerNorm)
def _layer_norm(r: _Reader, op: t.Op) -> Output:
    assert isinstance(op.options, t.AxisOptions)
    x, last = r.real(op.inputs[0]), np.array([-1], np.int32)
    centred = node("Sub", x, node("Mean", x, last, keep_dims=True))
    variance = node("Mean", node("Square", centred), last, keep_dims=True)
    factor = node("Rsqrt", node("Add", variance, np.float32(op.options.epsilon)))
    found = node("Mul", centred, factor)
    for at, name in ((1, "Mul"), (2, "Add")):
        if r.has(op, at):
            found = node(name, found, r.real(op.inputs[at]))
    return r.result(op, found)


@reads(OpKind.L2Normalize)
def _l2(r: _Reader, op: t.Op) -> Output:
    assert isinstance(op.options, t.AxisOptions)
    x, last = r.real(op.inputs[0]), np.array([-1], np.int32)
    total = node("Sum", node("Square", x), last, keep_dims=True)
    least = np.float32(op.options.epsilon)
    return r.result(op, node("Mul", x, node("Rsqrt", node("Maximum", total, least))))


@reads(OpKind.Sum, OpKind.Mean, OpKind.Max, OpKind.Min, OpKind.Prod, OpKind.All, OpKind.Any)
def _reduce(r: _Reader, op: t.Op) -> Output:
    keep = bool(getattr(op.options, "keep_dims", 0))
    found = node(OpKind(op.kind).name, r.real(op.inputs[0]), r.stored(op.inputs[1]), keep_dims=keep)
    return r.result(op, found)


@reads(OpKind.ArgMax, OpKind.ArgMin)
def _arg(r: _Reader, op: t.Op) -> Output:
    to = dtypes.as_dtype(NAMES[DataType(r.tensor(op.outputs[0]).dtype)])
    return node(
        OpKind(op.kind).name, r.stored(op.inputs[0]), r.stored(op.inputs[1]), output_type=to
    )


@reads(OpKind.MaxPool, OpKind.AvgPool)
def _pool(r: _Reader, op: t.Op) -> Output:
    options = op.options
    assert isinstance(options, t.PoolOptions)
    attrs = {
        "ksize": [1, options.window_h, options.window_w, 1],
        "strides": [1, options.stride_h, options.stride_w, 1],
        "padding": Padding(options.padding).name,
    }
    return r.result(op, node(OpKind(op.kind).name, r.real(op.inputs[0]), **attrs))


# --------------------------------------------------------------------------------- movements

_MOVES: Final = {
    "Reshape": "Reshape", "Transpose": "Transpose", "Slice": "Slice", "Tile": "Tile",
    "BroadcastTo": "BroadcastTo", "ExpandDims": "ExpandDims", "Reverse": "ReverseV2",
    "GatherNd": "GatherNd",
}  # fmt: skip


@reads(*[OpKind[name] for name in _MOVES])
def _move(r: _Reader, op: t.Op) -> Output:
    return node(_MOVES[OpKind(op.kind).name], *map(r.stored, op.inputs))


@reads(OpKind.Squeeze)
def _squeeze(r: _Reader, op: t.Op) -> Output:
    axes = r.array(op.inputs[1]).reshape(-1).tolist() if r.has(op, 1) else []
    return node("Squeeze", r.stored(op.inputs[0]), squeeze_dims=axes)


@reads(OpKind.Pad)
def _pad(r: _Reader, op: t.Op) -> Output:
    x, q = r.stored(op.inputs[0]), r.tensor(op.inputs[0]).quantization
    zero = q.zero_points[0] if q and q.zero_points else 0
    value = r.stored(op.inputs[2]) if r.has(op, 2) else np.asarray(zero, x.dtype.as_numpy_dtype)
    return node("PadV2", x, r.stored(op.inputs[1]), value)


@reads(OpKind.MirrorPad)
def _mirror(r: _Reader, op: t.Op) -> Output:
    mode = PadMode(getattr(op.options, "mode", PadMode.REFLECT)).name
    return node("MirrorPad", r.stored(op.inputs[0]), r.stored(op.inputs[1]), mode=mode)


@reads(OpKind.Concat)
def _concat(r: _Reader, op: t.Op) -> Output:
    assert isinstance(op.options, t.AxisOptions)
    return r.result(op, node("ConcatV2", [r.real(i) for i in op.inputs], np.int32(op.options.axis)))


@reads(OpKind.Pack)
def _pack(r: _Reader, op: t.Op) -> Output:
    assert isinstance(op.options, t.AxisOptions)
    return r.result(op, node("Pack", [r.real(i) for i in op.inputs], axis=op.options.axis))


@reads(OpKind.Unpack)
def _unpack(r: _Reader, op: t.Op) -> Sequence[Output]:
    assert isinstance(op.options, t.AxisOptions)
    attrs = {"num": len(op.outputs), "axis": op.options.axis}
    return create("Unpack", [r.stored(op.inputs[0])], attrs).outputs


@reads(OpKind.Split)
def _split(r: _Reader, op: t.Op) -> Sequence[Output]:
    assert isinstance(op.options, t.AxisOptions)
    axis = op.options.axis
    sizes = np.array([r.tensor(number).shape[axis] for number in op.outputs], np.int32)
    given = [r.stored(op.inputs[0]), convert_to_tensor(sizes), convert_to_tensor(np.int32(axis))]
    return create("SplitV", given, {"num_split": len(sizes)}).outputs


@reads(OpKind.StridedSlice)
def _strided(r: _Reader, op: t.Op) -> Output:
    names = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    masks = {f"{name}_mask": getattr(op.options, f"{name}_mask", 0) for name in names}
    return node("StridedSlice", *map(r.stored, op.inputs), **masks)


@reads(OpKind.Gather)
def _gather(r: _Reader, op: t.Op) -> Output:
    assert isinstance(op.options, t.AxisOptions)
    x, indices = map(r.stored, op.inputs)
    return node("GatherV2", x, indices, np.int32(op.options.axis), batch_dims=op.options.batch_dims)


@reads(OpKind.Shape)
def _shape(r: _Reader, op: t.Op) -> Output:
    to = dtypes.as_dtype(NAMES[DataType(r.tensor(op.outputs[0]).dtype)])
    return node("Shape", r.stored(op.inputs[0]), out_type=to)


@reads(OpKind.Fill, OpKind.Range)
def _fill(r: _Reader, op: t.Op) -> Output:
    return node(OpKind(op.kind).name, *map(r.stored, op.inputs))


@reads(OpKind.SpaceToDepth, OpKind.DepthToSpace)
def _blocks(r: _Reader, op: t.Op) -> Output:
    assert isinstance(op.options, t.BlockOptions)
    return node(OpKind(op.kind).name, r.stored(op.inputs[0]), block_size=op.options.block)


__all__ = ["graph_of"]

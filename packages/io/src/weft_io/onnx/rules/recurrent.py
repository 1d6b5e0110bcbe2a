"""Recurrent networks: RNN, LSTM and GRU, over (steps, batch, inputs)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np

from weft_graph.control_flow.loop import while_loop
from weft_graph.control_flow.tensor_array import TensorArray
from weft_graph.functions.body import FunctionGraph
from weft_graph.functions.call import add_call
from weft_graph.functions.substitutes import mark
from weft_graph.functions.trace import trace
from weft_graph.ir.builder import constant
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_graph.ops import elementary, nn, trigonometry
from weft_graph.ops.arithmetic import clip_by_value
from weft_graph.ops.array import zeros, zeros_like
from weft_graph.ops.broadcasting import broadcast_to
from weft_graph.ops.comparison import less, less_equal
from weft_graph.ops.join import concat, split, stack
from weft_graph.ops.masks import where_v2
from weft_graph.ops.matmul import matmul
from weft_graph.ops.permutation import reverse, reverse_sequence, transpose
from weft_graph.ops.recurrent import LAYER
from weft_graph.ops.reduction import reduce_max
from weft_graph.ops.sequence import range as sequence
from weft_graph.ops.shapes import expand_dims, reshape, shape
from weft_graph.ops.trigonometry import tanh
from weft_io.onnx.operation import Operation, cast, like
from weft_io.onnx.registry import importer
from weft_io.onnx.rules.activation import selu_of
from weft_io.onnx.rules.integer_products import integer_product
from weft_io.onnx.rules.quantization import quantize_dynamically, round_trip_int8
from weft_tensor import dtypes, errors

Activation = Callable[[Output], Output]
Step = Callable[[Output, Sequence[Output]], Sequence[Output]]

_DEFAULTS: Final = {
    "RNN": ["Tanh"],
    "GRU": ["Sigmoid", "Tanh"],
    "LSTM": ["Sigmoid", "Tanh", "Tanh"],
    "DynamicQuantizeLSTM": ["Sigmoid", "Tanh", "Tanh"],
}
_OF_KERNELS: Final = {"sigmoid", "tanh", "relu"}
_WITH_BETA: Final = {"affine", "hardsigmoid", "scaledtanh"}
_WITH_ALPHA: Final = {*_WITH_BETA, "elu", "leakyrelu", "thresholdedrelu"}
"""Activations with a parameter in the attribute `activation_alpha`."""
_ALPHA: Final = {"leakyrelu": 0.01, "thresholdedrelu": 1.0, "hardsigmoid": 0.2, "elu": 1.0}


def _activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    """Return an activation by ONNX's name.

    Raises: InvalidArgumentError: ONNX has no activation of that name.
    """
    key = name.lower()
    a = _ALPHA.get(key, 1.0) if alpha is None else alpha
    b = (0.5 if key == "hardsigmoid" else 1.0) if beta is None else beta
    result: dict[str, Activation] = {
        "affine": lambda x: x * like(a, x) + like(b, x),
        "elu": lambda x: selu_of(x, a, 1.0),
        "hardsigmoid": lambda x: clip_by_value(x * like(a, x) + like(b, x), 0.0, 1.0),
        "leakyrelu": lambda x: nn.leaky_relu(x, a),
        "relu": nn.relu,
        "scaledtanh": lambda x: tanh(x * like(b, x)) * like(a, x),
        "sigmoid": elementary.sigmoid,
        "softplus": nn.softplus,
        "softsign": nn.softsign,
        "tanh": trigonometry.tanh,
        "thresholdedrelu": lambda x: where_v2(x > like(a, x), x, like(0, x)),
    }
    if key not in result:
        raise errors.InvalidArgumentError(f"unknown activation {name!r}")
    return result[key]


class _Activations(NamedTuple):
    """The activations of one direction, and their ONNX names."""

    names: Sequence[str]
    functions: Sequence[Activation]


def _activations(operation: Operation, directions: int) -> list[_Activations]:
    """Return the activations of each direction."""
    default = _DEFAULTS[operation.op]
    names = operation.attribute("activations") or default * directions
    if len(names) < len(default) * directions:
        raise errors.InvalidArgumentError(
            f"{operation.op} requires {len(default) * directions} activations, got {names}"
        )
    alphas, betas = (
        iter(operation.attribute(f"activation_{item}") or ()) for item in ("alpha", "beta")
    )
    cells = [
        _activation(
            name,
            next(alphas, None) if name.lower() in _WITH_ALPHA else None,
            next(betas, None) if name.lower() in _WITH_BETA else None,
        )
        for name in names
    ]
    count = len(default)
    slices = [slice(count * i, count * (i + 1)) for i in range(directions)]
    return [_Activations(names[part], cells[part]) for part in slices]


@importer("DynamicQuantizeLSTM", domain="com.microsoft")
@importer("RNN", "GRU", "LSTM")
def _recurrent(operation: Operation) -> list[Output]:
    direction = operation.attribute("direction", "forward")
    backward = _BACKWARD.get(direction)
    if backward is None:
        raise errors.InvalidArgumentError(
            f"direction of {operation.op} must be one of {list(_BACKWARD)}, got {direction!r}"
        )
    for index in range(3):
        operation.require_rank(3, index)
    declared_size, width = operation.attribute("hidden_size"), (operation[2].dims or (None,))[-1]
    if (
        operation.op != "DynamicQuantizeLSTM"
        and declared_size
        and width not in (declared_size, None)
    ):
        raise errors.InvalidArgumentError(
            f"hidden_size of {operation.op} is {declared_size}, its weights are of {width}"
        )
    count = operation[1].dims
    if count is not None and count[0] not in (len(backward), None):
        raise errors.InvalidArgumentError(
            f"{operation.op} requires weights of {len(backward)} directions, got {count[0]}"
        )
    batch_first = bool(operation.attribute("layout", 0))
    x = transpose(operation[0], [1, 0, 2]) if batch_first else operation[0]
    kind = _QuantizedLayer if operation.op == "DynamicQuantizeLSTM" else _Layer
    outputs, *states = kind(operation, backward).run(x)
    if batch_first:
        outputs = transpose(outputs, [2, 0, 1, 3])
        states = [transpose(item, [1, 0, 2]) for item in states]
    return [outputs, *states][: max(operation.num_outputs, 1)]


_BACKWARD: Final = {
    "forward": [False],
    "foward": [False],  # ONNX's default for the first GRU
    "reverse": [True],
    "bidirectional": [False, True],
}


def _reverse(x: Output, lengths: Output | None) -> Output:
    """Reverse each sequence's steps; steps past its end stay in place."""
    if lengths is None:
        return reverse(x, [0])
    return reverse_sequence(x, lengths, seq_axis=0, batch_axis=1)


def _sizes(x: Output) -> list[Any]:
    """Return the sizes of all axes, as ints where they are known."""
    return [shape(x)[i] if n is None else n for i, n in enumerate(x.dims or ())]


def _reshape(x: Output, sizes: Sequence[Any]) -> Output:
    """Reshape to sizes, which may include tensors and -1."""
    known_sizes = [0 if isinstance(size, Output) else size for size in sizes]
    if known_sizes.count(0) + known_sizes.count(-1) > 1:
        return reshape(x, stack(list(sizes)))
    if any(isinstance(size, Output) for size in sizes):
        known_sizes = [size or -1 for size in known_sizes]
    return reshape(x, known_sizes)


def merge_directions(x: Output) -> Output:
    """Concatenate the columns of all directions, (directions, rows, columns), to one matrix."""
    return _reshape(transpose(x, [1, 0, 2]), [_sizes(x)[1], -1])


class _Layer:
    """All directions of a layer.

    Loop-invariant parts are computed outside the loop: biases are added to the inputs of all steps
    unless a product with the state comes between, and gates with the same activation are one
    matrix.

    Attributes:
      backward: whether each direction starts at the last step.
      w: (inputs, directions * gates).
      r: (directions, width, gates).
      bias: (directions * gates), or None.
      inner_bias: (directions, width), for a GRU that resets after the product.
      scales, points: scales and zero points of 8-bit weights; otherwise empty.
    """

    quantized = False
    scales: Output
    points: Output

    def __init__(self, operation: Operation, backward: Sequence[bool]) -> None:
        self.operation = operation
        self.backward = backward
        self.activations = _activations(operation, len(backward))
        w, self.r = self._weights()
        self.w = merge_directions(w)
        self.reset_after = operation.op == "GRU" and bool(
            operation.attribute("linear_before_reset", 0)
        )
        bias = operation.get(3)
        self.bias: Output | None = None
        self.inner_bias: Output | None = None
        if bias is not None:
            half = _sizes(self.r)[2]
            of_w, of_r = bias[:, :half], bias[:, half:]
            if self.reset_after:
                ends = half - self.width
                self.inner_bias = of_r[:, ends:]
                of_r = concat([of_r[:, :ends], zeros_like(self.inner_bias)], 1)
            self.bias = reshape(of_w + of_r, [-1])
        self.count = 1 if operation.op in ("RNN", "GRU") else 2

    def _weights(self) -> tuple[Output, Output]:
        """Return the weights of inputs and state, (directions, inputs or width, gates)."""
        self.scales = zeros([0], self.operation[0].dtype.base_dtype)
        self.points = constant(np.zeros(0, np.int32))
        return transpose(self.operation[1], [0, 2, 1]), transpose(self.operation[2], [0, 2, 1])

    @property
    def width(self) -> Any:
        """The size of the state, as an int if it is known."""
        return self.operation.attribute("hidden_size") or _sizes(self.r)[1]

    def floats(self, r: Output, scales: Output, points: Output) -> Output:
        """Return the weights of the state as floats."""
        return r

    def multiply_inputs(self, x: Output) -> Output:
        """Multiply rows of inputs by their weights, (rows, directions * gates)."""
        return self.product(x, self.w)

    def product(self, x: Output, weights: Output) -> Output:
        """Multiply rows by weights."""
        result: Output = matmul(x, weights)
        return result

    def start(self, index: int, batch: Any, dtype: Any) -> Output:
        """Return an initial state; zeros by default."""
        lengths_input = self.operation.get(index)
        if lengths_input is None:
            return zeros(stack([len(self.backward), batch, self.width]), dtype)
        if self.operation.attribute("layout", 0):
            lengths_input = transpose(lengths_input, [1, 0, 2])
        return lengths_input

    def run(self, x: Output) -> list[Output]:
        """Return the results of all steps, (steps, directions, batch, width), and final states."""
        steps, batch, depth = _sizes(x)
        lengths = self.operation.get(4)
        lengths_input = None if lengths is None else cast(lengths, dtypes.int32)
        if self.quantized and lengths_input is not None:  # past all ends nothing is read
            is_active = less(sequence(shape(x)[0]), reduce_max(lengths_input))
            x = where_v2(reshape(is_active, [-1, 1, 1]), x, like(0, x))
        rows = self.multiply_inputs(_reshape(x, [-1, depth]))
        if self.bias is not None:
            rows = rows + self.bias
        rows = _reshape(rows, [steps, batch, _sizes(rows)[1]])
        states = [self.start(5 + i, batch, x.dtype.base_dtype) for i in range(self.count)]
        kind = self._kind()
        if kind is None:
            r = self.floats(self.r, self.scales, self.points)
            outputs, *lasts = self._steps(rows, r, self.inner_bias, lengths_input, states)
        else:
            outputs, *lasts = self._call_function(kind, rows, lengths_input, states)
        return [
            outputs,
            *(self._final_state(item, 5 + i, lengths_input) for i, item in enumerate(lasts)),
        ]

    def _final_state(self, state: Output, index: int, lengths: Output | None) -> Output:
        """Return a final state; 0 for sequences without steps, as in ONNX Runtime."""
        known_lengths = self.operation.value(4)
        if (
            lengths is None
            or self.operation.get(index) is None
            or (known_lengths is not None and known_lengths.all())
        ):
            return state
        return where_v2(reshape(lengths > 0, [1, -1, 1]), state, like(0, state))

    def _steps(
        self,
        rows: Output,
        r: Output,
        inner_bias: Output | None,
        lengths: Output | None,
        states: Sequence[Output],
    ) -> list[Output]:
        """Compute the steps by one loop for each direction."""
        parts = split(rows, len(self.backward), -1)
        result = []
        for index, turned in enumerate(self.backward):
            bias = None if inner_bias is None else inner_bias[index]
            cell = _Cell(self, index, r[index], bias)
            part = _reverse(parts[index], lengths) if turned else parts[index]
            step_outputs, *last = cell.loop(part, lengths, [item[index] for item in states])
            result.append([_reverse(step_outputs, lengths) if turned else step_outputs, *last])
        outputs, *lasts = zip(*result, strict=True)
        return [stack(list(outputs), axis=1), *[stack(list(item)) for item in lasts]]

    # ------------------------------------------------------------------ as one kernel

    def _kind(self) -> str | None:
        """Return the cell kind if it has a kernel, or None."""
        names = [[name.lower() for name in item.names] for item in self.activations]
        attribute = self.operation.attribute
        plain = set(names[0]) <= _OF_KERNELS and names[0] == names[-1]
        peep = self.operation.get(7) if self.operation.op == "LSTM" else None
        if self.quantized:
            peep = self.operation.get(7)
        if not plain or peep is not None or attribute("clip") or attribute("input_forget", 0):
            return None
        if self.reset_after:
            return "gru_reset_after"
        return {"RNN": "rnn", "GRU": "gru"}.get(self.operation.op, "lstm")

    def _call_function(
        self, kind: str, rows: Output, lengths: Output | None, states: Sequence[Output]
    ) -> list[Output]:
        """Call a function that computes the steps, which a kernel may replace."""
        bias = zeros([0], rows.dtype) if self.inner_bias is None else self.inner_bias
        lengths_input = constant(np.zeros(0, np.int32)) if lengths is None else lengths
        values = [rows, self.r, self.scales, self.points, bias, lengths_input, *states]

        def body(
            rows: Output,
            r: Output,
            scales: Output,
            points: Output,
            bias: Output,
            lengths_input: Output,
            *old: Output,
        ) -> Any:
            inner_bias = None if self.inner_bias is None else bias
            r = self.floats(r, scales, points)
            return self._steps(rows, r, inner_bias, None if lengths is None else lengths_input, old)

        def arguments(graph: FunctionGraph) -> tuple[list[Output], dict[str, Any]]:
            return [graph.add_input_like(value, value.node.type) for value in values], {}

        attrs = mark(
            LAYER,
            T=rows.dtype.base_dtype,
            W=self.r.dtype.base_dtype,
            N=len(states),
            cell=kind,
            activations=[name.lower() for name in self.activations[0].names],
            backward=list(self.backward),
        )
        graph = get_default_graph()
        with graph.functions.reserve_name(self.operation.op) as name:
            function, _ = trace(body, arguments, name, graph, ordered=False, attrs=attrs)
            graph.functions.add(function)
        return add_call(function, values)[1]


class _QuantizedLayer(_Layer):
    """A layer with 8-bit weights, whose inputs and states are quantized in each step.

    The product with the state is computed in floats, with dequantized operands.
    """

    quantized = True

    def _weights(self) -> tuple[Output, Output]:
        self.scales, self.points = self._scale(10)
        return self.operation[1], self.operation[2]

    def multiply_inputs(self, x: Output) -> Output:
        columns = [len(self.backward), 1, _sizes(self.r)[2]]
        scales, points = (
            merge_directions(broadcast_to(expand_dims(item, 1), stack(columns)))
            for item in self._scale(8)
        )
        small, scale, point = quantize_dynamically(x)
        values = [cast(small, dtypes.uint8), self.w, cast(point, dtypes.int32), points]
        sums = integer_product(f"{self.operation.op}_inputs", values, dtypes.float64)
        return cast(sums, x.dtype.base_dtype) * (scale * scales)

    def _scale(self, scale: int) -> tuple[Output, Output]:
        """Return the scale and zero point of weights: one per direction, or one per column."""
        slices, point = [len(self.backward), -1], self.operation.get(scale + 1)
        scales = reshape(self.operation[scale], slices)
        if point is None:
            return scales, zeros_like(cast(scales, dtypes.int32))
        return scales, reshape(cast(point, dtypes.int32), slices)

    def floats(self, r: Output, scales: Output, points: Output) -> Output:
        result = cast(r, scales.dtype) - expand_dims(cast(points, scales.dtype), 1)
        return result * expand_dims(scales, 1)

    def product(self, x: Output, weights: Output) -> Output:
        return super().product(round_trip_int8(x), weights)


class _Cell:
    """The steps of one direction as a loop.

    Args:
      layer: the layer.
      index: index of the direction.
      r: weights of the state, (width, gates).
      inner_bias: (width), for a GRU that resets after the product.
    """

    def __init__(self, layer: _Layer, index: int, r: Output, inner_bias: Output | None) -> None:
        operation = layer.operation
        self.product = layer.product
        self.quantized = layer.quantized
        self.width = layer.width
        self.r = r
        self.reset_after = layer.reset_after
        self.inner_bias = inner_bias
        self.activations = layer.activations[index].functions
        self.step = {"RNN": self._rnn, "GRU": self._gru}.get(operation.op, self._lstm)
        peep = operation.get(7) if layer.count == 2 else None
        self.peep = None if peep is None else self._parts(peep[index], 1, 1, 1)
        self.clip = operation.attribute("clip")
        self.input_forget = bool(operation.attribute("input_forget", 0))

    def _parts(self, rows: Output, *counts: int) -> list[Output]:
        """Split the last axis into groups of `counts` gates, as views."""
        ends = [self.width * end for end in accumulate(counts)]
        return [rows[..., begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    def clip_input(self, x: Output) -> Output:
        """Clip the input of an activation."""
        return x if self.clip is None else clip_by_value(x, -self.clip, self.clip)

    def loop(self, rows: Output, lengths: Output | None, states: Sequence[Output]) -> list[Output]:
        """Return the results of all steps, (steps, batch, width), and the last states."""
        steps, dtype = shape(rows)[0], rows.dtype.base_dtype
        parts = TensorArray(dtype, steps).unstack(rows)
        results = TensorArray(dtype, steps, infer_shape=False)

        def body(step_index: Output, results: TensorArray, *old: Output) -> list[Any]:
            new = list(
                self.step(parts.read(step_index), self._read_states(old, step_index, lengths))
            )
            shown = new[0]
            if lengths is not None:
                is_active = expand_dims(less(step_index, lengths), 1)
                new = [where_v2(is_active, a, b) for a, b in zip(new, old, strict=True)]
                shown = where_v2(is_active, shown, like(0, shown))
            for item, old_state in zip(new, old, strict=True):
                item.set_shape(old_state.shape)
            return [step_index + 1, results.write(step_index, shown), *new]

        result = while_loop(
            lambda step_index, *_: less(step_index, steps), body, [constant(0), results, *states]
        )
        outputs = result[1].stack()
        sizes = (None, None) if rows.dims is None else rows.dims[:2]
        outputs.set_shape([*sizes, None if self.r.dims is None else self.r.dims[0]])
        return [outputs, *result[2:]]

    def _read_states(
        self, old: Sequence[Output], step_index: Output, lengths: Output | None
    ) -> Sequence[Output]:
        """Return the previous states as a step reads them.

        A state is quantized only over sequences that have not ended.
        """
        if not self.quantized or lengths is None:
            return old
        is_active = expand_dims(less_equal(step_index, lengths), 1)
        return [where_v2(is_active, old[0], like(0, old[0])), *old[1:]]

    def _rnn(self, x: Output, old: Sequence[Output]) -> list[Output]:
        return [self.activations[0](self.clip_input(x + self.product(old[0], self.r)))]

    def _gru(self, x: Output, old: Sequence[Output]) -> list[Output]:
        (h,) = old
        f, g = self.activations
        gates, new = self._parts(x, 2, 1)
        if self.reset_after:
            recurrent, inner = self._parts(self.product(h, self.r), 2, 1)
            if self.inner_bias is not None:
                inner = inner + self.inner_bias
        else:
            of_gates, of_new = self._parts(self.r, 2, 1)
            recurrent, inner = self.product(h, of_gates), None
        z, r = self._parts(f(self.clip_input(gates + recurrent)), 1, 1)
        inner = self.product(r * h, of_new) if inner is None else r * inner
        new = g(self.clip_input(new + inner))
        return [new + z * (h - new)]

    def _lstm(self, x: Output, old: Sequence[Output]) -> list[Output]:
        h, c = old
        f, g, last = self.activations
        rows = x + self.product(h, self.r)
        if self.peep is None and not self.input_forget:
            gates, cell = self._parts(rows, 3, 1)
            i, o, forget = self._parts(f(self.clip_input(gates)), 1, 1, 1)
            new = forget * c + i * g(self.clip_input(cell))
            return [o * last(new), new]
        i, o, forget, cell = self._parts(rows, 1, 1, 1, 1)
        if self.peep is not None:
            i, forget = i + self.peep[0] * c, forget + self.peep[2] * c
        i = f(self.clip_input(i))
        forget = like(1, i) - i if self.input_forget else f(self.clip_input(forget))
        new = forget * c + i * g(self.clip_input(cell))
        if self.peep is not None:
            o = o + self.peep[1] * new
        return [f(self.clip_input(o)) * last(new), new]

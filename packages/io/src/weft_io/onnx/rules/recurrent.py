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
from weft_graph.ops.comparison import less
from weft_graph.ops.join import concat, split, stack
from weft_graph.ops.masks import where_v2
from weft_graph.ops.matmul import matmul
from weft_graph.ops.permutation import reverse, reverse_sequence, transpose
from weft_graph.ops.shapes import expand_dims, reshape, shape
from weft_graph.ops.trigonometry import tanh
from weft_io.onnx.operation import Operation, cast, like
from weft_io.onnx.registry import importer
from weft_io.onnx.rules.activation import selu_of
from weft_io.onnx.rules.quantization import through_8_bits
from weft_io.ops.recurrent import LAYER
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
_ALPHA: Final = {"leakyrelu": 0.01, "thresholdedrelu": 1.0, "hardsigmoid": 0.2, "elu": 1.0}


def _activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    """An activation by ONNX's name.

    Raises: InvalidArgumentError: ONNX has none of that name.
    """
    key = name.lower()
    a = _ALPHA.get(key, 1.0) if alpha is None else alpha
    b = (0.5 if key == "hardsigmoid" else 1.0) if beta is None else beta
    found: dict[str, Activation] = {
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
    if key not in found:
        raise errors.InvalidArgumentError(f"no activation is called {name!r}")
    return found[key]


class _Activations(NamedTuple):
    """The activations of one direction, and ONNX's names of them."""

    names: Sequence[str]
    functions: Sequence[Activation]


def _activations(operation: Operation, directions: int) -> list[_Activations]:
    """The activations of each direction."""
    default = _DEFAULTS[operation.op]
    names = operation.attribute("activations") or default * directions
    if len(names) < len(default) * directions:
        raise errors.InvalidArgumentError(
            f"{operation.op} requires {len(default) * directions} activations, got {names}"
        )
    alphas, betas = (
        [*(operation.attribute(f"activation_{each}") or ()), *[None] * len(names)]
        for each in ("alpha", "beta")
    )
    made = [_activation(*each) for each in zip(names, alphas, betas, strict=False)]
    count = len(default)
    places = [slice(count * i, count * (i + 1)) for i in range(directions)]
    return [_Activations(names[place], made[place]) for place in places]


@importer("DynamicQuantizeLSTM", domain="com.microsoft")
@importer("RNN", "GRU", "LSTM")
def _recurrent(operation: Operation) -> list[Output]:
    x, batch_first = operation[0], bool(operation.attribute("layout", 0))
    if batch_first:
        x = transpose(x, [1, 0, 2])
    direction = operation.attribute("direction", "forward")
    if direction == "foward":  # ONNX's default for the first GRU
        direction = "forward"
    if direction not in ("forward", "reverse", "bidirectional"):
        raise errors.InvalidArgumentError(f"direction of {operation.op} is {direction!r}")
    directions = 2 if direction == "bidirectional" else 1
    said, dims = operation.attribute("hidden_size"), operation[2].dims
    if operation.op != "DynamicQuantizeLSTM" and said and dims and dims[-1] not in (said, None):
        raise errors.InvalidArgumentError(
            f"hidden_size of {operation.op} is {said}, its weights are of {dims[-1]}"
        )
    kind = _QuantizedCell if operation.op == "DynamicQuantizeLSTM" else _Cell
    activations = _activations(operation, directions)
    outputs, lasts = [], []
    for index in range(directions):
        backward = direction == "reverse" or index == 1
        cell = kind(operation, index, activations[index])
        every, last = cell.run(_turned(operation, x) if backward else x)
        outputs.append(_turned(operation, every) if backward else every)
        lasts.append(last)
    whole = stack(outputs, axis=1)
    states = [stack(list(each)) for each in zip(*lasts, strict=True)]
    if batch_first:
        whole = transpose(whole, [2, 0, 1, 3])
        states = [transpose(each, [1, 0, 2]) for each in states]
    return [whole, *states][: max(operation.num_outputs, 1)]


def _turned(operation: Operation, x: Output) -> Output:
    """The steps in the opposite order, those behind a sequence's end at their places."""
    lengths = operation.get(4)
    if lengths is None:
        return reverse(x, [0])
    return reverse_sequence(x, lengths, seq_axis=0, batch_axis=1)


class _Cell:
    """The cell of one direction.

    What does not change from step to step is made outside of the loop: biases are added to the
    inputs of all steps where no product with the state stands between, and gates with one
    activation are one matrix.
    """

    quantized = False

    def __init__(self, operation: Operation, index: int, activations: _Activations) -> None:
        self.operation = operation
        self.index = index
        self.names = activations.names
        self.activations = activations.functions
        self.w, self.r = self._weights()
        self.reset_after = operation.op == "GRU" and bool(
            operation.attribute("linear_before_reset", 0)
        )
        bias = operation.get(3)
        self.bias: Output | None = None
        self.inner_bias: Output | None = None
        if bias is not None:
            of_w, of_r = split(bias[index], 2)
            if self.reset_after:
                gates, self.inner_bias = self._parts(of_r, 2, 1)
                of_r = concat([gates, zeros_like(self.inner_bias)], 0)
            self.bias = of_w + of_r
        self.step = {"RNN": self._rnn, "GRU": self._gru}.get(operation.op, self._lstm)
        self.count = 2 if self.step == self._lstm else 1
        peep = operation.get(7) if self.count == 2 else None
        self.peep = None if peep is None else self._parts(peep[index], 1, 1, 1)
        self.clip = operation.attribute("clip")

    def _weights(self) -> tuple[Output, Output]:
        """The weights of the inputs and of the state, (inputs, gates) and (width, gates)."""
        return transpose(self.operation[1][self.index]), transpose(self.operation[2][self.index])

    @property
    def width(self) -> Any:
        """The size of the state, as an int where it is known."""
        given = self.operation.attribute("hidden_size") if self.r.dims is None else self.r.dims[0]
        return shape(self.r)[0] if given is None else given

    def _parts(self, rows: Output, *counts: int) -> list[Output]:
        """Gates side by side in the last axis, `counts` of them together; views, no copies."""
        ends = [self.width * end for end in accumulate(counts)]
        return [rows[..., begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    def product(self, x: Output, weights: Output) -> Output:
        """Rows times weights."""
        found: Output = matmul(x, weights)
        return found

    def limited(self, x: Output) -> Output:
        """What goes into an activation."""
        return x if self.clip is None else clip_by_value(x, -self.clip, self.clip)

    def start(self, at: int, batch: Any, dtype: Any) -> Output:
        """A first state, zeros where none is given."""
        given = self.operation.get(at)
        if given is None:
            return zeros(stack([batch, self.width]), dtype)
        if self.operation.attribute("layout", 0):
            given = transpose(given, [1, 0, 2])
        return given[self.index]

    def run(self, x: Output) -> tuple[Output, list[Output]]:
        """The results of all steps, (steps, batch, width), and the last states."""
        rows, dtype = self._inputs(x), x.dtype.base_dtype
        states = [self.start(5 + i, shape(x)[1], dtype) for i in range(self.count)]
        lengths = self.operation.get(4)
        given = None if lengths is None else cast(lengths, dtypes.int32)
        kind = self._kind()
        if kind is None:
            return self._loop(rows, given, states)
        found = self._called(kind, rows, given, states)
        return found[0], found[1:]

    # ------------------------------------------------------------------ as one kernel

    def _kind(self) -> str | None:
        """The kind of cell that there is a kernel of, or None for what is rarely seen."""
        names = {name.lower() for name in self.names}
        plain = names <= _OF_KERNELS and self.clip is None and self.peep is None
        if not plain or self.operation.attribute("input_forget", 0):
            return None
        if self.reset_after:
            return "gru_reset_after"
        return {"RNN": "rnn", "GRU": "gru"}.get(self.operation.op, "lstm")

    def _called(
        self, kind: str, rows: Output, lengths: Output | None, states: Sequence[Output]
    ) -> list[Output]:
        """The call of a function that does the steps, for which a kernel may take its place."""
        bias = zeros([0], rows.dtype) if self.inner_bias is None else self.inner_bias
        given = constant(np.zeros(0, np.int32)) if lengths is None else lengths
        values = [rows, self.r, bias, given, *states]

        def body(rows: Output, r: Output, bias: Output, given: Output, *old: Output) -> Any:
            self.r = r
            self.inner_bias = None if self.inner_bias is None else bias
            every, last = self._loop(rows, None if lengths is None else given, old)
            return every, *last

        def arguments(graph: FunctionGraph) -> tuple[list[Output], dict[str, Any]]:
            return [graph.add_input_like(value, value.node.type) for value in values], {}

        attrs = mark(
            LAYER,
            T=rows.dtype.base_dtype,
            N=len(states),
            cell=kind,
            activations=[name.lower() for name in self.names],
            quantized=self.quantized,
        )
        graph = get_default_graph()
        with graph.functions.reserved(self.operation.op) as name:
            function, _ = trace(body, arguments, name, graph, ordered=False, attrs=attrs)
            graph.functions.add(function)
        return add_call(function, values)[1]

    # ---------------------------------------------------------------------- as a loop

    def _loop(
        self, rows: Output, lengths: Output | None, states: Sequence[Output]
    ) -> tuple[Output, list[Output]]:
        steps, dtype = shape(rows)[0], rows.dtype.base_dtype
        parts = TensorArray(dtype, steps).unstack(rows)
        results = TensorArray(dtype, steps, infer_shape=False)

        def body(turn: Output, results: TensorArray, *old: Output) -> list[Any]:
            new = list(self.step(parts.read(turn), old))
            shown = new[0]
            if lengths is not None:
                there = expand_dims(less(turn, lengths), 1)
                new = [where_v2(there, a, b) for a, b in zip(new, old, strict=True)]
                shown = where_v2(there, shown, like(0, shown))
            for each, before in zip(new, old, strict=True):
                each.set_shape(before.shape)
            return [turn + 1, results.write(turn, shown), *new]

        found = while_loop(
            lambda turn, *_: less(turn, steps), body, [constant(0), results, *states]
        )
        every = found[1].stack()
        sizes = (None, None) if rows.dims is None else rows.dims[:2]
        every.set_shape([*sizes, None if self.r.dims is None else self.r.dims[0]])
        return every, list(found[2:])

    def _inputs(self, x: Output) -> Output:
        """What the inputs of all steps add to the gates, in one product."""
        sizes = shape(x)
        rows = self.product(reshape(x, [sizes[0] * sizes[1], sizes[2]]), self.w)
        if self.bias is not None:
            rows = rows + self.bias
        found = reshape(rows, stack([sizes[0], sizes[1], shape(self.w)[1]]))
        known = (None, None) if x.dims is None else x.dims[:2]
        found.set_shape([*known, None if self.w.dims is None else self.w.dims[1]])
        return found

    def _rnn(self, x: Output, old: Sequence[Output]) -> list[Output]:
        return [self.activations[0](self.limited(x + self.product(old[0], self.r)))]

    def _gru(self, x: Output, old: Sequence[Output]) -> list[Output]:
        (h,) = old
        f, g = self.activations
        gates, new = self._parts(x, 2, 1)
        if self.reset_after:
            more, inner = self._parts(self.product(h, self.r), 2, 1)
            if self.inner_bias is not None:
                inner = inner + self.inner_bias
        else:
            of_gates, of_new = self._parts(self.r, 2, 1)
            more, inner = self.product(h, of_gates), None
        z, r = self._parts(f(self.limited(gates + more)), 1, 1)
        inner = self.product(r * h, of_new) if inner is None else r * inner
        new = g(self.limited(new + inner))
        return [new + z * (h - new)]

    def _lstm(self, x: Output, old: Sequence[Output]) -> list[Output]:
        h, c = old
        f, g, last = self.activations
        rows = x + self.product(h, self.r)
        if self.peep is None and not self.operation.attribute("input_forget", 0):
            gates, cell = self._parts(rows, 3, 1)
            i, o, forget = self._parts(f(self.limited(gates)), 1, 1, 1)
            new = forget * c + i * g(self.limited(cell))
            return [o * last(new), new]
        i, o, forget, cell = self._parts(rows, 1, 1, 1, 1)
        if self.peep is not None:
            i, forget = i + self.peep[0] * c, forget + self.peep[2] * c
        i = f(self.limited(i))
        if self.operation.attribute("input_forget", 0):
            forget = like(1, i) - i
        else:
            forget = f(self.limited(forget))
        new = forget * c + i * g(self.limited(cell))
        if self.peep is not None:
            o = o + self.peep[1] * new
        return [f(self.limited(o)) * last(new), new]


class _QuantizedCell(_Cell):
    """A cell with weights of 8 bits, to which inputs and states are quantised step by step.

    What is multiplied are the numbers that are left then, as floats.
    """

    quantized = True

    def _weights(self) -> tuple[Output, Output]:
        w, r = (self._of_8_bits(at, at + 7 + (at == 2)) for at in (1, 2))
        return w, r

    def _of_8_bits(self, at: int, scale: int) -> Output:
        """Weights (inputs, gates), with one scale and zero point or those of each column."""
        rows, zero = self.operation[at], self.operation.get(scale + 1)
        found = cast(rows[self.index], dtypes.float32)
        if zero is not None:
            found = found - cast(zero[self.index], dtypes.float32)
        return found * self.operation[scale][self.index]

    def product(self, x: Output, weights: Output) -> Output:
        return super().product(through_8_bits(x), weights)

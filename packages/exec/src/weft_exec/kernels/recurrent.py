"""The kernel of recurrent layers: a loop over the steps that does not allocate memory.

All gates of a step are one product with the state. In small layers the overhead of other NumPy
calls dominates, so there are as few calls as possible:

- If gates are sigmoids and the other activations tanh, as in almost all layers, states and inputs
are stored with the opposite sign. A gate is then 1 / (1 + exp(x)), applied by one
  division by 1 + exp(x); tanh and sums preserve the sign.
- Two directions of a small layer are computed together, as one layer whose weights between them are
  zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.kernels.common import NARROW, new_array
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFunction, kernel
from weft_graph.ops.recurrent import GATES, LAYER
from weft_tensor import dtypes, errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = Any
Activation = Callable[[Array, Array], Any]
Step = Callable[[Array, Array, Array], Any]
"""`step(gates from the inputs, previous state, array for the next state)`."""

_TOGETHER: Final = 64
"""Maximum width of two directions that are computed together. This doubles the time of the product,
which dominates in wider layers.
"""


class _Layer:
    """State that the steps of one run share, for one direction or for two side by side.

    Attributes:
      xp: the array module.
      weights: (width, gates).
      bias: bias of the reset gate, (width), or None.
      state: the initial state.
      cell: the second state of an LSTM, which a step changes in place; None for other kinds.
      opposite: True if states and inputs are stored with the opposite sign.
      gate: the first function of a gate.
      apply: applies a gate to a value: `apply(x, gate, out)`.
      zero: the zero of the element type.
    """

    def __init__(
        self,
        xp: Any,
        names: Sequence[str],
        weights: Array,
        bias: Array | None,
        states: Sequence[Array],
    ) -> None:
        self.xp = xp
        self.weights = weights
        self.bias = bias
        self.width = weights.shape[0]
        self.state = states[0]
        self.cell = states[1] if len(states) > 1 else None
        self.opposite = _is_opposite(names)
        self._unit = xp.ones((), weights.dtype)
        self.zero = xp.zeros((), weights.dtype)
        self._minus = weights.dtype.type(-1)
        self.activations = [self._activation(name) for name in names]
        self.gate: Activation = self._plus_one if self.opposite else self.activations[0]
        self.apply = xp.divide if self.opposite else xp.multiply

    def space(self, width: int) -> Array:
        """Return an array of `width` elements for each sequence."""
        return self.xp.empty((*self.state.shape[:-1], width), self.state.dtype)

    def _activation(self, name: str) -> Activation:
        """Return a function that writes an activation of its first argument to its second."""
        activation: Activation = {
            "sigmoid": self._sigmoid,
            "tanh": self.xp.tanh,
            "relu": self._relu,
        }[name]
        return activation

    def _plus_one(self, x: Array, out: Array) -> None:
        self.xp.exp(x, out)
        self.xp.add(out, self._unit, out)

    def _sigmoid(self, x: Array, out: Array) -> None:
        # Not np.negative, which reads wrong elements of a column of four.
        self.xp.multiply(x, self._minus, out)
        self._plus_one(out, out)
        self.xp.reciprocal(out, out)

    def _relu(self, x: Array, out: Array) -> None:
        self.xp.maximum(x, self.zero, out=out)

    def product(self, quantized: bool) -> Callable[[Array, Array, Array], Any]:
        """Return a function that writes the product of the state with weights."""
        product = self.xp.dot
        if not quantized:
            return lambda state, weights, out: product(state, weights, out=out)
        space, sign = self.space(self.width), -1 if self.opposite else 1

        def rounded(state: Array, weights: Array, out: Array) -> None:
            _round_trip_int8(self.xp, state, sign, space)
            product(space, weights, out=out)

        return rounded


def _is_opposite(names: Sequence[str]) -> bool:
    """Return True if the steps of a gated cell use the opposite sign."""
    return names[0] == "sigmoid" and len(names) > 1 and set(names[1:]) == {"tanh"}


def _round_trip_int8(xp: Any, x: Array, sign: int, out: Array) -> None:
    """Quantize and dequantize numbers dynamically to 8 bits.

    Args:
      sign: -1 to quantize the numbers with the opposite sign.
    """
    if not x.size:
        return
    number = x.dtype.type
    low, high = number(float(x.min())), number(float(x.max()))
    if sign < 0:
        low, high = -high, -low
    low, high = min(low, number(0)), max(high, number(0))
    scale = (high - low) / number(255)
    if not scale or not np.isfinite(scale):
        out[...] = 0 * scale
        return
    zero = min(round(float(-low / scale)), 255)
    factor = number(sign) * scale
    xp.divide(x, factor, out)
    xp.rint(out, out)
    if round(float(high / scale)) > 255 - zero:  # the lowest is never below -zero
        xp.minimum(out, number(255 - zero), out=out)
    xp.multiply(out, factor, out)


def _rnn(layer: _Layer, quantized: bool) -> Step:
    product, weights, add = layer.product(quantized), layer.weights, layer.xp.add
    (f,) = layer.activations
    space = layer.space(layer.width)

    def step(x: Array, old: Array, new: Array) -> None:
        product(old, weights, space)
        add(space, x, space)
        f(space, new)

    return step


def _gru(layer: _Layer, quantized: bool) -> Step:
    xp, width, f, apply = layer.xp, layer.width, layer.gate, layer.apply
    add, subtract = xp.add, xp.subtract
    product = layer.product(quantized)
    of_gates = xp.ascontiguousarray(layer.weights[..., : 2 * width])
    of_new = xp.ascontiguousarray(layer.weights[..., 2 * width :])
    g = layer.activations[1]
    gates, space = layer.space(2 * width), layer.space(width)
    update, reset = gates[..., :width], gates[..., width:]

    def step(x: Array, old: Array, new: Array) -> None:
        product(old, of_gates, gates)
        add(gates, x[..., : 2 * width], gates)
        f(gates, gates)
        apply(old, reset, new)
        product(new, of_new, space)
        add(space, x[..., 2 * width :], space)
        g(space, space)
        subtract(old, space, new)
        apply(new, update, new)
        add(new, space, new)

    return step


def _gru_reset_after(layer: _Layer, quantized: bool) -> Step:
    xp, width, f, apply = layer.xp, layer.width, layer.gate, layer.apply
    add, subtract = xp.add, xp.subtract
    product, weights, bias = layer.product(quantized), layer.weights, layer.bias
    g = layer.activations[1]
    space = layer.space(3 * width)
    gates, inner = space[..., : 2 * width], space[..., 2 * width :]
    update, reset = space[..., :width], space[..., width : 2 * width]

    def step(x: Array, old: Array, new: Array) -> None:
        product(old, weights, space)
        add(gates, x[..., : 2 * width], gates)
        f(gates, gates)
        if bias is not None:
            add(inner, bias, inner)
        apply(inner, reset, inner)
        add(inner, x[..., 2 * width :], inner)
        g(inner, inner)
        subtract(old, inner, new)
        apply(new, update, new)
        add(new, inner, new)

    return step


def _lstm(layer: _Layer, quantized: bool) -> Step:
    width, cell, f, apply = layer.width, layer.cell, layer.gate, layer.apply
    add = layer.xp.add
    product, weights = layer.product(quantized), layer.weights
    _, g, last = layer.activations
    space = layer.space(4 * width)
    gates, entry = space[..., : 3 * width], space[..., 3 * width :]
    inputs_space, hidden, previous = (space[..., i * width : (i + 1) * width] for i in range(3))

    def step(x: Array, old: Array, new: Array) -> None:
        product(old, weights, space)
        add(space, x, space)
        f(gates, gates)
        g(entry, entry)
        apply(cell, previous, cell)
        apply(entry, inputs_space, entry)
        add(cell, entry, cell)
        last(cell, new)
        apply(new, hidden, new)

    return step


_BYTES: Final = (dtypes.int8, dtypes.uint8)
_CELLS: Final = {"rnn": _rnn, "gru": _gru, "gru_reset_after": _gru_reset_after, "lstm": _lstm}


@kernel(LAYER, device=ARRAY_DEVICE, heavy=True)
def _recurrent_layer(node: Node, device: Device) -> KernelFunction:
    kind, names = node.attrs["cell"], node.attrs["activations"]
    backward, quantized = node.attrs["backward"], node.attrs["W"] in _BYTES
    dtype, xp, cell = node.outputs[0].dtype, device.xp, _CELLS[node.attrs["cell"]]
    sign, joined, floats = -1 if _is_opposite(names) else 1, _JoinedWeights(xp), _Floats(xp)

    def run(
        rows: Array,
        weights: Array,
        scales: Array,
        zeros: Array,
        bias: Array,
        lengths: Array,
        *states: Array,
    ) -> Any:
        _check(kind, backward, rows, weights, bias, lengths, states)
        if quantized:
            weights = floats(weights, scales, zeros)
        if dtype in NARROW:
            rows, weights, bias = (item.astype(np.float32) for item in (rows, weights, bias))
            states = tuple([state.astype(np.float32) for state in states])
        (steps, batch), (count, width) = rows.shape[:2], weights.shape[:2]
        output = new_array(device, (steps, count, batch, width), weights.dtype)
        number = weights.dtype.type(sign)
        lasts = [xp.empty(state.shape, state.dtype) for state in states]

        def run_part(part: slice) -> None:
            order = _Order(xp, part, GATES[kind], backward, lengths, number)
            matrix = weights[part.start] if order.count == 1 else joined(weights)
            of_bias = order.row(bias) if bias.size else None
            layer = _Layer(xp, names, matrix, of_bias, [order.row(state) for state in states])
            result = xp.empty((steps, *layer.state.shape), weights.dtype)
            step = cell(layer, quantized)
            last = _run(layer, step, order.steps(rows, width), result, lengths, quantized)
            order.write(result, output)
            for item, out in zip(last, lasts, strict=True):
                order.write_row(item, out)

        parts = _parts(count, width, quantized)
        for part in parts:
            run_part(part)
        # A zero between two directions times a non-finite value is not zero.
        if len(parts) < count and not all(bool(xp.isfinite(item).all()) for item in lasts):
            for index in range(count):
                run_part(slice(index, index + 1))
        return tuple([item.astype(dtype.numpy, copy=False) for item in (output, *lasts)])

    return run


def _parts(directions: int, width: int, quantized: bool) -> list[slice]:
    """Return the groups of directions that are computed together.

    Quantized directions are not grouped, because each has its own scale.
    """
    if width <= _TOGETHER and not quantized:
        return [slice(0, directions)]
    return [slice(i, i + 1) for i in range(directions)]


class _Floats:
    """Dequantizer of 8-bit weights; the result is cached for constants."""

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self._last: tuple[tuple[Array, ...], Array] | None = None

    def __call__(self, weights: Array, scales: Array, zeros: Array) -> Array:
        key, last = (weights, scales, zeros), self._last
        if last is not None and all(a is b for a, b in zip(last[0], key, strict=True)):
            return last[1]
        points = zeros[:, None].astype(scales.dtype)
        result = (weights.astype(scales.dtype) - points) * scales[:, None]
        if self._xp is np and not any(item.flags.writeable for item in key):
            self._last = (key, result)
        return result


class _JoinedWeights:
    """Joins the weights of two directions to one matrix, with zeros between the directions.

    The columns are sorted by gate first. If the weights are constant, the matrix is cached.
    """

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self._last: tuple[Array, Array] | None = None

    def __call__(self, weights: Array) -> Array:
        last = self._last
        if last is not None and last[0] is weights:
            return last[1]
        count, width, gates = weights.shape
        result = self._xp.zeros((count, width, gates // width, count, width), weights.dtype)
        for index in range(count):
            result[index, :, :, index] = weights[index].reshape(width, -1, width)
        result = result.reshape(count * width, count * gates)
        if self._xp is np and not weights.flags.writeable:
            self._last = (weights, result)
        return result


class _Order:
    """Layout of a layer's arguments in steps: in each gate, the directions are side by side.

    For a single sequence everything is a vector, because its products and sums are faster.
    """

    def __init__(
        self,
        xp: Any,
        part: slice,
        gates: int,
        backward: Sequence[bool],
        lengths: Array,
        sign: Any,
    ) -> None:
        self._xp = xp
        self._gates = gates
        self._part = part
        self._directions = list(enumerate(backward))[part]
        self._lengths = lengths
        self._sign = sign
        self.count = len(self._directions)

    def row(self, x: Array) -> Array:
        """Return a state (directions, batch, width), or a bias, with directions side by side."""
        part = x[self._part] * self._sign
        width = self.count * part.shape[-1]
        if part.ndim == 2 or part.shape[1] == 1:
            return part.reshape(width)
        return self._xp.ascontiguousarray(part.swapaxes(0, 1)).reshape(part.shape[1], width)

    def write_row(self, x: Array, array: Array) -> None:
        """Copy a state back to an array of all directions."""
        _, batch, width = array.shape
        parts = x.reshape(batch, self.count, width).swapaxes(0, 1)
        self._xp.multiply(parts, self._sign, array[self._part])

    def steps(self, rows: Array, width: int) -> Array:
        """Return the contributions to the gates in step order, (steps, batch, gates)."""
        (steps, batch), gates = rows.shape[:2], self._gates * width
        result = self._xp.empty((steps, batch, self._gates, self.count, width), rows.dtype)
        for index, (direction, is_reversed) in enumerate(self._directions):
            part = rows[..., direction * gates : (direction + 1) * gates]
            part = self._reverse_steps(part) if is_reversed else part
            part = part.reshape(steps, batch, self._gates, width)
            self._xp.multiply(part, self._sign, result[:, :, :, index])
        flat = result.reshape(steps, batch, self.count * gates)
        return flat[:, 0] if batch == 1 else flat

    def write(self, array: Array, gates: Array) -> None:
        """Copy the results of all steps, (steps, batch, width), to their positions."""
        steps, _, batch, width = gates.shape
        array = array.reshape(steps, batch, self.count, width)
        for index, (direction, is_reversed) in enumerate(self._directions):
            part = self._reverse_steps(array[:, :, index]) if is_reversed else array[:, :, index]
            self._xp.multiply(part, self._sign, gates[:, direction])

    def _reverse_steps(self, x: Array) -> Array:
        """Reverse each sequence's steps; steps past its end stay in place."""
        xp, lengths = self._xp, self._lengths
        if not lengths.size:
            return x[::-1]
        positions = xp.arange(len(x))[:, None]
        return x[
            xp.where(positions < lengths, lengths - 1 - positions, positions), xp.arange(x.shape[1])
        ]


def _run(
    layer: _Layer, step: Step, rows: Array, results: Array, lengths: Array, quantized: bool
) -> list[Array]:
    """Run all steps and return the final states."""
    steps, state = len(rows), layer.state
    first, end = (int(lengths.min()), int(lengths.max())) if lengths.size else (steps, steps)
    end = min(end, steps)
    for index in range(min(first, end)):
        new = results[index]
        step(rows[index], state, new)
        state = new
    for position in range(max(min(first, end), 0), end):  # some sequences have ended
        # The previous result is quantized; it is 0 for a sequence that had ended before.
        previous_state = results[position - 1] if quantized and position else state
        state = _masked_step(
            layer,
            step,
            rows[position],
            (state, previous_state),
            results[position],
            lengths > position,
        )
    results[max(end, 0) :] = 0
    return [state] if layer.cell is None else [state, layer.cell]


def _masked_step(
    layer: _Layer,
    step: Step,
    x: Array,
    states: tuple[Array, Array],
    result: Array,
    array: Array,
) -> Array:
    """Run a step for the sequences that have not ended; the other sequences keep their states.

    Args:
      states: the previous states, in the forms that the step reads.
    """
    state, previous_result = states
    xp, array = layer.xp, array[:, None] if x.ndim > 1 else array
    old_cell = None if layer.cell is None else layer.cell.copy()
    step(x, previous_result, result)
    state = xp.where(array, result, state)
    xp.copyto(result, layer.zero, where=~array)
    if old_cell is not None:
        xp.copyto(layer.cell, old_cell, where=~array)
    return state


def _check(
    kind: str,
    backward: Sequence[bool],
    gate_inputs: Array,
    weights: Array,
    bias: Array,
    lengths: Array,
    states: Sequence[Array],
) -> None:
    """Raise InvalidArgumentError if shapes or lengths do not match."""
    directions = len(backward)
    width = weights.shape[1] if weights.ndim == 3 else -1
    gates = GATES[kind] * width
    is_valid = gate_inputs.ndim == 3 and weights.shape == (directions, width, gates)
    is_valid = is_valid and gate_inputs.shape[2] == directions * gates
    is_valid = is_valid and (not bias.size or bias.shape == (directions, width))
    if not is_valid or any(
        state.shape != (directions, gate_inputs.shape[1], width) for state in states
    ):
        shapes = ", ".join(
            format_dims(state.shape) for state in (gate_inputs, weights, bias, *states)
        )
        raise errors.InvalidArgumentError(
            f"a recurrent layer of {GATES[kind]} gates and {directions} directions requires "
            f"matching shapes of gate_inputs, weights, bias and states, got {shapes}"
        )
    if not lengths.size:
        return
    steps, batch = gate_inputs.shape[:2]
    if lengths.shape != (batch,):
        raise errors.InvalidArgumentError(
            f"a recurrent layer of {batch} sequences requires one length per sequence, got "
            f"lengths of shape {list(lengths.shape)}"
        )
    if any(backward) and not 0 <= int(lengths.min()) <= int(lengths.max()) <= steps:
        raise errors.InvalidArgumentError(
            f"backward steps require lengths of 0 to {steps}, got {lengths.min()} to "
            f"{lengths.max()}"
        )

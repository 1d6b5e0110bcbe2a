"""The kernel of recurrent layers: one loop over the steps, which allocates nothing.

All gates of a step are one product with the state. The calls of NumPy around it are what a step of
a small layer costs, so there are as few as there can be, all into arrays that are there already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.kernels.common import NARROW, new_array
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFunction, kernel
from weft_io.ops.recurrent import LAYER
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = Any
Activation = Callable[[Array, Array], Any]
Step = Callable[[Array, Array, Array], None]
"""Of what the inputs add to the gates, the state before, and where the state behind goes."""

_GATES: Final = {"rnn": 1, "gru": 3, "gru_reset_after": 3, "lstm": 4}


class _Layer:
    """What the steps of one run share.

    Attributes:
      xp: the array module.
      weights: (width, gates).
      bias: of the reset, (width) or empty.
      cell: the second state of an LSTM, which a step changes in place; None for the others.
    """

    def __init__(self, xp: Any, weights: Array, bias: Array, states: Sequence[Array]) -> None:
        self.xp = xp
        self.weights = weights
        self.bias = bias
        self.width = weights.shape[0]
        self.state = states[0]
        self.cell = states[1].copy() if len(states) > 1 else None
        self._one = xp.ones((), weights.dtype)
        self._zero = xp.zeros((), weights.dtype)
        self._minus = weights.dtype.type(-1)

    def space(self, width: int) -> Array:
        """An array of so many elements for each sequence."""
        return self.xp.empty((*self.state.shape[:-1], width), self.state.dtype)

    def activation(self, name: str) -> Activation:
        """What writes an activation of its first argument to the second."""
        found: Activation = {"sigmoid": self._sigmoid, "tanh": self.xp.tanh, "relu": self._relu}[
            name
        ]
        return found

    def _sigmoid(self, x: Array, out: Array) -> None:
        xp, one = self.xp, self._one
        # Not by NumPy's negative, which takes other elements of a column of four.
        xp.multiply(x, self._minus, out)
        xp.exp(out, out)
        xp.add(out, one, out)
        xp.reciprocal(out, out)

    def _relu(self, x: Array, out: Array) -> None:
        self.xp.maximum(x, self._zero, out=out)

    def product(self, quantized: bool) -> Callable[[Array, Array, Array], Any]:
        """What writes the product of the state with weights."""
        xp = self.xp
        if not quantized:
            return lambda state, weights, out: xp.dot(state, weights, out=out)
        space = self.space(self.width)

        def rounded(state: Array, weights: Array, out: Array) -> None:
            _through_8_bits(xp, state, space)
            xp.dot(space, weights, out=out)

        return rounded


def _through_8_bits(xp: Any, x: Array, out: Array) -> None:
    """The numbers that are left of some when they are quantised dynamically to 8 bits."""
    low, high = xp.minimum(x.min(), 0), xp.maximum(x.max(), 0)
    scale = (high - low) / x.dtype.type(255)
    if not scale:
        out[...] = 0
        return
    zero = xp.rint(xp.clip(-low / scale, 0, 255))
    xp.divide(x, scale, out)
    xp.rint(out, out)
    xp.clip(out, -zero, 255 - zero, out)
    xp.multiply(out, scale, out)


def _rnn(layer: _Layer, names: Sequence[str], quantized: bool) -> Step:
    product, weights, add = layer.product(quantized), layer.weights, layer.xp.add
    f = layer.activation(names[0])
    space = layer.space(layer.width)

    def step(x: Array, old: Array, new: Array) -> None:
        product(old, weights, space)
        add(space, x, space)
        f(space, new)

    return step


def _gru(layer: _Layer, names: Sequence[str], quantized: bool) -> Step:
    xp, width = layer.xp, layer.width
    add, multiply, subtract = xp.add, xp.multiply, xp.subtract
    product = layer.product(quantized)
    of_gates = xp.ascontiguousarray(layer.weights[:, : 2 * width])
    of_new = xp.ascontiguousarray(layer.weights[:, 2 * width :])
    f, g = (layer.activation(name) for name in names)
    gates, space = layer.space(2 * width), layer.space(width)
    update, reset = gates[..., :width], gates[..., width:]

    def step(x: Array, old: Array, new: Array) -> None:
        product(old, of_gates, gates)
        add(gates, x[..., : 2 * width], gates)
        f(gates, gates)
        multiply(reset, old, new)
        product(new, of_new, space)
        add(space, x[..., 2 * width :], space)
        g(space, space)
        subtract(old, space, new)
        multiply(new, update, new)
        add(new, space, new)

    return step


def _gru_reset_after(layer: _Layer, names: Sequence[str], quantized: bool) -> Step:
    xp, width = layer.xp, layer.width
    add, multiply, subtract = xp.add, xp.multiply, xp.subtract
    product, weights = layer.product(quantized), layer.weights
    bias = layer.bias if layer.bias.size else xp.zeros(width, weights.dtype)
    f, g = (layer.activation(name) for name in names)
    space = layer.space(3 * width)
    gates, inner = space[..., : 2 * width], space[..., 2 * width :]
    update, reset = space[..., :width], space[..., width : 2 * width]

    def step(x: Array, old: Array, new: Array) -> None:
        product(old, weights, space)
        add(gates, x[..., : 2 * width], gates)
        f(gates, gates)
        add(inner, bias, inner)
        multiply(inner, reset, inner)
        add(inner, x[..., 2 * width :], inner)
        g(inner, inner)
        subtract(old, inner, new)
        multiply(new, update, new)
        add(new, inner, new)

    return step


def _lstm(layer: _Layer, names: Sequence[str], quantized: bool) -> Step:
    width, cell = layer.width, layer.cell
    add, multiply = layer.xp.add, layer.xp.multiply
    product, weights = layer.product(quantized), layer.weights
    f, g, last = (layer.activation(name) for name in names)
    space = layer.space(4 * width)
    gates, entry = space[..., : 3 * width], space[..., 3 * width :]
    given, shown, kept = (space[..., i * width : (i + 1) * width] for i in range(3))

    def step(x: Array, old: Array, new: Array) -> None:
        product(old, weights, space)
        add(space, x, space)
        f(gates, gates)
        g(entry, entry)
        multiply(cell, kept, cell)
        multiply(entry, given, entry)
        add(cell, entry, cell)
        last(cell, new)
        multiply(new, shown, new)

    return step


_CELLS: Final = {"rnn": _rnn, "gru": _gru, "gru_reset_after": _gru_reset_after, "lstm": _lstm}


@kernel(LAYER, device=ARRAY_DEVICE, heavy=True)
def _recurrent_layer(node: Node, device: Device) -> KernelFunction:
    kind, names = node.attrs["cell"], node.attrs["activations"]
    quantized, dtype = node.attrs["quantized"], node.outputs[0].dtype
    xp = device.xp

    def run(rows: Array, weights: Array, bias: Array, lengths: Array, *states: Array) -> Any:
        _check(_GATES[kind], rows, weights, states)
        if dtype in NARROW:
            rows, weights, bias = (each.astype(np.float32) for each in (rows, weights, bias))
            states = tuple([each.astype(np.float32) for each in states])
        steps, batch = rows.shape[:2]
        whole = new_array(device, (steps, batch, weights.shape[0]), weights.dtype)
        results = whole
        shapes = [each.shape for each in states]
        if batch == 1:  # vectors, of which products and sums take less time
            rows, results = rows[:, 0], results[:, 0]
            states = tuple([each[0] for each in states])
        layer = _Layer(xp, weights, bias, states)
        step = _CELLS[kind](layer, names, quantized)
        last = _run(layer, step, rows, results, lengths)
        found = [each.reshape(shape) for each, shape in zip(last, shapes, strict=True)]
        if dtype in NARROW:
            whole, *found = (each.astype(dtype.numpy) for each in (whole, *found))
        return (whole, *found)

    return run


def _run(layer: _Layer, step: Step, rows: Array, results: Array, lengths: Array) -> list[Array]:
    """All steps; the last states."""
    steps, state = len(rows), layer.state
    first, end = (int(lengths.min()), int(lengths.max())) if lengths.size else (steps, steps)
    end = min(end, steps)
    for at in range(min(first, end)):
        new = results[at]
        step(rows[at], state, new)
        state = new
    for at in range(max(min(first, end), 0), end):  # some sequences have ended
        state = _masked(layer, step, rows[at], state, results[at], lengths > at)
    results[max(end, 0) :] = 0
    state = state.copy()
    return [state] if layer.cell is None else [state, layer.cell]


def _masked(
    layer: _Layer, step: Step, x: Array, state: Array, result: Array, there: Array
) -> Array:
    """A step of the sequences that are not at their end; the others keep their states."""
    xp, there = layer.xp, there[:, None]
    before = None if layer.cell is None else layer.cell.copy()
    step(x, state, result)
    state = xp.where(there, result, state)
    result *= there
    if before is not None:
        xp.copyto(layer.cell, before, where=~there)
    return state


def _check(gates: int, rows: Array, weights: Array, states: Sequence[Array]) -> None:
    """Raise InvalidArgumentError where shapes do not fit."""
    width = weights.shape[0] if weights.ndim == 2 else -1
    fits = rows.ndim == 3 and weights.shape == (width, gates * width)
    fits = fits and rows.shape[2] == gates * width
    if not fits or any(each.shape != (rows.shape[1], width) for each in states):
        shapes = ", ".join(format_dims(each.shape) for each in (rows, weights, *states))
        raise errors.InvalidArgumentError(
            f"a recurrent layer of {gates} gates cannot take rows, weights and states of the "
            f"shapes {shapes}"
        )

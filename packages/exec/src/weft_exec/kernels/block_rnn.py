"""Kernels of block LSTMs and of the block GRU, and of their gradients.

The contribution of the inputs to the gates of all steps is one matrix product. The gradients of
inputs and weights are one product each. A step is one product with the state. Everything that does
not depend on the previous step is computed for all steps together. Narrow types are computed in
float32 throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.kernels.common import NARROW, new_array
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFunction, kernel
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = Any

_ORDER: Final = {"LSTMBlockCell": "icfo", "BlockLSTM": "icfo", "BlockLSTMV2": "ifco"}
"""Order of the gates in the columns; c is the cell input."""


def _widen_inputs(values: Sequence[Array], narrow: bool) -> Sequence[Array]:
    return [value.astype(np.float32) for value in values] if narrow else values


def _narrow_outputs(values: Sequence[Array], node: Node) -> tuple[Array, ...]:
    dtype = node.outputs[0].dtype
    return tuple([v.astype(dtype.numpy) for v in values] if dtype in NARROW else values)


def _require(condition: bool, node: Node, values: Sequence[Array]) -> None:
    if not condition:
        shapes = [format_dims(np.shape(value)) for value in values]
        names = [arg.name for arg in node.op_def.inputs]
        actual = ", ".join(f"{name} {dims}" for name, dims in zip(names, shapes, strict=True))
        raise errors.InvalidArgumentError(
            f"the shapes of the inputs of {node.type} do not match: got {actual}"
        )


# --------------------------------------------------------------------------- LSTM, forward


class _Steps:
    """The forward pass through the steps of a layer.

    Args:
      xp: the array module.
      weights: the weights of the state, (width, 4 * width), in the order of `_reorder_gates`.
      peepholes: wci, wcf and wco, or empty.
      clip: the bound of the cell; not clipped unless positive.
      outputs: arrays for i, cs, f, o, ci, co and h of each step.
    """

    def __init__(
        self, xp: Any, weights: Array, peepholes: Sequence[Array], clip: float, outputs: Any
    ) -> None:
        self.xp, self.weights, self.clip, self.outputs = xp, weights, clip, outputs
        _, batch, width = outputs[0].shape
        dtype = outputs[0].dtype
        self.unit = xp.ones((), dtype)
        self.space = xp.empty((batch, 4 * width), dtype)
        self.scratch = xp.empty((batch, width), dtype)
        self.wco = peepholes[2] if peepholes else None
        peephole_width = 2 * width if peepholes else 3 * width  # by gates that ignore the new cell
        self.first = self.space[..., :peephole_width]
        self.parts = [self.space[..., k * width : (k + 1) * width] for k in range(4)]
        self.peepholes = list(zip(self.parts, peepholes[:2], strict=False))

    def step(self, index: int, gates: Array, cs: Array, h: Array | None) -> tuple[Array, Array]:
        """Write one step's outputs and return the new states.

        Args:
          index: the number of the step.
          gates: the contribution of input and bias to the gates, in the order of `_reorder_gates`.
          cs, h: the states; h is None if `gates` includes its contribution.
        """
        xp, space, scratch = self.xp, self.space, self.scratch
        add, multiply, one = xp.add, xp.multiply, self.unit
        i, new, f, o, ci, co, output_value = [output[index] for output in self.outputs]
        if h is None:
            space[...] = gates
        else:
            xp.dot(h, self.weights, out=space)
            add(space, gates, out=space)
        for part, weight in self.peepholes:
            multiply(cs, weight, out=scratch)
            xp.subtract(part, scratch, out=part)
        negated_i, negated_f, negated_o, entry = self.parts
        xp.exp(self.first, out=self.first)
        add(self.first, one, out=self.first)
        xp.divide(one, negated_i, out=i)
        xp.divide(one, negated_f, out=f)
        xp.tanh(entry, out=ci)
        multiply(cs, f, out=scratch)
        multiply(ci, i, out=new)
        add(new, scratch, out=new)
        if self.clip > 0:
            xp.minimum(new, self.clip, out=new)
            xp.maximum(new, -self.clip, out=new)
        if self.wco is not None:
            multiply(new, self.wco, out=scratch)
            xp.subtract(negated_o, scratch, out=negated_o)
            xp.exp(negated_o, out=negated_o)
            add(negated_o, one, out=negated_o)
        xp.divide(one, negated_o, out=o)
        xp.tanh(new, out=co)
        multiply(co, o, out=output_value)
        return new, output_value


def _reorder_gates(xp: Any, columns: Array, order: str) -> Array:
    """Return the columns of four gates in the order -i, -f, -o, c.

    Negated arguments save work in sigmoids.
    """
    width = columns.shape[-1] // 4
    result = xp.empty(columns.shape, columns.dtype)
    minus = columns.dtype.type(-1)
    for target, gate in enumerate("ifoc"):
        index = order.index(gate) * width
        part = result[..., target * width : (target + 1) * width]
        if gate == "c":
            part[...] = columns[..., index : index + width]
        else:
            # Not np.negative, which reads wrong elements of a column of four.
            xp.multiply(columns[..., index : index + width], minus, out=part)
    return result


def _add_forget_bias(bias: Array, amount: float, order: str) -> Array:
    """Return the bias, with `amount` added for the forget gate."""
    width, index = bias.shape[0] // 4, order.index("f")
    result = bias.copy()
    result[index * width : (index + 1) * width] += amount
    return result


def _has_lstm_shapes(x: Array, cs: Array, h: Array, w: Array, vectors: Sequence[Array]) -> bool:
    if x.ndim != 3 or h.ndim != 2:
        return False
    (_, batch, depth), width = x.shape, h.shape[1]
    *peepholes, bias = vectors
    return (
        h.shape == cs.shape == (batch, width)
        and w.shape == (depth + width, 4 * width)
        and bias.shape == (4 * width,)
        and all(peephole.shape == (width,) for peephole in peepholes)
    )


def _number_of_steps(node: Node, array: Array, num_steps: int) -> int:
    """Return `seq_len_max`.

    Raises: InvalidArgumentError: it is negative or larger than the number of steps of x.
    """
    count = int(array)
    if not 0 <= count <= num_steps:
        raise errors.InvalidArgumentError(
            f"{node.type} requires seq_len_max from 0 to {num_steps}, the steps of x, got {count}"
        )
    return count


@kernel("BlockLSTM", "BlockLSTMV2", device=ARRAY_DEVICE, host=("seq_len_max",), heavy=True)
@kernel("LSTMBlockCell", device=ARRAY_DEVICE, heavy=True)
def _lstm(node: Node, device: Device) -> KernelFunction:
    attrs, order, xp = node.attrs, _ORDER[node.type], device.xp
    narrow = node.outputs[0].dtype in NARROW
    forget, clip, peephole = attrs.get("forget_bias", 0), attrs["cell_clip"], attrs["use_peephole"]
    has_time_axis = len(node.inputs) == 9

    def run(*array: Array) -> tuple[Array, ...]:
        x, cs, h, w, *vectors = _widen_inputs(array[-8:], narrow)
        x = x if has_time_axis else x[None]
        _require(_has_lstm_shapes(x, cs, h, w, vectors), node, array)
        (num_steps, batch, depth), width = x.shape, h.shape[1]
        count = _number_of_steps(node, array[0], num_steps) if has_time_axis else 1
        outputs = [new_array(device, (num_steps, batch, width), x.dtype) for _ in range(7)]
        bias = _add_forget_bias(vectors[3], forget, order)
        if has_time_axis:
            w, bias = _reorder_gates(xp, w, order), _reorder_gates(xp, bias, order)
        steps = _Steps(xp, w[depth:], vectors[:3] if peephole else (), clip, outputs)
        if has_time_axis:
            gates = new_array(device, (count * batch, 4 * width), x.dtype)
            xp.matmul(x[:count].reshape(count * batch, depth), w[:depth], out=gates)
            gates = xp.add(gates, bias, out=gates).reshape(count, batch, 4 * width)
            for index in range(count):
                cs, h = steps.step(index, gates[index], cs, h)
        else:  # too few rows: arranging the weights would take longer than the product
            product = xp.matmul(xp.concatenate([x[0], h], 1), w)
            steps.step(0, _reorder_gates(xp, xp.add(product, bias, out=product), order), cs, None)
        for output in outputs:
            output[count:] = 0
        return _narrow_outputs(
            outputs if has_time_axis else [output[0] for output in outputs], node
        )

    return run


# -------------------------------------------------------------------------- LSTM, backward


class _Backward:
    """The backward pass through the steps of a layer.

    Args:
      xp: the array module.
      order: the order of the gates; the last is the output gate.
      values: i, cs, f, o, ci, co of each step.
      previous_cell: the cell before each step.
      peepholes: wci, wcf and wco, or empty.

    Attributes:
      gates: (steps, batch, 4, width), the gradients of the gates.
      cs: the gradient of the cell before the first step.
      h: the gradient of the other state before the first step; zeros without a product with it.
    """

    def __init__(
        self, xp: Any, order: str, values: Any, previous_cell: Array, peepholes: Sequence[Array]
    ) -> None:
        i, cs, f, o, ci, co = values
        self.xp, self.order, self.peepholes = xp, order, peepholes
        self.values, self.previous_cell = values, previous_cell
        one = xp.ones((), cs.dtype)
        slopes = {
            "i": i * (one - i) * ci,
            "c": (one - ci * ci) * i,
            "f": f * (one - f) * previous_cell,
        }
        self._to_gates = xp.stack([slopes[gate] for gate in order[:3]], 2)
        self._to_o = o * (one - o) * co
        self._to_cell = (one - co * co) * o
        self.gates = xp.empty((*cs.shape[:2], 4, cs.shape[2]), cs.dtype)
        self.cs, self.h = (
            xp.zeros(cs.shape[1:], cs.dtype),
            xp.zeros(cs.shape[1:], cs.dtype),
        )

    def run(self, cs_grad: Array, h_grad: Array, weights: Array | None) -> None:
        """Run all steps, last to first."""
        xp, cs, h, gates = self.xp, self.cs, self.h, self.gates
        add, multiply, f = xp.add, xp.multiply, self.values[2]
        cell_gradient = xp.empty(cs.shape, cs.dtype)
        transposed = None if weights is None else weights.T
        rows = gates.reshape(*gates.shape[:2], 4 * gates.shape[3])
        for index in reversed(range(len(gates))):
            add(h, h_grad[index], out=h)
            to_o = gates[index, :, 3]
            multiply(h, self._to_o[index], out=to_o)
            multiply(h, self._to_cell[index], out=cell_gradient)
            add(cs, cs_grad[index], out=cs)
            add(cs, cell_gradient, out=cs)
            if self.peepholes:
                cs += to_o * self.peepholes[2]
            multiply(self._to_gates[index], cs[:, None], out=gates[index, :, :3])
            multiply(cs, f[index], out=cs)
            for gate, weight in zip("if", self.peepholes, strict=False):
                cs += gates[index, :, self.order.index(gate)] * weight
            if transposed is not None:
                xp.dot(rows[index], transposed, out=h)

    def peephole_gradients(self) -> list[Array]:
        """Return the gradients of the peephole weights wci, wcf and wco."""
        xp, gates, cs = self.xp, self.gates, self.values[1]
        if not self.peepholes:
            return [xp.zeros(cs.shape[2:], cs.dtype) for _ in range(3)]
        cells = {"i": self.previous_cell, "f": self.previous_cell, "o": cs}
        return [
            (gates[:, :, self.order.index(gate)] * value).sum((0, 1))
            for gate, value in cells.items()
        ]


def _previous_states(xp: Any, first: Array, values: Array) -> Array:
    """Return the state before each step."""
    return xp.concatenate([first[None], values])[: len(values)]


def _check_values(node: Node, arrays: Sequence[Array], begin: int, shape: Any) -> None:
    _require(all(value.shape == shape for value in arrays[begin:]), node, arrays)


@kernel("LSTMBlockCellGrad", device=ARRAY_DEVICE, heavy=True)
def _lstm_cell_grad(node: Node, device: Device) -> KernelFunction:
    xp, order, peephole = device.xp, _ORDER["LSTMBlockCell"], node.attrs["use_peephole"]
    narrow = node.outputs[0].dtype in NARROW

    def run(*array: Array) -> tuple[Array, ...]:
        x, cs, h, w, *vectors = _widen_inputs(array[:8], narrow)
        _require(_has_lstm_shapes(x[None], cs, h, w, vectors), node, array)
        _check_values(node, array, 8, h.shape)
        *values, cs_grad, h_grad = [value[None] for value in _widen_inputs(array[8:], narrow)]
        backward = _Backward(xp, order, values, cs[None], vectors[:3] if peephole else ())
        backward.run(cs_grad, h_grad, None)
        gates = backward.gates.reshape(h.shape[0], 4 * h.shape[1])
        return _narrow_outputs([backward.cs, gates, *backward.peephole_gradients()], node)

    return run


@kernel("BlockLSTMGrad", "BlockLSTMGradV2", device=ARRAY_DEVICE, host=("seq_len_max",), heavy=True)
def _lstm_grad(node: Node, device: Device) -> KernelFunction:
    order = _ORDER[node.type.replace("Grad", "")]
    xp, peephole, narrow = device.xp, node.attrs["use_peephole"], node.outputs[0].dtype in NARROW

    def run(*array: Array) -> tuple[Array, ...]:
        x, cs, h, w, *vectors = _widen_inputs(array[1:9], narrow)
        _require(_has_lstm_shapes(x, cs, h, w, vectors), node, array)
        (num_steps, batch, depth), width = x.shape, h.shape[1]
        _check_values(node, array, 9, (num_steps, batch, width))
        count = _number_of_steps(node, array[0], num_steps)
        cut = _widen_inputs([value[:count] for value in array[9:]], narrow)
        *values, hidden, cs_grad, h_grad = cut
        backward = _Backward(
            xp, order, values, _previous_states(xp, cs, values[1]), vectors[:3] if peephole else ()
        )
        backward.run(cs_grad, h_grad, w[depth:])
        rows = backward.gates.reshape(count * batch, 4 * width)
        x_grad = new_array(device, x.shape, x.dtype)
        xp.matmul(rows, w[:depth].T, out=x_grad[:count].reshape(count * batch, depth))
        x_grad[count:] = 0
        w_grad = new_array(device, w.shape, w.dtype)
        xp.matmul(x[:count].reshape(count * batch, depth).T, rows, out=w_grad[:depth])
        states = _previous_states(xp, h, hidden).reshape(count * batch, width)
        xp.matmul(states.T, rows, out=w_grad[depth:])
        by_vectors = [*backward.peephole_gradients(), rows.sum(0)]
        return _narrow_outputs([x_grad, backward.cs, backward.h, w_grad, *by_vectors], node)

    return run


# ------------------------------------------------------------------------------------- GRU


def _sigmoid(xp: Any, x: Array) -> Array:
    """Compute the sigmoid in place."""
    xp.negative(x, out=x)
    xp.exp(x, out=x)
    one = xp.ones((), x.dtype)
    xp.add(x, one, out=x)
    return xp.divide(one, x, out=x)


def _has_gru_shapes(x: Array, h: Array, w_ru: Array, w_c: Array, b_ru: Array, b_c: Array) -> bool:
    if x.ndim != 2 or h.ndim != 2:
        return False
    rows, width = x.shape[1] + h.shape[1], h.shape[1]
    return (
        len(x) == len(h)
        and w_ru.shape == (rows, 2 * width)
        and w_c.shape == (rows, width)
        and b_ru.shape == (2 * width,)
        and b_c.shape == (width,)
    )


@kernel("GRUBlockCell", device=ARRAY_DEVICE, heavy=True)
def _gru(node: Node, device: Device) -> KernelFunction:
    xp, narrow = device.xp, node.outputs[0].dtype in NARROW

    def run(*array: Array) -> tuple[Array, ...]:
        x, h, w_ru, w_c, b_ru, b_c = values = _widen_inputs(array, narrow)
        _require(_has_gru_shapes(*values), node, array)
        depth, width = x.shape[1], h.shape[1]
        joined = xp.concatenate([x, h], 1)
        gates = xp.matmul(joined, w_ru)
        gates = _sigmoid(xp, xp.add(gates, b_ru, out=gates))
        r, u = gates[:, :width].copy(), gates[:, width:].copy()
        xp.multiply(h, r, out=joined[:, depth:])
        c = xp.matmul(joined, w_c)
        c = xp.tanh(xp.add(c, b_c, out=c), out=c)
        new = h - c
        xp.multiply(new, u, out=new)
        return _narrow_outputs([r, u, c, xp.add(new, c, out=new)], node)

    return run


@kernel("GRUBlockCellGrad", device=ARRAY_DEVICE, heavy=True)
def _gru_grad(node: Node, device: Device) -> KernelFunction:
    xp, narrow = device.xp, node.outputs[0].dtype in NARROW

    def run(*array: Array) -> tuple[Array, ...]:
        values = _widen_inputs(array, narrow)
        _require(_has_gru_shapes(*values[:6]), node, array)
        _check_values(node, array, 6, array[1].shape)
        x, h, w_ru, w_c, _, _, r, u, c, d_h = values
        depth, width = x.shape[1], h.shape[1]
        one = xp.ones((), h.dtype)
        d_c = d_h * (one - u) * (one - c * c)
        d_gates = xp.empty((len(h), 2 * width), h.dtype)
        inner = xp.matmul(d_c, w_c.T)
        reset = inner[:, depth:]
        xp.multiply(reset * h, r * (one - r), out=d_gates[:, :width])
        xp.multiply(d_h * (h - c), u * (one - u), out=d_gates[:, width:])
        outer = xp.matmul(d_gates, w_ru.T)
        d_x = inner[:, :depth] + outer[:, :depth]
        d_prev = d_h * u + reset * r + outer[:, depth:]
        return _narrow_outputs([d_x, d_prev, d_c, d_gates], node)

    return run

"""Wrappers of cells: with dropout, with a residual connection, or on a device."""

from __future__ import annotations

__all__ = ["DeviceWrapper", "DropoutWrapper", "ResidualWrapper"]

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from weft_graph import nn
from weft_graph.ir import nest
from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_graph.nn.scope import static_number
from weft_graph.ops import random
from weft_graph.rnn.cell.base import RNNCell, assert_like_rnncell
from weft_graph.rnn.cell.config import to_config
from weft_graph.rnn.cell.lstm import LSTMStateTuple
from weft_tensor import dtypes, errors
from weft_tensor.shape import TensorShape, as_dims, format_dims


class RNNCellWrapper(RNNCell):
    """Base class of wrappers; they have no variables and no variable scope.

    Args:
      cell: the wrapped cell.
      **kwargs: arguments of RNNCell.
    Raises: InvalidTypeError: `cell` is not a cell.
    """

    def __init__(self, cell: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        assert_like_rnncell("cell", cell)
        self.cell = cell

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        """Compute one step; see `RNNCell`."""
        raise errors.UnimplementedError(f"{type(self).__name__} does not override __call__")

    def get_config(self) -> dict[str, Any]:
        """Return the arguments to create a wrapper like this one; see `RNNCell`."""
        return super().get_config() | {"cell": to_config(self.cell)}

    def _inner_cells(self) -> Sequence[Any]:
        return (self.cell,)

    @property
    def state_size(self) -> Any:
        """Return the state size of the wrapped cell."""
        return self.cell.state_size

    @property
    def output_size(self) -> Any:
        """Return the output size of the wrapped cell."""
        return self.cell.output_size

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return the zero state of the wrapped cell."""
        with get_default_graph().name_scope(type(self).__name__ + "ZeroState"):
            return self.cell.zero_state(batch_size, dtype)


# ---------------------------------------------------------------------------------- dropout


def _non_memory_parts(substate: Any) -> Any:
    """Return the parts of a state with dropout by default: all tensors except the c of an LSTM."""
    if isinstance(substate, LSTMStateTuple):
        return LSTMStateTuple(False, True)
    return nest.is_nested(substate) or isinstance(substate, Output)


class DropoutWrapper(RNNCellWrapper):
    """A cell with dropout of its input, output and next state.

    Args:
      cell: the wrapped cell.
      input_keep_prob, output_keep_prob, state_keep_prob: probability that an element is kept; a
        number in [0, 1], or a tensor of rank 0. 1 adds no nodes.
      variational_recurrent: use the same mask for all steps of a Run and all examples.
      input_size: sizes of the inputs, in their structure; required for `variational_recurrent` with
        dropout of inputs.
      dtype: element type of inputs, state and output; required for `variational_recurrent`.
      seed: seed of the masks.
      dropout_state_filter_visitor: function of a part of the state that returns True to apply
        dropout; it may return a structure of depth 1 of bools. By default all parts except the c of
        an LSTMStateTuple.
      **kwargs: arguments of RNNCell.
    Raises:
      InvalidTypeError: `cell` is not a cell, or the visitor is not callable.
      InvalidArgumentError: a probability is out of range, or an argument is missing for
        `variational_recurrent`.
    Source: Srivastava et al. 2014; Gal and Ghahramani 2016.

    Examples:
      >>> cell = wf.nn.rnn_cell.DropoutWrapper(wf.nn.rnn_cell.GRUCell(8), output_keep_prob=0.5)
      >>> cell.output_size
      8
    """

    _configured = (
        "input_keep_prob",
        "output_keep_prob",
        "state_keep_prob",
        "variational_recurrent",
        "input_size",
        "seed",
        "dropout_state_filter_visitor",
    )

    def __init__(
        self,
        cell: Any,
        input_keep_prob: Any = 1.0,
        output_keep_prob: Any = 1.0,
        state_keep_prob: Any = 1.0,
        variational_recurrent: bool = False,
        input_size: Any = None,
        dtype: Any = None,
        seed: int | None = None,
        dropout_state_filter_visitor: Callable[[Any], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(cell, dtype=dtype, **kwargs)
        visitor = dropout_state_filter_visitor
        if visitor is not None and not callable(visitor):
            raise errors.InvalidTypeError(
                f"dropout_state_filter_visitor must be a function, got {visitor!r}"
            )
        self._dropout_state_filter_visitor = visitor
        self._input_size = input_size
        self._seed = seed
        self._variational_recurrent = variational_recurrent
        with get_default_graph().name_scope("DropoutWrapperInit"):
            self._input_keep_prob = _probability("input_keep_prob", input_keep_prob)
            self._state_keep_prob = _probability("state_keep_prob", state_keep_prob)
            self._output_keep_prob = _probability("output_keep_prob", output_keep_prob)
            self._masks = self._make_masks(input_size, dtype) if variational_recurrent else {}

    @property
    def wrapped_cell(self) -> Any:
        """The wrapped cell."""
        return self.cell

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        """Compute one step; see `RNNCell`."""
        if _drops(self._input_keep_prob):
            inputs = self._apply_dropout(inputs, "input", self._input_keep_prob, inputs)
        output, new_state = self.cell(inputs, state, scope=scope)
        if _drops(self._state_keep_prob):
            shallow_structure = nest.get_traverse_shallow_structure(
                self._dropout_state_filter_visitor or _non_memory_parts, new_state
            )
            new_state = self._apply_dropout(
                new_state, "state", self._state_keep_prob, shallow_structure
            )
        if _drops(self._output_keep_prob):
            output = self._apply_dropout(output, "output", self._output_keep_prob, output)
        return output, new_state

    def _apply_dropout(self, values: Any, kind: str, keep_prob: Any, shallow_structure: Any) -> Any:
        """Apply dropout to the parts of a structure where `shallow_structure` is not False."""
        count = -1

        def drop(choice: Any, value: Any, mask: Any = None) -> Any:
            nonlocal count
            count += 1
            if choice is False:
                return value
            if mask is not None:
                return out("Mul", [value, mask], name="dropout")
            return nn.dropout(value, keep_prob=keep_prob, seed=self._seed_of(kind, count))

        structures = [shallow_structure, values]
        if self._variational_recurrent:
            structures.append(self._masks[kind])
        return nest.map_structure_up_to(shallow_structure, drop, *structures)

    def _make_masks(self, input_size: Any, dtype: Any) -> dict[str, Any]:
        """Create the scaled masks that all steps share; None for parts without dropout."""
        if dtype is None:
            raise errors.InvalidArgumentError("variational_recurrent=True requires dtype")
        if _drops(self._input_keep_prob) and input_size is None:
            raise errors.InvalidArgumentError(
                "variational_recurrent=True with an input_keep_prob below 1 requires input_size"
            )
        sizes = {
            "input": (input_size, self._input_keep_prob),
            "state": (self.cell.state_size, self._state_keep_prob),
            "output": (self.cell.output_size, self._output_keep_prob),
        }
        return {
            kind: self._masks_for(kind, size, keep_prob, dtypes.as_dtype(dtype))
            for kind, (size, keep_prob) in sizes.items()
            if _drops(keep_prob)
        }

    def _masks_for(self, kind: str, sizes: Any, keep_prob: Any, dtype: Any) -> Any:
        """Return a mask of 0 or 1 / keep_prob for each size, shape (1, *size)."""
        keep = convert_to_tensor(keep_prob, dtype)
        number = -1

        def mask(size: Any) -> Output:
            nonlocal number
            number += 1
            shape = TensorShape([1, *(as_dims(size) or ())])
            noise = random.random_uniform(shape, dtype=dtype, seed=self._seed_of(kind, number))
            return out("RealDiv", [out("Floor", [noise + keep]), keep])

        return nest.map_structure(mask, sizes)

    def _seed_of(self, kind: str, number: int) -> int | None:
        """Return a seed for each use of dropout, derived from the wrapper's seed."""
        if self._seed is None:
            return None
        text = f"{self._seed}{kind}_{number}".encode()
        return int(hashlib.md5(text, usedforsecurity=False).hexdigest()[:8], 16) & 0x7FFFFFFF


def _probability(name: str, value: Any) -> Any:
    """Return a probability as a float, or as an output if it is not static."""
    static: Any = static_number(value)
    if static is None:
        original, value = value, convert_to_tensor(value)
        if not value.dtype.is_floating and not value.dtype.is_integer:
            raise errors.InvalidTypeError(f"{name} must be a number, got {original!r}")
        static = constant_value(value)
    if static is None:
        return value
    if not 0 <= static <= 1:
        raise errors.InvalidArgumentError(f"{name} must be in [0, 1], got {static}")
    return float(static)


def _drops(keep_prob: Any) -> bool:
    return not isinstance(keep_prob, float) or keep_prob < 1


# ------------------------------------------------------------------------------ the other two


def _add_structures(inputs: Any, outputs: Any) -> Any:
    def add(x: Any, y: Any) -> Any:
        if not x.shape.is_compatible_with(y.shape):
            raise errors.InvalidArgumentError(
                f"a residual connection requires an input of the output's shape "
                f"{format_dims(y.dims)}, got {format_dims(x.dims)}"
            )
        return x + y

    return nest.map_structure(add, inputs, outputs)


class ResidualWrapper(RNNCellWrapper):
    """A cell whose input is added to its output.

    Args:
      cell: the wrapped cell.
      residual_fn: function of inputs and outputs that returns the outputs; their sum by default.
      **kwargs: arguments of RNNCell.

    Examples:
      >>> cell = wf.nn.rnn_cell.ResidualWrapper(wf.nn.rnn_cell.GRUCell(3))
      >>> output, state = cell(wf.zeros([2, 3]), cell.zero_state(2, wf.float32))
      >>> output.shape.as_list()
      [2, 3]
    """

    _configured = ("residual_fn",)

    def __init__(
        self, cell: Any, residual_fn: Callable[[Any, Any], Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(cell, **kwargs)
        self._residual_fn = residual_fn

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        """Compute one step; see `RNNCell`.

        Raises: InvalidArgumentError, InvalidTypeError: inputs and outputs differ in structure or
          shape.
        """
        outputs, new_state = self.cell(inputs, state, scope=scope)
        return (self._residual_fn or _add_structures)(inputs, outputs), new_state


class DeviceWrapper(RNNCellWrapper):
    """A cell that runs on a device.

    Args:
      cell: the wrapped cell.
      device: device name or function, as for `device`.
      **kwargs: arguments of RNNCell.

    Examples:
      >>> cell = wf.nn.rnn_cell.DeviceWrapper(wf.nn.rnn_cell.GRUCell(3), "/cpu:0")
      >>> output, state = cell(wf.zeros([2, 3]), cell.zero_state(2, wf.float32))
      >>> output.device
      '/device:CPU:0'
    """

    _configured = ("device",)

    def __init__(self, cell: Any, device: Any, **kwargs: Any) -> None:
        super().__init__(cell, **kwargs)
        self._device = device

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return the zero state of the wrapped cell, on the device."""
        with get_default_graph().device(self._device):
            return super().zero_state(batch_size, dtype)

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        """Compute one step; see `RNNCell`."""
        with get_default_graph().device(self._device):
            return self.cell(inputs, state, scope=scope)

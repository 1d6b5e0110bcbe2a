"""Base classes of recurrent cells."""

from __future__ import annotations

__all__ = ["RNNCell"]

from collections.abc import Callable, Sequence
from typing import Any, Self

from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_graph.layers.base import InputSpec, Layer, is_trainable
from weft_graph.rnn.cell.config import read, to_config, type_name
from weft_graph.rnn.cell.steps import batch_size_of, zero_tensors
from weft_graph.variables.scope import get_variable_scope, variable_scope
from weft_tensor import dtypes, errors
from weft_tensor.shape import as_dims, format_dims


class RNNCell(Layer):
    """A function from an input and a state to an output and the next state.

    A subclass defines `state_size`, `output_size` and `call(inputs, state)`. The latter may create
    variables with `get_variable`, which all calls share.

    Args:
      trainable: make the variables trainable.
      name: name of the cell and its variable scope; derived from the class by default.
      dtype: element type of the variables; defaults to that of the first input.
      **kwargs: arguments of `layers.Layer`.

    Examples:
      >>> class Total(wf.nn.rnn_cell.RNNCell):
      ...     state_size = output_size = 1
      ...     def call(self, inputs, state):
      ...         return state + inputs, state + inputs
      >>> numbers = wf.constant([[[1.0], [2.0], [3.0]]])
      >>> totals, last = wf.nn.dynamic_rnn(Total(), numbers, dtype=wf.float32)
      >>> wf.Session().run(last)
      array([[6.]], dtype=float32)
    """

    def __init__(
        self,
        trainable: bool = True,
        name: str | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(trainable, name, dtype, **kwargs)

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        """Compute one step.

        Args:
          inputs: shape (B, I), or a structure of tensors that the cell supports.
          state: tensors of shape (B, *size) in the structure of `state_size`.
          scope: variable scope, or its name, instead of one named after the cell.
        Returns: the output, of shape (B, *output_size), and the next state.
        """
        outer = get_variable_scope() if scope is None else scope
        with variable_scope(outer, custom_getter=self._noting_getter) as var_scope:
            return super().__call__(inputs, state, scope=None if scope is None else var_scope)

    def _noting_getter(self, getter: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Get a variable and record it as one of the cell."""
        variable = getter(*args, **kwargs)
        trainable = is_trainable(variable)
        weights = self._trainable_weights if trainable else self._non_trainable_weights
        if all(weight is not variable for weight in weights):
            weights.append(variable)
        return variable

    @property
    def state_size(self) -> Any:
        """Size of the state: an integer, a shape, or a structure of these.

        Raises: UnimplementedError: the class does not define it.
        """
        raise errors.UnimplementedError(f"{type(self).__name__} has no state_size")

    @property
    def output_size(self) -> Any:
        """Size of the output: an integer, a shape, or a structure of these.

        Raises: UnimplementedError: the class does not define it.
        """
        raise errors.UnimplementedError(f"{type(self).__name__} has no output_size")

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return a state of zeros.

        Args:
          batch_size: B, an integer or an integer tensor of rank 0.
          dtype: element type.
        Returns: tensors of shape (B, *size) in the structure of `state_size`.
        """
        with get_default_graph().name_scope(type(self).__name__ + "ZeroState"):
            return zero_tensors(self.state_size, batch_size, dtype)

    def get_initial_state(
        self, inputs: Any = None, batch_size: Any = None, dtype: Any = None
    ) -> Any:
        """Return the state before the first step: `zero_state`.

        Args:
          inputs: tensor of shape (B, ...) that determines `batch_size` and `dtype`.
          batch_size: B, an integer or an integer tensor of rank 0.
          dtype: element type.
        Raises: InvalidArgumentError: the batch size or the type is missing, or contradicts
          `inputs`.
        """
        if inputs is not None:
            batch_size, dtype = _from_inputs(inputs, batch_size, dtype)
        if batch_size is None or dtype is None:
            raise errors.InvalidArgumentError(
                "an initial state requires batch_size and dtype, or inputs, "
                f"got batch_size={batch_size!r} and dtype={dtype!r}"
            )
        return self.zero_state(batch_size, dtype)

    # ---------------------------------------------------------------------------- config

    _configured: tuple[str, ...] = ()
    """Arguments of the constructor; each is stored as an attribute with a leading underscore."""

    def get_config(self) -> dict[str, Any]:
        """Return the arguments to create a cell like this one with `from_config`.

        Returns: arguments by name: numbers, strings, lists and dictionaries. An activation is
          represented by its name, and a cell or an initializer by its class name and config. Other
          objects, such as tensors or functions of the program, are returned unchanged.

        Examples:
          >>> cell = wf.nn.rnn_cell.GRUCell(8, activation="relu", name="gru")
          >>> config = cell.get_config()
          >>> config["num_units"], config["activation"]
          (8, 'relu')
          >>> wf.nn.rnn_cell.GRUCell.from_config(config).output_size
          8
        """
        config = {"name": self.name, "trainable": self.trainable, "dtype": type_name(self)}
        return config | {name: to_config(getattr(self, f"_{name}")) for name in self._configured}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Self:
        """Create a cell, with new variables, from the arguments that `get_config` returned.

        Args:
          config: arguments by name.
          custom_objects: classes of inner cells by name; subclasses of RNNCell are found without
            it.
        Raises: InvalidArgumentError: the class of an inner cell is unknown.
        """
        return cls(**{name: read(value, RNNCell, custom_objects) for name, value in config.items()})

    # ------------------------------------------------------------------------ variables

    def _inner_cells(self) -> Sequence[Any]:
        """Return the inner cells."""
        return ()

    @property
    def trainable_weights(self) -> list[Any]:
        """The trainable variables, including those of inner cells."""
        if not self.trainable:
            return []
        inner = [weight for cell in self._inner_layers() for weight in cell.trainable_weights]
        return _unique_variables([*self._trainable_weights, *inner])

    @property
    def non_trainable_weights(self) -> list[Any]:
        """The variables that are not trainable, including those of inner cells."""
        cells = self._inner_layers()
        frozen: list[Any] = []
        if not self.trainable:
            inner = [weight for cell in cells for weight in cell.trainable_weights]
            frozen = [*self._trainable_weights, *inner]
        cell_weights = [weight for cell in cells for weight in cell.non_trainable_weights]
        return _unique_variables([*frozen, *self._non_trainable_weights, *cell_weights])

    @property
    def trainable_variables(self) -> list[Any]:
        """The trainable variables, as `trainable_weights`."""
        return self.trainable_weights

    @property
    def non_trainable_variables(self) -> list[Any]:
        """The variables that are not trainable, as `non_trainable_weights`."""
        return self.non_trainable_weights

    def _inner_layers(self) -> list[Layer]:
        return [cell for cell in self._inner_cells() if isinstance(cell, Layer)]


class LayerRNNCell(RNNCell):
    """A cell that creates its variables in `build`, like layers."""

    def __call__(self, inputs: Any, state: Any, scope: Any = None, **kwargs: Any) -> Any:
        """Compute one step; see `RNNCell`."""
        return Layer.__call__(self, inputs, state, scope=scope, **kwargs)

    def _input_depth(self, input_shape: Any) -> int:
        """Return the last size of the input, which all later inputs must have.

        Raises: InvalidArgumentError: it is unknown, or the element type is not floating.
        """
        dims = as_dims(input_shape)
        if not dims or dims[-1] is None:
            raise errors.InvalidArgumentError(
                f"cell {self.name} requires an input whose last size is known, "
                f"got shape {format_dims(dims)}"
            )
        if self._dtype is not None and not (self._dtype.is_floating or self._dtype.is_complex):
            raise errors.InvalidTypeError(
                f"cell {self.name} requires a floating or complex type, got {self._dtype.name}"
            )
        self.input_spec = InputSpec(ndim=2, axes={-1: dims[-1]})
        return dims[-1]


def _from_inputs(inputs: Any, batch_size: Any, dtype: Any) -> tuple[Any, Any]:
    """Return the batch size and element type, checked against those of the inputs."""
    inputs = convert_to_tensor(inputs)
    input_batch_size = batch_size_of([inputs], 0)
    if batch_size is not None:
        static_batch_size = (
            constant_value(batch_size) if isinstance(batch_size, Output) else batch_size
        )
        if (
            static_batch_size is not None
            and isinstance(input_batch_size, int)
            and int(static_batch_size) != input_batch_size
        ):
            raise errors.InvalidArgumentError(
                f"batch_size must be that of inputs, which is {input_batch_size}, got "
                f"{int(static_batch_size)}"
            )
    if dtype is not None and dtypes.as_dtype(dtype) is not inputs.dtype.base_dtype:
        raise errors.InvalidArgumentError(
            f"dtype must be that of inputs, which is {inputs.dtype.name}, "
            f"got {dtypes.as_dtype(dtype).name}"
        )
    return input_batch_size, inputs.dtype.base_dtype


def _unique_variables(variables: Sequence[Any]) -> list[Any]:
    return list({id(variable): variable for variable in variables}.values())


def assert_like_rnncell(cell_name: str, cell: Any) -> None:
    """Raise InvalidTypeError unless an object can be used as a cell.

    A cell is callable and has `output_size`, `state_size`, and `zero_state` or `get_initial_state`.
    """
    lacking = [f"no {name}" for name in ("output_size", "state_size") if not hasattr(cell, name)]
    if not hasattr(cell, "zero_state") and not hasattr(cell, "get_initial_state"):
        lacking.append("neither zero_state nor get_initial_state")
    if not callable(cell):
        lacking.append("no way to be called")
    if lacking:
        raise errors.InvalidTypeError(
            f"the argument {cell_name!r} ({cell!r}) is not an RNNCell: it has {', '.join(lacking)}"
        )


# -------------------------------------------------------------------------------- activations

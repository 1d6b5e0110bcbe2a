"""Checks of the arguments of layers and cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft_graph import nn
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.node import Output
from weft_graph.ops import elementary
from weft_graph.variables import initializers
from weft_tensor import errors
from weft_tensor.arguments import check_optional_function, check_whole_number
from weft_tensor.shape import TensorShape

Function = Callable[..., Any]


def initializer_of(value: Any, label: str) -> Any:
    """Return an initializer from a function of a shape, or from its name.

    Raises: InvalidArgumentError: the name is unknown; InvalidTypeError: it is not a function.
    """
    return (
        initializers.get(value) if isinstance(value, str) else check_optional_function(value, label)
    )


def functions(**functions_by_name: Any) -> None:
    """Raise InvalidTypeError unless each argument is a function or None."""
    for label, value in functions_by_name.items():
        check_optional_function(value, label)


def _hard_sigmoid(x: Any) -> Output:
    return nn.relu(1 - nn.relu(0.5 - 0.2 * convert_to_tensor(x)))


_ACTIVATIONS: dict[str, Function] = {
    "elu": nn.elu,
    "exponential": elementary.exp,
    "hard_sigmoid": _hard_sigmoid,
    "linear": lambda x: x,
    "relu": nn.relu,
    "selu": nn.selu,
    "sigmoid": nn.sigmoid,
    "softmax": nn.softmax,
    "softplus": nn.softplus,
    "softsign": nn.softsign,
    "tanh": nn.tanh,
}


def activation_of(activation: Any, default: Function | None = None) -> Function | None:
    """Return an activation from a function or its name.

    Raises: InvalidArgumentError: the name is unknown; InvalidTypeError: it is not a function.
    """
    if activation is None:
        return default
    if not isinstance(activation, str):
        return check_optional_function(activation, "activation")
    if activation not in _ACTIVATIONS:
        raise errors.InvalidArgumentError(
            f"activation must be one of {sorted(_ACTIVATIONS)}, got {activation!r}"
        )
    return _ACTIVATIONS[activation]


def activation_name(function: Any) -> str | None:
    """Return the name of an activation function that `activation_of` accepts, or None."""
    return next((name for name, activation in _ACTIVATIONS.items() if activation is function), None)


def sizes(value: Any, count: int, name: str) -> tuple[int, ...]:
    """Return sizes per axis as a tuple, from one number, a sequence or a shape.

    Raises: InvalidTypeError: they are not integers; InvalidArgumentError: the number of sizes is
      wrong, or one is below 1.
    """
    if isinstance(value, TensorShape):
        value = value.as_list()
    if not isinstance(value, list | tuple):
        return (check_whole_number(value, name, minimum=1),) * count
    if len(value) != count:
        raise errors.InvalidArgumentError(
            f"{name} must be {count} integers, or one integer; got {value!r}"
        )
    return tuple(check_whole_number(size, name, minimum=1) for size in value)


def layout_of(data_format: str, spatial: int) -> str:
    """Return the letters of the layout "channels_last" or "channels_first", such as "NHWC".

    Raises: InvalidArgumentError: it is neither.
    """
    axes = {1: "W", 2: "HW", 3: "DHW"}[spatial]
    if data_format == "channels_last":
        return f"N{axes}C"
    if data_format == "channels_first":
        return f"NC{axes}"
    raise errors.InvalidArgumentError(
        f"data_format must be 'channels_first' or 'channels_last', got {data_format!r}"
    )


def padding_of(padding: str) -> str:
    """Return the padding attribute for "valid" or "same" in upper or lower case.

    Raises: InvalidArgumentError: it is neither.
    """
    if not isinstance(padding, str) or padding.upper() not in ("VALID", "SAME"):
        raise errors.InvalidArgumentError(f"padding must be 'valid' or 'same', got {padding!r}")
    return padding.upper()

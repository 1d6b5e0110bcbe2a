"""Value rules of declarations, for values known at graph construction (`constant_value`).

A rule computes one output of a node from the values of its inputs, without a kernel. A value is an
array. In a partly known value, an object array, None stands for an unknown integer:
`[tf.shape(x)[0], 5]` is `[None, 5]`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import Array, Evaluate, ValueRule, Values

MAX_ELEMENTS: Final = 1024
"""Largest number of elements of a computed value; constants may be larger."""


def value_rule(
    needs: tuple[int, ...] | None = None, partial: bool = False, uses_shape: bool = False
) -> Callable[[Evaluate], ValueRule]:
    """Decorator that creates a rule from `fn(node, output index, values) -> array or None`.

    The op must be stateless. If `fn` raises ValueError, TypeError, IndexError or an arithmetic
    error, the value is unknown; the kernel reports invalid values, with the step's context.

    Args:
      needs: indices of the inputs whose values it needs, all by default; the others are None.
      partial: True if it accepts partly known values; else it is not called for them.
      uses_shape: True if it reads static shapes of inputs, which may be refined later.
    """
    return lambda evaluate: ValueRule(evaluate, needs, partial, uses_shape)


def arrays(values: Values) -> list[Array]:
    """Return the values of inputs if all needed ones are known."""
    return [value for value in values if value is not None]


def is_object(output: Output) -> bool:
    """Return True if the elements are Python objects: strings and handles."""
    return output.dtype.numpy.kind == "O"


def has_unknown(output: Output, value: Array) -> bool:
    """Return True if some integers in the value of an output are unknown."""
    if value.dtype != object or is_object(output):
        return False
    return any(item is None for item in value.reshape(-1).tolist())


@value_rule(partial=True)
def identity_value(node: Node, index: int, values: Values) -> Array | None:
    """Value rule: each output is the input at its index."""
    return values[index]


@value_rule(needs=(0,), partial=True)
def routed_value(node: Node, index: int, values: Values) -> Array | None:
    """Value rule: each output is the first input, unless it is dead."""
    return values[0]


def array_value_rule(function: Callable[..., Any]) -> ValueRule:
    """Return a value rule from a NumPy function of fully known inputs."""

    @value_rule()
    def evaluate(node: Node, index: int, values: Values) -> Array | None:
        with np.errstate(all="ignore"):
            return np.asarray(function(*arrays(values)))

    return evaluate


def binary_value_rule(
    function: Callable[[Any, Any], Any], on_integers: Callable[[Any, Any], Any]
) -> ValueRule:
    """Return a value rule from a NumPy function of two inputs, also for partly known integers."""
    lifted = np.frompyfunc(lambda a, b: None if a is None or b is None else on_integers(a, b), 2, 1)

    @value_rule(partial=True)
    def evaluate(node: Node, index: int, values: Values) -> Array | None:
        a, b = arrays(values)
        if object in (a.dtype, b.dtype):
            return None if is_object(node.inputs[0]) else np.asarray(lifted(a, b))
        if function in (np.floor_divide, np.remainder) and a.dtype.kind in "iu" and not b.all():
            return None
        with np.errstate(all="ignore"):
            return np.asarray(function(a, b))

    return evaluate


def reduction_value_rule(function: Callable[..., Any]) -> ValueRule:
    """Return a value rule from a NumPy reduction; the second input is the axes."""

    @value_rule()
    def evaluate(node: Node, index: int, values: Values) -> Array | None:
        value, axes = arrays(values)
        axis = tuple([int(n) for n in axes.reshape(-1).tolist()])
        with np.errstate(all="ignore"):
            return np.asarray(function(value, axis=axis, keepdims=node.attrs["keep_dims"]))

    return evaluate

"""The start and end that all layers of `tf.contrib.layers` share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from weft_contrib.utils import add_to_variable_collections, collect_named_outputs, getter_of
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.node import Output
from weft_graph.variables.scope import variable_scope
from weft_tensor import errors

Function = Callable[..., Any]


@contextmanager
def layer_scope(
    scope: Any, default: str, inputs: Any, reuse: Any, names: Mapping[str, str] | None = None
) -> Iterator[tuple[Any, Output]]:
    """Open the scope of a layer, and make its variables model variables.

    Args:
      scope, default: name or scope, and the default name.
      inputs: the layer's input, converted to a tensor.
      reuse: reuse mode of the variables.
      names: other names for the variables.
    Yields: the scope and the tensor.
    """
    getter = getter_of(names or {})
    with variable_scope(scope, default, [inputs], reuse=reuse, custom_getter=getter) as var_scope:
        yield var_scope, convert_to_tensor(inputs)


def finish_layer(
    outputs: Any,
    var_scope: Any,
    *,
    normalizer_fn: Function | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    activation_fn: Function | None = None,
    outputs_collections: Any = None,
) -> Any:
    """Normalize and activate a layer's output, and add it to collections.

    Args:
      outputs: outputs of the layer itself.
      var_scope: scope of the layer.
      normalizer_fn, normalizer_params: a function and its arguments, or None.
      activation_fn: a function, or None.
      outputs_collections: keys, or None.
    """
    if normalizer_fn is not None:
        outputs = normalizer_fn(outputs, **(normalizer_params or {}))
    if activation_fn is not None:
        outputs = activation_fn(outputs)
    return collect_named_outputs(outputs_collections, var_scope.name, outputs)


def list_variables_of(layer: Any, collections: Any, names: Mapping[str, str]) -> None:
    """Add the variables of a layer to the requested collections.

    Args:
      layer: the layer.
      collections: keys, or keys by kind of variable.
      names: attributes of the layer, with the kind of each variable.
    """
    for attribute, role in names.items():
        add_to_variable_collections(getattr(layer, attribute, None), collections, role)


def channels(data_format: str | None, spatial: int = 2) -> str:
    """Return the name of a layout in `layers` for a name such as "NHWC".

    Args:
      data_format: name of a layout with channels after the batch or last.
      spatial: number of spatial axes.
    Raises: InvalidArgumentError: the layout is unknown.
    """
    letters = "DHW"[-spatial:] if spatial > 1 else "W"
    last, first = f"N{letters}C", f"NC{letters}"
    if data_format not in (None, last, first):
        raise errors.InvalidArgumentError(
            f"data_format must be {last} or {first}, got {data_format!r}"
        )
    return "channels_first" if data_format == first else "channels_last"

"""Fully connected layers, embeddings, and changes of shape."""

from __future__ import annotations

from weft_contrib.utils import add_to_variable_collections

__all__ = [
    "bias_add",
    "dropout",
    "embed_sequence",
    "flatten",
    "fully_connected",
    "linear",
    "one_hot_encoding",
    "relu",
    "relu6",
    "repeat",
    "softmax",
    "stack",
    "unit_norm",
]

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from weft_contrib import framework
from weft_contrib.arg_scope import add_arg_scope
from weft_contrib.initializers import xavier_initializer
from weft_contrib.layers.common import Function, finish_layer, layer_scope, list_variables_of
from weft_contrib.utils import collect_named_outputs
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.layers import core
from weft_graph.nn import embedding
from weft_graph.ops import casting, gather, nn, powers, reduction, search, shapes
from weft_graph.variables.initializers import Zeros
from weft_graph.variables.scope import variable_scope
from weft_tensor import dtypes, errors

_NAMES = {"kernel": "weights", "bias": "biases"}


@add_arg_scope
def fully_connected(
    inputs: Any,
    num_outputs: int,
    activation_fn: Function | None = nn.relu,
    normalizer_fn: Function | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Any = xavier_initializer(),
    weights_regularizer: Any = None,
    biases_initializer: Any = Zeros(),
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """Compute activation(inputs @ weights + biases) over the last axis.

    Args:
      inputs: floating, shape (..., I).
      num_outputs: size of the last axis of the result.
      activation_fn: function applied last, or None.
      normalizer_fn, normalizer_params: a function that replaces the biases, and its arguments.
      weights_initializer, biases_initializer: initializers of the variables; None for no biases.
      weights_regularizer, biases_regularizer: functions from a variable to a loss.
      reuse: reuse mode of the variables.
      variables_collections: collection keys, or a dict of them for "weights" and "biases".
      outputs_collections: collection keys of the result.
      trainable: True if the variables are trained.
      scope: name or scope; by default a unique name from "fully_connected".
    Returns: shape (..., num_outputs).

    Examples:
      >>> wf.contrib.layers.fully_connected(wf.ones([2, 3]), 4).shape
      TensorShape([Dimension(2), Dimension(4)])
    """
    with layer_scope(scope, "fully_connected", inputs, reuse, _NAMES) as (var_scope, x):
        layer = core.Dense(
            num_outputs,
            use_bias=normalizer_fn is None and biases_initializer is not None,
            kernel_initializer=weights_initializer,
            bias_initializer=biases_initializer,
            kernel_regularizer=weights_regularizer,
            bias_regularizer=biases_regularizer,
            trainable=trainable,
            name=var_scope.name,
            _scope=var_scope,
            _reuse=reuse,
        )
        outputs = layer(x)
        list_variables_of(layer, variables_collections, _NAMES)
        return finish_layer(
            outputs,
            var_scope,
            normalizer_fn=normalizer_fn,
            normalizer_params=normalizer_params,
            activation_fn=activation_fn,
            outputs_collections=outputs_collections,
        )


relu = functools.partial(fully_connected, activation_fn=nn.relu)
relu6 = functools.partial(fully_connected, activation_fn=nn.relu6)
linear = functools.partial(fully_connected, activation_fn=None)


@add_arg_scope
def bias_add(
    inputs: Any,
    activation_fn: Function | None = None,
    initializer: Any = Zeros(),
    regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    data_format: str = "NHWC",
    scope: Any = None,
) -> Any:
    """Add a bias per channel.

    Args:
      inputs: floating, rank at least 2.
      activation_fn: function applied last, or None.
      initializer, regularizer, trainable: settings of the variable "biases".
      data_format: "NHWC" or "NCHW".
      reuse, variables_collections, outputs_collections, scope: as for `fully_connected`; the
        default name is "BiasAdd".
    """
    with layer_scope(scope, "BiasAdd", inputs, reuse) as (var_scope, x):
        axis = 1 if data_format.startswith("NC") else -1
        biases = framework.model_variable(
            "biases", [x.shape[axis].value], x.dtype.base_dtype, initializer, regularizer, trainable
        )
        _list("biases", biases, variables_collections)
        outputs = nn.bias_add(x, biases, data_format=data_format)
        return finish_layer(
            outputs,
            var_scope,
            activation_fn=activation_fn,
            outputs_collections=outputs_collections,
        )


def _list(role: str, variable: Any, collections: Any) -> None:
    add_to_variable_collections(variable, collections, role)


@add_arg_scope
def dropout(
    inputs: Any,
    keep_prob: Any = 0.5,
    noise_shape: Any = None,
    is_training: Any = True,
    outputs_collections: Any = None,
    scope: Any = None,
    seed: int | None = None,
) -> Any:
    """Drop random elements during training, and scale the others by 1 / keep_prob.

    Args:
      inputs: floating.
      keep_prob: probability of keeping an element.
      noise_shape: shape of the mask.
      is_training: a bool or a bool tensor.
      outputs_collections, scope: as for `fully_connected`; the default name is "Dropout".
      seed: seed of the random numbers.
    """
    with variable_scope(scope, "Dropout", [inputs]) as var_scope:
        layer = core.Dropout(1.0 - keep_prob, noise_shape, seed, name=var_scope.name)
        outputs = layer(convert_to_tensor(inputs), training=is_training)
        return collect_named_outputs(outputs_collections, var_scope.name, outputs)


@add_arg_scope
def flatten(inputs: Any, outputs_collections: Any = None, scope: Any = None) -> Any:
    """Merge all axes except the first.

    Args:
      inputs: shape (B, ...).
      outputs_collections, scope: as for `fully_connected`; the default name is "Flatten".
    """
    with variable_scope(scope, "Flatten", [inputs]) as var_scope:
        return collect_named_outputs(outputs_collections, var_scope.name, core.flatten(inputs))


@add_arg_scope
def one_hot_encoding(
    labels: Any,
    num_classes: int,
    on_value: Any = 1.0,
    off_value: Any = 0.0,
    outputs_collections: Any = None,
    scope: Any = None,
) -> Any:
    """Return the one-hot encoding of labels.

    Args:
      labels: integers.
      num_classes: size of the new last axis.
      on_value, off_value: values of the label's class and of the others.
      outputs_collections, scope: as for `fully_connected`; the default name is "OneHotEncoding".
    """
    with variable_scope(scope, "OneHotEncoding", [labels, num_classes]) as var_scope:
        x = convert_to_tensor(labels)
        if x.dtype.base_dtype is dtypes.int32:
            x = casting.cast(x, dtypes.int64)
        outputs = gather.one_hot(x, num_classes, on_value=on_value, off_value=off_value)
        return collect_named_outputs(outputs_collections, var_scope.name, outputs)


@add_arg_scope
def unit_norm(inputs: Any, dim: int, epsilon: float = 1e-7, scope: Any = None) -> Any:
    """Scale vectors along an axis to length 1.

    Args:
      inputs: floating.
      dim: the axis.
      epsilon: added to the sum of squares.
      scope: name or scope; "UnitNorm" by default.
    """
    with variable_scope(scope, "UnitNorm", [inputs]):
        x = convert_to_tensor(inputs)
        return x / powers.sqrt(epsilon + reduction.reduce_sum(powers.square(x), dim, True))


def softmax(logits: Any, scope: Any = None) -> Any:
    """Return the softmax over the last axis.

    Args:
      logits: floating, rank at least 1.
      scope: name or scope; "softmax" by default.
    """
    with variable_scope(scope, "softmax", [logits]):
        return nn.softmax(logits, name="Reshape_1")


def repeat(inputs: Any, repetitions: int, layer: Any, *args: Any, **kwargs: Any) -> Any:
    """Apply a layer repeatedly, with separate variables each time.

    Args:
      inputs: inputs of the first layer.
      repetitions: number of layers.
      layer: a function with the arguments `inputs` and `scope`.
      *args, **kwargs: its other arguments; the layers add "_1", "_2", ... to `scope`.
    """
    scope = kwargs.pop("scope", None)
    with variable_scope(scope, "Repeat", [inputs]):
        inputs = convert_to_tensor(inputs)
        name = scope if scope is not None else _name_of(layer, "repeat")
        for i in range(repetitions):
            inputs = layer(inputs, *args, **{**kwargs, "scope": f"{name}_{i + 1}"})
        return inputs


def stack(inputs: Any, layer: Any, stack_args: Sequence[Any], **kwargs: Any) -> Any:
    """Apply one layer after another, each with separate arguments.

    Args:
      inputs: inputs of the first layer.
      layer: a function with the arguments `inputs` and `scope`.
      stack_args: for each layer the argument after `inputs`, or a list of arguments.
      **kwargs: arguments of all layers; they add "_1", "_2", ... to `scope`.
    """
    scope = kwargs.pop("scope", None)
    with variable_scope(scope, "Stack", [inputs]):
        inputs = convert_to_tensor(inputs)
        name = scope if scope is not None else _name_of(layer, "stack")
        for i, layer_args in enumerate(stack_args):
            args = layer_args if isinstance(layer_args, list | tuple) else [layer_args]
            inputs = layer(inputs, *args, **{**kwargs, "scope": f"{name}_{i + 1}"})
        return inputs


def _name_of(layer: Any, default: str) -> str:
    function = getattr(layer, "func", layer)  # of a partial one
    name: str = getattr(function, "__name__", default)
    return name


def embed_sequence(
    ids: Any,
    vocab_size: int | None = None,
    embed_dim: int | None = None,
    unique: bool = False,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    scope: Any = None,
    reuse: Any = None,
) -> Any:
    """Return the rows of a variable "embeddings" selected by ids.

    Args:
      ids: integers, shape (B, T).
      vocab_size, embed_dim: shape of the variable; optional if it is reused.
      unique: look up each id only once.
      initializer, regularizer, trainable: settings of the variable.
      scope: name or scope; "EmbedSequence" by default.
      reuse: reuse mode of the variable.
    Returns: shape (B, T, embed_dim).
    Raises: InvalidArgumentError: a size is missing.
    """
    if not (reuse or (vocab_size and embed_dim)):
        raise errors.InvalidArgumentError(
            f"Must specify vocab size and embedding dimension when not reusing. Got vocab_size="
            f"{vocab_size} and embed_dim={embed_dim}"
        )
    with variable_scope(scope, "EmbedSequence", [ids], reuse=reuse):
        shape = [vocab_size, embed_dim] if vocab_size and embed_dim else None
        table = framework.model_variable(
            "embeddings", shape, None, initializer, regularizer, trainable
        )
        if not unique:
            return embedding.embedding_lookup(table, ids)
        ids = convert_to_tensor(ids)
        unique_ids, positions = search.unique(shapes.reshape(ids, [-1]))
        rows = gather.gather(embedding.embedding_lookup(table, unique_ids), positions)
        depth = convert_to_tensor(table).shape[1].value
        result = shapes.reshape(rows, [*_sizes(ids), depth])
        result.set_shape(ids.shape.concatenate(depth))
        return result


def _sizes(ids: Any) -> list[Any]:
    sizes = shapes.shape(ids)
    return [sizes[i] for i in range(ids.shape.ndims)]

"""Helpers of layers: named outputs in collections, kernel sizes, names of variables."""

from __future__ import annotations

__all__ = [
    "append_tensor_alias",
    "collect_named_outputs",
    "constant_value",
    "convert_collection_to_dict",
    "first_dimension",
    "get_tensor_aliases",
    "last_dimension",
    "n_positive_integers",
    "smart_cond",
    "two_element_tuple",
]

import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import (
    add_to_collection,
    add_to_collections,
    get_collection,
    get_default_graph,
)
from weft_graph.ir.node import Output
from weft_graph.layers.core import smart_cond, static_bool as constant_value
from weft_tensor import errors

_aliases: weakref.WeakKeyDictionary[Output, list[str]] = weakref.WeakKeyDictionary()


def append_tensor_alias(tensor: Output, alias: str) -> Output:
    """Set the alias of a tensor, for `convert_collection_to_dict`.

    Args:
      tensor: any tensor.
      alias: the name.
    """
    alias = alias[:-1] if alias.endswith("/") else alias
    _aliases.setdefault(tensor, []).append(alias)
    return tensor


def get_tensor_aliases(tensor: Output) -> list[str]:
    """Return the aliases of a tensor, or its own name.

    Args:
      tensor: any tensor.
    """
    return list(_aliases.get(tensor, ())) or [tensor.name.removesuffix(":0")]


def collect_named_outputs(collections: Any, alias: str, outputs: Output) -> Output:
    """Add a tensor to collections under an alias.

    Args:
      collections: a key or keys; empty for none.
      alias: the name.
      outputs: the tensor.
    """
    if collections:
        append_tensor_alias(outputs, alias)
        add_to_collections(collections, outputs)
    return outputs


def convert_collection_to_dict(
    collection: str, clear_collection: bool = False
) -> OrderedDict[str, Output]:
    """Return the tensors of a collection by their aliases.

    Args:
      collection: key of the collection.
      clear_collection: True to clear it.
    """
    pairs = [
        (alias, tensor)
        for tensor in get_collection(collection)
        for alias in get_tensor_aliases(tensor)
    ]
    if clear_collection:
        get_default_graph().clear_collection(collection)
    return OrderedDict(pairs)


def n_positive_integers(n: int, value: Any) -> tuple[int, ...]:
    """Return a number for each of `n` axes.

    Args:
      n: number of axes.
      value: one number for all axes, or `n` numbers.
    Raises:
      InvalidArgumentError: there are not 1 or `n` numbers, or one is not positive.
    """
    values = (value,) * n if not isinstance(value, list | tuple) else tuple(value)
    sizes = tuple([int(size) for size in values])
    if len(sizes) != n or min(sizes) < 1:
        raise errors.InvalidArgumentError(f"{n} positive integers are required, got {value!r}")
    return sizes


def two_element_tuple(value: Any) -> tuple[int, int]:
    """Return a number for each of two axes.

    Args:
      value: one number for both axes, or two.
    """
    first, second = n_positive_integers(2, value)
    return first, second


def first_dimension(shape: Any, min_rank: int = 1) -> Any:
    """Return the first size of a shape, which must be static.

    Args:
      shape: the shape.
      min_rank: minimum rank.
    """
    return _size(shape, min_rank, 0)


def last_dimension(shape: Any, min_rank: int = 1) -> Any:
    """Return the last size of a shape, which must be static.

    Args:
      shape: the shape.
      min_rank: minimum rank.
    """
    return _size(shape, min_rank, -1)


def _size(shape: Any, minimum: int, axis: int) -> Any:
    dims = shape.dims
    if dims is None or len(dims) < minimum or dims[axis].value is None:
        raise errors.InvalidArgumentError(
            f"a rank of at least {minimum} and a known size of axis {axis} are required, got "
            f"{shape}"
        )
    return dims[axis].value


def getter_of(names: Mapping[str, str]) -> Callable[..., Any]:
    """Return a custom getter that creates model variables under other names.

    Args:
      names: new names by the last component of the old ones.
    """

    def get(getter: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        scope, slash, last = name.rpartition("/")
        keys = kwargs.pop("collections", None) or [GraphKeys.GLOBAL_VARIABLES]
        kwargs["collections"] = list(dict.fromkeys([*keys, GraphKeys.MODEL_VARIABLES]))
        return getter(scope + slash + names.get(last, last), *args, **kwargs)

    return get


def add_to_variable_collections(variable: Any, collections: Any, name: str) -> None:
    """Add a variable of a layer to the requested collections.

    Args:
      variable: the variable, or None.
      collections: keys, or keys by what the variable is.
      name: what the variable is: "weights", "biases", "beta".
    """
    if variable is None or not collections:
        return
    keys = collections.get(name) if isinstance(collections, Mapping) else collections
    parts = list(variable) if hasattr(variable, "_get_variable_list") else [variable]
    for key in [keys] if isinstance(keys, str) else keys or ():
        for part in parts:
            add_to_collection(key, part)

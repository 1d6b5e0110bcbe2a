"""Formatting of tensors, Python values and structures of both for `print`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from weft_graph.ir.default_graph import is_tensor
from weft_graph.ir.indexed_slices import SparseTensor, SparseTensorValue
from weft_graph.ir.node import Output
from weft_graph.ops import string_conversion

_Piece = str | tuple[Any]
"""Text, or a tensor in a tuple of one."""


def line_of(inputs: Sequence[Any], sep: str, summarize: int) -> Output:
    """Format all inputs on one line, with strings unquoted: string, rank 0.

    Args:
      inputs: tensors, Python values, and dicts, lists and tuples of these.
    """
    parts = [[item] if isinstance(item, str) else list(_pieces(item)) for item in inputs]
    pieces = [piece for i, part in enumerate(parts) for piece in ([sep] if i else []) + part]
    texts = "".join(piece for piece in pieces if isinstance(piece, str))
    mark = "{}"
    while mark in texts:
        mark = f"{{{mark}}}"
    template = "".join(piece if isinstance(piece, str) else mark for piece in pieces)
    tensors = [piece[0] for piece in pieces if not isinstance(piece, str)]
    return string_conversion.string_format(template, tensors, mark, summarize)


def _pieces(value: Any) -> Iterator[_Piece]:
    if isinstance(value, SparseTensor | SparseTensorValue):
        names = {"indices": value.indices, "values": value.values, "shape": value.dense_shape}
        yield from _join_pieces("'SparseTensor(", names.items(), ")'", lambda name: f"{name}=")
    elif is_tensor(value) or isinstance(value, np.ndarray):
        yield (value,)
    elif isinstance(value, OrderedDict):
        yield from _join_pieces(
            "OrderedDict([", value.items(), "])", lambda key: f"({key!r}, ", ")"
        )
    elif isinstance(value, Mapping):
        yield from _join_pieces("{", _sort_by_key(value), "}", lambda key: f"{key!r}: ")
    elif hasattr(value, "_fields"):
        names = dict(zip(value._fields, value, strict=True))
        yield from _join_pieces(
            f"{type(value).__name__}(", names.items(), ")", lambda name: f"{name}="
        )
    elif isinstance(value, list):
        yield from _join_pieces("[", enumerate(value), "]", lambda _: "")
    elif isinstance(value, tuple):
        yield from _join_pieces(
            "(", enumerate(value), ",)" if len(value) == 1 else ")", lambda _: ""
        )
    else:
        yield str(value) if isinstance(value, np.generic) else repr(value)


def _join_pieces(
    begin: str,
    items: Iterable[tuple[Any, Any]],
    end: str,
    label: Callable[[Any], str],
    suffix: str = "",
) -> Iterator[_Piece]:
    yield begin
    for number, (key, value) in enumerate(items):
        yield (", " if number else "") + label(key)
        yield from _pieces(value)
        yield suffix
    yield end


def _sort_by_key(value: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    try:
        return sorted(value.items(), key=lambda item: item[0])
    except TypeError:  # because keys of several types have no order
        return list(value.items())

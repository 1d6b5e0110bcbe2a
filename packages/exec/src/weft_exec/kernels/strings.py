"""Kernels on strings, which are arrays of bytes objects: joining, splitting, matching."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.kernels.regular_expressions import Pattern, replacer
from weft_graph.ops.shape_rules import normal_axes
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = np.ndarray[Any, Any]


def strings_of(values: list[bytes], shape: tuple[int, ...]) -> Array:
    """Return strings as an array of this shape."""
    result = np.empty(len(values), object)
    result[:] = values
    return result.reshape(shape)


def items_of(x: Any) -> list[bytes]:
    """Return the elements, row by row."""
    items: list[bytes] = np.asarray(x, object).reshape(-1).tolist()
    return items


def scalar_of(x: Any) -> bytes:
    """Return the first element."""
    value: bytes = np.asarray(x, object).reshape(-1)[0]
    return value


def map_strings(function: Callable[[bytes], bytes]) -> KernelFunction:
    """Return a kernel that maps each string to a string."""

    def run(x: Any) -> Any:
        return strings_of([function(item) for item in items_of(x)], x.shape)

    return run


def map_to_numbers(function: Callable[[bytes], Any], dtype: np.dtype[Any]) -> KernelFunction:
    """Return a kernel that maps each string to a number."""

    def run(x: Any) -> Any:
        return np.array([function(item) for item in items_of(x)], dtype).reshape(x.shape)

    return run


def bytes_of(value: str | bytes) -> bytes:
    """Return the value of an attribute as bytes; text is encoded as UTF-8."""
    return value.encode() if isinstance(value, str) else value


def unicode_of(value: bytes) -> str:
    """Decode UTF-8; other bytes become surrogates, which `utf8_of` encodes as the same bytes."""
    return value.decode("utf-8", "surrogateescape")


def utf8_of(value: str) -> bytes:
    """Encode the result of `unicode_of` as bytes."""
    return value.encode("utf-8", "surrogateescape")


# ------------------------------------------------------------------------- joining, cutting


@kernel("StringJoin")
def _string_join(node: Node, device: Device) -> KernelFunction:
    separator = bytes_of(node.attrs["separator"])

    def run(*inputs: Any) -> Any:
        shape = next((x.shape for x in inputs if x.shape != ()), ())
        for x in inputs:
            if x.shape not in ((), shape):
                raise errors.InvalidArgumentError(
                    f"joined strings must have the same shape or rank 0, got "
                    f"{format_dims(shape)} and "
                    f"{format_dims(x.shape)}"
                )
        count = math.prod(shape)
        columns = [items_of(x) if x.shape == shape else items_of(x) * count for x in inputs]
        joined = [separator.join(row) for row in zip(*columns, strict=True)]
        return strings_of(joined, shape)

    return run


@kernel("ReduceJoin", alias=True)
def _reduce_join(node: Node, device: Device) -> KernelFunction:
    separator = bytes_of(node.attrs["separator"])
    keep: bool = node.attrs["keep_dims"]

    def run(x: Any, axes: Any) -> Any:
        removed = normal_axes(axes.reshape(-1).tolist(), x.ndim)
        if not removed:
            return x
        kept_axes = [i for i in range(x.ndim) if i not in removed]
        # The axis named first is joined first, so it varies fastest.
        table = np.asarray(x, object).transpose(kept_axes + removed[::-1])
        shape = table.shape[: len(kept_axes)]
        joined = [b""] * math.prod(shape)
        if x.size:
            joined = [separator.join(row) for row in table.reshape(len(joined), -1).tolist()]
        if keep:
            shape = tuple([1 if i in removed else n for i, n in enumerate(x.shape)])
        return strings_of(joined, shape)

    return run


@kernel("Substr")
def _substr(node: Node, device: Device) -> KernelFunction:
    unicode = node.attrs["unit"] == "UTF8_CHAR"

    def run(text: Any, pos: Any, length: Any) -> Any:
        if pos.shape != length.shape:
            raise errors.InvalidArgumentError(
                f"pos and len must have the same shape, got {format_dims(pos.shape)} and "
                f"{format_dims(length.shape)}"
            )
        try:
            shape = np.broadcast_shapes(text.shape, pos.shape)
        except ValueError:
            raise errors.InvalidArgumentError(
                f"the strings and pos must broadcast, got shapes {format_dims(text.shape)} and "
                f"{format_dims(pos.shape)}"
            ) from None
        columns = [np.broadcast_to(x, shape).reshape(-1).tolist() for x in (text, pos, length)]
        cut = [_cut(item, p, n, unicode) for item, p, n in zip(*columns, strict=True)]
        return strings_of(cut, shape)

    return run


def _cut(item: bytes, pos: int, length: int, unicode: bool) -> bytes:
    text: Any = unicode_of(item) if unicode else item
    start = pos + len(text) if pos < 0 else pos
    if not 0 <= start <= len(text):
        raise errors.InvalidArgumentError(
            f"pos must be in [{-len(text)}, {len(text)}] for the string {item!r}, got {pos}"
        )
    part = text[start : start + max(length, 0)]
    return utf8_of(part) if unicode else part


def _split_with(parts_of: Callable[[bytes], list[bytes]], x: Any) -> tuple[Any, Any, Any]:
    """Split each string, and return the parts as a sparse matrix."""
    rows = [parts_of(item) for item in items_of(x)]
    values = [part for row in rows for part in row]
    positions = [(i, j) for i, row in enumerate(rows) for j in range(len(row))]
    widest = max([len(row) for row in rows], default=0)
    return (
        np.array(positions, np.int64).reshape(-1, 2),
        strings_of(values, (len(values),)),
        np.array([len(rows), widest], np.int64),
    )


@kernel("StringSplit")
def _string_split(node: Node, device: Device) -> KernelFunction:
    skip: bool = node.attrs["skip_empty"]

    def run(x: Any, delimiter: Any) -> Any:
        if np.ndim(delimiter):
            raise errors.InvalidArgumentError(
                f"the delimiter must have rank 0, got shape {list(delimiter.shape)}"
            )
        marks = scalar_of(delimiter)
        pattern = re.compile(b"[" + re.escape(marks) + b"]") if marks else None

        def parts_of(item: bytes) -> list[bytes]:
            if pattern is None or not item:  # an empty text has no parts, not an empty one
                return [item[i : i + 1] for i in range(len(item))]
            parts = pattern.split(item)
            return [part for part in parts if part] if skip else parts

        return _split_with(parts_of, x)

    return run


@kernel("StringSplitV2")
def _string_split_v2(node: Node, device: Device) -> KernelFunction:
    limit: int = node.attrs["maxsplit"]

    def run(x: Any, sep: Any) -> Any:
        mark = scalar_of(sep) or None
        return _split_with(lambda item: item.split(mark, limit), x)

    return run


@kernel("StringLength")
def _string_length(node: Node, device: Device) -> KernelFunction:
    if node.attrs["unit"] == "UTF8_CHAR":
        return map_to_numbers(
            lambda item: sum([byte & 0xC0 != 0x80 for byte in item]), np.dtype("i4")
        )
    return map_to_numbers(len, np.dtype("i4"))


@kernel("StringStrip")
def _string_strip(node: Node, device: Device) -> KernelFunction:
    return map_strings(bytes.strip)


@kernel("StringLower", "StringUpper")
def _string_case(node: Node, device: Device) -> KernelFunction:
    lower = node.type == "StringLower"
    encoding = node.attrs["encoding"]
    if encoding not in ("", "utf-8"):
        raise errors.InvalidArgumentError(f"encoding must be '' or 'utf-8', got {encoding!r}")
    if encoding:
        change = str.lower if lower else str.upper
        return map_strings(lambda item: utf8_of(change(unicode_of(item))))
    return map_strings(bytes.lower if lower else bytes.upper)


# ---------------------------------------------------------------------- regular expressions


@kernel("StaticRegexReplace")
def _static_regex_replace(node: Node, device: Device) -> KernelFunction:
    pattern, rewrite = bytes_of(node.attrs["pattern"]), bytes_of(node.attrs["rewrite"])
    return map_strings(replacer(pattern, rewrite, node.attrs["replace_global"]))


@kernel("RegexReplace")
def _regex_replace(node: Node, device: Device) -> KernelFunction:
    everywhere: bool = node.attrs["replace_global"]

    def run(x: Any, pattern: Any, rewrite: Any) -> Any:
        return map_strings(replacer(scalar_of(pattern), scalar_of(rewrite), everywhere))(x)

    return run


def _matcher(pattern: bytes) -> KernelFunction:
    return map_to_numbers(Pattern(pattern, grouping=False).matches, np.dtype(np.bool_))


@kernel("StaticRegexFullMatch")
def _static_regex_full_match(node: Node, device: Device) -> KernelFunction:
    return _matcher(bytes_of(node.attrs["pattern"]))


@kernel("RegexFullMatch")
def _regex_full_match(node: Node, device: Device) -> KernelFunction:
    def run(x: Any, pattern: Any) -> Any:
        return _matcher(scalar_of(pattern))(x)

    return run

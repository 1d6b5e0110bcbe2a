"""Kernels of strings: object arrays of bytes, one Python call per string."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.hashing import fingerprint64, murmur64, siphash
from weft_exec.kernels.printing import summarize_ends
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_graph.ops.shape_rules import normal_axes
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = np.ndarray[Any, Any]


def strings_of(values: list[bytes], shape: tuple[int, ...]) -> Array:
    """Strings as an array of this shape."""
    result = np.empty(len(values), object)
    result[:] = values
    return result.reshape(shape)


def _items(x: Any) -> list[bytes]:
    items: list[bytes] = np.asarray(x, object).reshape(-1).tolist()
    return items


def _one(x: Any) -> bytes:
    value: bytes = np.asarray(x, object).reshape(-1)[0]
    return value


def _mapped(function: Callable[[bytes], bytes]) -> KernelFunction:
    def run(x: Any) -> Any:
        return strings_of([function(item) for item in _items(x)], x.shape)

    return run


def _numbers(function: Callable[[bytes], Any], dtype: np.dtype[Any]) -> KernelFunction:
    def run(x: Any) -> Any:
        return np.array([function(item) for item in _items(x)], dtype).reshape(x.shape)

    return run


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _unicode(value: bytes) -> str:
    """Code points; bytes that are no UTF-8 survive the way there and back."""
    return value.decode("utf-8", "surrogateescape")


def _utf8(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")


# ------------------------------------------------------------------------- joining, cutting


@kernel("StringJoin")
def _string_join(node: Node, device: Device) -> KernelFunction:
    separator = _bytes(node.attrs["separator"])

    def run(*inputs: Any) -> Any:
        shape = next((x.shape for x in inputs if x.shape != ()), ())
        for x in inputs:
            if x.shape not in ((), shape):
                raise errors.InvalidArgumentError(
                    f"joined strings must have one shape or rank 0, got {format_dims(shape)} and "
                    f"{format_dims(x.shape)}"
                )
        count = math.prod(shape)
        columns = [_items(x) if x.shape == shape else _items(x) * count for x in inputs]
        joined = [separator.join(row) for row in zip(*columns, strict=True)]
        return strings_of(joined, shape)

    return run


@kernel("ReduceJoin", alias=True)
def _reduce_join(node: Node, device: Device) -> KernelFunction:
    separator = _bytes(node.attrs["separator"])
    keep: bool = node.attrs["keep_dims"]

    def run(x: Any, axes: Any) -> Any:
        gone = normal_axes(axes.reshape(-1).tolist(), x.ndim)
        if not gone:
            return x
        kept = [i for i in range(x.ndim) if i not in gone]
        # The axis named first is joined first, so it varies fastest.
        table = np.asarray(x, object).transpose(kept + gone[::-1])
        shape = table.shape[: len(kept)]
        rows = table.reshape(math.prod(shape), -1) if x.size else table.reshape(-1, 0)
        joined = [separator.join(row) for row in rows.tolist()]
        if not x.size:
            joined = [b""] * math.prod(shape)
        if keep:
            shape = tuple([1 if i in gone else n for i, n in enumerate(x.shape)])
        return strings_of(joined, shape)

    return run


@kernel("Substr")
def _substr(node: Node, device: Device) -> KernelFunction:
    unicode = node.attrs["unit"] == "UTF8_CHAR"

    def run(text: Any, pos: Any, length: Any) -> Any:
        if pos.shape != length.shape:
            raise errors.InvalidArgumentError(
                f"pos and len must have one shape, got {format_dims(pos.shape)} and "
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
    text: Any = _unicode(item) if unicode else item
    start = pos + len(text) if pos < 0 else pos
    if not 0 <= start <= len(text):
        raise errors.InvalidArgumentError(
            f"pos must be in [{-len(text)}, {len(text)}] for the string {item!r}, got {pos}"
        )
    part = text[start : start + max(length, 0)]
    return _utf8(part) if unicode else part


def _split_with(parts_of: Callable[[bytes], list[bytes]], x: Any) -> tuple[Any, Any, Any]:
    """The parts of each string as a sparse matrix."""
    rows = [parts_of(item) for item in _items(x)]
    values = [part for row in rows for part in row]
    places = [(i, j) for i, row in enumerate(rows) for j in range(len(row))]
    widest = max([len(row) for row in rows], default=0)
    return (
        np.array(places, np.int64).reshape(-1, 2),
        strings_of(values, (len(values),)),
        np.array([len(rows), widest], np.int64),
    )


@kernel("StringSplit")
def _string_split(node: Node, device: Device) -> KernelFunction:
    skip: bool = node.attrs["skip_empty"]

    def run(x: Any, delimiter: Any) -> Any:
        marks = _one(delimiter)
        pattern = re.compile(b"[" + re.escape(marks) + b"]") if marks else None

        def parts_of(item: bytes) -> list[bytes]:
            if pattern is None:
                return [item[i : i + 1] for i in range(len(item))]
            parts = pattern.split(item)
            return [part for part in parts if part] if skip else parts

        return _split_with(parts_of, x)

    return run


@kernel("StringSplitV2")
def _string_split_v2(node: Node, device: Device) -> KernelFunction:
    most: int = node.attrs["maxsplit"]

    def run(x: Any, sep: Any) -> Any:
        mark = _one(sep) or None
        return _split_with(lambda item: item.split(mark, most), x)

    return run


@kernel("StringLength")
def _string_length(node: Node, device: Device) -> KernelFunction:
    if node.attrs["unit"] == "UTF8_CHAR":
        return _numbers(lambda item: sum([byte & 0xC0 != 0x80 for byte in item]), np.dtype("i4"))
    return _numbers(len, np.dtype("i4"))


@kernel("StringStrip")
def _string_strip(node: Node, device: Device) -> KernelFunction:
    return _mapped(bytes.strip)


@kernel("StringLower", "StringUpper")
def _string_case(node: Node, device: Device) -> KernelFunction:
    lower = node.type == "StringLower"
    encoding = node.attrs["encoding"]
    if encoding not in ("", "utf-8"):
        raise errors.InvalidArgumentError(f"encoding must be '' or 'utf-8', got {encoding!r}")
    if encoding:
        change = str.lower if lower else str.upper
        return _mapped(lambda item: _utf8(change(_unicode(item))))
    return _mapped(bytes.lower if lower else bytes.upper)


# ---------------------------------------------------------------------------------- numbers

_INTEGER = re.compile(rb"\s*[+-]?\d+\s*")
_FLOAT = re.compile(
    rb"\s*[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf(inity)?|nan)\s*", re.I
)


@kernel("StringToNumber")
def _string_to_number(node: Node, device: Device) -> KernelFunction:
    output = node.outputs[0].dtype
    whole = output.is_integer
    low, high = (output.min, output.max) if whole else (0, 0)

    def parse(item: bytes) -> Any:
        if (_INTEGER if whole else _FLOAT).fullmatch(item) is None:
            raise errors.InvalidArgumentError(
                f"strings must be numbers of type {output.name}, got {item!r}"
            )
        if not whole:
            return float(item)
        value = int(item)
        if not low <= value <= high:
            raise errors.InvalidArgumentError(f"{value} is out of the range of {output.name}")
        return value

    return _numbers(parse, output.numpy)


@kernel("AsString")
def _as_string(node: Node, device: Device) -> KernelFunction:
    attrs = node.attrs
    dtype = node.inputs[0].dtype
    width: int = attrs["width"]
    precision: int = attrs["precision"]
    fill = attrs["fill"]
    if len(fill) > 1 or (fill and fill not in " 0+-"):
        raise errors.InvalidArgumentError(f"fill must be one of ' 0+-' or empty, got {fill!r}")
    if dtype.is_bool:
        return _formatted(lambda value: b"true" if value else b"false")
    size = (fill if fill.strip() else "") + (str(width) if width > -1 else "")
    if dtype.is_integer:
        return _formatted(lambda value: (f"%{size}d" % int(value)).encode())
    kind = "e" if attrs["scientific"] else "g" if attrs["shortest"] else "f"
    mark = f"%{size}" + (f".{precision}" if precision > -1 else "") + kind
    if dtype.is_complex:
        return _formatted(lambda value: (f"({mark},{mark})" % (value.real, value.imag)).encode())
    return _formatted(lambda value: (mark % float(value)).encode())


def _formatted(function: Callable[[Any], bytes]) -> KernelFunction:
    def run(x: Any) -> Any:
        items = np.asarray(x).reshape(-1)
        return strings_of([function(item) for item in items], x.shape)

    return run


@kernel("DecodeRaw")
def _decode_raw(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy
    stored = np.dtype(np.uint8) if dtype.kind == "b" else dtype
    little: bool = node.attrs["little_endian"]

    def run(x: Any) -> Any:
        items = _items(x)
        sizes = {len(item) for item in items} or {0}
        size = sizes.pop()
        if sizes or size % stored.itemsize:
            raise errors.InvalidArgumentError(
                f"strings must have one length, a multiple of {stored.itemsize} bytes, got "
                f"lengths {sorted({len(item) for item in items})}"
            )
        raw = np.frombuffer(b"".join(items), np.uint8)
        part = stored.itemsize // 2 if dtype.kind == "c" else stored.itemsize
        if not little and part > 1:
            raw = raw.reshape(-1, part)[:, ::-1].reshape(-1)
        result = raw.view(stored).reshape(*x.shape, size // stored.itemsize)
        return result != 0 if dtype.kind == "b" else np.array(result)

    return run


@kernel("StringToHashBucket")
def _hash(node: Node, device: Device) -> KernelFunction:
    count: int = node.attrs["num_buckets"]
    return _numbers(lambda item: murmur64(item) % count, np.dtype("i8"))


@kernel("StringToHashBucketFast")
def _hash_fast(node: Node, device: Device) -> KernelFunction:
    count: int = node.attrs["num_buckets"]
    return _numbers(lambda item: fingerprint64(item) % count, np.dtype("i8"))


@kernel("StringToHashBucketStrong")
def _hash_strong(node: Node, device: Device) -> KernelFunction:
    count: int = node.attrs["num_buckets"]
    first, second = node.attrs["key"]
    return _numbers(lambda item: siphash(item, (first, second)) % count, np.dtype("i8"))


# ---------------------------------------------------------------------- regular expressions


def _compiled(pattern: bytes) -> re.Pattern[str]:
    # RE2 has \z where Python (up to 3.13) has \Z, and classes of ASCII characters only.
    text = re.sub(r"(?<!\\)((?:\\\\)*)\\z", r"\1\\Z", _unicode(pattern))
    try:
        return re.compile(text, re.ASCII)
    except re.error as error:
        raise errors.InvalidArgumentError(
            f"{pattern!r} is no regular expression: {error}"
        ) from None


def _rewriter(rewrite: bytes, groups: int) -> Callable[[re.Match[str]], str]:
    parts: list[str | int] = []
    text = _unicode(rewrite)
    at = 0
    while at < len(text):
        if text[at] != "\\":
            parts.append(text[at])
            at += 1
            continue
        mark = text[at + 1 : at + 2]
        if mark == "\\":
            parts.append(mark)
        elif mark in tuple("0123456789") and int(mark) <= groups:
            parts.append(int(mark))
        else:
            raise errors.InvalidArgumentError(
                f"the rewrite {rewrite!r} refers to no group of the pattern: \\{mark}"
            )
        at += 2

    def apply(match: re.Match[str]) -> str:
        return "".join([p if isinstance(p, str) else match[p] or "" for p in parts])

    return apply


def _replacer(pattern: bytes, rewrite: bytes, everywhere: bool) -> Callable[[bytes], bytes]:
    expression = _compiled(pattern)
    apply = _rewriter(rewrite, expression.groups)

    def replace(item: bytes) -> bytes:
        text = _unicode(item)
        parts = []
        end = 0
        last = -1
        for match in expression.finditer(text):
            if match.start() == match.end() == last:
                continue  # RE2 finds no empty match right behind another one
            parts += [text[end : match.start()], apply(match)]
            end = last = match.end()
            if not everywhere:
                break
        return _utf8("".join([*parts, text[end:]]))

    return replace


@kernel("StaticRegexReplace")
def _static_regex_replace(node: Node, device: Device) -> KernelFunction:
    pattern, rewrite = _bytes(node.attrs["pattern"]), _bytes(node.attrs["rewrite"])
    return _mapped(_replacer(pattern, rewrite, node.attrs["replace_global"]))


@kernel("RegexReplace")
def _regex_replace(node: Node, device: Device) -> KernelFunction:
    everywhere: bool = node.attrs["replace_global"]

    def run(x: Any, pattern: Any, rewrite: Any) -> Any:
        return _mapped(_replacer(_one(pattern), _one(rewrite), everywhere))(x)

    return run


def _matcher(pattern: bytes) -> KernelFunction:
    expression = _compiled(pattern)
    return _numbers(
        lambda item: expression.fullmatch(_unicode(item)) is not None, np.dtype(np.bool_)
    )


@kernel("StaticRegexFullMatch")
def _static_regex_full_match(node: Node, device: Device) -> KernelFunction:
    return _matcher(_bytes(node.attrs["pattern"]))


@kernel("RegexFullMatch")
def _regex_full_match(node: Node, device: Device) -> KernelFunction:
    def run(x: Any, pattern: Any) -> Any:
        return _matcher(_one(pattern))(x)

    return run


# ----------------------------------------------------------------------------------- forms


@kernel("EncodeBase64")
def _encode_base64(node: Node, device: Device) -> KernelFunction:
    if node.attrs["pad"]:
        return _mapped(base64.urlsafe_b64encode)
    return _mapped(lambda item: base64.urlsafe_b64encode(item).rstrip(b"="))


@kernel("DecodeBase64")
def _decode_base64(node: Node, device: Device) -> KernelFunction:
    def decode(item: bytes) -> bytes:
        body = item.rstrip(b"=")
        try:
            if set(body) & set(b"+/=") or len(item) - len(body) > 2:
                raise binascii.Error("characters outside of the web-safe alphabet")
            return base64.b64decode(body + b"=" * (-len(body) % 4), b"-_", validate=True)
        except (binascii.Error, ValueError) as error:
            raise errors.InvalidArgumentError(
                f"strings must be web-safe base64, got {item!r}: {error}"
            ) from None

    return _mapped(decode)


@kernel("StringFormat")
def _string_format(node: Node, device: Device) -> KernelFunction:
    template, placeholder = node.attrs["template"], node.attrs["placeholder"]
    pieces = _unicode(_bytes(template)).split(_unicode(_bytes(placeholder)))
    limit: int = node.attrs["summarize"]

    def run(*inputs: Any) -> Any:
        if len(inputs) != len(pieces) - 1:
            raise errors.InvalidArgumentError(
                f"the template has {len(pieces) - 1} placeholders, got {len(inputs)} inputs"
            )
        texts = [summarize_ends(value, limit) for value in inputs]
        line = "".join([part for pair in zip(pieces, texts, strict=False) for part in pair])
        return strings_of([_utf8(line + pieces[-1])], ())

    return run

"""Kernels that convert values to strings, and strings to values."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.hashing import fingerprint64, murmur64, siphash
from weft_exec.kernels.printing import summarize_ends
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.kernels.strings import (
    bytes_of,
    items_of,
    map_strings,
    map_to_numbers,
    scalar_of,
    strings_of,
    unicode_of,
    utf8_of,
)
from weft_graph.ops.string_conversion import num_padded
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

# ---------------------------------------------------------------------------------- numbers


_INTEGER = re.compile(rb"\s*[+-]?\d+\s*")
_FLOAT = re.compile(
    rb"\s*[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf(inity)?|nan)\s*", re.I
)
_HEXADECIMAL = re.compile(rb"\s*[+-]?0x[\da-f]+\.?[\da-f]*(p[+-]?\d+)?\s*", re.I)


def _from_hexadecimal(item: bytes) -> float:
    try:
        return float.fromhex(item.decode())
    except OverflowError:
        return float("-inf" if b"-" in item.partition(b"p")[0] else "inf")


@kernel("StringToNumber")
def _string_to_number(node: Node, device: Device) -> KernelFunction:
    output = node.outputs[0].dtype
    is_integer = output.is_integer
    low, high = (output.min, output.max) if is_integer else (0, 0)

    def parse(item: bytes) -> Any:
        if (_INTEGER if is_integer else _FLOAT).fullmatch(item) is None:
            if not is_integer and _HEXADECIMAL.fullmatch(item):
                return _from_hexadecimal(item)
            raise errors.InvalidArgumentError(
                f"strings must be numbers of type {output.name}, got {item!r}"
            )
        if not is_integer:
            return float(item)
        value = int(item)
        if not low <= value <= high:
            raise errors.InvalidArgumentError(f"{value} is out of the range of {output.name}")
        return value

    return map_to_numbers(parse, output.numpy)


@kernel("AsString")
def _to_string(node: Node, device: Device) -> KernelFunction:
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


def _make_parser(node: Node) -> Callable[[list[bytes], tuple[int, ...]], Any]:
    """Return a function from strings of equal length, and their shape, to their numbers."""
    dtype = node.outputs[0].dtype.numpy
    stored = np.dtype(np.uint8) if dtype.kind == "b" else dtype
    little: bool = node.attrs["little_endian"]

    def decode(items: list[bytes], shape: tuple[int, ...]) -> Any:
        sizes = {len(item) for item in items} or {0}
        size = sizes.pop()
        if sizes or size % stored.itemsize:
            raise errors.InvalidArgumentError(
                f"strings must have the same length, a multiple of {stored.itemsize} bytes, got "
                f"lengths {sorted({len(item) for item in items})}"
            )
        if not size or not items:
            return np.empty((*shape, size // stored.itemsize), dtype)
        raw = np.frombuffer(b"".join(items), np.uint8)
        part = stored.itemsize // 2 if dtype.kind == "c" else stored.itemsize
        if not little and part > 1:
            raw = np.ascontiguousarray(raw.reshape(-1, part)[:, ::-1]).reshape(-1)
        result = raw.view(stored).reshape(*shape, size // stored.itemsize)
        return result != 0 if dtype.kind == "b" else np.array(result)

    return decode


@kernel("DecodeRaw")
def _decode_raw(node: Node, device: Device) -> KernelFunction:
    decode = _make_parser(node)
    return lambda x: decode(items_of(x), x.shape)


@kernel("DecodePaddedRaw")
def _decode_padded_raw(node: Node, device: Device) -> KernelFunction:
    decode = _make_parser(node)
    dtype = node.outputs[0].dtype

    def run(x: Any, fixed_length: Any) -> Any:
        length = int(fixed_length)
        count = num_padded(length, dtype.size)
        if not x.size:
            return np.empty((*x.shape, count), dtype.numpy)
        return decode([item[:length].ljust(length, b"\0") for item in items_of(x)], x.shape)

    return run


@kernel("StringToHashBucket")
def _hash(node: Node, device: Device) -> KernelFunction:
    count: int = node.attrs["num_buckets"]
    return map_to_numbers(lambda item: murmur64(item) % count, np.dtype("i8"))


@kernel("StringToHashBucketFast")
def _hash_fast(node: Node, device: Device) -> KernelFunction:
    count: int = node.attrs["num_buckets"]
    return map_to_numbers(lambda item: fingerprint64(item) % count, np.dtype("i8"))


@kernel("Fingerprint")
def _fingerprint(node: Node, device: Device) -> KernelFunction:
    def run(data: Any, method: Any) -> Any:
        if np.ndim(method) or scalar_of(method) != b"farmhash64":
            raise errors.InvalidArgumentError(
                f"method must be 'farmhash64', got {np.asarray(method).tolist()!r}"
            )
        if not data.ndim:
            raise errors.InvalidArgumentError("data must have rows, got a scalar")
        rows = data
        if data.dtype.kind == "O":
            hashes = [fingerprint64(item) for item in items_of(data)]
            rows = np.array(hashes, "<u8").reshape(data.shape)
            if data.ndim == 1:
                return rows.view(np.uint8).reshape(-1, 8)
        result = [fingerprint64(np.ascontiguousarray(row).tobytes()) for row in rows]
        return np.array(result, "<u8").view(np.uint8).reshape(-1, 8)

    return run


@kernel("StringToHashBucketStrong")
def _hash_strong(node: Node, device: Device) -> KernelFunction:
    count: int = node.attrs["num_buckets"]
    if len(node.attrs["key"]) != 2:
        raise errors.InvalidArgumentError(f"key must have 2 elements, got {len(node.attrs['key'])}")
    first, second = node.attrs["key"]
    return map_to_numbers(lambda item: siphash(item, (first, second)) % count, np.dtype("i8"))


# ----------------------------------------------------------------------------------- forms


@kernel("EncodeBase64")
def _encode_base64(node: Node, device: Device) -> KernelFunction:
    if node.attrs["pad"]:
        return map_strings(base64.urlsafe_b64encode)
    return map_strings(lambda item: base64.urlsafe_b64encode(item).rstrip(b"="))


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

    return map_strings(decode)


@kernel("StringFormat")
def _string_format(node: Node, device: Device) -> KernelFunction:
    template, placeholder = node.attrs["template"], node.attrs["placeholder"]
    if not placeholder:
        raise errors.InvalidArgumentError("the placeholder of a template must not be empty")
    pieces = unicode_of(bytes_of(template)).split(unicode_of(bytes_of(placeholder)))
    limit: int = node.attrs["summarize"]

    def run(*inputs: Any) -> Any:
        if len(inputs) != len(pieces) - 1:
            raise errors.InvalidArgumentError(
                f"the template has {len(pieces) - 1} placeholders, got {len(inputs)} inputs"
            )
        texts = [summarize_ends(value, limit) for value in inputs]
        line = "".join([part for pair in zip(pieces, texts, strict=False) for part in pair])
        return strings_of([utf8_of(line + pieces[-1])], ())

    return run

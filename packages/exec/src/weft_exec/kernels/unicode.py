"""Kernels that convert between strings and code points."""

from __future__ import annotations

import codecs
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.kernels.string_rows import check_splits
from weft_exec.kernels.strings import items_of, strings_of
from weft_exec.kernels.unicode_scripts import CODES, STARTS
from weft_graph.ops.unicode import LARGEST
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = np.ndarray[Any, Any]
_OUTPUT: Final = {"UTF-8": "utf-8", "UTF-16-BE": "utf-16-be", "UTF-32-BE": "utf-32-be"}
_MARKED: Final = {
    "utf-16": (b"\xff\xfe", b"\xfe\xff"),
    "utf-32": (b"\xff\xfe\0\0", b"\0\0\xfe\xff"),
}
"""Encodings with byte order marks, and the marks; without a mark they are big-endian."""
_CONTROL: Final = 0x20


def _replacement_code(code: int) -> int:
    """Return the code point to write for a replacement, which may be a surrogate."""
    return 0xFFFD if 0xD800 <= code <= 0xDFFF else code


# ------------------------------------------------------------------------------ decoding

Piece = tuple[str, int, int]
"""A piece of text, with the start and end of its bytes."""


class _Decoder:
    """Decodes strings by the attributes of a node.

    Raises: InvalidArgumentError: the encoding is unknown.
    """

    def __init__(self, node: Node) -> None:
        name = node.attrs["input_encoding"]
        try:
            info = codecs.lookup(name)
            info.decode(b"")
        except (LookupError, TypeError, AttributeError, UnicodeError) as cause:
            raise errors.InvalidArgumentError(
                f"Could not create converter for input encoding: {name!r}"
            ) from cause
        if not getattr(info, "_is_text_encoding", True):
            raise errors.InvalidArgumentError(f"{name!r} is not a text encoding")
        self._codec = info.name
        self._errors: str = node.attrs["errors"]
        self._replacement = chr(_replacement_code(node.attrs["replacement_char"]))
        self._controls: bool = node.attrs["replace_control_characters"]

    def text(self, item: bytes) -> str:
        """Decode a string."""
        try:
            strict = self._strict(item)
        except UnicodeDecodeError:
            strict = "".join([text for text, _, _ in self._mend(item)])
        return self._strip_controls(strict) if self._controls else strict

    def pieces(self, item: bytes) -> list[Piece]:
        """Decode a string to pieces of text with their byte ranges."""
        try:
            result = [(self._strict(item), 0, len(item))]
        except UnicodeDecodeError:
            result = self._mend(item)
        return result

    def _strict(self, item: bytes) -> str:
        codec, item = self._order_of(item)
        return item.decode(codec)

    def _order_of(self, item: bytes) -> tuple[str, bytes]:
        marks = _MARKED.get(self._codec)
        if marks is None:
            return self._codec, item
        little, big = marks
        if item.startswith(little):
            return self._codec + "-le", item[len(little) :]
        return self._codec + "-be", item.removeprefix(big)

    def _mend(self, item: bytes) -> list[Piece]:
        """Return text with malformed parts removed or replaced."""
        codec, remaining = self._order_of(item)
        skipped = len(item) - len(remaining)
        pieces: list[Piece] = []
        index = 0
        while index < len(remaining):
            try:
                pieces.append(
                    (remaining[index:].decode(codec), skipped + index, skipped + len(remaining))
                )
                break
            except UnicodeDecodeError as error:
                self._refuse()
                bad, end = index + error.start, index + max(error.end, error.start + 1)
                if bad > index:
                    text = remaining[index:bad].decode(codec)
                    pieces.append((text, skipped + index, skipped + bad))
                if self._errors == "replace":
                    pieces.append((self._replacement, skipped + bad, skipped + end))
                index = end
        return pieces

    def _refuse(self) -> None:
        if self._errors == "strict":
            raise errors.InvalidArgumentError("Invalid formatting on input string")

    def is_control(self, codes: Array) -> Array:
        """Return a mask of the code points that are treated as malformed."""
        array: Array = codes < (_CONTROL if self._controls else 0)
        if array.any():
            self._refuse()
        return array

    def mend_codes(self, codes: Array) -> tuple[Array, Array | None]:
        """Remove or replace control code points; return codes, and a mask if some were removed."""
        control = self.is_control(codes)
        if not control.any():
            return codes, None
        if self._errors == "ignore":
            return codes[~control], ~control
        return np.where(control, ord(self._replacement), codes).astype(codes.dtype), None

    def _strip_controls(self, text: str) -> str:
        return _text_of(self.mend_codes(_codes_of(text))[0])


def _codes_of(text: str) -> Array:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def _text_of(codes: Array) -> str:
    return codes.astype("<u4").tobytes().decode("utf-32-le")


@kernel("UnicodeTranscode")
def _transcode(node: Node, device: Device) -> KernelFunction:
    decoder = _Decoder(node)
    codec = _OUTPUT[node.attrs["output_encoding"]]

    def run(x: Any) -> Any:
        result = [decoder.text(item).encode(codec) for item in items_of(x)]
        return strings_of(result, np.shape(x))

    return run


@kernel("UnicodeDecode", "UnicodeDecodeWithOffsets")
def _decode(node: Node, device: Device) -> KernelFunction:
    decoder = _Decoder(node)
    splits_type = node.attrs["Tsplits"].numpy
    width = _widths_in(decoder._codec)
    wants_offsets = node.type == "UnicodeDecodeWithOffsets"

    def of_item(item: bytes) -> tuple[Array, Array]:
        pieces = decoder.pieces(item)
        codes = [_codes_of(text) for text, _, _ in pieces]
        joined = np.concatenate([np.zeros(0, "<u4"), *codes])
        if not wants_offsets:
            return decoder.mend_codes(joined)[0], joined
        starts = [
            _starts(code, text, begin, end, width)
            for code, (text, begin, end) in zip(codes, pieces, strict=True)
        ]
        offsets = np.concatenate([np.zeros(0, np.int64), *starts])
        mended, is_kept = decoder.mend_codes(joined)
        return mended, offsets if is_kept is None else offsets[is_kept]

    def run(x: Any) -> Any:
        rows = [of_item(item) for item in items_of(x)]
        splits = np.cumsum([0, *[len(codes) for codes, _ in rows]]).astype(splits_type)
        empty = np.zeros(0, np.int32)
        codes = np.concatenate([empty, *[result.astype(np.int32) for result, _ in rows]])
        if not wants_offsets:
            return splits, codes
        offsets = np.concatenate([np.zeros(0, np.int64), *[result for _, result in rows]])
        return splits, codes, offsets

    return run


Widths = Callable[[Array, str], Array]


def _widths_in(codec: str) -> Widths:
    """Return a function from code points to their widths in bytes in an encoding."""
    if codec == "utf-8":
        return lambda codes, text: 1 + np.searchsorted([0x80, 0x800, 0x10000], codes, side="right")
    if codec.startswith("utf-16"):
        return lambda codes, text: 2 * np.searchsorted([0, 0x10000], codes, side="right")
    if codec.startswith("utf-32"):
        return lambda codes, text: np.full(len(codes), 4, np.int64)
    return lambda codes, text: np.array([len(char.encode(codec)) for char in text], np.int64)


def _starts(codes: Array, text: str, begin: int, end: int, width: Widths) -> Array:
    """Return the byte position of each code point of a piece."""
    if len(codes) == 1:
        return np.array([begin], np.int64)
    sizes = width(codes, text)
    starts: Array = np.cumsum(sizes) - sizes
    return starts + (end - int(sizes.sum()) if len(codes) else begin)


# ------------------------------------------------------------------------------ encoding


@kernel("UnicodeEncode")
def _encode(node: Node, device: Device) -> KernelFunction:
    codec = _OUTPUT[node.attrs["output_encoding"]]
    policy: str = node.attrs["errors"]
    replacement = _replacement_code(node.attrs["replacement_char"])

    def run(values: Any, splits: Any) -> Any:
        check_splits(splits, values.size)
        bad = (values < 0) | (values > LARGEST) | ((values >= 0xD800) & (values <= 0xDFFF))
        bounds = splits
        if bad.any():
            if policy == "strict":
                raise errors.InvalidArgumentError(
                    f"Code point is out of range for Unicode, or a surrogate: {values[bad][0]}"
                )
            if policy == "replace":
                values = np.where(bad, replacement, values)
            else:
                counts = np.concatenate([[0], np.cumsum(~bad)])
                values, bounds = values[~bad], counts[splits]
        text, ends = _text_of(values), bounds.tolist()
        rows = [text[i:j].encode(codec) for i, j in itertools.pairwise(ends)]
        return strings_of(rows, (len(rows),))

    return run


@kernel("UnicodeScript")
def _script(node: Node, device: Device) -> KernelFunction:
    def run(x: Any) -> Any:
        codes = np.asarray(x)
        result = CODES[np.searchsorted(STARTS, codes, side="right") - 1]
        return np.where((codes < 0) | (codes > LARGEST), -1, result).astype(np.int32)[()]

    return run

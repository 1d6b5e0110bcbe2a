"""GIF decoder: parses the blocks, and leaves decompression to Pillow."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from weft_io.codecs.claims import check_size, convert_decoder_errors
from weft_tensor import errors

Array = np.ndarray[Any, Any]

SIGNATURE: Final = b"GIF8"
_INFLATED: Final = 4096
"""Upper bound of pixels per compressed byte: a code of at least 9 bits stands for at most 4096."""


@dataclass(frozen=True, slots=True)
class _Frame:
    left: int
    top: int
    width: int
    height: int
    interlaced: bool
    colors: Array | None
    clear: int | None
    code_bits: int
    data: bytes


def decode_gif(data: bytes, only_first: bool = False) -> Array:
    """Decode the frames of a GIF file, each drawn over the previous one, initially black.

    Decoding ends at the first incomplete frame; if that is the first frame, it is an error.

    Args:
      only_first: decode only the first frame.
    Returns: uint8, shape (frames, height, width, 3).
    Raises: InvalidArgumentError: the bytes cannot be decoded.
    """
    with convert_decoder_errors("GIF", len(data)):
        frames = list(_complete(data))
        width = max(frame.width for frame in frames)
        height = max(frame.height for frame in frames)
        frames = frames[:1] if only_first else frames
        check_size("GIF", width, height, 3 * len(frames), None)
        result = np.zeros((len(frames), height, width, 3), np.uint8)
        for i, frame in enumerate(frames):
            if i:
                result[i] = result[i - 1]
            _draw(frame, result[i])
    return result


def _complete(data: bytes) -> Iterator[_Frame]:
    """Yield the frames before the first incomplete one."""
    num_frames = 0
    try:
        for frame in _frames(data):
            yield frame
            num_frames += 1
    except (ValueError, IndexError, struct.error):
        if not num_frames:
            raise
    if not num_frames:
        raise ValueError("it has no frames")


def _frames(data: bytes) -> Iterator[_Frame]:
    if data[:6] not in (b"GIF87a", b"GIF89a"):
        raise ValueError("the signature is wrong")
    flags = data[10]
    index = 13
    shared, index = _colors(data, index, flags)
    clear: int | None = None
    while True:
        kind = data[index : index + 1]
        if kind == b"!":
            block, label = data[index + 2 : index + 7], data[index + 1]
            if label == 0xF9 and len(block) == 5:
                clear = block[4] if block[1] & 1 else None
            index = _skip(data, index + 2)
        elif kind == b",":
            left, top, width, height, flags = struct.unpack_from("<HHHHB", data, index + 1)
            check_size("GIF", width, height, 3, len(data) * _INFLATED)
            palette, index = _colors(data, index + 10, flags)
            end = _skip(data, index + 1)
            colors = shared if palette is None else palette
            inner = data[index + 1 : end]
            yield _Frame(
                *(left, top, width, height, bool(flags & 0x40), colors, clear, data[index], inner)
            )
            index, clear = end, None
        elif kind == b";":
            return
        else:
            raise ValueError(f"there is no block at byte {index}")


def _colors(data: bytes, index: int, flags: int) -> tuple[Array | None, int]:
    """Return the color table that the flags announce at a position, and the position after it."""
    if not flags & 0x80:
        return None, index
    end = index + (6 << (flags & 7))
    if end > len(data):
        raise ValueError("a color table is incomplete")
    return np.frombuffer(data[index:end], np.uint8).reshape(-1, 3), end


def _skip(data: bytes, index: int) -> int:
    """Return the position after a chain of sub-blocks."""
    while data[index]:
        index += data[index] + 1
    return index + 1


def _draw(frame: _Frame, canvas: Array) -> None:
    from PIL import Image

    if frame.colors is None:
        raise errors.InvalidArgumentError("a frame of the GIF image has no color table")
    args = (frame.code_bits, int(frame.interlaced))
    image = Image.frombytes("L", (frame.width, frame.height), frame.data, "gif", args)
    index = np.asarray(image)
    rows = slice(frame.top, min(frame.top + frame.height, canvas.shape[0]))
    columns = slice(frame.left, min(frame.left + frame.width, canvas.shape[1]))
    covered = canvas[rows, columns]
    index = index[: covered.shape[0], : covered.shape[1]]
    is_opaque = np.ones(index.shape, bool) if frame.clear is None else index != frame.clear
    if (index[is_opaque] >= len(frame.colors)).any():
        raise errors.InvalidArgumentError(
            f"a pixel of the GIF image has color {int(index[is_opaque].max())} of "
            f"{len(frame.colors)}"
        )
    covered[is_opaque] = frame.colors[index[is_opaque]]

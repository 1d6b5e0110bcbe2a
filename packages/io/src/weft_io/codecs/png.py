"""PNG decoder and encoder: parses the chunks, and leaves decompression to Pillow."""

from __future__ import annotations

import io
import struct
import zlib
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from isal import isal_zlib

from weft_io.codecs.claims import check_size, convert_decoder_errors
from weft_tensor import errors

Array = np.ndarray[Any, Any]

SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_CHANNELS: Final = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_DEPTHS: Final = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_PALETTE: Final = 3
_INFLATED: Final = 1100
"""Upper bound of decompressed bytes per compressed byte."""
_RAW: Final = {
    (0, 1): ("1", "1"),
    (0, 2): ("L", "L;2"),
    (0, 4): ("L", "L;4"),
    (0, 8): ("L", "L"),
    (0, 16): ("LA", "LA"),
    (2, 8): ("RGB", "RGB"),
    (3, 1): ("P", "P;1"),
    (3, 2): ("P", "P;2"),
    (3, 4): ("P", "P;4"),
    (3, 8): ("P", "P"),
    (4, 8): ("LA", "LA"),
    (4, 16): ("RGBA", "RGBA"),
    (6, 8): ("RGBA", "RGBA"),
}
"""Pillow's mode and raw mode by color type and bits.

Pillow keeps only 8 of 16 bits, so 16-bit values are decoded as two 8-bit channels.
"""
_RED, _GREEN, _BLUE = 9797, 19234, 3737
"""Weights of the colors in a gray value, in units of 1/32768."""
_STORED: Final = 0xFFFF
_STORED_HEADER: Final = b"\x78\x01"
"""Largest size of a stored block, and the header of a stream of stored blocks (RFC 1950, 1951)."""
_MODES: Final = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


@dataclass(slots=True)
class _Chunks:
    """The chunks of a file that affect decoding."""

    width: int
    height: int
    bits: int
    color: int
    interlaced: bool
    palette: bytes = b""
    transparency: bytes | None = None
    data: list[bytes] = field(default_factory=list)


def decode_png(data: bytes, channels: int, bits: int) -> Array:
    """Decode the pixels of a PNG file.

    Args:
      channels: 1, 3, 4, or 0 for the file's number of channels.
      bits: 8 or 16, of each value.
    Returns: uint8 or uint16, shape (height, width, channels).
    Raises: InvalidArgumentError: the bytes cannot be decoded.
    """
    with convert_decoder_errors("PNG", len(data)):
        chunks = _read(data)
        pixels = _samples(chunks)
        pixels = _convert_channels(pixels, chunks, channels or _file_channels(chunks))
    if bits == 8:
        return pixels if pixels.dtype == np.uint8 else (pixels >> 8).astype(np.uint8)
    return pixels if pixels.dtype == np.uint16 else pixels.astype(np.uint16) * 257


def _read(data: bytes) -> _Chunks:
    if data[:8] != SIGNATURE:
        raise ValueError("the signature is wrong")
    chunks: _Chunks | None = None
    index = 8
    while True:
        if index + 12 > len(data):
            raise ValueError(f"it ends at byte {len(data)}, before the chunk IEND")
        length, kind = struct.unpack_from(">I4s", data, index)
        if index + 12 + length > len(data):
            raise ValueError(
                f"it is truncated: chunk {kind!r} at byte {index} has {length:,} bytes, and "
                f"{len(data) - index - 12:,} remain"
            )
        body = data[index + 8 : index + 8 + length]
        (check,) = struct.unpack_from(">I", data, index + 8 + length)
        sound = isal_zlib.crc32(body, isal_zlib.crc32(kind)) == check
        if not sound and kind[:1].isupper():
            raise ValueError(f"the checksum of chunk {kind!r} at byte {index} is wrong")
        if chunks is None:
            if kind != b"IHDR":
                raise ValueError(f"the first chunk is {kind!r}")
            chunks = _header(body, len(data))
        elif kind == b"IEND":
            return chunks
        elif kind == b"PLTE":
            chunks.palette = body
        elif kind == b"tRNS" and sound:
            chunks.transparency = body
        elif kind == b"IDAT":
            chunks.data.append(body)
        elif kind[:1].isupper():
            raise ValueError(f"unknown critical chunk {kind!r}")
        index += 12 + length


def _header(body: bytes, size: int) -> _Chunks:
    width, height, bits, color, method, kind, interlaced = struct.unpack(">IIBBBBB", body)
    if bits not in _DEPTHS.get(color, ()) or method or kind or interlaced > 1:
        raise ValueError(f"color type {color} with {bits} bits, or its method, is not supported")
    depth = _CHANNELS[color] * max(bits, 8) // 8
    check_size("PNG", width, height, depth, size * _INFLATED * 8 // (_CHANNELS[color] * bits))
    return _Chunks(width, height, bits, color, bool(interlaced))


def _file_channels(chunks: _Chunks) -> int:
    if chunks.color == _PALETTE:
        return 3 if chunks.transparency is None else 4
    return _CHANNELS[chunks.color]


def _samples(chunks: _Chunks) -> Array:
    """Return the file's values, shape (h, w, channels), with small gray values scaled to 8 bits."""
    key = chunks.color, chunks.bits
    if key in _RAW:
        values = _unpack(chunks, *_RAW[key])
        if values.dtype == bool:
            values = values.astype(np.uint8) * np.uint8(255)
        if chunks.bits == 16:
            return values.view(">u2").astype(np.uint16)
        return values
    mode = _MODES[_CHANNELS[chunks.color]]
    # Pillow's unpackers read one of two bytes; the other byte is read in the opposite byte order.
    high, low = [_unpack(chunks, mode, f"{mode};16{order}") for order in "BL"]
    return (high.astype(np.uint16) << 8) | low


def _unpack(chunks: _Chunks, mode: str, raw_mode: str) -> Array:
    from PIL import Image

    size, data = (chunks.width, chunks.height), _inflate_with_isal(chunks)
    image = Image.frombytes(mode, size, data, "zip", raw_mode, int(chunks.interlaced))
    values = np.asarray(image)
    return values if values.ndim == 3 else values[:, :, np.newaxis]


def _inflate_with_isal(chunks: _Chunks) -> bytes:
    """Decompress with ISA-L to a stream of stored blocks, which Pillow only has to unfilter.

    ISA-L takes two fifths of the time. Damaged streams, and streams of unexpected size, are
    returned unchanged, so that Pillow reports the error.
    """
    data = b"".join(chunks.data)
    if chunks.interlaced:
        return data
    row_size = 1 + (chunks.width * _CHANNELS[chunks.color] * chunks.bits + 7) // 8
    inflater = isal_zlib.decompressobj()
    try:
        rows = inflater.decompress(data, chunks.height * row_size + 1)
    except isal_zlib.IsalError:  # type: ignore[misc]  # because its stub declares an instance
        return data
    if len(rows) != chunks.height * row_size or not inflater.eof:
        return data
    parts: list[bytes | memoryview[int]] = [_STORED_HEADER]
    for start in range(0, len(rows), _STORED):
        block = memoryview(rows)[start : start + _STORED]
        is_last = start + _STORED >= len(rows)
        parts += [struct.pack("<BHH", is_last, len(block), len(block) ^ 0xFFFF), block]
    checksum = isal_zlib.adler32(rows)
    return b"".join([*parts, checksum.to_bytes(4, "big")])


def _convert_channels(pixels: Array, chunks: _Chunks, channels: int) -> Array:
    """Convert pixels to the requested channels."""
    color, alpha = _color_and_alpha(pixels, chunks)
    if channels >= 3 and color.shape[2] == 1:
        color = np.repeat(color, 3, axis=2)
    elif channels < 3 and color.shape[2] == 3:
        color = _grey(color)
    if channels % 2:
        return color
    if alpha is None:
        alpha = np.full((*color.shape[:2], 1), np.iinfo(color.dtype).max, color.dtype)
    return np.concatenate([color, alpha], axis=2)


def _color_and_alpha(pixels: Array, chunks: _Chunks) -> tuple[Array, Array | None]:
    """Return gray or RGB values, and the opacity if the file has one."""
    see = chunks.transparency
    if chunks.color == _PALETTE:
        if not chunks.palette or len(chunks.palette) % 3:
            raise ValueError(
                "a palette image requires the chunk PLTE with three bytes for each color, got "
                f"{len(chunks.palette)} bytes"
            )
        table = np.zeros(
            (256, 3), np.uint8
        )  # libpng, too, reads indices behind the palette as black
        entries = np.frombuffer(chunks.palette[:768], np.uint8).reshape(-1, 3)
        table[: len(entries)] = entries
        index = pixels[:, :, 0]
        if see is None:
            return table[index], None
        opaque = np.full(256, 255, np.uint8)
        opaque[: len(see)] = np.frombuffer(see[:256], np.uint8)
        return table[index], opaque[index][:, :, np.newaxis]
    if pixels.shape[2] in (2, 4):
        return pixels[:, :, :-1], pixels[:, :, -1:]
    if see is None or len(see) != 2 * pixels.shape[2]:
        return pixels, None
    key = np.frombuffer(see, ">u2") & ((1 << chunks.bits) - 1)
    if chunks.bits < 8:
        key = key * (255 // ((1 << chunks.bits) - 1))
    clear = (pixels == key).all(axis=2, keepdims=True)
    limit = pixels.dtype.type(np.iinfo(pixels.dtype).max)
    return pixels, np.where(clear, pixels.dtype.type(0), limit)


def _grey(color: Array) -> Array:
    """Convert red, green and blue to gray in integer arithmetic, as libpng does."""
    red, green, blue = np.moveaxis(color.astype(np.uint64), 2, 0)
    half = 0 if color.dtype == np.uint8 else 1 << 14
    mixed: Array = ((red * _RED + green * _GREEN + blue * _BLUE + half) >> 15).astype(color.dtype)
    return np.expand_dims(mixed, 2)


# --------------------------------------------------------------------------------- encoding


def encode_png(image: Array, compression: int = -1) -> bytes:
    """Encode an image as a PNG file.

    Args:
      image: uint8 or uint16, shape (height, width, 1, 2, 3 or 4), not empty.
      compression: from 0 (none) to 9 (best); -1 for the default.
    """
    if image.dtype == np.uint16:
        return _encode_16(image, compression)
    from PIL import Image

    height, width, channels = image.shape
    mode = _MODES[channels]
    pixels = np.ascontiguousarray(image[:, :, 0] if channels == 1 else image)
    file = io.BytesIO()
    result = Image.frombuffer(mode, (width, height), pixels, "raw", mode, 0, 1)
    result.save(file, "PNG", compress_level=6 if compression < 0 else compression)
    return file.getvalue()


def _encode_16(image: Array, compression: int) -> bytes:
    """Encode several 16-bit channels, which Pillow does not support, with the filter "up"."""
    height, width, channels = image.shape
    rows = image.astype(">u2").view(np.uint8).reshape(height, -1)
    filtered = np.empty((height, rows.shape[1] + 1), np.uint8)
    filtered[:, 0] = 2
    filtered[:, 1:] = rows
    filtered[1:, 1:] -= rows[:-1]
    color = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    header = struct.pack(">IIBBBBB", width, height, 16, color, 0, 0, 0)
    body = zlib.compress(filtered.tobytes(), compression)
    return b"".join(
        [SIGNATURE, _chunk(b"IHDR", header), _chunk(b"IDAT", body), _chunk(b"IEND", b"")]
    )


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def check_encodable(shape: tuple[int, ...]) -> None:
    """Check the shape of an image or a batch of images.

    Raises: InvalidArgumentError: it is not an image of 1 to 4 channels, or has no pixels.
    """
    if len(shape) < 3 or not 1 <= shape[-1] <= 4:
        raise errors.InvalidArgumentError(
            f"images for PNG must have shape [..., height, width, 1 to 4], got {list(shape)}"
        )
    height, width = shape[-3:-1]
    if not (0 < height < 1 << 31 and 0 < width < 1 << 31):
        raise errors.InvalidArgumentError(
            f"an image for PNG must have pixels, got shape {list(shape)}"
        )

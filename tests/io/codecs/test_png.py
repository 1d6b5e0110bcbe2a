"""PNG files decode to the pixels of Pillow, whichever library has inflated them."""

from __future__ import annotations

import io
import struct
import zlib
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from weft_io.codecs.png import decode_png
from weft_tensor import errors

KINDS = {"L": (0, 8), "RGB": (2, 8), "LA": (4, 8), "RGBA": (6, 8), "1": (0, 1)}
CHANNELS = {"L": 1, "RGB": 3, "LA": 2, "RGBA": 4, "1": 1}


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _file(mode: str, height: int, width: int, compressed: bytes, pieces: int = 1) -> bytes:
    color, bits = KINDS[mode]
    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0)
    cuts = np.linspace(0, len(compressed), pieces + 1).astype(int).tolist()
    parts = [_chunk(b"IDAT", compressed[start:stop]) for start, stop in pairwise(cuts)]
    return b"".join([b"\x89PNG\r\n\x1a\n", _chunk(b"IHDR", header), *parts, _chunk(b"IEND", b"")])


def _rows(mode: str, height: int, width: int) -> bytes:
    """Rows of random bytes by all five filters in turn."""
    size = (width * CHANNELS[mode] * KINDS[mode][1] + 7) // 8
    rows = np.random.default_rng(width).integers(0, 256, (height, 1 + size), dtype=np.uint8)
    rows[:, 0] = np.arange(height) % 5
    return rows.tobytes()


def _by_pillow(data: bytes) -> np.ndarray:
    pixels = np.asarray(Image.open(io.BytesIO(data)))
    if pixels.dtype == bool:
        pixels = pixels.astype(np.uint8) * np.uint8(255)
    return pixels if pixels.ndim == 3 else pixels[:, :, np.newaxis]


@pytest.mark.parametrize("mode", KINDS)
@pytest.mark.parametrize(("height", "width"), [(1, 1), (7, 9), (120, 300), (300, 333)])
def test_every_filter_is_undone(mode: str, height: int, width: int) -> None:
    """The larger ones take several stored blocks."""
    compressed = zlib.compress(_rows(mode, height, width))
    for pieces in (1, 3):
        data = _file(mode, height, width, compressed, pieces)
        np.testing.assert_array_equal(decode_png(data, 0, 8), _by_pillow(data))


@pytest.mark.parametrize("level", [0, 1, 9])
def test_rows_of_one_value_at_every_level(level: int) -> None:
    compressed = zlib.compress(bytes(500 * (1 + 3 * 600)), level)
    data = _file("RGB", 500, 600, compressed)
    assert not decode_png(data, 3, 8).any()


def test_rows_that_are_missing_or_damaged_are_refused() -> None:
    rows = _rows("RGB", 60, 50)
    compressed = zlib.compress(rows)
    broken = bytearray(compressed)
    broken[40:60] = bytes(20)
    for wrong in (compressed[: len(compressed) // 2], zlib.compress(rows[:500]), bytes(broken)):
        with pytest.raises(errors.InvalidArgumentError, match="PNG"):
            decode_png(_file("RGB", 60, 50, wrong), 3, 8)


@pytest.mark.parametrize("palette", [None, b"", bytes(7)])
def test_a_palette_image_needs_its_palette(palette: bytes | None) -> None:
    header = struct.pack(">IIBBBBB", 4, 2, 8, 3, 0, 0, 0)
    parts = [_chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(bytes(2 * 5)))]
    if palette is not None:
        parts.insert(1, _chunk(b"PLTE", palette))
    data = b"".join([b"\x89PNG\r\n\x1a\n", *parts, _chunk(b"IEND", b"")])
    with pytest.raises(errors.InvalidArgumentError, match="requires the chunk PLTE"):
        decode_png(data, 3, 8)


def test_a_file_that_ends_in_a_chunk_says_where() -> None:
    data = _file("RGB", 60, 50, zlib.compress(_rows("RGB", 60, 50)))
    with pytest.raises(errors.InvalidArgumentError, match="chunk b'IDAT' at byte 33 has"):
        decode_png(data[:200], 3, 8)
    with pytest.raises(errors.InvalidArgumentError, match="before the chunk IEND"):
        decode_png(data[:-12], 3, 8)


def test_more_than_the_rows_is_ignored() -> None:
    rows = _rows("RGB", 60, 50)
    wanted = _by_pillow(_file("RGB", 60, 50, zlib.compress(rows)))
    for more in (zlib.compress(rows + bytes(1000)), zlib.compress(rows) + b"behind"):
        found = decode_png(_file("RGB", 60, 50, more), 3, 8)
        np.testing.assert_array_equal(found, wanted)

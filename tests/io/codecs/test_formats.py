"""Formats of images: every kind of PNG, frames of GIF, and bytes that are damaged or lie."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image
from weft_testing.parts import Parts

from weft_io.codecs.gif import decode_gif
from weft_io.codecs.images import decode_frames
from weft_io.codecs.jpeg import decode_jpeg
from weft_io.codecs.png import decode_png, encode_png
from weft_io.codecs.wav import decode_wav, encode_wav
from weft_tensor import errors

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(7)
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
PALETTE = RNG.integers(0, 256, (16, 3)).astype(np.uint8)
PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
          (0, 1, 1, 2))  # fmt: skip


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _packed(values: Array, bits: int) -> bytes:
    """Rows of values of some bits, each behind the number of a filter that changes nothing."""
    rows = []
    for row in values.reshape(len(values), -1):
        spread = (row[:, None] >> np.arange(bits - 1, -1, -1)) & 1
        rows.append(b"\0" + np.packbits(spread.astype(np.uint8)).tobytes())
    return b"".join(rows)


def _png(values: Array, color: int, bits: int, interlaced: bool, extra: bytes = b"") -> bytes:
    height, width = values.shape[:2]
    parts = [values]
    if interlaced:
        parts = [values[y::dy, x::dx] for x, y, dx, dy in PASSES]
    body = b"".join(_packed(part, bits) for part in parts if part.size)
    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, interlaced)
    data = _chunk(b"IDAT", zlib.compress(body))
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + extra + data + _chunk(b"IEND", b"")


def test_every_kind_of_png() -> None:
    depths = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
    with Parts() as parts:
        for color, sizes in depths.items():
            for bits in sizes:
                for interlaced in (False, True):
                    with parts.part(f"{color} {bits} {interlaced}"):
                        _check_png(color, bits, interlaced)


def _check_png(color: int, bits: int, interlaced: bool) -> None:
    top = min(1 << bits, 16) if color == 3 else 1 << bits
    values = RNG.integers(0, top, (11, 13, CHANNELS[color]))
    extra = _chunk(b"PLTE", PALETTE[: 1 << bits].tobytes()) if color == 3 else b""
    data = _png(values, color, bits, interlaced, extra)
    whole = PALETTE[values[:, :, 0]].astype(int) if color == 3 else values
    narrow = whole >> 8 if bits == 16 else whole
    if color != 3 and bits < 8:
        narrow = whole * (255 // ((1 << bits) - 1))
    wide = whole if bits == 16 else narrow * 257
    np.testing.assert_array_equal(decode_png(data, 0, 8), narrow)
    np.testing.assert_array_equal(decode_png(data, 0, 16), wide)
    color_only = np.repeat(narrow[:, :, :1], 3, 2) if narrow.shape[2] < 3 else narrow[:, :, :3]
    np.testing.assert_array_equal(decode_png(data, 3, 8), color_only)
    alpha = narrow[:, :, -1] if narrow.shape[2] in (2, 4) else np.full((11, 13), 255)
    np.testing.assert_array_equal(decode_png(data, 4, 8)[:, :, 3], alpha)


def test_transparent_colors() -> None:
    values = RNG.integers(0, 4, (5, 6, 1))
    data = _png(values, 0, 2, False, _chunk(b"tRNS", struct.pack(">H", 2)))
    np.testing.assert_array_equal(decode_png(data, 4, 8)[:, :, 3], (values[:, :, 0] != 2) * 255)
    table = _chunk(b"PLTE", PALETTE[:4].tobytes()) + _chunk(b"tRNS", b"\x05\x80")
    seen = decode_png(_png(values, 3, 2, False, table), 0, 8)
    np.testing.assert_array_equal(seen[:, :, 3], np.array([5, 128, 255, 255])[values[:, :, 0]])


def test_wide_png_comes_back() -> None:
    for channels in (1, 2, 3, 4):
        image = RNG.integers(0, 1 << 16, (5, 4, channels)).astype(np.uint16)
        back = decode_png(encode_png(image, 3), 0, 16)
        np.testing.assert_array_equal(back, image)


def _gif(size: tuple[int, int], frames: list[tuple[int, int, Array, int | None]]) -> bytes:
    parts = [b"GIF89a", struct.pack("<HHBBB", *size, 0x83, 0, 0), PALETTE.tobytes()]
    for left, top, index, clear in frames:
        if clear is not None:
            parts.append(b"!\xf9\x04" + bytes([1, 0, 0, clear, 0]))
        image = Image.fromarray(index.astype(np.uint8), "P")
        image.putpalette(bytes(48))
        file = io.BytesIO()
        image.save(file, "GIF", optimize=False)
        data = file.getvalue()
        at = data.index(b",", 13 + (6 << (data[10] & 7)))
        height, width = index.shape
        parts += [b"," + struct.pack("<HHHHB", left, top, width, height, 0), data[at + 10 : -1]]
    return b"".join([*parts, b";"])


def test_frames_are_drawn_over_each_other() -> None:
    first, second = RNG.integers(0, 8, (6, 7)), RNG.integers(0, 8, (3, 2))
    data = _gif((7, 6), [(0, 0, first, None), (4, 2, second, 3)])
    wanted = np.stack([PALETTE[first]] * 2)
    inside = wanted[1, 2:5, 4:6]
    inside[second != 3] = PALETTE[second][second != 3]
    np.testing.assert_array_equal(decode_gif(data), wanted)
    np.testing.assert_array_equal(decode_gif(data, only_first=True), wanted[:1])
    np.testing.assert_array_equal(decode_gif(data[:-12]), wanted[:1])


def _samples() -> Iterator[tuple[str, bytes]]:
    pixels = RNG.integers(0, 256, (13, 17, 3)).astype(np.uint8)
    for kind in ("PNG", "JPEG", "GIF", "BMP", "WEBP"):
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, kind)
        yield kind, file.getvalue()


@pytest.mark.parametrize(("kind", "data"), list(_samples()), ids=lambda value: str(value)[:4])
def test_damaged_bytes_are_an_error_or_an_image(kind: str, data: bytes) -> None:
    refused = 0
    for _ in range(60):
        bad = bytearray(data)
        for at in RNG.integers(0, len(bad), 3):
            bad[at] = RNG.integers(0, 256)
        cut = bytes(bad[: RNG.integers(1, len(bad) + 1)])
        for given in (bytes(bad), cut):
            try:
                assert decode_frames(given, 0, 8).dtype == np.uint8
            except errors.InvalidArgumentError:
                refused += 1
    assert refused > 10


def test_claims_are_checked_before_memory_is_taken() -> None:
    png = _png(np.zeros((1, 1, 1), np.int64), 0, 8, False)
    large = struct.pack(">IIBBBBB", 20000, 20000, 8, 0, 0, 0, 0)
    png = png[:8] + _chunk(b"IHDR", large) + png[33:]
    gif = _gif((1, 1), [(0, 0, np.zeros((1, 1)), None)])
    at = gif.index(b",")
    gif = gif[: at + 5] + struct.pack("<HH", 65535, 65535) + gif[at + 9 :]
    bmp = b"BM" + struct.pack("<IIIIiiHH", 58, 0, 54, 40, 20000, 20000, 1, 24) + bytes(28)
    ((_, jpeg),) = [each for each in _samples() if each[0] == "JPEG"]
    at = jpeg.index(b"\xff\xc0")
    jpeg = jpeg[: at + 5] + struct.pack(">HH", 60000, 60000) + jpeg[at + 9 :]
    for data in (png, gif, bmp, jpeg):
        with pytest.raises(errors.InvalidArgumentError, match="claims"):
            decode_frames(data, 0, 8)


def test_truncated_jpeg_is_recovered_on_demand() -> None:
    file = io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, (64, 16, 3)).astype(np.uint8)).save(file, "JPEG")
    data = file.getvalue()
    with pytest.raises(errors.InvalidArgumentError, match="JPEG"):
        decode_jpeg(data[:-60], 0)
    whole, found = decode_jpeg(data, 0), decode_jpeg(data[:-60], 0, recover=True)
    np.testing.assert_array_equal(found[:32], whole[:32])


def test_damaged_sounds() -> None:
    data = encode_wav(np.zeros((9, 2), np.float32), 8000)
    for bad in (data[:30], data[:-1], b"RIFF" + bytes(40), data[:20] + b"\3" + data[21:]):
        with pytest.raises(errors.InvalidArgumentError, match="WAV"):
            decode_wav(bad)

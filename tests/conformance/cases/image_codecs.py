"""Image and sound files, compared with Pillow, Python's `wave` and the encoded data."""

from __future__ import annotations

import io
import wave
from collections.abc import Callable
from typing import Any

import numpy as np
import simplejpeg
from PIL import Image
from weft_testing.cases import UNTYPED, Array, Case, Raw, integers

PIXELS = integers(0, 256, 6, 7, 4).astype(np.uint8)
YY, XX = np.mgrid[0:40, 0:29]
SMOOTH = np.stack([XX * 8, YY * 6, XX + 3 * YY], -1).astype(np.uint8)
FRAMES = [Image.fromarray(integers(0, 9, 6, 5, seed=i).astype(np.uint8), "P") for i in range(3)]
PALETTE = bytes(integers(0, 256, 768).tolist())


def text(data: bytes) -> Raw:
    return Raw(np.array(data, object), "string")


def saved(image: Any, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def opened(data: Any, mode: str) -> Array:
    pixels = np.asarray(Image.open(io.BytesIO(data.item())).convert(mode))
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def _decoded(op: str, data: bytes, wanted: Array, label: str, **attrs: Any) -> Case:
    return Case(
        op, [text(data)], attrs, lambda contents: wanted, dtypes=UNTYPED, label=label, static=False
    )


def _png() -> list[Case]:
    data = saved(Image.fromarray(PIXELS), "PNG")
    color = PIXELS[:, :, :3]
    cases = [
        _decoded("DecodePng", data, PIXELS, ""),
        _decoded("DecodePng", data, color, "color", channels=3),
        _decoded("DecodeJpeg", data, color, "of png", channels=3),
        _decoded("DecodeGif", data, color[None], "of png"),
        _decoded("DecodeImage", data, color, "png", channels=3),
    ]
    cases.append(_decoded("DecodePng", data, PIXELS * np.uint16(257), "wide", dtype="uint16"))
    floats = (PIXELS / np.float32(255)).astype(np.float32)
    cases.append(_decoded("DecodeImage", data, floats, "floats", dtype="float32"))
    return cases


def _gif() -> list[Case]:
    for frame in FRAMES:
        frame.putpalette(PALETTE)
    data = saved(FRAMES[0], "GIF", save_all=True, append_images=FRAMES[1:])
    wanted = np.stack([np.asarray(frame.convert("RGB")) for frame in FRAMES])
    return [
        _decoded("DecodeGif", data, wanted, ""),
        _decoded("DecodeImage", data, wanted, "gif"),
        _decoded("DecodeImage", data, wanted[0], "first", expand_animations=False),
        _decoded("DecodePng", saved(FRAMES[0], "GIF"), wanted[0], "of gif"),
    ]


def _others() -> list[Case]:
    bmp = saved(Image.fromarray(PIXELS[:, :, :3]), "BMP")
    webp = saved(Image.fromarray(SMOOTH), "WEBP", lossless=True)
    return [
        _decoded("DecodeBmp", bmp, PIXELS[:, :, :3], ""),
        _decoded("DecodeImage", bmp, PIXELS[:, :, :3], "bmp", channels=3),
        _decoded("DecodeWebP", webp, SMOOTH[None], ""),
        _decoded("DecodeImage", webp, SMOOTH, "webp", expand_animations=False),
    ]


def _jpeg() -> list[Case]:
    data = saved(Image.fromarray(SMOOTH), "JPEG", quality=95)
    exact = {"dct_method": "INTEGER_ACCURATE"}
    accurate = opened(np.array(data, object), "RGB")
    whole = simplejpeg.decode_jpeg(data, fastdct=True)
    small = Image.open(io.BytesIO(data))
    small.draft("RGB", (14, 20))
    gray = Image.open(io.BytesIO(data))
    gray.draft("L", None)
    window = Raw(np.array([3, 5, 20, 11], np.int32))
    return [
        _decoded("DecodeJpeg", data, whole, ""),
        _decoded("DecodeJpeg", data, accurate, "accurate", **exact),
        _decoded("DecodeJpeg", data, np.asarray(small), "small", ratio=2, **exact),
        _decoded("DecodeJpeg", data, np.asarray(gray)[:, :, None], "gray", channels=1, **exact),
        _decoded("DecodePng", data, whole, "of jpeg"),
        _decoded("DecodeImage", data, whole, "jpeg"),
        _decoded("ExtractJpegShape", data, np.array(whole.shape), ""),
        Case(
            "DecodeAndCropJpeg",
            [text(data), window],
            {},
            lambda contents, window: whole[3:23, 5:16],
            dtypes=UNTYPED,
            static=False,
        ),
    ]


def _each(encode: Callable[[Array], bytes]) -> Callable[..., Array]:
    def all_of(images: Array, *rest: Any) -> Array:
        result = np.empty(images.shape[:-3], object)
        for at in np.ndindex(result.shape):
            result[at] = encode(images[at])
        return result

    return all_of


def _encoded() -> list[Case]:
    batch = np.stack([PIXELS, PIXELS[::-1]])
    picture = Raw(SMOOTH, "uint8", constant=False)
    jfif = {"dpi": (300, 300), "quality": 95, "subsampling": 2}
    return [
        Case(
            "EncodePng",
            [batch],
            {"compression": 3},
            _each(lambda image: saved(Image.fromarray(image), "PNG", compress_level=3)),
            dtypes=("uint8",),
        ),
        Case(
            "EncodeJpeg",
            [picture],
            {},
            _each(lambda image: saved(Image.fromarray(image), "JPEG", **jfif)),
            dtypes=UNTYPED,
        ),
        Case(
            "EncodeJpegVariableQuality",
            [picture, Raw(np.array(40, np.int32), constant=False)],
            {},
            _each(lambda image: saved(Image.fromarray(image), "JPEG", **jfif | {"quality": 40})),
            dtypes=UNTYPED,
        ),
    ]


def _sound() -> list[Case]:
    samples = integers(-(1 << 15), 1 << 15, 9, 2).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((2, 2, 8000, 9, "NONE", ""))
        writer.writeframes(samples.tobytes())
    floats = samples.astype(np.float32) / (1 << 15)
    fitted = np.zeros((12, 3), np.float32)
    fitted[:9] = floats[:, [0, 1, 1]]
    cases = [
        Case(
            "DecodeWav",
            [text(file.getvalue())],
            {"desired_channels": channels, "desired_samples": count},
            lambda contents, wanted=wanted: (wanted, np.array(8000)),
            dtypes=UNTYPED,
            label=label,
            static=False,
        )
        for wanted, channels, count, label in ((floats, -1, -1, ""), (fitted, 3, 12, "fitted"))
    ]
    cases.append(
        Case(
            "EncodeWav",
            [Raw(floats, "float32", constant=False), Raw(np.array(8000, np.int32))],
            {},
            lambda audio, rate: np.array(file.getvalue(), object),
            dtypes=UNTYPED,
        )
    )
    return cases


CASES = [*_png(), *_gif(), *_others(), *_jpeg(), *_encoded(), *_sound()]

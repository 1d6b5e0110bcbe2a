"""Kernels that decode and encode images and sounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.registry import KernelFunction, kernel
from weft_io.codecs import bmp, gif, jpeg, png, wav, webp
from weft_io.codecs.images import check_channels, decode_frames, format_of
from weft_io.resources.batch_memory import lend_row
from weft_io.resources.handles import allocator
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = np.ndarray[Any, Any]


def _contents(value: Any) -> bytes:
    if value.shape:
        raise errors.InvalidArgumentError(
            f"contents must have rank 0, got shape {format_dims(value.shape)}"
        )
    data: bytes = value.item()
    return data


def _string(data: bytes) -> Array:
    result = np.empty((), object)
    result[()] = data
    return result


# --------------------------------------------------------------------------------- decoding


@kernel("DecodePng", "DecodeJpeg", heavy=True)
def _decode_one(node: Node, device: Device) -> KernelFunction:
    """Create a kernel for images of one frame: PNG, JPEG, and GIF files of one frame."""
    channels: int = node.attrs["channels"]
    bits = 16 if node.outputs[0].dtype.name == "uint16" else 8
    jpeg_options = _jpeg_options(node)
    empty = lend_row(allocator(device))

    def run(contents: Any) -> Any:
        data = _contents(contents)
        name = format_of(data)
        if name in ("BMP", "WebP"):
            raise errors.InvalidArgumentError(
                f"this is a {name} image; use decode_{name.lower()} or decode_image"
            )
        check_channels(name, channels)
        if name == "JPEG":
            pixels = jpeg.decode_jpeg(data, channels, **jpeg_options, empty=empty)
            return _convert_type(pixels, node.outputs[0].dtype)
        image = decode_frames(data, channels, bits)
        if name == "PNG":
            return image
        if len(image) != 1:
            raise errors.InvalidArgumentError(
                f"this GIF image has {len(image)} frames; use decode_gif or decode_image"
            )
        return _convert_type(image[0], node.outputs[0].dtype)

    return run


def _jpeg_options(node: Node) -> dict[str, Any]:
    """Return the options of `decode_jpeg`; ops of other formats use the defaults."""
    attrs = node.attrs
    return {
        "ratio": attrs.get("ratio", 1),
        "recover": attrs.get("try_recover_truncated", False),
        "fast_dct": attrs.get("dct_method", "") != "INTEGER_ACCURATE",
        "fancy_upscaling": attrs.get("fancy_upscaling", True),
    }


@kernel("DecodeGif", heavy=True)
def _decode_gif(node: Node, device: Device) -> KernelFunction:
    def run(contents: Any) -> Any:
        data = _contents(contents)
        name = format_of(data)
        if name == "GIF":
            return gif.decode_gif(data)
        if name in ("PNG", "JPEG"):
            return decode_frames(data, 3, 8)[np.newaxis]
        raise errors.InvalidArgumentError(f"decode_gif requires a GIF image, got {name}")

    return run


@kernel("DecodeBmp", heavy=True)
def _decode_bmp(node: Node, device: Device) -> KernelFunction:
    channels: int = node.attrs["channels"]
    return lambda contents: bmp.decode_bmp(_contents(contents), channels)


@kernel("DecodeWebP", heavy=True)
def _decode_webp(node: Node, device: Device) -> KernelFunction:
    channels: int = node.attrs["channels"]
    return lambda contents: webp.decode_webp(_contents(contents), channels)


@kernel("DecodeImage", heavy=True)
def _decode_image(node: Node, device: Device) -> KernelFunction:
    channels: int = node.attrs["channels"]
    expand: bool = node.attrs["expand_animations"]
    dtype = node.outputs[0].dtype

    def run(contents: Any) -> Any:
        image = decode_frames(
            _contents(contents), channels, 8 if dtype.name == "uint8" else 16, not expand
        )
        return _convert_type(image if expand or image.ndim == 3 else image[0], dtype)

    return run


def _convert_type(image: Array, dtype: DType) -> Array:
    """Convert bytes or 16-bit integers to the type of an output; floats are from 0 to 1."""
    if dtype.name == "float32":
        return image * np.float32(1 / np.iinfo(image.dtype).max)
    if dtype.name == "uint16" and image.dtype == np.uint8:
        return image.astype(np.uint16) << 8
    return image


@kernel("DecodeAndCropJpeg", heavy=True)
def _decode_and_crop(node: Node, device: Device) -> KernelFunction:
    channels: int = node.attrs["channels"]
    options = _jpeg_options(node)

    def run(contents: Any, crop_window: Any) -> Any:
        if crop_window.shape != (4,):
            raise errors.InvalidArgumentError(
                f"crop_window must have 4 numbers, got shape {format_dims(crop_window.shape)}"
            )
        image = jpeg.decode_jpeg(_contents(contents), channels, **options)
        top, left, height, width = crop_window.tolist()
        is_valid = min(top, left) >= 0 and min(height, width) > 0
        if not is_valid or top + height > image.shape[0] or left + width > image.shape[1]:
            raise errors.InvalidArgumentError(
                "crop_window must be [top, left, height, width] inside an image of "
                f"{image.shape[0]} by {image.shape[1]}, got {crop_window.tolist()}"
            )
        return np.ascontiguousarray(image[top : top + height, left : left + width])

    return run


@kernel("ExtractJpegShape")
def _jpeg_shape(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy
    return lambda contents: np.array(jpeg.jpeg_shape(_contents(contents)), dtype)


# --------------------------------------------------------------------------------- encoding


@kernel("EncodePng", heavy=True)
def _encode_png(node: Node, device: Device) -> KernelFunction:
    compression: int = node.attrs["compression"]

    def run(image: Any) -> Any:
        png.check_encodable(image.shape)
        result = np.empty(image.shape[:-3], object)
        for index in np.ndindex(result.shape):
            result[index] = png.encode_png(image[index], compression)
        return result

    return run


@kernel("EncodeJpeg", heavy=True)
def _encode_jpeg(node: Node, device: Device) -> KernelFunction:
    attrs = node.attrs
    names = jpeg.JpegOptions.__dataclass_fields__
    result = {name: attrs[name] for name in names}
    xmp = result["xmp_metadata"]
    result["xmp_metadata"] = xmp.encode() if isinstance(xmp, str) else xmp
    options = jpeg.JpegOptions(**result)
    channels = {"grayscale": (1,), "rgb": (3,)}.get(attrs["format"], (1, 3))

    def run(image: Any) -> Any:
        _check_jpeg(image.shape, channels)
        return _string(jpeg.encode_jpeg(image, options))

    return run


def _check_jpeg(shape: tuple[int, ...], channels: tuple[int, ...]) -> None:
    if len(shape) != 3 or shape[2] not in channels or 0 in shape:
        expected = " or ".join(map(str, channels))
        raise errors.InvalidArgumentError(
            f"an image for JPEG must have pixels and shape [height, width, {expected}], got "
            f"{format_dims(shape)}"
        )


@kernel("EncodeJpegVariableQuality", heavy=True)
def _encode_jpeg_quality(node: Node, device: Device) -> KernelFunction:
    def run(image: Any, quality: Any) -> Any:
        _check_jpeg(image.shape, (1, 3))
        expected = int(quality)
        if not 0 <= expected <= 100:
            raise errors.InvalidArgumentError(f"quality must be from 0 to 100, got {expected}")
        return _string(jpeg.encode_jpeg(image, jpeg.JpegOptions(quality=expected)))

    return run


# ----------------------------------------------------------------------------------- sounds


@kernel("DecodeWav", heavy=True)
def _decode_wav(node: Node, device: Device) -> KernelFunction:
    channels, frames = node.attrs["desired_channels"], node.attrs["desired_samples"]
    make: Callable[[Any], Any] = np.int32

    def run(contents: Any) -> Any:
        samples, rate = wav.decode_wav(_contents(contents), channels, frames)
        if rate >= 1 << 31:
            raise errors.InvalidArgumentError(f"the rate {rate} of a WAV file is above int32")
        return samples, make(rate)

    return run


@kernel("EncodeWav", heavy=True)
def _encode_wav(node: Node, device: Device) -> KernelFunction:
    def run(audio: Any, sample_rate: Any) -> Any:
        if audio.ndim != 2 or sample_rate.shape:
            raise errors.InvalidArgumentError(
                "audio must have shape [frames, channels] and sample_rate rank 0, got shapes "
                f"{format_dims(audio.shape)} and {format_dims(sample_rate.shape)}"
            )
        return _string(wav.encode_wav(audio, int(sample_rate)))

    return run

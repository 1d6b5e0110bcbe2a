"""Kernels that create serialized `Summary` messages."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.kernels.common import constant_input
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_graph import proto
from weft_graph.messages.tensor_proto import MAX_BYTES, array_to_proto, little_endian
from weft_io.codecs.png import encode_png
from weft_io.codecs.wav import encode_wav
from weft_io.summary.buckets import histogram_of
from weft_io.summary.images import scale_to_bytes
from weft_io.summary.messages import decode_error
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = np.ndarray[Any, Any]

_FLOAT: Final = struct.Struct("<f")
_WIDE: Final = (dtypes.float64, dtypes.int64, dtypes.uint64)
"""Types that `_FLOAT` refuses large values of, or rounds twice."""


def _string(data: bytes) -> Array:
    """Return bytes as a string scalar."""
    result = np.empty((), object)
    result[()] = data
    return result


def _serialize(summary: proto.Summary) -> Array:
    return _string(summary.SerializeToString())


def _tag(tag: Any) -> str:
    """Return the tag in a string scalar."""
    if tag.shape:
        raise errors.InvalidArgumentError(f"the tag must have rank 0, got {format_dims(tag.shape)}")
    return _text(tag.item())


def _text(tag: bytes) -> str:
    try:
        return tag.decode()
    except UnicodeDecodeError as cause:
        raise errors.InvalidArgumentError(f"a tag must be UTF-8, got {tag!r}") from cause


# ---------------------------------------------------------------------------------- numbers


@kernel("ScalarSummary")
def _scalar(node: Node, device: Device) -> KernelFunction:
    tag = constant_input(node, 0)
    if tag is None or tag.shape or node.inputs[1].dims != ():
        return _scalars
    head = _scalar_head(_tag(tag))
    pack = _FLOAT.pack
    if node.inputs[1].dtype.base_dtype in _WIDE:
        return lambda tags, value: _string(head + pack(np.float32(value)))
    return lambda tags, value: _string(head + pack(value))


def _scalar_head(tag: str) -> bytes:
    """Return the bytes of a scalar `Summary` that precede the four bytes of the value.

    Each step writes such a message for each curve, so the constant part is serialized once.
    """
    value = proto.Summary.Value(tag=tag, simple_value=0.0)
    return proto.Summary(value=[value]).SerializeToString()[:-4]


def _scalars(tags: Any, values: Any) -> Any:
    if tags.shape != values.shape:
        raise errors.InvalidArgumentError(
            f"tags and values must have the same shape, got {format_dims(tags.shape)} and "
            f"{format_dims(values.shape)}"
        )
    summary = proto.Summary()
    numbers = np.asarray(values).astype(np.float32).reshape(-1).tolist()
    for tag, number in zip(np.asarray(tags).reshape(-1).tolist(), numbers, strict=True):
        summary.value.add(tag=_text(tag), simple_value=number)
    return _serialize(summary)


@kernel("HistogramSummary", heavy=True)
def _histogram(node: Node, device: Device) -> KernelFunction:
    name = node.name

    def run(tag: Any, values: Any) -> Any:
        summary = proto.Summary()
        summary.value.add(tag=_tag(tag), histo=histogram_of(values, name))
        return _serialize(summary)

    return run


# --------------------------------------------------------------------------- images, sounds


@kernel("ImageSummary", heavy=True)
def _image(node: Node, device: Device) -> KernelFunction:
    limit: int = node.attrs["max_images"]
    bad_color = _parse_bad_color(node.attrs["bad_color"])

    def run(tag: Any, images: Any) -> Any:
        base = _tag(tag)
        _check_images(images.shape)
        _, height, width, channels = images.shape
        summary = proto.Summary()
        for name, image in _number_tags(f"{base}/image", images, limit):
            pixels = image if image.dtype == np.uint8 else scale_to_bytes(image, bad_color)
            value = summary.value.add(tag=name)
            value.image.height, value.image.width = height, width
            value.image.colorspace = channels
            value.image.encoded_image_string = encode_png(pixels)
        return _serialize(summary)

    return run


def _parse_bad_color(value: Any) -> Array:
    color: Array = np.asarray(value)
    if color.dtype != np.uint8 or color.ndim != 1:
        raise errors.InvalidArgumentError(
            f"bad_color must be a vector of uint8, got {color.dtype} of shape "
            f"{format_dims(color.shape)}"
        )
    return color


def _check_images(shape: tuple[int, ...]) -> None:
    if len(shape) != 4 or shape[3] not in (1, 3, 4):
        raise errors.InvalidArgumentError(
            "images must have shape [n, height, width, 1, 3 or 4], got " + format_dims(shape)
        )
    pixels = shape[1] * shape[2]
    if not 0 < pixels < 1 << 29:
        raise errors.InvalidArgumentError(
            f"an image must have from 1 to {(1 << 29) - 1} pixels, got shape {format_dims(shape)}"
        )


def _number_tags(base: str, items: Any, limit: int) -> Iterator[tuple[str, Any]]:
    """Yield the first `limit` items with their tags, which have numbers if `limit` is over 1."""
    for i, item in enumerate(items[:limit]):
        yield (f"{base}/{i}" if limit > 1 else base), item


@kernel("AudioSummaryV2", heavy=True)
def _audio(node: Node, device: Device) -> KernelFunction:
    limit: int = node.attrs["max_outputs"]

    def run(tag: Any, sounds: Any, rates: Any) -> Any:
        base, rate = _tag(tag), _rate(rates)
        if sounds.ndim not in (2, 3):
            raise errors.InvalidArgumentError(
                "sounds must have shape [n, frames] or [n, frames, channels], got "
                + format_dims(sounds.shape)
            )
        summary = proto.Summary()
        for name, sound in _number_tags(f"{base}/audio", sounds, limit):
            samples = sound[:, np.newaxis] if sound.ndim == 1 else sound
            audio = summary.value.add(tag=name).audio
            audio.sample_rate = rate
            audio.length_frames, audio.num_channels = samples.shape
            audio.content_type = "audio/wav"
            audio.encoded_audio_string = encode_wav(samples, max(1, round(rate)))
        return _serialize(summary)

    return run


def _rate(rates: Any) -> float:
    if rates.size != 1:
        raise errors.InvalidArgumentError(
            f"sample_rate must be one number, got shape {format_dims(rates.shape)}"
        )
    rate: float = rates.item()
    if not 0 < rate < 1 << 32:
        raise errors.InvalidArgumentError(
            f"sample_rate must be above 0 and below 2**32, got {rate}"
        )
    return rate


# -------------------------------------------------------------------------- tensors, merging


@kernel("TensorSummaryV2")
def _tensor_v2(node: Node, device: Device) -> KernelFunction:
    to_proto = _to_proto(node.inputs[1].dtype.base_dtype)

    def run(tag: Any, tensor: Any, metadata: Any) -> Any:
        if metadata.shape:
            raise errors.InvalidArgumentError(
                "serialized_summary_metadata must have rank 0, got " + format_dims(metadata.shape)
            )
        summary = proto.Summary()
        value = summary.value.add(tag=_tag(tag), tensor=to_proto(tensor))
        value.metadata.CopyFrom(_parse(proto.SummaryMetadata, metadata.item(), "the metadata"))
        return _serialize(summary)

    return run


@kernel("TensorSummary")
def _tensor(node: Node, device: Device) -> KernelFunction:
    to_proto = _to_proto(node.inputs[0].dtype.base_dtype)
    name = node.name

    def run(tensor: Any) -> Any:
        summary = proto.Summary()
        summary.value.add(node_name=name, tensor=to_proto(tensor))
        return _serialize(summary)

    return run


def _to_proto(dtype: DType) -> Callable[[Any], proto.TensorProto]:
    """Return a function from arrays of a type to messages with packed values."""
    if dtype is dtypes.string:
        return lambda value: array_to_proto(np.asarray(value), dtype)
    if dtype.numpy.hasobject:
        raise errors.InvalidTypeError(f"summaries do not support values of type {dtype.name}")

    def convert(value: Any) -> proto.TensorProto:
        if value.nbytes > MAX_BYTES:
            raise errors.InvalidArgumentError(
                f"a tensor of {value.nbytes} bytes does not fit into a summary (2 GiB at most)"
            )
        message = proto.TensorProto(dtype=dtype.as_datatype_enum)
        message.tensor_shape.SetInParent()
        for size in value.shape:
            message.tensor_shape.dim.add(size=size)
        message.tensor_content = little_endian(np.asarray(value)).tobytes()
        return message

    return convert


@kernel("MergeSummary")
def _merge(node: Node, device: Device) -> KernelFunction:
    def run(*inputs: Any) -> Any:
        parts = [part for value in inputs for part in value.reshape(-1).tolist()]
        for part in parts:
            _parse(proto.Summary, part, "an input")
        # Messages laid end to end are their union.
        union = b"".join(parts)
        tags = [value.tag for value in _parse(proto.Summary, union, "the union").value]
        if len(set(tags)) < len(tags):
            _check_unique(tags)
        return _string(union)

    return run


def _check_unique(tags: list[str]) -> None:
    """Raise if a tag occurs twice; in old graphs, tensors have no tags."""
    counts = Counter(filter(None, tags))
    repeated = sorted(tag for tag, count in counts.items() if count > 1)
    if repeated:
        raise errors.InvalidArgumentError(f"two summaries have the tag {repeated[0]!r}")


def _parse(kind: Any, data: bytes, label: str) -> Any:
    try:
        return kind.FromString(data)
    except decode_error() as cause:
        raise errors.InvalidArgumentError(
            f"{label} must be a serialized {kind.DESCRIPTOR.name}, but the {len(data)} bytes "
            "cannot be parsed as one"
        ) from cause

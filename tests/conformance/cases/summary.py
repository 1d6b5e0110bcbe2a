"""Summaries against messages that are put together value by value."""

from __future__ import annotations

import bisect
import io
import wave
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from PIL import Image
from weft_testing.cases import REALS, UNTYPED, Array, Case, Raw

from weft_graph import proto
from weft_graph.messages.tensor_proto import make_ndarray


def _summary(*values: proto.Summary.Value) -> Array:
    result = np.empty((), object)
    result[()] = proto.Summary(value=values).SerializeToString()
    return result


def _words(values: Any) -> Raw:
    return Raw(values, "string")


TAG = _words(b"a tag")


def _case(
    op: str,
    inputs: Sequence[Any],
    expected: Callable[..., Any],
    attrs: dict[str, Any] | None = None,
    dtypes: Sequence[str] = UNTYPED,
    label: str = "",
) -> Case:
    return Case(op, inputs, attrs, expected, dtypes=dtypes, label=label, grad=False)


# ----------------------------------------------------------------------- scalars, histograms


def _scalars(tags: Array, values: Array) -> Array:
    pairs = zip(tags.reshape(-1), values.reshape(-1), strict=True)
    return _summary(*[proto.Summary.Value(tag=tag, simple_value=value) for tag, value in pairs])


def _limits() -> list[float]:
    positive = []
    value = 1e-12
    while value < 1e20:
        positive.append(value)
        value *= 1.1
    positive.append(np.finfo(np.float64).max)
    return [-value for value in positive[::-1]] + [0.0] + positive


def _histogram(tag: Array, values: Array) -> Array:
    """Count values one by one; a run of empty buckets is represented by its last one."""
    limits = _limits()
    counts = [0] * len(limits)
    flat = [float(value) for value in values.reshape(-1)]
    for value in flat:
        counts[bisect.bisect_right(limits, value)] += 1
    histo = proto.HistogramProto(min=limits[-1], max=limits[0])
    if flat:
        histo = proto.HistogramProto(min=min(flat), max=max(flat))
    histo.num, histo.sum = len(flat), float(np.sum(flat))
    histo.sum_squares = float(np.dot(flat, flat))
    for i, count in enumerate(counts):
        if count or i + 1 == len(counts) or counts[i + 1]:
            histo.bucket_limit.append(limits[i])
            histo.bucket.append(count)
    return _summary(proto.Summary.Value(tag=tag.item(), histo=histo))


def _numbers() -> list[Case]:
    spread = np.array([[0, 1, 1, 2], [-3, 7, 7, 100]])
    return [
        _case("ScalarSummary", [TAG, np.array(3)], _scalars, dtypes=REALS),
        _case("ScalarSummary", [TAG, np.array(-2.5)], _scalars, dtypes=("float32",), label="sign"),
        _case(
            "ScalarSummary",
            [_words([[b"a", b"b"]]), np.array([[1, 2]])],
            _scalars,
            dtypes=REALS,
            label="several",
        ),
        _case("HistogramSummary", [TAG, np.abs(spread)], _histogram, dtypes=REALS),
        _case(
            "HistogramSummary",
            [TAG, spread],
            _histogram,
            dtypes=("float16", "bfloat16", "float32", "float64", "int8", "int64"),
            label="signs",
        ),
        _case("HistogramSummary", [TAG, np.zeros((0, 3))], _histogram, dtypes=REALS, label="empty"),
    ]


# --------------------------------------------------------------------------- images, sounds


def _png(pixels: Array) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(file, "PNG")
    return file.getvalue()


def _images(scale: Callable[[Array], Array], most: int = 3) -> Callable[..., Array]:
    def expected(tag: Array, images: Array) -> Array:
        values = []
        for i, image in enumerate(images[:most]):
            height, width, depth = image.shape
            name = tag.item() + (b"/image/%d" % i if most > 1 else b"/image")
            message = proto.Summary.Image(height=height, width=width, colorspace=depth)
            message.encoded_image_string = _png(scale(image).astype(np.uint8))
            values.append(proto.Summary.Value(tag=name, image=message))
        return _summary(*values)

    return expected


def _wav(samples: Array) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as target:
        target.setnchannels(samples.shape[1])
        target.setsampwidth(2)
        target.setframerate(8000)
        target.writeframes(np.clip(samples * 32768, -32768, 32767).astype("<i2").tobytes())
    return file.getvalue()


def _sounds(tag: Array, sounds: Array, rate: Array) -> Array:
    values = []
    for i, sound in enumerate(sounds):
        samples = sound.reshape(sound.shape[0], -1)
        audio = proto.Summary.Audio(sample_rate=rate.item(), content_type="audio/wav")
        audio.length_frames, audio.num_channels = samples.shape
        audio.encoded_audio_string = _wav(samples)
        values.append(proto.Summary.Value(tag=tag.item() + b"/audio/%d" % i, audio=audio))
    return _summary(*values)


def _media() -> list[Case]:
    bytes_ = np.arange(2 * 3 * 5 * 3, dtype=np.uint8).reshape(2, 3, 5, 3)
    tones = np.array([[0, 0.5, -0.5, 1], [-1, 0.25, 2, -2]], np.float32)
    rate = Raw(8000.0, "float32")
    floats = ("float16", "float32", "float64")
    positive = np.array([0, 1, 2, 4.0]).reshape(1, 2, 2, 1)
    return [
        _case("ImageSummary", [TAG, Raw(bytes_)], _images(lambda x: x)),
        _case(
            "ImageSummary",
            [TAG, Raw(bytes_[..., :1])],
            _images(lambda x: x, 1),
            {"max_images": 1},
            label="one",
        ),
        _case(
            "ImageSummary",
            [TAG, positive],
            _images(lambda x: x * (255 / 4)),
            dtypes=floats,
            label="positive",
        ),
        _case(
            "ImageSummary",
            [TAG, positive.repeat(4, 3) - 3],
            _images(lambda x: x * (127 / 3) + 128.00001),
            dtypes=floats,
            label="signs",
        ),
        _case("AudioSummaryV2", [TAG, Raw(tones), rate], _sounds),
        _case(
            "AudioSummaryV2", [TAG, Raw(tones[..., np.newaxis]), rate], _sounds, label="channels"
        ),
    ]


# -------------------------------------------------------------------------- tensors, merging

METADATA = proto.SummaryMetadata(
    plugin_data=proto.SummaryMetadata.PluginData(plugin_name="text"), display_name="name"
)


def _tensor(**fields: Any) -> Callable[..., Array]:
    """Strings one by one, numbers as one block of bytes."""

    def expected(*inputs: Array) -> Array:
        tensor = inputs[0] if len(inputs) == 1 else inputs[1]
        message = proto.TensorProto()
        if tensor.dtype.kind == "O":
            message.dtype = proto.DT_STRING
            message.string_val.extend(tensor.reshape(-1).tolist())
        else:
            message.dtype = proto.DT_INT32
            message.tensor_content = tensor.astype("<i4").tobytes()
        message.tensor_shape.SetInParent()
        for size in tensor.shape:
            message.tensor_shape.dim.add(size=size)
        assert make_ndarray(message).tolist() == tensor.tolist()
        return _summary(proto.Summary.Value(tensor=message, **fields))

    return expected


def _others() -> list[Case]:
    described = _words(METADATA.SerializeToString())
    with_tag = _tensor(tag="a tag", metadata=METADATA)
    one = _summary(proto.Summary.Value(tag="a", simple_value=1.0)).item()
    two = _summary(proto.Summary.Value(tag="b"), proto.Summary.Value(tag="c")).item()
    both = proto.Summary.FromString(one + two)
    return [
        _case(
            "TensorSummary", [np.arange(3)], _tensor(node_name="TensorSummary"), None, ("int32",)
        ),
        _case("TensorSummaryV2", [TAG, np.arange(6), described], with_tag, None, ("int32",)),
        _case(
            "TensorSummaryV2", [TAG, np.array(5), described], with_tag, None, ("int32",), "rank0"
        ),
        _case(
            "TensorSummaryV2",
            [TAG, _words([b"x", b""]), described],
            with_tag,
            label="strings",
        ),
        _case("MergeSummary", [[_words(one), _words([two])]], lambda inputs: _summary(*both.value)),
        _case(
            "MergeSummary", [[_words(one)]], lambda inputs: _summary(both.value[0]), label="alone"
        ),
    ]


CASES = [*_numbers(), *_media(), *_others()]

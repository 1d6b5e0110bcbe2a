"""Ops of speech recognition: audio spectrograms, and mel-frequency cepstral coefficients."""

from __future__ import annotations

__all__: list[str] = []

from collections.abc import Sequence
from typing import Final

from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import Traits
from weft_graph.ops import cost_rules
from weft_graph.ops.shape_rules import with_rank
from weft_tensor import errors
from weft_tensor.shape import Dims

_MAX: Final = 1 << 12
"""Limit of the number of bands, because their transform is a matrix."""


def _spectrogram_shape(node: NodeSpec) -> Sequence[Dims]:
    samples, channels = with_rank(node.inputs[0].dims, 2, "AudioSpectrogram: input")
    window, stride = node.attrs["window_size"], node.attrs["stride"]
    if window < 2 or stride < 1:
        raise errors.InvalidArgumentError(
            f"AudioSpectrogram requires a window_size of at least 2 and a stride of at least 1, "
            f"got {window} and {stride}"
        )
    frames = None if samples is None else max(0, (samples - window) // stride + 1)
    bins = (1 << (window - 1).bit_length()) // 2 + 1
    return ((channels, frames, bins),)


def _mfcc_shape(node: NodeSpec) -> Sequence[Dims]:
    channels, frames, _ = with_rank(node.inputs[0].dims, 3, "Mfcc: spectrogram")
    with_rank(node.inputs[1].dims, 0, "Mfcc: sample_rate")
    bands, num_coefficients = (
        node.attrs["filterbank_channel_count"],
        node.attrs["dct_coefficient_count"],
    )
    if max(bands, num_coefficients) > _MAX:
        raise errors.InvalidArgumentError(
            f"Mfcc takes at most {_MAX} bands and coefficients, got {bands} and {num_coefficients}"
        )
    return ((channels, frames, num_coefficients),)


register_op(
    "AudioSpectrogram",
    ("input: float32",),
    ("spectrogram: float32",),
    {"window_size": "int", "stride": "int", "magnitude_squared": "bool = false"},
    _spectrogram_shape,
    traits=Traits(cost=cost_rules.per_output(30), differentiable=False),
    doc="""
    Magnitudes of the spectra of frames under a Hann window. From shape (samples, channels) to
    (channels, frames, bins); frames are padded with zeros to a power of two.
    """,
)
register_op(
    "Mfcc",
    ("spectrogram: float32", "sample_rate: int32"),
    ("output: float32",),
    {
        "upper_frequency_limit": "float = 4000.0",
        "lower_frequency_limit": "float = 20.0",
        "filterbank_channel_count": "int >= 1 = 40",
        "dct_coefficient_count": "int >= 1 = 13",
    },
    _mfcc_shape,
    traits=Traits(cost=cost_rules.per_input(80), differentiable=False),
    doc="""
    Cosine transforms of the logarithms of mel bands, for frames of squared magnitudes: from shape
    (channels, frames, bins) to (channels, frames, coefficients). Frequencies are in hertz.
    """,
)

"""Ops that decode and encode image and sound files."""

from __future__ import annotations

__all__ = [
    "decode_and_crop_jpeg",
    "decode_bmp",
    "decode_gif",
    "decode_jpeg",
    "decode_png",
    "decode_webp",
    "encode_jpeg",
    "encode_png",
    "extract_jpeg_shape",
    "is_jpeg",
]

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft_graph.ir.builder import convert_to_tensor, create, out
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import NOT_DIFFERENTIABLE
from weft_graph.ops.comparison import equal
from weft_graph.ops.shape_rules import constant_array, with_rank, with_rank_at_least
from weft_graph.ops.strings import substr
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims, format_dims

# ------------------------------------------------------------------------------ shape rules


def _static_channels(node: NodeSpec, *allowed: int) -> int | None:
    """Return the requested number of channels; None for the file's number."""
    with_rank(node.inputs[0].dims, 0, "contents")
    channels: int = node.attrs["channels"]
    if channels not in (0, *allowed):
        raise errors.InvalidArgumentError(
            f"channels must be one of {[0, *allowed]}, got {channels}"
        )
    return channels or None


def _image(*allowed: int) -> Callable[[NodeSpec], Sequence[Dims]]:
    def rule(node: NodeSpec) -> Sequence[Dims]:
        _check_jpeg_attrs(node)
        return ((None, None, _static_channels(node, *allowed)),)

    return rule


def _check_jpeg_attrs(node: NodeSpec) -> None:
    if node.attrs.get("ratio", 1) not in (1, 2, 4, 8):
        raise errors.InvalidArgumentError(f"ratio must be 1, 2, 4 or 8, got {node.attrs['ratio']}")
    method = node.attrs.get("dct_method", "")
    if method not in ("", "INTEGER_FAST", "INTEGER_ACCURATE"):
        raise errors.InvalidArgumentError(
            f"dct_method must be 'INTEGER_FAST', 'INTEGER_ACCURATE' or '', got {method!r}"
        )


def _any_image_shape(node: NodeSpec) -> Sequence[Dims]:
    channels = _static_channels(node, 1, 3, 4)
    return (None if node.attrs["expand_animations"] else (None, None, channels),)


def _frames(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[0].dims, 0, "contents")
    return ((None, None, None, 3),)


def _webp_frames(node: NodeSpec) -> Sequence[Dims]:
    return ((None, None, None, _static_channels(node, 3, 4)),)


def _crop(node: NodeSpec) -> Sequence[Dims]:
    _check_jpeg_attrs(node)
    channels = _static_channels(node, 1, 3)
    (count,) = with_rank(node.inputs[1].dims, 1, "crop_window")
    if count not in (None, 4):
        raise errors.InvalidArgumentError(f"crop_window must have 4 numbers, got {count}")
    constant = constant_array(node.inputs[1])
    if constant is None:
        return ((None, None, channels),)
    top, left, height, width = constant.tolist()
    if min(top, left) < 0 or min(height, width) < 1:
        raise errors.InvalidArgumentError(
            f"crop_window must be [top, left, height, width] with pixels, got {constant.tolist()}"
        )
    return ((height, width, channels),)


def _jpeg_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[0].dims, 0, "contents")
    return ((3,),)


def _encode_png_shape(node: NodeSpec) -> Sequence[Dims]:
    compression: int = node.attrs["compression"]
    if not -1 <= compression <= 9:
        raise errors.InvalidArgumentError(f"compression must be from -1 to 9, got {compression}")
    dims = with_rank_at_least(node.inputs[0].dims, 3, "images for PNG")
    _check_channels(dims, (1, 2, 3, 4))
    return (None if dims is None else dims[:-3],)


def _encode_jpeg_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = with_rank(node.inputs[0].dims, 3, "an image for JPEG")
    expected = {"grayscale": (1,), "rgb": (3,)}.get(node.attrs.get("format", ""), (1, 3))
    _check_channels(dims, expected)
    quality = node.attrs.get("quality", 0)
    if not 0 <= quality <= 100:
        raise errors.InvalidArgumentError(f"quality must be from 0 to 100, got {quality}")
    densities = node.attrs.get("x_density", 1), node.attrs.get("y_density", 1)
    if not all(0 <= density < 1 << 16 for density in densities):
        raise errors.InvalidArgumentError(
            f"x_density and y_density must be from 0 to 65535, got {densities}"
        )
    if len(node.inputs) > 1:
        with_rank(node.inputs[1].dims, 0, "quality")
    return ((),)


def _check_channels(dims: Dims, allowed: tuple[int, ...]) -> None:
    if dims is not None and dims[-1] is not None and dims[-1] not in allowed:
        raise errors.InvalidArgumentError(
            f"an image must have one of {list(allowed)} channels, got shape {format_dims(dims)}"
        )


def _decode_wav_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[0].dims, 0, "contents")
    channels, samples = node.attrs["desired_channels"], node.attrs["desired_samples"]
    for label, count in (("desired_channels", channels), ("desired_samples", samples)):
        if count == 0 or count < -1:
            raise errors.InvalidArgumentError(f"{label} must be at least 1, or -1, got {count}")
    return (
        (None if samples < 0 else samples, None if channels < 0 else channels),
        (),
    )


def _encode_wav_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[0].dims, 2, "audio")
    with_rank(node.inputs[1].dims, 0, "sample_rate")
    return ((),)


# ----------------------------------------------------------------------------- declarations

_JPEG = {
    "channels": "int = 0",
    "ratio": "int = 1",
    "fancy_upscaling": "bool = true",
    "try_recover_truncated": "bool = false",
    "acceptable_fraction": "float = 1.0",
    "dct_method": "string = ''",
}
_BYTES = ("contents: string",)

register_op(
    "DecodePng",
    _BYTES,
    ("image: dtype",),
    {"channels": "int = 0", "dtype": "{uint8, uint16} = uint8"},
    _image(1, 3, 4),
    traits=NOT_DIFFERENTIABLE,
    doc="The pixels of a PNG file.",
)
register_op(
    "DecodeJpeg",
    _BYTES,
    ("image: uint8",),
    _JPEG,
    _image(1, 3, 4),
    traits=NOT_DIFFERENTIABLE,
    doc="The pixels of a JPEG file.",
)
register_op(
    "DecodeAndCropJpeg",
    (*_BYTES, "crop_window: int32"),
    ("image: uint8",),
    _JPEG,
    _crop,
    traits=NOT_DIFFERENTIABLE,
    doc="A part of the pixels of a JPEG file.",
)
register_op(
    "DecodeGif",
    _BYTES,
    ("image: uint8",),
    {},
    _frames,
    traits=NOT_DIFFERENTIABLE,
    doc="The frames of a GIF file.",
)
register_op(
    "DecodeBmp",
    _BYTES,
    ("image: uint8",),
    {"channels": "int = 0"},
    _image(1, 3, 4),
    traits=NOT_DIFFERENTIABLE,
    doc="The pixels of a BMP file.",
)
register_op(
    "DecodeWebP",
    _BYTES,
    ("image: dtype",),
    {"channels": "int = 0", "dtype": "{uint8} = uint8"},
    _webp_frames,
    traits=NOT_DIFFERENTIABLE,
    doc="The frames of a WebP file.",
)
register_op(
    "DecodeImage",
    _BYTES,
    ("image: dtype",),
    {
        "channels": "int = 0",
        "dtype": "{uint8, uint16, float32} = uint8",
        "expand_animations": "bool = true",
    },
    _any_image_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="The pixels or the frames of an image of any format.",
)
register_op(
    "ExtractJpegShape",
    _BYTES,
    ("image_shape: output_type",),
    {"output_type": "{int32, int64} = int32"},
    _jpeg_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="The shape of a JPEG file's pixels, which are not decoded.",
)
register_op(
    "EncodePng",
    ("image: T",),
    _BYTES,
    {"compression": "int = -1", "T": "{uint8, uint16} = uint8"},
    _encode_png_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="Images as PNG files.",
)
register_op(
    "EncodeJpeg",
    ("image: uint8",),
    _BYTES,
    {
        "format": "{'', 'grayscale', 'rgb'} = ''",
        "quality": "int = 95",
        "progressive": "bool = false",
        "optimize_size": "bool = false",
        "chroma_downsampling": "bool = true",
        "density_unit": "{'in', 'cm'} = 'in'",
        "x_density": "int = 300",
        "y_density": "int = 300",
        "xmp_metadata": "string = ''",
    },
    _encode_jpeg_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="An image as a JPEG file.",
)
register_op(
    "EncodeJpegVariableQuality",
    ("images: uint8", "quality: int32"),
    _BYTES,
    {},
    _encode_jpeg_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="An image as a JPEG file of a quality that is computed.",
)
register_op(
    "DecodeWav",
    _BYTES,
    ("audio: float32", "sample_rate: int32"),
    {"desired_channels": "int = -1", "desired_samples": "int = -1"},
    _decode_wav_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="The samples of a WAV file.",
)
register_op(
    "EncodeWav",
    ("audio: float32", "sample_rate: int32"),
    _BYTES,
    {},
    _encode_wav_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="Samples as a WAV file.",
)

# --------------------------------------------------------------------------- decoding images


def decode_png(
    contents: Any, channels: int = 0, dtype: Any = dtypes.uint8, name: str | None = None
) -> Output:
    """Decode a PNG file; JPEG files and GIF files of one frame are accepted too.

    Args:
      contents: string, shape (): the bytes of the file.
      channels: 1 for gray, 3 for RGB, 4 for RGBA; 0 for the file's number.
      dtype: uint8 or uint16; the file's values are converted.
    Returns: shape (height, width, channels).
    Raises: InvalidArgumentError: the bytes cannot be decoded, or claim 512 MB of pixels or more.

    Examples:
      >>> data = wf.image.encode_png(wf.constant([[[7, 8, 9]]], wf.uint8))
      >>> wf.Session().run(wf.image.decode_png(data))
      array([[[7, 8, 9]]], dtype=uint8)
    """
    attrs = {"channels": channels, "dtype": dtypes.as_dtype(dtype)}
    return out("DecodePng", [contents], attrs, name)


def decode_jpeg(
    contents: Any,
    channels: int = 0,
    ratio: int = 1,
    fancy_upscaling: bool = True,
    try_recover_truncated: bool = False,
    acceptable_fraction: float = 1,
    dct_method: str = "",
    name: str | None = None,
) -> Output:
    """Decode a JPEG file; PNG files and GIF files of one frame are accepted too.

    Args:
      contents: string, shape (): the bytes of the file.
      channels: 1 for gray, 3 for RGB; 0 for the file's number.
      ratio: 1, 2, 4 or 8: divisor of height and width; larger ones are faster.
      fancy_upscaling: interpolate colors that are stored at half the resolution.
      dct_method: "INTEGER_FAST", "INTEGER_ACCURATE", or "" for the fast one; their values differ by
        a few of 255. Damaged and CMYK files are decoded by the accurate one.
      try_recover_truncated: fill in missing data at the end of the bytes.
      acceptable_fraction: accepted for compatibility; incomplete files are rejected unless
        `try_recover_truncated` is set.
    Returns: uint8, shape (height, width, channels).
    Raises: InvalidArgumentError: the bytes cannot be decoded, or claim 512 MB of pixels or more.

    Examples:
      >>> data = wf.image.encode_jpeg(wf.zeros([16, 24, 3], wf.uint8))
      >>> wf.Session().run(wf.image.decode_jpeg(data, ratio=2)).shape
      (8, 12, 3)
    """
    attrs = _jpeg_attrs(
        channels, ratio, fancy_upscaling, try_recover_truncated, acceptable_fraction, dct_method
    )
    return out("DecodeJpeg", [contents], attrs, name)


def decode_and_crop_jpeg(
    contents: Any,
    crop_window: Any,
    channels: int = 0,
    ratio: int = 1,
    fancy_upscaling: bool = True,
    try_recover_truncated: bool = False,
    acceptable_fraction: float = 1,
    dct_method: str = "",
    name: str | None = None,
) -> Output:
    """Decode a part of a JPEG file.

    Args:
      contents, channels, ratio, fancy_upscaling, try_recover_truncated, acceptable_fraction,
        dct_method: as for `decode_jpeg`.
      crop_window: int32, shape (4,): top, left, height and width, in the image that is divided
        by `ratio`.
    Returns: uint8, shape (height, width, channels).
    Raises: InvalidArgumentError: the bytes cannot be decoded, or the window is not inside the
      image.

    Examples:
      >>> data = wf.image.encode_jpeg(wf.zeros([16, 24, 3], wf.uint8))
      >>> wf.Session().run(wf.image.decode_and_crop_jpeg(data, [1, 2, 3, 4])).shape
      (3, 4, 3)
    """
    attrs = _jpeg_attrs(
        channels, ratio, fancy_upscaling, try_recover_truncated, acceptable_fraction, dct_method
    )
    return out("DecodeAndCropJpeg", [contents, crop_window], attrs, name)


def _jpeg_attrs(*values: Any) -> dict[str, Any]:
    return dict(zip(_JPEG, values, strict=True))


def decode_gif(contents: Any, name: str | None = None) -> Output:
    """Decode the frames of a GIF file as displayed: each drawn over the previous ones.

    Args:
      contents: string, shape (): the bytes of the file.
    Returns: uint8, shape (frames, height, width, 3).
    Raises: InvalidArgumentError: the bytes cannot be decoded, or claim 512 MB of pixels or more.

    Examples:
      >>> head = b"GIF89a" + bytes([1, 0, 1, 0, 128, 0, 0, 9, 8, 7, 0, 0, 0])
      >>> data = head + bytes([44, 0, 0, 0, 0, 1, 0, 1, 0, 0, 2, 2, 68, 1, 0, 59])
      >>> wf.Session().run(wf.image.decode_gif(data))
      array([[[[9, 8, 7]]]], dtype=uint8)
    """
    return out("DecodeGif", [contents], None, name)


def decode_bmp(contents: Any, channels: int = 0, name: str | None = None) -> Output:
    """Decode a BMP file of 8, 24 or 32 bits without compression; palettes are not applied.

    Args:
      contents: string, shape (): the bytes of the file.
      channels: 1, 3 or 4, which must be the file's number; or 0 for any number.
    Returns: uint8, shape (height, width, channels).
    Raises: InvalidArgumentError: the bytes cannot be decoded, or have another number of channels.

    Examples:
      >>> head = b"BM" + bytes([58, 0, 0, 0, 0, 0, 0, 0, 54, 0, 0, 0, 40, 0, 0, 0])
      >>> sizes = bytes([1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 24, 0])
      >>> data = head + sizes + bytes(24) + bytes([7, 8, 9, 0])
      >>> wf.Session().run(wf.image.decode_bmp(data))
      array([[[9, 8, 7]]], dtype=uint8)
    """
    return out("DecodeBmp", [contents], {"channels": channels}, name)


def decode_webp(
    contents: Any, channels: int = 0, dtype: Any = dtypes.uint8, name: str | None = None
) -> Output:
    """Decode the frames of a WebP file.

    Args:
      contents: string, shape (): the bytes of the file.
      channels: 3 for RGB, 4 for RGBA; 0 for the file's number.
      dtype: uint8.
    Returns: uint8, shape (frames, height, width, channels).
    Raises: InvalidArgumentError: the bytes cannot be decoded, or claim 512 MB of pixels or more.

    Examples:
      >>> wf.image.decode_webp(wf.placeholder(wf.string, []), channels=3).shape.as_list()
      [None, None, None, 3]
    """
    attrs = {"channels": channels, "dtype": dtypes.as_dtype(dtype)}
    return out("DecodeWebP", [contents], attrs, name)


def extract_jpeg_shape(
    contents: Any, output_type: Any = dtypes.int32, name: str | None = None
) -> Output:
    """Return height, width and number of channels in the header of a JPEG file.

    Args:
      contents: string, shape (): the bytes of the file.
      output_type: int32 or int64.
    Returns: shape (3,).
    Raises: InvalidArgumentError: the bytes are not a JPEG file.

    Examples:
      >>> data = wf.image.encode_jpeg(wf.zeros([16, 24, 3], wf.uint8))
      >>> wf.Session().run(wf.image.extract_jpeg_shape(data))
      array([16, 24,  3], dtype=int32)
    """
    attrs = {"output_type": dtypes.as_dtype(output_type)}
    return out("ExtractJpegShape", [contents], attrs, name)


def is_jpeg(contents: Any, name: str | None = None) -> Output:
    """Return True if bytes begin like a JPEG file.

    Args:
      contents: string, shape ().
    Returns: bool, shape ().

    Examples:
      >>> wf.Session().run(wf.image.is_jpeg(b"GIF89a"))
      np.False_
    """
    return equal(substr(contents, 0, 3), b"\xff\xd8\xff", name=name)


# --------------------------------------------------------------------------- encoding images


def encode_png(image: Any, compression: int = -1, name: str | None = None) -> Output:
    r"""Encode images as PNG files.

    Args:
      image: uint8 or uint16, shape (..., height, width, 1 to 4), not empty.
      compression: from 0 (none) to 9 (best); -1 for the default.
    Returns: string, shape (...).
    Raises: InvalidArgumentError: an attribute or the shape is invalid.

    Examples:
      >>> wf.Session().run(wf.image.encode_png(wf.zeros([2, 2, 1], wf.uint8)))[:4]
      b'\x89PNG'
    """
    value = image if isinstance(image, list) else convert_to_tensor(image)
    return out("EncodePng", [value], {"compression": compression}, name)


def encode_jpeg(
    image: Any,
    format: str = "",
    quality: int = 95,
    progressive: bool = False,
    optimize_size: bool = False,
    chroma_downsampling: bool = True,
    density_unit: str = "in",
    x_density: int = 300,
    y_density: int = 300,
    xmp_metadata: str | bytes = "",
    name: str | None = None,
) -> Output:
    """Encode an image as a JPEG file.

    Args:
      image: uint8, shape (height, width, 1 or 3), not empty.
      format: "grayscale" or "rgb" to require these channels.
      quality: from 0 to 100.
      progressive: write a progressive file.
      optimize_size: spend more time for a smaller file.
      chroma_downsampling: store colors at half the resolution.
      density_unit, x_density, y_density: pixels per "in" or "cm", for printing.
      xmp_metadata: XMP metadata to include.
    Returns: string, shape ().
    Raises: InvalidArgumentError: an attribute or the shape is invalid.

    Examples:
      >>> data = wf.Session().run(wf.image.encode_jpeg(wf.zeros([2, 2, 3], wf.uint8)))
      >>> data[6:10]
      b'JFIF'
    """
    attrs = {
        "format": format,
        "quality": quality,
        "progressive": progressive,
        "optimize_size": optimize_size,
        "chroma_downsampling": chroma_downsampling,
        "density_unit": density_unit,
        "x_density": x_density,
        "y_density": y_density,
        "xmp_metadata": xmp_metadata,
    }
    return out("EncodeJpeg", [image], attrs, name)


# ---------------------------------------------------------------------------------- sounds


class DecodeWav(NamedTuple):
    """The result of `decode_wav`."""

    audio: Output
    sample_rate: Output


def decode_wav(
    contents: Any,
    desired_channels: int = -1,
    desired_samples: int = -1,
    name: str | None = None,
) -> DecodeWav:
    """Decode a WAV file of 16-bit integers.

    Args:
      contents: string, shape (): the bytes of the file.
      desired_channels: number of channels; the last is repeated if necessary; -1 for the
        file's number.
      desired_samples: number of samples, padded with silence if necessary; -1 for the file's
        number.
    Returns: audio: float32 from -1 to 1, shape (samples, channels); sample_rate: int32, shape ().
    Raises: InvalidArgumentError: the bytes cannot be decoded.

    Examples:
      >>> data = wf.audio.encode_wav([[0.0], [0.5]], 8000)
      >>> audio, rate = wf.Session().run(list(wf.audio.decode_wav(data)))
      >>> audio[:, 0].tolist(), int(rate)
      ([0.0, 0.5], 8000)
    """
    attrs = {"desired_channels": desired_channels, "desired_samples": desired_samples}
    return DecodeWav(*create("DecodeWav", [contents], attrs, name).outputs)


def encode_wav(audio: Any, sample_rate: Any, name: str | None = None) -> Output:
    """Encode samples as a WAV file of 16-bit integers.

    Args:
      audio: float32 from -1 to 1, shape (samples, channels); other values are clipped.
      sample_rate: int32, shape (): samples per second.
    Returns: string, shape ().
    Raises: InvalidArgumentError: a number exceeds the limits of the format.

    Examples:
      >>> len(wf.Session().run(wf.audio.encode_wav([[0.0], [0.5]], 8000)))
      48
    """
    return out("EncodeWav", [audio, sample_rate], None, name)

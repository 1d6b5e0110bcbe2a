"""Ops for boxes in images: cropping, drawing and random sampling."""

from __future__ import annotations

__all__ = [
    "crop_and_resize",
    "draw_bounding_boxes",
    "extract_glimpse",
    "sample_distorted_bounding_box",
]

from collections.abc import Sequence
from typing import Any, NamedTuple

from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import convert_to_tensor, create, out
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.random_seed import get_seed
from weft_graph.ir.traits import DRAWS, NOT_DIFFERENTIABLE
from weft_graph.ops.shape_rules import merge_size, vector_as_dims, with_rank
from weft_graph.ops.shapes import deprecated_argument, shape
from weft_io.ops.image_resizing import static_sizes
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims

# ------------------------------------------------------------------------------ shape rules


def _box_count(boxes: Output, index: Output) -> int | None:
    """Return the number of boxes, checked against the number of box indices."""
    count, sides = with_rank(boxes.dims, 2, "boxes")
    if sides not in (4, None):
        raise errors.InvalidArgumentError(f"boxes must be [y1, x1, y2, x2], got {sides} numbers")
    (images,) = with_rank(index.dims, 1, "box_ind")
    return merge_size(count, images, "the numbers of boxes and of box_ind")


def _crop(node: NodeSpec) -> Sequence[Dims]:
    image = with_rank(node.inputs[0].dims, 4, "image")
    if 0 in image[1:3]:
        raise errors.InvalidArgumentError("images without pixels cannot be cropped")
    count = _box_count(node.inputs[1], node.inputs[2])
    return ((count, *static_sizes(node.inputs[3], "crop_size"), image[3]),)


def _crop_image_grad(node: NodeSpec) -> Sequence[Dims]:
    grads, boxes, index, size = node.inputs
    count, _, _, depth = with_rank(grads.dims, 4, "grads")
    merge_size(count, _box_count(boxes, index), "the numbers of grads and of boxes")
    (rank,) = with_rank(size.dims, 1, "image_size")
    if rank not in (4, None):
        raise errors.InvalidArgumentError(f"image_size must have 4 numbers, got {rank}")
    dims = vector_as_dims(size, "image_size")
    if dims is None:
        return ((None, None, None, depth),)
    merge_size(dims[3], depth, "the channels of grads and of image_size")
    return (dims,)


def _crop_box_grad(node: NodeSpec) -> Sequence[Dims]:
    grads, image, boxes, index = node.inputs
    count, _, _, depth = with_rank(grads.dims, 4, "grads")
    merge_size(depth, with_rank(image.dims, 4, "image")[3], "the channels of grads and image")
    return ((merge_size(count, _box_count(boxes, index), "the numbers of grads and boxes"), 4),)


def _glimpse(node: NodeSpec) -> Sequence[Dims]:
    batch, _, _, channels = with_rank(node.inputs[0].dims, 4, "input")
    count, sides = with_rank(node.inputs[2].dims, 2, "offsets")
    if sides not in (2, None):
        raise errors.InvalidArgumentError(f"offsets must be [y, x], got {sides} numbers")
    batch = merge_size(batch, count, "the numbers of images and offsets")
    return ((batch, *static_sizes(node.inputs[1], "size"), channels),)


def _draw_samples(node: NodeSpec) -> Sequence[Dims]:
    batch, height, width, channels = with_rank(node.inputs[0].dims, 4, "images")
    if channels not in (None, 1, 3, 4):
        raise errors.InvalidArgumentError(f"images must have 1, 3 or 4 channels, got {channels}")
    count, _, sides = with_rank(node.inputs[1].dims, 3, "boxes")
    if sides not in (4, None):
        raise errors.InvalidArgumentError(f"boxes must be [y1, x1, y2, x2], got {sides} numbers")
    if len(node.inputs) > 2:
        with_rank(node.inputs[2].dims, 2, "colors")
    batch = merge_size(batch, count, "the numbers of images and of lists of boxes")
    return ((batch, height, width, channels),)


def _sample(node: NodeSpec) -> Sequence[Dims]:
    (count,) = with_rank(node.inputs[0].dims, 1, "image_size")
    if count not in (3, None):
        raise errors.InvalidArgumentError(
            f"image_size must be [height, width, channels], got {count} numbers"
        )
    _, _, sides = with_rank(node.inputs[1].dims, 3, "bounding_boxes")
    if sides not in (4, None):
        raise errors.InvalidArgumentError(f"boxes must be [y1, x1, y2, x2], got {sides} numbers")
    if len(node.inputs) > 2:
        with_rank(node.inputs[2].dims, 0, "min_object_covered")
    _check_ranges(node)
    return ((3,), (3,), (1, 1, 4))


def _check_ranges(node: NodeSpec) -> None:
    for label, limit in (("aspect_ratio_range", None), ("area_range", 1.0)):
        values = node.attrs[label]
        fits = len(values) == 2 and 0 < values[0] <= values[1]
        if not fits or (limit is not None and values[1] > limit):
            upper = "" if limit is None else f" and at most {limit:g}"
            raise errors.InvalidArgumentError(
                f"{label} must be two numbers above 0{upper}, in order, got {list(values)}"
            )
    if node.attrs["max_attempts"] < 1:
        raise errors.InvalidArgumentError(
            f"max_attempts must be at least 1, got {node.attrs['max_attempts']}"
        )
    covered = node.attrs.get("min_object_covered", 0.0)
    if covered < 0:
        raise errors.InvalidArgumentError(f"min_object_covered must be at least 0, got {covered}")


# ----------------------------------------------------------------------------- declarations

_PIXELS = "{uint8, uint16, int8, int16, int32, int64, float16, float32, float64}"
_SAMPLE = {
    "T": "{uint8, int8, int16, int32, int64}",
    "seed": "int = 0",
    "seed2": "int = 0",
    "aspect_ratio_range": "list(float) = [0.75, 1.33]",
    "area_range": "list(float) = [0.05, 1.0]",
    "max_attempts": "int = 100",
    "use_image_if_no_bounding_boxes": "bool = false",
}

register_op(
    "CropAndResize",
    ("image: T", "boxes: float32", "box_ind: int32", "crop_size: int32"),
    ("crops: float32",),
    {
        "T": _PIXELS,
        "method": "{'bilinear', 'nearest'} = 'bilinear'",
        "extrapolation_value": "float = 0.0",
    },
    _crop,
    doc="Boxes of images, all in one size.",
)
register_op(
    "CropAndResizeGradImage",
    ("grads: float32", "boxes: float32", "box_ind: int32", "image_size: int32"),
    ("output: T",),
    {"T": "{float32, float16, float64}", "method": "{'bilinear', 'nearest'} = 'bilinear'"},
    _crop_image_grad,
    doc="The gradient of CropAndResize by its images.",
)
register_op(
    "CropAndResizeGradBoxes",
    ("grads: float32", "image: T", "boxes: float32", "box_ind: int32"),
    ("output: float32",),
    {"T": _PIXELS, "method": "{'bilinear'} = 'bilinear'"},
    _crop_box_grad,
    traits=NOT_DIFFERENTIABLE,
    doc="The gradient of CropAndResize by its boxes.",
)
for _op in ("ExtractGlimpse", "ExtractGlimpseV2"):
    register_op(
        _op,
        ("input: float32", "size: int32", "offsets: float32"),
        ("glimpse: float32",),
        {
            "centered": "bool = true",
            "normalized": "bool = true",
            "uniform_noise": "bool = true",
            "noise": "{'uniform', 'gaussian', 'zero'} = 'uniform'",
        },
        _glimpse,
        traits=DRAWS,
        doc="A window of each image, with noise where it reaches beyond.",
    )
register_op(
    "DrawBoundingBoxes",
    ("images: T", "boxes: float32"),
    ("output: T",),
    {"T": "{float32, float16} = float32"},
    _draw_samples,
    traits=NOT_DIFFERENTIABLE,
    doc="Images with the edges of boxes in colors.",
)
register_op(
    "DrawBoundingBoxesV2",
    ("images: T", "boxes: float32", "colors: float32"),
    ("output: T",),
    {"T": "{float32, float16} = float32"},
    _draw_samples,
    traits=NOT_DIFFERENTIABLE,
    doc="Images with the edges of boxes in colors that are given.",
)
register_op(
    "SampleDistortedBoundingBox",
    ("image_size: T", "bounding_boxes: float32"),
    ("begin: T", "size: T", "bboxes: float32"),
    _SAMPLE | {"min_object_covered": "float = 0.1"},
    _sample,
    traits=DRAWS,
    doc="A random part of an image that shows enough of an object.",
)
register_op(
    "SampleDistortedBoundingBoxV2",
    ("image_size: T", "bounding_boxes: float32", "min_object_covered: float32"),
    ("begin: T", "size: T", "bboxes: float32"),
    _SAMPLE,
    _sample,
    traits=DRAWS,
    doc="A random part of an image that shows enough of an object.",
)

# -------------------------------------------------------------------------------- gradients


@RegisterGradient("CropAndResize")
def _crop_grad(op: Node, grad: Output) -> list[Output | None]:
    image, boxes, index, _ = op.inputs
    method: str = op.attrs["method"]
    by_image = None
    if image.dtype.is_floating:
        attrs = {"T": image.dtype.base_dtype, "method": method}
        by_image = out("CropAndResizeGradImage", [grad, boxes, index, shape(image)], attrs)
    by_boxes = None
    if method == "bilinear":
        by_boxes = out("CropAndResizeGradBoxes", [grad, image, boxes, index])
    return [by_image, by_boxes, None, None]


@RegisterGradient("CropAndResizeGradImage")
def _crop_grad_grad(op: Node, grad: Output) -> list[Output | None]:
    grads, boxes, index, _ = op.inputs
    method: str = op.attrs["method"]
    forward = out("CropAndResize", [grad, boxes, index, shape(grads)[1:3]], {"method": method})
    by_boxes = None
    if method == "bilinear":
        by_boxes = out("CropAndResizeGradBoxes", [grads, grad, boxes, index])
    return [forward, by_boxes, None, None]


# -------------------------------------------------------------------------------- functions


def crop_and_resize(
    image: Any,
    boxes: Any,
    box_ind: Any = None,
    crop_size: Any = None,
    method: str = "bilinear",
    extrapolation_value: float = 0,
    name: str | None = None,
    box_indices: Any = None,
) -> Output:
    """Crop boxes from images and resize them; differentiable with respect to images and boxes.

    Args:
      image: real numbers, shape (batch, height, width, channels).
      boxes: float32, shape (n, 4): y1, x1, y2, x2 of the centers of the corner pixels, where 0 is
        the first row or column and 1 the last; swapped coordinates mirror the image.
      box_ind: int32, shape (n,): the image of each box.
      crop_size: int32, shape (2,): height and width of the results.
      method: "bilinear" or "nearest".
      extrapolation_value: the value of pixels outside the image.
      box_indices: newer name of `box_ind`.
    Returns: float32, shape (n, crop_size[0], crop_size[1], channels).
    Raises: InvalidArgumentError: shapes are incompatible; when it runs: an index in `box_ind` is
      out of range.

    Examples:
      >>> image = wf.reshape(wf.range(4.0), [1, 2, 2, 1])
      >>> crop = wf.image.crop_and_resize(image, [[0.0, 0.0, 1.0, 1.0]], [0], [3, 3])
      >>> wf.Session().run(crop)[0, :, :, 0]
      array([[0. , 0.5, 1. ],
             [1. , 1.5, 2. ],
             [2. , 2.5, 3. ]], dtype=float32)
    """
    index = deprecated_argument("box_indices", box_indices, "box_ind", box_ind)
    attrs = {"method": method, "extrapolation_value": extrapolation_value}
    return out("CropAndResize", [image, boxes, index, crop_size], attrs, name)


def extract_glimpse(
    input: Any,
    size: Any,
    offsets: Any,
    centered: bool = True,
    normalized: bool = True,
    uniform_noise: bool = True,
    name: str | None = None,
) -> Output:
    """Extract a window of each image, with noise outside the image.

    Args:
      input: float32, shape (batch, height, width, channels).
      size: int32, shape (2,): height and width of the windows.
      offsets: float32, shape (batch, 2): y and x of the center of each window.
      centered: measure offsets from the center of the image; otherwise from its upper left corner.
      normalized: offsets are relative to the image size, from -1 to 1 if centered, otherwise from 0
        to 1; if False, offsets are in pixels.
      uniform_noise: use uniform noise in the range of the image's values; otherwise normal noise
        with their mean and standard deviation.
    Returns: float32, shape (batch, size[0], size[1], channels).
    Raises: InvalidArgumentError: shapes are incompatible.

    Examples:
      >>> image = wf.reshape(wf.range(9.0), [1, 3, 3, 1])
      >>> wf.Session().run(wf.image.extract_glimpse(image, [1, 3], [[0.0, 0.0]]))[0, 0, :, 0]
      array([3., 4., 5.], dtype=float32)
    """
    attrs = {
        "centered": centered,
        "normalized": normalized,
        "uniform_noise": uniform_noise,
        "noise": "uniform" if uniform_noise else "gaussian",
    }
    return out("ExtractGlimpse", [input, size, offsets], attrs, name)


def draw_bounding_boxes(
    images: Any, boxes: Any, name: str | None = None, colors: Any = None
) -> Output:
    """Draw the edges of boxes, one pixel wide, on images.

    Args:
      images: float16 or float32, shape (batch, height, width, 1, 3 or 4).
      boxes: float32, shape (batch, n, 4): y1, x1, y2, x2 from 0 to 1.
      colors: float32, shape (k, channels): box i has color i modulo k; ten bright ones by default.
    Returns: dtype and shape of `images`.
    Raises: InvalidArgumentError: shapes are incompatible.

    Examples:
      >>> image = wf.zeros([1, 3, 3, 1])
      >>> drawn = wf.image.draw_bounding_boxes(image, [[[0.0, 0.0, 1.0, 1.0]]])
      >>> wf.Session().run(drawn)[0, :, :, 0]
      array([[1., 1., 1.],
             [1., 0., 1.],
             [1., 1., 1.]], dtype=float32)
    """
    value = convert_to_tensor(images)
    if colors is None:
        return out("DrawBoundingBoxes", [value, boxes], None, name)
    return out("DrawBoundingBoxesV2", [value, boxes, colors], None, name)


class SampleDistortedBoundingBoxV2(NamedTuple):
    """The result of `sample_distorted_bounding_box`."""

    begin: Output
    size: Output
    bboxes: Output


def sample_distorted_bounding_box(
    image_size: Any,
    bounding_boxes: Any,
    seed: int | None = None,
    seed2: int | None = None,
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Sequence[float] | None = None,
    area_range: Sequence[float] | None = None,
    max_attempts: int | None = None,
    use_image_if_no_bounding_boxes: bool | None = None,
    name: str | None = None,
) -> SampleDistortedBoundingBoxV2:
    """Sample a random part of an image that contains enough of an object, or the complete image.

    Args:
      image_size: integers, shape (3,): height, width and channels.
      bounding_boxes: float32, shape (batch, n, 4): y1, x1, y2, x2 of the objects, from 0 to 1.
      seed, seed2: seeds of the random numbers.
      min_object_covered: minimum fraction of at least one object in the part, shape ().
      aspect_ratio_range: range of width / height; from 0.75 to 1.33 by default.
      area_range: range of the fraction of the image's area; from 0.05 to 1 by default.
      max_attempts: number of samples after which the whole image is used; 100 by default.
      use_image_if_no_bounding_boxes: treat the image as the object if there is none.
    Returns: begin and size, as for `slice`, dtype of `image_size`, shape (3,); bboxes: the part as
      a box, float32, shape (1, 1, 4).
    Raises: InvalidArgumentError: a range or a shape is invalid; when it runs: there is no object.

    Examples:
      >>> image = wf.zeros([20, 30, 3])
      >>> begin, size, _ = wf.image.sample_distorted_bounding_box(
      ...     wf.shape(image), [[[0.2, 0.2, 0.8, 0.8]]], seed=1, min_object_covered=0.5)
      >>> wf.slice(image, begin, size).shape.as_list()
      [None, None, None]
    """
    if seed is None and seed2 is None:
        seed, seed2 = get_seed(None)
    ranges = {
        "aspect_ratio_range": aspect_ratio_range,
        "area_range": area_range,
        "max_attempts": max_attempts,
        "use_image_if_no_bounding_boxes": use_image_if_no_bounding_boxes,
    }
    attrs = {key: value for key, value in ranges.items() if value is not None}
    attrs |= {"seed": seed or 0, "seed2": seed2 or 0}
    covered = convert_to_tensor(min_object_covered, dtypes.float32)
    inputs = [image_size, bounding_boxes, covered]
    result = create("SampleDistortedBoundingBoxV2", inputs, attrs, name)
    return SampleDistortedBoundingBoxV2(*result.outputs)

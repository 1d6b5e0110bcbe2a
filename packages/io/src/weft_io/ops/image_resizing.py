"""Ops that resize images."""

from __future__ import annotations

__all__ = ["resize_area", "resize_bicubic", "resize_bilinear", "resize_nearest_neighbor"]

from collections.abc import Sequence
from typing import Any

from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import NOT_DIFFERENTIABLE, PLAIN, Traits
from weft_graph.ops.shape_rules import constant_array, merge_size, with_rank
from weft_graph.ops.shapes import shape
from weft_tensor import errors
from weft_tensor.shape import Dims

# ------------------------------------------------------------------------------ shape rules


def static_sizes(size: Output, label: str) -> tuple[int | None, int | None]:
    """Return the statically known height and width.

    Raises: InvalidArgumentError: they are not two numbers of at least 1; the message names `label`.
    """
    (count,) = with_rank(size.dims, 1, label)
    if count not in (None, 2):
        raise errors.InvalidArgumentError(f"{label} must be [height, width], got {count} numbers")
    constant = constant_array(size)
    if constant is None:
        return None, None
    height, width = constant.tolist()
    if min(height, width) < 1:
        raise errors.InvalidArgumentError(
            f"{label} must be at least [1, 1], got {constant.tolist()}"
        )
    return height, width


def _resize_shape(node: NodeSpec) -> Sequence[Dims]:
    batch, height, width, channels = with_rank(node.inputs[0].dims, 4, "images")
    if 0 in (height, width):
        raise errors.InvalidArgumentError("images without pixels cannot be resized")
    return ((batch, *static_sizes(node.inputs[1], "size"), channels),)


def _original(node: NodeSpec) -> Sequence[Dims]:
    grads = with_rank(node.inputs[0].dims, 4, "grads")
    image = with_rank(node.inputs[1].dims, 4, "original_image")
    batch = merge_size(grads[0], image[0], "the batch sizes of grads and original_image")
    channels = merge_size(grads[3], image[3], "the channels of grads and original_image")
    return ((batch, image[1], image[2], channels),)


def _translate(node: NodeSpec) -> Sequence[Dims]:
    _check_pair(node.inputs[2], "scale")
    _check_pair(node.inputs[3], "translation")
    return _resize_shape(node) if node.inputs[1].dtype.is_integer else _original(node)


def _check_pair(value: Output, label: str) -> None:
    (count,) = with_rank(value.dims, 1, label)
    if count not in (None, 2):
        raise errors.InvalidArgumentError(f"{label} must have 2 numbers, got {count}")


# ----------------------------------------------------------------------------- declarations

_PIXELS = "{int8, uint8, int16, uint16, int32, int64, float16, float32, float64, bfloat16}"
_FLAGS = {"align_corners": "bool = false", "half_pixel_centers": "bool = false"}
_FILTER = {
    "kernel_type": "{'lanczos1', 'lanczos3', 'lanczos5', 'gaussian', 'box', 'triangle', "
    "'keyscubic', 'mitchellcubic'} = 'lanczos3'",
    "antialias": "bool = true",
}
_OF_SHAPE = Traits(shape_only=frozenset({1}))

for _op, _doc in (
    ("ResizeBilinear", "Images in another size, by the nearest four pixels."),
    ("ResizeBicubic", "Images in another size, by the nearest sixteen pixels."),
):
    register_op(
        _op,
        ("images: T", "size: int32"),
        ("resized_images: float32",),
        {"T": _PIXELS, **_FLAGS},
        _resize_shape,
        doc=_doc,
    )
register_op(
    "ResizeBilinearGrad",
    ("grads: float32", "original_image: T"),
    ("output: T",),
    {"T": "{float32, bfloat16, float16, float64}", **_FLAGS},
    _original,
    traits=_OF_SHAPE,
    doc="The gradient of ResizeBilinear by its images.",
)
register_op(
    "ResizeBicubicGrad",
    ("grads: float32", "original_image: T"),
    ("output: T",),
    {"T": "{float32, float64}", **_FLAGS},
    _original,
    traits=_OF_SHAPE,
    doc="The gradient of ResizeBicubic by its images.",
)
register_op(
    "ResizeNearestNeighbor",
    ("images: T", "size: int32"),
    ("resized_images: T",),
    {"T": _PIXELS, **_FLAGS},
    _resize_shape,
    doc="Images in another size, by the nearest pixel.",
)
register_op(
    "ResizeNearestNeighborGrad",
    ("grads: T", "size: int32"),
    ("output: T",),
    {"T": "{uint8, int8, int32, float16, float32, float64, bfloat16}", **_FLAGS},
    _resize_shape,
    doc="The gradient of ResizeNearestNeighbor by images of a size.",
)
register_op(
    "ResizeArea",
    ("images: T", "size: int32"),
    ("resized_images: float32",),
    {"T": _PIXELS, "align_corners": "bool = false"},
    _resize_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="Images in another size, by the mean of what each pixel covers.",
)
register_op(
    "ScaleAndTranslate",
    ("images: T", "size: int32", "scale: float32", "translation: float32"),
    ("resized_images: float32",),
    {"T": _PIXELS, **_FILTER},
    _translate,
    traits=PLAIN,
    doc="Images scaled by factors along both axes and moved, by a filter of some kind.",
)
register_op(
    "ScaleAndTranslateGrad",
    ("grads: T", "original_image: T", "scale: float32", "translation: float32"),
    ("output: T",),
    {"T": "{float32}", **_FILTER},
    _translate,
    traits=_OF_SHAPE,
    doc="The gradient of ScaleAndTranslate by its images.",
)

# -------------------------------------------------------------------------------- gradients


def _flags(op: Node) -> dict[str, Any]:
    return {name: op.attrs[name] for name in _FLAGS}


def _size(images: Output) -> Output:
    """Return the height and width of images."""
    return shape(images)[1:3]


@RegisterGradient("ResizeBilinear")
@RegisterGradient("ResizeBicubic")
def _resize_grad(op: Node, grad: Output) -> list[Output | None]:
    images = op.inputs[0]
    if not images.dtype.is_floating:
        return [None, None]
    if op.type == "ResizeBicubic" and images.dtype.size < 4:
        wide = out("Cast", [images], {"DstT": "float32"})
        narrow = out(f"{op.type}Grad", [grad, wide], _flags(op))
        return [out("Cast", [narrow], {"DstT": images.dtype.base_dtype}), None]
    return [out(f"{op.type}Grad", [grad, images], _flags(op)), None]


@RegisterGradient("ResizeBilinearGrad")
@RegisterGradient("ResizeBicubicGrad")
def _resize_grad_grad(op: Node, grad: Output) -> list[Output | None]:
    forward = op.type.removesuffix("Grad")
    return [out(forward, [grad, _size(op.inputs[0])], _flags(op)), None]


@RegisterGradient("ResizeNearestNeighbor")
def _nearest_grad(op: Node, grad: Output) -> list[Output | None]:
    images = op.inputs[0]
    if not images.dtype.is_floating:
        return [None, None]
    return [out("ResizeNearestNeighborGrad", [grad, _size(images)], _flags(op)), None]


@RegisterGradient("ResizeNearestNeighborGrad")
def _nearest_grad_grad(op: Node, grad: Output) -> list[Output | None]:
    return [out("ResizeNearestNeighbor", [grad, _size(op.inputs[0])], _flags(op)), None]


@RegisterGradient("ScaleAndTranslate")
def _scale_grad(op: Node, grad: Output) -> list[Output | None]:
    images, _, scale, translation = op.inputs
    if not images.dtype.is_floating:
        return [None] * 4
    dtype = images.dtype.base_dtype
    attrs = {name: op.attrs[name] for name in _FILTER}
    wide = out("Cast", [images], {"DstT": "float32"}) if dtype.name != "float32" else images
    image_grad = out("ScaleAndTranslateGrad", [grad, wide, scale, translation], attrs)
    return [
        out("Cast", [image_grad], {"DstT": dtype}) if wide is not images else image_grad,
        None,
        None,
        None,
    ]


@RegisterGradient("ScaleAndTranslateGrad")
def _scale_grad_grad(op: Node, grad: Output) -> list[Output | None]:
    grads, _, scale, translation = op.inputs
    attrs = {name: op.attrs[name] for name in _FILTER}
    forward = out("ScaleAndTranslate", [grad, _size(grads), scale, translation], attrs)
    return [forward, None, None, None]


# -------------------------------------------------------------------------------- functions


def resize_bilinear(
    images: Any,
    size: Any,
    align_corners: bool = False,
    name: str | None = None,
    half_pixel_centers: bool = False,
) -> Output:
    """Resize images by bilinear interpolation between the four nearest pixels.

    Args:
      images: real numbers, shape (B, H, W, C).
      size: int32, shape (2,): the new height and width.
      align_corners: align the centers of all corner pixels; by default only that of the upper left
        one is aligned.
      half_pixel_centers: align the corners of the images, as most other libraries do.
    Returns: float32, shape (B, size[0], size[1], C).
    Raises: InvalidArgumentError: a size is below 1, or the images have no pixels.

    Examples:
      >>> image = wf.constant([[[[0.0], [2.0]]]])
      >>> wf.Session().run(wf.image.resize_bilinear(image, [1, 4]))[0, 0, :, 0]
      array([0., 1., 2., 2.], dtype=float32)
    """
    return _resize("ResizeBilinear", images, size, align_corners, half_pixel_centers, name)


def resize_bicubic(
    images: Any,
    size: Any,
    align_corners: bool = False,
    name: str | None = None,
    half_pixel_centers: bool = False,
) -> Output:
    """Resize images by bicubic interpolation of the sixteen nearest pixels (Keys' kernel).

    Args:
      images, size, align_corners, half_pixel_centers: as for `resize_bilinear`.
    Returns: float32, shape (B, size[0], size[1], C); values may exceed the range of `images`.
    Raises: InvalidArgumentError: a size is below 1, or the images have no pixels.

    Examples:
      >>> image = wf.constant([[[[0.0], [2.0]]]])
      >>> wf.Session().run(wf.image.resize_bicubic(image, [1, 4]))[0, 0, :, 0]
      array([0.   , 1.   , 2.   , 2.1875], dtype=float32)
    """
    return _resize("ResizeBicubic", images, size, align_corners, half_pixel_centers, name)


def resize_nearest_neighbor(
    images: Any,
    size: Any,
    align_corners: bool = False,
    name: str | None = None,
    half_pixel_centers: bool = False,
) -> Output:
    """Resize images by copying the nearest pixel.

    Args:
      images, size, align_corners, half_pixel_centers: as for `resize_bilinear`.
    Returns: dtype of `images`, shape (B, size[0], size[1], C).
    Raises: InvalidArgumentError: a size is below 1, or the images have no pixels.

    Examples:
      >>> image = wf.constant([[[[0.0], [2.0]]]])
      >>> wf.Session().run(wf.image.resize_nearest_neighbor(image, [1, 4]))[0, 0, :, 0]
      array([0., 0., 2., 2.], dtype=float32)
    """
    return _resize("ResizeNearestNeighbor", images, size, align_corners, half_pixel_centers, name)


def resize_area(
    images: Any, size: Any, align_corners: bool = False, name: str | None = None
) -> Output:
    """Resize images; each pixel is the mean of the area that it covers. Not differentiable.

    Args:
      images, size, align_corners: as for `resize_bilinear`.
    Returns: float32, shape (B, size[0], size[1], C).
    Raises: InvalidArgumentError: a size is below 1, or the images have no pixels.

    Examples:
      >>> image = wf.constant([[[[0.0], [2.0], [3.0], [5.0]]]])
      >>> wf.Session().run(wf.image.resize_area(image, [1, 2]))[0, 0, :, 0]
      array([1., 4.], dtype=float32)
    """
    return out("ResizeArea", [images, size], {"align_corners": align_corners}, name)


def _resize(op: str, images: Any, size: Any, align: bool, half: bool, name: str | None) -> Output:
    attrs = {"align_corners": align, "half_pixel_centers": half}
    if align and half:
        raise errors.InvalidArgumentError(
            "align_corners and half_pixel_centers exclude each other, got both"
        )
    return out(op, [images, size], attrs, name)

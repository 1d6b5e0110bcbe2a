"""Flips, rotations and transposition of images."""

from __future__ import annotations

__all__ = [
    "flip_left_right",
    "flip_up_down",
    "random_flip_left_right",
    "random_flip_up_down",
    "rot90",
    "transpose",
]

from typing import Any

from weft_graph.control_flow.conditional import case
from weft_graph.ir.builder import out
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.ops import permutation
from weft_graph.ops.comparison import equal
from weft_graph.ops.identity import identity
from weft_graph.ops.join import concat
from weft_graph.ops.random import random_uniform
from weft_graph.ops.sequence import range as number_range
from weft_graph.ops.shapes import rank, shape
from weft_io.image.shapes import convert_images


def flip_left_right(image: Any) -> Output:
    """Flip images horizontally.

    Args:
      image: any type, shape (height, width, channels) or (batch, height, width, channels).
    Returns: dtype and shape of `image`.
    Raises: InvalidArgumentError: the rank is not 3 or 4.

    Examples:
      >>> wf.Session().run(wf.image.flip_left_right([[[1], [2]]]))[0, :, 0]
      array([2, 1], dtype=int32)
    """
    return permutation.reverse(convert_images(image), [-2])


def flip_up_down(image: Any) -> Output:
    """Flip images vertically.

    Args:
      image: any type, shape (height, width, channels) or (batch, height, width, channels).
    Returns: dtype and shape of `image`.
    Raises: InvalidArgumentError: the rank is not 3 or 4.

    Examples:
      >>> wf.Session().run(wf.image.flip_up_down([[[1]], [[2]]]))[:, 0, 0]
      array([2, 1], dtype=int32)
    """
    return permutation.reverse(convert_images(image), [-3])


def random_flip_left_right(image: Any, seed: int | None = None) -> Output:
    """Flip each image horizontally with a probability of one half.

    Args:
      image: any type, shape (height, width, channels) or (batch, height, width, channels).
      seed: seed of the random numbers.
    Returns: dtype and shape of `image`.
    Raises: InvalidArgumentError: the rank is not 3 or 4.

    Examples:
      >>> wf.image.random_flip_left_right(wf.zeros([4, 5, 3]), seed=1).shape.as_list()
      [4, 5, 3]
    """
    return _random_flip(image, -2, seed, "random_flip_left_right")


def random_flip_up_down(image: Any, seed: int | None = None) -> Output:
    """Flip each image vertically with a probability of one half.

    Args:
      image: any type, shape (height, width, channels) or (batch, height, width, channels).
      seed: seed of the random numbers.
    Returns: dtype and shape of `image`.
    Raises: InvalidArgumentError: the rank is not 3 or 4.

    Examples:
      >>> wf.image.random_flip_up_down(wf.zeros([4, 5, 3]), seed=1).shape.as_list()
      [4, 5, 3]
    """
    return _random_flip(image, -3, seed, "random_flip_up_down")


def _random_flip(image: Any, axis: int, seed: int | None, name: str) -> Output:
    with name_scope(None, name, [image]) as scope:
        value = convert_images(image)
        draws = concat([shape(value)[:-3], [1, 1, 1]], 0)
        flips = random_uniform(draws, 0, 1.0, seed=seed) < 0.5
        result = out("SelectV2", [flips, permutation.reverse(value, [axis]), value], name=scope)
        result.set_shape(value.shape)
        return result


def rot90(image: Any, k: Any = 1, name: str | None = None) -> Output:
    """Rotate images counterclockwise by multiples of 90 degrees.

    Args:
      image: any type, shape (height, width, channels) or (batch, height, width, channels).
      k: number of rotations by 90 degrees: an integer, or an integer tensor of shape ().
    Returns: dtype of `image`.
    Raises: InvalidArgumentError: the rank is not 3 or 4.

    Examples:
      >>> wf.Session().run(wf.image.rot90([[[1], [2]]]))[:, 0, 0]
      array([2, 1], dtype=int32)
    """
    with name_scope(name, "rot90", [image, k]) as scope:
        value = convert_images(image)
        if isinstance(k, int):
            return identity(_rotate(value, k % 4), name=scope)
        quarters = out("FloorMod", [k, 4])
        rotations = [(equal(quarters, i), lambda i=i: _rotate(value, i)) for i in (1, 2, 3)]
        result = case(rotations, default=lambda: value, exclusive=True, name=scope)
        if value.dims is not None:
            result.set_shape([*value.dims[:-3], None, None, value.dims[-1]])
        output: Output = result
        return output


def _rotate(value: Output, quarters: int) -> Output:
    match quarters:
        case 1:
            return _swap_bytes(permutation.reverse(value, [-2]))
        case 2:
            return permutation.reverse(value, [-3, -2])
        case 3:
            return permutation.reverse(_swap_bytes(value), [-2])
    return value


def _swap_bytes(value: Output, name: str = "transpose") -> Output:
    """Exchange height and width."""
    if value.dims is not None:
        lead = list(range(len(value.dims) - 3))
        count = len(lead)
        order: Any = [*lead, count + 1, count, count + 2]
    else:
        last = rank(value)
        order = concat([number_range(last - 3), [last - 2, last - 3, last - 1]], 0)
    return permutation.transpose(value, order, name=name)


def transpose(image: Any, name: str | None = None) -> Output:
    """Exchange height and width of images.

    Args:
      image: any type, shape (height, width, channels) or (batch, height, width, channels).
    Returns: dtype of `image`, shape (width, height, channels), or (batch, width, height, channels).
    Raises: InvalidArgumentError: the rank is not 3 or 4.

    Examples:
      >>> wf.image.transpose(wf.zeros([2, 4, 5, 3])).shape.as_list()
      [2, 5, 4, 3]
    """
    return _swap_bytes(convert_images(image), name or "transpose_image")

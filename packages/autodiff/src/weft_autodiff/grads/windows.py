"""Values of an image's pooling windows along an extra axis, for second gradients."""

from __future__ import annotations

from typing import TypeAlias

from weft_graph.ir.node import Output
from weft_graph.ops import gather, permutation, shapes

Positions: TypeAlias = tuple[Output, Output]
"""Positions in each window along an axis, and a mask of the valid ones: both of shape (windows,
positions). Invalid entries are arbitrary positions in the image.
"""


def side_by_side(down: Positions, right: Positions, *images: Output) -> tuple[list[Output], Output]:
    """Return the values of each window along an extra axis.

    Args:
      down, right: along both axes.
      *images: shape (N, height, width, C).
    Returns: the values for each image, shape (N, H, W, positions, C), and a mask of the valid ones,
      shape (H, W, positions, 1).
    """
    parts = []
    for image in images:
        lines = gather.gather(image, down[0], axis=1)  # (N, H, rows, width, C)
        columns = permutation.transpose(gather.gather(lines, right[0], axis=3), [0, 1, 3, 2, 4, 5])
        sizes = shapes.shape(columns)
        parts.append(shapes.reshape(columns, [*[sizes[i] for i in range(3)], -1, sizes[5]]))
    overlap = down[1][:, None, :, None] & right[1][None, :, None, :]
    sizes = shapes.shape(overlap)
    return parts, shapes.reshape(overlap, [sizes[0], sizes[1], -1, 1])

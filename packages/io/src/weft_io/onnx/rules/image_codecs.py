"""Decoding of images."""

from __future__ import annotations

from typing import Final

import numpy as np

from weft_graph.ir.builder import constant, out
from weft_graph.ir.node import Output
from weft_graph.ops.gather import gather
from weft_graph.ops.permutation import reverse
from weft_graph.ops.reduction import reduce_sum
from weft_graph.ops.strings import reduce_join
from weft_io.onnx.operation import Operation, cast
from weft_io.onnx.registry import importer
from weft_tensor import dtypes, errors

_BYTES: Final = np.array([bytes([item]) for item in range(256)], object)
_LUMA: Final = np.array([19595, 38470, 7471], np.int32)
"""Weights of red, green and blue in gray (ITU-R BT.601), in units of 1/65536."""


@importer("ImageDecoder")
def _image_decoder(operation: Operation) -> Output:
    """Import an image decoder; malformed data is an error, whereas ONNX returns an empty result."""
    kind = operation.attribute("pixel_format", "RGB")
    if kind not in ("RGB", "BGR", "Grayscale"):
        raise errors.InvalidArgumentError(
            f"pixel_format must be RGB, BGR or Grayscale, got {kind!r}"
        )
    data = reduce_join(gather(constant(_BYTES), cast(operation.require_rank(1), dtypes.int32)))
    pixels = {"channels": 3, "dtype": dtypes.uint8, "expand_animations": False}
    image = out("DecodeImage", [data], pixels)
    if kind == "RGB":
        return image
    if kind == "BGR":
        return reverse(image, [2])
    sums = reduce_sum(cast(image, dtypes.int32) * constant(_LUMA), 2, True)
    return cast((sums + 32768) // 65536, dtypes.uint8)

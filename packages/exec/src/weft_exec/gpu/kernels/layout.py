"""GPU kernels that move elements otherwise than those over the array module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.gpu.element_types import INEXACT, INTEGERS
from weft_exec.gpu.kernels.conv import windows
from weft_exec.kernels.layout import _same_margin
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_graph.ops.shape_rules import normal_axis
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


@kernel("ReverseSequence", device="GPU")
def _reverse_sequence(node: Node, device: Device) -> KernelFunction:
    xp = device.xp

    def run(x: Any, lengths: Any) -> Any:
        batch = normal_axis(node.attrs["batch_dim"], x.ndim, "batch_dim")
        along = normal_axis(node.attrs["seq_dim"], x.ndim, "seq_dim")
        if lengths.shape != (x.shape[batch],):
            raise errors.InvalidArgumentError(
                f"seq_lengths must have shape [{x.shape[batch]}], got {format_dims(lengths.shape)}"
            )
        rows = xp.moveaxis(x, (batch, along), (0, 1))
        at = xp.arange(x.shape[along])[None, :]
        ends = lengths.astype(np.int64)[:, None]
        source = xp.where(at < ends, ends - 1 - at, at)
        picked = rows[xp.arange(x.shape[batch])[:, None], source]
        return xp.ascontiguousarray(xp.moveaxis(picked, (0, 1), (batch, along)))

    return run


@kernel("ExtractImagePatches", device="GPU", dtypes={"T": (*INEXACT, *INTEGERS)})
def _extract_image_patches(node: Node, device: Device) -> KernelFunction:
    (_, kh, kw, _), (_, sh, sw, _) = node.attrs["ksizes"], node.attrs["strides"]
    _, rh, rw, _ = node.attrs["rates"]
    high, wide = (kh - 1) * rh + 1, (kw - 1) * rw + 1
    xp, same = device.xp, node.attrs["padding"] == "SAME"

    def run(images: Any) -> Any:
        n, h, w, c = images.shape
        if same:
            margins = [_same_margin(h, high, sh), _same_margin(w, wide, sw)]
            images = xp.pad(images, [(0, 0), *margins, (0, 0)])
        if images.shape[1] < high or images.shape[2] < wide:
            raise errors.InvalidArgumentError(
                f"a window of {[high, wide]} does not fit images of {[h, w]}"
            )
        counts = (images.shape[1] - high) // sh + 1, (images.shape[2] - wide) // sw + 1
        view = windows(xp, images, (kh, kw), (sh, sw), (rh, rw), counts)
        return view.reshape(n, *counts, kh * kw * c)

    return run

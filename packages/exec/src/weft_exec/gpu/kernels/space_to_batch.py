"""GPU kernels of patches of images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_exec.gpu.element_types import INEXACT, INTEGERS
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.kernels.sliding import windows
from weft_exec.kernels.space_to_batch import same_margin
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


@kernel("ExtractImagePatches", device="GPU", dtypes={"T": (*INEXACT, *INTEGERS)})
def _extract_image_patches(node: Node, device: Device) -> KernelFunction:
    (_, kh, kw, _), (_, sh, sw, _) = node.attrs["ksizes"], node.attrs["strides"]
    _, rh, rw, _ = node.attrs["rates"]
    high, wide = (kh - 1) * rh + 1, (kw - 1) * rw + 1
    xp, same = device.xp, node.attrs["padding"] == "SAME"

    def run(images: Any) -> Any:
        n, h, w, c = images.shape
        if same:
            margins = [same_margin(h, high, sh), same_margin(w, wide, sw)]
            images = xp.pad(images, [(0, 0), *margins, (0, 0)])
        if images.shape[1] < high or images.shape[2] < wide:
            raise errors.InvalidArgumentError(
                f"a window of {[high, wide]} does not fit images of {[h, w]}"
            )
        counts = (images.shape[1] - high) // sh + 1, (images.shape[2] - wide) // sw + 1
        view = windows(xp, images, (kh, kw), (sh, sw), (rh, rw), counts)
        return view.reshape(n, *counts, kh * kw * c)

    return run

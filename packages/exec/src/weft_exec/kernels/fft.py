"""Kernels of Fourier transforms by NumPy, which preserves single precision, or by CuPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.kernels.common import as_exact, new_array
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFunction, kernel
from weft_graph.ops.fft import half
from weft_graph.ops.shape_rules import normal_axes
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

BLOCK_BYTES: Final = 1 << 20
_HOST = ("fft_length", "axes")


def _register_whole(op: str, rank: int) -> None:
    """Register the kernel of a transform over the complete innermost axes."""

    @kernel(op, device=ARRAY_DEVICE, heavy=True)
    def make(node: Node, device: Device) -> KernelFunction:
        xp, dtype = device.xp, node.outputs[0].dtype.numpy
        line = np.fft.ifft if op[0] == "I" else np.fft.fft
        function = xp.fft.ifftn if op[0] == "I" else xp.fft.fftn
        axes = tuple(range(-rank, 0))

        def run(x: Any) -> Any:
            if x.ndim < rank:
                raise errors.InvalidArgumentError(
                    f"requires rank at least {rank}, got shape {list(x.shape)}"
                )
            if not x.size:
                return xp.zeros(x.shape, dtype)
            if xp is not np:
                return as_exact(function(x, axes=axes), dtype, device)
            result = new_array(device, x.shape, dtype)
            inner = x.shape[x.ndim - rank :]
            _apply_by_blocks(line, x.reshape(-1, *inner), result.reshape(-1, *inner))
            return result

        return run


def _apply_by_blocks(line: Callable[..., Any], x: Any, result: Any) -> None:
    """Apply `line` to all axes except the first, block by block so that data stays in the cache."""
    step = max(1, len(x) * BLOCK_BYTES // x.nbytes)
    for index in range(0, len(x), step):
        part = result[index : index + step]
        line(x[index : index + step], axis=-1, out=part)
        for axis in range(x.ndim - 2, 0, -1):
            line(part, axis=axis, out=part)


def _register_fitted(op: str, rank: int | None) -> None:
    """Register the kernel of a transform of given lengths.

    With `rank=None` the axes are an input too.
    """

    @kernel(op, device=ARRAY_DEVICE, host=_HOST if rank is None else _HOST[:1], heavy=True)
    def make(node: Node, device: Device) -> KernelFunction:
        dtype, xp = node.outputs[0].dtype.numpy, device.xp
        function = _FUNCTIONS[op.removesuffix("2D").removesuffix("3D").removesuffix("ND")]
        halves = op.startswith("RFFT"), op.startswith("IRFFT")

        def run(x: Any, lengths: Any, axes_input: Any = None) -> Any:
            axes = _axes(x, lengths, rank, axes_input)
            sizes = [int(n) for n in lengths]
            x = _crop_input(x, axes, sizes, halves[1])
            shape = list(x.shape)
            for axis, size in zip(axes, sizes, strict=True):
                shape[axis] = half(size) if halves[0] and axis == axes[-1] else size
            if 0 in shape or not x.size:
                return xp.zeros(shape, dtype)
            if not axes:
                return x.real.astype(dtype) if halves[1] else x.astype(dtype)
            return as_exact(function(xp, x, axes, sizes), dtype, device)

        return run


def _axes(x: Any, lengths: Any, rank: int | None, axes: Any) -> list[int]:
    """Return the axes of a transform, counted from the front.

    Raises: InvalidArgumentError: the number of lengths is wrong, or the input's rank too small.
    """
    count = len(axes) if rank is None else rank
    if lengths.shape != (count,) or (lengths < 0).any() or x.ndim < count:
        raise errors.InvalidArgumentError(
            f"requires {count} lengths of at least 0 and rank at least {count}, got fft_length "
            f"{lengths.tolist()} and shape {list(x.shape)}"
        )
    return normal_axes(range(-count, 0) if rank is not None else axes.tolist(), x.ndim)


def _crop_input(x: Any, axes: Sequence[int], sizes: Sequence[int], halved: bool) -> Any:
    """Return the part of the input that the transform reads.

    Raises: InvalidArgumentError: an axis is too short.
    """
    index = [slice(None)] * x.ndim
    for axis, size in zip(axes, sizes, strict=True):
        num_kept = half(size) if halved and axis == axes[-1] else size
        if x.shape[axis] < num_kept:
            raise errors.InvalidArgumentError(
                f"a transform of length {size} requires at least {num_kept} elements along axis "
                f"{axis}, got shape {list(x.shape)}"
            )
        index[axis] = slice(num_kept)
    return x[tuple(index)]


def _real_inverse(xp: Any, x: Any, axes: Sequence[int], sizes: Sequence[int]) -> Any:
    # Complex transforms first: a transform over several axes at once may rely on a symmetry that
    # the input lacks if it is not the transform of real numbers.
    if len(axes) > 1:
        x = xp.fft.ifftn(x, axes=tuple(axes[:-1]))
    return xp.fft.irfft(x, sizes[-1], axis=axes[-1])


_FUNCTIONS = {
    "FFT": lambda xp, x, axes, sizes: xp.fft.fftn(x, axes=tuple(axes)),
    "IFFT": lambda xp, x, axes, sizes: xp.fft.ifftn(x, axes=tuple(axes)),
    "RFFT": lambda xp, x, axes, sizes: xp.fft.rfftn(x, axes=tuple(axes)),
    "IRFFT": _real_inverse,
}

for _rank, _suffix in ((1, ""), (2, "2D"), (3, "3D")):
    _register_whole(f"FFT{_suffix}", _rank)
    _register_whole(f"IFFT{_suffix}", _rank)
    _register_fitted(f"RFFT{_suffix}", _rank)
    _register_fitted(f"IRFFT{_suffix}", _rank)
for _op in ("FFTND", "IFFTND", "RFFTND", "IRFFTND"):
    _register_fitted(_op, None)

"""A stand-in for nvidia-cudnn-frontend: its graphs, computed by NumPy."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from cupy_standin.arrays import ndarray, touched

Sizes = list[int]


class cudnnGraphNotSupportedError(Exception):  # noqa: N801, as cuDNN's
    """Error for a graph that no engine supports."""


class Tensor:
    """A tensor of a graph: sizes and strides in elements, in the order (N, C, ...)."""

    def __init__(self) -> None:
        self.output = False

    def set_output(self, value: bool) -> Tensor:
        self.output = value
        return self

    def set_data_type(self, value: Any) -> Tensor:
        self.data_type = value
        return self

    def set_dim(self, value: Sizes) -> Tensor:
        self.dim = value
        return self

    def set_stride(self, value: Sizes) -> Tensor:
        self.stride = value
        return self

    def view(self, array: ndarray) -> Any:
        """Return the elements of a buffer in the layout of this tensor."""
        assert array._a.flags.c_contiguous, "cuDNN takes a pointer"
        assert np.prod(self.dim) == array.size
        wanted = {"float": np.float32, "half": np.float16}[self.data_type]
        assert array.dtype == wanted
        steps = [step * array.itemsize for step in self.stride]
        return np.lib.stride_tricks.as_strided(array._a, self.dim, steps)


class Graph:
    """Like `cudnn.pygraph`."""

    supported = True
    made = 0

    def __init__(
        self, handle: Any = None, intermediate_data_type: Any = None, compute_data_type: Any = None
    ) -> None:
        self._inputs: list[Tensor] = []
        self._results: tuple[Tensor, ...] = ()
        self._work: Any = None
        self._is_built = False

    def tensor(self, dim: Sizes, stride: Sizes, data_type: Any, name: str) -> Tensor:
        made = Tensor().set_dim(dim).set_stride(stride).set_data_type(data_type)
        self._inputs.append(made)
        return made

    def _operation(self, a: Tensor, b: Tensor, work: Any) -> Tensor:
        return self._operations([a, b], 1, work)[0]

    def _operations(self, inputs: list[Tensor], count: int, work: Any) -> tuple[Tensor, ...]:
        assert inputs == self._inputs
        self._work = work
        self._results = tuple(Tensor() for _ in range(count))
        return self._results

    def conv_fprop(self, image: Tensor, weight: Tensor, **windows: Sizes) -> Tensor:
        def work(x: Any, w: Any, y: Any) -> None:
            for out, taps in _taps(x, w.shape, y.shape, **windows):
                y[...] += np.einsum("nc...,oc->no...", taps, w[(..., *out)])

        return self._operation(image, weight, work)

    def conv_dgrad(self, loss: Tensor, filter: Tensor, **windows: Sizes) -> Tensor:
        def work(dy: Any, w: Any, dx: Any) -> None:
            for out, taps in _taps(dx, w.shape, dy.shape, **windows):
                taps[...] += np.einsum("no...,oc->nc...", dy, w[(..., *out)])

        return self._operation(loss, filter, work)

    def conv_wgrad(self, image: Tensor, loss: Tensor, **windows: Sizes) -> Tensor:
        def work(x: Any, dy: Any, dw: Any) -> None:
            for out, taps in _taps(x, dw.shape, dy.shape, **windows):
                flat = taps.reshape(*taps.shape[:2], -1), dy.reshape(*dy.shape[:2], -1)
                dw[(..., *out)] = np.einsum("nci,noi->oc", *flat)

        return self._operation(image, loss, work)

    def batchnorm_backward(
        self, grad: Tensor, input: Tensor, scale: Tensor, mean: Tensor, inv_variance: Tensor
    ) -> tuple[Tensor, ...]:
        def work(dy: Any, x: Any, scale: Any, mean: Any, inv: Any, *results: Any) -> None:
            axes = (0, *range(2, x.ndim))
            by_x, by_scale, by_bias = results
            normal = (x - mean) * inv
            by_bias[...] = dy.sum(axes, keepdims=True)
            by_scale[...] = (dy * normal).sum(axes, keepdims=True)
            count = x.size // x.shape[1]
            by_x[...] = scale * inv * (dy - (by_bias + normal * by_scale) / count)

        return self._operations([grad, input, scale, mean, inv_variance], 3, work)

    def build(self, heuristics: Any = None) -> None:
        if not Graph.supported:
            raise cudnnGraphNotSupportedError("no engine")
        assert self._results and all(result.output for result in self._results)
        Graph.made += 1
        self._is_built = True

    def get_workspace_size(self) -> int:
        return 16

    def execute(self, tensor_dict: Any, workspace: Any, handle: Any = None) -> None:
        assert self._is_built and workspace.nbytes >= 16
        tensors, count = (*self._inputs, *self._results), len(self._inputs)
        assert set(tensor_dict) == set(tensors)
        arrays = [tensor_dict[tensor] for tensor in tensors]
        touched("cudnn", arrays[:count], arrays[count:])
        views = [t.view(a) for t, a in zip(tensors, arrays, strict=True)]
        wide = [view.astype(np.float32) for view in views]
        for result in wide[count:]:
            result[...] = 0
        self._work(*wide)
        for view, result in zip(views[count:], wide[count:], strict=True):
            view[...] = result


def _taps(
    x: Any, filters: Any, counts: Any, pre_padding: Sizes, post_padding: Sizes, stride: Sizes,
    dilation: Sizes,
) -> Iterator[tuple[tuple[int, ...], Any]]:  # fmt: skip
    """Yield for each tap its index and the elements of the zero-padded x that it reads.

    What is added to these is added to x afterwards.
    """
    sides = [(0, 0), (0, 0), *zip(pre_padding, post_padding, strict=True)]
    padded = np.pad(x, sides)
    before = padded.copy()
    for tap in np.ndindex(*filters[2:]):
        key = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, s, n in zip(tap, dilation, stride, counts[2:], strict=True)
        )
        yield tap, padded[(slice(None), slice(None), *key)]
    changed = padded - before
    inner = tuple(slice(low, low + n) for (low, _), n in zip(sides, x.shape, strict=True))
    if changed.any():
        x[...] += changed[inner]


@contextmanager
def installed() -> Iterator[type[Graph]]:
    """Install the stand-in for `cudnn` inside a block."""
    module = ModuleType("cudnn")
    module.__spec__ = ModuleSpec("cudnn", None)
    module.__dict__.update(
        cudnnGraphNotSupportedError=cudnnGraphNotSupportedError,
        create_handle=lambda: object(),
        data_type=SimpleNamespace(FLOAT="float", HALF="half"),
        heur_mode=SimpleNamespace(A="a", FALLBACK="fallback"),
        pygraph=Graph,
        set_stream=lambda handle, stream: None,
    )
    before = sys.modules.get("cudnn")
    sys.modules["cudnn"] = module
    Graph.made, Graph.supported = 0, True
    try:
        yield Graph
    finally:
        sys.modules.pop("cudnn")
        if before is not None:
            sys.modules["cudnn"] = before

"""Convolutions by cuDNN, through the graphs of nvidia-cudnn-frontend.

A graph is built for sizes, type and direction when they first occur, and cached. cuDNN chooses the
engine by its heuristics. The availability of cuDNN is checked and logged once for each GPU. Without
it, convolutions are computed as matrix products, and other operations by weft's own kernels.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.gpu.capture import current
from weft_graph.ops.windows import channel_axis

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_exec.kernels.conv import Convolution

_log = logging.getLogger("weft")
_lock = threading.Lock()
_chosen: dict[int, Any] = {}

Sizes = tuple[int, ...]


class Cudnn:
    """CuDNN on one GPU: a handle that is bound to the kernels' stream, and cached graphs."""

    def __init__(self, module: Any, hardware: Any) -> None:
        self.module = module
        self.lock = threading.Lock()
        self.cupy = hardware.cupy
        self.handle = module.create_handle()
        self._compute = hardware.compute
        module.set_stream(handle=self.handle, stream=hardware.compute.ptr)
        self._graphs: dict[Any, tuple[Any, dict[str, Any], int]] = {}

    def run(
        self,
        key: Any,
        build: Callable[[Any], dict[str, Any]],
        values: dict[str, Any],
    ) -> None:
        """Execute the graph with a key on arrays, by the names of its tensors.

        Build it if necessary.
        """
        with self.lock:
            result = self._graphs.get(key)
            if result is None:
                result = self._graphs[key] = self._build_graph(build)
            graph, tensors, size = result
            workspace = self.cupy.empty(max(size, 1), np.uint8)
            pack = {tensors[name]: value for name, value in values.items()}
            with self._bind_captured_stream():
                graph.execute(pack, workspace, handle=self.handle)

    @contextmanager
    def _bind_captured_stream(self) -> Iterator[None]:
        """Return a context that binds the handle to this thread's captured stream, if any."""
        if current.capture is None:
            yield
            return
        self.module.set_stream(handle=self.handle, stream=current.capture.stream.ptr)
        try:
            yield
        finally:
            self.module.set_stream(handle=self.handle, stream=self._compute.ptr)

    def _build_graph(
        self, build: Callable[[Any], dict[str, Any]]
    ) -> tuple[Any, dict[str, Any], int]:
        module = self.module
        graph = module.pygraph(
            handle=self.handle,
            intermediate_data_type=module.data_type.FLOAT,
            compute_data_type=module.data_type.FLOAT,
        )
        tensors = build(graph)
        graph.build([module.heur_mode.A, module.heur_mode.FALLBACK])
        return graph, tensors, int(graph.get_workspace_size())


def with_fallback(
    preferred: Callable[..., Any] | None,
    plain: Callable[..., Any],
    operation: str = "a convolution, which is now a product",
) -> Callable[..., Any]:
    """Return `preferred`, with `plain` as the fallback if it is None or cuDNN has no engine.

    Args:
      operation: a description of the fallback, for the log.
    """
    if preferred is None:
        return plain
    functions = [preferred]

    def run(*inputs: Any) -> Any:
        try:
            return functions[0](*inputs)
        except Exception as error:  # because its class is only known to cuDNN's module
            if type(error).__name__ != "cudnnGraphNotSupportedError":
                raise
            _log.info("cuDNN has no engine for %s: %s", operation, error)
            functions[0] = plain
        return plain(*inputs)

    return run


def library_of(device: Device) -> Cudnn | None:
    """Return cuDNN on a device; None if it is not available."""
    hardware = getattr(device, "hardware", None)
    if hardware is None:
        return None
    with _lock:
        if hardware.index not in _chosen:
            _chosen[hardware.index] = _choose(hardware)
        result: Cudnn | None = _chosen[hardware.index]
        return result


def forget() -> None:
    """Clear the cached libraries and choices, for tests."""
    with _lock:
        _chosen.clear()


def _choose(hardware: Any) -> Cudnn | None:
    if importlib.util.find_spec("cudnn") is None:
        why = "nvidia-cudnn-frontend is not installed"
    else:
        try:
            with hardware.active():
                result = Cudnn(importlib.import_module("cudnn"), hardware)
        except (ImportError, OSError, RuntimeError, AttributeError) as error:
            why = str(error)
        else:
            _log.info("%s: convolutions are computed by cuDNN", hardware.name)
            return result
    _log.info(
        "%s: convolutions are computed as matrix products, without cuDNN: %s", hardware.name, why
    )
    return None


def element_type(module: Any, dtype: np.dtype[Any]) -> Any:
    """Return cuDNN's name of float16 or float32."""
    return module.data_type.HALF if dtype == np.float16 else module.data_type.FLOAT


def _nchw(sizes: Sizes) -> Sizes:
    """Return sizes (N, ..., C) in cuDNN's order of axes: (N, C, ...)."""
    return (sizes[0], sizes[-1], *sizes[1:-1])


def _strides(sizes: Sizes) -> Sizes:
    """Return strides in elements of a C-order (N, ..., C) array, in cuDNN's order of axes."""
    steps = [1]
    for size in reversed(sizes[1:]):
        steps.append(steps[-1] * size)
    steps.reverse()
    return (steps[0], steps[-1], *steps[1:-1])


class _Convolution:
    """One convolution with the layout (N, ..., C) and filters (O, ..., C)."""

    def __init__(self, library: Cudnn, conv: Convolution, device: Device) -> None:
        self.library = library
        self.conv = conv
        self.xp = device.xp
        self.dtype = element_type(library.module, conv.dtype)

    def channels_last(self, x: Any) -> Any:
        """Return `x` with the channels on the last axis, in C order."""
        return self.xp.ascontiguousarray(
            self.xp.moveaxis(x, channel_axis(self.conv.data_format), -1)
        )

    def to_node_layout(self, x: Any) -> Any:
        """Return a result (N, ..., C) in the layout of the node."""
        return self.xp.ascontiguousarray(
            self.xp.moveaxis(x, -1, channel_axis(self.conv.data_format))
        )

    def tensor(self, graph: Any, name: str, sizes: Sizes) -> Any:
        """Add an input to a graph, and return it."""
        return graph.tensor(
            name=name, dim=list(_nchw(sizes)), stride=list(_strides(sizes)), data_type=self.dtype
        )

    def finish(self, tensor: Any, sizes: Sizes) -> Any:
        """Mark a tensor as the result of its graph."""
        tensor.set_output(True).set_data_type(self.dtype)
        tensor.set_dim(list(_nchw(sizes))).set_stride(list(_strides(sizes)))
        return tensor

    def windows(self, inner: Sizes, taps: Sizes) -> tuple[Sizes, dict[str, list[int]]]:
        """Return the number of windows along each axis, and cuDNN's arguments for them."""
        conv = self.conv
        counts, before, after = conv.geometry(inner, taps)
        return counts, {
            "pre_padding": list(before),
            "post_padding": list(after),
            "stride": list(conv.strides),
            "dilation": list(conv.dilations),
        }

    def key(self, *sizes: Sizes) -> Any:
        """Return the cache key of a graph."""
        conv = self.conv
        return (
            conv.op, conv.dtype.str, conv.strides, conv.dilations, conv.padding,
            tuple(map(tuple, conv.pads)), sizes,
        )  # fmt: skip


def _convolving(conv: Convolution, device: Device) -> _Convolution | None:
    if conv.dtype not in (np.dtype(np.float16), np.dtype(np.float32)):
        return None
    library = library_of(device)
    return None if library is None else _Convolution(library, conv, device)


def forward(conv: Convolution, device: Device) -> Callable[..., Any] | None:
    """Return a kernel `(x, filters) -> y`, or None if cuDNN is not available."""
    convolution = _convolving(conv, device)
    if convolution is None:
        return None

    def run(x: Any, filters: Any) -> Any:
        x, w = (
            convolution.channels_last(x),
            convolution.xp.ascontiguousarray(convolution.xp.moveaxis(filters, -1, 0)),
        )
        conv.check(x.shape, filters.shape)
        counts, windows = convolution.windows(x.shape[1:-1], filters.shape[:-2])
        y = convolution.xp.zeros((x.shape[0], *counts, filters.shape[-1]), x.dtype)

        def build(graph: Any) -> dict[str, Any]:
            image, weight = (
                convolution.tensor(graph, "x", x.shape),
                convolution.tensor(graph, "w", w.shape),
            )
            out = graph.conv_fprop(image=image, weight=weight, **windows)
            return {"x": image, "w": weight, "y": convolution.finish(out, y.shape)}

        if y.size and x.size:
            convolution.library.run(
                convolution.key(x.shape, w.shape), build, {"x": x, "w": w, "y": y}
            )
        return convolution.to_node_layout(y)

    return run


def input_gradient(conv: Convolution, device: Device) -> Callable[..., Any] | None:
    """Return a kernel `(sizes, filters, grad) -> dx`, or None if cuDNN is not available."""
    convolution = _convolving(conv, device)
    if convolution is None:
        return None

    def run(input_sizes: Any, filters: Any, grad: Any) -> Any:
        shape = conv.last_shape(input_sizes)
        dy, w = (
            convolution.channels_last(grad),
            convolution.xp.ascontiguousarray(convolution.xp.moveaxis(filters, -1, 0)),
        )
        conv.check(shape, filters.shape)
        counts, windows = convolution.windows(shape[1:-1], filters.shape[:-2])
        conv.check_grad(dy.shape, shape[0], counts, filters.shape[-1])
        dx = convolution.xp.zeros(shape, dy.dtype)

        def build(graph: Any) -> dict[str, Any]:
            loss, weight = (
                convolution.tensor(graph, "dy", dy.shape),
                convolution.tensor(graph, "w", w.shape),
            )
            out = graph.conv_dgrad(loss=loss, filter=weight, **windows)
            return {"dy": loss, "w": weight, "dx": convolution.finish(out, dx.shape)}

        if dy.size and dx.size:
            key = convolution.key(shape, w.shape)
            convolution.library.run(key, build, {"dy": dy, "w": w, "dx": dx})
        return convolution.to_node_layout(dx)

    return run


def filter_gradient(conv: Convolution, device: Device) -> Callable[..., Any] | None:
    """Return a kernel `(x, sizes, grad) -> dw`, or None if cuDNN is not available."""
    convolution = _convolving(conv, device)
    if convolution is None:
        return None

    def run(x: Any, filter_sizes: Any, grad: Any) -> Any:
        shape = tuple(int(n) for n in filter_sizes)
        x, dy = convolution.channels_last(x), convolution.channels_last(grad)
        conv.check(x.shape, shape)
        counts, windows = convolution.windows(x.shape[1:-1], shape[:-2])
        conv.check_grad(dy.shape, x.shape[0], counts, shape[-1])
        dw = convolution.xp.zeros((shape[-1], *shape[:-1]), x.dtype)

        def build(graph: Any) -> dict[str, Any]:
            image, loss = (
                convolution.tensor(graph, "x", x.shape),
                convolution.tensor(graph, "dy", dy.shape),
            )
            out = graph.conv_wgrad(image=image, loss=loss, **windows)
            return {"x": image, "dy": loss, "dw": convolution.finish(out, dw.shape)}

        if dy.size and dw.size:
            convolution.library.run(
                convolution.key(x.shape, dw.shape), build, {"x": x, "dy": dy, "dw": dw}
            )
        return convolution.xp.ascontiguousarray(convolution.xp.moveaxis(dw, 0, -1))

    return run

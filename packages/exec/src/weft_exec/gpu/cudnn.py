"""cuDNN, through the graphs of nvidia-cudnn-frontend; and convolutions by it.

A graph belongs to sizes, type and direction. It is built when they are first seen and kept; cuDNN
chooses the engine by its heuristics. Whether cuDNN is there is found out once for each GPU, and
logged; where it is not, convolutions are products of matrices, and what else it would do is done
by kernels of weft's own.
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
    """cuDNN on one GPU: a handle bound to its stream of kernels, and the graphs made so far."""

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
        """Execute the graph of a key on arrays by the names of its tensors."""
        with self.lock:
            found = self._graphs.get(key)
            if found is None:
                found = self._graphs[key] = self._built(build)
            graph, tensors, size = found
            workspace = self.cupy.empty(max(size, 1), np.uint8)
            pack = {tensors[name]: value for name, value in values.items()}
            with self._captured():
                graph.execute(pack, workspace, handle=self.handle)

    @contextmanager
    def _captured(self) -> Iterator[None]:
        """Let the handle follow to the stream that this thread captures, if it does."""
        if current.capture is None:
            yield
            return
        self.module.set_stream(handle=self.handle, stream=current.capture.stream.ptr)
        try:
            yield
        finally:
            self.module.set_stream(handle=self.handle, stream=self._compute.ptr)

    def _built(self, build: Callable[[Any], dict[str, Any]]) -> tuple[Any, dict[str, Any], int]:
        module = self.module
        graph = module.pygraph(
            handle=self.handle,
            intermediate_data_type=module.data_type.FLOAT,
            compute_data_type=module.data_type.FLOAT,
        )
        tensors = build(graph)
        graph.build([module.heur_mode.A, module.heur_mode.FALLBACK])
        return graph, tensors, int(graph.get_workspace_size())


def either(
    preferred: Callable[..., Any] | None,
    plain: Callable[..., Any],
    what: str = "a convolution, which is now a product",
) -> Callable[..., Any]:
    """A kernel that is `preferred`, or `plain` where there is none or cuDNN has no engine.

    Args:
      what: has no engine, and what becomes of it; for the log.
    """
    if preferred is None:
        return plain
    chosen = [preferred]

    def run(*inputs: Any) -> Any:
        try:
            return chosen[0](*inputs)
        except Exception as error:  # because its class is known to cuDNN's module alone
            if type(error).__name__ != "cudnnGraphNotSupportedError":
                raise
            _log.info("cuDNN has no engine for %s: %s", what, error)
            chosen[0] = plain
        return plain(*inputs)

    return run


def library_of(device: Device) -> Cudnn | None:
    """cuDNN on a device, or None where it is not at hand."""
    hardware = getattr(device, "hardware", None)
    if hardware is None:
        return None
    with _lock:
        if hardware.index not in _chosen:
            _chosen[hardware.index] = _choose(hardware)
        found: Cudnn | None = _chosen[hardware.index]
        return found


def forget() -> None:
    """Choose again when asked next; for tests."""
    with _lock:
        _chosen.clear()


def _choose(hardware: Any) -> Cudnn | None:
    if importlib.util.find_spec("cudnn") is None:
        why = "nvidia-cudnn-frontend is not installed"
    else:
        try:
            with hardware.active():
                found = Cudnn(importlib.import_module("cudnn"), hardware)
        except (ImportError, OSError, RuntimeError, AttributeError) as error:
            why = str(error)
        else:
            _log.info("%s: convolutions by cuDNN", hardware.name)
            return found
    _log.info("%s: convolutions as products of matrices: %s", hardware.name, why)
    return None


def element_type(module: Any, dtype: np.dtype[Any]) -> Any:
    """cuDNN's name of float16 or float32."""
    return module.data_type.HALF if dtype == np.float16 else module.data_type.FLOAT


def _nchw(sizes: Sizes) -> Sizes:
    """(N, ..., C) as cuDNN numbers axes: (N, C, ...)."""
    return (sizes[0], sizes[-1], *sizes[1:-1])


def _strides(sizes: Sizes) -> Sizes:
    """Strides in elements of (N, ..., C) in C order, as cuDNN numbers axes."""
    steps = [1]
    for size in reversed(sizes[1:]):
        steps.append(steps[-1] * size)
    steps.reverse()
    return (steps[0], steps[-1], *steps[1:-1])


class _Convolving:
    """One convolution, in the layout (N, ..., C) with filters (O, ..., C)."""

    def __init__(self, library: Cudnn, conv: Convolution, device: Device) -> None:
        self.library = library
        self.conv = conv
        self.xp = device.xp
        self.dtype = element_type(library.module, conv.dtype)

    def last(self, x: Any) -> Any:
        """`x` with the channels on the last axis, in C order."""
        return self.xp.ascontiguousarray(
            self.xp.moveaxis(x, channel_axis(self.conv.data_format), -1)
        )

    def in_layout(self, x: Any) -> Any:
        """A result (N, ..., C) in the layout of the node."""
        return self.xp.ascontiguousarray(
            self.xp.moveaxis(x, -1, channel_axis(self.conv.data_format))
        )

    def tensor(self, graph: Any, name: str, sizes: Sizes) -> Any:
        """An input of a graph."""
        return graph.tensor(
            name=name, dim=list(_nchw(sizes)), stride=list(_strides(sizes)), data_type=self.dtype
        )

    def finish(self, tensor: Any, sizes: Sizes) -> Any:
        """Mark a tensor as the result of its graph."""
        tensor.set_output(True).set_data_type(self.dtype)
        tensor.set_dim(list(_nchw(sizes))).set_stride(list(_strides(sizes)))
        return tensor

    def windows(self, inner: Sizes, taps: Sizes) -> tuple[Sizes, dict[str, list[int]]]:
        """How many windows there are, and the arguments that say which."""
        conv = self.conv
        counts, before, after = conv.geometry(inner, taps)
        return counts, {
            "pre_padding": list(before),
            "post_padding": list(after),
            "stride": list(conv.strides),
            "dilation": list(conv.dilations),
        }

    def key(self, *sizes: Sizes) -> Any:
        """What a graph belongs to."""
        conv = self.conv
        return (
            conv.op, conv.dtype.str, conv.strides, conv.dilations, conv.padding,
            tuple(map(tuple, conv.pads)), sizes,
        )  # fmt: skip


def _convolving(conv: Convolution, device: Device) -> _Convolving | None:
    if conv.dtype not in (np.dtype(np.float16), np.dtype(np.float32)):
        return None
    library = library_of(device)
    return None if library is None else _Convolving(library, conv, device)


def forward(conv: Convolution, device: Device) -> Callable[..., Any] | None:
    """A kernel `(x, filters) -> y`, or None where cuDNN is not at hand."""
    way = _convolving(conv, device)
    if way is None:
        return None

    def run(x: Any, filters: Any) -> Any:
        x, w = way.last(x), way.xp.ascontiguousarray(way.xp.moveaxis(filters, -1, 0))
        conv.check(x.shape, filters.shape)
        counts, windows = way.windows(x.shape[1:-1], filters.shape[:-2])
        y = way.xp.zeros((x.shape[0], *counts, filters.shape[-1]), x.dtype)

        def build(graph: Any) -> dict[str, Any]:
            image, weight = way.tensor(graph, "x", x.shape), way.tensor(graph, "w", w.shape)
            out = graph.conv_fprop(image=image, weight=weight, **windows)
            return {"x": image, "w": weight, "y": way.finish(out, y.shape)}

        if y.size and x.size:
            way.library.run(way.key(x.shape, w.shape), build, {"x": x, "w": w, "y": y})
        return way.in_layout(y)

    return run


def by_input(conv: Convolution, device: Device) -> Callable[..., Any] | None:
    """A kernel `(sizes, filters, grad) -> dx`, or None where cuDNN is not at hand."""
    way = _convolving(conv, device)
    if way is None:
        return None

    def run(input_sizes: Any, filters: Any, grad: Any) -> Any:
        shape = conv.last_shape(input_sizes)
        dy, w = way.last(grad), way.xp.ascontiguousarray(way.xp.moveaxis(filters, -1, 0))
        conv.check(shape, filters.shape)
        counts, windows = way.windows(shape[1:-1], filters.shape[:-2])
        conv.check_grad(dy.shape, shape[0], counts, filters.shape[-1])
        dx = way.xp.zeros(shape, dy.dtype)

        def build(graph: Any) -> dict[str, Any]:
            loss, weight = way.tensor(graph, "dy", dy.shape), way.tensor(graph, "w", w.shape)
            out = graph.conv_dgrad(loss=loss, filter=weight, **windows)
            return {"dy": loss, "w": weight, "dx": way.finish(out, dx.shape)}

        if dy.size and dx.size:
            key = way.key(shape, w.shape)
            way.library.run(key, build, {"dy": dy, "w": w, "dx": dx})
        return way.in_layout(dx)

    return run


def by_filter(conv: Convolution, device: Device) -> Callable[..., Any] | None:
    """A kernel `(x, sizes, grad) -> dw`, or None where cuDNN is not at hand."""
    way = _convolving(conv, device)
    if way is None:
        return None

    def run(x: Any, filter_sizes: Any, grad: Any) -> Any:
        shape = tuple(int(n) for n in filter_sizes)
        x, dy = way.last(x), way.last(grad)
        conv.check(x.shape, shape)
        counts, windows = way.windows(x.shape[1:-1], shape[:-2])
        conv.check_grad(dy.shape, x.shape[0], counts, shape[-1])
        dw = way.xp.zeros((shape[-1], *shape[:-1]), x.dtype)

        def build(graph: Any) -> dict[str, Any]:
            image, loss = way.tensor(graph, "x", x.shape), way.tensor(graph, "dy", dy.shape)
            out = graph.conv_wgrad(image=image, loss=loss, **windows)
            return {"x": image, "dy": loss, "dw": way.finish(out, dw.shape)}

        if dy.size and dw.size:
            way.library.run(way.key(x.shape, dw.shape), build, {"x": x, "dy": dy, "dw": dw})
        return way.xp.ascontiguousarray(way.xp.moveaxis(dw, 0, -1))

    return run

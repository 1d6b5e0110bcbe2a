"""CuPy's functions with CuPy's arguments, computed by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from cupy_standin import cuda
from cupy_standin.arrays import (
    SURFACE,
    computed,
    enqueue,
    fresh,
    host_of,
    ndarray,
    operate,
    touched,
)

_VIEWS = {"broadcast_to", "expand_dims", "moveaxis", "diagonal", "ascontiguousarray"}
_FROM_HOST = {"array", "asarray"}
_OF_CUBLAS = {"matmul", "dot", "tensordot", "einsum", "vdot", "inner", "outer", "kron"}
_SYNCHRONOUS = {"nonzero", "unique", "flatnonzero", "argwhere", "sort", "argsort", "lexsort",
                "bincount", "array_equal", "allclose"}  # fmt: skip
"""Functions that wait, or may wait, for the GPU."""


class Ufunc:
    """Like CuPy's ufunc, with fewer arguments than NumPy's and its own element types."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._function = getattr(np, name)

    def __call__(
        self, *inputs: Any, out: Any = None, dtype: Any = None, casting: Any = None
    ) -> Any:
        options = {} if dtype is None else {"dtype": dtype}
        return operate(self.name, self._function, inputs, out, **options)

    def at(self, array: Any, indices: Any, values: Any) -> None:
        """Apply `array[indices] = f(array[indices], values)`, accumulating equal indices."""
        if self.name not in ("add", "subtract", "maximum", "minimum"):
            raise NotImplementedError(f"{self.name}.at")
        if array.dtype.name not in ("int32", "float32", "float64", "uint32", "uint64"):
            raise TypeError(f"{self.name}.at does not support {array.dtype}")
        enqueue(
            f"{self.name}.at",
            (array, indices, values),
            (array,),
            lambda: self._function.at(array._a, host_of(indices), host_of(values)),
        )


def _function(name: str, parameters: list[str] | None) -> Callable[..., Any]:
    function = getattr(np, name)

    def call(*args: Any, **options: Any) -> Any:
        if parameters is not None and name != "matmul":
            unknown = [key for key in options if key not in parameters]
            if unknown and "kwargs" not in parameters:
                raise TypeError(f"{name}() got an unexpected keyword argument {unknown[0]!r}")
            if len(args) > len(parameters):
                raise TypeError(f"{name}() takes {len(parameters)} arguments, got {len(args)}")
        out = options.pop("out", None)
        kind = options.get("kind")
        if kind not in (None, "stable"):
            raise ValueError("unsupported kind")
        take = _given if name in _FROM_HOST else host_of

        def compute() -> Any:
            return function(
                *[take(value) for value in args], **{k: host_of(v) for k, v in options.items()}
            )

        sources = (list(args), list(options.values()))
        if cuda.current_stream().captured is not None:
            return _captured(name, sources, compute, args, out)
        touched(name, sources, (out,))
        with np.errstate(all="ignore"):
            found = compute()
        return _result(name, found, args, out)

    return call


def _captured(name: str, sources: Any, compute: Any, args: Any, out: Any) -> Any:
    """Record a function in a captured graph; reject functions that CuPy or CUDA cannot capture."""
    if name in _OF_CUBLAS:
        what = "calling cuBLAS API during stream capture is currently unsupported"
        raise NotImplementedError(what)
    if name in _SYNCHRONOUS or (name in _FROM_HOST and isinstance(args[0], np.ndarray)):
        cuda.current_stream().begin(name)
    if out is not None:

        def store() -> None:
            out._a[...] = compute()

        enqueue(name, sources, (out,), store)
        return out
    if name in ("empty", "empty_like"):
        return fresh(compute())
    if name in _VIEWS and isinstance(args[0], ndarray):
        found = compute()
        if np.shares_memory(found, args[0]._a) or not found.size:
            return args[0] if found is args[0]._a else ndarray(found, args[0])
    return computed(name, sources, compute)


def _given(value: Any) -> Any:
    return value._a if isinstance(value, ndarray) else value


def _result(name: str, found: Any, args: Any, out: Any) -> Any:
    if out is not None:
        out._a[...] = found
        return out
    if name == "copyto":
        return None
    if isinstance(found, tuple | list):
        return type(found)(fresh(each) for each in found) if name != "nonzero" else tuple(
            fresh(each) for each in found
        )  # fmt: skip
    if name in _VIEWS and isinstance(args[0], ndarray):
        if np.shares_memory(found, args[0]._a):
            return args[0] if found is args[0]._a else ndarray(found, args[0])
        if not found.size:
            return ndarray(found, args[0])
    return fresh(found)


def _copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = None) -> None:
    if isinstance(src, np.ndarray):
        raise TypeError("Unsupported type numpy.ndarray")
    mask = True if where is None else host_of(where)
    enqueue(
        "copyto",
        (src, where),
        (dst,),
        lambda: np.copyto(dst._a, host_of(src), casting=casting, where=mask),
    )


def _as_strided(x: Any, shape: Any = None, strides: Any = None) -> Any:
    return ndarray(np.lib.stride_tricks.as_strided(x._a, shape, strides), x)


def _asnumpy(
    a: Any, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True
) -> Any:
    return a.get(stream=stream, out=out, blocking=blocking) if isinstance(a, ndarray) else a


def all_functions() -> dict[str, Any]:
    """Return the functions of the module `cupy`."""
    found: dict[str, Any] = {name: Ufunc(name) for name in SURFACE["ufuncs"]}
    for name, parameters in SURFACE["functions"].items():
        if hasattr(np, name):
            found[name] = _function(name, parameters)
    found["copyto"], found["asnumpy"] = _copyto, _asnumpy
    return found


def library() -> SimpleNamespace:
    """Return the contents of `cupy.lib`."""
    return SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=_as_strided))


def linear_algebra() -> SimpleNamespace:
    """Return the contents of `cupy.linalg`."""
    solvers = _of_module("linalg", np.linalg)
    return SimpleNamespace(LinAlgError=np.linalg.LinAlgError, **solvers)


def transforms() -> SimpleNamespace:
    """Return the contents of `cupy.fft`."""
    return SimpleNamespace(**_of_module("fft", np.fft))


def _of_module(name: str, module: Any) -> dict[str, Any]:
    return {key: _host_function(module, key, known) for key, known in SURFACE[name].items()}


def _host_function(module: Any, name: str, parameters: list[str]) -> Callable[..., Any]:
    function = getattr(module, name)

    def call(*args: Any, **options: Any) -> Any:
        unknown = [key for key in options if key not in parameters]
        if unknown:
            raise TypeError(f"{name}() got an unexpected keyword argument {unknown[0]!r}")
        touched(name, args, ())
        found = function(*[host_of(value) for value in args], **options)
        if isinstance(found, tuple):
            return tuple(fresh(each) for each in found)
        return fresh(found)

    return call


def special_functions() -> dict[str, Any]:
    """Return the contents of `cupyx.scipy.special`, computed by the CPU kernels."""
    from weft_exec.kernels import bessel, probability, special

    sources = {
        "erf": special.erf, "erfc": special.erfc, "gammaln": special.lgamma,
        "digamma": special.digamma, "zeta": special.zeta, "gammainc": special.igamma,
        "gammaincc": special.igammac, "i0e": bessel.i0e, "i1e": bessel.i1e,
        "erfinv": probability.erfinv, "ndtri": probability.ndtri, "betainc": probability.betainc,
    }  # fmt: skip
    return {name: _special(name, function) for name, function in sources.items()}


def _special(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*inputs: Any) -> Any:
        return computed(
            name, inputs, lambda: function(*[host_of(value) for value in inputs], out=None)
        )

    return call

"""Kernels of ops that exist for their order or their effects, such as NoOp, Assert and Print."""

from __future__ import annotations

import itertools
import logging
import sys
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.printing import summarize
from weft_exec.kernels.registry import ANY_DEVICE, KernelFunction, kernel
from weft_exec.resources.file_access import check_path, open_checked
from weft_exec.resources.resources import Resource
from weft_graph.ops.control import py_function_of
from weft_tensor import errors
from weft_tensor.dtypes import DType

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

_log = logging.getLogger("weft")


@kernel("NoOp", device=ANY_DEVICE)
def _no_op(node: Node, device: Device) -> KernelFunction:
    def run() -> None:
        return None

    return run


@kernel("RefIdentity", device=ANY_DEVICE)
def _ref_identity(node: Node, device: Device) -> KernelFunction:
    def run(ref: Any) -> Any:
        return ref

    return run


@kernel("Assert")
def _assert(node: Node, device: Device) -> KernelFunction:
    limit: int = node.attrs["summarize"]

    def run(condition: Any, *data: Any) -> None:
        if not condition:
            text = " ".join(f"[{summarize(value, limit)}]" for value in data)
            raise errors.InvalidArgumentError(f"assertion failed: {text}")

    return run


@kernel("Timestamp")
def _timestamp(node: Node, device: Device) -> KernelFunction:
    def run() -> Any:
        return np.float64(time.time())

    return run


# --------------------------------------------------------------------------------- printing


class _PrintCount(Resource):
    """Counts how often a Print has printed, over all steps and signatures of a session."""

    kind = "print counter"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.next = itertools.count().__next__


@kernel("Print", alias=True)
def _print(node: Node, device: Device) -> KernelFunction:
    limit: int = node.attrs["summarize"]
    first: int = node.attrs["first_n"]
    message = _text(node.attrs["message"])
    name = f"{node.name}/count"
    count = None
    if first >= 0:
        count = device.resources.own.lookup_or_create(
            "", name, _PrintCount, lambda: _PrintCount(name)
        )

    def run(x: Any, *data: Any) -> Any:
        if count is None or count.next() < first:
            text = "".join(f"[{summarize(value, limit)}]" for value in data)
            _write(sys.stderr, f"{message}{text}\n")
        return x

    return run


@kernel("PrintV2")
def _print_v2(node: Node, device: Device) -> KernelFunction:
    end = _text(node.attrs["end"])
    emit = _emitter(_text(node.attrs["output_stream"]))

    def run(line: Any) -> None:
        emit(_text(line.item()) + end)

    return run


def _emitter(stream: str) -> Callable[[str], Any]:
    if stream == "stdout":
        return lambda text: _write(sys.stdout, text)
    if stream == "stderr":
        return lambda text: _write(sys.stderr, text)
    if stream.startswith("file://"):
        path = stream[len("file://") :]
        check_path(path)
        return lambda text: _append(path, text)
    levels = {
        "log(info)": logging.INFO,
        "log(warning)": logging.WARNING,
        "log(error)": logging.ERROR,
    }
    level = levels.get(stream)
    if level is None:
        raise errors.InvalidArgumentError(f"unknown output stream {stream!r}")
    return lambda text: _log.log(level, "%s", text.rstrip("\n"))


def _write(stream: Any, text: str) -> None:
    stream.write(text)
    stream.flush()


def _append(path: str, text: str) -> None:
    with open(path, "a", encoding="utf-8", opener=open_checked) as file:
        file.write(text)


def _text(value: str | bytes) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value


# ------------------------------------------------------------------------ Python functions


@kernel("PyFunc", "PyFuncStateless", "EagerPyFunc", heavy=True)
def _py_func(node: Node, device: Device) -> KernelFunction:
    token = _text(node.attrs["token"])
    function = py_function_of(token)
    types: tuple[DType, ...] = tuple(node.attrs["Tout"])

    def run(*inputs: Any) -> Any:
        try:
            result = function(*[_to_python(value) for value in inputs])
        except errors.OpError:
            raise
        except Exception as error:  # because a user's function may raise anything
            raise _wrap_exception(error) from error
        if not types:
            return None
        values = list(result) if isinstance(result, list | tuple) else [result]
        if len(types) == 1 and isinstance(result, list | tuple) and len(values) != 1:
            values = [result]
        if result is None or len(values) != len(types):
            received = "None" if result is None else f"{len(values)} values"
            raise errors.InvalidArgumentError(
                f"the Python function must return {len(types)} values, got {received}"
            )
        results = [
            _from_python(v, t, i) for i, (v, t) in enumerate(zip(values, types, strict=True))
        ]
        return results[0] if len(types) == 1 else tuple(results)

    return run


def _to_python(value: Any) -> Any:
    """Convert an input for a Python function: arrays are read-only, scalar strings are bytes."""
    if not isinstance(value, np.ndarray):
        return value
    if value.ndim == 0:
        return value[()]
    view = value.view()
    view.flags.writeable = False
    return view


def _from_python(value: Any, dtype: DType, position: int) -> Any:
    try:
        return _to_array(value, dtype, position)
    except errors.InvalidArgumentError as error:
        unsupported = _unsupported_content(value)
        if unsupported is None:
            raise
        raise errors.UnsupportedResultError(
            f"value {position} of the Python function must be {dtype.name}, got {unsupported}; "
            "return arrays, numbers, strings, or lists of them"
        ) from error


def _to_array(value: Any, dtype: DType, position: int) -> Any:
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind not in "SUO":
        if value.dtype != dtype.numpy:
            raise errors.InvalidArgumentError(
                f"value {position} of the Python function must be {dtype.name}, got {value.dtype}"
            )
        # A copy, because the function may keep the array and write to it later.
        return np.array(value)
    from weft_graph.ir.constants import to_array

    return to_array(value, dtype)


def _unsupported_content(value: Any) -> str | None:
    """Return the type of an object in `value` that no tensor can hold; None if there is none."""
    try:
        array = np.asarray(value)
    except ValueError:  # a list of lists of different lengths
        return None
    if array.dtype.fields is not None or array.dtype.kind in "mM":
        return f"the NumPy type {array.dtype}"
    if array.dtype.kind != "O":
        return None
    kinds = [type(item) for item in array.reshape(-1) if not isinstance(item, str | bytes)]
    return f"an object of type {kinds[0].__name__}" if kinds else None


_CLASSES: tuple[tuple[type[BaseException], type[errors.OpError]], ...] = (
    (StopIteration, errors.OutOfRangeError),
    (MemoryError, errors.ResourceExhaustedError),
    (NotImplementedError, errors.UnimplementedError),
    (ValueError, errors.InvalidArgumentError),
    (TypeError, errors.InvalidArgumentError),
)


def _wrap_exception(error: Exception) -> errors.OpError:
    """Wrap a user's exception in an OpError that shows where it was raised."""
    trace_text = "".join(traceback.format_exception(error)).rstrip()
    for caught, raised in _CLASSES:
        if isinstance(error, caught):
            return raised(f"{type(error).__name__}: {error}\n{trace_text}")
    return errors.UnknownError(f"{type(error).__name__}: {error}\n{trace_text}")

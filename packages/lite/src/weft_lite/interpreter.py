"""`Interpreter`, which runs a `.weftlite` file."""

from __future__ import annotations

__all__ = ["Interpreter", "SignatureRunner"]

import ctypes
import mmap
import operator
import os
import sys
from _thread import RLock  # importing `threading` is slow

from weft_lite import library
from weft_lite.errors import (
    ConcurrentUseError,
    FailedPreconditionError,
    InvalidArgumentError,
    OutOfRangeError,
    ResourceExhaustedError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

_ALIGNMENT = 64
_PRIVATE: dict[str, int] = {"flags": mmap.MAP_PRIVATE} if hasattr(mmap, "MAP_PRIVATE") else {}


class _Type:
    """An element type: its name, and its letter in the buffer protocol."""

    def __init__(self, name: str, form: str) -> None:
        self.name, self.format = name, form


_TYPES = {
    1: _Type("float32", "f"),
    3: _Type("int32", "i"),
    4: _Type("uint8", "B"),
    5: _Type("int16", "h"),
    6: _Type("int8", "b"),
    9: _Type("int64", "q"),
    10: _Type("bool", "?"),
    19: _Type("float16", "e"),
}


def _numpy() -> Any:
    """Return NumPy if it is installed; otherwise None."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def _align(size: int) -> tuple[Any, int]:
    """Return a block of zeros, and the first aligned address in it.

    A forked process has its own copy.
    """
    block = mmap.mmap(-1, max(size, 1) + _ALIGNMENT, **_PRIVATE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(block))
    return block, -(-address // _ALIGNMENT) * _ALIGNMENT


def _reshape(block: Any, form: Any, shape: tuple[int, ...]) -> memoryview[Any]:
    """Return a view of a block as elements of a shape; a scalar has a view of one element."""
    return memoryview(block).cast("B").cast(form, shape or (1,))


def _cast(numpy: Any, array: Any, name: str) -> Any:
    """Convert Python numbers to a type; return None if that would lose information."""
    floats = name.startswith("float")
    if array.size and array.dtype.kind not in ("iubf" if floats else "iub"):
        return None
    with numpy.errstate(over="ignore"):
        result = array.astype(name)
    lost = numpy.isinf(result) != numpy.isinf(array) if floats else result != array
    return None if lost.any() else result


class _File:
    """The bytes of a file at an aligned address: memory-mapped, or copied from bytes."""

    def __init__(self, path: str | os.PathLike[str] | None, content: Any) -> None:
        if (path is None) == (content is None):
            raise InvalidArgumentError("either model_path or model_content is required")
        if path is not None:
            with open(path, "rb") as file:
                self.size = os.fstat(file.fileno()).st_size
                if self.size == 0:
                    raise InvalidArgumentError(f"{os.fspath(path)} is empty")
                # Private, so that ctypes may have its address; nothing writes to it.
                self._block: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._block))
            return
        try:
            view = memoryview(content).cast("B")
        except TypeError as error:
            raise InvalidArgumentError(
                f"model_content must be bytes or an object with the buffer protocol: {error}"
            ) from error
        self.size = view.nbytes
        self._block, self.address = _align(self.size)
        ctypes.memmove(self.address, bytes(view), self.size)


class _Input:
    """The type, address, shape and size of an input."""

    def __init__(self, kind: _Type, data: int, shape: tuple[int, ...], size: int) -> None:
        self.type, self.data, self.shape, self.bytes = kind, data, shape, size


class _ExclusiveUse:
    """A context for one thread at a time, which raises an error in others instead of blocking."""

    def __init__(self) -> None:
        self._lock = RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise ConcurrentUseError(
                "another thread is using this interpreter, or was when this process was forked; "
                "open one interpreter per thread: they share the file's weights"
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Interpreter:
    """The interpreter of a graph, with the methods of `tf.lite.Interpreter`.

    One thread at a time may use it; calls that overlap raise `ConcurrentUseError`. It is usable
    after an error, and in a process that was forked between calls. It cannot be copied or pickled.

    Args:
      model_path: a `.weftlite` file, which is mapped into memory.
      model_content: its bytes, instead; any object with the buffer protocol.
      num_threads: number of threads that compute a large op.
      work_limit: maximum cost of one invocation, in units of about a microsecond; it stops endless
        loops.
    Raises:
      DataLossError: the file is damaged or malicious; the message says what is wrong and where.
      UnimplementedError: the file needs a newer runtime.
      ResourceExhaustedError: there is not enough memory for its arena.

    Examples:
      >>> x = wf.placeholder(wf.float32, [1, 3], name="x")
      >>> y = wf.nn.relu(x * 2.0, name="y")
      >>> with wf.Session() as session:
      ...     content = wf.lite.Converter.from_session(session, [x], [y]).convert()
      >>> interpreter = wf.lite.Interpreter(model_content=content)
      >>> interpreter.set_tensor(interpreter.get_input_details()[0]["index"], [[1.0, -2.0, 3.0]])
      >>> interpreter.invoke()
      >>> interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).tolist()
      [[2.0, 0.0, 6.0]]
    """

    def __init__(
        self,
        model_path: str | os.PathLike[str] | None = None,
        model_content: Any = None,
        num_threads: int | None = None,
        work_limit: int = 0,
    ) -> None:
        if num_threads is not None and not 1 <= num_threads <= 64:
            raise InvalidArgumentError(f"num_threads must be 1 to 64, not {num_threads}")
        if not 0 <= work_limit < 1 << 64:
            raise InvalidArgumentError(f"work_limit must be 0 to 2^64 - 1, not {work_limit}")
        self._handle: Any = None
        self._pool: Any = None
        self._exclusive = _ExclusiveUse()
        self._is_running = False
        self._library = library.load()
        self._error = library.Error()
        self._error_at = ctypes.byref(self._error)
        self._file = _File(model_path, model_content)
        self._config = self._configure(num_threads or 1, work_limit)
        self._open()
        lib, handle = self._library, self._handle
        self._inputs = [lib.wl_input(handle, i) for i in range(lib.wl_input_count(handle))]
        self._outputs = [lib.wl_output(handle, i) for i in range(lib.wl_output_count(handle))]
        self._cached: dict[int, _Input] = {}
        self._run = lib.wl_invoke
        self._changed = False

    def _configure(self, threads: int, work_limit: int) -> Any:
        """Set the options of the C interpreter."""
        config = library.Config(tasks=threads, work_limit=work_limit)
        if threads > 1:
            self._pool = self._library.wl_pool_create(threads)
            if not self._pool and sys.platform != "win32":  # if the pool has no threads
                raise ResourceExhaustedError(f"no memory for a pool of {threads} threads")
            if self._pool:
                run = ctypes.cast(self._library.wl_pool_run, ctypes.c_void_p)
                config.parallel, config.context = run, self._pool
        return config

    def _open(self) -> None:
        lib, size = self._library, ctypes.c_size_t()
        file = (self._file.address, self._file.size)
        config = ctypes.byref(self._config)
        self._check(lib.wl_query(*file, config, ctypes.byref(size), self._error_at))
        try:
            self._memory, start = _align(size.value)
        except (OSError, ValueError, OverflowError) as error:
            raise ResourceExhaustedError(f"{size.value} bytes of memory are needed") from error
        handle = ctypes.c_void_p()
        handle_pointer = ctypes.byref(handle)
        self._check(lib.wl_open(*file, start, size.value, config, handle_pointer, self._error_at))
        self._handle = handle

    def __del__(self) -> None:
        """End the threads."""
        if getattr(self, "_pool", None):
            self._library.wl_pool_destroy(self._pool)

    def __reduce_ex__(self, protocol: object) -> Any:
        """Raise TypeError, because an interpreter cannot be copied or pickled.

        Raises: TypeError: always.
        """
        raise TypeError(
            "an Interpreter cannot be copied or pickled, since it owns its memory; open another "
            "one from the same file"
        )

    def _require_idle(self) -> None:
        """Raise an error during an invocation, such as in the callback of a watch."""
        if self._is_running:
            raise FailedPreconditionError(
                "the interpreter is running: callbacks during an invocation may read tensors but "
                "must not change or invoke the interpreter"
            )

    def _check(self, status: int) -> None:
        """Raise the error of a status."""
        if status:
            library.check(status, self._error)

    def allocate_tensors(self) -> None:
        """Infer all shapes from those of the inputs; `invoke` does so if necessary.

        Raises: InvalidArgumentError: the shapes of the inputs are incompatible.

        Examples:
          >>> x = wf.placeholder(wf.float32, [None], name="x")
          >>> converter = wf.lite.Converter(x.graph, [x], [wf.add(x, 1.0, name="y")], {"x": [4]})
          >>> interpreter = wf.lite.Interpreter(model_content=converter.convert())
          >>> interpreter.resize_tensor_input(0, [2])
          >>> interpreter.allocate_tensors()
        """
        with self._exclusive:
            self._require_idle()
            self._check(self._library.wl_plan(self._handle, self._error_at))
            self._changed = False
            self._cached.clear()

    def resize_tensor_input(
        self, input_index: int, tensor_size: Sequence[int], strict: bool = False
    ) -> None:
        """Change the shape of an input.

        Args:
          input_index: the index of the input.
          tensor_size: the new shape; open sizes may be up to their bound.
          strict: accepted for compatibility; fixed sizes can never change.
        Raises:
          InvalidArgumentError: the input does not exist, or has a different rank.
          OutOfRangeError: a size is fixed, or above its bound.

        Examples:
          >>> x = wf.placeholder(wf.float32, [None], name="x")
          >>> converter = wf.lite.Converter(x.graph, [x], [wf.add(x, 1.0, name="y")], {"x": [4]})
          >>> interpreter = wf.lite.Interpreter(model_content=converter.convert())
          >>> interpreter.resize_tensor_input(0, [3])
          >>> interpreter.get_input_details()[0]["shape"].tolist()
          [3]
        """
        self._require_input(input_index)
        sizes = [operator.index(size) for size in tensor_size]
        for index, size in enumerate(sizes):
            if not 0 <= size < 1 << 31:
                raise OutOfRangeError(f"size {index} of the input cannot be {size}")
        dims = (ctypes.c_int32 * len(sizes))(*sizes)
        call = self._library.wl_resize
        with self._exclusive:
            self._require_idle()
            self._check(call(self._handle, input_index, len(sizes), dims, self._error_at))
            self._cached.clear()
            self._changed = True

    def set_tensor(self, tensor_index: int, value: Any) -> None:
        """Set the value of an input.

        Args:
          tensor_index: the index of the input.
          value: a value of exactly its type and shape: any object with the buffer protocol, or with
            NumPy any value that can be converted to an array of that type without loss.
        Raises: InvalidArgumentError: the type or shape is wrong, or the tensor is not an input.

        Examples:
          >>> x = wf.placeholder(wf.float32, [None], name="x")
          >>> converter = wf.lite.Converter(x.graph, [x], [wf.add(x, 1.0, name="y")], {"x": [4]})
          >>> interpreter = wf.lite.Interpreter(model_content=converter.convert())
          >>> interpreter.set_tensor(0, [1.0, 2.0, 3.0, 4.0])
        """
        with self._exclusive:
            self._require_idle()
            expected = self._cached.get(tensor_index) or self._input(tensor_index)
            numpy = _numpy()
            if numpy is not None:
                self._copy_array(numpy, tensor_index, expected, value)
            else:
                self._copy_buffer(tensor_index, expected, value)

    def _set_resized(self, index: int, value: Any) -> None:
        """Set the value of an input, and its open sizes."""
        expected = self._cached.get(index) or self._input(index)
        shape = getattr(value, "shape", None)
        if shape is None:
            numpy = _numpy()
            shape = expected.shape if numpy is None else numpy.shape(value)
        if shape != expected.shape and len(shape) == len(expected.shape):
            declared = self._info(index).declared
            if all(d in (-1, size) for d, size in zip(declared, shape, strict=False)):
                self.resize_tensor_input(index, shape)
        self.set_tensor(index, value)

    def _copy_buffer(self, index: int, expected: _Input, value: Any) -> None:
        try:
            view = memoryview(value)
        except TypeError as error:
            actual = f"{type(value).__name__}: without NumPy it needs the buffer protocol"
            raise self._misfit(index, expected, actual) from error
        if view.format.lstrip("<=@") != expected.type.format or view.shape != expected.shape:
            raise self._misfit(index, expected, f"{view.format} {view.shape}")
        ctypes.memmove(expected.data, view.tobytes(), expected.bytes)

    def _copy_array(self, numpy: Any, index: int, expected: _Input, value: Any) -> None:
        array = value if isinstance(value, numpy.ndarray) else numpy.asarray(value)
        if array.dtype != expected.type.name:
            is_array = isinstance(value, numpy.ndarray | numpy.generic | memoryview)
            cast = None if is_array else _cast(numpy, array, expected.type.name)
            if cast is None:
                raise self._misfit(index, expected, f"{array.dtype} {array.shape}")
            array = cast
        if array.shape != expected.shape:
            raise self._misfit(index, expected, f"{array.dtype} {array.shape}")
        if not array.flags.c_contiguous:
            array = numpy.ascontiguousarray(array)
        ctypes.memmove(expected.data, array.ctypes.data, expected.bytes)

    def _misfit(self, index: int, expected: _Input, actual: str) -> InvalidArgumentError:
        info = self._info(index)
        name = info.name.decode("utf-8", "replace")
        advice = ""
        if -1 in info.declared[: info.rank]:
            advice = (
                f"; for another shape call resize_tensor_input({index}, shape) first: unknown "
                "sizes (-1 in shape_signature) may be up to the bound of the conversion"
            )
        return InvalidArgumentError(
            f"input {index} ({name!r}) requires {expected.type.name} {expected.shape}, got "
            f"{actual}{advice}"
        )

    def _require_input(self, index: int) -> None:
        """Raise InvalidArgumentError unless a tensor is an input."""
        if index not in self._inputs:
            raise InvalidArgumentError(
                f"tensor {index} is not an input; the inputs are {self._inputs}"
            )

    def _input(self, index: int) -> _Input:
        self._require_input(index)
        info = self._info(index)
        shape = tuple(info.dims[: info.rank])
        data = self._library.wl_data(self._handle, index)
        self._cached[index] = _Input(_TYPES[info.dtype], data, shape, info.bytes)
        return self._cached[index]

    def _info(self, index: int) -> Any:
        info = library.Info()
        call = self._library.wl_tensor_info
        if not 0 <= index < 1 << 32 or call(self._handle, index, ctypes.byref(info)):
            raise InvalidArgumentError(f"there is no tensor {index}")
        return info

    def invoke(self) -> None:
        """Run the graph on the current inputs.

        Raises:
          InvalidArgumentError: shapes or values are incompatible; the message names the op.
          DeadlineExceededError: the work limit was reached.
          ConcurrentUseError: another thread is using the interpreter; all methods raise this.

        Examples:
          >>> x = wf.placeholder(wf.float32, [None], name="x")
          >>> converter = wf.lite.Converter(x.graph, [x], [wf.add(x, 1.0, name="y")], {"x": [4]})
          >>> interpreter = wf.lite.Interpreter(model_content=converter.convert())
          >>> interpreter.set_tensor(0, [1.0, 2.0, 3.0, 4.0])
          >>> interpreter.invoke()
          >>> interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).tolist()
          [2.0, 3.0, 4.0, 5.0]
        """
        with self._exclusive:
            self._require_idle()
            try:
                self._is_running = True
                if self._run(self._handle, self._error_at):
                    library.check(self._error.status, self._error)
            finally:
                self._is_running = False
            self._changed = False

    def tensor(self, tensor_index: int) -> Callable[[], Any]:
        """Return a function that returns a view of a tensor without a copy.

        Args:
          tensor_index: the index of the tensor.
        Returns: a function whose view shows what later invocations write. Reading or writing the
          view during an invocation in another thread yields undefined values.
        Raises:
          InvalidArgumentError: the tensor does not exist.
          FailedPreconditionError: raised by the function if an input was resized since shapes were
            last inferred.

        Examples:
          >>> x = wf.placeholder(wf.float32, [None], name="x")
          >>> converter = wf.lite.Converter(x.graph, [x], [wf.add(x, 1.0, name="y")], {"x": [4]})
          >>> interpreter = wf.lite.Interpreter(model_content=converter.convert())
          >>> view = interpreter.tensor(0)()
          >>> view[:] = 1.0
          >>> interpreter.get_tensor(0).tolist()
          [1.0, 1.0, 1.0, 1.0]
        """
        with self._exclusive:
            self._info(tensor_index)
        return lambda: self._view(tensor_index)

    def get_tensor(self, tensor_index: int) -> Any:
        """Return a copy of a tensor's value.

        Args:
          tensor_index: the index of an output, or of another tensor whose memory no later op has
            reused.
        Returns: an array with NumPy, else a memoryview, of the tensor's type and shape.
        Raises:
          InvalidArgumentError: the tensor does not exist.
          FailedPreconditionError: an input was resized since shapes were last inferred.

        Examples:
          >>> x = wf.placeholder(wf.float32, [None], name="x")
          >>> converter = wf.lite.Converter(x.graph, [x], [wf.add(x, 1.0, name="y")], {"x": [4]})
          >>> interpreter = wf.lite.Interpreter(model_content=converter.convert())
          >>> interpreter.set_tensor(0, [1.0, 2.0, 3.0, 4.0])
          >>> interpreter.get_tensor(0).tolist()
          [1.0, 2.0, 3.0, 4.0]
        """
        with self._exclusive:
            view = self._view(tensor_index)
            if not isinstance(view, memoryview):
                return view.copy()
            return _reshape(bytearray(view.tobytes()), view.format, tuple(view.shape or ()))

    def _view(self, index: int) -> Any:
        with self._exclusive:
            info = self._info(index)
            if self._changed and index not in self._inputs:
                raise FailedPreconditionError(
                    "inputs were resized: call allocate_tensors() or invoke() before accessing "
                    "other tensors"
                )
            data = self._library.wl_data(self._handle, index)
        kind, shape = _TYPES[info.dtype], tuple(info.dims[: info.rank])
        block = (ctypes.c_uint8 * info.bytes).from_address(data)
        block.owner = self._memory, self._file  # which stay as long as the view
        numpy = _numpy()
        if numpy is not None:
            array = numpy.frombuffer(block, kind.name).reshape(shape)
            array.flags.writeable = info.storage != 1
            return array
        return _reshape(block, kind.format, shape)

    def get_input_details(self) -> list[dict[str, Any]]:
        """Return the properties of the inputs.

        Returns: one dict per input: name, index, shape, shape_signature (-1 for open sizes), dtype,
          quantization (scale and zero point, zeros if there is none), quantization_parameters.

        Examples:
          >>> x = wf.placeholder(wf.float32, [None], name="x")
          >>> converter = wf.lite.Converter(x.graph, [x], [wf.add(x, 1.0, name="y")], {"x": [4]})
          >>> interpreter = wf.lite.Interpreter(model_content=converter.convert())
          >>> details = interpreter.get_input_details()[0]
          >>> details["name"], details["shape"].tolist(), details["shape_signature"].tolist()
          ('x', [4], [-1])
        """
        return [self._details(index) for index in self._inputs]

    def get_output_details(self) -> list[dict[str, Any]]:
        """Return the properties of the outputs.

        Returns: one dict per output, as in `get_input_details`.

        Examples:
          >>> x = wf.placeholder(wf.float32, [None], name="x")
          >>> converter = wf.lite.Converter(x.graph, [x], [wf.add(x, 1.0, name="y")], {"x": [4]})
          >>> interpreter = wf.lite.Interpreter(model_content=converter.convert())
          >>> [each["name"] for each in interpreter.get_output_details()]
          ['y']
        """
        return [self._details(index) for index in self._outputs]

    def get_tensor_details(self) -> list[dict[str, Any]]:
        """Return the properties of all tensors.

        Returns: one dict per tensor, as in `get_input_details`.

        Examples:
          >>> x = wf.placeholder(wf.float32, [None], name="x")
          >>> converter = wf.lite.Converter(x.graph, [x], [wf.add(x, 1.0, name="y")], {"x": [4]})
          >>> interpreter = wf.lite.Interpreter(model_content=converter.convert())
          >>> sorted(each["name"] for each in interpreter.get_tensor_details())
          ['x', 'y', 'y/y']
        """
        return [self._details(i) for i in range(self._library.wl_tensor_count(self._handle))]

    def _details(self, index: int) -> dict[str, Any]:
        """Return the properties of a tensor, as `get_input_details` does."""
        with self._exclusive:
            info, numpy = self._info(index), _numpy()
        kind = _TYPES[info.dtype]
        scales = [float(info.scales[i]) for i in range(info.scale_count)]
        zeros = [int(info.zero_points[i]) for i in range(info.zero_point_count)]
        zeros = zeros or [0] * len(scales)
        shape, declared = list(info.dims[: info.rank]), list(info.declared[: info.rank])
        return {
            "name": info.name.decode("utf-8", "replace"),
            "index": index,
            "shape": numpy.array(shape, "int32") if numpy else tuple(shape),
            "shape_signature": numpy.array(declared, "int32") if numpy else tuple(declared),
            "dtype": getattr(numpy, kind.name if kind.name != "bool" else "bool_")
            if numpy
            else kind.name,
            "quantization": (scales[0], zeros[0]) if len(scales) == 1 else (0.0, 0),
            "quantization_parameters": {
                "scales": numpy.array(scales, "float32") if numpy else scales,
                "zero_points": numpy.array(zeros, "int32") if numpy else zeros,
                "quantized_dimension": info.axis,
            },
            "sparsity_parameters": {},
        }

    def reset_all_variables(self) -> None:
        """Reset the variables of the graph to their initial values.

        Examples:
          >>> step = wf.placeholder(wf.float32, [], name="step")
          >>> seen = wf.Variable(0.0, name="seen")
          >>> total = wf.identity(wf.assign_add(seen, step), name="total")
          >>> with wf.Session() as session:
          ...     session.run(wf.global_variables_initializer())
          ...     ends = [step], [total]
          ...     converter = wf.lite.Converter.from_session(session, *ends, variables=[seen])
          >>> interpreter = wf.lite.Interpreter(model_content=converter.convert())
          >>> run = interpreter.get_signature_runner()
          >>> float(run(step=2.0)["total"]), float(run(step=3.0)["total"])
          (2.0, 5.0)
          >>> interpreter.reset_all_variables()
          >>> float(run(step=3.0)["total"])
          3.0
        """
        with self._exclusive:
            self._require_idle()
            self._library.wl_reset_variables(self._handle)

    def save_variables(self) -> bytes:
        """Return a checkpoint of the variables, which `restore_variables` and the C library read.

        Examples:
          >>> step = wf.placeholder(wf.float32, [], name="step")
          >>> seen = wf.Variable(0.0, name="seen")
          >>> total = wf.identity(wf.assign_add(seen, step), name="total")
          >>> with wf.Session() as session:
          ...     session.run(wf.global_variables_initializer())
          ...     ends = [step], [total]
          ...     converter = wf.lite.Converter.from_session(session, *ends, variables=[seen])
          >>> content = converter.convert()
          >>> interpreter, other = (wf.lite.Interpreter(model_content=content) for _ in range(2))
          >>> _ = interpreter.get_signature_runner()(step=2.0)
          >>> other.restore_variables(interpreter.save_variables())
          >>> float(other.get_signature_runner()(step=3.0)["total"])
          5.0
        """
        with self._exclusive:
            self._require_idle()
            buffer = (ctypes.c_uint8 * self._library.wl_checkpoint_bytes(self._handle))()
            save = self._library.wl_save_checkpoint
            self._check(save(self._handle, buffer, len(buffer), self._error_at))
            return bytes(buffer)

    def restore_variables(self, checkpoint: bytes) -> None:
        """Set all variables to the values in a checkpoint.

        The checkpoint may come from another file, and may have more variables than this one.

        Raises:
          DataLossError: the checkpoint is damaged; the variables are unchanged.
          FailedPreconditionError: it lacks a variable, or a shape differs; the variables are
            unchanged.
        """
        with self._exclusive:
            self._require_idle()
            restore = self._library.wl_restore_checkpoint
            self._check(restore(self._handle, checkpoint, len(checkpoint), self._error_at))

    def get_signature_list(self) -> dict[str, dict[str, list[str]]]:
        """Return the names of inputs and outputs of each signature, by signature key.

        Examples:
          >>> x = wf.placeholder(wf.float32, [None], name="x")
          >>> converter = wf.lite.Converter(x.graph, [x], [wf.add(x, 1.0, name="y")], {"x": [4]})
          >>> interpreter = wf.lite.Interpreter(model_content=converter.convert())
          >>> interpreter.get_signature_list()
          {'serving_default': {'inputs': ['x'], 'outputs': ['y']}}
        """
        return {
            key: {"inputs": sorted(inputs), "outputs": sorted(outputs)}
            for key, (inputs, outputs) in self._signatures().items()
        }

    def get_signature_runner(self, signature_key: str | None = None) -> SignatureRunner:
        """Return a function that runs a signature on inputs by name.

        Args:
          signature_key: the signature; may be omitted if there is only one.
        Raises: InvalidArgumentError: the signature does not exist, or the key was omitted and there
          are several.

        Examples:
          >>> x = wf.placeholder(wf.float32, [None], name="x")
          >>> converter = wf.lite.Converter(x.graph, [x], [wf.add(x, 1.0, name="y")], {"x": [4]})
          >>> interpreter = wf.lite.Interpreter(model_content=converter.convert())
          >>> interpreter.get_signature_runner()(x=[1.0, 2.0, 3.0, 4.0])
          {'y': array([2., 3., 4., 5.], dtype=float32)}
        """
        signatures = self._signatures()
        if signature_key is None and len(signatures) == 1:
            (signature_key,) = signatures
        if signature_key not in signatures:
            raise InvalidArgumentError(
                f"there is no signature {signature_key!r}; the signatures are {sorted(signatures)}"
            )
        return SignatureRunner(self, *signatures[signature_key])

    def _signatures(self) -> dict[str, tuple[dict[str, int], dict[str, int]]]:
        """Return the input and output indices of each signature, by name."""
        lib, handle = self._library, self._handle
        return {
            lib.wl_signature_key(handle, s).decode("utf-8", "replace"): (
                self._bindings(s, 0),
                self._bindings(s, 1),
            )
            for s in range(lib.wl_signature_count(handle))
        }

    def _bindings(self, signature: int, outputs: int) -> dict[str, int]:
        lib, tensor, result = self._library, ctypes.c_uint32(), {}
        for i in range(lib.wl_binding_count(self._handle, signature, outputs)):
            name = lib.wl_binding(self._handle, signature, outputs, i, ctypes.byref(tensor))
            result[name.decode("utf-8", "replace")] = tensor.value
        return result


class SignatureRunner:
    """Function that runs a signature: `runner(x=value)` returns a dict of outputs by name.

    Args:
      interpreter: the interpreter of the graph.
      inputs: indices of the input tensors by name.
      outputs: indices of the output tensors by name.

    Examples:
      >>> x = wf.placeholder(wf.float32, [2], name="x")
      >>> with wf.Session() as session:
      ...     y = wf.add(x, 1.0, name="y")
      ...     content = wf.lite.Converter.from_session(session, [x], [y]).convert()
      >>> wf.lite.Interpreter(model_content=content).get_signature_runner()(x=[1.0, 2.0])
      {'y': array([2., 3.], dtype=float32)}
    """

    def __init__(
        self, interpreter: Interpreter, inputs: Mapping[str, int], outputs: Mapping[str, int]
    ) -> None:
        self._interpreter = interpreter
        self._inputs = inputs
        self._outputs = outputs

    def __call__(self, **values: Any) -> dict[str, Any]:
        """Set the inputs, run the graph and return copies of the outputs.

        Args:
          values: the inputs by name, as for `set_tensor`. Open sizes become those of the value.
        Returns: the values of the outputs by name.
        Raises:
          FailedPreconditionError: an input is missing, or the signature has no such input.
          InvalidArgumentError: a value has another type, rank or fixed size than its input.
          OutOfRangeError: a size is above its bound.

        Examples:
          >>> x = wf.placeholder(wf.float32, [None], name="x")
          >>> converter = wf.lite.Converter(x.graph, [x], [wf.add(x, 1.0, name="y")], {"x": [4]})
          >>> interpreter = wf.lite.Interpreter(model_content=converter.convert())
          >>> runner = interpreter.get_signature_runner("serving_default")
          >>> runner(x=[1.0, 2.0, 3.0, 4.0])["y"].tolist()
          [2.0, 3.0, 4.0, 5.0]
          >>> runner(x=[1.0, 2.0])["y"].tolist()
          [2.0, 3.0]
        """
        if values.keys() != self._inputs.keys():
            raise FailedPreconditionError(
                f"the signature requires the inputs {sorted(self._inputs)}, got {sorted(values)}"
            )
        with self._interpreter._exclusive:
            for name, value in values.items():
                self._interpreter._set_resized(self._inputs[name], value)
            self._interpreter.invoke()
            return {name: self._interpreter.get_tensor(i) for name, i in self._outputs.items()}

"""Arrays of the stand-in for CuPy."""

from __future__ import annotations

import json
import operator
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from cupy_standin import cuda

SURFACE: dict[str, Any] = json.loads((Path(__file__).parent / "surface.json").read_text())
_KINDS = "biufc"

at: weakref.WeakValueDictionary[int, ndarray] = weakref.WeakValueDictionary()
"""The arrays whose addresses were requested."""


class _Data:
    """The `data` attribute of CuPy's arrays: the address of their memory."""

    def __init__(self, array: ndarray) -> None:
        # As CuPy's, it holds the memory, and no array.
        self._a, self._buffer, self._pointer = array._a, array._buffer, array._pointer
        self.ptr = array._a.ctypes.data
        at[self.ptr] = array

    def copy_from_device_async(self, src: _Data, size: int, stream: Any = None) -> None:
        assert size == src._a.nbytes == self._a.nbytes
        stream = stream or cuda.current_stream()
        seq = stream.begin("copy from device")  # which no graph of ours has
        src._buffer.read(stream, seq)
        self._buffer.write(stream, seq)
        self._a[...] = src._a


class ndarray:  # noqa: N801, as CuPy's
    """An array on a device, which NumPy's functions and arrays do not accept."""

    __slots__ = ("__weakref__", "_a", "_buffer", "_pointer", "base")

    def __init__(self, array: Any, base: Any = None, memptr: _Data | None = None) -> None:
        if memptr is not None:  # as CuPy's: a shape, a type, and memory of another array
            assert memptr._a.flags.c_contiguous and memptr._a.dtype == base
            self._a, self.base, self._buffer = memptr._a.view(), None, memptr._buffer
            self._a, self._pointer = self._a.reshape(array), memptr._pointer
            return
        if not isinstance(array, np.ndarray):
            array = np.asarray(array)
        if array.dtype.kind not in _KINDS or array.dtype.itemsize > 16:
            raise ValueError(f"Unsupported dtype {array.dtype}")
        self._a = array
        self.base = None if base is None else base if base.base is None else base.base
        if base is None:
            self._pointer = cuda.allocate(array.nbytes) if array.nbytes else None
            self._buffer = cuda.Buffer(self._pointer)
        else:
            self._pointer, self._buffer = base._pointer, base._buffer

    # ------------------------------------------------------------ what NumPy may not

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def __array_function__(self, *args: Any) -> Any:
        raise TypeError(f"NumPy's {args[0].__name__} has nothing to do with arrays of a device")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        mixed = any(isinstance(x, np.generic) for x in inputs)
        if method != "__call__" or options or not mixed:
            raise TypeError(f"NumPy's {ufunc.__name__} has nothing to do with arrays of a device")
        return operate(ufunc.__name__, ufunc, inputs)

    # -------------------------------------------------------------------- facts

    dtype = property(lambda self: self._a.dtype)
    shape = property(lambda self: self._a.shape)
    ndim = property(lambda self: self._a.ndim)
    size = property(lambda self: self._a.size)
    nbytes = property(lambda self: self._a.nbytes)
    itemsize = property(lambda self: self._a.itemsize)
    strides = property(lambda self: self._a.strides)
    flags = property(lambda self: self._a.flags)
    data = property(_Data)
    device = property(lambda self: cuda.Device(self._buffer.device))
    T = property(lambda self: ndarray(self._a.T, self))

    @property
    def real(self) -> ndarray:
        return ndarray(self._a.real, self) if self._a.dtype.kind == "c" else self

    @real.setter
    def real(self, value: Any) -> None:
        enqueue("real", (value,), (self,), lambda: setattr(self._a, "real", host_of(value)))

    @property
    def imag(self) -> ndarray:
        if self._a.dtype.kind == "c":
            return ndarray(self._a.imag, self)
        return ndarray(np.zeros_like(self._a))

    @imag.setter
    def imag(self, value: Any) -> None:
        enqueue("imag", (value,), (self,), lambda: setattr(self._a, "imag", host_of(value)))

    # ------------------------------------------------------------------- views

    def reshape(self, *shape: Any) -> ndarray:
        found = self._a.reshape(*shape)
        if np.shares_memory(found, self._a) or not found.size:
            return ndarray(found, self)
        return computed("reshape", (self,), lambda: self._a.reshape(*shape))

    def transpose(self, *axes: Any) -> ndarray:
        return ndarray(self._a.transpose(*axes), self)

    def swapaxes(self, a: int, b: int) -> ndarray:
        return ndarray(self._a.swapaxes(a, b), self)

    def squeeze(self, axis: Any = None) -> ndarray:
        return ndarray(self._a.squeeze(axis), self)

    def view(self, dtype: Any) -> ndarray:
        return ndarray(self._a.view(dtype), self)

    # ------------------------------------------------------------------ copies

    def astype(self, dtype: Any, order: str = "K", copy: bool = True) -> ndarray:
        return computed("astype", (self,), lambda: self._a.astype(dtype))

    def copy(self, order: str = "C") -> ndarray:
        return computed("copy", (self,), self._a.copy)

    def fill(self, value: Any) -> None:
        enqueue("fill", (value,), (self,), lambda: self._a.fill(host_of(value)))

    def get(
        self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True
    ) -> Any:
        stream = stream or cuda.current_stream()
        self._buffer.read(stream, stream.begin("copy out"))
        if out is None:
            cuda.machine().syncs += 1
            return self._a.copy()
        if not blocking and not isinstance(out, cuda.Pinned):
            raise ValueError("the host's memory is not pinned")
        if not self._a.flags.c_contiguous or out.shape != self.shape or out.dtype != self.dtype:
            raise ValueError("out must have the array's shape and type, and that be contiguous")
        out[...] = self._a
        return out

    def set(self, arr: Any, stream: Any = None) -> None:
        if arr.shape != self.shape or arr.dtype != self.dtype:
            raise ValueError("shapes and types must agree")
        stream = stream or cuda.current_stream()
        self._buffer.write(stream, stream.begin("copy in"))
        self._a[...] = arr

    def tolist(self) -> Any:
        return self._check_idle().tolist()

    def item(self) -> Any:
        return self._check_idle().item()

    def _reduced(self, name: str, *args: Any, **options: Any) -> ndarray:
        return computed(name, (self,), lambda: getattr(self._a, name)(*args, **options))

    def min(self, axis: Any = None, keepdims: bool = False) -> ndarray:
        return self._reduced("min", axis, keepdims=keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> ndarray:
        return self._reduced("max", axis, keepdims=keepdims)

    def sum(self, axis: Any = None, dtype: Any = None) -> ndarray:
        return self._reduced("sum", axis, dtype)

    def argmax(self, axis: Any = None) -> ndarray:
        return self._reduced("argmax", axis)

    def all(self, axis: Any = None) -> ndarray:
        return self._reduced("all", axis)

    def any(self, axis: Any = None) -> ndarray:
        return self._reduced("any", axis)

    def _check_idle(self) -> Any:
        touched("look", (self,), ())
        cuda.machine().syncs += 1
        return self._a

    def __bool__(self) -> bool:
        return bool(self._check_idle())

    def __int__(self) -> int:
        return int(self._check_idle())

    def __float__(self) -> float:
        return float(self._check_idle())

    def __index__(self) -> int:
        return operator.index(self._check_idle()[()])

    def __len__(self) -> int:
        return len(self._a)

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self._a)))

    # ----------------------------------------------------------------- indexing

    def __getitem__(self, key: Any) -> ndarray:
        found = index(key)
        array = self._a[found]
        if not isinstance(array, np.ndarray):
            array = self._a[(*found, ...) if isinstance(found, tuple) else (found, ...)]
        if _is_basic(found):
            return ndarray(array, self)
        if cuda.current_stream().captured is not None and _has_mask(found):
            cuda.current_stream().begin("getitem")  # whose size the host has to know
        return computed("getitem", (self, key), lambda: self._a[index(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        def store() -> None:
            self._a[index(key)] = np.asarray(host_of(value)).astype(self.dtype)

        enqueue("setitem", (key, value), (self,), store)

    def __repr__(self) -> str:
        return f"<array {self.dtype}{list(self.shape)} of the stand-in>"


def _is_basic(key: Any) -> bool:
    entries = key if isinstance(key, tuple) else (key,)
    return all(e is None or e is ... or isinstance(e, int | np.integer | slice) for e in entries)


def index(key: Any) -> Any:
    """Convert the device arrays in an index; reject NumPy arrays."""
    if isinstance(key, tuple):
        return tuple(index(entry) for entry in key)
    if isinstance(key, ndarray):
        return key._a
    if isinstance(key, list | np.ndarray):
        raise TypeError(f"an index on a device must not be a {type(key).__name__}")
    return key


def host_of(value: Any) -> Any:
    """Return the NumPy array behind a device array; reject NumPy arrays."""
    if isinstance(value, ndarray):
        return value._a
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, list | tuple):
        return type(value)(host_of(each) for each in value)
    return value


def touched(what: str, sources: Any, targets: Any) -> None:
    """Enqueue an operation on the current stream that reads and writes arrays."""
    stream = cuda.current_stream()
    seq = stream.begin(what)
    for array in _arrays(sources):
        _on_current(array)
        array._buffer.read(stream, seq)
    for array in _arrays(targets):
        _on_current(array)
        array._buffer.write(stream, seq)


def _on_current(array: ndarray) -> None:
    if array._buffer.device != cuda.current_device():
        raise ValueError(
            f"Array device must be same as the current device: array device = "
            f"{array._buffer.device} while current = {cuda.current_device()}"
        )


def _arrays(values: Any) -> list[ndarray]:
    if isinstance(values, ndarray):
        return [values]
    if isinstance(values, list | tuple):
        return [array for value in values for array in _arrays(value)]
    return []


def _has_mask(key: Any) -> bool:
    entries = key if isinstance(key, tuple) else (key,)
    return any(getattr(each, "dtype", None) == np.bool_ for each in entries)


def enqueue(what: str, sources: Any, targets: Any, work: Any) -> None:
    """Run an operation on the current stream, or record it in a graph that is being captured."""

    def run() -> None:
        touched(what, sources, targets)
        with np.errstate(all="ignore"):
            work()

    stream = cuda.current_stream()
    if stream.captured is None:
        run()
    else:
        stream.capture(run, [array._buffer for array in _arrays([sources, targets])])


def computed(what: str, sources: Any, function: Any) -> Any:
    """Return the results of a function as new arrays; in a captured graph they appear at launch."""
    if cuda.current_stream().captured is None:
        touched(what, sources, ())
        with np.errstate(all="ignore"):
            found = function()
        return type(found)(map(fresh, found)) if isinstance(found, tuple | list) else fresh(found)
    with np.errstate(all="ignore"):
        found = function()  # of what happens to be there, for the shape alone
    several = isinstance(found, tuple | list)
    made = [fresh(_undefined(each)) for each in (found if several else [found])]

    def work() -> None:
        again = function()
        for array, value in zip(made, again if several else [again], strict=True):
            array._a[...] = value

    enqueue(what, sources, made, work)
    return type(found)(made) if several else made[0]


def _undefined(value: Any) -> Any:
    value = np.asarray(value)
    return np.full_like(value, np.nan if value.dtype.kind in "fc" else 0)


def fresh(array: Any) -> ndarray:
    """Return a new array that the current stream has just written."""
    made = ndarray(np.ascontiguousarray(array).reshape(np.shape(array)))
    stream = cuda.current_stream()
    if stream.captured is None:
        made._buffer.write(stream, stream.seq)
    return made


def operate(name: str, function: Any, inputs: Any, out: Any = None, **options: Any) -> ndarray:
    """Run an elementwise NumPy function like CuPy's function of that name."""
    for value in inputs:
        if not isinstance(value, ndarray | np.generic | bool | int | float | complex):
            raise TypeError(f"Unsupported type {type(value)}")
    result = _loop(name, inputs, options.get("dtype"))

    def compute() -> Any:
        found = np.asarray(function(*[host_of(value) for value in inputs], **options))
        return found if result is None else found.astype(result)

    if out is None:
        return computed(name, inputs, compute)

    def store() -> None:
        found = compute()
        if not np.can_cast(found.dtype, out.dtype, "same_kind"):
            raise TypeError(f"{name}: output must be {out.dtype}, got {found.dtype}")
        out._a[...] = found

    enqueue(name, inputs, (out,), store)
    return out


def _loop(name: str, inputs: Any, dtype: Any) -> Any:
    """Return the result type of the first CuPy loop that accepts the inputs."""
    types = SURFACE["ufuncs"].get(_LONG.get(name, name))
    if types is None or dtype is not None:
        return None
    given = [np.asarray(host_of(v)).dtype if not isinstance(v, int | float | complex) or isinstance(
        v, np.generic) else None for v in inputs]  # fmt: skip
    strong = [dt for dt in given if dt is not None] or [np.dtype(float)]
    common = np.result_type(*strong)
    weak = [v for v, dt in zip(inputs, given, strict=True) if dt is None]
    if weak:
        common = np.result_type(np.empty(0, common), *weak)
    mixed = "shift" in name or name == "where"
    for loop in types:
        ins, _, outs = loop.partition("->")
        if all(np.can_cast(common if not mixed else (dt or common), char, "safe")
               for char, dt in zip(ins, given, strict=True)):  # fmt: skip
            return np.dtype(outs)
    raise TypeError(f"Wrong type ({strong}) of arguments for cupy_{name}")


_LONG = {"divide": "true_divide", "abs": "absolute", "conj": "conjugate"}
_OPERATORS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide,
    "floordiv": np.floor_divide, "mod": np.remainder, "pow": np.power, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "lshift": np.left_shift, "rshift": np.right_shift,
}  # fmt: skip
_COMPARISONS = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}  # fmt: skip
_UNARY = {"neg": np.negative, "abs": np.absolute, "invert": np.invert}


def _add_operators() -> None:
    for name, ufunc in (*_OPERATORS.items(), *_COMPARISONS.items()):

        def forward(self: ndarray, other: Any, ufunc: Any = ufunc) -> Any:
            return operate(ufunc.__name__, ufunc, (self, other))

        def backward(self: ndarray, other: Any, ufunc: Any = ufunc) -> Any:
            return operate(ufunc.__name__, ufunc, (other, self))

        def inplace(self: ndarray, other: Any, ufunc: Any = ufunc) -> Any:
            return operate(ufunc.__name__, ufunc, (self, other), out=self)

        setattr(ndarray, f"__{name}__", forward)
        if name in _OPERATORS:
            setattr(ndarray, f"__r{name}__", backward)
            setattr(ndarray, f"__i{name}__", inplace)
    for name, unary in _UNARY.items():

        def single(self: ndarray, unary: Any = unary) -> Any:
            return operate(unary.__name__, unary, (self,))

        setattr(ndarray, f"__{name}__", single)


_add_operators()

"""Native programs: compiled once, and callable from Python."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from weft_compiler.blas import MISSING, addresses
from weft_compiler.codegen import blas
from weft_compiler.codegen.call_nest import (
    find_call,
    module_of_call,
    routine_dtype,
    with_size_table,
)
from weft_compiler.codegen.interrupt_checks import WorkEstimate, work_of
from weft_compiler.codegen.kernel import INTERRUPTED, OUT_OF_BOUNDS
from weft_compiler.codegen.module import ENTRY, Module, module_of
from weft_compiler.codegen.options import Options
from weft_compiler.codegen.routine import Library as RoutineLibrary, Routine
from weft_compiler.codegen.runtime import MAX_THREADS, has_threads
from weft_compiler.codegen.sequence import sequence_of, symbol
from weft_compiler.codegen.targets import Target, object_code, target_of
from weft_compiler.codegen.tiles import symbol as routine_symbol
from weft_compiler.ir.canonical import canonical
from weft_compiler.ir.program import FOR_KERNELS, Check, Program, walk
from weft_compiler.ir.program_splitting import Piece, pieces_of
from weft_compiler.native import cache, runtime
from weft_compiler.native.arena import ARENA, address_of, allocate_aligned
from weft_compiler.native.entry import (
    BUSY,
    BufferRequirements,
    are_headers_readable,
    entry,
    state_of,
)
from weft_compiler.native.layouts import Timestamps
from weft_compiler.native.linking import Library
from weft_compiler.native.shared_objects import load_shared, name_of
from weft_compiler.routines.registry import library_of, library_routines
from weft_graph.ir.compile_pauses import may_pause
from weft_graph.ir.gc_pause import pause_gc
from weft_tensor import errors
from weft_tensor.dtypes import DType

_SMALL: Final = 20_000
"""Number of statements below which a program keeps the GIL: it ends within about 20 µs."""


_INTERRUPTED: Final = np.ones(1, np.int32)
"""An interrupt flag that is always set."""


_FIRST_TIMES: Final = 256
"""Number of readings of the clock that a traced call has room for at first."""


_RUN: Final = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4, ctypes.c_int64)


class MachineCode:
    """Machine code, shared by programs that differ only in names.

    Attributes:
      module: the LLVM module that it was compiled from.
      key: a hash of everything that it depends on, except the processor and versions.
      file: the name of its file in the cache; empty if it is not cached.
      address: the address of the function `weft.run`.
      nests: the code of the nests that it calls, if these are compiled separately.
      seconds: the time that compiling or reading it took.
      from_disk: True if it was read from the cache.
    """

    def __init__(
        self,
        module: Module,
        image: bytes,
        target: Target,
        key: str,
        file: str,
        nests: Sequence[MachineCode] = (),
    ) -> None:
        self.module = module
        self.nests = tuple(nests)
        self.target = target
        self.key = key
        self.file = file
        self.from_disk = True
        self.seconds = 0.0
        self._routines = []
        imports = {}
        for routine, dtype in module.routines:
            library = _routines(library_of(routine), dtype, target)
            self._routines.append(library)
            name_in_code = routine_symbol(routine, dtype)
            imports[name_in_code] = library.address(name_in_code)
        imports |= _blas(module.blas)
        imports |= {symbol(index): nest.address for index, nest in enumerate(self.nests)}
        if module.shares or self.nests:
            imports |= runtime.imports()
        self.library = Library(image, [ENTRY], imports)
        self.address: int = self.library.address(ENTRY)


def _blas(functions: Sequence[str]) -> dict[str, int]:
    """Return the addresses of BLAS functions in this process."""
    result = addresses()
    if functions and not result:
        raise errors.UnimplementedError(MISSING)
    return {blas.symbol(function): result[function] for function in functions}


@functools.cache
def _routines(library: RoutineLibrary, dtype: DType, target: Target) -> Library:
    """Return the library of routines for an element type, which all programs share."""
    text = library.text(dtype, target)
    names = [routine_symbol(routine, dtype) for routine in library_routines(library)]
    file = name_of(library.name, dtype)
    return load_shared(file, text, target, lambda image: Library(image, names))


class NativeProgram:
    """A program that can be called.

    Args:
      work, messages: as the attributes. By default they are computed from the body, which is empty
        for code from the disk.
    Attributes:
      program: the compiled program.
      code: its machine code.
      work: the estimated work of a call.
      messages: the error messages of its checks.
      enter: the C function `enter(*inputs, *outputs)`. Arrays must match the declarations of the
        program exactly, and be contiguous and aligned. It returns None on success, or an error
        number for `failure`. It returns without running NotImplemented if an array does not match,
        and BUSY if concurrent calls use all arena slots.
    """

    def __init__(
        self,
        program: Program,
        code: MachineCode,
        work: WorkEstimate | None = None,
        messages: Sequence[str] | None = None,
    ) -> None:
        self.program = program
        self.code = code
        self._constants = {
            b.name: np.ascontiguousarray(program.constants[b.name])
            for b in program.inputs
            if b.name in program.constants
        }
        if messages is None:
            messages = [
                statement.message
                for statement in walk(program.body)
                if isinstance(statement, Check)
            ]
        self.messages = messages
        self._passed_inputs = [b for b in program.inputs if b.name not in self._constants]
        self.work = work_of(program.body) if work is None else work
        self._interrupt = np.zeros(1, np.int32)
        self._threads = 1
        self._lease = ARENA.lease(self._memory(1))
        self._times = allocate_aligned(code.module.times)
        self._function = _RUN(code.address)
        self._readable = _readable_or_warn()
        self.enter = self._entry()

    def __call__(self, *inputs: Any, out: Sequence[Any] | None = None) -> tuple[Any, ...]:
        """Run the program.

        Args:
          inputs: an array for each input that is not a constant, of its type and shape.
          out: an array for each output; by default new arrays, for programs without updates.
        Returns: the arrays of the outputs.
        Raises:
          InvalidArgumentError: an array has another type or shape, or a check fails.
          CancelledError: `interrupt` was called.
        """
        if out is None:
            if self.program.updated:
                raise errors.InvalidArgumentError(
                    f"{self.program.name} updates {sorted(self.program.updated)}: pass arrays for "
                    "its outputs as `out`"
                )
            types = [buffer.array_type for buffer in self.program.outputs]
            out = [np.empty(shape, dtype.numpy) for dtype, shape in types]
        result = self.enter(*inputs, *out)
        if result is NotImplemented or result == BUSY:
            result = self._run_on_copies(inputs, out)
        if result is not None:
            raise self.failure(result)
        return tuple(out)

    @functools.cached_property
    def enter_briefly(self) -> Any:
        """Like `enter`, but the run ends at the first poll of the interrupt flag.

        It does not run at all if the headers of arrays cannot be read.
        """
        return self._entry(_INTERRUPTED) if self._readable else _busy

    def interrupt(self) -> None:
        """Interrupt runs until `resume`: they end with CancelledError at their next poll."""
        self._interrupt[0] = 1

    def resume(self) -> None:
        """Permit runs again after `interrupt`."""
        self._interrupt[0] = 0

    def copy(self) -> NativeProgram:
        """Return the same program with a separate interrupt flag."""
        copy = NativeProgram(self.program, self.code, self.work, self.messages)
        copy.threads = self._threads
        return copy

    def traced(self, receive: Callable[[Any], None]) -> Callable[..., Any] | None:
        """Return a function like `enter` that records when the code of each nest ended.

        The code of the nests is the same. Several threads may call the function.

        Args:
          receive: called after each successful call, in its thread, with readings of
            CLOCK_MONOTONIC in nanoseconds: before the first nest, and after each. The first and
            the last element of the array are for the receiver.
        Returns: None if the nests are not compiled separately, or there is no such clock.
        """
        if not (self.code.nests and self._readable and sys.platform == "linux"):
            return None
        from weft_compiler.native.trace_clock import use_counter_if_reliable

        use_counter_if_reliable()
        free: list[tuple[Any, Any]] = []
        capacity = _FIRST_TIMES

        def enter(*arrays: Any) -> Any:
            nonlocal capacity
            try:
                call, times = free.pop()
            except IndexError:  # the first call, or all are in use
                times = np.zeros(ctypes.sizeof(Timestamps) // 8 + capacity, np.int64)
                times[0] = capacity
                call = self._entry(times=times)
            result = call(*arrays)
            num_times = int(times[1])
            if num_times > times[0]:
                capacity = num_times
                return result
            if result is None:
                readings = np.empty(num_times + 2, np.int64)
                readings[1:-1] = times[2 : 2 + num_times]
                receive(readings)
            free.append((call, times))
            return result

        return enter

    def times(self) -> Any:
        """Return the nanoseconds of each loop nest in the last call: int64, shape (nests,).

        Only programs compiled with `Options(clocks=True)` record it.
        """
        noted = self._times.view(np.int64).reshape(-1, 2)
        return np.diff(noted @ np.array([1_000_000_000, 1]))

    def failure(self, code: int) -> errors.OpError:
        """Return the error for a number that `enter` returned."""
        if code == INTERRUPTED:
            return errors.CancelledError(f"{self.program.name} was interrupted")
        if code == OUT_OF_BOUNDS:
            return errors.InternalError(f"{self.program.name}: an index is out of bounds")
        message = self.messages[code - 1]
        if message.startswith(FOR_KERNELS):
            return errors.UnimplementedError(message)
        return errors.InvalidArgumentError(message)

    @property
    def threads(self) -> int:
        """The maximal number of threads of a call of `enter`; 1 by default.

        A program with parallel loops needs arena memory for each thread.
        """
        return self._threads

    @threads.setter
    def threads(self, count: int) -> None:
        is_shared = self.code.module.shares and has_threads(self.code.target)
        num_threads = min(count, MAX_THREADS) if is_shared else 1
        if num_threads != self._threads:
            self._threads = num_threads
            self._lease = ARENA.lease(self._memory(num_threads))
            self.enter = self._entry()
            vars(self).pop("enter_briefly", None)

    def _memory(self, threads: int) -> int:
        """Return the size of the temporaries of a call, in bytes."""
        return self.code.module.shared + threads * self.code.module.thread

    def _enter_dense(self, arrays: Sequence[Any]) -> int | None:
        """Run on arrays that `enter` accepts; if all slots are busy, use separate memory."""
        result: Any = self.enter(*arrays) if self._readable else NotImplemented
        while result == BUSY and ARENA.grow():
            result = self.enter(*arrays)
        return self._run(arrays) if result is NotImplemented or result == BUSY else result

    def _run(self, arrays: Sequence[Any]) -> int | None:
        """Run on one thread, with separate memory."""
        arena, times = allocate_aligned(self._memory(1)), allocate_aligned(self.code.module.times)
        addresses = address_of(arena), address_of(self._interrupt), _address_of_times(times)
        return self._function(self._pointers(arrays), *addresses, 1) or None

    def _pointers(self, arrays: Sequence[Any]) -> Any:
        remaining = iter(arrays)
        parameters = [
            self._constants[b.name] if b.name in self._constants else next(remaining)
            for b in (*self.program.inputs, *self.program.outputs)
        ]
        return (ctypes.c_void_p * max(1, len(parameters)))(*map(address_of, parameters))

    def _run_on_copies(self, inputs: Sequence[Any], out: Sequence[Any]) -> int | None:
        """Run on copies of arrays that `enter` rejects."""
        if len(inputs) != len(self._passed_inputs) or len(out) != len(self.program.outputs):
            raise errors.InvalidArgumentError(
                f"{self.program.name} requires {len(self._passed_inputs)} inputs and "
                f"{len(self.program.outputs)} outputs, got {len(inputs)} and {len(out)}"
            )
        expected = (*self._passed_inputs, *self.program.outputs)
        operands = [np.asarray(operand) for operand in (*inputs, *out)]
        for buffer, array in zip(expected, operands, strict=True):
            dtype, shape = buffer.array_type
            if (array.dtype, array.shape) != (dtype.numpy, shape):
                raise errors.InvalidArgumentError(
                    f"{buffer.name} must be {dtype.name} of shape {list(shape)}, "
                    f"got {array.dtype} of shape {list(array.shape)}"
                )
        for array in out:
            if not (isinstance(array, np.ndarray) and array.flags.writeable):
                raise errors.InvalidArgumentError("outputs must be writeable arrays")
        dense = [np.require(array, None, ["C", "A"]) for array in operands]
        result = self._enter_dense(dense)
        for array, filled in zip(out, dense[len(inputs) :], strict=True):
            if filled is not array:
                array[...] = filled
        return result

    def _enter_slowly(self, *arrays: Any) -> Any:
        return self._run_on_copies(
            arrays[: len(self._passed_inputs)], arrays[len(self._passed_inputs) :]
        )

    def _entry(self, interrupt: Any = None, times: Any = None) -> Any:
        """Return the function that enters the program; it is in C if headers can be read.

        Args:
          interrupt: the interrupt flag; by default that of this program.
          times: memory for readings of the clock; by default that of this program.
        """
        if not self._readable:
            return self._enter_slowly
        outputs = {b.name for b in self.program.outputs}
        rows = [
            BufferRequirements(
                b.array_type[0].numpy,
                b.array_type[1],
                b.name in outputs,
                address_of(self._constants[b.name]) if b.name in self._constants else 0,
            )
            for b in (*self.program.inputs, *self.program.outputs)
        ]
        interrupt = self._interrupt if interrupt is None else interrupt
        times = self._times if times is None else times
        state = state_of(rows)
        fields = state.fields
        fields.run = self.code.address
        fields.num_threads = self._threads
        fields.slots = ARENA.table
        fields.arena_size = self._memory(self._threads)
        fields.releases_gil = self.work.statements >= _SMALL
        fields.interrupt = address_of(interrupt)
        fields.times = _address_of_times(times)
        owners = (self.code, self._constants, self._lease, interrupt, times)
        return entry(state.memory, owners)


def _address_of_times(times: Any) -> int | None:
    """Return the address of memory for readings of the clock; None for no memory."""
    return address_of(times) if times.size else None


def _busy(*arrays: Any) -> int:
    return BUSY


@functools.cache
def _readable_or_warn() -> bool:
    if are_headers_readable():
        return True
    warnings.warn(
        "this build of Python or NumPy has an unknown memory layout of arrays; compiled programs "
        "are called through ctypes, which takes a few microseconds longer",
        RuntimeWarning,
        stacklevel=2,
    )
    return False


_codes: weakref.WeakValueDictionary[str, MachineCode] = weakref.WeakValueDictionary()
_lock: Final = threading.Lock()


def load(program: Program, options: Options | None = None) -> NativeProgram:
    """Compile a verified program to a callable.

    Raises:
      UnimplementedError: a primitive of the program has no machine code.
      InternalError: LLVM rejects it.
    """
    return NativeProgram(program, _code_of(canonical(program), options or Options(), program.name))


def _code_of(program: Program, options: Options, name: str, is_piece: bool = False) -> MachineCode:
    """Return the code of a program in canonical form.

    Args:
      name: a readable part of the file's name in the cache.
      is_piece: True for a piece, which is not split again.
    """
    written = _cache_text(program, options)
    key = hashlib.sha256(written.encode()).hexdigest()
    cut = not (is_piece or options.clocks)
    code = shared_code(key, lambda: _compile(program, options, written, key, name, cut))
    assert code is not None
    return code


def shared_code(key: str, make: Callable[[], MachineCode | None]) -> MachineCode | None:
    """Return the loaded code with a key; otherwise the result of `make`."""
    with _lock:
        code = _codes.get(key)
    artifact = make() if code is None else None
    if artifact is None:
        return code
    with _lock:
        return _codes.setdefault(key, artifact)


def _compile(
    program: Program, options: Options, written: str, key: str, name: str, cut: bool
) -> MachineCode:
    started = time.perf_counter()
    with pause_gc():
        pieces = pieces_of(program) if cut else []
    nests: dict[MachineCode, int] = {}
    if len(pieces) > 1:
        pieces, codes = _codes_of(pieces, options, name)
        nests = {code: index for index, code in enumerate(dict.fromkeys(codes))}
        called = [(piece, nests[code]) for piece, code in zip(pieces, codes, strict=True)]
        module = sequence_of(program, called, [code.module for code in nests], options)
    else:
        with pause_gc():
            module = module_of(program, options)
    code = _link(module, list(nests), options, written, key, name)
    code.seconds = time.perf_counter() - started
    return code


def _codes_of(
    pieces: Sequence[Piece], options: Options, name: str
) -> tuple[list[Piece], list[MachineCode]]:
    """Return the pieces of a program, with the code of each."""
    called: list[Piece] = []
    codes: list[MachineCode] = []
    for piece in pieces:
        call = None if options.bounds_checks else find_call(piece)
        if call is None:
            called.append(piece)
            codes.append(_code_of(piece.program, options, name, is_piece=True))
        else:
            called.append(with_size_table(piece, call, options))
            codes.append(_code_of_call(type(call), routine_dtype(piece, call), options))
    return called, codes


def _code_of_call(routine: type[Routine], dtype: DType, options: Options) -> MachineCode:
    """Return the code that calls a routine with its sizes from a table."""
    written = f"call {routine.routine} of {dtype.name}\n{options!r}"
    key = hashlib.sha256(written.encode()).hexdigest()

    def make() -> MachineCode:
        module = module_of_call(routine, dtype, options)
        return _link(module, [], options, written, key, routine.routine)

    code = shared_code(key, make)
    assert code is not None
    return code


def _link(
    module: Module, nests: list[MachineCode], options: Options, written: str, key: str, name: str
) -> MachineCode:
    """Return the linked code of a module: read it from the disk, or compile and store it."""
    target = target_of(options)
    new: list[bytes] = []

    def compiled() -> bytes:
        may_pause()
        new.append(object_code(module.text, target))
        return new[0]

    def linked(image: bytes) -> MachineCode:
        file = cache.object_file_name(name, written, target)
        return MachineCode(module, image, target, key, file, nests)

    code = cache.load_object(name, written, target, compiled, linked)
    code.from_disk = not new and all(nest.from_disk for nest in nests)
    return code


def _cache_text(program: Program, options: Options) -> str:
    """Return a text with everything that the code of a program depends on."""
    numbers = [
        f"{name}={value.tobytes().hex() if value.size == 1 else ''}"
        for name, value in sorted(program.constants.items())
    ]
    return "\n".join([str(program), repr(options), *numbers])

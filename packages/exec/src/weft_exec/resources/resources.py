"""State that outlives a step: containers of named resources, variables, and queues of waiters."""

from __future__ import annotations

import threading
from _thread import LockType
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, compress, repeat
from sys import getrefcount
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from weft_exec.resources.cancellation import Cancellation, Timer, call_at
from weft_exec.tracing.consumers import acquire, record_contention
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, compatible_dims, format_dims

DEFAULT_CONTAINER: Final = "localhost"

R = TypeVar("R", bound="Resource")


class Resource:
    """An object with state, stored in a container under a name.

    Attributes:
      name: its name, unique within the container.
      container: the container's name.
      closed: True once it was deleted; holders of a closed resource look it up again.
    """

    kind = "resource"

    def __init__(self, name: str, container: str = DEFAULT_CONTAINER) -> None:
        self.name = name
        self.container = container
        self.closed = False

    def close(self) -> None:
        """Release the contents and fail the waiters; may be called repeatedly."""
        self.closed = True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.container}/{self.name}>"


class ResourceHandle:
    """The value on a resource edge.

    Attributes:
      device: name of the device that owns the resource.
      container, name: the key of the resource.
      resource: the resource itself, in the owner's process; None elsewhere.
    """

    __slots__ = ("container", "device", "name", "resource")

    shape: tuple[int, ...] = ()
    ndim = 0

    def __init__(self, device: str, container: str, name: str, resource: Any = None) -> None:
        self.device = device
        self.container = container
        self.name = name
        self.resource = resource

    def __getitem__(self, index: tuple[()]) -> ResourceHandle:
        return self  # like any scalar, so that handles can be stacked and selected

    def __repr__(self) -> str:
        return f"<ResourceHandle {self.container}/{self.name} on {self.device}>"


class ResourceManager:
    """The resources of one session or server, by container and name.

    Attributes:
      default_container: the container of resources that do not specify one.
      owner: a function that returns the session that owns the resources, or None once that is gone;
        threads that work for the session end with it. None for shared resources.
    """

    def __init__(self, default_container: str = DEFAULT_CONTAINER) -> None:
        self.default_container = default_container
        self.owner: Callable[[], object] | None = None
        self._epoch = 0
        self._containers: dict[str, dict[str, Resource]] = {}
        self._lock = threading.RLock()

    @property
    def epoch(self) -> int:
        """A number that grows when resources are deleted, so that holders look them up again."""
        return self._epoch

    @property
    def own(self) -> ResourceManager:
        """The manager of the session's private resources, such as the states of random ops."""
        return self

    @property
    def shared(self) -> ResourceManager:
        """The manager of resources that other sessions may see."""
        return self

    def lookup_or_create(
        self, container: str, name: str, cls: type[R], factory: Callable[[], R]
    ) -> R:
        """Return the resource with a name, or create it by `factory()` if it does not exist.

        Args:
          container: the name of the container; "" for the default one.
          cls: the required class of the resource.
          factory: creates the resource. It is called with the manager locked, and must not wait for
            other threads.
        Raises: InvalidArgumentError: the resource with this name has another class.
        """
        container = container or self.default_container
        with self._lock:
            resources = self._containers.setdefault(container, {})
            resource = resources.get(name)
            if resource is None or resource.closed:
                resource = resources[name] = factory()
                resource.container = container
        return _check_type(resource, cls)

    def lookup(self, container: str, name: str, cls: type[R]) -> R:
        """Return the resource with a name.

        Raises:
          NotFoundError: it does not exist.
          InvalidArgumentError: it has another class.
        """
        container = container or self.default_container
        with self._lock:
            result = self._containers.get(container, {}).get(name)
        if result is None or result.closed:
            raise errors.NotFoundError(f"container {container!r} has no {cls.kind} named {name!r}")
        return _check_type(result, cls)

    def has(self, container: str, name: str) -> bool:
        """Return True if a resource with a name exists."""
        with self._lock:
            result = self._containers.get(container or self.default_container, {}).get(name)
        return result is not None and not result.closed

    def delete(self, container: str, name: str) -> None:
        """Delete one resource: remove and close it.

        Raises: NotFoundError: it does not exist.
        """
        container = container or self.default_container
        with self._lock:
            result = self._containers.get(container, {}).pop(name, None)
            self._epoch += 1
        if result is None:
            raise errors.NotFoundError(f"container {container!r} has no resource named {name!r}")
        result.close()

    def advance_epoch(self) -> None:
        """Invalidate everything that sessions have derived from the resources."""
        with self._lock:
            self._epoch += 1

    def clear(self, containers: Iterable[str] | None = None) -> None:
        """Remove and close everything in `containers`, or in all of them."""
        with self._lock:
            self._epoch += 1
            names = list(self._containers) if containers is None else list(containers)
            doomed = [
                resource
                for name in names
                for resource in self._containers.pop(name or self.default_container, {}).values()
            ]
        for resource in doomed:
            resource.close()

    def resources(self, cls: type[R], container: str | None = None) -> list[R]:
        """Return all resources of a class, in one container or in all, in order of creation."""
        with self._lock:
            tables = [
                table
                for name, table in self._containers.items()
                if container is None or name == (container or self.default_container)
            ]
            return [r for table in tables for r in table.values() if isinstance(r, cls)]


def _check_type(resource: Resource, cls: type[R]) -> R:
    if not isinstance(resource, cls):
        raise errors.InvalidArgumentError(
            f"{resource.container}/{resource.name} is a {resource.kind}, but a {cls.kind} is "
            "required"
        )
    return resource


# --------------------------------------------------------------------------- variables


class _Busy:
    """Placeholder in `VariableState._value` while an update writes to the array."""

    __slots__ = ()


_BUSY: Final = _Busy()


def _sole_count() -> int:
    """Return `getrefcount` of an array that one local holds: 2, or 1 from Python 3.14 on."""
    holder: list[Any] = [np.empty(1)]
    value = holder[0]
    holder[0] = _BUSY
    return getrefcount(value)


_SOLE: Final = _sole_count()

Update = Callable[..., Any]

_acquire: Final = LockType.acquire
_release: Final = LockType.release

_exhaust: Final = deque[Any](maxlen=0).extend
"""Consumes an iterator in one instruction, so that Ctrl-C cannot interrupt it."""


def _convert_to_form(array: Any, old: Any) -> Any:
    """Convert a new value of a variable to the form of `old`: a NumPy scalar or an array."""
    return array[()] if isinstance(old, np.generic) else array


class VariableState(Resource):
    """The value of one variable.

    `read` returns the array itself as a snapshot, without a lock. An update writes to that array
    only if it has no other owner; otherwise it stores a changed copy. So a snapshot never changes.
    Rank-0 values are stored as immutable NumPy scalars.

    Args:
      name: the variable's name, for messages.
      dtype: element type.
      dims: the declared static shape; None if unknown.
      container: the container's name.
      xp: the array module of the value.
      empty: `empty(shape, numpy dtype)`, the allocator; `xp.empty` by default.
    """

    kind = "variable"

    def __init__(
        self,
        name: str,
        dtype: DType,
        dims: Dims = None,
        container: str = DEFAULT_CONTAINER,
        xp: Any = np,
        empty: Callable[[tuple[int, ...], np.dtype[Any]], Any] | None = None,
    ) -> None:
        super().__init__(name, container)
        self.dtype = dtype.base_dtype
        self.dims = dims
        self._numpy = self.dtype.numpy
        self.xp = xp
        self._empty = empty or xp.empty
        self._lock = threading.Lock()
        self._value: Any = None

    @property
    def is_initialized(self) -> bool:
        """True if the variable has a value."""
        return self._value is not None

    def read(self) -> Any:
        """Return the current value as a snapshot, which later updates do not change.

        Returns: an array that the caller may read but not write; a NumPy scalar for rank 0.
        Raises: FailedPreconditionError: the variable has no value yet.
        """
        value = self._value
        if value is None or value is _BUSY:
            self._record_contention()
            with self._lock:
                value = self._value
            if value is None:
                raise self._uninitialized()
        return value

    def assign(self, value: Any, validate_shape: bool = True) -> None:
        """Store a copy of `value`.

        Args:
          value: an array or NumPy scalar of the variable's dtype, which still belongs to the
            caller.
          validate_shape: True to require the shape of the current value or, without a value, the
            declared shape.
        Raises: InvalidArgumentError: dtype or shape do not match; the variable is unchanged.
        """
        if value.dtype != self._numpy:
            raise errors.InvalidArgumentError(
                f"variable {self.name} holds {self.dtype.name}, got a value of {value.dtype}"
            )
        self._record_contention()
        with self._lock:
            old = self._value
            if validate_shape:
                self._check_shape(old, value.shape)
            if value.shape == () and self._numpy.kind != "O" and self.xp is np:
                self._value = value[()]
                return
            self._value = _BUSY
            try:
                if not (
                    type(old) is self.xp.ndarray
                    and getrefcount(old) <= _SOLE
                    and type(old.base) is not np.ndarray
                    and old.shape == value.shape
                ):
                    old = self._restore_and_allocate(old, value.shape)
                self.xp.copyto(old, value)
            finally:
                self._value = old

    def _restore_and_allocate(self, old: Any, shape: tuple[int, ...]) -> Any:
        self._value = old
        return self._empty(shape, self._numpy)

    def update(self, fn: Update, *args: Any) -> None:
        """Run `fn(array, *args)`, which changes the array in place.

        If the value has other owners, it is replaced by a changed copy. `fn` must check its
        arguments before it writes, because the old value is lost if an error occurs after that. It
        must not use the same variable.

        Raises: FailedPreconditionError: the variable has no value yet.
        """
        self._record_contention()
        with self._lock:
            value = self._value
            if value is None:
                raise self._uninitialized()
            if type(value) is not self.xp.ndarray:
                target = np.array(value)
                fn(target, *args)
                self._value = target[()]
                return
            self._value = _BUSY
            try:
                if getrefcount(value) <= _SOLE and type(value.base) is not np.ndarray:
                    fn(value, *args)
                else:
                    target = self._copy(value)
                    fn(target, *args)
                    value = target
            finally:
                self._value = value

    def replace(self, fn: Callable[..., Any], *args: Any) -> None:
        """Store `fn(value, *args)`, a new array or scalar of the same dtype, as the new value.

        Raises: FailedPreconditionError: the variable has no value yet.
        """
        with self._lock:
            if self._value is None:
                raise self._uninitialized()
            self._value = fn(self._value, *args)

    @staticmethod
    def update_all(states: tuple[VariableState, ...], fn: Update, *args: Any) -> None:
        """Run `fn(*arrays, *args)` over several different variables atomically, like `update`.

        Locks are always acquired in the same order, so that two updates cannot deadlock.

        Raises:
          FailedPreconditionError: a variable has no value yet.
          InvalidArgumentError: a variable occurs twice.
        """
        if len(states) == 1:
            return states[0].update(fn, *args)
        if len(set(map(id, states))) != len(states):
            names = ", ".join(state.name for state in states)
            raise errors.InvalidArgumentError(
                f"an update requires different variables, got the same one twice: {names}"
            )
        for state in states:
            state._record_contention()
        locks = VariableState._locks_of(states)
        held_flags: list[bool] = []
        values: list[Any] = []
        storing = map(setattr, states, repeat("_value"), values)
        releasing = map(_release, compress(locks, held_flags))
        ending = chain(storing, releasing)
        try:
            held_flags.extend(map(_acquire, locks))
            for state in states:  # Python checks for no signal between taking and storing a value
                values.append(state._take())
            targets = [state._writable(old) for state, old in zip(states, values, strict=True)]
            fn(*targets, *args)
            values[:] = map(_convert_to_form, targets, values)
        finally:
            _exhaust(ending)

    @staticmethod
    def exchange(changes: Sequence[tuple[VariableState, Any, Any]]) -> bool:
        """Store new values of several variables atomically, unless one was changed in between.

        Args:
          changes: variables, the results of their `read`, and new arrays of the same shapes and
            types, which they will own.
        Returns: True if the values were stored.
        """
        states = [state for state, _, _ in changes]
        values = [_convert_to_form(new, old) for _, old, new in changes]
        locks = VariableState._locks_of(states)
        held_flags: list[bool] = []
        storing = map(setattr, states, repeat("_value"), values)
        releasing = map(_release, compress(locks, held_flags))
        try:
            held_flags.extend(map(_acquire, locks))
            if any(state._value is not old for state, old, _ in changes):
                return False
            _exhaust(storing)
            return True
        finally:
            _exhaust(releasing)

    @staticmethod
    def _locks_of(states: Iterable[VariableState]) -> list[threading.Lock]:
        """Return the locks of variables, in acquisition order."""
        return [state._lock for state in sorted(states, key=id)]

    def _record_contention(self) -> None:
        """Record the wait for an update of another thread, if steps are traced."""
        if self._lock.locked():
            record_contention(self._lock, f"lock of {self.name}")

    def _take(self) -> Any:
        value = self._value
        if value is None:
            raise self._uninitialized()
        self._value = _BUSY
        return value

    def _writable(self, value: Any) -> Any:
        """Return `value` itself if only the list of `update_all` holds it; else a copy."""
        if type(value) is not self.xp.ndarray:
            return np.array(value)
        if getrefcount(value) <= _SOLE_IN_LIST and type(value.base) is not np.ndarray:
            return value
        return self._copy(value)

    def _copy(self, value: Any) -> Any:
        target = self._empty(value.shape, self._numpy)
        self.xp.copyto(target, value)
        return target

    def close(self) -> None:
        """Drop the value."""
        super().close()
        with self._lock:
            self._value = None

    def _uninitialized(self) -> errors.FailedPreconditionError:
        return errors.FailedPreconditionError(
            f"Attempting to use uninitialized value {self.name}",
            details={"uninitialized": self.name},
        )

    def _check_shape(self, old: Any, shape: tuple[int, ...]) -> None:
        dims = self.dims if old is None else old.shape
        if not compatible_dims(dims, shape):
            raise errors.InvalidArgumentError(
                f"variable {self.name} has shape {format_dims(dims)}, got a value of shape "
                f"{format_dims(shape)}; pass validate_shape=False to change the shape"
            )


def state_of(value: Any) -> VariableState:
    """Return the variable behind a reference or handle.

    Raises: InvalidArgumentError: the value is neither.
    """
    if type(value) is ResourceHandle:
        value = value.resource
    if not isinstance(value, VariableState):
        raise errors.InvalidArgumentError(f"requires a variable, got {value!r}")
    return value


def _sole_in_list() -> int:
    """Return `getrefcount`, in `_writable`, of an array that only the list of values holds."""

    def measure(value: Any) -> int:
        return getrefcount(value)

    values = [np.empty(1)]
    (count,) = [measure(old) for _, old in zip((0,), values, strict=True)]
    return count


_SOLE_IN_LIST: Final = _sole_in_list()


# --------------------------------------------------------------------------- waiting


class CompletionCallback(Protocol):
    """Interface of the completion of an asynchronous kernel: called once, from any thread."""

    def __call__(self, value: Any = None) -> None:
        """Complete with the result."""
        ...

    def fail(self, error: BaseException) -> None:
        """Complete with an error."""
        ...


class _NotReady:
    __slots__ = ()


NOT_READY: Final = _NotReady()
"""Result of an attempt that must keep waiting."""

Attempt = Callable[[], Any]


class _Waiter:
    __slots__ = ("attempt", "cancellation", "done", "timer", "token")

    def __init__(
        self, attempt: Attempt, done: CompletionCallback, cancellation: Cancellation | None
    ) -> None:
        self.attempt = attempt
        self.done: CompletionCallback | None = done
        self.cancellation = cancellation
        self.token: int | None = None
        self.timer: Timer | None = None

    def forget(self) -> None:
        """Deregister the waiter's cancellation callback and timer."""
        if self.cancellation is not None and self.token is not None:
            self.cancellation.deregister(self.token)
        if self.timer is not None:
            self.timer.cancel()


class Waiters:
    """A FIFO queue of operations that wait for a resource.

    An operation is given by an attempt: a function that runs with the lock held and returns the
      result, or `NOT_READY` without side effects. A waiter does not occupy a thread. It is
      completed exactly once: by a successful attempt, an error of an attempt, cancellation, its
      deadline, or `close`. After that it is released. An error for several waiters is copied for
      each.

    Queues that depend on each other, such as those of enqueues and dequeues, share one lock; use
    `wake_all` to wake them.

    Args:
      lock: a reentrant lock, which also guards the state of the resource.
    """

    def __init__(self, lock: Any = None) -> None:
        self.lock: Any = lock or threading.RLock()
        self._line: OrderedDict[_Waiter, None] = OrderedDict()
        self._closed: errors.OpError | None = None

    def __len__(self) -> int:
        with self.lock:
            return len(self._line)

    def wait(
        self,
        attempt: Attempt,
        done: CompletionCallback,
        cancellation: Cancellation | None = None,
        deadline: float | None = None,
    ) -> None:
        """Add an operation to the queue; if the queue is empty, the attempt runs immediately.

        Args:
          attempt: returns a result or NOT_READY; its exception is the waiter's error.
          done: called with the result or the error, never with the lock held.
          cancellation: the cancellation of the step, whose error is passed to `done`.
          deadline: in `time.monotonic()`; not needed if the driver of the step cancels it at its
            deadline.
        """
        waiter = _Waiter(attempt, done, cancellation)
        acquire(self.lock, "lock of a queue")
        try:
            if self._closed is not None:
                waiter.attempt = _make_failing(self._closed)
            self._line[waiter] = None
            finished = self._advance()
            is_waiting = waiter.done is not None
        finally:
            self.lock.release()
        _complete(finished)
        if not is_waiting:
            return
        if cancellation is not None:
            waiter.token = cancellation.register(lambda error: self._cancel(waiter, error))
        if deadline is not None and waiter.done is not None:
            waiter.timer = call_at(deadline, lambda: self._cancel(waiter, _late_error()))
        if waiter.done is None:  # completed by another thread, perhaps before the token was set
            waiter.forget()

    def wake(self) -> int:
        """Retry attempts from the head of the queue; return the number of completed ones."""
        acquire(self.lock, "lock of a queue")
        try:
            finished = self._advance()
        finally:
            self.lock.release()
        _complete(finished)
        return len(finished)

    @staticmethod
    def wake_all(*lines: Waiters) -> None:
        """Wake queues that depend on each other until none can proceed."""
        while sum([line.wake() for line in lines]):
            pass

    def fail_all(self, error: errors.OpError) -> None:
        """Fail all current waiters; later ones wait as usual."""
        with self.lock:
            finished = [
                (waiter, waiter.done, error.copy(), True)
                for waiter in self._line
                if waiter.done is not None
            ]
            for waiter in self._line:
                waiter.done = None
            self._line.clear()
        _complete(finished)

    def close(self, error: errors.OpError) -> None:
        """Fail all current and future waiters with `error`."""
        with self.lock:
            self._closed = self._closed or error
        self.fail_all(error)

    def _advance(self) -> list[_Finished]:
        finished: list[_Finished] = []
        line = self._line
        while line:
            waiter = next(iter(line))
            failed = False
            try:
                result = waiter.attempt()
            except Exception as error:  # because earlier completions must still be reported
                result, failed = error, True
            if result is NOT_READY:
                break
            if waiter.done is not None:
                finished.append((waiter, waiter.done, result, failed))
                waiter.done = None
            line.pop(waiter, None)
        return finished

    def _cancel(self, waiter: _Waiter, error: errors.OpError) -> None:
        with self.lock:
            done, waiter.done = waiter.done, None
            self._line.pop(waiter, None)
        if done is not None:
            waiter.forget()
            done.fail(error.copy())
            self.wake()


_Finished = tuple[_Waiter, CompletionCallback, Any, bool]


def _complete(finished: Iterable[_Finished]) -> None:
    for waiter, done, result, failed in finished:
        waiter.forget()
        if failed:
            done.fail(result)
        else:
            done(result)


def _make_failing(error: errors.OpError) -> Attempt:
    def attempt() -> Any:
        raise error.copy()

    return attempt


def _late_error() -> errors.OpError:
    return errors.DeadlineExceededError("the deadline passed while the operation waited")

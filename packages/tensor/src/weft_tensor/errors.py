"""Error classes of weft: TensorFlow's canonical codes, with the location of the failure.

Every error that a program can meet while it builds or runs a graph is an `OpError`. Each subclass
stands for one cause; its docstring says when it is raised and what to do. An error has the op, the
node, the device, the inputs and the user's line, if they are known. `OpError.to_dict` and
`OpError.from_dict` transfer it to another process without loss.
"""

from __future__ import annotations

__all__ = [
    "ABORTED",
    "ALREADY_EXISTS",
    "CANCELLED",
    "DATA_LOSS",
    "DEADLINE_EXCEEDED",
    "FAILED_PRECONDITION",
    "INTERNAL",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "OK",
    "OUT_OF_RANGE",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "UNAUTHENTICATED",
    "UNAVAILABLE",
    "UNIMPLEMENTED",
    "UNKNOWN",
    "AbortedError",
    "AlreadyExistsError",
    "CancelledError",
    "DataLossError",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "OpError",
    "OutOfRangeError",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "UnknownError",
    "error_code_from_exception_type",
    "exception_type_from_error_code",
]

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, TypeVar

OK = 0
CANCELLED = 1
UNKNOWN = 2
INVALID_ARGUMENT = 3
DEADLINE_EXCEEDED = 4
NOT_FOUND = 5
ALREADY_EXISTS = 6
PERMISSION_DENIED = 7
RESOURCE_EXHAUSTED = 8
FAILED_PRECONDITION = 9
ABORTED = 10
OUT_OF_RANGE = 11
UNIMPLEMENTED = 12
INTERNAL = 13
UNAVAILABLE = 14
DATA_LOSS = 15
UNAUTHENTICATED = 16

_E = TypeVar("_E", bound="OpError")

_CLASSES: dict[str, type[OpError]] = {}


class OpError(Exception):
    """A node could not be built or run, and no more specific class fits the cause.

    Raised directly only for codes that this version does not know; catch it to catch every error of
    weft. Read `message`, then `node` and `line` to locate the cause in the program.

    Both constructors work: `InvalidArgumentError("message", op="MatMul")` and TensorFlow's
    positional `InvalidArgumentError(node_def, op, message)`.

    Attributes:
      message: what was required and what was received.
      op: the operation if a session raised the error for one of its graph, else `op_type`.
      op_type: op type, such as "MatMul", or None.
      node: node name, such as "dense/MatMul", or None.
      device: device name, or None.
      line: the user's line that created the node, such as "train.py:12 in main", or None.
      inputs: the inputs of the node, such as ("float32[2,3]", "float32[4,5]").
      details: plain data about the cause (numbers, strings, lists and dicts of them).
      node_def: the operation's definition, or the one passed in TensorFlow's positional form; else
        None. `to_dict` omits it and the operation.
    """

    code: ClassVar[int] = UNKNOWN

    message: str
    op_type: str | None
    node: str | None
    device: str | None
    line: str | None
    inputs: tuple[str, ...]
    details: dict[str, Any]

    def __init__(
        self,
        *args: Any,
        message: str | None = None,
        op: Any = None,
        node: str | None = None,
        device: str | None = None,
        line: str | None = None,
        inputs: Iterable[str] = (),
        details: Mapping[str, Any] | None = None,
        node_def: Any = None,
    ) -> None:
        """Accept a message (first or by name), or TensorFlow's `(node_def, op, message)`.

        Args:
          *args: `(message,)`, or `(node_def, op, message)`, optionally followed by an error code.
          message: the text, unless it is in `args`.
          op: op type name; an operation (with `type` and `name`) also sets the node's name.
          node: node name.
          device: device name.
          line: "file.py:12 in f".
          inputs: descriptions of the inputs, "float32[2,3]".
          details: plain data about the cause.
          node_def: a node definition with `name`, `op` and `device`, as TensorFlow passes it.
        """
        if len(args) == 1:
            message = args[0]
        elif args:
            node_def, op, message = _positional(type(self), args)
        if node_def is not None:
            op = op or getattr(node_def, "op", None)
            node = node or getattr(node_def, "name", None)
            device = device or getattr(node_def, "device", None) or None
        self._operation: Any = None
        if op is not None and not isinstance(op, str):
            self._operation = op
            node = node or getattr(op, "name", None)
            op = getattr(op, "type", None)
        self.message = "" if message is None else str(message)
        self.args = (self.message,)
        self.op_type = op
        self.node = node
        self.device = device
        self.line = line
        self.inputs = tuple(inputs)
        self.details = dict(details) if details else {}
        self._node_def = node_def

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _CLASSES.setdefault(cls.__name__, cls)

    @property
    def op(self) -> Any:
        """The operation that failed, or only its type, or None."""
        return self.op_type if self._operation is None else self._operation

    def of_operation(self: _E, operation: Any) -> _E:
        """Record the failed operation; return the error itself."""
        self._operation = operation
        return self

    @property
    def node_def(self) -> Any:
        """The definition of the node that failed, as a `NodeDef` message, or None."""
        return getattr(self._operation, "node_def", None) or self._node_def

    @property
    def error_code(self) -> int:
        """The canonical code, TensorFlow's name for `code`."""
        return self.code

    def with_context(
        self: _E,
        op: str | None = None,
        node: str | None = None,
        device: str | None = None,
        line: str | None = None,
        inputs: Iterable[str] = (),
    ) -> _E:
        """Fill in missing fields and return the error itself; known fields are kept."""
        self.op_type = self.op_type or op
        self.node = self.node or node
        self.device = self.device or device
        self.line = self.line or line
        self.inputs = self.inputs or tuple(inputs)
        return self

    def in_iteration(self: _E, frame: str, iteration: int) -> _E:
        """Record the loop iteration, inner loops first; return the error itself."""
        self.details.setdefault("iterations", []).append([frame, iteration])
        return self

    def copy(self: _E) -> _E:
        """Return a copy of the error, so that each of several receivers has its own.

        Raising an error adds a traceback and a location. A copy does not share these with the
        copies of other receivers. Its cause is the same object.
        """
        counterpart = type(self).__new__(type(self))
        counterpart.__dict__.update(self.__dict__)
        counterpart.args = self.args
        counterpart.details = dict(self.details)
        counterpart.__cause__ = self.__cause__
        counterpart.__suppress_context__ = self.__suppress_context__
        return counterpart

    def to_dict(self) -> dict[str, Any]:
        """Return the error as plain data: strings, numbers, lists and dicts."""
        return {
            "code": self.code,
            "type": type(self).__name__,
            "message": self.message,
            "op": self.op_type,
            "node": self.node,
            "device": self.device,
            "line": self.line,
            "inputs": list(self.inputs),
            "details": dict(self.details),
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> OpError:
        """Rebuild an error from `to_dict`'s data, which may be untrusted.

        A type that this process does not know becomes the class of its code.

        Args:
          data: a mapping with at least "code" (int) and "message" (str).
        Raises:
          DataLossError: a field is missing or has the wrong type.
        """
        code = _field(data, "code", int)
        named_class = _CLASSES.get(_field(data, "type", str, default=""))
        cls = (
            named_class if named_class is not None and named_class.code == code else from_code(code)
        )
        inputs = _field(data, "inputs", (list, tuple), default=())
        if not all(isinstance(item, str) for item in inputs):
            raise DataLossError(f"an error's inputs must be strings, got {inputs!r}")
        error = cls.__new__(cls)
        OpError.__init__(
            error,
            _field(data, "message", str),
            inputs=inputs,
            details=_field(data, "details", Mapping, default={}),
            **{key: _field(data, key, str, default=None) for key in _PLACES},
        )
        if cls is OpError and code != UNKNOWN:
            error.details.setdefault("code", code)
        return error

    def __str__(self) -> str:
        context = self._context()
        return f"{self.message}\n\n{context}" if context else self.message

    def __repr__(self) -> str:
        fields = "".join(
            f", {key}={value!r}"
            for key in _PLACES
            if (value := self.op_type if key == "op" else getattr(self, key)) is not None
        )
        return f"{type(self).__name__}({self.message!r}{fields})"

    def __reduce__(self) -> tuple[Callable[[Mapping[str, Any]], OpError], tuple[dict[str, Any]]]:
        return OpError.from_dict, (self.to_dict(),)

    def _context(self) -> str:
        parts = []
        if self.node is not None:
            parts.append(f"node {self.node!r}")
        if self.op_type is not None:
            parts.append(f"op {self.op_type}" if self.node is None else f"(op {self.op_type})")
        if self.device is not None:
            parts.append(f"on {self.device}")
        lines = [" ".join(parts)] if parts else []
        for frame, iteration in self.details.get("iterations", ()):
            lines.append(f"in iteration {iteration} of {frame!r}")
        if self.inputs:
            lines.append("inputs: " + ", ".join(self.inputs))
        if self.line is not None:
            lines.append(f"made at {self.line}")
        return "\n".join("  " + line for line in lines)


_CLASSES["OpError"] = OpError

_PLACES = ("op", "node", "device", "line")

_REQUIRED = object()


def _positional(cls: type[OpError], args: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    if len(args) in (3, 4):
        return args[0], args[1], args[2]
    raise TypeError(
        f"{cls.__name__} accepts (message) or (node_def, op, message), got {len(args)} arguments"
    )


def _field(data: Mapping[str, Any], key: str, kind: Any, default: Any = _REQUIRED) -> Any:
    value = data.get(key, default)
    if value is default and default is not _REQUIRED:
        return default
    if not isinstance(value, kind):
        actual = "nothing" if value is _REQUIRED else repr(value)
        raise DataLossError(f"an error's {key!r} must be {kind}, got {actual}")
    return value


class CancelledError(OpError):
    """The work was cancelled before it was done.

    Raised by a step whose session was closed, by waiting queue operations when the queue is closed
    with `cancel_pending_enqueues`, and by a canceled step. It is usually expected during shutdown:
    end the loop that received it.
    """

    code = CANCELLED


class UnknownError(OpError):
    """A kernel or a peer failed in a way that fits no other class.

    Raised when foreign code (a Python function in the graph, a server's status) fails with an
    exception that fits no other class. The message includes the original text.
    """

    code = UNKNOWN


class InvalidArgumentError(OpError, ValueError):
    """An argument is wrong regardless of the state of the system: a value, a shape, a name.

    Raised at graph construction if the mistake is visible then, otherwise by the kernel. The
    message says what was required and what was received; correct the program at `line`.
    """

    code = INVALID_ARGUMENT


class InvalidTypeError(InvalidArgumentError, TypeError):
    """An argument has the wrong element type, or is not an element type at all.

    Raised at construction: tensors are never promoted implicitly, so `float32 + float64` or
    `int32 * float32` ends here. Cast one operand, or give the constant the other's dtype.
    """


class DeadlineExceededError(OpError):
    """The deadline passed before the work was done.

    Raised by a step past its `timeout_in_ms` and by remote calls. The step has stopped; variables
    may have been updated by the part that ran. Allow more time, or find the operation that waits:
    often a dequeue from a queue that nothing fills.
    """

    code = DEADLINE_EXCEEDED


class NotFoundError(OpError, KeyError):
    """A named file, tensor of a checkpoint, resource or op does not exist.

    Check the name; for checkpoints, compare the graph's variables with the file's.
    """

    code = NOT_FOUND


class AlreadyExistsError(OpError):
    """A file, or a resource in a container, exists already and cannot be created.

    Choose another name, share the existing one through `shared_name`, or reset the container.
    """

    code = ALREADY_EXISTS


class PermissionDeniedError(OpError):
    """The caller is known but may not do this: write a file, use a device.

    Change the permissions or the path; retrying does not help.
    """

    code = PERMISSION_DENIED


class ResourceExhaustedError(OpError):
    """A limited resource is exhausted: an allocator's memory, a quota, the disk.

    Raised by allocators with the request, the statistics and the largest holders in the message
    and, as numbers, in `details`. Make the batch smaller, raise the limit, or free some of the
    listed holders.
    """

    code = RESOURCE_EXHAUSTED


class FailedPreconditionError(OpError, RuntimeError):
    """The system is not in the state that the operation needs.

    Raised most often by reading a variable that was not initialized: run its initializer first.
    Retrying without changing the state does not help.
    """

    code = FAILED_PRECONDITION


class AbortedError(OpError):
    """The operation was aborted from elsewhere, such as by a failure in another part of the step.

    Retrying at a higher level (restore the checkpoint, run the step again) may succeed.
    """

    code = ABORTED


class OutOfRangeError(OpError):
    """The end of a dataset, of a file, or of a closed and empty queue was reached.

    An input pipeline signals the end of an epoch with it; loops catch it and stop.
    """

    code = OUT_OF_RANGE


class UnimplementedError(OpError, NotImplementedError):
    """The operation exists but not for these dtypes, shapes, attributes or this device.

    The message names what is supported. Place the node elsewhere, cast, or register a kernel.
    """

    code = UNIMPLEMENTED


class InternalError(OpError):
    """An invariant of weft itself is broken.

    This is a bug in weft, not in the program; report it with the message and, if possible, with the
    graph.
    """

    code = INTERNAL


class UnavailableError(OpError):
    """A task or service cannot be reached now.

    Raised for lost connections and tasks that restarted. Retrying later, from the last checkpoint,
    may succeed.
    """

    code = UNAVAILABLE


class DataLossError(OpError):
    """Stored or received data is damaged: a checksum differs, a file is cut short.

    Nothing of the damaged part was used. Restore an older checkpoint or fetch the file again.
    """

    code = DATA_LOSS


class UnauthenticatedError(OpError):
    """The caller is not authenticated: no certificate, no token, or a wrong one.

    Pass the credentials that the server was started with.
    """

    code = UNAUTHENTICATED


# ------------------------------------------------------------ causes with a second class
#
# TensorFlow raises a built-in exception for these, and programs catch that.


class AlreadyRegisteredError(AlreadyExistsError, KeyError, ValueError):
    """A name is registered twice: a gradient, a kernel, a divergence.

    Choose another name. It is a KeyError and a ValueError too, as in TensorFlow's registries.
    """


class EmptyGraphError(FailedPreconditionError, KeyError, ValueError):
    """A session was created for a graph without nodes.

    Make the session with `graph=`, or inside `with graph.as_default():`. It is a RuntimeError too,
    as in TensorFlow.
    """


class IntegerRangeError(InvalidTypeError, OverflowError):
    """An integer does not fit in its element type.

    Choose a wider type. It is a TypeError too, as in TensorFlow.
    """


class PaddingError(DataLossError, InvalidArgumentError):
    """An element is larger than the shape to which `padded_batch` pads.

    Pad to a larger shape, or slice the elements. It is a DataLossError too, as in TensorFlow.
    """


class UnsupportedResultError(InternalError, InvalidArgumentError):
    """A function of `py_func` returned an object that no tensor can hold, such as a dict.

    Return arrays, numbers or strings. It is an InternalError too, as in TensorFlow.
    """


class UnknownNameError(NotFoundError, ValueError):
    """A graph has no node or output of that name.

    The message lists similar names. It is also a KeyError, as TensorFlow's graph lookups raise, and
    a ValueError, as its fetches raise.
    """


class UnknownFeedError(UnknownNameError, TypeError):
    """A feed names something that the graph does not have; a TypeError too, as in TensorFlow."""


class UnknownTargetError(NotFoundError, InvalidArgumentError):
    """A session's target has an unregistered scheme.

    The message lists those that are known. It is a NotFoundError, as in TensorFlow.
    """


_BY_CODE: dict[int, type[OpError]] = {
    cls.code: cls for cls in OpError.__subclasses__() if "code" in cls.__dict__
}


def from_code(code: int) -> type[OpError]:
    """Return the class for a canonical code (1 to 16), or `OpError` itself for any other."""
    return _BY_CODE.get(code, OpError)


def exception_type_from_error_code(error_code: int) -> type[OpError]:
    """Return the error class of a canonical code.

    Args:
      error_code: a canonical code, such as `wf.errors.NOT_FOUND`.
    Raises:
      NotFoundError: no class has this code.

    Examples:
      >>> wf.errors.exception_type_from_error_code(wf.errors.NOT_FOUND)
      <class 'weft_tensor.errors.NotFoundError'>
    """
    if error_code not in _BY_CODE:
        raise NotFoundError(f"no error class has the code {error_code!r}; codes are 1 to 16")
    return _BY_CODE[error_code]


def error_code_from_exception_type(cls: type[OpError]) -> int:
    """Return the canonical code of an error class.

    Args:
      cls: OpError, or a class derived from it.
    Returns: one of the numbers in `wf.errors`, such as NOT_FOUND.

    Examples:
      >>> wf.errors.error_code_from_exception_type(wf.errors.NotFoundError) == wf.errors.NOT_FOUND
      True
    """
    return cls.code

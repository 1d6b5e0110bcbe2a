"""Interface between the executor and compilers: code generators for nodes.

A compiler package registers a generator in a module named in the entry-point group
`weft_graph.code_generators`. The module is imported at the first compilation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from weft_graph.ir.compiled_function import CompiledFunction, Roofline
from weft_graph.ir.node import Node, Output
from weft_graph.ir.registry import Registry
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

Shape = tuple[int, ...]

MAX_SMALL_ELEMENTS: Final = 16
"""Largest number of elements of a vector of sizes or axes."""


def are_sizes(node: Node) -> bool:
    """Return True if a node's outputs may be sizes, axes or a counter.

    Compilers receive such a node only if its values follow from shapes. Integers computed from
    data, such as histogram counts, count as data unless a value rule computes them.
    """
    small = bool(node.outputs) and all(map(is_size, node.outputs))
    return small and (node.op_def.value_rule is not None or not any(map(_is_data, node.inputs)))


def _is_data(source: Output) -> bool:
    """Return True if an output is floating-point, or may have more elements than sizes have."""
    dims = source.dims
    if dims is None or source.dtype in (dtypes.resource, dtypes.variant):
        return False
    is_large = len(dims) > 1 or any(size is None or size > MAX_SMALL_ELEMENTS for size in dims)
    return is_large or source.dtype.is_floating


def is_size(output: Output) -> bool:
    """Return True if an output may be sizes, axes or a counter."""
    dims = output.dims
    if output.dtype not in (dtypes.int32, dtypes.int64):
        return False
    return dims is None or not dims or (len(dims) == 1 and (dims[0] or 0) <= MAX_SMALL_ELEMENTS)


class NotGenerated(Exception):  # noqa: N818 - it is no error of a program
    """Raised if nodes cannot be compiled for some shapes; the message is the reason."""


class MonomorphicCode(NotGenerated):
    """Signal that no code supports several choices of shapes, although this was required."""


class SettingError(errors.InvalidArgumentError):
    """A setting of the compiler cannot be used, such as a directory that cannot be written."""


Path = tuple[tuple[Node, bool], ...]
"""Path condition: Switches and the values of their predicates, the outermost first."""


class Branches(NamedTuple):
    """The control flow of nodes in branches.

    Attributes:
      paths: path condition of each node in a branch, with one Switch per predicate.
      sides: for each Merge, a Switch of its predicate, and True if the Merge returns input 1 when
        the predicate is True.
    """

    paths: Mapping[Node, Path] = MappingProxyType({})
    sides: Mapping[Node, tuple[Node, bool]] = MappingProxyType({})


NO_BRANCHES: Final = Branches()


class Subgraph(Protocol):
    """Nodes that are compiled together or not at all, such as a `WholeLoop`."""

    @property
    def nodes(self) -> Sequence[Node]:
        """All nodes inside."""
        ...


class Request(Protocol):
    """Request to compile nodes: a `RegionRequest` or a `LoopRequest`.

    Requests are immutable. Generators raise `NotGenerated` for kinds that they do not support.
    """

    @property
    def name(self) -> str:
        """Name for display."""
        ...

    @property
    def nodes(self) -> Sequence[Node]:
        """Nodes to compile."""
        ...


class RegionRequest(NamedTuple):
    """Request to compile a region for some shapes and values.

    Attributes:
      members: the nodes, sources before users. Results that `constant_value` can compute for these
        shapes, such as sizes and axes, may determine the code of other members.
      inputs: outputs of other nodes that members read; constants among them are known. A read of a
        reference or a handle sees the updates of earlier members.
      outputs: outputs of the members to return.
      shapes: shapes of the inputs.
      values: by index, values of the inputs that determine the code.
      branches: the branches of the members; all their Switches and Merges are members.
      memo: cache of results that depend on the nodes only, shared by requests that differ only in
        shapes and values; None if there are no others.
    """

    members: Sequence[Node]
    inputs: Sequence[Output]
    outputs: Sequence[Output]
    shapes: Sequence[Shape]
    values: Mapping[int, Any] = MappingProxyType({})
    branches: Branches = NO_BRANCHES
    memo: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """Name of the last member."""
        return self.members[-1].name

    @property
    def nodes(self) -> Sequence[Node]:
        """The members."""
        return self.members


class Generated(Protocol):
    """A compiled function of arrays.

    Attributes:
      input_positions: indices of the inputs that it receives; known inputs are compiled in.
      rng_nodes: the members that use random numbers, in the order of their streams.
      reports_rng_use: True if the last result says which of these used random numbers: members in
        branches may not have run.
      results: the dtype and shape of each result.
      updates: indices of the inputs whose variables it updates.
      is_long_running: True if it may run for milliseconds and can be interrupted.
      is_bounded: True if its run time is bounded by the shapes.
      is_shape_polymorphic: True if its code is shape-polymorphic, so that another size compiles
        quickly.
      threads: number of threads that may run a call; 1 until the caller changes it. The results do
      not depend on it, except for the last bits of BLAS products.
    """

    input_positions: Sequence[int]
    rng_nodes: Sequence[Node]
    reports_rng_use: bool
    results: Sequence[tuple[DType, Shape]]
    updates: Sequence[int]
    is_long_running: bool
    is_bounded: bool
    is_shape_polymorphic: bool
    threads: int

    @property
    def enter(self) -> Callable[..., Any]:
        """Low-overhead entry point; returns None on success.

        It returns another value and changes nothing if an array is not dense or a check fails.
        Setting `threads` replaces it.
        """
        ...

    @property
    def enter_briefly(self) -> Callable[..., Any]:
        """Like `enter`, but stops at the next poll if interrupted."""
        ...

    def __call__(self, *arrays: Any) -> None:
        """Compute the results from the inputs, and update variables in place.

        Several threads may call it at the same time. If it fails, no variable has changed.

        Args:
          arrays: arrays of the compiled dtypes and shapes. First the inputs, of any strides. Then,
            if members use random numbers, the states of their streams: uint64 of shape (members,
            6), counters and keys of Philox4x64-10. Then one output array for each result, and last
            the arrays of the variables.
        Raises:
          UnimplementedError: the code does not support these values; run kernels instead.
          OpError: an operand is invalid.
          CancelledError: it was interrupted.
        """
        ...

    def interrupt(self) -> None:
        """Make current and future calls end within milliseconds, until `resume`.

        Calls that have begun to update variables finish.
        """
        ...

    def resume(self) -> None:
        """Allow calls again after `interrupt`."""
        ...

    def copy(self) -> Generated:
        """Return the same function with a separate interrupt flag."""
        ...

    def traced(self, receive: Callable[[Any], None]) -> Generated | None:
        """Return the same function with readings of the clock between its kernels.

        Args:
          receive: called after each successful call, in its thread, with readings of the clock of
            `time.perf_counter_ns`: before the first kernel, and after each. They are an int64
            array, whose first and last elements are for the receiver.
        Returns: None if the times of its kernels cannot be recorded.
        """
        ...


class ProfileStore(Protocol):
    """Store of small values by fingerprint, persistent if a cache directory exists."""

    def read(self, key: str) -> bytes | None:
        """Return the value stored under a fingerprint; None if it is missing or damaged."""
        ...

    def write(self, key: str, content: bytes) -> None:
        """Store a value under a fingerprint, if possible."""
        ...


class NoProfiles:
    """The `ProfileStore` of code generators without persistent storage."""

    def read(self, key: str) -> bytes | None:
        """Return None."""
        return None

    def write(self, key: str, content: bytes) -> None:
        """Do nothing."""


class CompileSupport(Protocol):
    """Interface that tells which nodes a code generator can compile."""

    def unsupported_reason(self, subject: Node | Subgraph) -> str:
        """Return the reason why a node or a whole loop cannot be compiled; "" if it can.

        A request may still be rejected because of its shapes.
        """
        ...

    def changes(self, node: Node) -> int:
        """Return the number of variables that a node updates, which are its first inputs.

        The node is compiled for the shapes of the variables, which must be initialized. If it
        returns a reference, that is the reference of its first input.
        """
        ...

    def changes_places(self, node: Node) -> bool:
        """Return True if a node changes only some elements of a variable.

        If members read the updated variable, the function copies it.
        """
        ...

    def reads(self, node: Node) -> bool:
        """Return True if a node reads the variable of its input and may be compiled.

        A handle is read if other members update its variable.
        """
        ...

    def uses_rng(self, node: Node) -> bool:
        """Return True if a node uses random numbers and may be compiled.

        The function receives the state of its stream; the caller counts the executions.
        """
        ...

    def value_dependent_inputs(self, node: Node) -> Sequence[int]:
        """Return the indices of inputs whose values determine the code, such as axes."""
        ...

    def repays(self, node: Node) -> bool:
        """Return True if compiling a single node pays off because its kernel makes many calls."""
        ...


class ClockReader(NamedTuple):
    """Readings of the clock of `time.perf_counter_ns` while a list is iterated over.

    Attributes:
      begin: returns an iterator over a list, which reads the clock before each item and after the
        last. It is a buffer of int64 with the readings so far, which are in nanoseconds only when
        the iteration has ended. If the list is cleared, the iteration ends.
      fail: ends an iteration early with a reading and -1.
    """

    begin: Callable[[list[Any]], Any]
    fail: Callable[[Any], object]


class CodeGenerator(CompileSupport, Protocol):
    """Compiler of regions and loops to functions."""

    @property
    def profiles(self) -> ProfileStore:
        """Persistent measurements of compiled code."""
        ...

    def fingerprint(self, request: Request) -> str | None:
        """Return a hash of a request that is the same in all processes.

        Returns: None if its code is not stored persistently.
        """
        ...

    def find(self, request: Request) -> Generated | None:
        """Return an earlier result of `generate` if it can be found within about a millisecond.

        Returns: None if it must be generated.
        """
        ...

    def polymorphic_fingerprint(self, request: Request) -> str | None:
        """Return a name like `fingerprint` that is the same for all sizes that are not static.

        Returns: None if all sizes are static, or code for the request is not kept.
        """
        ...

    def instance(self, request: Request, like: Iterable[Generated]) -> Generated | None:
        """Return existing code for other sizes that supports a request; takes under 1 ms.

        Args:
          like: functions of the same nodes for other shapes.
        """
        ...

    def generate(
        self,
        request: Request,
        like: Iterable[Generated] = (),
        others: Iterable[Request] = (),
    ) -> Generated:
        """Return a function that computes a request.

        Args:
          request: the nodes, and the shapes and values to compile them for.
          like: functions of the same nodes for other shapes, whose code may be shared.
          others: requests for other shapes, some of which the code must also support.
        Raises:
          MonomorphicCode: the code would support none of `others`.
          NotGenerated: the nodes cannot be compiled for these shapes and values.
        """
        ...

    def kernels(self, request: Request) -> Sequence[Sequence[Node]]:
        """Return the nodes that each kernel of the function of a request computes, in order.

        They are the kernels that `Generated.traced` records. The request is lowered again, which
        may take as long as compiling it.

        Raises: NotGenerated: the nodes cannot be compiled, or their kernels are unknown.
        """
        ...

    def explain(self, request: Request, arguments: Sequence[Any]) -> CompiledFunction:
        """Compile nodes like `generate`, run the function, and describe its kernels.

        Args:
          request: as in `generate`.
          arguments: arrays of the inputs, and of the variables' values. They are not modified.
        Raises:
          NotGenerated: the nodes cannot be compiled.
          OpError: an operand is invalid.
        """
        ...

    def roofline(self) -> Roofline:
        """Return the roofline of this machine; the first call measures it for about a second."""
        ...

    def clock_reader(self) -> ClockReader | None:
        """Return native functions that read the clock; None if there are none."""
        ...


generators: Final[Registry[CodeGenerator]] = Registry(
    "code generator", group="weft_graph.code_generators"
)
"""Code generators by name; the first one is used."""


class Launch(NamedTuple):
    """A kernel launch.

    Attributes:
      kernel: name of the kernel.
      blocks, threads: number of blocks, and of threads per block.
      arrays: the arrays that it receives after the memory and the flag: indices into the constants,
        followed by the arrays of `Generated.__call__`.
    """

    kernel: str
    blocks: int
    threads: int
    arrays: Sequence[int]


class DeviceCode(Protocol):
    """Kernels of a device, which the device's owner loads and launches in order.

    Kernels receive addresses of working memory, of a flag, and of dense arrays. The flag, an int32,
    is 0 or the number of a failed check, from 1. Kernels do nothing while it is not 0, and no
    variable is updated after it is set.
    """

    @property
    def image(self) -> str:
        """The code as PTX."""
        ...

    @property
    def launches(self) -> Sequence[Launch]:
        """The launches, in order."""
        ...

    @property
    def memory(self) -> int:
        """Size of the working memory in bytes."""
        ...

    @property
    def constants(self) -> Sequence[Any]:
        """Constant arrays that the kernels read."""
        ...

    @property
    def messages(self) -> Sequence[str]:
        """Error messages of the checks."""
        ...

    @property
    def input_positions(self) -> Sequence[int]:
        """See `Generated`."""
        ...

    @property
    def rng_nodes(self) -> Sequence[Node]:
        """See `Generated`."""
        ...

    @property
    def results(self) -> Sequence[tuple[DType, Shape]]:
        """See `Generated`."""
        ...

    @property
    def updates(self) -> Sequence[int]:
        """See `Generated`."""
        ...


class DeviceCodeGenerator(CompileSupport, Protocol):
    """Generator of kernels from nodes, for one type of device."""

    def generate(
        self, request: RegionRequest, capability: tuple[int, int], deterministic: bool
    ) -> DeviceCode:
        """Return kernels that compute some nodes.

        Args:
          request: as in `CodeGenerator.generate`.
          capability: the device's CUDA compute capability, major and minor.
          deterministic: require bitwise equal results in all runs.
        Raises: NotGenerated: the nodes cannot be compiled for these shapes and values.
        """
        ...

    def explain(
        self, request: RegionRequest, capability: tuple[int, int], deterministic: bool
    ) -> tuple[DeviceCode, CompiledFunction]:
        """Compile like `generate` and describe the launches; their times are unknown."""
        ...


device_generators: Final[Registry[DeviceCodeGenerator]] = Registry(
    "code generator of a device type", group="weft_graph.code_generators"
)
"""Code generators by device type, such as GPU."""

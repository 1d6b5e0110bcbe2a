"""Interface between the executor and compilers: the generators of code for nodes.

A package that compiles registers a generator in a module that the entry-point group
`weft_graph.code_generators` names.  It is imported at the first compilation.
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

FEW: Final = 16
"""Elements up to which a vector of integers may be sizes or axes."""


def are_sizes(node: Node) -> bool:
    """Return True if a node's outputs may be sizes, axes or a counter.

    Compilers get such a node only if its values follow from shapes. Integers computed from data,
    such as histogram counts, are data themselves unless a value rule computes them.
    """
    small = bool(node.outputs) and all(map(is_size, node.outputs))
    return small and (node.op_def.value_rule is not None or not any(map(_is_data, node.inputs)))


def _is_data(source: Output) -> bool:
    """Return True if an output is floating-point, or may have more elements than sizes have."""
    dims = source.dims
    if dims is None or source.dtype in (dtypes.resource, dtypes.variant):
        return False
    is_large = len(dims) > 1 or any(size is None or size > FEW for size in dims)
    return is_large or source.dtype.is_floating


def is_size(output: Output) -> bool:
    """Return True if an output may be sizes, axes or a counter."""
    dims = output.dims
    if output.dtype not in (dtypes.int32, dtypes.int64):
        return False
    return dims is None or not dims or (len(dims) == 1 and (dims[0] or 0) <= FEW)


class NotGenerated(Exception):  # noqa: N818 - it is no error of a program
    """Nodes that have to run one by one for the shapes that they got, and why."""


class SettingError(errors.InvalidArgumentError):
    """A setting of the compiler cannot be used, such as a directory that cannot be written."""


Path = tuple[tuple[Node, bool], ...]
"""Switches whose predicates must have come out one way or the other, the outermost first."""


class Branches(NamedTuple):
    """Which of some nodes run in a branch only.

    Attributes:
      paths: of these, the Switches that lead to them, one for each predicate.
      sides: of each Merge, a Switch of what decides it, and whether it gives its input 1 where that
        is True.
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
    """Nodes, and everything that their code depends on: a `RegionRequest` or a `LoopRequest`.

    Requests are immutable. Generators raise `NotGenerated` for kinds that they do not support.
    """

    @property
    def name(self) -> str:
        """Name for people."""
        ...

    @property
    def nodes(self) -> Sequence[Node]:
        """Nodes to compile."""
        ...


class RegionRequest(NamedTuple):
    """Nodes, and the shapes and values to compile a function for.

    Attributes:
      members: sources before users. Results that `constant_value` knows for these shapes, such as
        sizes and axes, may decide what is compiled of other members.
      inputs: what they take of other nodes; constants among them are known. Members that read a
        reference, or a handle, read what the members before them have left in the variable.
      outputs: what is wanted of them.
      shapes: of the inputs.
      values: of those that decide what is compiled, by their positions among the inputs.
      branches: what the members are in, all of whose Switches and Merges are members.
    """

    members: Sequence[Node]
    inputs: Sequence[Output]
    outputs: Sequence[Output]
    shapes: Sequence[Shape]
    values: Mapping[int, Any] = MappingProxyType({})
    branches: Branches = NO_BRANCHES

    @property
    def name(self) -> str:
        """Name of the last member."""
        return self.members[-1].name

    @property
    def nodes(self) -> Sequence[Node]:
        """The members."""
        return self.members


class Generated(Protocol):
    """A function of arrays.

    Attributes:
      takes: the positions of the inputs that it is given; what was known is in it already.
      draws: the members that draw random numbers, in the order in which it wants their streams.
      tells: whether the last result tells, of each of these, whether it has drawn: in branches
        some do not.
      results: the type and the shape of each result.
      updates: the positions of the inputs whose variables it changes.
      long: whether it may run for milliseconds, and can be interrupted.
      bounded: whether how long it runs follows from shapes.
      shares: whether its code is for many sizes, so that one more takes little time.
      threads: how many may run a call: 1, until the caller sets another number. Whatever it is, a
        call gives the same; only a product by BLAS may differ in its last bits.
    """

    takes: Sequence[int]
    draws: Sequence[Node]
    tells: bool
    results: Sequence[tuple[DType, Shape]]
    updates: Sequence[int]
    long: bool
    bounded: bool
    shares: bool
    threads: int

    @property
    def enter(self) -> Callable[..., Any]:
        """Call of the function with less overhead; it returns None on success.

        It returns another value and changes nothing if an array is not dense or a check fails.
        Setting `threads` replaces it.
        """
        ...

    @property
    def enter_briefly(self) -> Callable[..., Any]:
        """Like `enter`, but stops at the next poll if interrupted."""
        ...

    def __call__(self, *arrays: Any) -> None:
        """Compute results from inputs, and the new values of variables in place.

        It may be called by several threads at once.  Where it fails, no variable is changed yet.

        Args:
          arrays: of the types and shapes that it was made for: inputs, of any strides, then, if
            members draw, the states of their streams for this execution, uint64 of shape
            (members, 6): counters and keys of Philox4x64-10. Then one for each result, which is
            filled, then those of the variables.
        Raises:
          UnimplementedError: kernels alone compute this for these values, and are to be run.
          OpError: an operand is refused.
          CancelledError: it was interrupted.
        """
        ...

    def interrupt(self) -> None:
        """Make calls, those that run too, end within milliseconds, until `resume`.

        Those that change variables go on: what they have begun they end.
        """
        ...

    def resume(self) -> None:
        """Let it run again."""
        ...

    def copy(self) -> Generated:
        """Return the same function with a separate interrupt flag."""
        ...


class ProfileStore(Protocol):
    """Small contents by fingerprint, kept between processes where there is a place for them."""

    def read(self, key: str) -> bytes | None:
        """Return the stored code of a fingerprint; None if it is missing or damaged."""
        ...

    def write(self, key: str, content: bytes) -> None:
        """Keep a content under a fingerprint, if that is possible."""
        ...


class NoProfiles:
    """The `ProfileStore` of code generators that keep nothing between processes."""

    def read(self, key: str) -> bytes | None:
        """Return None."""
        return None

    def write(self, key: str, content: bytes) -> None:
        """Keep nothing."""


class Choosing(Protocol):
    """Interface that tells which nodes a code generator can compile."""

    def unsupported_reason(self, subject: Node | Subgraph) -> str:
        """Return why a node, or a loop as a whole, should run by kernels; "" if it may be compiled.

        A request for it may still be refused, for its shapes.
        """
        ...

    def changes(self, node: Node) -> int:
        """Return the number of variables a node changes, which are its first inputs; 0 for none.

        What it computes of them is compiled for their shapes; they have one and values. A reference
        that it gives is that of its first input.
        """
        ...

    def changes_places(self, node: Node) -> bool:
        """Return True if a node changes only some elements of a variable.

        Members that read what it leaves make the function copy the variable.
        """
        ...

    def reads(self, node: Node) -> bool:
        """Return True if a node reads the variable of its input and may be compiled.

        A handle is read where other members change its variable.
        """
        ...

    def draws(self, node: Node) -> bool:
        """Return True if a node draws random numbers and may be compiled.

        The function is given the state of its stream, whose executions the caller counts.
        """
        ...

    def needs_value(self, node: Node) -> Sequence[int]:
        """Return the positions of inputs whose values affect what is compiled, such as axes."""
        ...

    def repays(self, node: Node) -> bool:
        """Return True if compiling a single node pays off: its kernel makes many calls."""
        ...


class CodeGenerator(Choosing, Protocol):
    """Compiler of regions and loops to functions."""

    @property
    def profiles(self) -> ProfileStore:
        """Measurements of compiled code, kept between processes."""
        ...

    def fingerprint(self, request: Request) -> str | None:
        """Return a name for a request that is the same in all processes.

        Returns: None if code for it is not kept between processes.
        """
        ...

    def find(self, request: Request) -> Generated | None:
        """Return an earlier result of `generate` if finding it takes about a millisecond.

        Returns: None if it must be generated.
        """
        ...

    def generate(self, request: Request, like: Iterable[Generated] = ()) -> Generated:
        """Return a function that computes a request.

        Args:
          request: the nodes, and what they are compiled for.
          like: functions of the same nodes for other shapes, whose code may be shared.
        Raises: NotGenerated: they cannot be compiled for these.
        """
        ...

    def explain(self, request: Request, arguments: Sequence[Any]) -> CompiledFunction:
        """Compile nodes like `generate`, run the function, and describe its kernels.

        Args:
          request: as of `generate`.
          arguments: the inputs: arrays, of variables what they have. They stay as they are.
        Raises:
          NotGenerated: they cannot be compiled for these.
          OpError: an operand is refused.
        """
        ...

    def roofline(self) -> Roofline:
        """Return the limits of this machine, measured at the first call in about a second."""
        ...


generators: Final[Registry[CodeGenerator]] = Registry(
    "code generator", group="weft_graph.code_generators"
)
"""Code generators by name; the first one is used."""


class Launch(NamedTuple):
    """A kernel that is launched.

    Attributes:
      kernel: its name.
      blocks, threads: how many blocks, and threads of each.
      arrays: which it takes after the memory and the flag: positions among the constants, then
        the arrays of `Generated.__call__`.
    """

    kernel: str
    blocks: int
    threads: int
    arrays: Sequence[int]


class DeviceCode(Protocol):
    """Kernels of a device, which the device's owner loads and launches in order.

    Kernels take addresses: of memory that they work in, of a flag, and of dense arrays.  The flag,
    an int32, has the number of a check that has failed, from 1; kernels do nothing while it is not
    0, and no variable is changed after it is set.
    """

    @property
    def image(self) -> str:
        """PTX."""
        ...

    @property
    def launches(self) -> Sequence[Launch]:
        """One after the other."""
        ...

    @property
    def memory(self) -> int:
        """Bytes that they work in."""
        ...

    @property
    def constants(self) -> Sequence[Any]:
        """Arrays that they take."""
        ...

    @property
    def messages(self) -> Sequence[str]:
        """Of the checks."""
        ...

    @property
    def takes(self) -> Sequence[int]:
        """See `Generated`."""
        ...

    @property
    def draws(self) -> Sequence[Node]:
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


class DeviceCodeGenerator(Choosing, Protocol):
    """Generator of kernels from nodes, for devices of a type."""

    def generate(
        self, request: RegionRequest, capability: tuple[int, int], deterministic: bool
    ) -> DeviceCode:
        """Return kernels that compute some nodes.

        Args:
          request: as of `CodeGenerator.generate`.
          capability: what the device can do: CUDA's compute capability, major and minor.
          deterministic: whether all runs are to give the same bits.
        Raises: NotGenerated: they cannot be compiled for these.
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
"""By device type, such as GPU."""

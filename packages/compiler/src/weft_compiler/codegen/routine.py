"""Base class of all routines: the division of calls among threads, and their machine code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final, NamedTuple, Protocol

from weft_compiler.codegen.targets import Target
from weft_compiler.codegen.tiles import symbol
from weft_compiler.codegen.writer import Loops, Writer
from weft_compiler.ir.program import Call, operand_names
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

FLOATS: Final = (dtypes.float32, dtypes.float64)


@dataclass(frozen=True, slots=True)
class Library:
    """A module of routines that all programs share.

    The code is position-independent and calls no other library, so it links on any machine with the
    same processor.

    Attributes:
      name: its name, part of the names of its objects.
      text: returns the LLVM module for an element type and a processor.
      in_wheel: the element types whose objects are in the wheel; others are compiled when they are
        used.
    """

    name: str
    text: Callable[[DType, Target], str]
    in_wheel: tuple[DType, ...]


@dataclass(frozen=True, slots=True)
class ParallelSplit:
    """The split of a call into parts, each for one thread at a time.

    Attributes:
      size: the parameter that is divided; "" if a range of `Routine.num_places` is divided.
      count: the value of that parameter for the whole call.
      unit: the size of each part is a multiple of this.
      steps: for views by position, the elements to advance for each unit of `size`.
      rows: True if the call has the first row as a number, which advances too.
      chunks: the maximal number of chunks of each thread's part.
      least: a remainder of at least this size is a separate part; a smaller one is added to the
        last part.
    """

    size: str
    count: int
    unit: int
    steps: Mapping[int, int]
    rows: bool = False
    chunks: int = 2
    least: int = 1

    @property
    def units(self) -> int:
        """The maximal number of parts."""
        full_count, remainder = divmod(self.count, self.unit)
        return full_count + (remainder >= self.least)


class Operands(NamedTuple):
    """The operands of a call in LLVM.

    Attributes:
      dtype: the element type of the first view.
      views: the addresses of the views.
      sizes: the parameters that are known only at run time.
      numbers: the numbers of the call.
      places: the range of indices to compute; None for all.
    """

    dtype: DType
    views: Sequence[str]
    sizes: Mapping[str, str] = MappingProxyType({})
    numbers: Sequence[str] = ()
    places: tuple[str, str] | None = None


class CallWriter(Protocol):
    """Interface of the writer of the function that contains a call."""

    w: Writer

    @property
    def target(self) -> Target:
        """The processor."""

    def workspace(self) -> str:
        """Return the address of this thread's workspace."""

    def declare(self, routine: type[Routine], dtype: DType) -> None:
        """Declare a routine of a library."""

    def require_blas(self, function: str) -> None:
        """Declare a BLAS function."""

    def define(self, name: str, text: Callable[[], str]) -> None:
        """Define a function in the module unless it is defined already."""


@dataclass(frozen=True, slots=True, eq=False)
class Routine(Call):
    """A call of a routine that has machine code.

    By default a routine is a function of a library, which takes pointers to the views, the
    parameters and numbers, a range of indices if the routine is split by index, and a workspace.

    Attributes:
      dtypes: the element types of the first view for which there is machine code.
      library: the library with the routine; None if it has another kind of code.
      uses_blas: True if the code calls BLAS, which may have threads of its own.
      is_split_by_places: True if a call can compute a range of `num_places` elements or channels.
      speed: multiplications that it computes in the time of one float32 multiplication.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ()
    library: ClassVar[Library | None] = None
    uses_blas: ClassVar[bool] = False
    is_split_by_places: ClassVar[bool] = False
    speed: ClassVar[int] = 1

    @property
    def num_places(self) -> int:
        """The number of elements or channels that calls can compute separately.

        0 if there are none.
        """
        return 0

    def split(self) -> ParallelSplit | None:
        """Return the finest reasonable split among threads, or None if the call cannot be split."""
        return None

    def workspace_bytes(self, dtype: DType, target: Target) -> int:
        """Return the size of the workspace."""
        return 0

    def emit(self, writer: CallWriter, operands: Operands) -> None:
        """Emit the call."""
        writer.declare(type(self), operands.dtype)
        numbers = [operands.sizes.get(name, str(value)) for name, value in self.parameters]
        numbers += operands.numbers
        if self.is_split_by_places:
            numbers += operands.places or ("0", str(self.num_places))
        call_function(
            writer.w, type(self), operands.dtype, operands.views, numbers, writer.workspace()
        )

    # ------------------------------------------------------------------- calls with a table

    def has_table(self, dtype: DType) -> bool:
        """Return True if one function supports all sizes and reads its arguments from a table."""
        return self.library is not None and dtype in self.dtypes

    def table(self) -> Mapping[str, int]:
        """Return the arguments that are stored in the table, by name."""
        return dict(self.parameters)

    @classmethod
    def table_names(cls) -> tuple[str, ...]:
        """Return the names of these arguments."""
        return operand_names(cls).parameters

    @classmethod
    def emit_from_table(
        cls,
        w: Loops,
        dtype: DType,
        views: Sequence[str],
        arguments: Sequence[str],
        indices: tuple[str, str],
        workspace: Callable[[], str],
    ) -> None:
        """Emit a call whose arguments are known only at run time.

        Args:
          arguments: those of `table`, then the numbers.
          indices: the range of indices to compute, for routines that are split by index.
          workspace: returns the address of the workspace.
        """
        numbers = [*arguments, *(indices if cls.is_split_by_places else ())]
        call_function(w, cls, dtype, views, numbers, workspace())

    @classmethod
    def functions(cls, dtype: DType) -> tuple[str, ...]:
        """Return the BLAS functions that `emit_from_table` calls."""
        return ()

    @classmethod
    def declaration(cls, dtype: DType) -> str:
        """Return the LLVM declaration of the function in the library."""
        names = operand_names(cls)
        count = len(names.parameters) + len(names.numbers) + 2 * cls.is_split_by_places
        kinds = ", ".join(["ptr"] * len(names.views) + ["i64"] * count)
        return f"declare void @{symbol(cls.routine, dtype)}({kinds}, ptr)"


def call_function(
    w: Writer,
    routine: type[Routine],
    dtype: DType,
    views: Sequence[str],
    numbers: Sequence[str],
    workspace: str,
) -> None:
    """Emit a call of a function of a library."""
    arguments = [*(f"ptr {view}" for view in views), *(f"i64 {number}" for number in numbers)]
    function = symbol(routine.routine, dtype)
    w.do(f"call void @{function}({', '.join(arguments)}, ptr {workspace})")

"""CUDA kernels as source text, instantiated for the element types of a node.

The sources are in `cuda/`, one file for each family. They use type names: `I` for sizes and
positions, `W` for the computation type, and those that a `Source` declares, such as `T` for
elements. Typedefs of these names are added in front. CuPy compiles the text at the first launch,
and caches the code in memory and on disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np

from weft_tensor import errors

THREADS: Final = 256
"""Maximum number of threads of a block; a power of two."""

_FOLDER: Final = Path(__file__).parent / "cuda"
_LARGE: Final = 1 << 30
"""Minimum size for which positions have 64 bits."""
_ROW_BLOCKS: Final = 1 << 20
_INCLUDE: Final = re.compile(r'^#include "(\w+\.cuh)"$', re.MULTILINE)
NAMES: Final = {
    "float16": "__half",
    "float32": "float",
    "float64": "double",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
}
"""CUDA's names of the element types."""
_INDICES: Final = ("int32", "int64")


@cache
def source_text(file: str) -> str:
    """Return a source file of `cuda/` with its includes expanded."""
    text = (_FOLDER / file).read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda result: source_text(result[1]), text)


def _computation_type(types: Sequence[str]) -> str:
    """Return the computation type: float64 if any type is, float32 for float16, else the type."""
    floating = [name for name in types if name.startswith("float")]
    if not floating:
        return types[0]
    return "float64" if "float64" in floating else "float32"


class Source:
    """The kernels of one file, with the possible types of its type names.

    Args:
      file: its name, without the suffix.
      types: the possible element types of each type name in the file. The computation type follows
        from the first type name and other floating types.
    """

    every: Final[list[Source]] = []

    def __init__(self, file: str, **types: Sequence[str]) -> None:
        self.file = file
        self.types: Mapping[str, Sequence[str]] = types
        Source.every.append(self)

    def text(self, types: Mapping[str, str], index: str) -> str:
        """Return the source for some element types, and for positions of type `index`."""
        named = {**types, "W": _computation_type(list(types.values())), "I": index}
        lines = [f"typedef {NAMES[dtype]} {name};" for name, dtype in named.items()]
        if "float16" in types.values():
            lines.insert(0, "#include <cuda_fp16.h>\n#define WEFT_HALF")
        return "\n".join([*lines, source_text(f"{self.file}.cu")])

    def texts(self) -> Iterator[tuple[str, str]]:
        """Yield a label and the text for each choice of types."""
        for type_choice in product(*self.types.values(), _INDICES):
            types = dict(zip(self.types, type_choice[:-1], strict=True))
            yield " ".join([self.file, *type_choice]), self.text(types, type_choice[-1])

    def program(self, xp: Any, **types: Any) -> Program:
        """Return the kernels for some element types, given as dtypes."""
        names = {name: np.dtype(types[name]).name for name in self.types}
        return Program(xp, self, names)


class Program:
    """The kernels of a source for some element types.

    Arguments of launches are C-order arrays and numbers: ints are passed as positions, floats in
    the computation type.

    Attributes:
      wide: the computation type.
    """

    def __init__(self, xp: Any, source: Source, types: Mapping[str, str]) -> None:
        self.wide: np.dtype[Any] = np.dtype(_computation_type(list(types.values())))
        self._xp = xp
        self._source = source
        self._types = types
        self._kernels: dict[tuple[str, str], Any] = {}

    def launch_elements(self, name: str, size: int, *args: Any) -> None:
        """Launch a thread for each of `size` elements; the size is the kernel's last argument."""
        if size:
            self.launch(name, (-(-size // THREADS),), THREADS, *args, size)

    def rows(self, name: str, rows: int, length: int, *args: Any) -> None:
        """Launch blocks that divide `rows` rows.

        The last arguments are the number of rows and their length.
        """
        if rows and length:
            grid = (min(rows, _ROW_BLOCKS),)
            self.launch(name, grid, threads_for(length), *args, rows, length)

    def launch(self, name: str, grid: tuple[int, ...], threads: int, *args: Any) -> None:
        """Launch blocks of `threads` threads."""
        index = self._index(name, args)
        function = self._kernels.get((name, index))
        if function is None:
            text = self._source.text(self._types, index)
            function = self._kernels[name, index] = self._xp.RawKernel(text, name)
        number = np.dtype(index).type
        kernel_args = [self._argument(value, number) for value in args]
        function(grid, (threads,), tuple(kernel_args))

    def _index(self, name: str, args: Sequence[Any]) -> str:
        """Return the smallest index type that can represent all sizes and positions."""
        index = "int32"
        for value in args:
            size = value
            if isinstance(value, self._xp.ndarray):
                size = value.size
                if not value.flags.c_contiguous:
                    raise errors.InternalError(f"{name}: an array is not in C order")
            if isinstance(size, int) and abs(size) >= _LARGE:
                index = "int64"
        return index

    def _argument(self, value: Any, number: Any) -> Any:
        if isinstance(value, int):
            return number(value)
        if isinstance(value, float):
            return self.wide.type(value)
        return value


def threads_for(length: int) -> int:
    """Return the number of threads of a block for a row: a power of two, at least 32."""
    return min(THREADS, max(32, 1 << (length - 1).bit_length()))

"""Routines that a program calls by name: what they read and write, and what they compute.

Their machine code is made by the modules of `weft_compiler.codegen`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

STATE: Final = 6
"""Numbers of the state of a random stream: its counter, four, and its key, two."""

Views = Mapping[str, tuple[DType, int]]
"""Of each view the type of its elements, and how many there are to the buffer's end."""


@dataclass(frozen=True, slots=True)
class Routine:
    """A routine.

    Attributes:
      name: what programs call it.
      views: names of the memory that it gets, in their order.
      parameters: names of its integers, in their order.
      writes: the views that it fills.
      wrong: what is wrong with views and parameters, or "".
      reference: does what it does, on flat arrays that begin with each view's first element.
    """

    name: str
    views: tuple[str, ...]
    parameters: tuple[str, ...]
    writes: frozenset[str]
    wrong: Callable[[Views, Mapping[str, int]], str]
    reference: Callable[..., None]

    @property
    def signature(self) -> str:
        """How it is called."""
        return f"{self.name}({', '.join([*self.views, *(f'{name}=' for name in self.parameters)])})"


def routine(name: str) -> Routine:
    """The routine of a name.

    Raises: NotFoundError: there is none.
    """
    if name not in _ROUTINES:
        raise errors.NotFoundError(
            f"there is no routine {name!r}; there are {', '.join(_ROUTINES)}"
        )
    return _ROUTINES[name]


def work_of(parameters: Mapping[str, int]) -> int:
    """How many products of numbers a call takes."""
    if "blocks" in parameters:
        return _PHILOX_PRODUCTS * parameters["blocks"]
    return parameters.get("m", 1) * parameters.get("n", 1) * parameters.get("k", 1)


def _matrix(view: Any, rows: int, columns: int, row: int, column: int) -> Any:
    size = view.itemsize
    return np.lib.stride_tricks.as_strided(view, (rows, columns), (row * size, column * size))


def _wrong_matmul(views: Views, of: Mapping[str, int]) -> str:
    if len({dtype for dtype, _ in views.values()}) != 1:
        return "elements of one type were required"
    m, n, k = of["m"], of["n"], of["k"]
    if min(of.values()) < 0:
        return "sizes and strides of at least 0 were required"
    sizes = {
        "a": (m, k, of["a_row"], of["a_column"]),
        "b": (k, n, of["b_row"], of["b_column"]),
        "c": (m, n, of["c_row"], 1),
    }
    for name, (rows, columns, row, column) in sizes.items():
        needed = (rows - 1) * row + (columns - 1) * column + 1 if rows and columns else 0
        if needed > views[name][1]:
            return f"{name} needs {needed} elements, and there are {views[name][1]}"
    return "" if of["c_row"] >= n or m <= 1 else "rows of c overlap"


def _matmul(a: Any, b: Any, c: Any, **of: int) -> None:
    left = _matrix(a, of["m"], of["k"], of["a_row"], of["a_column"])
    right = _matrix(b, of["k"], of["n"], of["b_row"], of["b_column"])
    result = _matrix(c, of["m"], of["n"], of["c_row"], 1)
    result[...] = left @ right + (result if of["accumulate"] else 0)


def _wrong_gemm(views: Views, of: Mapping[str, int]) -> str:
    if not {dtype for dtype, _ in views.values()} <= {dtypes.float32, dtypes.float64}:
        return "elements of float32 or float64 were required"
    if min(of["m"], of["n"], of["k"]) < 1:
        return "sizes of at least 1 were required"
    for name, rows, columns in (("a", of["m"], of["k"]), ("b", of["k"], of["n"])):
        row, column = of[f"{name}_row"], of[f"{name}_column"]
        if not ((column == 1 and row >= columns) or (row == 1 and column >= rows)):
            return f"rows or columns of {name} were required to be dense, and apart from each other"
    return _wrong_matmul(views, of)


def _wrong_philox(views: Views, of: Mapping[str, int]) -> str:
    (words, count), (state, given) = views["words"], views["state"]
    if words not in (dtypes.uint32, dtypes.uint64) or state is not dtypes.uint64:
        return "words of uint32 or uint64 and a state of uint64 were required"
    if of["blocks"] < 1 or given < STATE:
        return f"at least 1 block and {STATE} numbers of state were required"
    needed = of["blocks"] * _PHILOX_BYTES // words.size
    return "" if needed <= count else f"words needs {needed} elements, and there are {count}"


def _philox(words: Any, state: Any, blocks: int) -> None:
    bits = np.random.Philox(key=state[4:6].copy(), counter=state[:4].copy())
    raw = bits.random_raw(4 * blocks).astype("<u8").view(words.dtype.newbyteorder("<"))
    words[: raw.size] = raw


_PHILOX_BYTES: Final = 32
_PHILOX_PRODUCTS: Final = 20
_PRODUCT: Final = (
    ("a", "b", "c"),
    ("m", "n", "k", "a_row", "a_column", "b_row", "b_column", "c_row", "accumulate"),
    frozenset("c"),
)
_ROUTINES: Final = {
    "matmul": Routine("matmul", *_PRODUCT, _wrong_matmul, _matmul),
    "gemm": Routine("gemm", *_PRODUCT, _wrong_gemm, _matmul),
    "philox": Routine(
        "philox", ("words", "state"), ("blocks",), frozenset(["words"]), _wrong_philox, _philox
    ),
}
"""`matmul`: the product of the matrices a, m×k, and b, k×n, is stored in c, m×n, or added to it.
Strides are in elements; c's columns are neighbours.

`gemm`: the same by NumPy's own BLAS, with the bits of `np.matmul`.

`philox`: blocks of 32 random bytes of Philox4x64-10. The state is its counter, four numbers, and
its key, two; as in `numpy.random.Philox`, the first block is that of the counter after it."""

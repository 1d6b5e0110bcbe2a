"""Routines that programs call by name: their arguments, accessed memory and reference code.

The modules of `weft_compiler.codegen` generate their machine code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from weft_compiler import bf16_layout, windows
from weft_tensor import dtypes, errors

STATE: Final = 6
"""Words of the state of a random stream: four of the counter, and two of the key."""


@dataclass(frozen=True, slots=True)
class Routine:
    """A routine.

    Attributes:
      name: its name in programs.
      views: the names of its memory arguments, in order.
      parameters: the names of its integer parameters, in order.
      writes: the views that it writes.
      wrong: returns the error of views and parameters, or "".
      reference: computes the same on flat arrays that begin with each view's first element.
      spans: maps its integers and the element size in bytes to the number of elements that a call
        may access in each view.
      work: the number of multiplications of a call.
      numbers: the names of its integers that depend on loops, in order.
    """

    name: str
    views: tuple[str, ...]
    parameters: tuple[str, ...]
    writes: frozenset[str]
    wrong: Callable[[windows.Views, Mapping[str, int]], str]
    reference: Callable[..., None]
    spans: Callable[[Mapping[str, int], int], Mapping[str, int]]
    work: Callable[[Mapping[str, int]], int]
    numbers: tuple[str, ...] = ()

    @property
    def signature(self) -> str:
        """The form of a call, for errors."""
        settings = [*(f"{name}=" for name in self.parameters), *(f"at {x}" for x in self.numbers)]
        return f"{self.name}({', '.join([*self.views, *settings])})"


def routine(name: str) -> Routine:
    """Return the routine with a name.

    Raises: NotFoundError: there is none.
    """
    if name not in _ROUTINES:
        raise errors.NotFoundError(
            f"there is no routine {name!r}; there are {', '.join(_ROUTINES)}"
        )
    return _ROUTINES[name]


def _wrong_matmul(views: windows.Views, of: Mapping[str, int]) -> str:
    if len({dtype for dtype, _ in views.values()}) != 1:
        return "elements of one type were required"
    if min(of.values()) < 0:
        return "sizes and strides of at least 0 were required"
    wrong = windows.too_few(views, windows.matrices(of))
    return wrong or ("" if of["c_row"] >= of["n"] or of["m"] <= 1 else "rows of c overlap")


def _products(of: Mapping[str, int]) -> int:
    return of["m"] * of["n"] * of["k"]


def _matmul(a: Any, b: Any, c: Any, **of: int) -> None:
    left = windows.matrix(a, of["m"], of["k"], of["a_row"], of["a_column"])
    right = windows.matrix(b, of["k"], of["n"], of["b_row"], of["b_column"])
    result = windows.matrix(c, of["m"], of["n"], of["c_row"], 1)
    result[...] = left @ right + (result if of["accumulate"] else 0)


def _wrong_packed(views: windows.Views, of: Mapping[str, int]) -> str:
    if len({dtype for dtype, _ in views.values()}) != 1:
        return "elements of one type were required"
    if min(of.values()) < 0:
        return "sizes and strides of at least 0 were required"
    wrong = windows.too_few(views, _packed_spans(of, views["b"][0].size))
    return wrong or ("" if of["c_row"] >= of["n"] or of["m"] <= 1 else "rows of c overlap")


def _packed_spans(of: Mapping[str, int], size: int) -> Mapping[str, int]:
    columns = windows.PANEL_BYTES // size
    panels = -(-of["n"] // columns) * of["k"] * columns
    dense = {"a_column": 1, "b_row": of["n"], "b_column": 1}
    return {**windows.matrices({**of, **dense}), "b": panels}


def _matmul_packed(a: Any, b: Any, c: Any, **of: int) -> None:
    columns = windows.PANEL_BYTES // b.itemsize
    panels = -(-of["n"] // columns)
    right = b[: panels * of["k"] * columns].reshape(panels, of["k"], columns).swapaxes(0, 1)
    left = windows.matrix(a, of["m"], of["k"], of["a_row"], 1)
    result = windows.matrix(c, of["m"], of["n"], of["c_row"], 1)
    product = left @ right.reshape(of["k"], panels * columns)[:, : of["n"]]
    result[...] = product + (result if of["accumulate"] else 0)


def _wrong_gemm(views: windows.Views, of: Mapping[str, int]) -> str:
    if not {dtype for dtype, _ in views.values()} <= {dtypes.float32, dtypes.float64}:
        return "elements of float32 or float64 were required"
    if min(of["m"], of["n"], of["k"]) < 1:
        return "sizes of at least 1 were required"
    for name, rows, columns in (("a", of["m"], of["k"]), ("b", of["k"], of["n"])):
        row, column = of[f"{name}_row"], of[f"{name}_column"]
        if not ((column == 1 and row >= columns) or (row == 1 and column >= rows)):
            return f"rows or columns of {name} were required to be dense, and apart from each other"
    return _wrong_matmul(views, of)


def _wrong_small(views: windows.Views, of: Mapping[str, int]) -> str:
    if min(of["m"], of["n"], of["k"]) < 1 or of["accumulate"]:
        return "sizes of at least 1, and nothing to add to, were required"
    return _wrong_matmul(views, of)


def _wrong_philox(views: windows.Views, of: Mapping[str, int]) -> str:
    (words, count), (state, given) = views["words"], views["state"]
    if words not in (dtypes.uint32, dtypes.uint64) or state is not dtypes.uint64:
        return "words of uint32 or uint64 and a state of uint64 were required"
    if of["blocks"] < 1 or given < STATE:
        return f"at least 1 block and {STATE} numbers of state were required"
    needed = _philox_spans(of, words.size)["words"]
    return "" if needed <= count else f"words needs {needed} elements, and there are {count}"


def _philox_spans(of: Mapping[str, int], size: int) -> Mapping[str, int]:
    return {"words": of["blocks"] * _PHILOX_BYTES // size, "state": STATE}


def _philox(words: Any, state: Any, blocks: int) -> None:
    bits = np.random.Philox(key=state[4:6].copy(), counter=state[:4].copy())
    raw = bits.random_raw(4 * blocks).astype("<u8").view(words.dtype.newbyteorder("<"))
    words[: raw.size] = raw


_PHILOX_BYTES: Final = 32
_PHILOX_PRODUCTS: Final = 20


FOUR: Final = 4
PANEL: Final = bf16_layout.PANEL
"""Columns of a panel of bytes, which stores four rows of each column side by side: (panels, fours,
columns, 4), padded with zeros. The column sums are separate: (panels, columns)."""


def _transpose_spans(of: Mapping[str, int]) -> Mapping[str, int]:
    m, n = of["rows"], of["columns"]
    if not m or not n:
        return {"x": 0, "y": 0}
    return {"x": (m - 1) * of["x_row"] + n, "y": (n - 1) * of["y_row"] + m}


def _wrong_transpose(views: windows.Views, of: Mapping[str, int]) -> str:
    if len({dtype for dtype, _ in views.values()}) != 1:
        return "elements of one type were required"
    if min(of.values()) < 0:
        return "sizes and strides of at least 0 were required"
    wrong = windows.too_few(views, _transpose_spans(of))
    return wrong or ("" if of["y_row"] >= of["rows"] or of["columns"] <= 1 else "rows of y overlap")


def _transpose(x: Any, y: Any, rows: int, columns: int, x_row: int, y_row: int) -> None:
    windows.matrix(y, columns, rows, y_row, 1)[...] = windows.matrix(x, rows, columns, x_row, 1).T


# ---------------------------------------------------------------------------- bytes


def _wrong_types(views: windows.Views, operands: int) -> str:
    """Return the error of bytes, panels and sums of other types than required, or ""."""
    names = list(views)
    found = [views[name][0] for name in names]
    small = (dtypes.int8, dtypes.uint8)
    if found[0] in small and found[1:] == [dtypes.int8, *[dtypes.int32] * operands]:
        return ""
    sums = f"{' and '.join(names[2:])} of int32"
    return f"{names[0]} of int8 or uint8, {names[1]} of int8 and {sums} were required"


def _panels(n: int, k: int) -> int:
    return -(-n // PANEL) * PANEL * -(-k // FOUR) * FOUR


def _byte_spans(of: Mapping[str, int]) -> Mapping[str, int]:
    m, n, k = of["m"], of["n"], of["k"]
    return {
        "a": (m - 1) * of["a_row"] + k if m else 0,
        "b": _panels(n, k),
        "sums": -(-n // PANEL) * PANEL,
        "c": (m - 1) * of["c_row"] + n if m and n else 0,
    }


def _wrong_matmul_bytes(views: windows.Views, of: Mapping[str, int]) -> str:
    if min(of.values()) < 0 or of["k"] < 1:
        return "sizes and strides of at least 0, and a depth of at least 1, were required"
    if of["m"] > 1 and (of["a_row"] < of["k"] or of["c_row"] < of["n"]):
        return "rows overlap"
    return _wrong_types(views, 2) or windows.too_few(views, _byte_spans(of))


def unpacked(panels: Any, n: int, k: int) -> Any:
    """Unpack panels of bytes to an int32 matrix, (k, n)."""
    whole = panels[: _panels(n, k)].reshape(-1, -(-k // FOUR), PANEL, FOUR)
    matrix = whole.transpose(1, 3, 0, 2).reshape(-(-k // FOUR) * FOUR, -1)
    return matrix[:k, :n].astype(np.int32)


def packed(matrix: Any) -> tuple[Any, Any]:
    """Pack an int8 matrix, (k, n), as panels of bytes with column sums."""
    k, n = matrix.shape
    whole = np.pad(matrix, [(0, -k % FOUR), (0, -n % PANEL)])
    panels = whole.reshape(-1, FOUR, whole.shape[1] // PANEL, PANEL).transpose(2, 0, 3, 1)
    sums = whole.sum(0, dtype=np.int32).reshape(-1, PANEL)
    return np.ascontiguousarray(panels), sums


def _matmul_bytes(a: Any, b: Any, sums: Any, c: Any, **of: int) -> None:
    left = windows.matrix(a, of["m"], of["k"], of["a_row"], 1).astype(np.int32)
    right = unpacked(b, of["n"], of["k"])
    assert (sums[: of["n"]] == right.sum(0)).all()
    windows.matrix(c, of["m"], of["n"], of["c_row"], 1)[...] = left @ right


def _conv_bytes_spans(of: Mapping[str, int]) -> Mapping[str, int]:
    return {
        "x": windows.elements_of(of),
        "w": _panels(of["depth"], windows.places_of(of)),
        "sums": -(-of["depth"] // PANEL) * PANEL,
        "y": windows.taken(of) * of["depth"],
    }


def _wrong_conv_bytes(views: windows.Views, of: Mapping[str, int]) -> str:
    sizes = {name: of[name] for name in windows.WINDOWS}
    x = views["x"]
    wrong = windows.wrong_windows({"x": x}, sizes) or _wrong_types(views, 2)
    if not wrong and not x[0].min <= of["outside"] <= x[0].max:
        wrong = f"what is outside was required to be of {x[0].name}, got {of['outside']}"
    return wrong or windows.too_few(views, _conv_bytes_spans(of))


def _conv_bytes(x: Any, w: Any, sums: Any, y: Any, row: int, outside: int, **of: int) -> None:
    filters = unpacked(w, of["depth"], windows.places_of(of))
    assert (sums[: of["depth"]] == filters.sum(0)).all()
    result = y[: windows.taken(of) * of["depth"]].reshape(-1, of["depth"])
    result[...] = windows.windows_of(x, of, row, outside).astype(np.int32) @ filters


def _pack_spans(of: Mapping[str, int]) -> Mapping[str, int]:
    n, k = of["n"], of["k"]
    return {
        "b": (k - 1) * of["b_row"] + (n - 1) * of["b_column"] + 1 if n and k else 0,
        "panels": _panels(n, k),
        "sums": -(-n // PANEL) * PANEL,
    }


def _wrong_pack(views: windows.Views, of: Mapping[str, int]) -> str:
    if min(of.values()) < 0:
        return "sizes and strides of at least 0 were required"
    return _wrong_types(views, 1) or windows.too_few(views, _pack_spans(of))


def _pack_bytes(b: Any, panels: Any, sums: Any, **of: int) -> None:
    matrix = windows.matrix(b, of["k"], of["n"], of["b_row"], of["b_column"])
    signed = matrix if b.dtype == np.int8 else (matrix ^ np.uint8(128)).view(np.int8)
    whole, totals = packed(signed)
    panels[: whole.size] = whole.reshape(-1)
    sums[: totals.size] = totals.reshape(-1)


# ---------------------------------------------------------------------------- all

_PRODUCT: Final = (
    ("a", "b", "c"),
    ("m", "n", "k", "a_row", "a_column", "b_row", "b_column", "c_row", "accumulate"),
    frozenset("c"),
)
_ROUTINES: Final = {
    "matmul": Routine(
        "matmul", *_PRODUCT, _wrong_matmul, _matmul, lambda of, _: windows.matrices(of), _products
    ),
    "matmul_packed": Routine(
        "matmul_packed",
        ("a", "b", "c"),
        ("m", "n", "k", "a_row", "c_row", "accumulate"),
        frozenset("c"),
        _wrong_packed,
        _matmul_packed,
        _packed_spans,
        _products,
    ),
    "small_matmul": Routine(
        "small_matmul",
        *_PRODUCT,
        _wrong_small,
        _matmul,
        lambda of, _: windows.matrices(of),
        _products,
    ),
    "gemm": Routine(
        "gemm", *_PRODUCT, _wrong_gemm, _matmul, lambda of, _: windows.matrices(of), _products
    ),
    "conv": Routine(
        "conv",
        ("x", "w", "y"),
        (*windows.WINDOWS, "packed"),
        frozenset("y"),
        windows.wrong_conv,
        windows.conv,
        windows.conv_spans,
        windows.conv_work,
        ("row",),
    ),
    "conv_filter": Routine(
        "conv_filter",
        ("x", "g", "y"),
        (*windows.WINDOWS, "accumulate"),
        frozenset("y"),
        windows.wrong_filter,
        windows.conv_filter,
        lambda of, _: windows.filter_spans(of),
        windows.conv_work,
    ),
    "transpose": Routine(
        "transpose",
        ("x", "y"),
        ("rows", "columns", "x_row", "y_row"),
        frozenset("y"),
        _wrong_transpose,
        _transpose,
        lambda of, _: _transpose_spans(of),
        lambda of: of["rows"] * of["columns"],
    ),
    "winograd": Routine(
        "winograd",
        ("x", "w", "u", "y"),
        windows.WINDOWS,
        frozenset("y"),
        windows.wrong_winograd,
        windows.winograd,
        windows.winograd_spans,
        windows.conv_work,
        ("row",),
    ),
    "winograd_gradient": Routine(
        "winograd_gradient",
        ("x", "g", "m", "y"),
        windows.WINDOWS,
        frozenset(("m", "y")),
        windows.wrong_gradient,
        windows.winograd_gradient,
        windows.gradient_spans,
        windows.conv_work,
    ),
    "winograd_filters": Routine(
        "winograd_filters",
        ("w", "u"),
        ("panels", "channels", "taps"),
        frozenset("u"),
        windows.wrong_filters,
        windows.winograd_filters,
        windows.filters_spans,
        lambda of: of["panels"] * of["channels"] * windows.POINTS**2,
    ),
    "philox": Routine(
        "philox",
        ("words", "state"),
        ("blocks",),
        frozenset(["words"]),
        _wrong_philox,
        _philox,
        _philox_spans,
        lambda of: _PHILOX_PRODUCTS * of["blocks"],
    ),
    "matmul_bytes": Routine(
        "matmul_bytes",
        ("a", "b", "sums", "c"),
        ("m", "n", "k", "a_row", "c_row"),
        frozenset("c"),
        _wrong_matmul_bytes,
        _matmul_bytes,
        lambda of, _: _byte_spans(of),
        lambda of: _products(of) // FOUR,
    ),
    "conv_bytes": Routine(
        "conv_bytes",
        ("x", "w", "sums", "y"),
        (*windows.WINDOWS, "outside"),
        frozenset("y"),
        _wrong_conv_bytes,
        _conv_bytes,
        lambda of, _: _conv_bytes_spans(of),
        lambda of: windows.conv_work(of) // FOUR,
        ("row",),
    ),
    "pack_bytes": Routine(
        "pack_bytes",
        ("b", "panels", "sums"),
        ("n", "k", "b_row", "b_column"),
        frozenset(["panels", "sums"]),
        _wrong_pack,
        _pack_bytes,
        lambda of, _: _pack_spans(of),
        lambda of: of["n"] * of["k"],
    ),
    "matmul_pairs": Routine(
        "matmul_pairs",
        ("a", "b", "c"),
        ("m", "n", "k", "a_row", "a_column", "c_row"),
        frozenset("c"),
        bf16_layout.wrong_matmul,
        bf16_layout.matmul,
        lambda of, _: bf16_layout.matmul_spans(of),
        _products,
    ),
    "conv_pairs": Routine(
        "conv_pairs",
        ("x", "w", "y"),
        windows.WINDOWS,
        frozenset("y"),
        bf16_layout.wrong_conv,
        bf16_layout.conv,
        lambda of, _: bf16_layout.conv_spans(of),
        windows.conv_work,
        ("row",),
    ),
    "conv_filter_pairs": Routine(
        "conv_filter_pairs",
        ("x", "g", "y"),
        (*windows.WINDOWS, "accumulate"),
        frozenset("y"),
        bf16_layout.wrong_filter,
        bf16_layout.conv_filter,
        lambda of, _: windows.filter_spans(of),
        windows.conv_work,
    ),
    "pack_pairs": Routine(
        "pack_pairs",
        ("b", "panels"),
        ("n", "k", "b_row", "b_column"),
        frozenset(["panels"]),
        bf16_layout.wrong_pack,
        bf16_layout.pack,
        lambda of, _: bf16_layout.pack_spans(of),
        lambda of: of["n"] * of["k"],
    ),
}
"""`matmul`: stores the product of the matrices a, m×k, and b, k×n, in c, m×n, or adds it to c.
Strides are in elements; the rows of c are contiguous.

`matmul_packed`: the same with b packed as panels, (panels, k, columns), and contiguous rows of a.

`gemm`: the same as `matmul` by NumPy's BLAS, with the bits of `np.matmul`.

`philox`: blocks of 32 random bytes of Philox4x64-10. The state is its counter, four words, and its
key, two words. As in `numpy.random.Philox`, the first block is that of the next counter.

`conv`: stores the products of the windows of x, in rows from `row` on, and the filters w in y,
(images, rows, width, depth). Filters are panels if `packed`, else (taps_y, taps_x, channels,
depth).

`conv_filter`: stores the product of the transpose of g, (images, rows, width, depth), and the
windows of x in y, (depth, taps_y, taps_x, channels), or adds it to y.

`winograd`: the same as `conv` with packed filters of 3×3 or 5×5 and strides of 1, by Winograd's
algorithm with tiles of 4×4 or 2×2. Besides the filters w it reads u, the transformed filters. The
row is a multiple of the tile size.

`winograd_gradient`: the same as `conv_filter` for such windows, except that y is (taps, taps,
channels, depth). Its workspace m has `gradient_memory` elements.

`winograd_filters`: transforms filters packed as panels, (panels, taps, taps, channels, columns), to
(panels, 6, 6, channels, columns).

`matmul_bytes`: stores the product of a, m×k, int8 or uint8, and int8 panels, k×n, in c, m×n, int32.
The column sums of the panels are a separate argument.

`conv_bytes`: the same for the windows of x, padded with `outside`, and filters; y is as for `conv`.

`pack_bytes`: packs a matrix b, k×n, as panels with column sums; 128 is subtracted from uint8.

`matmul_pairs`: stores the product of a, m×k, and panels of pairs, k×n, both bfloat16, in c, m×n,
float32. Strides of a are in elements.

`conv_pairs`: the same for the windows of x and filters; y is as for `conv`.

`conv_filter_pairs`: the same as `conv_filter` with bfloat16 x and g and float32 y.

`pack_pairs`: packs a matrix b, k×n, as panels of pairs.

`transpose`: stores the transpose of the matrix x, rows × columns, in y. Rows are contiguous, with
strides `x_row` and `y_row`."""

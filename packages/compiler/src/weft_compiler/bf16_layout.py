"""Definitions of the bfloat16 routines: argument checks, accessed memory and reference code.

`weft_compiler.routines` documents each routine. Functions named `wrong…` return the error of a
call, or "". Those named `…spans` return the number of elements that it may access in each view.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from weft_compiler import windows
from weft_tensor import dtypes

PANEL: Final = windows.PANEL_BYTES // 4
"""Columns of a panel; a panel stores a 32-bit word of several rows of each column side by side."""
PAIR: Final = 2
"""Rows of each column that a bfloat16 panel stores side by side: (panels, pairs, columns, 2),
padded with zeros. It has as many columns as a panel of bytes."""


def pair_panels(n: int, k: int) -> tuple[int, ...]:
    """Return the shape of the panels of a matrix, k×n."""
    return -(-n // PANEL), -(-k // PAIR), PANEL, PAIR


def packed_pairs(matrix: Any) -> Any:
    """Pack a bfloat16 matrix, (k, n), as panels."""
    k, n = matrix.shape
    whole = np.zeros((k + k % PAIR, n + -n % PANEL), matrix.dtype)
    whole[:k, :n] = matrix
    shape = pair_panels(n, k)
    panels = whole.reshape(shape[1], PAIR, shape[0], PANEL).transpose(2, 0, 3, 1)
    return np.ascontiguousarray(panels)


def _unpacked_pairs(panels: Any, n: int, k: int) -> Any:
    """Unpack panels to a float32 matrix, (k, n)."""
    shape = pair_panels(n, k)
    whole = panels[: math.prod(shape)].reshape(shape).transpose(1, 3, 0, 2)
    return whole.reshape(shape[1] * PAIR, -1)[:k, :n].astype(np.float32)


def _wrong_pairs(views: windows.Views) -> str:
    """Return the error of views that are not bfloat16 (the last of three: float32), or ""."""
    *given, last = [dtype for dtype, _ in views.values()]
    wanted = dtypes.bfloat16 if len(views) == 2 else dtypes.float32
    if {*given} == {dtypes.bfloat16} and last is wanted:
        return ""
    return f"operands of bfloat16 and a result of {wanted.name} were required"


def matmul_spans(of: Mapping[str, int]) -> Mapping[str, int]:
    """Return the number of elements that `matmul_pairs` may access in each view."""
    dense = {"b_row": of["n"], "b_column": 1}
    return {**windows.matrices({**of, **dense}), "b": math.prod(pair_panels(of["n"], of["k"]))}


def wrong_matmul(views: windows.Views, of: Mapping[str, int]) -> str:
    """Return the error of a call of `matmul_pairs`, or ""."""
    if min(of.values()) < 0 or of["k"] < 1:
        return "sizes and strides of at least 0, and a depth of at least 1, were required"
    if of["m"] > 1 and of["c_row"] < of["n"]:
        return "rows overlap"
    return _wrong_pairs(views) or windows.too_few(views, matmul_spans(of))


def matmul(a: Any, b: Any, c: Any, **of: int) -> None:
    """Compute `matmul_pairs`."""
    left = windows.matrix(a, of["m"], of["k"], of["a_row"], of["a_column"]).astype(np.float32)
    right = _unpacked_pairs(b, of["n"], of["k"])
    windows.matrix(c, of["m"], of["n"], of["c_row"], 1)[...] = left @ right


def conv_spans(of: Mapping[str, int]) -> Mapping[str, int]:
    """Return the number of elements that `conv_pairs` may access in each view."""
    return {
        "x": windows.elements_of(of),
        "w": math.prod(pair_panels(of["depth"], windows.places_of(of))),
        "y": windows.taken(of) * of["depth"],
    }


def wrong_conv(views: windows.Views, of: Mapping[str, int]) -> str:
    """Return the error of a call of `conv_pairs`, or ""."""
    sizes = {name: of[name] for name in windows.WINDOWS}
    wrong = windows.wrong_windows({"x": views["x"]}, sizes) or _wrong_pairs(views)
    return wrong or windows.too_few(views, conv_spans(of))


def conv(x: Any, w: Any, y: Any, row: int, **of: int) -> None:
    """Compute `conv_pairs`."""
    filters = _unpacked_pairs(w, of["depth"], windows.places_of(of))
    result = y[: windows.taken(of) * of["depth"]].reshape(-1, of["depth"])
    result[...] = windows.windows_of(x.astype(np.float32), of, row) @ filters


def wrong_filter(views: windows.Views, of: Mapping[str, int]) -> str:
    """Return the error of a call of `conv_filter_pairs`, or ""."""
    wrong = windows.wrong_windows({"x": views["x"]}, of) or _wrong_pairs(views)
    return wrong or windows.too_few(views, windows.filter_spans(of))


def conv_filter(x: Any, g: Any, y: Any, accumulate: int, **of: int) -> None:
    """Compute `conv_filter_pairs`."""
    windows.conv_filter(x.astype(np.float32), g.astype(np.float32), y, accumulate, **of)


def pack_spans(of: Mapping[str, int]) -> Mapping[str, int]:
    """Return the number of elements that `pack_pairs` may access in each view."""
    n, k = of["n"], of["k"]
    return {
        "b": (k - 1) * of["b_row"] + (n - 1) * of["b_column"] + 1 if n and k else 0,
        "panels": math.prod(pair_panels(n, k)),
    }


def wrong_pack(views: windows.Views, of: Mapping[str, int]) -> str:
    """Return the error of a call of `pack_pairs`, or ""."""
    if min(of.values()) < 0:
        return "sizes and strides of at least 0 were required"
    return _wrong_pairs(views) or windows.too_few(views, pack_spans(of))


def pack(b: Any, panels: Any, **of: int) -> None:
    """Compute `pack_pairs`."""
    whole = packed_pairs(windows.matrix(b, of["k"], of["n"], of["b_row"], of["b_column"]))
    panels[: whole.size] = whole.reshape(-1)

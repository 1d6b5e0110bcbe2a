"""Definitions of the convolution routines: argument checks, accessed memory and reference code.

Helpers of matrix routines are at the end.

`weft_compiler.routines` documents each routine. Functions named `wrong…` return the error of a
call, or "". Those named `…spans` return the number of elements that it may access in each view.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from weft_tensor.dtypes import DType

Views = Mapping[str, tuple[DType, int]]
"""The element type of each view, and the number of elements to the end of its buffer."""

WINDOWS: Final = (
    *("images", "rows", "width", "depth", "channels", "height", "breadth"),
    *("taps_y", "taps_x", "stride_y", "stride_x", "dilation_y", "dilation_x"),
    *("before_y", "before_x"),
)
"""The parameters of windows: `images` of `height` × `breadth` × `channels`, each with `rows` ×
`width` windows of `taps_y` × `taps_x`, from each of which `depth` numbers are computed. A window
begins `before` positions before its row and column times the stride. Images are padded with 0."""

PANEL_BYTES: Final = 128
"""Bytes of a row of a panel. Filters are packed as panels, (panels, taps_y, taps_x, channels,
columns), padded with zeros, and matrices as (panels, rows, columns)."""


LINE: Final = 64
"""Size of a cache line, which is also the width of the widest registers, in bytes."""

POINTS: Final = 6
"""Points of Winograd's convolution along an axis: 0, 1, -1, 1/2, -2 and infinity."""
TAPS: Final = (3, 5)
"""Filter sizes along an axis that Winograd's convolution supports."""


def tile_of(taps: int) -> int:
    """Return the results of a Winograd tile along an axis."""
    return POINTS + 1 - taps


def panel_columns(dtype: DType) -> int:
    """Return the number of columns of a panel."""
    return PANEL_BYTES // dtype.size


def places_of(of: Mapping[str, int]) -> int:
    """Return the number of elements of a window."""
    return of["taps_y"] * of["taps_x"] * of["channels"]


def taken(of: Mapping[str, int]) -> int:
    """Return the number of windows."""
    return of["images"] * of["rows"] * of["width"]


def elements_of(of: Mapping[str, int]) -> int:
    """Return the number of elements of all images."""
    return of["images"] * of["height"] * of["breadth"] * of["channels"]


def wrong_windows(views: Views, of: Mapping[str, int]) -> str:
    """Return the error of window parameters, or ""."""
    if len({dtype for dtype, _ in views.values()}) != 1:
        return "elements of one type were required"
    if min(size for name, size in of.items() if not name.startswith("before")) < 0:
        return "sizes of at least 0 were required"
    if min(of[name] for name in WINDOWS[:-2] if name != "images") < 1:
        return "sizes of at least 1 were required"
    return ""


def conv_spans(of: Mapping[str, int], size: int) -> Mapping[str, int]:
    """Return the number of elements that `conv` may access in each view."""
    columns = PANEL_BYTES // size
    panels = -(-of["depth"] // columns) * columns
    depth = panels if of["packed"] else of["depth"]
    return {"x": elements_of(of), "w": depth * places_of(of), "y": taken(of) * of["depth"]}


def wrong_conv(views: Views, of: Mapping[str, int]) -> str:
    """Return the error of a call of `conv`, or ""."""
    size = views["x"][0].size
    return wrong_windows(views, of) or too_few(views, conv_spans(of, size))


def filter_spans(of: Mapping[str, int]) -> Mapping[str, int]:
    """Return the number of elements that `conv_filter` may access in each view."""
    return {
        "x": elements_of(of),
        "g": taken(of) * of["depth"],
        "y": of["depth"] * places_of(of),
    }


def wrong_filter(views: Views, of: Mapping[str, int]) -> str:
    """Return the error of a call of `conv_filter`, or ""."""
    return wrong_windows(views, of) or too_few(views, filter_spans(of))


def windows_of(x: Any, of: Mapping[str, int], row: int, outside: int = 0) -> Any:
    """Return all windows as rows of a matrix (im2col)."""
    images = x[: elements_of(of)].reshape(of["images"], of["height"], of["breadth"], of["channels"])
    lines = [
        (row + np.arange(of["rows"]) if axis == "y" else np.arange(of["width"]))[:, None]
        * of[f"stride_{axis}"]
        + np.arange(of[f"taps_{axis}"]) * of[f"dilation_{axis}"]
        - of[f"before_{axis}"]
        for axis in "yx"
    ]
    y, x_ = lines[0][:, None, :, None], lines[1][None, :, None, :]
    there = (y >= 0) & (y < of["height"]) & (x_ >= 0) & (x_ < of["breadth"])
    near = images[:, np.clip(y, 0, of["height"] - 1), np.clip(x_, 0, of["breadth"] - 1)]
    found = np.where(there[..., None], near, outside)
    return found.reshape(taken(of), places_of(of)).astype(x.dtype)


def conv(x: Any, w: Any, y: Any, row: int, packed: int, **of: int) -> None:
    """Compute `conv`."""
    places = places_of(of)
    columns = PANEL_BYTES // x.itemsize if packed else of["depth"]
    panels = -(-of["depth"] // columns)
    filters = w[: panels * places * columns].reshape(panels, places, columns).swapaxes(0, 1)
    matrix = filters.reshape(places, -1)[:, : of["depth"]]
    result = y[: taken(of) * of["depth"]].reshape(-1, of["depth"])
    result[...] = windows_of(x, of, row) @ matrix


def conv_filter(x: Any, g: Any, y: Any, accumulate: int, **of: int) -> None:
    """Compute `conv_filter`."""
    gradient = g[: taken(of) * of["depth"]].reshape(-1, of["depth"])
    result = y[: of["depth"] * places_of(of)].reshape(of["depth"], -1)
    result[...] = gradient.T @ windows_of(x, of, 0) + (result if accumulate else 0)


def winograd_spans(of: Mapping[str, int], size: int) -> Mapping[str, int]:
    """Return the number of elements that `winograd` may access in each view."""
    spans = conv_spans({**of, "packed": 1}, size)
    return {**spans, "u": spans["w"] // places_of(of) * POINTS**2 * of["channels"]}


def _wrong_slides(of: Mapping[str, int], size: int) -> str:
    slides = {name: of[name] for name in WINDOWS if name.startswith(("taps", "str", "dil"))}
    taps = of["taps_x"]
    if taps not in TAPS or list(slides.values()) != [taps, taps, 1, 1, 1, 1]:
        return "taps of 3 or 5, and strides and dilations of 1, were required"
    if of["channels"] % (LINE // size) or of["depth"] % (LINE // size):
        return f"channels and depth of whole {LINE} bytes were required"
    return ""


def wrong_winograd(views: Views, of: Mapping[str, int]) -> str:
    """Return the error of a call of `winograd`, or ""."""
    wrong = _wrong_slides(of, views["x"][0].size) or wrong_windows(views, of)
    return wrong or too_few(views, winograd_spans(of, views["x"][0].size))


def winograd(x: Any, w: Any, u: Any, y: Any, row: int, **of: int) -> None:
    """Compute `winograd` directly; `u` is ignored, as it is `filter_points` of w."""
    conv(x, w, y, row, 1, **of)


def gradient_memory(of: Mapping[str, int], size: int) -> int:
    """Return the elements that `winograd_gradient` works in: sums, and the transposed result."""
    columns = PANEL_BYTES // size
    depth = -(-of["depth"] // columns) * columns
    return (POINTS**2 * depth + of["taps_y"] * of["taps_x"] * of["depth"]) * of["channels"]


def gradient_spans(of: Mapping[str, int], size: int) -> Mapping[str, int]:
    """Return the number of elements that `winograd_gradient` may access in each view."""
    return {**filter_spans(of), "m": gradient_memory(of, size)}


def wrong_gradient(views: Views, of: Mapping[str, int]) -> str:
    """Return the error of a call of `winograd_gradient`, or ""."""
    wrong = _wrong_slides(of, views["x"][0].size)
    return (
        wrong or wrong_windows(views, of) or too_few(views, gradient_spans(of, views["x"][0].size))
    )


def winograd_gradient(x: Any, g: Any, m: Any, y: Any, **of: int) -> None:
    """Compute `winograd_gradient` directly, and fill m with zeros."""
    turned = np.empty(of["depth"] * places_of(of), y.dtype)
    conv_filter(x, g, turned, 0, **of)
    y[: turned.size] = turned.reshape(of["depth"], -1).T.reshape(-1)
    m[: gradient_memory(of, m.itemsize)] = 0


def _evaluated(taps: int) -> Any:
    """Return the matrix that transforms a filter to the points, divided by their differences."""
    powers = np.arange(taps)
    rows = [
        [1, *[0] * (taps - 1)],
        1.0**powers / 3,
        -((-1.0) ** powers) / 3,
        -16 / 15 * 0.5**powers,
        (-2.0) ** powers / 15,
        [*[0] * (taps - 1), 1],
    ]
    return np.array(rows)


def filter_points(w: Any) -> Any:
    """Transform packed filters, (panels, taps, taps, channels, columns), to the points.

    Returns: (panels, 6, 6, channels, columns), of the same type.
    """
    matrix = _evaluated(w.shape[1])
    return np.einsum("yi,xj,pijco->pyxco", matrix, matrix, w, optimize=True).astype(w.dtype)


def filters_spans(of: Mapping[str, int], size: int) -> Mapping[str, int]:
    """Return the number of elements that `winograd_filters` may access in each view."""
    count = of["panels"] * of["channels"] * PANEL_BYTES // size
    return {"w": of["taps"] ** 2 * count, "u": POINTS**2 * count}


def wrong_filters(views: Views, of: Mapping[str, int]) -> str:
    """Return the error of a call of `winograd_filters`, or ""."""
    if len({dtype for dtype, _ in views.values()}) != 1:
        return "elements of one type were required"
    if min(of.values()) < 0:
        return "sizes of at least 0 were required"
    if of["taps"] not in TAPS:
        return "taps of 3 or 5 were required"
    return too_few(views, filters_spans(of, views["w"][0].size))


def winograd_filters(w: Any, u: Any, panels: int, channels: int, taps: int) -> None:
    """Compute `winograd_filters`."""
    shape = (panels, taps, taps, channels, PANEL_BYTES // w.itemsize)
    found = filter_points(w[: math.prod(shape)].reshape(shape)).reshape(-1)
    u[: found.size] = found


def conv_work(of: Mapping[str, int]) -> int:
    """Return the number of multiplications of a convolution."""
    return taken(of) * places_of(of) * of["depth"]


def too_few(views: Views, spans: Mapping[str, int]) -> str:
    """Return an error if a view has fewer elements than a routine accesses, or ""."""
    for name, needed in spans.items():
        if needed > views[name][1]:
            return f"{name} needs {needed} elements, and there are {views[name][1]}"
    return ""


def matrix(view: Any, rows: int, columns: int, row: int, column: int) -> Any:
    """Return a view of a matrix in flat memory, with strides in elements."""
    size = view.itemsize
    return np.lib.stride_tricks.as_strided(view, (rows, columns), (row * size, column * size))


def matrices(of: Mapping[str, int]) -> Mapping[str, int]:
    """Return the number of elements that each matrix of a product spans."""
    m, n, k = of["m"], of["n"], of["k"]
    sizes = {
        "a": (m, k, of["a_row"], of["a_column"]),
        "b": (k, n, of["b_row"], of["b_column"]),
        "c": (m, n, of["c_row"], 1),
    }
    return {
        name: (rows - 1) * row + (columns - 1) * column + 1 if rows and columns else 0
        for name, (rows, columns, row, column) in sizes.items()
    }

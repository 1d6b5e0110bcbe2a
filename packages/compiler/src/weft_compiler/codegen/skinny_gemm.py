"""Skinny GEMM: few rows and a large second operand, whose panels are read only once.

    for panels:
      copy the panel, unless it is contiguous or there are few tiles
      for rows in tiles:
        kernel: c tile = or += rows of a times panel

While it computes the first tile, the kernel prefetches the next panel.  The panel stays in the L1
cache, and all rows of a in the L2 cache.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from weft_compiler.codegen.tile_kernels import select_kernel
from weft_compiler.codegen.tiles import Shape, iterate_tiles
from weft_compiler.codegen.writer import Loops

MANY: Final = 18
"""Maximal number of tiles of rows. In float32 these take about a quarter of the smallest L2 caches.
"""
LARGE: Final = 1 << 19
"""Size of the largest second operand that stays in the L2 cache, in bytes."""
_COPIED: Final = 3
"""Maximum number of tiles for which a panel is read in place."""


class Panel(NamedTuple):
    """Columns of the second operand.

    Attributes:
      place, row: their address and row stride.
      depth, columns: the number of rows, and of columns to the end.
      following, following_row: the next panel to prefetch and its row stride; 0 for none.
    """

    place: str
    row: str
    depth: str
    columns: str
    following: str
    following_row: str


def memory(s: Shape, rows: int, depth: int) -> int:
    """Return the size of copied rows and a panel, in bytes."""
    return s.panel_bytes * -(-rows // s.rows[0]) + min(s.depth, depth) * s.width * s.dtype.size


def emit_large_test(w: Loops, s: Shape, rows: str, columns: str) -> str:
    """Emit a test of whether the second operand is large."""
    elements = w.put(f"mul nsw i64 {rows}, {columns}")
    return w.put(f"icmp sgt i64 {elements}, {LARGE // s.dtype.size}")


def emit_panel_address(w: Loops, s: Shape, rows: str) -> tuple[str, str]:
    """Return the address for a panel's copy, after the copied rows, and if copying pays off."""
    count = w.put(f"udiv i64 {w.put(f'add i64 {rows}, {s.rows[0] - 1}')}, {s.rows[0]}")
    size = w.put(f"mul nsw i64 {count}, {s.panel_bytes}")
    own_base = w.put(f"getelementptr i8, ptr %workspace, i64 {size}")
    return own_base, w.put(f"icmp sgt i64 {count}, {_COPIED}")


def emit_panel_tiles(
    w: Loops,
    s: Shape,
    panel: Panel,
    panel_copy: str,
    copies: str,
    rows: str,
    all_rows: str,
    c: tuple[str, str, str],
) -> None:
    """Emit all tiles of a panel.

    Args:
      own, copies: as in `emit_panel_address`.
      rows: the number of rows of a, which are in the workspace.
      all_rows: the number of rows of the whole product.
      c: the address of the first tile, the row stride, and the condition to accumulate.
    """
    with w.emit_if(copies):
        _copy(w, s, panel, panel_copy)
    b = w.select(copies, "ptr", panel_copy, panel.place)
    b_row = w.select(copies, "i64", str(s.width), panel.row)
    address, c_row, add = c
    with iterate_tiles(w, s, rows, all_rows) as (i, _, kernel_rows):
        a = w.offset_address("%workspace", s.scalar, w.put(f"mul nsw i64 {i}, {s.row}"))
        begins = w.put(f"icmp eq i64 {i}, 0")
        upcoming_stride = w.select(begins, "i64", panel.following_row, "0")
        next_panel = w.select(begins, "ptr", panel.following, b)
        target = w.offset_address(address, s.scalar, w.put(f"mul nsw i64 {i}, {c_row}"))
        w.do(
            f"call void {select_kernel(w, s, kernel_rows, panel.columns)}(ptr {a}, ptr {b}, "
            f"i64 {b_row}, i64 {panel.depth}, ptr {target}, i64 {c_row}, i64 {panel.columns}, "
            f"i1 {add}, ptr {next_panel}, i64 {upcoming_stride})"
        )


def _copy(w: Loops, s: Shape, panel: Panel, target: str) -> None:
    full_panel, partial_panel, end = w.label(), w.label(), w.label()
    w.branch(w.put(f"icmp sge i64 {panel.columns}, {s.width}"), full_panel, partial_panel)
    for label, kind in ((full_panel, f"<{s.width} x {s.scalar}>"), (partial_panel, s.scalar)):
        w.begin(label)
        with w.iterate(panel.depth, note=", !llvm.loop !0") as p:
            row = w.offset_address(panel.place, s.scalar, w.put(f"mul nsw i64 {p}, {panel.row}"))
            address = w.offset_address(target, s.scalar, w.put(f"mul nsw i64 {p}, {s.width}"))
            if label is full_panel:
                _move(w, s, row, address, kind)
            else:
                with w.iterate(panel.columns, note=", !llvm.loop !0") as k:
                    _move(
                        w,
                        s,
                        w.offset_address(row, s.scalar, k),
                        w.offset_address(address, s.scalar, k),
                        kind,
                    )
        w.go(end)
    w.begin(end)


def _move(w: Loops, s: Shape, source: str, address: str, kind: str) -> None:
    x = w.put(f"load {kind}, ptr {source}, align {s.dtype.size}")
    w.do(f"store {kind} {x}, ptr {address}, align {s.dtype.size}")

"""The routines `winograd` and `winograd_filters`: 3×3 and 5×5 convolution, Lavin & Gray 2015.

Winograd's F(4×4, 3×3): the windows of a tile of 4×4 results cover 6×6 elements.  The elements and
the filters are evaluated as polynomials at six points per axis. Then 36 multiplications per channel
and filter replace 144, and the results are interpolated from the sums.  F(2×2, 5×5) has the same
points and elements, and 36 multiplications instead of 100.

    for tiles in blocks:
      for each tile and its channels: transform 6×6 elements
      for panels of filters:
        for each of 36 points: tiles × channels times channels × columns
        for each tile: transform 6×6 sums to its results

With the points 0, 1, -1, 1/2, -2 and infinity errors are less than half of those with ±2 (B.
Barabasz and others, Error analysis and improving the accuracy of Winograd convolution, 2020).

A non-finite element affects all results of its tile. Therefore results are checked, and rows of
tiles with a non-finite result are computed by direct convolution.

The results of a tile do not depend on the other tiles of its block: with at least four rows, all
kernels sum in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import ClassVar, Final

from weft_compiler.codegen.tile_kernels import select_kernel
from weft_compiler.codegen.tiles import Shape, iterate_tiles, symbol
from weft_compiler.codegen.writer import Loops, literal
from weft_compiler.layouts import LINE, PANEL_BYTES, POINTS, TAPS, WINDOWS, Windows, tile_size

TILES: Final = 56
"""Maximum number of tiles of a block: enough rows to fill product tiles and to reuse filters."""
_ALIGNED: Final = 'noinline "stackrealign"'
"""LLVM attributes that align spilled registers to cache lines. LLVM aligns the stack only if it
knows of this before register allocation.
"""
ROWS: Final = 4
"""Divisor of the number of tiles in a block."""
SQUARE: Final = POINTS * POINTS
APART: Final = LINE
"""Padding between the values at two points, in bytes; spreads the values of a tile over all cache
sets.
"""


def workspace(s: Shape, windows: Windows) -> int:
    """Return the workspace of a call in bytes: zeros, a tile, a transformed block, its sums."""
    tile = tile_size(windows.taps_y)
    tall, wide = -(-windows.rows // tile), -(-windows.width // tile)
    count = min(TILES, -(-windows.images * tall * wide // ROWS) * ROWS)
    depths = -(-windows.channels // s.depth)
    panel = PANEL_BYTES // s.dtype.size
    points = count * (depths * s.row + panel) * s.dtype.size + (depths + 1) * APART
    return (windows.channels + tile**2 * panel) * s.dtype.size + SQUARE * points


def texts(s: Shape) -> list[str]:
    """Return the LLVM functions; they call `conv` of the same module."""
    kinds = (_Winograd, _Filters)
    return [
        text for kind in kinds for text in dispatch_by_taps(s, [kind(s, taps) for taps in TAPS])
    ]


def dispatch_by_taps(s: Shape, routines: Sequence[ForTaps]) -> list[str]:
    """Return a routine that dispatches to others with the same parameters, by the filter size.

    Args:
      routines: one for each of TAPS.
    """
    first, name = routines[0], symbol(routines[0].name, s.dtype)
    kinds = [f"ptr noalias %{view}" for view in first.views]
    kinds += [f"i64 %{number}" for number in first.numbers]
    parameters = ", ".join([*kinds, "ptr noalias %workspace"])
    arguments = parameters.replace(" noalias", "")
    w, texts = Loops(), []
    for routine in routines:
        routine_symbol = f"@weft.{first.name}.{routine.taps}"
        routine.write()
        lines = "\n".join(routine.w.lines)
        head = f"define internal void {routine_symbol}({parameters}) {_ALIGNED} #0"
        texts.append(f"{head} {{\nentry:\n{lines}\n  ret void\n}}\n")
        with w.emit_if(w.put(f"icmp eq i64 %{first.taps_parameter}, {routine.taps}")):
            w.do(f"call void {routine_symbol}({arguments})")
    lines = "\n".join(w.lines)
    return [*texts, f"define void @{name}({parameters}) #0 {{\nentry:\n{lines}\n  ret void\n}}\n"]


class Vectors:
    """Writer of vector arithmetic."""

    def __init__(self, w: Loops, s: Shape) -> None:
        self.w, self.s = w, s
        self.kind = f"<{s.lanes} x {s.scalar}>"
        self.suffix = f"v{s.lanes}{'f64' if s.scalar == 'double' else 'f32'}"

    def add(self, x: str, y: str) -> str:
        """Return x + y."""
        return self.w.put(f"fadd {self.kind} {x}, {y}")

    def sub(self, x: str, y: str) -> str:
        """Return x - y."""
        return self.w.put(f"fsub {self.kind} {x}, {y}")

    def scaled(self, x: str, factor: float) -> str:
        """Return x multiplied by a constant."""
        return self.w.put(f"fmul {self.kind} {x}, {self.number(factor)}")

    def plus(self, total: str, x: str, factor: float) -> str:
        """Return total + x * factor."""
        return self.w.call(f"llvm.fmuladd.{self.suffix}", self.kind, x, self.number(factor), total)

    def number(self, value: float) -> str:
        """Broadcast a number to all lanes."""
        return f"splat ({self.s.scalar} {literal(value, self.s.dtype)})"

    def load(self, pointer: str, *terms: str) -> str:
        """Load a register from an offset in elements."""
        address = self.w.offset_address(pointer, self.s.scalar, *terms)
        return self.w.put(f"load {self.kind}, ptr {address}, align {self.s.dtype.size}")

    def store(self, x: str, pointer: str, *terms: str) -> None:
        """Store a register at an offset in elements."""
        address = self.w.offset_address(pointer, self.s.scalar, *terms)
        self.w.do(f"store {self.kind} {x}, ptr {address}, align {self.s.dtype.size}")

    def inputs(self, d: Sequence[str]) -> list[str]:
        """Transform six elements to the points: products of the factors of all other points."""
        # The first line multiplies by (x - 1)(x + 1) and the second by (x - 1/2)(x + 2) = x² + 3/2
        # x - 1. Each point multiplies one of these by its remaining factors.
        e = [self.sub(d[k + 2], d[k]) for k in range(4)]
        h = [self.sub(self.plus(d[k + 2], d[k + 1], 1.5), d[k]) for k in (1, 2)]
        return [
            self.sub(self.plus(e[2], e[1], 1.5), e[0]),
            self.add(h[1], h[0]),
            self.sub(h[1], h[0]),
            self.plus(e[2], e[1], 2.0),
            self.plus(e[2], e[1], -0.5),
            self.sub(self.plus(e[3], e[2], 1.5), e[1]),
        ]

    def results(self, m: Sequence[str], count: int) -> list[str]:
        """Interpolate results from six sums: powers of the points, times each."""
        parts = self.add(m[1], m[2]), self.sub(m[1], m[2])
        return self._powers(m, parts, count, (1.0, 1.0))

    def taps(self, m: Sequence[str], count: int) -> list[str]:
        """Interpolate elements of a filter's gradient from six sums."""
        parts = (
            self.scaled(self.sub(m[1], m[2]), 1 / 3),
            self.scaled(self.add(m[1], m[2]), 1 / 3),
        )
        return self._powers(m, parts, count, (-16 / 15, 1 / 15))

    def _powers(
        self, m: Sequence[str], parts: tuple[str, str], count: int, scales: tuple[float, float]
    ) -> list[str]:
        """Return powers of the points, multiplied by six numbers.

        Args:
          parts: the contributions of even and odd powers of 1 and -1.
          scales: the scales of the powers of 1/2 and of -2.
        """
        results = []
        for k in range(count):
            total = parts[k % 2]
            if k == 0:
                total = self.add(m[0], total)
            if k == count - 1:
                total = self.add(total, m[5])
            total = self.plus(total, m[3], scales[0] * 0.5**k)
            results.append(self.plus(total, m[4], scales[1] * (-2.0) ** k))
        return results

    def filters(self, g: Sequence[str]) -> list[str]:
        """Transform filter elements to the points, divided by the points' differences."""
        # The scales are 1 / N'(p) for N(x) = x (x - 1)(x + 1)(x - 1/2)(x + 2): ±1/3 at ±1, -16/15
        # at 1/2 and 1/15 at -2.
        even, odd, third = self._sum(g[0::2]), self._sum(g[1::2]), 1 / 3
        return [
            g[0],
            self.scaled(self.add(even, odd), third),
            self.scaled(self.sub(odd, even), third),
            self._at(g, 0.5, -16 / 15),
            self._at(g, -2.0, 1 / 15),
            g[-1],
        ]

    def gradients(self, g: Sequence[str]) -> list[str]:
        """Transform gradients of results to the points: the points' powers, times each."""
        even, odd = self._sum(g[0::2]), self._sum(g[1::2])
        sums, stride = self.add(even, odd), self.sub(even, odd)
        return [g[0], sums, stride, self._at(g, 0.5), self._at(g, -2.0), g[-1]]

    def _sum(self, x: Sequence[str]) -> str:
        return reduce(self.add, x)

    def _at(self, x: Sequence[str], point: float, scale: float = 1.0) -> str:
        """Evaluate a polynomial at a point, scaled by a number."""
        total = x[0] if scale == 1.0 else self.scaled(x[0], scale)
        for power, coefficient in enumerate(x[1:], 1):
            total = self.plus(total, coefficient, scale * point**power)
        return total

    def square(
        self, x: Sequence[Sequence[str]], change: Callable[[Sequence[str]], list[str]]
    ) -> list[list[str]]:
        """Transform the columns of a square, and then its rows."""
        columns = [change([row[j] for row in x]) for j in range(len(x[0]))]
        return [change(list(row)) for row in zip(*columns, strict=True)]


class ForTaps:
    """A routine for one filter size.

    Attributes:
      name: the name of the routine.
      views, numbers: the names of its parameters.
      taps_parameter: the parameter that has the number of taps.
    """

    name: ClassVar[str]
    views: ClassVar[tuple[str, ...]]
    numbers: ClassVar[tuple[str, ...]]
    taps_parameter: ClassVar[str] = "taps_y"

    def __init__(self, s: Shape, taps: int) -> None:
        self.s, self.taps, self.w = s, taps, Loops()
        self.v = Vectors(self.w, s)

    def write(self) -> None:
        """Emit the body."""
        raise NotImplementedError


class TiledRoutine(ForTaps):
    """Base of routines over tiles of results.

    Attributes:
      tile: number of results of a tile along an axis.
      panel: columns of a panel.
      tall, wide, each: tiles of an image: rows, columns, and their product.
      max_tiles: the maximal number of tiles of a block.
      bad: the address of a register that is NaN once a result is not finite.
    """

    def __init__(self, s: Shape, taps: int) -> None:
        super().__init__(s, taps)
        self.tile = tile_size(taps)
        self.panel = PANEL_BYTES // s.dtype.size

    def begin(self, maximum: int) -> str:
        """Emit the number of tiles of an image and of a block; return the total number of tiles."""
        w = self.w
        self.bad = w.put(f"alloca {self.v.kind}, align 64")
        self.note("zeroinitializer")
        self.tall, self.wide = (
            w.put(f"udiv i64 {w.put(f'add i64 %{size}, {self.tile - 1}')}, {self.tile}")
            for size in ("rows", "width")
        )
        self.each = w.put(f"mul nsw i64 {self.tall}, {self.wide}")
        count = w.put(f"mul nsw i64 %images, {self.each}")
        blocks = w.put(f"udiv i64 {w.put(f'add i64 {count}, {maximum - 1}')}, {maximum}")
        blocks = w.put(f"call i64 @llvm.smax.i64(i64 {blocks}, i64 1)")
        # Tiles are divided evenly among blocks; a short last block would reuse the filters less.
        rounded = w.put(f"sub i64 {w.put(f'add i64 {count}, {blocks}')}, 1")
        self.max_tiles = self.round_up_tiles(w.put(f"udiv i64 {rounded}, {blocks}"))
        return count

    def round_up_tiles(self, count: str) -> str:
        """Round a count up to a multiple of the smallest number of rows of product tiles."""
        return self.w.put(f"and i64 {self.w.put(f'add i64 {count}, {ROWS - 1}')}, {-ROWS}")

    def point_stride(self, size: str) -> str:
        """Return the stride between points, for `size` elements per point."""
        return self.w.put(f"add nsw i64 {size}, {APART // self.s.dtype.size}")

    def place(self, tile: str) -> tuple[str, str, str]:
        """Return the image, the first row and the first column of a tile."""
        w = self.w
        remainder = w.put(f"urem i64 {tile}, {self.each}")
        row, column = (
            w.put(f"udiv i64 {remainder}, {self.wide}"),
            w.put(f"urem i64 {remainder}, {self.wide}"),
        )
        image = w.put(f"udiv i64 {tile}, {self.each}")
        return (
            image,
            w.put(f"mul nsw i64 {row}, {self.tile}"),
            w.put(f"mul nsw i64 {column}, {self.tile}"),
        )

    def patch(self, tile: str, size: int, view: str, top: str = "0") -> list[list[str]]:
        """Return the addresses of the elements of a tile; those outside point to zeros.

        Args:
          size: the number of rows and columns of the patch.
          view: the images, "%x"; or their results, "%g".
          top: the row of the first tile.
        """
        w, s, results = self.w, self.s, view == "%g"
        height, breadth, channels = (
            ("%rows", "%width", "%depth") if results else ("%height", "%breadth", "%channels")
        )
        image, y, x = self.place(tile)
        if not results:
            y = w.put(f"add nsw i64 {y}, {w.put(f'mul nsw i64 {top}, {self.tile}')}")
            y, x = w.put(f"sub i64 {y}, %before_y"), w.put(f"sub i64 {x}, %before_x")
        line = w.put(f"mul nsw i64 {breadth}, {channels}")
        lines = w.put(f"mul nsw i64 {w.put(f'mul nsw i64 {image}, {height}')}, {line}")
        columns = [w.put(f"add nsw i64 {x}, {j}") for j in range(size)]
        # An unsigned comparison also rejects negative positions.
        is_inside = [w.put(f"icmp ult i64 {column}, {breadth}") for column in columns]
        offsets = [w.put(f"mul nsw i64 {column}, {channels}") for column in columns]
        addresses = []
        for i in range(size):
            row = w.put(f"add nsw i64 {y}, {i}")
            row_is_inside = w.put(f"icmp ult i64 {row}, {height}")
            own_base = w.offset_address(view, s.scalar, lines, w.put(f"mul nsw i64 {row}, {line}"))
            addresses.append(
                [
                    w.select(
                        w.put(f"and i1 {row_is_inside}, {column_is_inside}"),
                        "ptr",
                        w.offset_address(own_base, s.scalar, offset),
                        "%workspace",
                    )
                    for offset, column_is_inside in zip(offsets, is_inside, strict=True)
                ]
            )
        return addresses

    def zeros(self, count: str) -> None:
        """Write the zeros at the start of the workspace, which elements outside point to."""
        with self.w.iterate(count, self.s.lanes) as c:
            self.v.store("zeroinitializer", "%workspace", c)

    def load_channels(self, patch: Sequence[Sequence[str]], c: str) -> list[list[str]]:
        """Load some channels of a patch."""
        return [[self.v.load(address, c) for address in row] for row in patch]

    def store(self, square: Sequence[Sequence[str]], address: str, stride: str) -> None:
        """Store the values at all points."""
        for point, value in enumerate([value for row in square for value in row]):
            self.v.store(value, address, self.w.put(f"mul nsw i64 {stride}, {point}"))

    def note(self, bad: str) -> None:
        """Store a register that has NaN in some lane if a result was not finite."""
        self.w.do(f"store {self.v.kind} {bad}, ptr {self.bad}, align 64")

    def load_stored(self) -> str:
        """Load the register that `note` stored."""
        return self.w.put(f"load {self.v.kind}, ptr {self.bad}, align 64")

    def is_bad(self) -> str:
        """Emit a test of whether a result was not finite."""
        w, scalar = self.w, self.s.scalar
        total = w.put(
            f"call {scalar} @llvm.vector.reduce.fadd.{self.v.suffix}"
            f"({scalar} 0.0, {self.v.kind} {self.load_stored()})"
        )
        return w.put(f"fcmp uno {scalar} {total}, 0.0")


class _Winograd(TiledRoutine):
    """Writer of `winograd(x, w, u, y, numbers of WINDOWS, row)`."""

    name = "winograd"
    views = ("x", "w", "u", "y")
    numbers = (*WINDOWS, "row")

    def write(self) -> None:
        w = self.w
        count = self.begin(TILES)
        self._split_workspace()
        with w.iterate(count, self.max_tiles) as first:
            num_columns = w.emit_min(w.put(f"sub i64 {count}, {first}"), self.max_tiles)
            self._transform_inputs(first, num_columns)
            with w.iterate("%depth", self.panel) as j:
                columns = w.emit_min(w.put(f"sub i64 %depth, {j}"), str(self.panel))
                self._multiply_points(num_columns, j)
                self._interpolate_results(first, num_columns, j, columns)
        with w.emit_if(self.is_bad()):
            self._compute_directly()

    def _compute_directly(self) -> None:
        """Compute rows of tiles with a non-finite result by `conv`."""
        w, s = self.w, self.s
        line = w.put("mul nsw i64 %width, %depth")
        image = w.put(f"mul nsw i64 {w.put('mul nsw i64 %breadth, %channels')}, %height")
        results = w.put(f"mul nsw i64 %rows, {line}")
        with w.iterate("%images") as n, w.iterate("%rows", self.tile) as row:
            rows = w.emit_min(w.put(f"sub i64 %rows, {row}"), str(self.tile))
            size = w.put(f"mul nsw i64 {rows}, {line}")
            offset = w.put(f"mul nsw i64 {n}, {results}")
            y = w.offset_address("%y", s.scalar, offset, w.put(f"mul nsw i64 {row}, {line}"))
            self.note("zeroinitializer")
            with w.iterate(size, s.lanes) as c:
                self.note(self.v.plus(self.load_stored(), self.v.load(y, c), 0.0))
            with w.emit_if(self.is_bad()):
                windows = {name: f"%{name}" for name in WINDOWS} | {"images": "1", "rows": rows}
                x = w.offset_address("%x", s.scalar, w.put(f"mul nsw i64 {n}, {image}"))
                begin = w.put(f"add nsw i64 %row, {row}")
                numbers = ", ".join(f"i64 {number}" for number in (*windows.values(), "1", begin))
                w.do(
                    f"call void @{symbol('conv', s.dtype)}(ptr {x}, ptr %w, ptr {y}, {numbers}, "
                    "ptr %workspace)"
                )

    def _split_workspace(self) -> None:
        """Return the addresses of the parts of the workspace, and their strides."""
        w, s = self.w, self.s
        self.zeros("%channels")
        self.scratch = w.offset_address("%workspace", s.scalar, "%channels")
        depths = w.put(f"udiv i64 {w.put(f'add i64 %channels, {s.depth - 1}')}, {s.depth}")
        self.point = self.point_stride(w.put(f"mul nsw i64 {self.max_tiles}, {s.row}"))
        self.block = w.put(f"mul nsw i64 {self.point}, {SQUARE}")
        self.sums_point = self.point_stride(w.put(f"mul nsw i64 {self.max_tiles}, {self.panel}"))
        self.transformed = w.offset_address(self.scratch, s.scalar, str(self.tile**2 * self.panel))
        full_count = w.put(f"mul nsw i64 {self.block}, {depths}")
        self.sums = w.offset_address(self.transformed, s.scalar, full_count)

    def _transform_inputs(self, first: str, num_columns: str) -> None:
        """Transform the elements of tiles."""
        w, s, v = self.w, self.s, self.v
        top = w.put(f"udiv i64 %row, {self.tile}")
        with w.iterate(num_columns) as t:
            patch = self.patch(w.put(f"add nsw i64 {first}, {t}"), POINTS, "%x", top)
            target = w.offset_address(
                self.transformed, s.scalar, w.put(f"mul nsw i64 {t}, {s.row}")
            )
            with w.iterate("%channels", s.lanes) as c:
                square = v.square(self.load_channels(patch, c), v.inputs)
                offset = w.put(f"udiv i64 {c}, {s.depth}")
                start = w.put(f"mul nsw i64 {offset}, {self.block}")
                address = w.offset_address(
                    target, s.scalar, start, w.put(f"urem i64 {c}, {s.depth}")
                )
                self.store(square, address, self.point)

    def _multiply_points(self, num_columns: str, j: str) -> None:
        """Compute the sums of a panel at all points; columns beyond the last are not used."""
        w, s = self.w, self.s
        count = self.round_up_tiles(num_columns)
        with w.iterate(str(SQUARE)) as point:
            row = w.put(f"mul nsw i64 {j}, {SQUARE}")
            row = w.put(f"add nsw i64 {row}, {w.put(f'mul nsw i64 {point}, {self.panel}')}")
            panel = w.offset_address("%u", s.scalar, w.put(f"mul nsw i64 {row}, %channels"))
            address = w.offset_address(
                self.transformed, s.scalar, w.put(f"mul nsw i64 {point}, {self.point}")
            )
            sums = w.offset_address(
                self.sums, s.scalar, w.put(f"mul nsw i64 {point}, {self.sums_point}")
            )
            with w.iterate("%channels", s.depth) as pc:
                depth = w.emit_min(w.put(f"sub i64 %channels, {pc}"), str(s.depth))
                add = w.put(f"icmp sgt i64 {pc}, 0")
                offset = w.put(f"mul nsw i64 {w.put(f'udiv i64 {pc}, {s.depth}')}, {self.block}")
                b = w.offset_address(panel, s.scalar, w.put(f"mul nsw i64 {pc}, {self.panel}"))
                with iterate_tiles(w, s, count) as (i, _, kernel_rows):
                    a = w.offset_address(
                        address, s.scalar, offset, w.put(f"mul nsw i64 {i}, {s.row}")
                    )
                    c = w.offset_address(sums, s.scalar, w.put(f"mul nsw i64 {i}, {self.panel}"))
                    kernel = select_kernel(w, s, kernel_rows, str(self.panel))
                    begins = w.put(f"icmp eq i64 {i}, 0")
                    requested = w.select(begins, "i64", str(self.panel), "0")
                    with w.iterate(str(self.panel), s.width) as k:
                        place = w.offset_address(b, s.scalar, k)
                        following = w.offset_address(
                            place, s.scalar, w.put(f"mul nsw i64 {depth}, {requested}")
                        )
                        w.do(
                            f"call void {kernel}(ptr {a}, ptr {place}, i64 {self.panel}, "
                            f"i64 {depth}, ptr {w.offset_address(c, s.scalar, k)}, i64 "
                            f"{self.panel}, "
                            f"i64 {s.width}, i1 {add}, ptr {following}, i64 {requested})"
                        )

    def _interpolate_results(self, first: str, num_columns: str, panel: str, columns: str) -> None:
        """Interpolate the results of a panel from its sums, and store the valid ones."""
        w, s, v = self.w, self.s, self.v
        line = w.put("mul nsw i64 %width, %depth")
        with w.iterate(num_columns) as t:
            image, row, column = self.place(w.put(f"add nsw i64 {first}, {t}"))
            high = w.emit_min(w.put(f"sub i64 %rows, {row}"), str(self.tile))
            wide = w.emit_min(w.put(f"sub i64 %width, {column}"), str(self.tile))
            is_full = w.put(f"icmp eq i64 {w.put(f'add i64 {high}, {wide}')}, {2 * self.tile}")
            lines = w.put(f"add nsw i64 {w.put(f'mul nsw i64 {image}, %rows')}, {row}")
            address = w.put(f"mul nsw i64 {column}, %depth")
            own_base = w.offset_address(
                "%y", s.scalar, w.put(f"mul nsw i64 {lines}, {line}"), address, panel
            )
            # A tile at the edge is stored to scratch memory as a whole, from which the existing
            # results are copied.
            target = w.select(is_full, "ptr", own_base, self.scratch)
            down = w.select(is_full, "i64", line, str(self.tile * self.panel))
            right = w.select(is_full, "i64", "%depth", str(self.panel))
            sums = w.offset_address(self.sums, s.scalar, w.put(f"mul nsw i64 {t}, {self.panel}"))
            with w.iterate(columns, s.lanes) as c:
                points = [
                    v.load(sums, w.put(f"mul nsw i64 {self.sums_point}, {point}"), c)
                    for point in range(SQUARE)
                ]
                square = [points[i : i + POINTS] for i in range(0, SQUARE, POINTS)]
                bad = self.load_stored()
                for i, results in enumerate(v.square(square, partial(v.results, count=self.tile))):
                    row_offset = w.put(f"mul nsw i64 {down}, {i}")
                    for k, result in enumerate(results):
                        v.store(result, target, row_offset, w.put(f"mul nsw i64 {right}, {k}"), c)
                        # A non-finite result times 0 is NaN, which stays in the sum. So one test
                        # covers a row of tiles.
                        bad = v.plus(bad, result, 0.0)
                self.note(bad)
            with w.emit_if(w.put(f"xor i1 {is_full}, true")), w.iterate(high) as at_row:
                source = w.offset_address(
                    self.scratch, s.scalar, w.put(f"mul nsw i64 {at_row}, {down}")
                )
                row_offset = w.offset_address(
                    own_base, s.scalar, w.put(f"mul nsw i64 {at_row}, {line}")
                )
                with w.iterate(wide) as at_column, w.iterate(columns, s.lanes) as c:
                    result_vector = v.load(source, w.put(f"mul nsw i64 {at_column}, {right}"), c)
                    v.store(result_vector, row_offset, w.put(f"mul nsw i64 {at_column}, %depth"), c)


class _Filters(ForTaps):
    """Writer of `winograd_filters(w, u, panels, channels, taps)`."""

    name = "winograd_filters"
    views = ("w", "u")
    numbers = ("panels", "channels", "taps")
    taps_parameter = "taps"

    def write(self) -> None:
        w, s, v = self.w, self.s, self.v
        count = self.taps**2
        size = w.put(f"mul nsw i64 %channels, {PANEL_BYTES // s.dtype.size}")
        with w.iterate("%panels") as p:
            offset = w.put(f"mul nsw i64 {p}, {count}")
            source = w.offset_address("%w", s.scalar, w.put(f"mul nsw i64 {offset}, {size}"))
            offset = w.put(f"mul nsw i64 {p}, {SQUARE}")
            target = w.offset_address("%u", s.scalar, w.put(f"mul nsw i64 {offset}, {size}"))
            with w.iterate(size, s.lanes) as c:
                taps = [v.load(source, w.put(f"mul nsw i64 {size}, {k}"), c) for k in range(count)]
                square = v.square(
                    [taps[i : i + self.taps] for i in range(0, count, self.taps)], v.filters
                )
                for point, value in enumerate([value for row in square for value in row]):
                    v.store(value, target, w.put(f"mul nsw i64 {size}, {point}"), c)

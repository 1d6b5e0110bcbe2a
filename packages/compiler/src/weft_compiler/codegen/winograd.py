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

from weft_compiler.codegen.tile_kernels import chosen
from weft_compiler.codegen.tiles import Shape, symbol, tiles
from weft_compiler.codegen.writer import Loops, literal
from weft_compiler.layouts import LINE, PANEL_BYTES, POINTS, TAPS, WINDOWS, Windows, tile_of

TILES: Final = 56
"""Maximal number of tiles of a block: enough rows to fill product tiles and to reuse filters."""
_ALIGNED: Final = 'noinline "stackrealign"'
"""LLVM attributes that align spilled registers to cache lines. LLVM aligns the stack only if it
knows of this before register allocation.
"""
ROWS: Final = 4
"""Number of which the number of tiles of a block is a multiple."""
SQUARE: Final = POINTS * POINTS
APART: Final = LINE
"""Padding between the values at two points, in bytes; spreads the values of a tile over all cache
sets.
"""


def workspace(s: Shape, of: Windows) -> int:
    """Return the workspace of a call in bytes: zeros, a tile, a transformed block, its sums."""
    tile = tile_of(of.taps_y)
    tall, wide = -(-of.rows // tile), -(-of.width // tile)
    count = min(TILES, -(-of.images * tall * wide // ROWS) * ROWS)
    depths = -(-of.channels // s.depth)
    panel = PANEL_BYTES // s.dtype.size
    points = count * (depths * s.row + panel) * s.dtype.size + (depths + 1) * APART
    return (of.channels + tile**2 * panel) * s.dtype.size + SQUARE * points


def texts(s: Shape) -> list[str]:
    """Return the LLVM functions; they call `conv` of the same module."""
    kinds = (_Winograd, _Filters)
    return [text for kind in kinds for text in by_taps(s, [kind(s, taps) for taps in TAPS])]


def by_taps(s: Shape, routines: Sequence[ForTaps]) -> list[str]:
    """Return a routine that dispatches to others with the same parameters, by the filter size.

    Args:
      routines: one for each of TAPS.
    """
    first, name = routines[0], symbol(routines[0].name, s.dtype)
    kinds = [f"ptr noalias %{view}" for view in first.views]
    kinds += [f"i64 %{number}" for number in first.numbers]
    parameters = ", ".join([*kinds, "ptr noalias %workspace"])
    given = parameters.replace(" noalias", "")
    w, texts = Loops(), []
    for routine in routines:
        own = f"@weft.{first.name}.{routine.taps}"
        routine.write()
        lines = "\n".join(routine.w.lines)
        head = f"define internal void {own}({parameters}) {_ALIGNED} #0"
        texts.append(f"{head} {{\nentry:\n{lines}\n  ret void\n}}\n")
        with w.when(w.put(f"icmp eq i64 %{first.asked}, {routine.taps}")):
            w.do(f"call void {own}({given})")
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
        place = self.w.at(pointer, self.s.scalar, *terms)
        return self.w.put(f"load {self.kind}, ptr {place}, align {self.s.dtype.size}")

    def store(self, x: str, pointer: str, *terms: str) -> None:
        """Store a register at an offset in elements."""
        place = self.w.at(pointer, self.s.scalar, *terms)
        self.w.do(f"store {self.kind} {x}, ptr {place}, align {self.s.dtype.size}")

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
        found = []
        for k in range(count):
            total = parts[k % 2]
            if k == 0:
                total = self.add(m[0], total)
            if k == count - 1:
                total = self.add(total, m[5])
            total = self.plus(total, m[3], scales[0] * 0.5**k)
            found.append(self.plus(total, m[4], scales[1] * (-2.0) ** k))
        return found

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
        both, apart = self.add(even, odd), self.sub(even, odd)
        return [g[0], both, apart, self._at(g, 0.5), self._at(g, -2.0), g[-1]]

    def _sum(self, x: Sequence[str]) -> str:
        return reduce(self.add, x)

    def _at(self, x: Sequence[str], point: float, scale: float = 1.0) -> str:
        """Evaluate a polynomial at a point, scaled by a number."""
        total = x[0] if scale == 1.0 else self.scaled(x[0], scale)
        for power, each in enumerate(x[1:], 1):
            total = self.plus(total, each, scale * point**power)
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
      asked: the parameter that has the number of taps.
    """

    name: ClassVar[str]
    views: ClassVar[tuple[str, ...]]
    numbers: ClassVar[tuple[str, ...]]
    asked: ClassVar[str] = "taps_y"

    def __init__(self, s: Shape, taps: int) -> None:
        self.s, self.taps, self.w = s, taps, Loops()
        self.v = Vectors(self.w, s)

    def write(self) -> None:
        """Emit the body."""
        raise NotImplementedError


class Tiled(ForTaps):
    """Base of routines over tiles of results.

    Attributes:
      tile: number of results of a tile along an axis.
      panel: columns of a panel.
      tall, wide, each: tiles of an image: rows, columns, and their product.
      most: the maximal number of tiles of a block.
      bad: the address of a register that is NaN once a result is not finite.
    """

    def __init__(self, s: Shape, taps: int) -> None:
        super().__init__(s, taps)
        self.tile = tile_of(taps)
        self.panel = PANEL_BYTES // s.dtype.size

    def begin(self, most: int) -> str:
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
        blocks = w.put(f"udiv i64 {w.put(f'add i64 {count}, {most - 1}')}, {most}")
        blocks = w.put(f"call i64 @llvm.smax.i64(i64 {blocks}, i64 1)")
        # Tiles are divided evenly among blocks; a short last block would reuse the filters less.
        rounded = w.put(f"sub i64 {w.put(f'add i64 {count}, {blocks}')}, 1")
        self.most = self.whole(w.put(f"udiv i64 {rounded}, {blocks}"))
        return count

    def whole(self, count: str) -> str:
        """Round a count up to a multiple of the smallest number of rows of product tiles."""
        return self.w.put(f"and i64 {self.w.put(f'add i64 {count}, {ROWS - 1}')}, {-ROWS}")

    def apart(self, size: str) -> str:
        """Return the stride between points, for `size` elements per point."""
        return self.w.put(f"add nsw i64 {size}, {APART // self.s.dtype.size}")

    def place(self, tile: str) -> tuple[str, str, str]:
        """Return the image, the first row and the first column of a tile."""
        w = self.w
        rest = w.put(f"urem i64 {tile}, {self.each}")
        row, column = w.put(f"udiv i64 {rest}, {self.wide}"), w.put(f"urem i64 {rest}, {self.wide}")
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
        there = [w.put(f"icmp ult i64 {column}, {breadth}") for column in columns]
        offsets = [w.put(f"mul nsw i64 {column}, {channels}") for column in columns]
        found = []
        for i in range(size):
            row = w.put(f"add nsw i64 {y}, {i}")
            inside = w.put(f"icmp ult i64 {row}, {height}")
            own = w.at(view, s.scalar, lines, w.put(f"mul nsw i64 {row}, {line}"))
            found.append(
                [
                    w.select(
                        w.put(f"and i1 {inside}, {within}"),
                        "ptr",
                        w.at(own, s.scalar, offset),
                        "%workspace",
                    )
                    for offset, within in zip(offsets, there, strict=True)
                ]
            )
        return found

    def zeros(self, count: str) -> None:
        """Write the zeros at the start of the workspace, which elements outside point to."""
        with self.w.each(count, self.s.lanes) as c:
            self.v.store("zeroinitializer", "%workspace", c)

    def loaded(self, patch: Sequence[Sequence[str]], c: str) -> list[list[str]]:
        """Load some channels of a patch."""
        return [[self.v.load(place, c) for place in row] for row in patch]

    def store(self, square: Sequence[Sequence[str]], at: str, apart: str) -> None:
        """Store the values at all points."""
        for point, value in enumerate([value for row in square for value in row]):
            self.v.store(value, at, self.w.put(f"mul nsw i64 {apart}, {point}"))

    def note(self, bad: str) -> None:
        """Store a register that has NaN in some lane if a result was not finite."""
        self.w.do(f"store {self.v.kind} {bad}, ptr {self.bad}, align 64")

    def noted(self) -> str:
        """Load the register that `note` stored."""
        return self.w.put(f"load {self.v.kind}, ptr {self.bad}, align 64")

    def is_bad(self) -> str:
        """Emit a test of whether a result was not finite."""
        w, scalar = self.w, self.s.scalar
        total = w.put(
            f"call {scalar} @llvm.vector.reduce.fadd.{self.v.suffix}"
            f"({scalar} 0.0, {self.v.kind} {self.noted()})"
        )
        return w.put(f"fcmp uno {scalar} {total}, 0.0")


class _Winograd(Tiled):
    """Writer of `winograd(x, w, u, y, numbers of WINDOWS, row)`."""

    name = "winograd"
    views = ("x", "w", "u", "y")
    numbers = (*WINDOWS, "row")

    def write(self) -> None:
        w = self.w
        count = self.begin(TILES)
        self._parts()
        with w.each(count, self.most) as first:
            here = w.least(w.put(f"sub i64 {count}, {first}"), self.most)
            self._inputs(first, here)
            with w.each("%depth", self.panel) as j:
                columns = w.least(w.put(f"sub i64 %depth, {j}"), str(self.panel))
                self._products(here, j)
                self._results(first, here, j, columns)
        with w.when(self.is_bad()):
            self._directly()

    def _directly(self) -> None:
        """Compute rows of tiles with a non-finite result by `conv`."""
        w, s = self.w, self.s
        line = w.put("mul nsw i64 %width, %depth")
        image = w.put(f"mul nsw i64 {w.put('mul nsw i64 %breadth, %channels')}, %height")
        results = w.put(f"mul nsw i64 %rows, {line}")
        with w.each("%images") as n, w.each("%rows", self.tile) as row:
            rows = w.least(w.put(f"sub i64 %rows, {row}"), str(self.tile))
            size = w.put(f"mul nsw i64 {rows}, {line}")
            of = w.put(f"mul nsw i64 {n}, {results}")
            y = w.at("%y", s.scalar, of, w.put(f"mul nsw i64 {row}, {line}"))
            self.note("zeroinitializer")
            with w.each(size, s.lanes) as c:
                self.note(self.v.plus(self.noted(), self.v.load(y, c), 0.0))
            with w.when(self.is_bad()):
                windows = {name: f"%{name}" for name in WINDOWS} | {"images": "1", "rows": rows}
                x = w.at("%x", s.scalar, w.put(f"mul nsw i64 {n}, {image}"))
                begin = w.put(f"add nsw i64 %row, {row}")
                numbers = ", ".join(f"i64 {number}" for number in (*windows.values(), "1", begin))
                w.do(
                    f"call void @{symbol('conv', s.dtype)}(ptr {x}, ptr %w, ptr {y}, {numbers}, "
                    "ptr %workspace)"
                )

    def _parts(self) -> None:
        """Return the addresses of the parts of the workspace, and their strides."""
        w, s = self.w, self.s
        self.zeros("%channels")
        self.own = w.at("%workspace", s.scalar, "%channels")
        depths = w.put(f"udiv i64 {w.put(f'add i64 %channels, {s.depth - 1}')}, {s.depth}")
        self.point = self.apart(w.put(f"mul nsw i64 {self.most}, {s.row}"))
        self.block = w.put(f"mul nsw i64 {self.point}, {SQUARE}")
        self.sums_point = self.apart(w.put(f"mul nsw i64 {self.most}, {self.panel}"))
        self.given = w.at(self.own, s.scalar, str(self.tile**2 * self.panel))
        whole = w.put(f"mul nsw i64 {self.block}, {depths}")
        self.sums = w.at(self.given, s.scalar, whole)

    def _inputs(self, first: str, here: str) -> None:
        """Transform the elements of tiles."""
        w, s, v = self.w, self.s, self.v
        top = w.put(f"udiv i64 %row, {self.tile}")
        with w.each(here) as t:
            patch = self.patch(w.put(f"add nsw i64 {first}, {t}"), POINTS, "%x", top)
            target = w.at(self.given, s.scalar, w.put(f"mul nsw i64 {t}, {s.row}"))
            with w.each("%channels", s.lanes) as c:
                square = v.square(self.loaded(patch, c), v.inputs)
                of = w.put(f"udiv i64 {c}, {s.depth}")
                start = w.put(f"mul nsw i64 {of}, {self.block}")
                at = w.at(target, s.scalar, start, w.put(f"urem i64 {c}, {s.depth}"))
                self.store(square, at, self.point)

    def _products(self, here: str, j: str) -> None:
        """Compute the sums of a panel at all points; columns beyond the last are not used."""
        w, s = self.w, self.s
        count = self.whole(here)
        with w.each(str(SQUARE)) as point:
            row = w.put(f"mul nsw i64 {j}, {SQUARE}")
            row = w.put(f"add nsw i64 {row}, {w.put(f'mul nsw i64 {point}, {self.panel}')}")
            panel = w.at("%u", s.scalar, w.put(f"mul nsw i64 {row}, %channels"))
            given = w.at(self.given, s.scalar, w.put(f"mul nsw i64 {point}, {self.point}"))
            sums = w.at(self.sums, s.scalar, w.put(f"mul nsw i64 {point}, {self.sums_point}"))
            with w.each("%channels", s.depth) as pc:
                depth = w.least(w.put(f"sub i64 %channels, {pc}"), str(s.depth))
                add = w.put(f"icmp sgt i64 {pc}, 0")
                of = w.put(f"mul nsw i64 {w.put(f'udiv i64 {pc}, {s.depth}')}, {self.block}")
                b = w.at(panel, s.scalar, w.put(f"mul nsw i64 {pc}, {self.panel}"))
                with tiles(w, s, count) as (i, _, wanted):
                    a = w.at(given, s.scalar, of, w.put(f"mul nsw i64 {i}, {s.row}"))
                    c = w.at(sums, s.scalar, w.put(f"mul nsw i64 {i}, {self.panel}"))
                    kernel = chosen(w, s, wanted, str(self.panel))
                    begins = w.put(f"icmp eq i64 {i}, 0")
                    asked = w.select(begins, "i64", str(self.panel), "0")
                    with w.each(str(self.panel), s.width) as k:
                        place = w.at(b, s.scalar, k)
                        following = w.at(place, s.scalar, w.put(f"mul nsw i64 {depth}, {asked}"))
                        w.do(
                            f"call void {kernel}(ptr {a}, ptr {place}, i64 {self.panel}, "
                            f"i64 {depth}, ptr {w.at(c, s.scalar, k)}, i64 {self.panel}, "
                            f"i64 {s.width}, i1 {add}, ptr {following}, i64 {asked})"
                        )

    def _results(self, first: str, here: str, panel: str, columns: str) -> None:
        """Interpolate the results of a panel from its sums, and store those that exist."""
        w, s, v = self.w, self.s, self.v
        line = w.put("mul nsw i64 %width, %depth")
        with w.each(here) as t:
            image, row, column = self.place(w.put(f"add nsw i64 {first}, {t}"))
            high = w.least(w.put(f"sub i64 %rows, {row}"), str(self.tile))
            wide = w.least(w.put(f"sub i64 %width, {column}"), str(self.tile))
            whole = w.put(f"icmp eq i64 {w.put(f'add i64 {high}, {wide}')}, {2 * self.tile}")
            lines = w.put(f"add nsw i64 {w.put(f'mul nsw i64 {image}, %rows')}, {row}")
            place = w.put(f"mul nsw i64 {column}, %depth")
            own = w.at("%y", s.scalar, w.put(f"mul nsw i64 {lines}, {line}"), place, panel)
            # A tile at the edge is stored to scratch memory as a whole, from which the existing
            # results are copied.
            target = w.select(whole, "ptr", own, self.own)
            down = w.select(whole, "i64", line, str(self.tile * self.panel))
            right = w.select(whole, "i64", "%depth", str(self.panel))
            sums = w.at(self.sums, s.scalar, w.put(f"mul nsw i64 {t}, {self.panel}"))
            with w.each(columns, s.lanes) as c:
                points = [
                    v.load(sums, w.put(f"mul nsw i64 {self.sums_point}, {point}"), c)
                    for point in range(SQUARE)
                ]
                square = [points[i : i + POINTS] for i in range(0, SQUARE, POINTS)]
                bad = self.noted()
                for i, results in enumerate(v.square(square, partial(v.results, count=self.tile))):
                    to = w.put(f"mul nsw i64 {down}, {i}")
                    for k, result in enumerate(results):
                        v.store(result, target, to, w.put(f"mul nsw i64 {right}, {k}"), c)
                        # A non-finite result times 0 is NaN, which stays in the sum. So one test
                        # covers a row of tiles.
                        bad = v.plus(bad, result, 0.0)
                self.note(bad)
            with w.when(w.put(f"xor i1 {whole}, true")), w.each(high) as at_row:
                source = w.at(self.own, s.scalar, w.put(f"mul nsw i64 {at_row}, {down}"))
                to = w.at(own, s.scalar, w.put(f"mul nsw i64 {at_row}, {line}"))
                with w.each(wide) as at_column, w.each(columns, s.lanes) as c:
                    found = v.load(source, w.put(f"mul nsw i64 {at_column}, {right}"), c)
                    v.store(found, to, w.put(f"mul nsw i64 {at_column}, %depth"), c)


class _Filters(ForTaps):
    """Writer of `winograd_filters(w, u, panels, channels, taps)`."""

    name = "winograd_filters"
    views = ("w", "u")
    numbers = ("panels", "channels", "taps")
    asked = "taps"

    def write(self) -> None:
        w, s, v = self.w, self.s, self.v
        count = self.taps**2
        size = w.put(f"mul nsw i64 %channels, {PANEL_BYTES // s.dtype.size}")
        with w.each("%panels") as p:
            of = w.put(f"mul nsw i64 {p}, {count}")
            source = w.at("%w", s.scalar, w.put(f"mul nsw i64 {of}, {size}"))
            of = w.put(f"mul nsw i64 {p}, {SQUARE}")
            target = w.at("%u", s.scalar, w.put(f"mul nsw i64 {of}, {size}"))
            with w.each(size, s.lanes) as c:
                taps = [v.load(source, w.put(f"mul nsw i64 {size}, {k}"), c) for k in range(count)]
                square = v.square(
                    [taps[i : i + self.taps] for i in range(0, count, self.taps)], v.filters
                )
                for point, value in enumerate([value for row in square for value in row]):
                    v.store(value, target, w.put(f"mul nsw i64 {size}, {point}"), c)

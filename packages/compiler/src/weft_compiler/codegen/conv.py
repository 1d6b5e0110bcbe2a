"""The routines `conv`, `conv_filter` and `turn`: convolutions as products without all windows.

    conv: y, windows × depth = windows of x × w

    for blocks of KC places of a window:
      for windows in tiles:
        gather that part of these windows     # some kilobytes, which stay in the first cache
        for columns in tiles:
          kernel: y tile = or += windows times panel of w

    conv_filter: y, depth × places = the transpose of g, windows × depth, times windows of x

    for blocks of NC places of a window, of those from `from` to before `until`:
      for windows in blocks of KC:
        gather that part of these windows
        for rows of y in tiles:
          copy their columns of g
          for columns in tiles:
            kernel: y tile = or += columns of g times columns of windows

    turn: y = the transpose of x

Taps that are neighbours in memory, those of a window's row where taps are not apart, are gathered
in one copy.  What is outside of x is 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final

from weft_compiler.codegen import squares, winograd, winograd_gradient
from weft_compiler.codegen.targets import Target
from weft_compiler.codegen.tile_kernels import chosen
from weft_compiler.codegen.tiles import (
    Across,
    Shape,
    module,
    shape_of,
    symbol,
    texts,
    tiles,
)
from weft_compiler.codegen.writer import Loops
from weft_compiler.windows import PANEL_BYTES, WINDOWS
from weft_tensor.dtypes import DType

_PARAMETERS: Final = {
    "conv": (*WINDOWS, "packed", "row"),
    "conv_filter": (*WINDOWS, "accumulate", "from", "until"),
    "turn": ("rows", "columns", "x_row", "y_row"),
}
GATHERED: Final = ("first", "count", "place", "size", "apart", "row")
"""Which windows, which places of each, and how far apart they are put."""
_SHORT: Final = 4
"""Elements that are copied at once where there are fewer than a register holds."""
_PAD: Final = 16
"""Elements between gathered windows, so that those of one column are in all parts of a cache."""


def workspace(routine: str, dtype: DType, target: Target, of: Mapping[str, int]) -> int:
    """Bytes that a call works in."""
    s = shape_of(dtype, target)
    if routine == "winograd":
        return winograd.workspace(s, of)
    if routine not in ("conv_filter", "winograd_gradient"):
        return s.panel_bytes if routine == "conv" else 0
    own = winograd_gradient.workspace(s, of) if routine == "winograd_gradient" else 0
    places = of["taps_y"] * of["taps_x"] * of["channels"]
    direct = s.panel_bytes + s.depth * (min(s.columns, places) + _PAD) * dtype.size
    return max(own, direct)


def declaration(routine: str, dtype: DType) -> str:
    """What a module that calls a routine declares."""
    if routine == "winograd_gradient":
        return winograd_gradient.declaration(dtype)
    if routine not in _PARAMETERS:
        return winograd.declaration(routine, dtype)
    numbers = ", ".join(["i64"] * len(_PARAMETERS[routine]))
    views = "ptr, ptr" if routine == "turn" else "ptr, ptr, ptr"
    return f"declare void @{symbol(routine, dtype)}({views}, {numbers}, ptr)"


def module_text(dtype: DType, target: Target) -> str:
    """The module that defines all of them."""
    s = shape_of(dtype, target)
    gather = Gather(s.scalar, tuple(sorted({s.lanes, min(s.lanes, _SHORT)}, reverse=True)))
    turn = [squares.text(dtype, s.lanes), _Turn(s).text()]
    routines = [_Forward(s).text(), _ByFilter(s).text(), *turn]
    fewer = [*winograd.texts(s), Across(s).text(), winograd_gradient.Gradient(s).text()]
    return module(target, *texts(s), gather.text(), *routines, *fewer)


class Gather:
    """`gather(x, y, numbers of WINDOWS, numbers of GATHERED)`: parts of windows side by side.

    Attributes:
      source, scalar: the types of elements of x and of y in LLVM.
      lanes: elements that are copied at once, the most first.
      numbers: names of its integers.
    """

    numbers: tuple[str, ...] = (*WINDOWS, *GATHERED)

    def __init__(self, scalar: str, lanes: tuple[int, ...], source: str = "") -> None:
        self.scalar, self.source, self.lanes = scalar, source or scalar, lanes
        self.w = Loops()

    def text(self) -> str:
        """The function."""
        w = self.w
        with w.when(self._are_pixels()):
            self._pixels()
            w.do("ret void")
            w.begin(w.label())  # nobody comes here
        dense = w.put("icmp eq i64 %dilation_x, 1")
        row = w.put("mul nsw i64 %taps_x, %channels")
        run = w.select(dense, "i64", row, "%channels")
        runs = w.select(dense, "i64", "1", "%taps_x")
        line = w.put("mul nsw i64 %breadth, %channels")
        image = w.put(f"mul nsw i64 %height, {line}")
        windows = w.put("mul nsw i64 %rows, %width")
        n, rest = w.put(f"sdiv i64 %first, {windows}"), w.put(f"srem i64 %first, {windows}")
        j = w.put(f"add nsw i64 {w.put(f'sdiv i64 {rest}, %width')}, %row")
        start = (n, j, w.put(f"srem i64 {rest}, %width"))
        end = w.put("add nsw i64 %place, %size")
        head, body, done, before = w.label(), w.label(), w.label(), w.block
        w.go(head)
        w.begin(head)
        place = w.name()
        at = len(w.lines)
        w.do("")
        w.branch(w.put(f"icmp slt i64 {place}, {end}"), body, done)
        w.begin(body)
        tap, inside = w.put(f"udiv i64 {place}, {run}"), w.put(f"urem i64 {place}, {run}")
        size = w.least(w.put(f"sub i64 {run}, {inside}"), w.put(f"sub i64 {end}, {place}"))
        ky, kx = w.put(f"udiv i64 {tap}, {runs}"), w.put(f"urem i64 {tap}, {runs}")
        dy = w.put(f"sub i64 {w.put(f'mul nsw i64 {ky}, %dilation_y')}, %before_y")
        dx = w.put(f"sub i64 {w.put(f'mul nsw i64 {kx}, %dilation_x')}, %before_x")
        target = w.at("%y", self.scalar, w.put(f"sub i64 {place}, %place"))
        self._windows(start, (dy, dx, inside), size, (image, line), target)
        following = w.put(f"add nsw i64 {place}, {size}")
        w.lines[at] = f"  {place} = phi i64 [ %place, %{before} ], [ {following}, %{w.block} ]"
        w.go(head)
        w.begin(done)
        w.do("ret void")
        numbers = ", ".join(f"i64 %{name}" for name in self.numbers)
        lines = "\n".join(w.lines)
        head = f"define internal void @weft.gather(ptr noalias %x, ptr noalias %y, {numbers})"
        return f"{head} noinline #0 {{\nentry:\n{lines}\n}}\n"

    def _are_pixels(self) -> str:
        """Whether windows are the pixels of images, one after the other."""
        w = self.w
        ones = w.put("mul i64 %taps_y, %taps_x")
        ones = w.put(f"mul i64 {ones}, {w.put('mul i64 %stride_y, %stride_x')}")
        zeros = w.put("or i64 %before_y, %before_x")
        lines = w.put("icmp eq i64 %width, %breadth")
        whole = w.put("icmp eq i64 %rows, %height")
        within = w.put(f"icmp sle i64 {w.put('add i64 %row, %rows')}, %height")
        whole = w.put(f"or i1 {whole}, {w.put('icmp eq i64 %images, 1')}")
        found = w.put(f"icmp eq i64 {ones}, 1")
        for each in (w.put(f"icmp eq i64 {zeros}, 0"), lines, whole, within):
            found = w.put(f"and i1 {found}, {each}")
        return found

    def _pixels(self) -> None:
        w, scalar = self.w, self.source
        first = w.put(f"add nsw i64 %first, {w.put('mul nsw i64 %row, %width')}")
        start = w.at("%x", scalar, w.put(f"mul nsw i64 {first}, %channels"), "%place")
        with w.each("%count") as i:
            source = w.at(start, scalar, w.put(f"mul nsw i64 {i}, %channels"))
            place = w.at("%y", self.scalar, w.put(f"mul nsw i64 {i}, %apart"))
            self._copy(source, place, "%size")

    def _windows(
        self,
        start: tuple[str, str, str],
        moved: tuple[str, str, str],
        size: str,
        apart: tuple[str, str],
        target: str,
    ) -> None:
        """A run of places of all windows.

        Args:
          start: image, row and column of the first window.
          moved: from a window to the run: rows, columns and elements.
          apart: elements from an image to the next, and from a row.
        """
        w, source_type = self.w, self.source
        (dy, dx, inside), (image, line) = moved, apart
        begin, head, body, done = w.block, w.label(), w.label(), w.label()
        last_row = w.put("add nsw i64 %row, %rows")
        w.go(head)
        w.begin(head)
        i, n, y, x = w.name(), w.name(), w.name(), w.name()
        at = len(w.lines)
        w.lines += [""] * 4
        w.branch(w.put(f"icmp slt i64 {i}, %count"), body, done)
        w.begin(body)
        source_y = w.put(f"add nsw i64 {w.put(f'mul nsw i64 {y}, %stride_y')}, {dy}")
        column = w.put(f"add nsw i64 {w.put(f'mul nsw i64 {x}, %stride_x')}, {dx}")
        first = w.put(f"add nsw i64 {w.put(f'mul nsw i64 {column}, %channels')}, {inside}")
        there = w.put(f"icmp ult i64 {source_y}, %height")
        low = self._within(w.put(f"sub i64 0, {first}"), size)
        low = w.select(there, "i64", low, size)
        high = self._within(w.put(f"sub i64 {line}, {first}"), size)
        high = w.put(f"call i64 @llvm.smax.i64(i64 {low}, i64 {high})")
        lines = w.put(f"mul nsw i64 {source_y}, {line}")
        source = w.at("%x", source_type, w.put(f"mul nsw i64 {n}, {image}"), lines, first)
        place = w.at(target, self.scalar, w.put(f"mul nsw i64 {i}, %apart"))
        self._fill(place, "0", low)
        count = w.put(f"sub i64 {high}, {low}")
        self._copy(w.at(source, source_type, low), w.at(place, self.scalar, low), count)
        self._fill(place, high, size)
        x_next, y_next = w.put(f"add nsw i64 {x}, 1"), w.put(f"add nsw i64 {y}, 1")
        wraps = w.put(f"icmp eq i64 {x_next}, %width")
        ends = w.put(f"and i1 {wraps}, {w.put(f'icmp eq i64 {y_next}, {last_row}')}")
        new = {
            i: w.put(f"add nsw i64 {i}, 1"),
            n: w.put(f"add nsw i64 {n}, {w.put(f'zext i1 {ends} to i64')}"),
            y: w.select(ends, "i64", "%row", w.select(wraps, "i64", y_next, y)),
            x: w.select(wraps, "i64", "0", x_next),
        }
        for offset, (old, first) in enumerate(zip(new, ("0", *start), strict=True)):
            w.lines[at + offset] = (
                f"  {old} = phi i64 [ {first}, %{begin} ], [ {new[old]}, %{w.block} ]"
            )
        w.go(head)
        w.begin(done)

    def _within(self, x: str, size: str) -> str:
        """A number, but from 0 to a size."""
        return self.w.least(self.w.put(f"call i64 @llvm.smax.i64(i64 {x}, i64 0)"), size)

    def _fill(self, place: str, low: str, high: str) -> None:
        """What is outside."""
        w, scalar = self.w, self.scalar
        with w.when(w.put(f"icmp slt i64 {low}, {high}")), w.each(high, low=low) as k:
            at = w.at(place, scalar, k)
            w.do(f"store {scalar} {self.outside}, ptr {at}, align {self.aligned(scalar)}")

    def _copy(self, source: str, place: str, count: str) -> None:
        """Elements by registers, the last of which may overlap the one before."""
        w = self.w
        done = w.label()
        for lanes in self.lanes:
            other, less = w.label(), w.label()
            w.branch(w.put(f"icmp sge i64 {count}, {lanes}"), other, less)
            w.begin(other)
            last = w.put(f"sub i64 {count}, {lanes}")
            with w.each(last, lanes, note=", !llvm.loop !0") as k:
                self._move(source, place, k, lanes)
            self._move(source, place, last, lanes)
            w.go(done)
            w.begin(less)
        with w.each(count, note=", !llvm.loop !0") as k:
            self._move(source, place, k)
        w.go(done)
        w.begin(done)

    def _move(self, source: str, place: str, k: str, lanes: int = 0) -> None:
        w = self.w
        kinds = [f"<{lanes} x {kind}>" if lanes else kind for kind in (self.source, self.scalar)]
        at = w.at(source, self.source, k)
        found = w.put(f"load {kinds[0]}, ptr {at}, align {self.aligned(self.source)}")
        found = self.stored(found, lanes)
        place = w.at(place, self.scalar, k)
        w.do(f"store {kinds[1]} {found}, ptr {place}, align {self.aligned(self.scalar)}")

    @property
    def outside(self) -> str:
        """An element that is outside of x."""
        return "0.0"

    def stored(self, x: str, lanes: int) -> str:
        """Elements of x as those of y."""
        return x

    @staticmethod
    def aligned(scalar: str) -> int:
        """Bytes of an element."""
        return {"i8": 1, "i16": 2, "float": 4, "double": 8}[scalar]


class _Driver(ABC):
    """What both products have: loops over blocks, and the calls within."""

    routine = ""
    views = ""

    def __init__(self, s: Shape) -> None:
        self.s = s
        self.w = Loops()

    def text(self) -> str:
        """The function."""
        w = self.w
        windows = w.put("mul nsw i64 %rows, %width")
        self.windows = w.put(f"mul nsw i64 %images, {windows}")
        taps = w.put("mul nsw i64 %taps_y, %taps_x")
        self.places = w.put(f"mul nsw i64 {taps}, %channels")
        self.write()
        w.do("ret void")
        numbers = ", ".join(f"i64 %{name}" for name in _PARAMETERS[self.routine])
        head = f"define void @{symbol(self.routine, self.s.dtype)}({self.views}, {numbers}"
        lines = "\n".join(w.lines)
        return f"{head}, ptr noalias %workspace) #0 {{\nentry:\n{lines}\n}}\n"

    @abstractmethod
    def write(self) -> None:
        """The body."""

    def gather(self, y: str, *numbers: str) -> None:
        """Parts of windows, as GATHERED tells."""
        given = ", ".join(f"i64 {x}" for x in (*(f"%{name}" for name in WINDOWS), *numbers))
        self.w.do(f"call void @weft.gather(ptr %x, ptr {y}, {given})")

    def kernel(
        self, wanted: str, here: str, panel: tuple[str, str], depth: str, c: tuple[str, str, str]
    ) -> None:
        """A tile: its panel and how far apart rows of it are; its place, the same, and `add`."""
        found = chosen(self.w, self.s, wanted, here)
        (b, b_row), (place, c_row, add) = panel, c
        self.w.do(
            f"call void {found}(ptr %workspace, ptr {b}, i64 {b_row}, i64 {depth}, "
            f"ptr {place}, i64 {c_row}, i64 {here}, i1 {add})"
        )


class _Forward(_Driver):
    routine = "conv"
    views = "ptr noalias %x, ptr noalias %w, ptr noalias %y"

    def write(self) -> None:
        w, s = self.w, self.s
        panel = PANEL_BYTES // s.dtype.size
        packed = w.put("icmp ne i64 %packed, 0")
        apart = w.select(packed, "i64", str(panel), "%depth")
        with w.each("%depth", s.columns) as jc:
            last = w.least(w.put(f"add nsw i64 {jc}, {s.columns}"), "%depth")
            with w.each(self.places, s.depth) as pc:
                depth = w.least(w.put(f"sub i64 {self.places}, {pc}"), str(s.depth))
                add = w.put(f"icmp sgt i64 {pc}, 0")
                with tiles(w, s, self.windows) as (i, rows, wanted):
                    self.gather("%workspace", i, rows, pc, depth, str(s.row), "%row")
                    row = w.put(f"mul nsw i64 {i}, %depth")
                    with w.each(last, s.width, low=jc) as j:
                        # Panels are as wide as the tiles of the widest registers, or twice as wide.
                        of = w.select(packed, "i64", w.put(f"and i64 {j}, {-panel}"), "0")
                        start = w.put(f"mul nsw i64 {of}, {self.places}")
                        rest = w.put(f"mul nsw i64 {pc}, {apart}")
                        b = w.at("%w", s.scalar, start, rest, w.put(f"sub i64 {j}, {of}"))
                        here = w.put(f"sub i64 %depth, {j}")
                        place = w.at("%y", s.scalar, row, j)
                        c = (place, "%depth", add)
                        self.kernel(wanted, here, (b, apart), depth, c)


class _ByFilter(_Driver):
    routine = "conv_filter"
    views = "ptr noalias %x, ptr noalias %g, ptr noalias %y"

    def write(self) -> None:
        w, s = self.w, self.s
        w.do(f"%gathered = getelementptr i8, ptr %workspace, i64 {s.panel_bytes}")
        # Blocks have about as many places each: a narrow one would not pay for copying g.
        there = w.put("sub i64 %until, %from")
        blocks = w.put(f"add nsw i64 {there}, {s.columns - 1}")
        blocks = w.put(f"udiv i64 {blocks}, {s.columns}")
        most = w.put(f"sub i64 {w.put(f'add nsw i64 {there}, {blocks}')}, 1")
        most = w.put(f"add i64 {w.put(f'udiv i64 {most}, {blocks}')}, {s.width - 1}")
        most = w.least(w.put(f"and i64 {most}, {-s.width}"), there)
        apart = w.put(f"add nsw i64 {most}, {_PAD}")
        given = w.put("icmp ne i64 %accumulate, 0")
        with w.each("%until", most, low="%from") as jc:
            columns = w.least(w.put(f"sub i64 %until, {jc}"), most)
            with w.each(self.windows, s.depth) as pc:
                depth = w.least(w.put(f"sub i64 {self.windows}, {pc}"), str(s.depth))
                add = w.put(f"or i1 {given}, {w.put(f'icmp sgt i64 {pc}, 0')}")
                self.gather("%gathered", pc, depth, jc, columns, apart, "0")
                with tiles(w, s, "%depth") as (i, rows, wanted):
                    start = w.at("%g", s.scalar, w.put(f"mul nsw i64 {pc}, %depth"), i)
                    squares.call(w, start, "%workspace", depth, rows, "%depth", str(s.row))
                    row = w.at("%y", s.scalar, w.put(f"mul nsw i64 {i}, {self.places}"), jc)
                    with w.each(columns, s.width) as j:
                        here = w.put(f"sub i64 {columns}, {j}")
                        c = (w.at(row, s.scalar, j), self.places, add)
                        panel = (w.at("%gathered", s.scalar, j), apart)
                        self.kernel(wanted, here, panel, depth, c)


class _Turn:
    """`turn(x, y, rows, columns, x_row, y_row)`, with a workspace that it has no use for."""

    def __init__(self, s: Shape) -> None:
        self.s = s
        self.w = Loops()

    def text(self) -> str:
        w = self.w
        squares.call(w, "%x", "%y", *[f"%{name}" for name in _PARAMETERS["turn"]])
        w.do("ret void")
        numbers = ", ".join(f"i64 %{name}" for name in _PARAMETERS["turn"])
        head = f"define void @{symbol('turn', self.s.dtype)}(ptr noalias %x, ptr noalias %y"
        lines = "\n".join(w.lines)
        return f"{head}, {numbers}, ptr %workspace) #0 {{\nentry:\n{lines}\n}}\n"

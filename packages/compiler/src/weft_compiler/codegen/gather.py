"""The function that gathers parts of convolution windows into contiguous rows (im2col).

Taps that are contiguous in memory, those of a window's row without dilation, are copied together
as a run.  Elements outside x are 0.  If the runs of adjacent windows are all inside an image line,
each is copied in whole registers; the last may write beyond the run.
"""

from __future__ import annotations

from typing import Final

from weft_compiler.codegen.writer import Loops
from weft_compiler.layouts import WINDOWS

GATHERED: Final = ("first", "count", "place", "size", "apart", "row")
"""Parameters of `gather`: the windows, the range of elements of each, and the strides of the
result.
"""
_SHORT: Final = 4
"""Elements that are copied together if fewer are left than a register holds."""

_UNROLLED: Final = 4
"""Unroll factor of long copies, in registers."""


def lanes_of(lanes: int) -> tuple[int, ...]:
    """Return the possible numbers of elements per copy, for registers of `lanes` elements."""
    return tuple(sorted({lanes, min(lanes, _SHORT)}, reverse=True))


def emit_pixel_test(w: Loops, row: str) -> str:
    """Emit a test of whether windows are consecutive pixels of images.

    Args:
      w: the writer of a function with the parameters WINDOWS.
      row: the first row.
    """
    taps_and_strides = w.put("mul i64 %taps_y, %taps_x")
    taps_and_strides = w.put(f"mul i64 {taps_and_strides}, {w.put('mul i64 %stride_y, %stride_x')}")
    zeros = w.put("or i64 %before_y, %before_x")
    lines = w.put("icmp eq i64 %width, %breadth")
    is_full = w.put("icmp eq i64 %rows, %height")
    is_within = w.put(f"icmp sle i64 {w.put(f'add i64 {row}, %rows')}, %height")
    is_full = w.put(f"or i1 {is_full}, {w.put('icmp eq i64 %images, 1')}")
    result = w.put(f"icmp eq i64 {taps_and_strides}, 1")
    for zero in (w.put(f"icmp eq i64 {zeros}, 0"), lines, is_full, is_within):
        result = w.put(f"and i1 {result}, {zero}")
    return result


class Gather:
    """`gather(x, y, numbers of WINDOWS, numbers of GATHERED)`: gathers parts of windows.

    Attributes:
      source, scalar: the LLVM types of elements of x and of y.
      lanes: the numbers of elements that are copied together, in descending order.
      beyond: True if a copy may write past the end of a part, by fewer elements than the widest
        register. That memory is overwritten later or unused.
      name: the name of the function.
      numbers: the names of its integer parameters.
    """

    name = "weft.gather"
    numbers: tuple[str, ...] = (*WINDOWS, *GATHERED)

    def __init__(
        self, scalar: str, lanes: tuple[int, ...], source: str = "", may_overrun: bool = False
    ) -> None:
        self.scalar, self.source, self.lanes = scalar, source or scalar, lanes
        self.may_overrun = may_overrun
        self.w = Loops()

    def text(self) -> str:
        """Return the LLVM function."""
        w = self.w
        with w.emit_if(emit_pixel_test(w, "%row")):
            self._gather_pixels()
            w.do("ret void")
            w.begin(w.label())  # unreachable
        dense = w.put("icmp eq i64 %dilation_x, 1")
        row = w.put("mul nsw i64 %taps_x, %channels")
        run = w.select(dense, "i64", row, "%channels")
        runs = w.select(dense, "i64", "1", "%taps_x")
        line = w.put("mul nsw i64 %breadth, %channels")
        image = w.put(f"mul nsw i64 %height, {line}")
        windows = w.put("mul nsw i64 %rows, %width")
        n, remainder = w.put(f"sdiv i64 %first, {windows}"), w.put(f"srem i64 %first, {windows}")
        j = w.put(f"add nsw i64 {w.put(f'sdiv i64 {remainder}, %width')}, %row")
        start = (n, j, w.put(f"srem i64 {remainder}, %width"))
        end = w.put("add nsw i64 %place, %size")
        head, body, exit_label, preheader = w.label(), w.label(), w.label(), w.block
        w.go(head)
        w.begin(head)
        address = w.name()
        line_index = len(w.lines)
        w.do("")
        w.branch(w.put(f"icmp slt i64 {address}, {end}"), body, exit_label)
        w.begin(body)
        tap, position_in_run = (
            w.put(f"udiv i64 {address}, {run}"),
            w.put(f"urem i64 {address}, {run}"),
        )
        size = w.emit_min(
            w.put(f"sub i64 {run}, {position_in_run}"), w.put(f"sub i64 {end}, {address}")
        )
        ky, kx = w.put(f"udiv i64 {tap}, {runs}"), w.put(f"urem i64 {tap}, {runs}")
        dy = w.put(f"sub i64 {w.put(f'mul nsw i64 {ky}, %dilation_y')}, %before_y")
        dx = w.put(f"sub i64 {w.put(f'mul nsw i64 {kx}, %dilation_x')}, %before_x")
        target = w.offset_address("%y", self.scalar, w.put(f"sub i64 {address}, %place"))
        self._gather_windows(start, (dy, dx, position_in_run), size, (image, line), target)
        following = w.put(f"add nsw i64 {address}, {size}")
        w.lines[line_index] = (
            f"  {address} = phi i64 [ %place, %{preheader} ], [ {following}, %{w.block} ]"
        )
        w.go(head)
        w.begin(exit_label)
        w.do("ret void")
        numbers = ", ".join(f"i64 %{name}" for name in self.numbers)
        lines = "\n".join(w.lines)
        head = f"define internal void @{self.name}(ptr noalias %x, ptr noalias %y, {numbers})"
        return f"{head} noinline #0 {{\nentry:\n{lines}\n}}\n"

    def _gather_pixels(self) -> None:
        w, scalar = self.w, self.source
        first = w.put(f"add nsw i64 %first, {w.put('mul nsw i64 %row, %width')}")
        start = w.offset_address("%x", scalar, w.put(f"mul nsw i64 {first}, %channels"), "%place")
        with w.iterate("%count") as i:
            source = w.offset_address(start, scalar, w.put(f"mul nsw i64 {i}, %channels"))
            address = w.offset_address("%y", self.scalar, w.put(f"mul nsw i64 {i}, %apart"))
            self._copy(source, address, "%size")

    def _gather_windows(
        self,
        start: tuple[str, str, str],
        moved: tuple[str, str, str],
        size: str,
        stride: tuple[str, str],
        target: str,
    ) -> None:
        """Gather one run of all windows.

        Args:
          start: image, row and column of the first window.
          moved: the offset of the run from its window: rows, columns and elements.
          stride: the strides of images and rows, in elements.
        """
        w, source_type = self.w, self.source
        (dy, dx, position_in_run), (image, line) = moved, stride
        window_range = (
            self._columns_within(dx, position_in_run, size, line) if self.may_overrun else None
        )
        begin, head, body, end = w.block, w.label(), w.label(), w.label()
        last_row = w.put("add nsw i64 %row, %rows")
        w.go(head)
        w.begin(head)
        i, n, y, x = w.name(), w.name(), w.name(), w.name()
        line_index = len(w.lines)
        w.lines += [""] * 4
        w.branch(w.put(f"icmp slt i64 {i}, %count"), body, end)
        w.begin(body)
        source_y = w.put(f"add nsw i64 {w.put(f'mul nsw i64 {y}, %stride_y')}, {dy}")
        column = w.put(f"add nsw i64 {w.put(f'mul nsw i64 {x}, %stride_x')}, {dx}")
        first = w.put(f"add nsw i64 {w.put(f'mul nsw i64 {column}, %channels')}, {position_in_run}")
        is_inside = w.put(f"icmp ult i64 {source_y}, %height")
        lines = w.put(f"mul nsw i64 {source_y}, {line}")
        offset = w.put(f"add nsw i64 {w.put(f'mul nsw i64 {n}, {image}')}, {lines}")
        offset = w.put(f"add nsw i64 {offset}, {first}")
        source = w.offset_address("%x", source_type, offset)
        address = w.offset_address(target, self.scalar, w.put(f"mul nsw i64 {i}, %apart"))
        moved_on = "1"
        if window_range is not None:
            run = self._run(i, x, is_inside, window_range)
            safe = self._is_safe(offset, run, size, image)
            run_label, single_label, merge = w.label(), w.label(), w.label()
            w.branch(
                w.put(f"and i1 {w.put(f'icmp sgt i64 {run}, 0')}, {safe}"), run_label, single_label
            )
            w.begin(run_label)
            self._move_run(source, address, run, size)
            run_label = w.block
            w.go(merge)
            w.begin(single_label)
        self._gather_window(source, address, is_inside, first, (size, line))
        if window_range is not None:
            single_label = w.block
            w.go(merge)
            w.begin(merge)
            moved_on = w.put(f"phi i64 [ {run}, %{run_label} ], [ 1, %{single_label} ]")
        x_next, y_next = w.put(f"add nsw i64 {x}, {moved_on}"), w.put(f"add nsw i64 {y}, 1")
        wraps = w.put(f"icmp eq i64 {x_next}, %width")
        ends = w.put(f"and i1 {wraps}, {w.put(f'icmp eq i64 {y_next}, {last_row}')}")
        new = {
            i: w.put(f"add nsw i64 {i}, {moved_on}"),
            n: w.put(f"add nsw i64 {n}, {w.put(f'zext i1 {ends} to i64')}"),
            y: w.select(ends, "i64", "%row", w.select(wraps, "i64", y_next, y)),
            x: w.select(wraps, "i64", "0", x_next),
        }
        for offset_of, (old, begun) in enumerate(zip(new, ("0", *start), strict=True)):
            w.lines[line_index + offset_of] = (
                f"  {old} = phi i64 [ {begun}, %{begin} ], [ {new[old]}, %{w.block} ]"
            )
        w.go(head)
        w.begin(end)

    def _gather_window(
        self, source: str, address: str, is_inside: str, first: str, sizes: tuple[str, str]
    ) -> None:
        """Gather the run of one window, which may be partly outside.

        Args:
          is_inside: true if its row is in the image.
          first: its offset in the line.
          sizes: sizes of the run, and of a line.
        """
        w, (size, line) = self.w, sizes
        low = self._clamp(w.put(f"sub i64 0, {first}"), size)
        low = w.select(is_inside, "i64", low, size)
        high = self._clamp(w.put(f"sub i64 {line}, {first}"), size)
        high = w.put(f"call i64 @llvm.smax.i64(i64 {low}, i64 {high})")
        self._fill(address, "0", low)
        count = w.put(f"sub i64 {high}, {low}")
        self._copy(
            w.offset_address(source, self.source, low),
            w.offset_address(address, self.scalar, low),
            count,
        )
        self._fill(address, high, size)

    # ---------------------------------------------------------------------- several windows

    def _columns_within(
        self, dx: str, position_in_run: str, size: str, line: str
    ) -> tuple[str, str]:
        """Return the first and the last window of an image line whose run is inside the line."""
        w = self.w
        step = w.put("mul nsw i64 %stride_x, %channels")
        first = w.put(f"add nsw i64 {w.put(f'mul nsw i64 {dx}, %channels')}, {position_in_run}")
        distance = w.put(f"sub i64 {w.put(f'sub i64 {step}, 1')}, {first}")
        low = w.put(f"sdiv i64 {distance}, {step}")
        low = w.put(f"call i64 @llvm.smax.i64(i64 {low}, i64 0)")
        remaining = w.put(f"sub i64 {w.put(f'sub i64 {line}, {size}')}, {first}")
        none = w.put(f"icmp slt i64 {remaining}, 0")
        return low, w.select(none, "i64", "-1", w.put(f"sdiv i64 {remaining}, {step}"))

    def _run(self, i: str, x: str, is_line_inside: str, window_range: tuple[str, str]) -> str:
        """Return the number of adjacent windows, from one on, with their runs inside the line."""
        w, (low, high) = self.w, window_range
        last = w.emit_min(w.put(f"add nsw i64 {high}, 1"), "%width")
        count = w.emit_min(w.put(f"sub i64 {last}, {x}"), w.put(f"sub i64 %count, {i}"))
        is_inside = w.put(f"and i1 {is_line_inside}, {w.put(f'icmp sge i64 {x}, {low}')}")
        return w.select(is_inside, "i64", count, "0")

    def _is_safe(self, offset: str, run: str, size: str, image: str) -> str:
        """Emit a test that reads of whole registers stay within x."""
        w, lanes = self.w, self.lanes[0]
        total = w.put(f"mul nsw i64 %images, {image}")
        step = w.put("mul nsw i64 %stride_x, %channels")
        end = w.put(f"add nsw i64 {offset}, {w.put(f'mul nsw i64 {run}, {step}')}")
        end = w.put(f"add nsw i64 {w.put(f'add nsw i64 {end}, {size}')}, {lanes}")
        return w.put(f"icmp sle i64 {end}, {total}")

    def _move_run(self, source: str, address: str, run: str, size: str) -> None:
        """Copy the runs of windows in whole registers; the last may write beyond the run."""
        w, lanes = self.w, self.lanes[0]
        step = w.put("mul nsw i64 %stride_x, %channels")
        end = w.label()
        for registers in (1, 2, 0):
            short_copy, long_copy = w.label(), w.label()
            if registers:
                w.branch(w.put(f"icmp sle i64 {size}, {registers * lanes}"), short_copy, long_copy)
                w.begin(short_copy)
            with w.iterate(run, note=", !llvm.loop !0") as t:
                x = w.offset_address(source, self.source, w.put(f"mul nsw i64 {t}, {step}"))
                y = w.offset_address(address, self.scalar, w.put(f"mul nsw i64 {t}, %apart"))
                for register in range(registers):
                    self._move(x, y, str(register * lanes), lanes)
                if not registers:
                    self._move_all(x, y, size)
            w.go(end)
            w.begin(long_copy if registers else end)

    def _clamp(self, x: str, size: str) -> str:
        """Clamp a number to [0, size]."""
        return self.w.emit_min(self.w.put(f"call i64 @llvm.smax.i64(i64 {x}, i64 0)"), size)

    def _fill(self, address: str, low: str, high: str) -> None:
        """Fill the elements outside the image."""
        w, scalar = self.w, self.scalar
        with w.emit_if(w.put(f"icmp slt i64 {low}, {high}")), w.iterate(high, low=low) as k:
            start = w.offset_address(address, scalar, k)
            w.do(f"store {scalar} {self.padding_value}, ptr {start}, align {self.aligned(scalar)}")

    def _copy(self, source: str, address: str, count: str) -> None:
        """Copy elements in registers; the last register may overlap the previous one."""
        w = self.w
        end = w.label()
        for lanes in self.lanes:
            vector_copy, scalar_copy = w.label(), w.label()
            w.branch(w.put(f"icmp sge i64 {count}, {lanes}"), vector_copy, scalar_copy)
            w.begin(vector_copy)
            last = w.put(f"sub i64 {count}, {lanes}")
            if lanes == self.lanes[0]:
                self._move_all(source, address, last)
            else:
                with w.iterate(last, lanes, note=", !llvm.loop !0") as k:
                    self._move(source, address, k, lanes)
            self._move(source, address, last, lanes)
            w.go(end)
            w.begin(scalar_copy)
        with w.iterate(count, note=", !llvm.loop !0") as k:
            self._move(source, address, k)
        w.go(end)
        w.begin(end)

    def _move_all(self, source: str, address: str, count: str) -> None:
        """Copy elements in the widest registers, unrolled; the last may write beyond the end."""
        w, lanes = self.w, self.lanes[0]
        unrolled_count = w.put(f"and i64 {count}, {-_UNROLLED * lanes}")
        with w.iterate(unrolled_count, _UNROLLED * lanes, note=", !llvm.loop !0") as k:
            for register in range(_UNROLLED):
                self._move(source, address, w.put(f"add nsw i64 {k}, {register * lanes}"), lanes)
        with w.iterate(count, lanes, low=unrolled_count, note=", !llvm.loop !0") as k:
            self._move(source, address, k, lanes)

    def _move(self, source: str, address: str, k: str, lanes: int = 0) -> None:
        w = self.w
        kinds = [f"<{lanes} x {kind}>" if lanes else kind for kind in (self.source, self.scalar)]
        source_address = w.offset_address(source, self.source, k)
        result = w.put(f"load {kinds[0]}, ptr {source_address}, align {self.aligned(self.source)}")
        result = self.stored(result, lanes)
        address = w.offset_address(address, self.scalar, k)
        w.do(f"store {kinds[1]} {result}, ptr {address}, align {self.aligned(self.scalar)}")

    @property
    def padding_value(self) -> str:
        """The value of elements outside x, as an operand."""
        return "0.0"

    def stored(self, x: str, lanes: int) -> str:
        """Convert elements of x to those of y."""
        return x

    @staticmethod
    def aligned(scalar: str) -> int:
        """Return the alignment of an element, in bytes."""
        return {"i8": 1, "i16": 2, "float": 4, "double": 8}[scalar]

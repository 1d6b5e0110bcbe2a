"""Loops of products with packed second operands, for int8 and bfloat16.

for blocks of NC columns:
  for blocks of KC of the reduced dimension:
    for rows in tiles:
      copy that part of these rows, or of these windows    # stays in the L1 cache
      for columns in tiles:
        kernel: c tile = or += rows times panel of b
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from weft_compiler.codegen import amx
from weft_compiler.codegen.gather import GATHERED, Gather
from weft_compiler.codegen.tile_kernels import Tile, select_kernel
from weft_compiler.codegen.tiles import iterate_tiles, symbol
from weft_compiler.codegen.vnni_kernels import PAD
from weft_compiler.codegen.writer import Loops
from weft_compiler.layouts import FOUR, PANEL, PANEL_BYTES, WINDOWS
from weft_tensor.dtypes import DType

SHORT: Final = (16, 8, 4)
"""Elements that are copied together if fewer are left than a register holds."""


class GroupShape(Tile, Protocol):
    """Tile and block sizes."""

    @property
    def dtype(self) -> DType:
        """The type of the elements of a."""
        ...

    @property
    def columns(self) -> int:
        """The number of columns of a block (NC), in elements."""
        ...

    @property
    def depth(self) -> int:
        """The number of elements of a row of a in a block (KC)."""
        ...

    @property
    def copied(self) -> str:
        """The LLVM type of copied elements of a."""
        ...

    @property
    def size(self) -> int:
        """The size of a copied element, in bytes."""
        ...

    @property
    def row(self) -> int:
        """The stride of copied rows, in elements."""
        ...

    @property
    def panel_bytes(self) -> int:
        """The size of all copied rows of a, in bytes."""
        ...

    @property
    def group(self) -> int:
        """Elements of a column of b that are adjacent in a panel."""
        ...

    @property
    def result(self) -> str:
        """The LLVM type of an element of the result."""
        ...

    @property
    def in_tiles(self) -> bool:
        """True if the kernels use AMX tiles."""
        ...


def workspace_bytes(s: GroupShape) -> int:
    """Return the workspace of a product in bytes, without the part that its routine adds."""
    return s.panel_bytes + (amx.OWN_BYTES if s.in_tiles else 0)


class GroupGather(Gather):
    """Writer of `gather` that converts small elements to the format of the kernels."""

    def __init__(self, s: GroupShape, source: str, widest: int) -> None:
        lanes = (widest, *[short for short in SHORT if short < widest])
        super().__init__(s.copied, lanes, source, may_overrun=widest * s.size <= PAD)


class Driver:
    """Writer of the loops of a product, and of the calls inside.

    Attributes:
      gathering: the name of the `gather` function.
      extra: its arguments besides the numbers of windows.
      sums: True if kernels receive the column sums, `%sums`.
    """

    gathering = Gather.name
    extra = ""
    sums = False

    def __init__(self, s: GroupShape) -> None:
        self.s = s
        self.w = Loops()
        if s.in_tiles:
            amx.begin(self.w)
            self.w.do(f"%own = getelementptr i8, ptr %workspace, i64 {s.panel_bytes}")

    def function(
        self,
        routine: str,
        dtype: DType,
        views: Sequence[str],
        numbers: Sequence[str],
        internal_name: str = "",
    ) -> str:
        """Return the LLVM function of a routine, with the emitted instructions as body.

        See `function`.
        """
        if self.s.in_tiles:
            amx.end(self.w)
        return function(routine, dtype, self.w, views, numbers, internal_name)

    def multiply(
        self,
        size: tuple[str, str, str],
        views: tuple[str, str],
        c_row: str,
        copy: Callable[[str, str, str, str], None],
    ) -> None:
        """Emit the loops.

        Args:
          size: m, n and k.
          views: the panels and the result.
          copy: emits the copy of rows; receives the first row, the number of rows, the first column
            and the number of columns.
        """
        w, s, (m, n, k), (b, c) = self.w, self.s, size, views
        groups = self.groups(k)
        row_block = str(amx.BLOCK) if s.in_tiles else m
        with w.iterate(n, s.columns) as jc, w.iterate(m, row_block) as ic:
            last = w.emit_min(w.put(f"add nsw i64 {jc}, {s.columns}"), n)
            count = w.emit_min(w.put(f"sub i64 {m}, {ic}"), row_block)
            with w.iterate(k, s.depth) as pc:
                depth = w.emit_min(w.put(f"sub i64 {k}, {pc}"), str(s.depth))
                add = w.put(f"icmp sgt i64 {pc}, 0")
                panels = w.offset_address(
                    b, "i8", w.put(f"mul nsw i64 {pc}, {PANEL_BYTES // s.group}")
                )
                block = (jc, last, panels, groups)
                with self.rows(count) as (i, rows, kernel_rows):
                    first = w.put(f"add nsw i64 {ic}, {i}")
                    copy(first, rows, pc, depth)
                    self.columns((kernel_rows, w.put(f"sub i64 {count}, {i}")), block, n, depth, (
                        w.offset_address(c, s.result, w.put(f"mul nsw i64 {first}, {c_row}")),
                        c_row, add
                    ))  # fmt: skip

    def columns(
        self,
        rows: tuple[str, str],
        block: tuple[str, str, str, str],
        n: str,
        depth: str,
        c: tuple[str, str, str],
    ) -> None:
        """Emit all columns of a tile.

        Args:
          rows: the table index of their kernels, and the number of rows left.
          block: the first column, the end, the address of all panels, and the stride between
            panels in groups.
          n: the number of columns of the whole product.
          depth: the number of elements of each copied row.
          c: the address of the tile's rows, their stride, and the condition to accumulate.
        """
        w, s = self.w, self.s
        (kernel_rows, remaining_rows), (first, last, panels, groups), (start, c_row, add) = (
            rows,
            block,
            c,
        )
        num_groups = self.groups(depth)
        with w.iterate(last, s.width, low=first) as j:
            offset = w.put(f"mul nsw i64 {w.put(f'sdiv i64 {j}, {PANEL}')}, {groups}")
            offset = w.put(f"mul nsw i64 {offset}, {PANEL_BYTES}")
            offset_in_panel = w.put(f"mul nsw i64 {w.put(f'srem i64 {j}, {PANEL}')}, {FOUR}")
            panel = w.offset_address(panels, "i8", offset, offset_in_panel)
            columns = w.put(f"sub i64 {n}, {j}")
            address = w.offset_address(start, s.result, j)
            if s.in_tiles:
                amx.call(w, panel, num_groups, (address, c_row), (remaining_rows, columns, add))
            else:
                sums = f", ptr {w.offset_address('%sums', 'i32', j)}" if self.sums else ""
                w.do(
                    f"call void {select_kernel(w, s, kernel_rows, columns)}(ptr %workspace, "
                    f"ptr {panel}, i64 {num_groups}, ptr {address}, i64 {c_row}, i64 {columns}, "
                    f"i1 {add}{sums})"
                )

    @contextmanager
    def rows(self, m: str) -> Iterator[tuple[str, str, str]]:
        """Loop over rows, one tile at a time; see `iterate_tiles`."""
        if not self.s.in_tiles:
            with iterate_tiles(self.w, self.s, m) as result:
                yield result
            return
        with self.w.iterate(m, amx.ROWS) as i:
            rows = self.w.emit_min(self.w.put(f"sub i64 {m}, {i}"), str(amx.ROWS))
            yield i, rows, "0"

    def groups(self, count: str) -> str:
        """Return the number of groups of `count` elements."""
        shift = self.s.group.bit_length() - 1
        padded_count = self.w.put(f"add nsw i64 {count}, {self.s.group - 1}")
        return self.w.put(f"lshr i64 {padded_count}, {shift}")

    def counts(self) -> tuple[str, str]:
        """Emit the number of windows, and of elements per window."""
        w = self.w
        windows = w.put(f"mul nsw i64 %images, {w.put('mul nsw i64 %rows, %width')}")
        taps = w.put("mul nsw i64 %taps_y, %taps_x")
        return windows, w.put(f"mul nsw i64 {taps}, %channels")

    def copy_rows(self, start: str, stride: str, rows: str, depth: str) -> None:
        """Copy rows with `gather`, as an image of one line whose pixels are the rows."""
        params = dict.fromkeys(WINDOWS, "1") | {
            "width": rows, "breadth": rows, "channels": stride, "before_y": "0", "before_x": "0"
        }  # fmt: skip
        params |= dict(zip(GATHERED, ("0", rows, "0", depth, str(self.s.row), "0"), strict=True))
        self.gather(start, params, ", i64 0" if self.extra else "")
        self.end_rows(rows, depth)

    def copy_windows(self, i: str, rows: str, pc: str, depth: str) -> None:
        """Copy a range of elements of some windows of %x."""
        params = {name: f"%{name}" for name in WINDOWS}
        params |= dict(zip(GATHERED, (i, rows, pc, depth, str(self.s.row), "%row"), strict=True))
        self.gather("%x", params, f", i64 {self.extra}" if self.extra else "")
        self.end_rows(rows, depth)

    def gather(
        self,
        x: str,
        params: Mapping[str, str],
        extra: str,
        y: str = "%workspace",
        plain: bool = False,
    ) -> None:
        """Call `gather`, or its variant that does not convert elements."""
        arguments = ", ".join(f"i64 {params[name]}" for name in (*WINDOWS, *GATHERED))
        name = "weft.gather.plain" if plain else self.gathering
        self.w.do(f"call void @{name}(ptr {x}, ptr {y}, {arguments}{extra})")

    def end_rows(self, rows: str, depth: str) -> None:
        """Write zeros after copied rows, up to where kernels read: that memory may contain NaN."""
        w, s = self.w, self.s
        if not s.in_tiles and s.result == "i32":
            return
        unit = amx.STEP // s.size if s.in_tiles else s.group
        remainder = w.put(f"and i64 {depth}, {unit - 1}")
        with (
            w.emit_if(w.put(f"icmp ne i64 {remainder}, 0")),
            w.iterate(rows, note=", !llvm.loop !0") as i,
        ):
            address = w.put(f"mul nsw i64 {i}, {s.row}")
            address = w.offset_address("%workspace", s.copied, address, depth)
            w.do(f"store <{amx.STEP} x i8> zeroinitializer, ptr {address}, align 1")


def function(
    routine: str,
    dtype: DType,
    w: Loops,
    views: Sequence[str],
    numbers: Sequence[str],
    internal_name: str = "",
) -> str:
    """Return the LLVM function of a routine, with the emitted instructions as body.

    Args:
      internal_name: the name of the function if it is a variant inside the module.
    """
    w.do("ret void")
    arguments = [f"ptr noalias %{name}" for name in views] + [f"i64 %{name}" for name in numbers]
    lines = "\n".join(w.lines)
    name = f"internal void @{internal_name}" if internal_name else f"void @{symbol(routine, dtype)}"
    head = f"define {name}({', '.join(arguments)}, ptr noalias %workspace)"
    return f"{head} #0 {{\nentry:\n{lines}\n}}\n"

"""Fourier transforms: Stockham's autosort algorithm, on several rows at a time.

Each lane of the vector registers processes one row of the input, because Stockham's passes have no
other loop whose length is independent of the size. Rows are copied to memory of the shape [size,
lanes], pass
through one loop for each factor of the size, and are copied to the result. A transform of real
numbers packs even and odd elements as one complex transform of half the size (Press et al.,
Numerical Recipes, section 12.3). An inverse transform exchanges real and imaginary parts before and
after a forward one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from weft_compiler.ir.expressions import INDEX, Expr, Load, Variable, apply, index, number
from weft_compiler.ir.indices import Operand, minus, plus, reshape_indices, times
from weft_compiler.ir.loops import Unique, load, nest
from weft_compiler.ir.program import Allocate, Body, Buffer, For, Let, Order, Statement, Store
from weft_compiler.ir.ranges import Range, range_of
from weft_compiler.lower.butterflies import RADICES, butterfly, factors_of, scaled
from weft_compiler.lower.complex_numbers import Pair, product
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.values import StatementDefinition, Value, compute_value, move_elements
from weft_compiler.routines.transpose import Transpose
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.node import Node
from weft_graph.ops.fft import half
from weft_tensor.dtypes import DType

_LANES: Final = 16
"""Rows that are transformed together."""
_MOST_BYTES: Final = 1 << 20
"""Maximal size of the rows that are transformed together, in bytes.

They should fit into a cache.
"""
_PARALLEL_WORK: Final = 50_000
"""Minimum number of operations for which blocks of rows are distributed over threads."""
_FEWEST_ROWS: Final = 4
"""Minimum number of rows for which compiling a single transform pays off."""


class _BlockMemory:
    """Memory of the rows of a block: [size, 2, lanes].

    Args:
      is_swapped: True if real and imaginary parts are exchanged in memory.
    """

    def __init__(
        self, unique: Unique, dtype: DType, size: int, lanes: int, is_swapped: bool
    ) -> None:
        self.buffer = Buffer(unique("work"), dtype, (size, 2, lanes))
        self._order = (1, 0) if is_swapped else (0, 1)

    def at(self, position: Operand, lane: Expr) -> Pair:
        """Return an element."""
        buffer = self.buffer
        real, imaginary = [
            Load(buffer.dtype, buffer.name, (plus(position, 0), index(part_index), lane))
            for part_index in self._order
        ]
        return real, imaginary

    def store(self, position: Operand, lane: Expr, value: Pair) -> Body:
        """Return the statements that store an element."""
        return tuple(
            [
                Store(self.buffer.name, (plus(position, 0), index(part_index), lane), part)
                for part_index, part in zip(self._order, value, strict=True)
            ]
        )


@dataclass(frozen=True, eq=False)
class _Transform:
    """A transform along one axis.

    Attributes:
      name: the name of the result.
      x: the operand; its axis may be longer than the part that is read.
      axis: the transformed axis of `x`, not counting the axis of parts.
      size: the number of elements along the axis; for real transforms, those of the real side.
      is_inverse: True for an inverse transform, which divides by the size.
      reads_real, writes_real: True if the operand or the result is real.
      constants: tables of the passes, by name.
    """

    name: str
    x: Value
    axis: int
    size: int
    is_inverse: bool = False
    reads_real: bool = False
    writes_real: bool = False
    constants: list[Value] = field(default_factory=list)

    @property
    def dtype(self) -> DType:
        """The element type of the parts."""
        return self.x.dtype

    @property
    def is_packed(self) -> bool:
        """True if even and odd elements of real numbers are packed into one complex transform."""
        return (self.reads_real or self.writes_real) and self.size % 2 == 0

    @property
    def count(self) -> int:
        """The size of the complex transform."""
        return self.size // 2 if self.is_packed else self.size

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the operand, without the axis of parts."""
        return self.x.shape if self.reads_real else self.x.shape[:-1]

    @property
    def is_last(self) -> bool:
        """True if the elements of a row are adjacent in memory.

        Else adjacent elements are in different rows.
        """
        return self.axis == len(self.shape) - 1

    @property
    def num_rows(self) -> int:
        """The number of rows from which blocks are formed: those along one axis, or all."""
        if not self.is_last:
            return math.prod(self.shape[self.axis + 1 :])
        parameters = math.prod(self.shape[:-1])
        num_adjacent = self.shape[-2] if len(self.shape) > 1 else 1
        return num_adjacent if num_adjacent >= min(_LANES, parameters) else parameters

    @property
    def outer(self) -> int:
        """The number of repetitions of these rows."""
        return math.prod(self.shape) // (self.shape[self.axis] * self.num_rows)

    @property
    def lanes(self) -> int:
        """The number of rows that are transformed together, a power of 2."""
        maximum = _MOST_BYTES // (4 * self.dtype.size * self.count)
        lanes = _LANES
        while lanes > 1 and lanes > min(maximum, self.num_rows):
            lanes //= 2
        return lanes

    def rows_of(self, length: int) -> tuple[int, ...]:
        """Return the shape of a tensor of rows of a length, without the axis of parts."""
        if self.is_last:
            return self.outer, self.num_rows, length
        return self.outer, length, self.num_rows

    def indices(self, outer: Expr, row: Expr, position: Operand) -> list[Operand]:
        """Return the indices in a tensor of `rows_of`."""
        return [outer, row, position] if self.is_last else [outer, position, row]

    def value(self) -> Value:
        """Return the result of the transform as a value."""
        length = half(self.size) if self.reads_real else self.size
        shape = [*self.shape[: self.axis], length, *self.shape[self.axis + 1 :]]
        if not self.writes_real:
            shape.append(2)
        if 0 in shape or not self.x.size:
            zero = number(0, self.dtype)
            return compute_value(self.name, self.dtype, shape, lambda *_: zero)
        tables = [self._table(radix, remaining) for radix, remaining in self._passes()]
        turns = self._roots(self.size, np.arange(self.count + 1)) if self.is_packed else None
        constants = [*tables, *([] if turns is None else [turns])]

        def write(
            unique: Unique, result: Buffer, source: Buffer, *memory: Buffer
        ) -> Sequence[Statement]:
            return _TransformWriter(self, unique, source, result, memory).statements()

        written = StatementDefinition((self.x, *constants), write)
        if not self._joins_axes:
            return Value(self.name, self.dtype, tuple(shape), written)
        rows = (*self.rows_of(length), *shape[len(self.shape) :])
        result = Value(self.name, self.dtype, rows, written)
        return move_elements(
            self.name,
            result,
            shape,
            lambda *indices: reshape_indices(indices, shape, rows),
            dense=True,
        )

    @property
    def _joins_axes(self) -> bool:
        """True if the rows of a block, or their repetitions, extend over several axes."""
        num_leading, num_trailing = self.axis, len(self.shape) - 1 - self.axis
        if self.is_last:
            return num_leading > 2 or (num_leading == 2 and self.outer == 1)
        return num_leading > 1 or num_trailing > 1

    def _passes(self) -> list[tuple[int, int]]:
        """Return the radix of each pass, and the size of the transforms that remain after it."""
        passes, remaining = [], self.count
        for radix in factors_of(self.count):
            passes.append((radix, remaining))
            remaining //= radix
        return passes

    def _table(self, radix: int, remaining: int) -> Value:
        """Return the twiddle factors of a pass for each transform and result, except the first."""
        count = remaining // radix
        return self._roots(remaining, np.outer(np.arange(count), np.arange(1, radix)))

    def _roots(self, size: int, exponents: np.ndarray) -> Value:
        """Return powers of the primitive complex root of unity, each rounded once."""
        angles = -2 * np.pi * (exponents % size).astype(np.longdouble) / size
        parts = np.stack([np.cos(angles), np.sin(angles)], -1)
        constant = np.ascontiguousarray(parts, self.dtype.numpy)
        return Value(f"{self.name}_roots", self.dtype, constant.shape, constant=constant)


class _TransformWriter:
    """Emits the statements of a transform.

    Args:
      source, result: the memory of the operand and of the result.
      tables: the memory of the constants of the passes, then of the roots of packed numbers.
    """

    def __init__(
        self,
        transform: _Transform,
        unique: Unique,
        source: Buffer,
        result: Buffer,
        tables: Sequence[Buffer],
    ) -> None:
        self._transform = transform
        self._unique = unique
        self._source, self._result = source, result
        self._source_shape = transform.rows_of(transform.shape[transform.axis])
        if not transform.reads_real:
            self._source_shape = (*self._source_shape, 2)
        self._tables = tables
        self._lanes = transform.lanes
        self._work: list[_BlockMemory] = []
        self._ranges: dict[str, Range] = {}
        self._parts = () if transform.writes_real else (2,)

    def statements(self) -> Body:
        """Return loops over blocks of rows; the last block may overlap the previous one."""
        transform, lanes = self._transform, self._lanes
        outer = Variable(INDEX, self._unique("outer"))
        block = Variable(INDEX, self._unique("block"))
        blocks = transform.num_rows // lanes
        is_large = transform.x.size * len(factors_of(transform.count)) >= _PARALLEL_WORK
        orders = [Order.SERIAL, Order.SERIAL]
        if is_large:
            orders[blocks > transform.outer] = Order.PARALLEL
        self._ranges = {
            outer.name: Range(0, transform.outer - 1),
            block.name: Range(0, blocks - 1),
        }
        block_body = self._block(outer, times(block, lanes))
        body: Body = (For(block.name, index(blocks), block_body, orders[1]),)
        if transform.num_rows % lanes:
            body = (*body, *self._block(outer, index(transform.num_rows - lanes)))
        return (For(outer.name, index(transform.outer), body, orders[0]),)

    def _block(self, outer: Expr, first: Expr) -> Body:
        """Return the statements for a block of rows.

        Args:
          outer, first: the position of its first row.
        """
        transform = self._transform
        size = transform.count + 1 if transform.is_packed else transform.count
        self._work = [
            _BlockMemory(self._unique, transform.dtype, size, self._lanes, transform.is_inverse)
            for _ in range(2)
        ]
        body: list[Statement] = [Allocate(work.buffer) for work in self._work]
        body += self._read(outer, first)
        if transform.is_packed and transform.writes_real:
            body += self._pack()
        stride, remaining = 1, transform.count
        for table, radix in zip(self._tables, factors_of(transform.count), strict=False):
            body += self._pass(table, radix, remaining // radix, stride)
            stride, remaining = stride * radix, remaining // radix
        if transform.is_inverse and transform.count == 1:
            body += self._scale_one()
        if transform.is_packed and transform.reads_real:
            body += self._unpack()
        body += self._write(outer, first)
        return tuple(body)

    # ------------------------------------------------------------------------ rows

    def _by_lanes(self, outer: Expr, first: Expr, count: int, body: Callable[..., Body]) -> Body:
        """Return loops over the elements of the rows of a block.

        Args:
          body: maps a lane, a function from a position along the axis to indices, and a position
            along the axis to statements.
        """
        transform = self._transform

        def statements(lane: Expr, position: Expr) -> Body:
            def indices(position: Operand) -> list[Operand]:
                return transform.indices(outer, plus(first, lane), position)

            return body(lane, indices, position)

        return nest(self._unique, (count, self._lanes), lambda i, lane: statements(lane, i))

    def _swapped(self, value: Pair) -> Pair:
        return (value[1], value[0]) if self._transform.is_inverse else value

    def _read(self, outer: Expr, first: Expr) -> Body:
        """Copy rows from the operand to the memory of the passes."""
        transform, work, source = self._transform, self._work[0], self._source
        zero = number(0, transform.dtype)
        length = half(transform.size) if transform.writes_real else transform.count
        row = math.prod(self._source_shape[2:])
        start = load(
            source, self._source_shape, [outer, first, *[0] * (len(self._source_shape) - 2)]
        )
        if self._is_transposed and self._is_matrix(start, source, row):
            target = Load(transform.dtype, work.buffer.name, (index(0),) * 3)
            lanes = self._lanes
            parts = 2 * length
            body: Body = (
                Transpose(start, target, rows=lanes, columns=parts, x_row=row, y_row=lanes),
            )
            return (
                body
                if transform.is_packed or not transform.writes_real
                else (*body, *self._mirrored())
            )

        def real(lane: Expr, indices: Callable[..., list[Operand]], i: Expr) -> Body:
            def element(position: Operand) -> Expr:
                return load(source, self._source_shape, indices(position))

            if transform.is_packed:
                pair = element(times(i, 2)), element(plus(times(i, 2), 1))
            else:
                pair = element(i), zero
            return work.store(i, lane, pair)

        def stored(lane: Expr, indices: Callable[..., list[Operand]], i: Expr) -> Body:
            parts = [
                load(source, self._source_shape, [*indices(i), part_index]) for part_index in (0, 1)
            ]
            return work.store(i, lane, self._swapped((parts[0], parts[1])))

        if transform.reads_real:
            return self._by_lanes(outer, first, transform.count, real)
        body = self._by_lanes(outer, first, length, stored)
        if not transform.writes_real:
            return body
        return body if transform.is_packed else (*body, *self._mirrored())

    def _mirrored(self) -> Body:
        """Complete the spectrum of real numbers of an odd size by conjugates; parts are swapped."""
        transform, work = self._transform, self._work[0]

        def first(lane: Expr) -> Body:
            return work.store(0, lane, (number(0, transform.dtype), work.at(0, lane)[1]))

        def conjugate(i: Expr, lane: Expr) -> Body:
            imaginary, real = work.at(plus(i, 1), lane)
            return work.store(minus(transform.size - 1, i), lane, (apply("neg", imaginary), real))

        return (
            *nest(self._unique, (self._lanes,), first),
            *nest(self._unique, (half(transform.size) - 1, self._lanes), conjugate),
        )

    def _write(self, outer: Expr, first: Expr) -> Body:
        """Copy rows from the memory of the passes to the result."""
        transform, work, result = self._transform, self._work[0], self._result
        length = half(transform.size) if transform.reads_real else transform.count
        shape = (
            *transform.rows_of(half(transform.size) if transform.reads_real else transform.size),
            *self._parts,
        )
        if self._is_transposed and (transform.is_packed or not transform.writes_real):
            target = load(result, shape, [outer, first, *[0] * (len(shape) - 2)])
            start = Load(transform.dtype, work.buffer.name, (index(0),) * 3)
            lanes = self._lanes
            parts = 2 * length
            return (Transpose(start, target, rows=parts, columns=lanes, x_row=lanes, y_row=parts),)

        def store(position: Sequence[Operand], value: Expr) -> Store:
            return Store(result.name, load(result, shape, position).indices, value)

        def real(lane: Expr, indices: Callable[..., list[Operand]], i: Expr) -> Body:
            even, odd = self._swapped(work.at(i, lane))
            if not transform.is_packed:
                return (store(indices(i), even),)
            places = indices(times(i, 2)), indices(plus(times(i, 2), 1))
            return store(places[0], even), store(places[1], odd)

        def stored(lane: Expr, indices: Callable[..., list[Operand]], i: Expr) -> Body:
            parts = self._swapped(work.at(i, lane))
            return tuple([store([*indices(i), k], part) for k, part in enumerate(parts)])

        if transform.writes_real:
            return self._by_lanes(outer, first, transform.count, real)
        return self._by_lanes(outer, first, length, stored)

    # ------------------------------------------------------------------------ real numbers

    def _is_matrix(self, first: Load, source: Buffer, row: int) -> bool:
        """Return True if the rows of a block are contiguous in memory.

        Args:
          first: their first element.
          row: the size of a row.
        """
        ends = [range_of(index, self._ranges).high for index in first.indices]
        offset = sum(end * stride for end, stride in zip(ends, source.strides, strict=True))
        return offset + self._lanes * row <= source.size

    @property
    def _is_transposed(self) -> bool:
        """Return True if a block, with its parts contiguous, can be transposed as a matrix."""
        transform = self._transform
        return (
            transform.is_last
            and self._lanes > 1
            and (transform.is_packed or not transform.reads_real)
        )

    def _exchange(self) -> None:
        self._work.reverse()

    def _root(self, position: Operand) -> Pair:
        table = self._tables[-1]
        place = plus(position, 0)
        return (
            Load(table.dtype, table.name, (place, index(0))),
            Load(table.dtype, table.name, (place, index(1))),
        )

    def _unpack(self) -> Body:
        """Compute the spectrum of real numbers from the spectra of their even and odd elements."""
        transform, source, result = self._transform, *self._work
        zero, one_half = number(0, transform.dtype), number(0.5, transform.dtype)

        def ends(lane: Expr) -> Body:
            real, imaginary = source.at(0, lane)
            first = result.store(0, lane, (apply("add", real, imaginary), zero))
            last = result.store(transform.count, lane, (apply("sub", real, imaginary), zero))
            return (*first, *last)

        def middle(k: Expr, lane: Expr) -> Body:
            k = plus(k, 1)
            x, y = source.at(k, lane), source.at(minus(transform.count, k), lane)
            even = apply("add", x[0], y[0]), apply("sub", x[1], y[1])
            odd = apply("add", x[1], y[1]), apply("sub", y[0], x[0])
            turned = product(odd, self._root(k))
            pair = [
                apply("mul", one_half, apply("add", *parts))
                for parts in zip(even, turned, strict=True)
            ]
            return result.store(k, lane, (pair[0], pair[1]))

        body = nest(self._unique, (self._lanes,), ends)
        body = (*body, *nest(self._unique, (transform.count - 1, self._lanes), middle))
        self._exchange()
        return body

    def _pack(self) -> Body:
        """Compute the spectra of even and odd elements from the spectrum of all elements.

        Parts are swapped.
        """
        transform, source, result = self._transform, *self._work

        def first(lane: Expr) -> Body:
            (_, x), (_, y) = source.at(0, lane), source.at(transform.count, lane)
            return result.store(0, lane, (apply("sub", x, y), apply("add", x, y)))

        def middle(k: Expr, lane: Expr) -> Body:
            k = plus(k, 1)
            x, y = source.at(k, lane)[::-1], source.at(minus(transform.count, k), lane)[::-1]
            even = apply("add", x[0], y[0]), apply("sub", x[1], y[1])
            difference = apply("sub", x[0], y[0]), apply("add", x[1], y[1])
            cos, sin = self._root(k)
            odd = product(difference, (cos, apply("neg", sin)))
            real, imaginary = apply("sub", even[0], odd[1]), apply("add", even[1], odd[0])
            return result.store(k, lane, (imaginary, real))

        body = nest(self._unique, (self._lanes,), first)
        body = (*body, *nest(self._unique, (transform.count - 1, self._lanes), middle))
        self._exchange()
        return body

    # ------------------------------------------------------------------------ passes

    def _scale_one(self) -> Body:
        """Divide the inverse transform of one number, which has no passes, by its size."""
        work = self._work[0]

        def scale(lane: Expr) -> Body:
            return work.store(0, lane, scaled(work.at(0, lane), 1 / self._transform.size))

        return nest(self._unique, (self._lanes,), scale)

    def _pass(self, table: Buffer, radix: int, count: int, stride: int) -> Body:
        """Return a pass: butterflies of `radix` elements, then twiddle factors.

        Args:
          count: the number of transforms that remain after it, which is also their size.
          stride: the distance between the elements of such a transform.
        """
        source, result = self._work
        dtype = self._transform.dtype
        p, q = Variable(INDEX, self._unique("p")), Variable(INDEX, self._unique("q"))
        names = [
            (Variable(dtype, self._unique("cos")), Variable(dtype, self._unique("sin")))
            for _ in range(radix - 1)
        ]
        lets = [
            Let(variable.name, Load(dtype, table.name, (p, index(k), index(part_index))))
            for k, pair in enumerate(names)
            for part_index, variable in enumerate(pair)
        ]

        def transforms(lane: Expr) -> Body:
            body: list[Statement] = []

            def name(value: Pair) -> Pair:
                parts = [(Variable(dtype, self._unique("part")), part) for part in value]
                body.extend([Let(variable.name, part) for variable, part in parts])
                return parts[0][0], parts[1][0]

            base = plus(q, times(p, stride))
            elements = [name(source.at(plus(base, j * stride * count), lane)) for j in range(radix)]
            first = plus(q, times(p, stride * radix))
            for k, value in enumerate(butterfly(elements, name, dtype)):
                if k and count > 1:
                    value = product(name(value), names[k - 1])
                elif self._transform.is_inverse and count == 1:
                    value = scaled(value, 1 / self._transform.size)
                body.extend(result.store(plus(first, k * stride), lane, value))
            return tuple(body)

        inner: Body = nest(self._unique, (self._lanes,), transforms)
        inner = (For(q.name, index(stride), inner),)
        if count > 1:
            inner = (*lets, *inner)
        self._exchange()
        return (For(p.name, index(count), inner),)


# ------------------------------------------------------------------------------- ops


def _lengths_of(node: Node) -> list[int] | None:
    """Return the sizes of a transform along its axes, the last ones; None if they are unknown."""
    rank = _rank(node)
    if len(node.inputs) > 1:
        value = constant_value(node.inputs[1])
        return None if value is None else np.asarray(value).tolist()
    dims = node.inputs[0].dims
    sizes = None if dims is None else dims[len(dims) - rank :]
    return None if sizes is None or None in sizes else [int(size or 0) for size in sizes]


def _rank(node: Node) -> int:
    return int(node.type[-2]) if node.type.endswith("D") else 1


def _complex_sizes(node: Node, lengths: Sequence[int]) -> list[int]:
    """Return the sizes of the complex transforms that compute a transform."""
    sizes = list(lengths)
    if "RFFT" in node.type and sizes and sizes[-1] % 2 == 0:
        sizes[-1] //= 2
    return sizes


def _kernel_reason(node: Node) -> str:
    lengths = _lengths_of(node)
    if lengths is None:
        return ""
    for size in _complex_sizes(node, lengths):
        if size > 1 and not factors_of(size):
            return f"{size} has prime factors above {RADICES[-1]}"
        if 4 * node.outputs[0].dtype.real_dtype.size * size > _MOST_BYTES:
            return f"rows of {size} elements are too long for the cache"
    return ""


def _is_worth_compiling(node: Node) -> bool:
    """Return True if compiling a single transform pays off: it has several rows."""
    lengths, dims = _lengths_of(node), node.inputs[0].dims
    if lengths is None or dims is None:
        return False
    rows = [size for size in dims[: len(dims) - _rank(node)] if size is not None]
    return _rank(node) > 1 or math.prod(rows) >= _FEWEST_ROWS or None in dims


_SUFFIXES: Final = ("", "2D", "3D")


def _check_lengths(op: Operation) -> list[int]:
    lengths = _lengths_of(op.node)
    require(lengths is not None, "the length of the transform is unknown")
    assert lengths is not None
    require(not _kernel_reason(op.node), _kernel_reason(op.node))
    return lengths


@lowers(
    *[f"{kind}{suffix}" for kind in ("FFT", "IFFT") for suffix in _SUFFIXES],
    by_kernel=_kernel_reason,
    compiles_alone=_is_worth_compiling,
    pairs=True,
)
def _fft(op: Operation) -> Value:
    lengths, x = _check_lengths(op), op.inputs[0]
    first = len(op.shape()) - len(lengths)
    for axis, size in reversed(list(enumerate(lengths, first))):
        x = _Transform(f"{op.name}_{axis}", x, axis, size, op.node.type[0] == "I").value()
    return x


@lowers(
    *[f"RFFT{suffix}" for suffix in _SUFFIXES],
    known_operands=(1,),
    by_kernel=_kernel_reason,
    compiles_alone=_is_worth_compiling,
    pairs=True,
)
def _rfft(op: Operation) -> Value:
    lengths, x = _check_lengths(op), op.inputs[0]
    first = x.rank - len(lengths)
    *other_axes, (last, size) = enumerate(lengths, first)
    x = _Transform(f"{op.name}_{last}", x, last, size, reads_real=True).value()
    for axis, size in reversed(other_axes):
        x = _Transform(f"{op.name}_{axis}", x, axis, size).value()
    return x


@lowers(
    *[f"IRFFT{suffix}" for suffix in _SUFFIXES],
    known_operands=(1,),
    by_kernel=_kernel_reason,
    compiles_alone=_is_worth_compiling,
    pairs=True,
)
def _irfft(op: Operation) -> Value:
    lengths, x = _check_lengths(op), op.inputs[0]
    first = x.rank - 1 - len(lengths)
    *other_axes, (last, size) = enumerate(lengths, first)
    for axis, count in other_axes:
        x = _Transform(f"{op.name}_{axis}", x, axis, count, is_inverse=True).value()
    return _Transform(f"{op.name}_{last}", x, last, size, is_inverse=True, writes_real=True).value()

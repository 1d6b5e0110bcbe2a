"""Products of matrices: which routine computes each, sums of them in place, and transposes.

    alloc t: float32[256, 128]                   while on:
    while on:                                      call gemm(x, g, sum, accumulate=1, ...)
      call gemm(x, g, t, accumulate=0, ...)
      for i in 256:
        for j in 128:
          sum[i, j] = sum[i, j] + t[i, j]

A matrix that is the same in all turns of a loop, and is multiplied by its transpose, is transposed
before the loop.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from weft_compiler.ir.expressions import INDEX, Apply, Constant, Expr, Load, Variable, index
from weft_compiler.ir.indices import is_number
from weft_compiler.ir.names import Names
from weft_compiler.ir.program import (
    Allocate,
    Body,
    Buffer,
    Call,
    For,
    Let,
    Program,
    Statement,
    Store,
    While,
)
from weft_compiler.ir.rewrite import map_bodies, replaced
from weft_compiler.passes.effects import Buffers, buffers_of, effects_of, within
from weft_compiler.windows import LINE

_SMALL: Final = 10**6
"""Multiplications up to which OpenBLAS for AVX-512 packs nothing."""
_CACHE: Final = 1 << 20
"""Bytes of a second cache where nobody tells, which also were those of Zen 4."""
_CACHES: Final = Path("/sys/devices/system/cpu/cpu0/cache")
_FEW: Final = {8: 1 << 62, 56: 1 << 22}
"""Rows of a product that reads its second operand a few times only, and how many bytes that may
have then. Else it should fit into a second cache."""
_SEVERAL: Final = {56: 1 << 24, 512: 1 << 24}
"""The same besides where that cache is twice as large."""
_FEWEST: Final = 4
"""Rows of a product from which on a second operand is transposed before a loop."""
_FILLED: Final = 2 / 3
"""Part of the registers of a narrow result that should be columns."""


def is_generated(of: Mapping[str, int], size: int, vector_bytes: int, cache: int = _CACHE) -> bool:
    """Whether `matmul` takes less time than `gemm`.

    This is what `benchmarks/RESULTS.md` has of Zen 4 and of Sapphire Rapids with OpenBLAS. Other
    processors than those with AVX-512 were not measured.

    Args:
      of: the parameters of the product.
      size: bytes of an element.
      vector_bytes: of a register.
      cache: bytes of the second cache: the processors differ in that, and in what BLAS does best.
    """
    m, n, k = of["m"], of["n"], of["k"]
    if vector_bytes < LINE or not m or not n or not k:
        return False
    lanes = LINE // size
    turned_a, turned_b = of["a_column"] != 1, of["b_column"] != 1
    if n <= 2 * lanes and (turned_a or n < _FILLED * -(-n // lanes) * lanes):
        return False
    if m * n * k <= _SMALL:
        return turned_b and m >= 2 * lanes
    if m == 1:
        return not turned_b
    few = _FEW | _SEVERAL if cache >= 2 * _CACHE else _FEW
    return n * k * size <= next((most for rows, most in few.items() if m <= rows), cache)


@functools.cache
def second_cache() -> int:
    """Bytes of the second cache of this machine, as Linux tells."""
    for place in _CACHES.glob("index*"):
        try:
            level, kind, size = (
                (place / name).read_text().strip() for name in ("level", "type", "size")
            )
        except OSError:
            continue
        if level == "2" and kind != "Instruction" and size.endswith("K") and size[:-1].isdigit():
            return int(size[:-1]) << 10
    return _CACHE  # of systems that do not tell


def choose(program: Program, vector_bytes: int) -> Program:
    """The program with `matmul` in the place of `gemm` where that is faster.

    Args:
      vector_bytes: of a register of the processor.
    """
    buffers = buffers_of(program)

    def chosen(statement: Statement) -> Statement:
        if isinstance(statement, Call) and statement.routine == "gemm":
            of, dtype = dict(statement.parameters), statement.views[0].dtype
            if is_generated(of, dtype.size, vector_bytes, second_cache()):
                return replace(statement, routine="matmul")
        return map_bodies(statement, inside)

    def inside(body: Body) -> Body:
        return tuple([chosen(each) for each in body])

    if vector_bytes < LINE:
        return program
    names = Names(program)
    return replaced(program, inside(_Transposed(names).body(program.body, buffers)))


# ------------------------------------------------------------------------------- transposes


class _Transposed:
    """Transposes before a loop what is the same in all of its turns."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def body(self, body: Body, outer: Buffers) -> Body:
        buffers = within(outer, body)
        found: list[Statement] = []
        for each in body:
            if isinstance(each, While):
                before, each = self._loop(each, buffers)
                buffers = within(buffers, before)
                found += before
            found.append(map_bodies(each, functools.partial(self._inside, buffers)))
        return tuple(found)

    def _inside(self, buffers: Buffers, body: Body) -> Body:
        return self.body(body, buffers)

    def _loop(self, loop: While, buffers: Buffers) -> tuple[Body, While]:
        """What comes before a loop, and the loop."""
        written = effects_of((loop,), buffers).writes
        made: dict[str, Load] = {}
        before: list[Statement] = []

        def changed(statement: Statement) -> Statement:
            if not isinstance(statement, Call):
                return map_bodies(statement, inside)
            of = dict(statement.parameters)
            if not _is_transposed(statement, of, buffers) or statement.views[1].buffer in written:
                return statement
            a, b, c = statement.views
            if str(b) not in made:
                name = self._names.new(f"{b.buffer}_transposed")
                buffer = Buffer(name, b.dtype, (of["k"], of["n"]))
                before.extend(self._transpose(b, buffer))
                made[str(b)] = Load(b.dtype, name, (index(0), index(0)))
            strides = {"b_row": of["n"], "b_column": 1}
            parameters = tuple({**of, **strides}.items())
            return replace(statement, views=(a, made[str(b)], c), parameters=parameters)

        def inside(body: Body) -> Body:
            return tuple([changed(each) for each in body])

        turns = inside(loop.body)
        return tuple(before), replace(loop, body=turns)

    def _transpose(self, b: Load, buffer: Buffer) -> Body:
        row, column = (Variable(INDEX, self._names.new(name)) for name in ("row", "column"))
        value = Load(b.dtype, b.buffer, (*b.indices[:-2], column, row))
        store = Store(buffer.name, (row, column), value)
        k, n = buffer.shape
        columns = For(column.name, index(n), (store,))
        return (Allocate(buffer), For(row.name, index(k), (columns,)))


def _is_transposed(call: Call, of: Mapping[str, int], buffers: Buffers) -> bool:
    """Whether the second operand of a product is the transpose of a whole matrix of a buffer."""
    if call.routine not in ("gemm", "matmul") or call.sizes or of["m"] < _FEWEST:
        return False
    b = call.views[1]
    shape = buffers[b.buffer].shape if b.buffer in buffers else ()
    return (
        shape[-2:] == (of["n"], of["k"])
        and (of["b_row"], of["b_column"]) == (1, of["k"])
        and all(is_number(at, 0) for at in b.indices[-2:])
        and all(isinstance(at, Constant) for at in b.indices[:-2])
    )


# ------------------------------------------------------------------------------- sums


def add_in_place(program: Program) -> Program:
    """The program with products that are added to a matrix and used nowhere else added in place."""
    return replaced(program, _added(program.body, buffers_of(program)))


def _added(body: Body, outer: Buffers) -> Body:
    buffers = within(outer, body)
    found = [map_bodies(each, lambda inner: _added(inner, buffers)) for each in body]
    allocated = {each.buffer.name for each in body if isinstance(each, Allocate)}
    for at, each in enumerate(found):
        if not isinstance(each, Call) or each.routine != "gemm":
            continue
        product = each.views[2]
        if product.buffer not in allocated or dict(each.parameters)["accumulate"]:
            continue
        rest = found[at + 1 :]
        users = [later for later in rest if _touches(later, product.buffer, buffers)]
        if len(users) != 1 or any(_touches(e, product.buffer, buffers) for e in found[:at]):
            continue
        total = _sum_with(users[0], product.buffer, buffers)
        place = rest.index(users[0])
        if not total or _touches(each, total, buffers):
            continue
        if any(_touches(later, total, buffers) for later in rest[:place]):
            continue
        of = {**dict(each.parameters), "accumulate": 1}
        view = replace(product, buffer=total)
        found[at] = replace(each, views=(*each.views[:2], view), parameters=tuple(of.items()))
        del found[at + 1 + place]
    return tuple(found)


def _touches(statement: Statement, name: str, buffers: Buffers) -> bool:
    effects = effects_of((statement,), buffers)
    return name in effects.reads or name in effects.writes


def _sum_with(statement: Statement, product: str, buffers: Buffers) -> str:
    """The matrix of a product's shape that a statement adds it to, and does nothing else; or ""."""
    rows = statement
    columns = rows.body[0] if isinstance(rows, For) and len(rows.body) == 1 else None
    if not isinstance(rows, For) or not isinstance(columns, For):
        return ""
    *lets, store = columns.body
    if not isinstance(store, Store) or store.combine is not None:
        return ""
    value = store.value
    if len(lets) == 1 and isinstance(lets[0], Let) and isinstance(value, Variable):
        value = lets[0].value if lets[0].name == value.name else value
    elif lets:
        return ""
    shape, total = buffers[product].shape, store.buffer
    whole = is_number(rows.extent, shape[0]) and is_number(columns.extent, shape[-1])
    if not isinstance(value, Apply) or value.primitive != "add" or not whole or len(shape) != 2:
        return ""
    terms = [each for each in value.operands if isinstance(each, Load)]
    places = [store.indices, *[each.indices for each in terms]]
    same = all(_are_variables(each, rows.variable, columns.variable) for each in places)
    added = sorted(each.buffer for each in terms) == sorted((total, product))
    return total if same and added and buffers[total].shape == shape else ""


def _are_variables(indices: Sequence[Expr], *names: str) -> bool:
    found = [each.name for each in indices if isinstance(each, Variable)]
    return len(found) == len(indices) and found == list(names)

"""Leaving out the columns of attention whose shares are exactly zero, as after a causal mask.

    for block in 16:                       for i ...: counts[block] maximum= ... mask[i, j] ...
      call gemm(q[..], k, s, n=1024)       for block in 16:
      for i in 64:                           let n = where(bounded, counts[block], 1024)
        ... p[i, j] of s[i, j] + mask ...    call gemm(q[..], k, s, n=n)
      call gemm(p, v, y[..], k=1024)         for i in 64: ... j in n ...
                                             call gemm(p, v, y[..], k=n)

A share is exp(x - m) over a sum, and exactly zero where the score x is far enough below the maximum
m of its row. x follows from a product s and from a mask, which is known before s is: where s is
between -BOUND and BOUND, x is between what the mask makes of these two, if it never turns back
between them. So `counts` has, for each block of rows, after which column all scores are too low
whatever the product is. That it is within these bounds is seen by the lengths of the vectors that
are multiplied, before they are: |q k| <= |q| |k|. Where it is not, as where one of them is NaN, all
columns count.

What is multiplied with shares of zero adds nothing if it is finite, which the same lengths tell.
So it goes on: the rows of v for these columns are not read, and in a gradient neither are products
made that are multiplied with such shares. Blocks that are read elsewhere have zeros there, and a
note how many columns counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from weft_compiler.ir.expressions import (
    INDEX,
    Apply,
    Constant,
    Expr,
    Load,
    Variable,
    apply,
    children,
    index,
    number,
    replace_children,
    substitute,
    walk as parts,
    where,
)
from weft_compiler.ir.indices import is_number, over, plus, times
from weft_compiler.ir.names import Names
from weft_compiler.ir.program import (
    Allocate,
    Assign,
    Body,
    Buffer,
    Call,
    For,
    Let,
    Program,
    Statement,
    Store,
    Var,
    loads,
    walk,
)
from weft_compiler.ir.ranges import affine
from weft_compiler.ir.rewrite import replaced
from weft_compiler.passes.effects import Buffers, Effects, buffers_of, effects_of, within
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

_PRODUCTS: Final = ("gemm", "matmul")
_BOUND: Final = 4096.0
"""What a product of a query and a key is mostly below: twice as much is below masks of -10,000."""
_FINITE: Final = 1e18
"""Squares of lengths up to which sums of products are finite, also of many, for float32 too."""
_ROUNDED: Final = 2.0**-16
"""What a length, a sum or a score may be wrong by, as a part of it; see `_DEPTH`."""
_DEPTH: Final = 1 << 10
"""Numbers of a vector up to which rounding is that small."""
_VANISHES: Final = {dtypes.float32: 110.0, dtypes.float64: 750.0}
"""How far below 0 exp is exactly 0, and some more."""
_LINE: Final = 64
"""Columns are counted in so many."""
_LEAST: Final = 256
"""Columns from which on it is tried."""


def skip_masked(program: Program) -> Program:
    """The program without work on shares of attention that are known to be zero."""
    names = Names(program)
    buffers = within(buffers_of(program), program.body)
    kept: dict[str, _Kept] = {}
    body: list[Statement] = []
    for statement in program.body:
        outer = _Outer(names, buffers, statement, kept)
        found = outer.visit(statement, (), buffers)
        body += [*outer.before, found]
    same = all(a is b for a, b in zip(program.body, body, strict=False))
    return program if same and len(body) == len(program.body) else replaced(program, tuple(body))


class _UnfitError(Exception):
    """A block of rows is not what it has to be."""


def _need(condition: object) -> None:
    if not condition:
        raise _UnfitError


class _Kept(NamedTuple):
    """Shares that are in memory as a whole.

    Attributes:
      counts: the buffer that says of each block of rows how many columns may be other than zero.
      rows: of a block.
    """

    counts: str
    rows: int


class _Outer:
    """A statement of the program itself.

    Attributes:
      before: what comes before it.
    """

    def __init__(
        self, names: Names, buffers: Buffers, statement: Statement, kept: dict[str, _Kept]
    ) -> None:
        self.names, self.buffers, self.kept = names, buffers, kept
        self.before: list[Statement] = []
        self.written = effects_of((statement,), buffers).writes.keys()

    def visit(self, statement: Statement, loops: tuple[For, ...], buffers: Buffers) -> Statement:
        """A statement with blocks of rows in it, however deep, that leave columns out."""
        if not isinstance(statement, For):
            return statement
        around = (*loops, statement)
        inner = within(buffers, statement.body)
        found: list[Statement] = []
        for each in statement.body:
            blocks = _blocks_of(each, around, self, inner)
            found += blocks or [self.visit(each, around, inner)]
        if all(a is b for a, b in zip(found, statement.body, strict=False)):
            return statement
        return replace(statement, body=tuple(found))


def _blocks_of(
    statement: Statement, loops: tuple[For, ...], outer: _Outer, buffers: Buffers
) -> list[Statement]:
    """A loop over blocks of rows that leaves columns out, and what comes before it; or nothing."""
    if not isinstance(statement, For) or not isinstance(statement.extent, Constant):
        return []
    if not any(isinstance(each, Call) for each in statement.body):
        return []
    before, kept = list(outer.before), dict(outer.kept)
    try:
        return _Blocks(statement, loops, outer, buffers).made()
    except _UnfitError:
        outer.before[:] = before
        outer.kept.clear()
        outer.kept.update(kept)
        return []


@dataclass
class _Softmax:
    """The softmax of rows in a loop.

    Attributes:
      scores: the buffer of the product that it is of.
      value: what it is of, with COLUMN for the column; `row` is the loop's variable.
      most: the name of the maximum of a row.
    """

    scores: str
    value: Expr
    row: For
    most: str


_COLUMN: Final = Variable(INDEX, "*column")


class _Blocks:
    """A loop over blocks of rows."""

    def __init__(self, loop: For, loops: tuple[For, ...], outer: _Outer, buffers: Buffers) -> None:
        self.loop, self.loops, self.outer = loop, loops, outer
        self.outside = buffers
        self.buffers = within(buffers, loop.body)
        self.names = outer.names
        self.local = {each.buffer.name for each in loop.body if isinstance(each, Allocate)}
        self.columns = Variable(INDEX, self.names.new("columns"))
        self.operands: dict[str, Load] = {}
        self.before: list[Statement] = []
        self.zero: set[str] = set()
        self.partial: set[str] = set()
        self.factors: list[Load] = []  # of the product, in what the softmax is of
        self.softmax: _Softmax | None = None
        self.most = 0

    def made(self) -> list[Statement]:
        """What comes before, and the loop."""
        self.softmax = self._softmax()
        counts = self._counts_of(self.softmax) if self.softmax else self._known()
        early, late = self._parted([(each, self._cut(each)) for each in self.loop.body])
        _need(late)
        guards, inside = self._guards(early)
        count = where(guards, counts, index(self.most))
        clamped = apply("clamp", count, index(1), index(self.most))
        body = (*early, *inside, Let(self.columns.name, clamped), *self._noted(), *late)
        return [*self.before, replace(self.loop, body=body)]

    def _parted(
        self, made: Sequence[tuple[Statement, Statement]]
    ) -> tuple[list[Statement], list[Statement]]:
        """What comes before the columns are counted, as operands are computed there, and after.

        Args:
          made: statements, and what they become.
        """
        early: list[Statement] = []
        late: list[Statement] = []
        effects: list[Effects] = []
        for statement, new in made:
            own = effects_of((statement,), self.buffers)
            stays = new is not statement or any(own.conflicts(each) for each in effects)
            if stays and not isinstance(statement, Allocate):
                late.append(new)
                effects.append(own)
            else:
                early.append(new)
        return early, late

    # ------------------------------------------------------------------ what is zero

    def _softmax(self) -> _Softmax | None:
        """The first softmax of the rows of a product."""
        products = {
            each.views[2].buffer: dict(each.parameters)["n"]
            for each in self.loop.body
            if isinstance(each, Call)
            and each.routine in _PRODUCTS
            and each.views[2].buffer in self.local
        }
        for each in self.loop.body:
            if isinstance(each, For):
                rows = _Rows(each)
                for inner, assign in rows.maxima:
                    value = rows.expanded(assign.value, inner)
                    found = [
                        x for x in parts(value) if isinstance(x, Load) and x.buffer in products
                    ]
                    if found and len({str(x) for x in found}) == 1:
                        *_, row, column = found[0].indices
                        _need(column is _COLUMN and str(row) == each.variable)
                        self.most = products[found[0].buffer]
                        return _Softmax(found[0].buffer, value, each, assign.name)
        return None

    def _known(self) -> Expr:
        """How many columns count of kept shares that the blocks read."""
        for each in self.loop.body:
            for load in loads((each,)):
                kept = self.outer.kept.get(load.buffer)
                if kept is None or not isinstance(each, For):
                    continue
                *before, row, _ = load.indices
                rows, terms = _extent(each), affine(row)
                _need(terms == {self.loop.variable: rows, each.variable: 1})
                _need(kept.rows % rows == 0 and not _mentions(before, each.variable))
                self.zero.add(load.buffer)
                self.most = self.outside[load.buffer].shape[-1]
                block = over(Variable(INDEX, self.loop.variable), kept.rows // rows)
                return Load(INDEX, kept.counts, (*before, block))
        raise _UnfitError

    def _is_cut(self, loop: For) -> bool:
        """Whether a loop reads what is cut."""
        return bool((self.zero | self.partial) & {load.buffer for load in loads((loop,))})

    def _cut(self, statement: Statement) -> Statement:
        if isinstance(statement, Call):
            return self._product(statement)
        softmax = self.softmax is not None and statement is self.softmax.row
        if isinstance(statement, For) and (softmax or self._is_cut(statement)):
            return self._rows(statement)
        effects = effects_of((statement,), self.buffers)
        _need(not (self.partial & (effects.reads.keys() | effects.writes.keys())))
        return statement

    # ------------------------------------------------------------------ products

    def _product(self, call: Call) -> Call:
        """A product of columns that count."""
        touched = {view.buffer for view in call.views} & (self.zero | self.partial)
        if not touched and not self._is_columns(call):
            return call
        _need(call.routine in _PRODUCTS and not call.sizes)
        a, b, c = call.views
        of = dict(call.parameters)
        self._bound(b, (of["k"], of["b_row"]), (of["n"], of["b_column"]))
        if not touched:
            _need(not of["accumulate"] and (of["a_column"], of["b_row"]) == (1, 1))
            _need(of["k"] <= _DEPTH and of["c_row"] == of["n"])
            self._bound(a, (of["m"], of["a_row"]), (of["k"], 1))
            self.partial.add(c.buffer)
            return self._fewer(call, "n")
        _need(touched == {a.buffer} and a.buffer in self.zero and is_number(a.indices[-1], 0))
        if (of["a_row"], of["a_column"]) == (self.most, 1):
            _need(of["k"] == self.most)
            return self._fewer(call, "k")
        _need((of["a_row"], of["a_column"]) == (1, self.most) and of["m"] == self.most)
        _need(of["accumulate"])
        return self._fewer(call, "m")

    def _is_columns(self, call: Call) -> bool:
        """Whether a product has the columns that are counted, for the block alone."""
        if call.routine not in _PRODUCTS:
            return False
        return call.views[2].buffer in self.local and dict(call.parameters)["n"] == self.most

    def _fewer(self, call: Call, size: str) -> Call:
        return replace(call, sizes=((size, self.columns),))

    def _bound(self, view: Load, *axes: tuple[int, int]) -> None:
        """What is multiplied has to be finite, and is part of the last two dimensions.

        Args:
          axes: how many elements along each axis of the matrix, and how far apart these are.
        """
        shape = self.buffers[view.buffer].shape
        _need(view.buffer not in self.zero | self.partial and len(shape) >= 2)
        (rows, _), (columns, _) = sorted(axes, key=lambda axis: axis[1], reverse=True)
        _need(sorted(apart for _, apart in axes) == sorted((1, shape[-1])))
        _need(columns <= shape[-1] and is_number(view.indices[-1], 0))
        if is_number(view.indices[-2], 0):
            _need(rows <= shape[-2])
        else:
            _need(affine(view.indices[-2]) == {self.loop.variable: rows})
            _need(rows * _extent(self.loop) <= shape[-2])
        self.operands.setdefault(view.buffer, view)

    # ------------------------------------------------------------------ rows

    def _rows(self, loop: For) -> For:
        """A loop over rows that leaves columns out."""
        rows = _Rows(loop)
        found: list[Statement] = []
        own = {each.buffer.name for each in loop.body if isinstance(each, Allocate)}
        cut = _Cut(self, rows, own)
        for each in loop.body:
            touches = {load.buffer for load in loads((each,))} & (
                self.zero | self.partial | cut.partial
            )
            if isinstance(each, For) and _extent(each) == self.most and touches:
                found += cut.columns_of(each)
            else:
                _need(not touches and not (isinstance(each, Store) and each.buffer in self.local))
                if isinstance(each, Let):
                    cut.lets[each.name] = each.value
                found.append(each)
        self.zero |= cut.zero - own
        self.partial |= cut.partial - own
        return replace(loop, body=tuple(found))

    # ------------------------------------------------------------------ how many count

    def _counts_of(self, softmax: _Softmax) -> Expr:
        """A buffer with counts, filled before the statement; an element of it."""
        _need(self.most >= _LEAST)
        low, high = [self._with_bound(softmax, sign * _BOUND) for sign in (-1, 1)]
        dtype = softmax.value.dtype
        _need(dtype in _VANISHES and softmax.value.dtype is low.dtype)
        _need(_is_monotone(softmax.value, softmax.scores))
        self.factors = _factors(softmax.value, softmax.scores)
        used = {part.name for part in parts(low) if isinstance(part, Variable)}
        for part in parts(low):
            if isinstance(part, Load):
                _need(part.buffer in self.outer.buffers and part.buffer not in self.outer.written)
        axes = [loop for loop in (*self.loops, self.loop) if loop.variable in used]
        row = softmax.row if softmax.row.variable in used else None
        known = {loop.variable for loop in axes} | ({row.variable} if row else set())
        _need(used <= known | {_COLUMN.name} and _COLUMN.name in used)
        # To look at the mask is worth it where several softmaxes have the same.
        others = [loop for loop in self.loops if loop.variable not in used]
        _need(row is None or any(_extent(loop) > 1 for loop in others))
        counts = Buffer(
            self.names.new("counts"), INDEX, tuple([_extent(loop) for loop in axes]) or (1,)
        )
        fill = _Counting(self.names, dtype, self.most, self.factors).statements(
            counts, axes, row, low, high
        )
        self.outer.before += [Allocate(counts), *fill]
        at = [Variable(INDEX, loop.variable) for loop in axes] or [index(0)]
        return Load(INDEX, counts.name, tuple(at))

    def _with_bound(self, softmax: _Softmax, bound: float) -> Expr:
        """What a softmax is of where the product is a number."""

        def change(expression: Expr) -> Expr:
            if isinstance(expression, Load) and expression.buffer == softmax.scores:
                return number(bound, expression.dtype)
            return replace_children(expression, tuple(map(change, children(expression))))

        return change(softmax.value)

    def _guards(self, early: Sequence[Statement]) -> tuple[Expr, Body]:
        """Whether all operands are finite, and the scores bounded; what has to be computed for it.

        Returns: and statements of the block, for operands that are computed in it.
        """
        lengths: dict[str, Variable] = {}
        inside: list[Statement] = []
        filled = effects_of(early, self.buffers).writes
        for name, view in self.operands.items():
            _need(name not in self.local or name in filled)
            length, statements = self._length(view)
            lengths[name] = length
            (inside if name in self.local else self.before).extend(statements)
            if name not in self.local:
                _need(not _mentions(view.indices[:-2], self.loop.variable))
        found: Expr = number(True, dtypes.bool_)
        for length in lengths.values():
            finite = apply("less", length, number(_FINITE, length.dtype))
            found = apply("bit_and", found, finite)
        if self.softmax is not None:
            call = next(
                each
                for each in self.loop.body
                if isinstance(each, Call) and each.views[2].buffer == self.softmax.scores
            )
            q, k = [lengths[view.buffer] for view in call.views[:2]]
            limit = number(_BOUND**2 * (1 - 64 * _ROUNDED), q.dtype)
            found = apply("bit_and", found, apply("less", apply("mul", q, k), limit))
        return found, tuple(inside)

    def _length(self, view: Load) -> tuple[Variable, Body]:
        """The largest square of the length of a row of the last two dimensions."""
        buffer = self.buffers[view.buffer]
        most = Variable(view.dtype, self.names.new(f"{view.buffer}_most"))
        total = Variable(view.dtype, self.names.new(f"{view.buffer}_square"))
        i, j = [Variable(INDEX, self.names.new(name)) for name in ("i", "j")]
        x = Load(view.dtype, view.buffer, (*view.indices[:-2], i, j))
        zero = number(0, view.dtype)
        columns = For(
            j.name,
            index(buffer.shape[-1]),
            (Assign(total.name, apply("mul", x, x), "add"),),
        )
        row = (Var(total.name, zero), columns, Assign(most.name, total, "maximum"))
        return most, (Var(most.name, zero), For(i.name, index(buffer.shape[-2]), row))

    def _noted(self) -> Body:
        """How many columns count of shares that are in memory as a whole."""
        found: list[Statement] = []
        for name in sorted(self.zero - self.local - self.outer.kept.keys()):
            store = next(
                (each, inner)
                for each in self.loop.body
                if isinstance(each, For)
                for inner in walk(each.body)
                if isinstance(inner, Store) and inner.buffer == name
            )
            rows, (*before, row, _) = _extent(store[0]), store[1].indices
            whole = self.outer.buffers.get(name)
            if whole is None or _mentions(before, store[0].variable):
                continue
            if affine(row) != {self.loop.variable: rows, store[0].variable: 1}:
                continue
            shape = (*whole.shape[:-2], _extent(self.loop))
            counts = Buffer(self.names.new(f"{name}_columns"), INDEX, shape)
            self.outer.before.append(Allocate(counts))
            block = Variable(INDEX, self.loop.variable)
            found.append(Store(counts.name, (*before, block), self.columns))
            self.outer.kept[name] = _Kept(counts.name, rows)
        return tuple(found)


class _Rows:
    """What the loops over columns define, in a loop over rows.

    Attributes:
      maxima: loops and the maxima that they find.
    """

    def __init__(self, loop: For) -> None:
        self.lets: dict[str, Expr] = {}
        self._stored: dict[str, Expr] = {}
        self.maxima: list[tuple[For, Assign]] = []
        for each in loop.body:
            if isinstance(each, Let):
                self.lets[each.name] = each.value
            if not isinstance(each, For):
                continue
            own = {each.variable: _COLUMN}
            for inner in each.body:
                if isinstance(inner, Let):
                    self.lets[inner.name] = substitute(inner.value, own)
                elif isinstance(inner, Store):
                    self._stored[inner.buffer] = substitute(inner.value, own)
                elif isinstance(inner, Assign) and inner.combine == "maximum":
                    self.maxima.append((each, inner))

    def expanded(self, value: Expr, loop: For) -> Expr:
        """An expression of loads of what is outside of the rows; COLUMN is the loop's variable."""
        if isinstance(value, Variable):
            if value.name == loop.variable:
                return _COLUMN
            known = self.lets.get(value.name)
            return value if known is None else self.expanded(known, loop)
        if isinstance(value, Load) and value.buffer in self._stored:
            return self.expanded(self._stored[value.buffer], loop)
        return replace_children(
            value, tuple([self.expanded(each, loop) for each in children(value)])
        )


@dataclass
class _Cut:
    """Loops over the columns of a row.

    Attributes:
      own: buffers of the row.
      zero, partial: what is zero in columns that do not count, and what is not computed there.
      sums: names of sums of shares, which are 1 and more.
    """

    blocks: _Blocks
    rows: _Rows
    own: set[str]
    zero: set[str] = field(default_factory=set)
    partial: set[str] = field(default_factory=set)
    sums: set[str] = field(default_factory=set)
    bounded: set[str] = field(default_factory=set)
    lets: dict[str, Expr] = field(default_factory=dict)

    def columns_of(self, loop: For) -> Body:
        """A loop of the columns that count, and zeros before it in what is read elsewhere."""
        before: list[Statement] = []
        for each in loop.body:
            match each:
                case Let(name=name, value=value):
                    self.lets[name] = value
                case Store(buffer=name, indices=indices, value=value, combine=None):
                    _need(_is_column(indices, loop.variable) and name not in self._cut_buffers)
                    if self._is_zero(value, loop):
                        self.zero.add(name)
                    else:
                        _need(name in self.own | self.blocks.local)
                    if name in self.own | self.blocks.local:
                        self.partial.add(name)
                    else:
                        before += self._zeros(each, loop)
                case Assign(name=name, value=value, combine="maximum"):
                    softmax = self.blocks.softmax
                    _need(softmax is not None and name == softmax.most)
                case Assign(name=name, value=value, combine="add"):
                    _need(self._is_zero(value, loop))
                    (self.sums if self._is_share(value, loop) else self.bounded).add(name)
                case _:
                    raise _UnfitError
            for load in loads((each,)):
                if load.buffer in self._cut_buffers:
                    _need(_is_column(load.indices, loop.variable))
        return (*before, replace(loop, extent=self.blocks.columns))

    @property
    def _cut_buffers(self) -> set[str]:
        return self.partial | self.zero | self.blocks.partial | self.blocks.zero

    def _zeros(self, store: Store, loop: For) -> Body:
        j = Variable(INDEX, self.blocks.names.new(loop.variable))
        zero = number(0, store.value.dtype)
        return (For(j.name, loop.extent, (Store(store.buffer, (*store.indices[:-1], j), zero),)),)

    def _is_share(self, value: Expr, loop: For) -> bool:
        """Whether a value is exp(x - m) of the softmax."""
        softmax = self.blocks.softmax
        if softmax is None:
            return False
        match self.rows.expanded(value, loop):
            case Apply(
                primitive="exp",
                operands=(Apply(primitive="sub", operands=(x, Variable(name=most))),),
            ):
                return most == softmax.most and str(x) == str(softmax.value)
        return False

    def _is_zero(self, value: Expr, loop: For) -> bool:
        """Whether a value is zero in columns that do not count."""
        match value:
            case Constant(value=known):
                return known == 0
            case Variable(name=name):
                return name in self.lets and self._is_zero(self.lets[name], loop)
            case Load(buffer=name):
                return name in self.zero | self.blocks.zero
            case Apply(primitive="mul", operands=(x, y)):
                return (self._is_zero(x, loop) and self._is_bounded(y, loop)) or (
                    self._is_zero(y, loop) and self._is_bounded(x, loop)
                )
            case Apply(primitive="div", operands=(x, y)):
                return self._is_zero(x, loop) and self._divides(y)
            case Apply(primitive="neg" | "cast", operands=(x,)):
                return self._is_zero(x, loop)
            case Apply(primitive="add" | "sub", operands=(x, y)):
                return self._is_zero(x, loop) and self._is_zero(y, loop)
            case Apply(primitive="where", operands=(_, x, y)):
                return self._is_zero(x, loop) and self._is_zero(y, loop)
        return self._is_share(value, loop)

    def _divides(self, value: Expr) -> bool:
        """Whether what is zero stays so, divided by a value."""
        if isinstance(value, Constant):
            return value.value != 0
        if isinstance(value, Variable):
            known = self.lets.get(value.name)
            return value.name in self.sums or (known is not None and self._divides(known))
        return False

    def _is_bounded(self, value: Expr, loop: For) -> bool:
        """Whether a value is finite where all that is multiplied is."""
        match value:
            case Constant(value=known):
                return math.isfinite(known)
            case Variable(name=name):
                known_value = self.lets.get(name)
                return name in self.bounded or (
                    known_value is not None and self._is_bounded(known_value, loop)
                )
            case Load(buffer=name):
                factors = [str(each) for each in self.blocks.factors]
                return name in self.zero | self.blocks.zero | self.blocks.partial or (
                    str(self.rows.expanded(value, loop)) in factors
                )
            case Apply(primitive="where", operands=(_, x, y)):
                return self._is_bounded(x, loop) and self._is_bounded(y, loop)
            case Apply(primitive="add" | "sub", operands=(x, y)):
                return self._is_bounded(x, loop) and self._is_bounded(y, loop)
            case Apply(primitive="neg" | "floor", operands=(x,)):
                return self._is_bounded(x, loop)
            case Apply(primitive="mul", operands=(x, y)):
                one = isinstance(x, Constant) or isinstance(y, Constant)
                return one and self._is_bounded(x, loop) and self._is_bounded(y, loop)
            case Apply(primitive="cast", operands=(x,)):
                return x.dtype.is_integer or x.dtype.is_bool or self._is_bounded(x, loop)
        return False


class _Counting:
    """Loops that count columns."""

    def __init__(self, names: Names, dtype: DType, columns: int, factors: Sequence[Load]) -> None:
        self._names, self._dtype, self._columns = names, dtype, columns
        self._factors = factors

    def statements(
        self, counts: Buffer, axes: Sequence[For], row: For | None, low: Expr, high: Expr
    ) -> Body:
        """After which column all scores vanish, in all rows of a block.

        Args:
          low, high: scores where the product is at its bounds.
        """
        own = {loop.variable: Variable(INDEX, self._names.new(loop.variable)) for loop in axes}
        if row is not None:
            own[row.variable] = Variable(INDEX, self._names.new(row.variable))
        last = Variable(INDEX, self._names.new("last"))
        factors = [apply("abs", substitute(each, own)) for each in self._factors]
        body = self._row(*[substitute(each, own) for each in (low, high)], factors, last)
        if row is not None:
            body = (For(own[row.variable].name, row.extent, body),)
        whole = times(over(plus(last, _LINE - 1), _LINE), _LINE)
        at = tuple([own[loop.variable] for loop in axes]) or (index(0),)
        found: Body = (Var(last.name, index(0)), *body, Store(counts.name, at, whole))
        for loop in reversed(axes):
            found = (For(own[loop.variable].name, loop.extent, found),)
        return found

    def _row(self, low: Expr, high: Expr, factors: Sequence[Expr], last: Variable) -> Body:
        """A row. Its last column that counts is not below another one by as much as vanishes."""
        most, worst = [Variable(self._dtype, self._names.new(name)) for name in ("most", "worst")]
        first, second = [Variable(INDEX, self._names.new("j")) for _ in range(2)]

        def ends(j: Variable) -> tuple[Expr, Expr]:
            x, y = [substitute(each, {_COLUMN.name: j}) for each in (low, high)]
            return apply("minimum", x, y), apply("maximum", x, y)

        least, largest = ends(first)
        here = {_COLUMN.name: first}
        large = [largest, *[substitute(each, here) for each in factors]]
        looked = (
            Assign(most.name, least, "maximum"),
            *[Assign(worst.name, each, "maximum") for each in large],
        )
        _, largest = ends(second)
        size = apply("add", apply("abs", largest), apply("abs", most))
        slack = apply("mul", size, number(_ROUNDED, self._dtype))
        below = apply("sub", most, apply("add", slack, number(_VANISHES[self._dtype], self._dtype)))
        finite = apply("less", worst, number(_FINITE, self._dtype))
        vanishes = apply("bit_and", apply("less", largest, below), finite)
        counted = where(vanishes, index(0), plus(second, 1))
        nothing = number(-math.inf, self._dtype)
        return (
            Var(most.name, nothing),
            Var(worst.name, nothing),
            For(first.name, index(self._columns), looked),
            For(second.name, index(self._columns), (Assign(last.name, counted, "maximum"),)),
        )


def _is_monotone(value: Expr, scores: str) -> bool:
    """Whether a value only grows, or only falls, with the product that it is of."""
    depends = [
        any(isinstance(x, Load) and x.buffer == scores for x in parts(each))
        for each in children(value)
    ]
    if isinstance(value, Load):
        return value.buffer == scores or not any(depends)
    if not any(depends):
        return True
    if not isinstance(value, Apply) or sum(depends) != 1:
        return False
    at = depends.index(True)
    ways: Mapping[str, tuple[int, ...]] = {
        "add": (0, 1),
        "sub": (0, 1),
        "mul": (0, 1),
        "div": (0,),
        "neg": (0,),
        "where": (1, 2),
    }
    return at in ways.get(value.primitive, ()) and _is_monotone(value.operands[at], scores)


def _factors(value: Expr, scores: str) -> list[Load]:
    """What the product, or what depends on it, is multiplied with or divided by."""
    if not isinstance(value, Apply):
        return []
    found: list[Load] = []
    for at, each in enumerate(value.operands):
        if any(isinstance(x, Load) and x.buffer == scores for x in parts(each)):
            others = (*value.operands[:at], *value.operands[at + 1 :])
            if value.primitive in ("mul", "div"):
                found += [x for other in others for x in parts(other) if isinstance(x, Load)]
            found += _factors(each, scores)
    return found


def _is_column(indices: Sequence[Expr], variable: str) -> bool:
    """Whether the last index is a variable, and no other mentions it."""
    last = indices[-1]
    own = isinstance(last, Variable) and last.name == variable
    return own and not _mentions(indices[:-1], variable)


def _mentions(expressions: Sequence[Expr], variable: str) -> bool:
    return any(
        isinstance(part, Variable) and part.name == variable
        for each in expressions
        for part in parts(each)
    )


def _extent(loop: For) -> int:
    """The turns of a loop; 0 if they are not known."""
    return int(loop.extent.value) if isinstance(loop.extent, Constant) else 0

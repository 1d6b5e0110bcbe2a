"""Random ops on Philox streams, bitwise equal to `weft_exec.kernels.philox`.

A program receives the state (counter and key) of each stream that it uses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from weft_compiler.ir.expressions import INDEX, Expr, Load, Variable, apply, cast, index, number
from weft_compiler.ir.indices import clamp_index, flatten_indices, over, plus
from weft_compiler.ir.loops import Unique, load, nest
from weft_compiler.ir.program import (
    Allocate,
    Assign,
    Body,
    Buffer,
    For,
    If,
    Let,
    Statement,
    Store,
    Var,
    While,
)
from weft_compiler.layouts import STATE
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.values import (
    Requirement,
    StatementDefinition,
    Value,
    compute_value,
    move_elements,
    reduce_value,
)
from weft_compiler.routines.philox import Philox
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

_WORDS: Final = 4
"""64-bit words of a Philox block, which are twice as many 32-bit words."""
_LIMIT: Final = 2.0
"""Maximum absolute value of truncated normal numbers."""


class _Stream:
    """The random words for one execution of an op.

    Attributes:
      state: a tensor that contains the state.
    """

    def __init__(self, op: Operation, seed_at: int = 1) -> None:
        self._name = op.name
        if op.stream is not None:
            streams, row = op.stream
            self.state = streams
            self._first: tuple[Expr, ...] = (index(row), index(0))
            return
        seed = op.inputs[seed_at]

        def element(position: Expr) -> Expr:
            key = cast(seed.at(clamp_index(apply("sub", position, index(4)), 2)), dtypes.uint64)
            none = apply("less", position, index(4))
            return apply("where", none, number(0, dtypes.uint64), key)

        self.state = compute_value(f"{op.name}_state", dtypes.uint64, [STATE], element)
        self._first = (index(0),)

    def words(self, dtype: DType, count: int) -> Value:
        """Emit the first 64-bit or 32-bit words; the number is rounded up to whole blocks."""
        blocks = max(1, -(-count // (_WORDS if dtype is dtypes.uint64 else 2 * _WORDS)))

        def write(unique: Unique, words: Buffer, state: Buffer) -> Sequence[Statement]:
            views = Load(dtype, words.name, (index(0),)), self.view(state)
            return (Philox(*views, blocks=blocks),)

        size = blocks * _WORDS * (8 // dtype.size)
        return Value(
            f"{self._name}_words", dtype, (size,), StatementDefinition((self.state,), write)
        )

    def view(self, state: Buffer) -> Load:
        """Return the first element of the stream's state in its buffer."""
        return Load(state.dtype, state.name, self._first)


def _uniform(word: Expr, dtype: DType) -> Expr:
    """Convert a random word to a number in [0, 1)."""
    num_bits = {dtypes.float64: 53, dtypes.float16: 11, dtypes.bfloat16: 8}.get(dtype, 24)
    bits = apply("shift_right", word, number(8 * word.dtype.size - num_bits, word.dtype))
    # More processors have an instruction that converts signed integers to floats.
    signed = cast(bits, dtypes.int64 if dtype is dtypes.float64 else dtypes.int32)
    wide = dtype if dtype is dtypes.float64 else dtypes.float32
    return cast(apply("mul", cast(signed, wide), number(2.0**-num_bits, wide)), dtype)


def _word_type(dtype: DType) -> DType:
    return dtypes.uint64 if dtype is dtypes.float64 else dtypes.uint32


@lowers("RandomUniform", "StatelessRandomUniform", known_operands=(0,))
def _uniforms(op: Operation) -> Value:
    dtype, shape = op.dtype(), op.shape()
    words = _Stream(op).words(_word_type(dtype), math.prod(shape))
    return compute_value(
        op.name,
        dtype,
        shape,
        lambda *indices: _uniform(words.at(flatten_indices(indices, shape)), dtype),
    )


@lowers("RandomUniformInt", known_operands=(0,))
@lowers("StatelessRandomUniformInt", known_operands=(0,))
def _integers(op: Operation) -> Value:
    shape, (low, high) = op.shape(), op.inputs[-2:]
    words = _Stream(op).words(dtypes.uint64, math.prod(shape))

    def element(*index: Expr) -> Expr:
        first = cast(low.at(), dtypes.uint64)
        count = apply("sub", cast(high.at(), dtypes.uint64), first)
        drawn = apply("floor_mod", words.at(flatten_indices(index, shape)), count)
        return cast(apply("add", drawn, first), dtypes.int64)

    result = compute_value(op.name, op.dtype(), shape, element)
    if result.size:

        def in_order() -> Expr:
            return apply("less", low.at(), high.at())

        result.requires = (Requirement((), in_order, "minval must be below maxval"),)
    return result


@lowers("Multinomial", "StatelessMultinomial", known_operands=(1,))
def _classes(op: Operation) -> Value:
    """Sample classes by inversion: search a uniform number among the prefix sums of a row."""
    logits, wide = op.inputs[0], dtypes.float64
    shape, classes = op.shape(), logits.shape[-1]
    require(
        logits.rank == 2 and (classes > 0 or not math.prod(shape)), "the number of classes is 0"
    )
    drawn = _Stream(op, seed_at=2).words(dtypes.uint64, math.prod(shape))
    shares = compute_value(
        f"{op.name}_shares",
        wide,
        shape,
        lambda *indices: _uniform(drawn.at(flatten_indices(indices, shape)), wide),
    )
    rows = compute_value(f"{op.name}_logits", wide, logits.shape, logits.at)
    lowest, maximum = number(-math.inf, wide), f"{op.name}_most"
    largest = reduce_value(maximum, rows, [1], "maximum", lowest, rows.at)

    def odds(i: Expr, j: Expr) -> Expr:
        return apply("exp", apply("sub", rows.at(i, j), largest.at(i)))

    terms = compute_value(f"{op.name}_odds", wide, logits.shape, odds)

    def write(unique: Unique, y: Buffer, source: Buffer, uniforms: Buffer) -> Sequence[Statement]:
        def row(i: Expr) -> Body:
            sums = Buffer(unique("sums"), wide, (classes,))
            total = Variable(wide, unique("total"))

            def add(j: Expr) -> Body:
                grown = apply("add", total, load(source, terms.shape, (i, j)))
                return Assign(total.name, grown), Store(sums.name, (j,), total)

            def sample(k: Expr) -> Body:
                share = apply("mul", load(uniforms, shape, (i, k)), total)
                body, result = _emit_upper_bound(unique, sums, share)
                return (*body, Store(y.name, (i, k), cast(result, y.dtype)))

            start = Var(total.name, number(0, wide))
            running = nest(unique, [classes], add)
            return (Allocate(sums), start, *running, *nest(unique, shape[1:], sample))

        return nest(unique, shape[:1], row) if classes else ()

    return Value(op.name, op.dtype(), shape, StatementDefinition((terms, shares), write))


def _emit_upper_bound(unique: Unique, sums: Buffer, value: Expr) -> tuple[Body, Expr]:
    """Emit a binary search for the number of ascending sums that are at most `value`."""
    size = sums.shape[0]
    share, low = Variable(value.dtype, unique("share")), Variable(INDEX, unique("low"))
    length = Variable(INDEX, unique("length"))
    half, middle = (Variable(INDEX, unique(name)) for name in ("half", "middle"))
    exceeds = apply("greater", Load(sums.dtype, sums.name, (clamp_index(middle, size),)), share)
    body = (
        Let(half.name, over(length, 2)),
        Let(middle.name, apply("add", low, half)),
        If(
            exceeds,
            (Assign(length.name, half),),
            (
                Assign(low.name, apply("add", middle, index(1))),
                Assign(length.name, apply("sub", apply("sub", length, half), index(1))),
            ),
        ),
    )
    names = (Let(share.name, value), Var(low.name, index(0)), Var(length.name, index(size)))
    return (*names, While(apply("greater", length, index(0)), body)), low


@lowers("RandomStandardNormal", "StatelessRandomNormal", known_operands=(0,))
@lowers("TruncatedNormal", "StatelessTruncatedNormal", known_operands=(0,))
def _normals(op: Operation) -> Value:
    dtype, shape = op.dtype(), op.shape()
    wide = dtype if dtype is dtypes.float64 else dtypes.float32
    stream, half = _Stream(op), (math.prod(shape) + 1) // 2
    words = stream.words(_word_type(dtype), 2 * half)
    truncated = "Truncated" in op.node.type
    # Resampled numbers are compared after rounding.
    stored_type = dtype if truncated else wide

    def write(unique: Unique, flat: Buffer, words: Buffer, *state: Buffer) -> Sequence[Statement]:
        sines = Buffer(unique("sines"), wide, (half,))

        def pair(i: Expr) -> Body:
            pair_words = [Load(words.dtype, words.name, (index,)) for index in (i, plus(i, half))]
            body, cosine, sine = _box_muller(unique, pair_words, wide)
            first = Store(flat.name, (i,), cast(cosine, stored_type))
            return (*body, first, Store(sines.name, (i,), sine))

        def second(i: Expr) -> Body:
            value = cast(Load(wide, sines.name, (i,)), stored_type)
            return (Store(flat.name, (plus(i, half),), value),)

        loops = (*nest(unique, [half], pair), *nest(unique, [half], second))
        resampling = (
            _Resampling(unique, flat, math.prod(shape), wide, stream) if truncated else None
        )
        return (Allocate(sines), *loops, *(resampling.statements(state[0]) if resampling else ()))

    if not math.prod(shape):
        return compute_value(op.name, dtype, shape, lambda *_: number(0, dtype))
    operands = (words, stream.state) if truncated else (words,)
    flat = Value(f"{op.name}_flat", stored_type, (2 * half,), StatementDefinition(operands, write))
    if stored_type is not dtype:
        return compute_value(
            op.name, dtype, shape, lambda *indices: flat.at(flatten_indices(indices, shape))
        )
    return move_elements(op.name, flat, shape, lambda *indices: [flatten_indices(indices, shape)])


def _box_muller(unique: Unique, words: Sequence[Expr], wide: DType) -> tuple[Body, Expr, Expr]:
    """Compute two normal numbers from two words, with the kernel's order of operations."""
    names: list[Let] = []

    def let(name: str, value: Expr) -> Expr:
        names.append(Let(unique(name), value))
        return Variable(value.dtype, names[-1].name)

    one = number(1, wide)
    radius, angle = (_uniform(word, wide) for word in words)
    radius = apply("mul", apply("log", apply("sub", one, radius)), number(-2, wide))
    radius = apply("sqrt", radius)
    angle = apply("mul", apply("sub", angle, number(0.5, wide)), number(math.pi, wide))
    tangent = let("tangent", apply("tan", angle))
    square = let("square", apply("mul", tangent, tangent))
    radius = let("radius", apply("div", radius, apply("add", square, one)))
    sine = apply("mul", apply("mul", tangent, number(2, wide)), radius)
    return tuple(names), apply("mul", radius, apply("sub", one, square)), sine


class _Resampling:
    """Writer of the resampling of normal numbers beyond the limit, from later words of the stream.

    Args:
      flat: the numbers; the first `count` are examined.
      wide: the type to compute in.
    """

    def __init__(
        self, unique: Unique, flat: Buffer, count: int, wide: DType, stream: _Stream
    ) -> None:
        self._unique, self._flat, self._count, self._wide = unique, flat, count, wide
        self._stream = stream
        self._places = Buffer(unique("places"), INDEX, (count,))
        self._num_beyond = Variable(INDEX, unique("beyond"))
        self._used = Variable(INDEX, unique("used"))
        self._own_state = Buffer(unique("state"), dtypes.uint64, (STATE,))
        self._block = Buffer(unique("block"), _word_type(wide), (_WORDS * (8 // wide.size),))

    def statements(self, state: Buffer) -> Sequence[Statement]:
        """Return all statements; `state` is the buffer of the stream's state."""
        copies = []
        view = self._stream.view(state)
        for word in range(STATE):
            indices = (*view.indices[:-1], index(word))
            copies.append(
                Store(self._own_state.name, (index(word),), Load(state.dtype, state.name, indices))
            )
        places = nest(self._unique, [self._count], lambda i: self._record_position(i, i))
        halves = (self._count + 1) // 2
        used = halves if self._wide is dtypes.float32 else 2 * halves
        has_more = apply("greater", self._num_beyond, index(0))
        return (
            *map(Allocate, (self._places, self._own_state, self._block)),
            *copies,
            Var(self._num_beyond.name, index(0)),
            *places,
            Var(self._used.name, index(used)),
            While(has_more, self._round()),
        )

    def _record_position(self, i: Expr, position_of_number: Expr) -> Body:
        """Record a position if its number is beyond the limit."""
        value = apply("abs", Load(self._flat.dtype, self._flat.name, (position_of_number,)))
        position = clamp_index(self._num_beyond, self._count)
        return (
            If(
                apply("greater", value, number(_LIMIT, value.dtype)),
                (
                    Store(self._places.name, (position,), position_of_number),
                    Assign(self._num_beyond.name, apply("add", self._num_beyond, index(1))),
                ),
            ),
        )

    def _round(self) -> Body:
        """Resample each recorded number, and record those still beyond the limit."""
        unique = self._unique
        count, half, i = (Variable(INDEX, unique(name)) for name in ("count", "half", "i"))
        first = Variable(INDEX, unique("first"))
        position = Variable(INDEX, unique("place"))
        cosine = apply("less", i, half)
        pair = apply("where", cosine, i, apply("sub", i, half))
        words = []
        body: list[Statement] = [Let(first.name, pair)]
        for number_of in (first, apply("add", first, half)):
            statements, word = self._word(number_of)
            body += statements
            words.append(word)
        lets, x, y = _box_muller(unique, words, self._wide)
        recorded = clamp_index(
            Load(INDEX, self._places.name, (clamp_index(i, self._count),)), self._count
        )
        value = cast(apply("where", cosine, x, y), self._flat.dtype)
        body += [*lets, Let(position.name, recorded), Store(self._flat.name, (position,), value)]
        body += self._record_position(i, position)
        step = half if self._wide is dtypes.float32 else apply("mul", half, index(2))
        return (
            Let(count.name, self._num_beyond),
            Let(half.name, over(apply("add", count, index(1)), 2)),
            Assign(self._num_beyond.name, index(0)),
            For(i.name, count, tuple(body)),
            Assign(self._used.name, apply("add", self._used, step)),
        )

    def _word(self, kind: Expr) -> tuple[Body, Expr]:
        """Return statements that compute an unused block, and one of its words."""
        word = Variable(self._block.dtype, self._unique("word"))
        per = 8 // self._wide.size
        # A round starts at a 64-bit word; 32-bit words are numbered within the round.
        position = apply("add", apply("mul", self._used, index(per)), kind)
        size = self._block.shape[0]
        block = cast(over(position, size), dtypes.uint64)
        begins = Store(self._own_state.name, (index(0),), block)
        views = (
            Load(self._block.dtype, self._block.name, (index(0),)),
            Load(self._own_state.dtype, self._own_state.name, (index(0),)),
        )
        result = Load(
            self._block.dtype, self._block.name, (apply("floor_mod", position, index(size)),)
        )
        return (begins, Philox(*views, blocks=1), Let(word.name, result)), word

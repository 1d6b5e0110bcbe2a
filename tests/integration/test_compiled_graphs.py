"""Random graphs compute the same compiled and by kernels.

A graph is drawn from a seed: some inputs, then one op after the other on values that there are,
with variables that are read and changed between. A graph of fewer ops is the beginning of one of
more, so what fails is made smaller by leaving ops out at the end.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pytest
from weft_testing.compiled_calls import around_calls

import weft as wf
from weft_compiler.codegen.targets import host
from weft_compiler.generator import Compiled
from weft_compiler.native import cache, code_index
from weft_exec.executor.native import loops
from weft_graph.ir.builder import create
from weft_tensor import errors

MOST_DEPTH: Final = 2
"""Conditionals inside of one another."""
SIZES: Final = (0, 1, 1, 2, 3, 4, 5, 8, 17)
NEAR: Final = {"float32": 2e-3, "float64": 1e-8}
"""How far results may be apart, of the largest number of a tensor."""

SMOOTH: Final = [
    "Tanh",
    "Sigmoid",
    "Softplus",
    "Softsign",
    "Erf",
    "Sin",
    "Cos",
    "Atan",
    "Asinh",
    "Square",
    "Neg",
    "Exp",
    "Expm1",
    "Identity",
]
"""Elementwise ops whose results, and gradients, differ by as little as their operands do."""
STEPS: Final = [
    "Sign",
    "Floor",
    "Ceil",
    "Rint",
    "IsNan",
    "IsFinite",
    "Neg",
    "Abs",
    "Relu",
    "Relu6",
    "Elu",
    "Selu",
    "LeakyRelu",
]
"""Elementwise ops that want operands without any rounding."""
EXACT: Final = ("Sign", "Floor", "Ceil", "Rint", "IsNan", "IsFinite", "Neg", "Abs", "Relu", "Relu6")
SMOOTH_PAIRS: Final = ["AddV2", "Sub", "Mul", "SquaredDifference"]
STEP_PAIRS: Final = [
    "Less",
    "Greater",
    "Equal",
    "LessEqual",
    "NotEqual",
    "GreaterEqual",
    "Maximum",
    "Minimum",
]
INTEGER_PAIRS: Final = ["AddV2", "Sub", "Mul", "Maximum", "Minimum", "BitwiseAnd", "BitwiseXor"]


class Value(NamedTuple):
    """A value of a graph.

    Attributes:
      shape: as a step will find it, known or not when the graph is built.
      exact: it has no rounding errors, so both ways give the same bits.
    """

    output: Any
    shape: tuple[int, ...]
    exact: bool

    @property
    def kind(self) -> str:
        dtype = self.output.dtype
        return "f" if dtype.is_floating else "b" if dtype.is_bool else "i"

    @property
    def rank(self) -> int:
        return len(self.shape)


class Drawn:
    """A graph.

    Attributes:
      feeds: arrays for its placeholders.
      values: what there is, the newest last.
      variables: of the graph.
      updates: nodes that change them.
      turns: of each of them what its next change has to wait for.
      branches: how many conditionals there are.
      depth: how many of them are around what is added.
      predicates: two that are fed.
    """

    def __init__(self, seed: int, most: int = 16) -> None:
        wf.set_random_seed(seed)
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.dtype = wf.float64 if self.random.random() < 0.7 else wf.float32
        self.feeds: dict[Any, Any] = {}
        self.values: list[Value] = []
        self.variables: list[Any] = []
        self.updates: list[Any] = []
        self.turns: dict[Any, list[Any]] = {}
        self.depth = self.branches = 0
        self.predicates = [wf.placeholder(wf.bool, []) for _ in range(2)]
        for each in self.predicates:
            self.feeds[each] = self.random.random() < 0.5
        for _ in range(self.random.randint(1, 3)):
            self.add_input()
        for _ in range(min(most, self.random.randint(2, 16))):
            self.random.choice(STEPS_OF_A_GRAPH)(self)

    # ------------------------------------------------------------------------------ drawing

    def shape(self, least: int = 0, most: int = 3) -> tuple[int, ...]:
        rank = self.random.randint(least, most)
        return tuple(self.random.choice(SIZES) for _ in range(rank))

    def array(self, shape: Sequence[int], dtype: Any = None) -> Any:
        """Small numbers of which sums and products are exact for a while, with a few odd ones."""
        found = self.numbers.integers(-8, 9, shape) / 4
        return np.asarray(found).astype((dtype or self.dtype).as_numpy_dtype)

    def add(self, output: Any, shape: Sequence[int], exact: bool) -> None:
        self.values.append(Value(output, tuple(shape), exact))

    def pick(self, kinds: str = "f", least: int = 0, exact: bool = False) -> Value:
        """A value, most often one of the last."""
        found = [
            v for v in self.values if v.kind in kinds and v.rank >= least and (v.exact or not exact)
        ]
        if not found:
            return self.add_input(max(least, 1), kinds[0])
        return self.random.choice(found[-4:] if self.random.random() < 0.7 else found)

    def pick_with_axis(self, kinds: str = "fib", exact: bool = False) -> tuple[Value, int]:
        """A value, and one of its axes."""
        x = self.pick(kinds, least=1, exact=exact)
        return x, self.random.randrange(x.rank)

    def add_input(self, least: int = 0, kind: str = "f") -> Value:
        dtype = {"f": self.dtype, "i": wf.int64, "b": wf.bool}[kind]
        shape = self.shape(least)
        array = self.array(shape, wf.float64)
        array = (array > 0 if kind == "b" else array).astype(dtype.as_numpy_dtype)
        if self.random.random() < 0.3:
            output = wf.constant(array)
        else:
            static = [None if self.random.random() < 0.3 else size for size in shape]
            output = wf.placeholder(dtype, static)
            self.feeds[output] = array
        self.add(output, shape, True)
        return self.values[-1]

    def partner(self, x: Value) -> Value:
        """A value that broadcasts with another: one that there is, or a new one."""
        found = [v for v in self.values if v.kind == x.kind and _broadcast(v.shape, x.shape)]
        if found and self.random.random() < 0.7:
            return self.random.choice(found)
        shape = [size if self.random.random() < 0.7 else 1 for size in x.shape]
        shape = shape[self.random.randint(0, len(shape)) :]
        self.add(wf.constant(self.array(shape, x.output.dtype.base_dtype)), shape, True)
        return self.values[-1]

    def add_turns(self, count: int) -> Any:
        """Return the trip count of a loop, known only at run time."""
        turns = wf.placeholder(wf.int32, [])
        self.feeds[turns] = count
        return turns

    def axes(self, x: Value) -> list[int]:
        return [axis for axis in range(x.rank) if self.random.random() < 0.5]


def _broadcast(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...] | None:
    try:
        return np.broadcast_shapes(tuple(a), tuple(b))
    except ValueError:
        return None


# ------------------------------------------------------------------------------ ops


def unary(g: Drawn) -> None:
    steps = g.random.random() < 0.3
    x = g.pick(exact=steps)
    op = g.random.choice(STEPS if steps else SMOOTH)
    if op in ("Exp", "Expm1", "Square", "Softplus"):
        x = Value(wf.tanh(x.output), x.shape, False)
    attrs = {"alpha": 0.1} if op == "LeakyRelu" else {}
    found = create(op, [x.output], attrs).outputs[0]
    g.add(found, x.shape, x.exact and op in (*EXACT, "Identity"))


def guarded(g: Drawn) -> None:
    """Functions that are defined where their operand is positive."""
    x = g.pick()
    op = g.random.choice(["Log", "Log1p", "Sqrt", "Rsqrt", "Reciprocal"])
    positive = wf.abs(wf.tanh(x.output)) + 0.5
    g.add(create(op, [positive], {}).outputs[0], x.shape, False)


def binary(g: Drawn) -> None:
    steps = g.random.random() < 0.25
    x = g.pick("f" if g.random.random() < 0.85 else "i", exact=steps)
    y = g.partner(x)
    if steps and not y.exact:
        return
    names = STEP_PAIRS if steps else INTEGER_PAIRS if x.kind == "i" else SMOOTH_PAIRS
    op = g.random.choice(names)
    operands = [x.output, y.output]
    if op in ("Mul", "SquaredDifference") and x.kind == "f":
        operands = [wf.tanh(operand) for operand in operands]
    shape = _broadcast(x.shape, y.shape)
    assert shape is not None
    exact = x.exact and y.exact and (x.kind == "i" or steps)
    found = create(op, g.random.sample(operands, 2), {}).outputs[0]
    g.add(found, shape, exact)


def divided(g: Drawn) -> None:
    x = g.pick()
    y = g.partner(x)
    shape = _broadcast(x.shape, y.shape)
    assert shape is not None
    g.add(x.output / (wf.abs(y.output) + 0.5), shape, False)


def chosen(g: Drawn) -> None:
    condition = g.pick("b")
    x, y = (
        wf.constant(g.array([s if g.random.random() < 0.7 else 1 for s in condition.shape]))
        for _ in range(2)
    )
    g.add(wf.where_v2(condition.output, x, y), condition.shape, True)


def cast(g: Drawn) -> None:
    x = g.pick("fib", exact=True)
    to = g.random.choice([g.dtype, wf.int64, wf.int32, wf.bool])
    limited = wf.clip_by_value(x.output, -100, 100) if x.kind == "i" else x.output
    found = wf.cast(limited, to)
    g.add(wf.cast(found, wf.int64) if to is wf.int32 else found, x.shape, True)


def reduced(g: Drawn) -> None:
    op = g.random.choice(["Sum", "Mean", "Max", "Min", "Prod", "All", "Any"])
    logical = op in ("All", "Any")
    x = g.pick("b" if logical else "f", exact=op in ("Max", "Min"))
    axes = g.axes(x)
    if op in ("Mean", "Max", "Min") and 0 in [x.shape[axis] for axis in axes]:
        return
    keep = g.random.random() < 0.5
    operand = wf.tanh(x.output) if op == "Prod" else x.output
    found = create(op, [operand, wf.constant(axes, wf.int32)], {"keep_dims": keep}).outputs[0]
    shape = [1 if a in axes else s for a, s in enumerate(x.shape) if keep or a not in axes]
    g.add(found, shape, x.exact and op not in ("Sum", "Mean", "Prod"))


def product(g: Drawn) -> None:
    x = g.pick(least=2)
    turn_a, turn_b = g.random.random() < 0.3, g.random.random() < 0.3
    *batch, rows, columns = x.shape
    inner = rows if turn_a else columns
    width = g.random.choice(SIZES)
    other = [width, inner] if turn_b else [inner, width]
    lead = batch if g.random.random() < 0.6 else [1] * len(batch)
    y = wf.constant(g.array([*lead, *other]))
    found = wf.matmul(wf.tanh(x.output), y, transpose_a=turn_a, transpose_b=turn_b)
    g.add(found, [*batch, columns if turn_a else rows, width], False)


def transposed(g: Drawn) -> None:
    x = g.pick("fib")
    order = g.random.sample(range(x.rank), x.rank)
    g.add(wf.transpose(x.output, order), [x.shape[axis] for axis in order], x.exact)


def reshaped(g: Drawn) -> None:
    x = g.pick("fib")
    shape = [math.prod(x.shape)] if g.random.random() < 0.5 else [1, *x.shape]
    g.add(wf.reshape(x.output, shape), shape, x.exact)


def reversed_along(g: Drawn) -> None:
    x, axis = g.pick_with_axis()
    g.add(wf.reverse(x.output, [axis]), x.shape, x.exact)


def tiled(g: Drawn) -> None:
    x = g.pick("fib", least=1)
    times = [g.random.choice([0, 1, 2]) for _ in x.shape]
    shape = [size * count for size, count in zip(x.shape, times, strict=True)]
    g.add(wf.tile(x.output, times), shape, x.exact)


def cut(g: Drawn) -> None:
    x, axis = g.pick_with_axis()
    begins, sizes = [0] * x.rank, list(x.shape)
    begins[axis] = g.random.randint(0, x.shape[axis])
    sizes[axis] = g.random.randint(0, x.shape[axis] - begins[axis])
    g.add(wf.slice(x.output, begins, sizes), sizes, x.exact)


def strided(g: Drawn) -> None:
    x, axis = g.pick_with_axis()
    part = slice(None, None, g.random.choice([-2, -1, 1, 2]))
    shape = list(x.shape)
    shape[axis] = len(range(shape[axis])[part])
    g.add(x.output[(slice(None),) * axis + (part,)], shape, x.exact)


def joined(g: Drawn) -> None:
    x, axis = g.pick_with_axis()
    alike = [v for v in g.values if v.shape == x.shape and v.output.dtype == x.output.dtype]
    parts = [*alike[-2:], x]
    shape = list(x.shape)
    shape[axis] *= len(parts)
    g.add(wf.concat([v.output for v in parts], axis), shape, all(v.exact for v in parts))


def padded(g: Drawn) -> None:
    x = g.pick("f")
    margins = [[g.random.randint(0, 2), g.random.randint(0, 2)] for _ in x.shape]
    shape = [size + sum(margin) for size, margin in zip(x.shape, margins, strict=True)]
    found = wf.pad(x.output, wf.constant(margins, wf.int32, [x.rank, 2]))
    g.add(found, shape, x.exact)


def gathered(g: Drawn) -> None:
    x, axis = g.pick_with_axis()
    shape = list(x.shape)
    if shape[axis]:
        picked = [g.random.randrange(shape[axis]) for _ in range(g.random.randint(0, 4))]
        shape[axis] = len(picked)
        found = wf.gather(x.output, wf.constant(picked, wf.int32), axis=axis)
        g.add(found, shape, x.exact)


def scattered(g: Drawn) -> None:
    """Slices that are put at places of a tensor, which may be the same ones."""
    x = g.pick(least=1, exact=True)
    rows = [g.random.randrange(x.shape[0]) for _ in range(g.random.randint(0, 4)) if x.shape[0]]
    op: Any = g.random.choice(
        [wf.tensor_scatter_nd_update, wf.tensor_scatter_nd_add, wf.tensor_scatter_nd_sub]
    )
    given = wf.constant(g.array([len(rows), *x.shape[1:]], x.output.dtype.base_dtype))
    points = wf.constant(rows, wf.int32, [len(rows), 1])
    g.add(op(x.output, points, given), x.shape, False)


def drawn(g: Drawn) -> None:
    """Random numbers, and dropout."""
    x = g.pick()
    seed = g.random.randint(1, 99)
    if g.random.random() < 0.5:
        found = wf.nn.dropout(wf.tanh(x.output), rate=0.25, seed=seed)
    else:
        op: Any = g.random.choice([wf.random_normal, wf.random_uniform, wf.truncated_normal])
        found = wf.tanh(x.output) + op(wf.shape(x.output), dtype=g.dtype, seed=seed)
    g.add(found, x.shape, False)


def rows_of_a_variable(g: Drawn) -> None:
    """A variable, some rows of which are looked up and changed."""
    shape = [g.random.choice((1, 3, 5)), *g.shape(most=1)]
    made = wf.Variable(g.array(shape), use_resource=g.random.random() < 0.5)
    g.variables.append(made)
    rows = [g.random.randrange(shape[0]) for _ in range(g.random.randint(0, 4))]
    indices = wf.constant(rows, wf.int32, [len(rows)])
    looked_up = wf.nn.embedding_lookup(made, indices)
    g.add(looked_up * 1.0, [len(rows), *shape[1:]], True)
    op: Any = g.random.choice([wf.scatter_add, wf.scatter_sub, wf.scatter_update])
    with wf.control_dependencies([g.values[-1].output]):
        g.updates.append(wf.group(op(made, indices, wf.tanh(looked_up))))
    g.turns[made] = [g.updates[-1]]


def softmax(g: Drawn) -> None:
    x = g.pick(least=1)
    if x.shape[-1]:
        op = g.random.choice([wf.nn.softmax, wf.nn.log_softmax])
        g.add(op(wf.tanh(x.output)), x.shape, False)


def scanned(g: Drawn) -> None:
    x, axis = g.pick_with_axis("f")
    flags = {key: g.random.random() < 0.5 for key in ("exclusive", "reverse")}
    op: Any = g.random.choice([wf.cumsum, wf.cumprod])
    g.add(op(wf.tanh(x.output), axis, **flags), x.shape, False)


def placed(g: Drawn) -> None:
    """The index of the largest number, and one-hot vectors."""
    x, axis = g.pick_with_axis("f", exact=True)
    if x.shape[axis]:
        op: Any = g.random.choice([wf.argmax, wf.argmin])
        g.add(op(x.output, axis), [*x.shape[:axis], *x.shape[axis + 1 :]], True)
    if math.prod(x.shape) < 20:
        places = wf.cast(wf.abs(x.output), wf.int32)
        g.add(wf.one_hot(places, 2, dtype=g.dtype), [*x.shape, 2], True)


def segmented(g: Drawn) -> None:
    x = g.pick(least=1, exact=True)
    count = g.random.randint(1, 4)
    ids = [g.random.randint(-1, count - 1) for _ in range(x.shape[0])]
    op: Any = g.random.choice([wf.unsorted_segment_sum, wf.unsorted_segment_max])
    found = op(x.output, wf.constant(ids, wf.int32), count)
    # Segments without rows have the lowest number.
    g.add(wf.maximum(found, -100.0), [count, *x.shape[1:]], False)


def labelled(g: Drawn) -> None:
    x = g.pick(least=1)
    rows, classes = (x.shape[0], math.prod(x.shape[1:]))
    if classes:
        logits = wf.reshape(x.output, [rows, classes])
        labels = wf.constant([g.random.randrange(classes) for _ in range(rows)], wf.int32)
        found = wf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        g.add(found, [rows], False)


def images(g: Drawn) -> None:
    """Pools and batch normalization."""
    shape = [g.random.choice((1, 2)), *(g.random.choice((1, 3, 6)) for _ in range(2))]
    channels = g.random.choice((1, 3, 8))
    x = g.pick()
    bias = wf.reduce_sum(wf.tanh(x.output)) if x.rank else wf.tanh(x.output)
    kind = g.random.randrange(3)
    given = wf.constant(g.array([*shape, channels]))
    given = given if kind == 1 else given + bias  # which maximum is first wants exact operands
    ksize = [1, g.random.choice((1, 2, 3)), g.random.choice((1, 2, 3)), 1]
    strides = [1, g.random.choice((1, 2)), g.random.choice((1, 2)), 1]
    if kind == 2:
        if g.dtype is not wf.float32:
            return
        scale, offset = (wf.constant(g.array([channels])) for _ in range(2))
        if shape[0] * shape[1] * shape[2] < 2:
            return
        found = wf.nn.fused_batch_norm(given, scale, offset)[0]
        g.add(wf.tanh(found), [*shape, channels], False)
        return
    op = wf.nn.avg_pool if kind == 0 else wf.nn.max_pool
    found = op(given, ksize, strides, "SAME")
    counts = [-(-size // stride) for size, stride in zip(shape[1:], strides[1:3], strict=True)]
    g.add(found, [shape[0], *counts, channels], False)


def sized(g: Drawn) -> None:
    """Shapes that follow from shapes."""
    x = g.pick()
    sizes = wf.shape(x.output)
    count = wf.cast(wf.maximum(wf.size(x.output), 1), g.dtype)
    filled = wf.fill(sizes, wf.constant(0.25, g.dtype))
    g.add(wf.reshape(x.output / count, sizes) + filled, x.shape, False)


def gradients(g: Drawn) -> None:
    y = g.pick()
    sources = [v for v in g.values if v.kind == "f" and v is not y]
    if not sources:
        return
    x = g.random.choice(sources)
    found = wf.gradients(wf.tanh(y.output), x.output)[0]
    if found is None:
        return
    found = wf.convert_to_tensor(found)
    g.add(wf.tanh(found), x.shape, False)


def variable(g: Drawn) -> None:
    """A new variable, that is read now and may be changed once in the step."""
    shape = g.shape(most=2)
    made = wf.Variable(g.array(shape), use_resource=g.random.random() < 0.5)
    g.variables.append(made)
    g.add(made.read_value() if g.random.random() < 0.5 else made * 1.0, shape, True)
    if g.random.random() < 0.7:
        new = [v for v in g.values if v.kind == "f" and v.shape == tuple(shape)]
        given = wf.tanh(g.random.choice(new).output)
        with wf.control_dependencies([g.values[-1].output]):
            change = g.random.choice([made.assign, made.assign_add, made.assign_sub])(given)
        g.updates.append(wf.group(change))
        g.turns[made] = [g.updates[-1]]
    g.turns.setdefault(made, [g.values[-1].output])


def changed_again(g: Drawn) -> None:
    """A variable is changed in order, and its new value may be read or changed again."""
    if not g.variables:
        return
    made = g.random.choice(g.variables)
    shape = tuple(made.shape.as_list())
    alike = [v for v in g.values if v.kind == "f" and v.shape == shape]
    given = wf.tanh(g.random.choice(alike).output) if alike else wf.constant(g.array(shape))
    for _ in range(g.random.randint(1, 3)):
        with wf.control_dependencies(g.turns.get(made, [])):
            ways = ["assign", "assign_add", "assign_sub", "read"]
            how = g.random.choice([*ways, "scatter"] if g.depth else [*ways, "train", "rows"])
            if how == "read":
                g.add(wf.sin(made.read_value()), shape, False)
                g.turns[made] = [*g.turns.get(made, []), g.values[-1].output]
                continue
            if how == "train":
                optimizer = wf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True)
                change = optimizer.apply_gradients([(given, made)])
            elif how == "scatter" and shape and shape[0]:
                rows = [g.random.randrange(shape[0]) for _ in range(shape[0])]
                change = wf.scatter_add(made, wf.constant(rows), given)
            elif how == "rows" and shape and shape[0]:
                rows = [g.random.randrange(shape[0]) for _ in range(shape[0])]
                slices = wf.IndexedSlices(given, wf.constant(rows), wf.constant(shape))
                change = wf.train.AdagradOptimizer(0.1).apply_gradients([(slices, made)])
            else:
                op = how if how.startswith("assign") else "assign_add"
                change = getattr(made, op)(given * 0.5)
        g.turns[made] = [wf.group(change)]
        if isinstance(change, wf.Tensor) and g.random.random() < 0.5:
            with wf.control_dependencies(g.turns[made]):
                g.add(wf.cos(change), shape, False)
            g.turns[made] += [g.values[-1].output]
    g.updates += [wf.group(*g.turns[made])]


def looped(g: Drawn) -> None:
    x = g.pick()
    turns = g.random.randint(0, 3)
    reads = [v for v in g.variables if not v.shape.rank and isinstance(v, wf.Variable)]
    read = g.random.choice(reads) if reads and g.random.random() < 0.5 else None
    draws, divides = g.random.random() < 0.4, g.random.random() < 0.4
    decides = g.random.random() < 0.2
    changes = g.random.random() < 0.5
    chooses, nests = g.random.choice((0, 0, 1, 2)), g.random.random() < 0.5
    seed = g.random.randint(1, 99)

    def again(i: Any, _: Any) -> Any:
        if not decides:
            return i < limit
        return wf.logical_and(i < limit, wf.random_uniform([], seed=seed) < 0.8)

    def turn(i: Any, v: Any) -> Any:
        v = wf.tanh(v * 0.5) - wf.sin(v)
        if read is not None:
            v = v + wf.sin(read.read_value())
        if divides:
            v = v * wf.cast((7 * i) // (i + 2) + i % 3, g.dtype)
        if draws:
            v = wf.nn.dropout(v, rate=0.25, seed=seed) + wf.random_normal([], dtype=g.dtype)
        if chooses:
            v = wf.cond(wf.equal(i % chooses, 0), lambda: inner(i, v), lambda: wf.sin(v))
        if read is None or not changes:
            return i + 1, v
        with wf.control_dependencies([v]):
            changed = read.assign_add(wf.tanh(wf.reduce_sum(v)))
        with wf.control_dependencies([changed]):
            return i + 1, wf.identity(v)

    def inner(i: Any, v: Any) -> Any:
        """Build random ops in a branch, or in an inner loop."""
        if not nests:
            return v + wf.random_uniform([], dtype=g.dtype, seed=seed)

        def turn(j: Any, v: Any) -> Any:
            return j + 1, wf.tanh(v) + wf.random_uniform([], dtype=g.dtype, seed=seed + 1)

        return wf.while_loop(lambda j, _: j < i, turn, [wf.constant(0), v], shapes)[1]

    shapes = [wf.TensorShape([]), wf.TensorShape([None] * x.rank)]
    limit = g.add_turns(turns) if g.random.random() < 0.5 else turns
    with wf.control_dependencies([] if read is None else g.turns[read]):
        first, start = wf.identity(wf.constant(0)), wf.identity(x.output)
    found = wf.while_loop(again, turn, [first, start], shapes)
    g.add(found[1], x.shape, False)
    if read is not None:
        g.turns[read] = [*g.turns[read], found[1]]
    if g.random.random() < 0.5:
        g.add(wf.gradients(found[1], start)[0], x.shape, False)


def nested(g: Drawn) -> None:
    """Nested loops whose inner trip counts differ between outer iterations, and their gradients."""
    x = g.pick()
    limit = g.add_turns(g.random.randint(0, 4))
    depth = g.random.choice((2, 2, 3))
    twice, chooses, maps = (g.random.random() < 0.3 for _ in range(3))
    shapes = [wf.TensorShape([]), wf.TensorShape([None] * x.rank)]
    start = wf.identity(x.output)

    def loop(level: int, count: Any, v: Any, around: Any) -> Any:
        def turn(i: Any, u: Any) -> Any:
            if level == depth:
                return i + 1, wf.tanh(u * 0.7) - wf.sin(u) * around
            inner = lambda: loop(level + 1, (i + level) % 3, wf.tanh(u), u)  # noqa: E731
            u = wf.cond(i > 1, inner, lambda: wf.sin(u)) if chooses else inner()
            return i + 1, loop(level + 1, i, u, around) if twice and level == 1 else u

        return wf.while_loop(lambda i, _: i < count, turn, [0, v], shapes)[1]

    if maps and x.rank and x.shape[0]:
        counts = wf.range(x.shape[0]) % 4
        shapes[1] = wf.TensorShape([None] * (x.rank - 1))
        depth = 1
        row = lambda given: loop(1, given[1], given[0], wf.cos(given[0]))  # noqa: E731
        found = wf.map_fn(row, (start, counts), dtype=g.dtype)
    else:
        found = loop(1, limit, start, start)
    g.add(found, x.shape, False)
    if g.random.random() < 0.8:
        g.add(wf.gradients(wf.sin(found), start)[0], x.shape, False)


def grown(g: Drawn) -> None:
    """A loop makes an array longer, in one order or another, perhaps one that has an element."""
    x = g.pick()
    turns, step = g.random.randint(0, 9), g.random.choice((1, 1, 2))
    size, begun = g.random.choice((0, 0, 1, 12)), g.random.random() < 0.4
    back, chooses = g.random.random() < 0.3, g.random.random() < 0.3
    array = wf.TensorArray(
        g.dtype, size, dynamic_size=True, clear_after_read=False, element_shape=x.shape
    )
    start = wf.identity(x.output)
    array = array.write(0, wf.sin(start)) if begun else array
    limit = g.add_turns(turns) if g.random.random() < 0.5 else turns

    def turn(i: Any, v: Any, a: Any) -> Any:
        v = wf.ensure_shape(wf.tanh(v * 0.5) - wf.sin(v), x.shape)
        at = (limit - 1 - i if back else i) * step + 1
        if chooses:
            return i + 1, v, wf.cond(i < 2, lambda: a.write(at, v), lambda: a)
        return i + 1, v, a.write(at, v)

    shapes = [wf.TensorShape([]), wf.TensorShape([None] * x.rank), wf.TensorShape([])]
    _, last, array = wf.while_loop(lambda i, *_: i < limit, turn, [0, start, array], shapes)
    rows = array.stack()
    g.add(wf.reduce_sum(rows, 0) + last, x.shape, False)
    g.add(wf.cast(array.size(), wf.int64), (), True)
    if g.random.random() < 0.5:
        g.add(wf.gradients(rows * rows, start)[0], x.shape, False)


def branched(g: Drawn) -> None:
    """A conditional: other values, changes of variables and conditionals in both of its sides."""
    if g.depth == MOST_DEPTH:
        return
    x = g.pick()
    predicate = decided(g)
    before = {made: list(turns) for made, turns in g.turns.items()}
    # A side begins where the other does, and nothing in it is seen outside.
    outer = g.values, g.updates
    g.depth += 1
    g.branches += 1

    def side() -> Any:
        g.values, g.updates = list(outer[0]), []
        g.turns = dict(before)
        for _ in range(g.random.randint(0, 4)):
            g.random.choice(STEPS_OF_A_BRANCH)(g)
        made = g.values[len(outer[0]) :]
        alike = [v.output for v in made if v.kind == "f" and v.shape == x.shape]
        found = g.random.choice([*alike, x.output])
        if made and not alike:
            found = found + wf.reduce_sum(wf.tanh(wf.cast(made[-1].output, g.dtype)))
        changed = [made for made in before if g.turns[made] is not before[made]]
        changes = [turn for made in changed for turn in g.turns[made]]
        with wf.control_dependencies(changes):
            return wf.identity(found)

    with wf.control_dependencies([turn for turns in before.values() for turn in turns]):
        found = wf.cond(predicate, side, side)
    g.depth -= 1
    g.values, g.updates = outer
    g.turns = {made: [*turns, found] for made, turns in before.items()}
    g.updates.append(wf.group(found))
    g.add(found, x.shape, False)


def decided(g: Drawn) -> Any:
    """Return a predicate that is the same with and without compilation despite rounding."""
    kind = g.random.choice(["fed", "size", "values", "known"])
    if kind == "size":
        return wf.size(g.pick("fib").output) > g.random.choice((0, 2, 8))
    if kind == "values":
        x = g.pick("fib", exact=True)
        return wf.reduce_any(wf.greater(wf.cast(x.output, wf.float64), 0.5))
    if kind == "known":
        return wf.constant(g.random.random() < 0.5) if g.random.random() < 0.1 else g.predicates[0]
    return g.random.choice(g.predicates)


Step = Callable[[Drawn], None]
STEPS_OF_A_GRAPH: Final[Sequence[Step]] = (
    *(unary, unary, guarded, binary, binary, binary, divided, chosen, cast, reduced, reduced),
    *(transposed, reshaped, reversed_along, tiled, cut, strided, joined, padded, gathered),
    *(softmax, scanned, placed, segmented, labelled, product, product, images, images),
    *(sized, gradients, gradients, variable, variable, changed_again, changed_again, looped),
    *(nested, grown, scattered, drawn, drawn, rows_of_a_variable, branched, branched, branched),
)
STEPS_OF_A_BRANCH: Final[Sequence[Step]] = (
    *(unary, unary, guarded, binary, binary, divided, chosen, cast, reduced, transposed, reshaped),
    *(tiled, cut, joined, gathered, softmax, product, images, sized, looped, scattered, drawn),
    *(changed_again, changed_again, branched, branched),
)


# ------------------------------------------------------------------------------ comparing


def results(
    graph: Drawn, said: str, monkeypatch: pytest.MonkeyPatch, threads: int = 0
) -> list[Any]:
    """Return the results of two steps for some values, and the final variables."""
    monkeypatch.setenv("WEFT_JIT", said)
    draw = random.Random(len(graph.values))
    inner = [v.output for v in graph.values if v.output.consumers()]
    ends = [v.output for v in graph.values if not v.output.consumers()]
    fetches = list(dict.fromkeys([*draw.sample(inner, min(len(inner), 2)), *ends]))
    config = wf.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=1)
    with wf.Session(config=config if threads else None) as session:
        session.run(wf.global_variables_initializer())
        found = []
        for _ in range(2):
            found += session.run([*fetches, *graph.updates], graph.feeds)[: len(fetches)]
        return [*found, *session.run(wf.global_variables())]


def difference(value: Any, want: Any) -> str:
    """Describe how two results differ; "" if they do not."""
    value, want = np.asarray(value), np.asarray(want)
    if (value.dtype, value.shape) != (want.dtype, want.shape):
        return f"{value.dtype} {value.shape} and {want.dtype} {want.shape}"
    if value.dtype.kind != "f":
        return "" if np.array_equal(value, want) else f"{value} and {want}"
    finite = np.isfinite(want)
    same = np.array_equal(value[~finite], want[~finite], equal_nan=True)
    if not same or not np.isfinite(value[finite]).all():
        return f"{value} and {want}"
    bound = NEAR[value.dtype.name] * np.abs(want[finite]).max(initial=1.0)
    far = np.abs(value - want)[finite].max(initial=0.0)
    return "" if far <= bound else f"{far} apart: {value} and {want}"


def failure(seed: int, most: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """Describe how the graph of a seed fails; "" if it does not."""
    monkeypatch.setattr(loops, "_ROOM", 4)
    with wf.Graph().as_default():
        graph = Drawn(seed, most)
        by_kernels = results(graph, "off", monkeypatch)
        for said in ("now", "on") if graph.branches else ("now",):  # the latter by kernels first
            try:
                compiled = results(graph, said, monkeypatch)
            except errors.OpError as error:
                return f"{said}: {type(error).__name__}: {error}"
            for value, want in zip(compiled, by_kernels, strict=True):
                if different := difference(value, want):
                    return f"{said}: {different}"
    return ""


def check(seeds: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw graphs, and tell the smallest of each that fails."""
    for seed in seeds:
        if failure(seed, 16, monkeypatch):
            most = next(n for n in range(17) if failure(seed, n, monkeypatch))
            pytest.fail(f"seed {seed}, {most} ops: {failure(seed, most, monkeypatch)}")


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_random_graphs(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check(range(first, first + 10), monkeypatch)


MODES: Final = {
    "checked bounds": {"WEFT_JIT_BOUNDS": "on"},
    "SSE4.2": {"WEFT_JIT_CPU": "x86-64-v2"},
    "AVX2": {"WEFT_JIT_CPU": "x86-64-v3"},
}
"""Settings of the environment: narrower registers than this machine's, and indices looked at."""


def check_in(mode: str, seeds: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw graphs, in one of the modes."""
    if "WEFT_JIT_CPU" in MODES[mode] and not host().x86:
        pytest.skip("this machine is no x86-64")
    for name, value in MODES[mode].items():
        monkeypatch.setenv(name, value)
    check(seeds, monkeypatch)


@pytest.mark.parametrize("mode", MODES)
def test_random_graphs_in_modes(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_in(mode, range(40, 45), monkeypatch)


def check_threads(seeds: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw graphs, share even the shortest of their loops, and compare numbers of threads."""
    monkeypatch.setattr("weft_compiler.generator._WORTH_HELPERS", 0)
    monkeypatch.setattr("weft_compiler.codegen.frames._GRAIN", 1)
    monkeypatch.setattr("weft_compiler.codegen.parallel_split._ENOUGH", 1)
    monkeypatch.setattr("weft_compiler.passes.parallelize.MIN_WORK", 1)
    monkeypatch.setattr("weft_compiler.passes.split_reductions.MIN_WORK", 1)
    monkeypatch.setattr(cache, "directory", lambda: None)  # what is kept knows nothing of these
    monkeypatch.setattr(code_index, "_here", {})
    ran: set[int] = set()

    def note(function: Compiled, call: Callable[[], Any]) -> Any:
        ran.add(function.threads)
        return call()

    around_calls(monkeypatch, note)
    for seed in seeds:
        with wf.Graph().as_default():
            graph = Drawn(seed)
            alone = results(graph, "now", monkeypatch, 1)
            for threads in (2, 4):
                together = results(graph, "now", monkeypatch, threads)
                for value, want in zip(together, alone, strict=True):
                    different = difference(value, want)
                    assert not different, f"seed {seed}, {threads} threads: {different}"
    assert ran == {1, 2, 4}


def test_random_graphs_by_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    check_threads(range(60, 66), monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("first", range(23000, 25000, 100))
def test_many_random_graphs_by_several_threads(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check_threads(range(first, first + 100), monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("first", range(21000, 23000, 100))
@pytest.mark.parametrize("mode", MODES)
def test_many_random_graphs_in_modes(
    mode: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_in(mode, range(first, first + 100), monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 21000, 100))
def test_many_random_graphs(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check(range(first, first + 100), monkeypatch)

"""A table of programs and their fetches: values, and gradients of first and second order.

A row is a function of `tf` and of its inputs, which are placeholders; it returns named tensors. The
same code runs on TensorFlow and on weft.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Feed = dict[str, Any]
Program = Callable[..., Any]


@dataclass(frozen=True)
class Row:
    """One program.

    Attributes:
      name: of its function.
      program: takes the module and the inputs by name; returns a tensor, or several by name, of
        which those that begin with "_" are left out of the gradient.
      feeds: inputs of one run after the other, in one session.
      order: up to which order derivatives are taken.
      unknown: inputs of which the graph does not know the shape.
      loose: the relative tolerance, where rounding takes other ways.
      refused: it is an error.
      hidden: how many derivatives the program takes itself.
    """

    name: str
    program: Program
    feeds: Sequence[Feed]
    order: int
    unknown: frozenset[str]
    loose: float
    refused: bool
    hidden: int


TABLE: dict[str, Row] = {}


def row(
    *more: Feed,
    order: int = 2,
    unknown: Sequence[str] = (),
    loose: float = 0.0,
    refused: bool = False,
    hidden: int = 0,
    **inputs: Any,
) -> Callable[[Program], Program]:
    """Add a program to the table.

    Args:
      *more: inputs of further runs, where they differ from those of the first.
      **inputs: of the first run; Python floats are float64, ints int32.
    """
    first = {name: _array(value) for name, value in inputs.items()}
    feeds = [first, *[first | {k: _array(v) for k, v in each.items()} for each in more]]

    def add(program: Program) -> Program:
        name = program.__name__
        assert name not in TABLE, name
        TABLE[name] = Row(name, program, feeds, order, frozenset(unknown), loose, refused, hidden)
        return program

    return add


def _array(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    array = np.asarray(value)
    if array.dtype.kind in "US":
        return np.asarray(value, object)
    return array.astype(np.int32) if array.dtype.kind == "i" else array


@dataclass
class Built:
    """Build a program in a new graph.

    Attributes:
      inputs: its placeholders.
      sources: what is differentiated with respect to, placeholders and variables.
      values: what it returns.
      derivatives: for each order, what it is of each input and variable: dense, or None.
      kinds: for each order, "none", "dense" or "slices" for each of them.
      losses: what is differentiated: the values weighted, and the derivatives below the last.
      initializer: of its variables.
    """

    graph: Any
    inputs: dict[str, Any]
    sources: dict[str, Any]
    values: dict[str, Any]
    derivatives: list[dict[str, Any]]
    kinds: list[dict[str, str]]
    losses: list[Any]
    initializer: Any


def build(tf: Any, row: Row, order: int) -> Built:
    """A row in a new graph, with derivatives up to an order."""
    with tf.Graph().as_default() as graph:
        inputs = {}
        for name, value in row.feeds[0].items():
            dtype = tf.string if value.dtype == object else tf.as_dtype(value.dtype)
            shape = None if name in row.unknown else value.shape
            inputs[name] = tf.placeholder(dtype, shape, name=name)
        result = row.program(tf, **inputs)
        values = result if isinstance(result, dict) else {"y": result}
        assert not any(isinstance(value, list | tuple) for value in values.values())
        built = Built(graph, inputs, {}, values, [], [], [], None)
        sources = built.sources = {k: x for k, x in inputs.items() if _is_smooth(x.dtype)}
        sources.update({f"variable {v.op.name}": v for v in tf.trainable_variables()})
        targets = [v for k, v in values.items() if not k.startswith("_")]
        for _ in range(order):
            loss = _weighted(tf, targets)
            if loss is None or not sources:
                break
            built.losses.append(loss)
            targets = _derivative(tf, loss, sources, built)
        built.initializer = tf.global_variables_initializer()
    return built


def _derivative(tf: Any, loss: Any, sources: dict[str, Any], built: Built) -> list[Any]:
    grads = tf.gradients(loss, list(sources.values()))
    dense = [None if grad is None else tf.convert_to_tensor(grad) for grad in grads]
    built.derivatives.append(dict(zip(sources, dense, strict=True)))
    built.kinds.append({name: _kind(tf, g) for name, g in zip(sources, grads, strict=True)})
    return [grad for grad in dense if grad is not None]


def _kind(tf: Any, grad: Any) -> str:
    if grad is None:
        return "none"
    return "slices" if isinstance(grad, tf.IndexedSlices) else "dense"


def _is_smooth(dtype: Any) -> bool:
    return bool(dtype.is_floating or dtype.is_complex)


def _weighted(tf: Any, values: Sequence[Any]) -> Any:
    """Return a weighted sum of all elements, in float64; None if none is smooth."""
    total = None
    for position, value in enumerate(values):
        if not isinstance(value, tf.Tensor) or not _is_smooth(value.dtype):
            continue
        parts = [value]
        if value.dtype.is_complex:
            parts = [tf.real(value), tf.imag(value)]
        for number, part in enumerate(parts):
            flat = tf.cast(tf.reshape(part, [-1]), tf.float64)
            count = tf.cast(tf.range(tf.size(part)), tf.float64)
            weights = tf.cos(count + 0.7 * position + 1.3 * number) + 1.5
            term = tf.reduce_sum(flat * weights)
            total = term if total is None else total + term
    return total


def run(tf: Any, row: Row, built: Built, config: Any = None) -> list[dict[str, Any]]:
    """All runs of a row in a new session: for each the values, and the derivatives by order."""
    fetches: dict[str, Any] = {
        "values": {k: v for k, v in built.values.items() if v is not None},
    }
    for order, each in enumerate(built.derivatives, 1):
        fetches[f"order {order}"] = {k: v for k, v in each.items() if v is not None}
    fetches = {key: value for key, value in fetches.items() if value}
    with tf.Session(graph=built.graph, config=config) as session:
        session.run(built.initializer)
        return [session.run(fetches, fed(built, feed)) for feed in row.feeds]


def fed(built: Built, feed: Mapping[str, Any]) -> dict[Any, Any]:
    """The feeds of a run, by placeholder."""
    return {built.inputs[name]: value for name, value in feed.items()}

"""Reverse-mode differentiation and finite differences, independent of `gradients()`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_autodiff.registry import gradient_of
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output
from weft_testing.evaluate import evaluate

Array = np.ndarray[Any, Any]


def vector_jacobian(
    ys: Sequence[Output], seeds: Sequence[Output], xs: Sequence[Output]
) -> list[Output | None]:
    """Return the gradients of `sum(seed * y)` with respect to `xs`, by the registered functions."""
    grads: dict[Output, list[Output]] = {}
    for y, seed in zip(ys, seeds, strict=True):
        grads.setdefault(y, []).append(seed)
    between = _between(xs, ys)
    for node in sorted(between, key=lambda node: -node.index):
        incoming = [_total(grads.get(output)) for output in node.outputs]
        if all(grad is None for grad in incoming):
            continue
        entry = gradient_of(node)
        if not entry.accepts_none:
            incoming = [
                _zeros(output) if grad is None else grad
                for output, grad in zip(node.outputs, incoming, strict=True)
            ]
        options = {}
        if entry.accepts_needed:
            options["needed"] = [s in xs or s.node in between for s in node.inputs]
        result = entry.function(node, *incoming, **options)
        results = result if isinstance(result, list | tuple) else [result]
        assert len(results) == len(node.inputs), (node, results)
        for source, grad in zip(node.inputs, results, strict=True):
            if grad is not None:
                grads.setdefault(source, []).append(_dense(grad, source))
    return [_total(grads.get(x)) for x in xs]


def _between(xs: Sequence[Output], ys: Sequence[Output]) -> set[Node]:
    reached = {x.node for x in xs}
    above: set[Node] = set()
    stack = [y.node for y in ys]
    while stack:
        node = stack.pop()
        if node not in above:
            above.add(node)
            stack.extend(source.node for source in node.inputs)
    found: set[Node] = set()
    for node in sorted(above, key=lambda node: node.index):
        if any(source.node in reached for source in node.inputs):
            reached.add(node)
            found.add(node)
    return found


def _total(grads: list[Output] | None) -> Output | None:
    if not grads:
        return None
    if len(grads) > 1:
        grads[:] = [out("AddN", [list(grads)])]
    return grads[0]


def _zeros(output: Output) -> Output | None:
    numeric = output.dtype.is_floating or output.dtype.is_complex
    return out("ZerosLike", [output]) if numeric else None


def _dense(grad: Any, like: Output) -> Output:
    if isinstance(grad, Output):
        assert grad.dtype is like.dtype.base_dtype, f"gradient {grad!r} of {like!r}"
        return grad
    rows = out("StridedSlice", [out("Shape", [like]), [0], [1], [1]], {"shrink_axis_mask": 1})
    return out("UnsortedSegmentSum", [grad.values, grad.indices, rows])


def random_like(rng: np.random.Generator, array: Array) -> Array:
    """Return standard normal values of the shape and type of `array`."""
    values = rng.standard_normal(array.shape)
    if array.dtype.kind == "c":
        values = values + 1j * rng.standard_normal(array.shape)
    return values.astype(array.dtype)


def directional_error(
    ys: Sequence[Output],
    grads: Sequence[Output | None],
    xs: Sequence[Output],
    point: dict[Output, Any],
    seeds: dict[Output, Array],
    rng: np.random.Generator,
    step: float = 1e-5,
) -> tuple[float, float]:
    """Compare gradients with a central difference of fourth order along a random direction.

    Args:
      ys: the outputs; the scalar function is `Re(sum(conj(seed) * y))`.
      grads: its gradients with respect to `xs`; None counts as zero.
      xs: placeholders of float64 or complex128.
      point: values of all placeholders, `xs` among them.
      seeds: one per output.
      rng: source of the direction.
      step: of the difference.
    Returns: the derivative by differences and by gradients.
    """
    directions = {x: random_like(rng, np.asarray(point[x])) for x in xs}

    def value(at: float) -> float:
        moved = point | {x: point[x] + at * directions[x] for x in xs}
        results = evaluate(list(ys), moved)
        return float(sum(_inner(seeds[y], r) for y, r in zip(ys, results, strict=True)))

    slope = (8 * (value(step) - value(-step)) - (value(2 * step) - value(-2 * step))) / (12 * step)
    known = [(x, grad) for x, grad in zip(xs, grads, strict=True) if grad is not None]
    found = evaluate([grad for _, grad in known], point)
    for (x, _), result in zip(known, found, strict=True):
        assert result.shape == np.shape(point[x]), f"gradient of {x!r} has shape {result.shape}"
    total = sum(_inner(result, directions[x]) for (x, _), result in zip(known, found, strict=True))
    return slope, float(total)


def _inner(a: Any, b: Any) -> float:
    return float(np.real(np.sum(np.conj(a) * b)))

"""Tensor contractions, built from matrix products."""

from __future__ import annotations

__all__ = ["einsum", "tensordot"]

from typing import Any

import numpy as np

from weft_graph.ir.builder import constant_of, convert_to_tensor, create, out
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_graph.ops import checks, control, shape_rules
from weft_graph.ops.elementwise import pair
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_whole_number
from weft_tensor.shape import broadcast_dims, format_dims, num_elements

# ------------------------------------------------------------------------------ tensordot


def tensordot(a: Any, b: Any, axes: Any, name: str | None = None) -> Output:
    """Return the sum of products over pairs of axes.

    Args:
      a: numeric.
      b: same dtype.
      axes: N, to contract the last N axes of `a` with the first N of `b`; or a pair of axes or
        lists of axes, those of `a` and those of `b`; or an integer tensor of such lists.
    Returns: shape: the free axes of `a`, then those of `b`.
    Raises: InvalidArgumentError: the sizes of a pair differ, or an axis is out of range; raised at
      run time if the axes or a rank are not static.

    Examples:
      >>> wf.Session().run(wf.tensordot([[1.0, 2.0]], [[3.0], [4.0]], 1))
      array([[11.]], dtype=float32)
    """
    x, y = pair(a, b)
    late = isinstance(axes, Output) and shape_rules.constant_array(axes) is None
    if late or x.dims is None or y.dims is None:
        return _dynamic_tensordot(x, y, axes, name)
    axes_x, axes_y = _contraction_axes(axes, len(x.dims), len(y.dims))
    for i, j in zip(axes_x, axes_y, strict=True):
        shape_rules.merge_size(x.dims[i], y.dims[j], f"the sizes of axis {i} and axis {j}")
    left_matrix, free_x = _to_matrix(x, axes_x, last=True)
    right, free_y = _to_matrix(y, axes_y, last=False)
    product = out("MatMul", [left_matrix, right])
    dims = [x.dims[i] for i in free_x] + [y.dims[i] for i in free_y]
    parts = [(x, free_x), (y, free_y)]
    return out("Reshape", [product, _shape_vector(dims, parts)], name=name or "Tensordot")


def _dynamic_tensordot(x: Output, y: Output, axes: Any, name: str | None) -> Output:
    """Compute `tensordot` with ranks or axes that are known only at run time."""
    with get_default_graph().name_scope(name or "Tensordot") as scope:
        axes_x, axes_y = _late_axes(axes, out("Rank", [x]), out("Rank", [y]))
        left_matrix, free_x, sizes_x = _dynamic_matrix(x, axes_x, last=True)
        right, free_y, sizes_y = _dynamic_matrix(y, axes_y, last=False)
        assert_equal = checks.assert_equal(sizes_x, sizes_y, message="the sizes of axes must agree")
        product = out("MatMul", [control.with_dependencies([assert_equal], left_matrix), right])
        return out("Reshape", [product, out("ConcatV2", [[free_x, free_y], 0])], name=scope)


def _late_axes(axes: Any, rank_x: Output, rank_y: Output) -> tuple[Output, Output]:
    pair_of = axes if isinstance(axes, list | tuple) else convert_to_tensor(axes)
    if isinstance(pair_of, Output):
        if pair_of.dims == ():
            return out("Range", [rank_x - pair_of, rank_x, 1]), out("Range", [0, pair_of, 1])
        pair_of = [pair_of[0], pair_of[1]]
    if len(pair_of) != 2:
        raise errors.InvalidArgumentError(
            f"axes must be a number or a pair, got {len(pair_of)} entries"
        )
    ends = zip(pair_of, (rank_x, rank_y), strict=True)
    x, y = (_from_the_front(convert_to_tensor(operand), rank) for operand, rank in ends)
    return x, y


def _from_the_front(axes: Output, rank: Output) -> Output:
    positions = out("Reshape", [out("Cast", [axes], {"DstT": dtypes.int32}), [-1]])
    positive = out("SelectV2", [out("Less", [positions, 0]), positions + rank, positions])
    in_range = out(
        "LogicalAnd", [out("GreaterEqual", [positive, 0]), out("Less", [positive, rank])]
    )
    fit = control.Assert(
        out("All", [in_range, [0]]), ["axes out of range:", positions, "rank:", rank]
    )
    result: Output = control.with_dependencies([fit], positive)
    return result


def _dynamic_matrix(value: Output, axes: Output, last: bool) -> tuple[Output, Output, Output]:
    """Return the result of `_to_matrix`, and the sizes of the free and of the contracted axes."""
    shape = out("Shape", [value])
    free = create("ListDiff", [out("Range", [0, out("Rank", [value]), 1]), axes]).outputs[0]
    groups = [free, axes] if last else [axes, free]
    sizes = [out("GatherV2", [shape, group, 0]) for group in groups]
    transposed = out("Transpose", [value, out("ConcatV2", [groups, 0])])
    flat = out("Pack", [[out("Prod", [axis_sizes, [0]]) for axis_sizes in sizes]])
    free_size, summed = sizes if last else reversed(sizes)
    return out("Reshape", [transposed, flat]), free_size, summed


def _contraction_axes(axes: Any, rank_x: int, rank_y: int) -> tuple[list[int], list[int]]:
    if isinstance(axes, Output):
        axes = shape_rules.constant_array(axes)
    array = axes if isinstance(axes, list | tuple) else np.asarray(axes)
    if isinstance(array, np.ndarray) and array.ndim == 0:
        count = check_whole_number(array.item(), "axes")
        if not 0 <= count <= min(rank_x, rank_y):
            raise errors.InvalidArgumentError(
                f"the number of axes must be from 0 to {min(rank_x, rank_y)}, got {count}"
            )
        return list(range(rank_x - count, rank_x)), list(range(count))
    if len(array) != 2:
        raise errors.InvalidArgumentError(
            f"axes must be a number or a pair, got {len(array)} entries"
        )
    first, second = (np.atleast_1d(np.asarray(axes)).tolist() for axes in array)
    if len(first) != len(second):
        raise errors.InvalidArgumentError(
            f"axes must name the same number of axes for both operands, got {first} and {second}"
        )
    return shape_rules.normal_axes(first, rank_x), shape_rules.normal_axes(second, rank_y)


def _to_matrix(value: Output, axes: list[int], last: bool) -> tuple[Output, list[int]]:
    """Return `value` with the contracted axes flattened last or first, and its free axes."""
    dims = value.dims
    assert dims is not None
    free = [i for i in range(len(dims)) if i not in axes]
    order = free + axes if last else axes + free
    if order != list(range(len(dims))):
        value = out("Transpose", [value, np.array(order, np.int32)])
    if len(dims) == 2 and len(axes) == 1:
        return value, free
    groups = (free, axes) if last else (axes, free)
    sizes = [num_elements(tuple(dims[i] for i in group)) for group in groups]
    if None not in sizes:
        shape: Any = constant_of(np.array(sizes, np.int32))
    elif sizes.count(None) == 1 and 0 not in sizes:
        shape = constant_of(np.array([-1 if n is None else n for n in sizes], np.int32))
    else:
        shape = _flat_sizes(value, len(groups[0]))
    return out("Reshape", [value, shape]), free


def _flat_sizes(value: Output, lead: int) -> Output:
    """Return the products of the first `lead` sizes and of the others as tensors."""
    shape = out("Shape", [value])
    rank = len(value.dims or ())
    parts = [
        out("Prod", [out("StridedSlice", [shape, [i], [j], [1]]), [0]])
        for i, j in ((0, lead), (lead, rank))
    ]
    return out("Pack", [parts], {"axis": 0})


def _shape_vector(dims: list[int | None], parts: list[tuple[Output, list[int]]]) -> Output:
    if None not in dims:
        return constant_of(np.array(dims, np.int32))
    if dims.count(None) == 1 and 0 not in dims:
        return constant_of(np.array([-1 if n is None else n for n in dims], np.int32))
    sizes = [
        out("GatherV2", [out("Shape", [value]), np.array(free, np.int32), 0])
        for value, free in parts
    ]
    return out("ConcatV2", [sizes, 0])


# --------------------------------------------------------------------------------- einsum


def einsum(equation: str, *inputs: Any, name: str | None = None) -> Output:
    """Return sums of products in Einstein's convention, such as "ij,jk->ik".

    Axes of only one operand that are not in the result are summed first. Pairs of operands are then
    contracted by batched matrix products.

    Args:
      equation: a letter per axis, "..." for broadcast axes, then "->" and the axes of the result.
        Without "->", the result has the letters that occur once, in alphabetical order.
      inputs: numeric tensors of the same dtype.
    Raises: InvalidArgumentError: the equation is invalid or does not match the ranks or sizes.

    Examples:
      >>> wf.Session().run(wf.einsum("ij,jk->ik", [[1.0, 2.0]], [[3.0], [4.0]]))
      array([[11.]], dtype=float32)
    """
    terms, result = parse_equation(equation, len(inputs))
    values: list[Output] = []
    for item in inputs:
        element_type = values[0].dtype.base_dtype if values else None
        values.append(convert_to_tensor(item, element_type))
    operands = [
        _Term(v, term) for v, term in zip(values, _replace_ellipses(terms, values), strict=True)
    ]
    ellipsis = max((t.labels for t in operands), key=lambda s: sum(c.isdigit() for c in s))
    dots = "".join(c for c in ellipsis if c.isdigit())
    if result is None:
        joined = "".join(t.labels for t in operands)
        letters = sorted(c for c in set(joined) if c.isalpha() and joined.count(c) == 1)
        labels = dots + "".join(letters)
    else:
        labels = result.replace("...", dots)
    _check_result(equation, labels, operands)
    operands = [_diagonal(term) for term in operands]
    current = operands[0]
    for i, operand in enumerate(operands[1:], start=1):
        later = set(labels).union(*(t.labels for t in operands[i + 1 :]))
        current = _contract(current, operand, later)
    current = _sum_out(current, set(labels))
    return out("Identity", [_transpose_term(current, labels)], name=name or "einsum")


class _Term:
    """An operand and a label per axis; digits label the axes of an ellipsis."""

    __slots__ = ("labels", "value")

    def __init__(self, value: Output, labels: str) -> None:
        self.value = value
        self.labels = labels

    def size(self, label: str) -> int | None:
        """Return the static size of the axis of a label, or 1 if there is none."""
        position = self.labels.find(label)
        dims = self.value.dims
        return 1 if position < 0 else None if dims is None else dims[position]


def parse_equation(equation: str, count: int) -> tuple[list[str], str | None]:
    """Parse an equation to the terms of the operands, and that of the result or None.

    Raises: InvalidArgumentError: the number of operands differs, or a label is not a letter.
    """
    text = equation.replace(" ", "")
    operands_text, arrow, right = text.partition("->")
    terms = operands_text.split(",")
    if len(terms) != count:
        raise errors.InvalidArgumentError(
            f"the equation {equation!r} has {len(terms)} operands, got {count} inputs"
        )
    for part in [*terms, right]:
        letters = part.replace("...", "", 1)
        if letters and not (letters.isascii() and letters.isalpha()):
            raise errors.InvalidArgumentError(
                f"the equation {equation!r} has {part!r}: axes are letters, with at most one '...'"
            )
    return terms, right if arrow else None


def _replace_ellipses(terms: list[str], values: list[Output]) -> list[str]:
    """Replace each ellipsis by digits, one per axis, counted from the last axis."""
    spelled = []
    for term, value in zip(terms, values, strict=True):
        if value.dims is None:
            if "..." in term:
                raise errors.InvalidArgumentError("an einsum with '...' requires known ranks")
            value.set_shape((None,) * len(term))
        assert value.dims is not None
        rank = len(value.dims)
        dots = rank - len(term.replace("...", ""))
        if dots < 0 or (dots and "..." not in term) or dots > 9:
            raise errors.InvalidArgumentError(
                f"the operand {term!r} does not fit shape {format_dims(value.dims)}"
            )
        spelled.append(term.replace("...", "".join(str(i) for i in range(dots - 1, -1, -1))))
    return spelled


def _check_result(equation: str, labels: str, operands: list[_Term]) -> None:
    known_labels = set().union(*(term.labels for term in operands))
    if len(set(labels)) != len(labels) or not set(labels) <= known_labels:
        raise errors.InvalidArgumentError(
            f"the result of {equation!r} must name axes of the operands, each once"
        )
    sizes: dict[str, int | None] = {}
    for term in operands:
        for axis, label in enumerate(term.labels):
            dim = None if term.value.dims is None else term.value.dims[axis]
            if label not in sizes:
                sizes[label] = dim
            elif label.isdigit():
                merged = broadcast_dims((sizes[label],), (dim,))
                sizes[label] = merged[0] if merged else None
            else:
                subject = f"the sizes of axis {label!r} of {equation!r}"
                sizes[label] = shape_rules.merge_size(sizes[label], dim, subject)


def _diagonal(term: _Term) -> _Term:
    """Extract diagonals for labels that occur twice in one operand."""
    while len(set(term.labels)) != len(term.labels):
        label = next(c for c in term.labels if term.labels.count(c) > 1)
        first = term.labels.index(label)
        second = term.labels.index(label, first + 1)
        other_axes = [i for i in range(len(term.labels)) if i not in (first, second)]
        order = [*other_axes, first, second]
        value = out("Transpose", [term.value, np.array(order, np.int32)])
        labels = "".join(term.labels[i] for i in other_axes) + label
        term = _Term(out("MatrixDiagPart", [value]), labels)
    return term


def _sum_out(term: _Term, keep: set[str]) -> _Term:
    summed_axes = [i for i, label in enumerate(term.labels) if label not in keep]
    if not summed_axes:
        return term
    total = out("Sum", [term.value, np.array(summed_axes, np.int32)])
    return _Term(total, "".join(label for label in term.labels if label in keep))


def _contract(a: _Term, b: _Term, later: set[str]) -> _Term:
    """Multiply two operands and sum over the labels that are not needed later."""
    a = _sum_out(a, later | set(b.labels))
    b = _sum_out(b, later | set(a.labels))
    common = [label for label in a.labels if label in b.labels]
    if any(label.isdigit() and _can_broadcast(a, b, label) for label in common):
        return _multiply(a, b, later)
    batch = [label for label in common if label in later]
    inner = [label for label in common if label not in later]
    if not inner:
        return _multiply(a, b, later)
    left_labels = [label for label in a.labels if label not in common]
    right = [label for label in b.labels if label not in common]
    x = _group_axes(a, batch, left_labels, inner)
    y = _group_axes(b, batch, inner, right)
    op = "BatchMatMulV2" if batch else "MatMul"
    labels = "".join([*batch, *left_labels, *right])
    sources = [(a, [*batch, *left_labels]), (b, right)]
    shape = _sizes_of(sources)
    product = out(op, [x, y])
    if len(left_labels) == 1 and len(right) == 1:
        return _Term(product, labels)
    return _Term(out("Reshape", [product, shape]), labels)


def _can_broadcast(a: _Term, b: _Term, label: str) -> bool:
    x, y = a.size(label), b.size(label)
    return x is None or y is None or x != y


def _multiply(a: _Term, b: _Term, later: set[str]) -> _Term:
    """Multiply with broadcasting, then sum."""
    labels = "".join(dict.fromkeys(a.labels + b.labels))
    value = out("Mul", [_expand_term(a, labels), _expand_term(b, labels)])
    return _sum_out(_Term(value, labels), later)


def _expand_term(term: _Term, labels: str) -> Output:
    """Transpose `term` to the order of `labels`, with axes of size 1 for missing labels."""
    value = _transpose_term(term, "".join(label for label in labels if label in term.labels))
    missing = [i for i, label in enumerate(labels) if label not in term.labels]
    for axis in missing:
        value = out("ExpandDims", [value, axis])
    return value


def _transpose_term(term: _Term, labels: str) -> Output:
    if term.labels == labels:
        return term.value
    order = [term.labels.index(label) for label in labels]
    return out("Transpose", [term.value, np.array(order, np.int32)])


def _group_axes(term: _Term, batch: list[str], rows: list[str], columns: list[str]) -> Output:
    """Reshape `term` to a batch of matrices: batch axes, rows and columns, each flattened."""
    value = _transpose_term(term, "".join([*batch, *rows, *columns]))
    if len(rows) == 1 and len(columns) == 1:
        return value
    parts = [_sizes_of([(term, batch)])] if batch else []
    for group in (rows, columns):
        sizes = [term.size(label) for label in group]
        static_size = num_elements(tuple(sizes))
        if static_size is not None:
            parts.append(constant_of(np.array([static_size], np.int32)))
        else:
            flat = out("Prod", [_sizes_of([(term, group)]), np.array([0], np.int32)])
            parts.append(out("ExpandDims", [flat, 0]))
    return out("Reshape", [value, out("ConcatV2", [parts, 0])])


def _sizes_of(sources: list[tuple[_Term, list[str]]]) -> Output:
    """Return the sizes of labels of terms, in order, as an int32 vector."""
    sizes = [term.size(label) for term, labels in sources for label in labels]
    if None not in sizes:
        return constant_of(np.array(sizes, np.int32))
    parts = []
    for term, labels in sources:
        positions = np.array([term.labels.index(label) for label in labels], np.int32)
        parts.append(out("GatherV2", [out("Shape", [term.value]), positions, 0]))
    return out("ConcatV2", [parts, 0]) if len(parts) > 1 else parts[0]

"""Cost rules shared by the op families.

A rule is a function from the `Sizes` of a node to its `Cost`. Unless a rule states bytes, all
inputs are read and all outputs written once.
"""

from __future__ import annotations

from math import prod

from weft_graph.ir.costs import Cost, CostRule, Rule, Shape, Sizes


def computes(flops: Rule) -> CostRule:
    """Return a cost rule with `flops` operations; inputs are read and outputs written once."""

    def cost(sizes: Sizes) -> Cost:
        return Cost(float(flops(sizes)), float(sizes.all_bytes))

    return cost


def moves(nbytes: Rule) -> CostRule:
    """Return a cost rule with this many bytes and no operations."""

    def cost(sizes: Sizes) -> Cost:
        return Cost(0.0, float(nbytes(sizes)))

    return cost


def takes(flops: Rule, nbytes: Rule) -> CostRule:
    """Return a cost rule with this many operations and bytes."""

    def cost(sizes: Sizes) -> Cost:
        return Cost(float(flops(sizes)), float(nbytes(sizes)))

    return cost


def dims_at(shapes: tuple[Shape, ...], index: int, rank: int) -> Shape:
    """Return a shape padded with leading ones to at least `rank` axes."""
    dims = shapes[index] if index < len(shapes) else ()
    return (1,) * (rank - len(dims)) + dims


# --------------------------------------------------------------------------- elements


def per_output(factor: int) -> CostRule:
    """Return a cost rule with this many operations per element of the output."""
    return computes(lambda sizes: factor * sizes.elements_out)


def per_input(factor: int) -> CostRule:
    """Return a cost rule with this many operations per element of the input, for reductions."""
    return computes(lambda sizes: factor * sizes.elements_in)


def random_draws(factor: int) -> CostRule:
    """Return a cost rule with this many operations per random number; only outputs are written."""
    return takes(lambda sizes: factor * sizes.elements_out, _output_bytes)


def _output_bytes(sizes: Sizes) -> float:
    return sum(sizes.output_bytes)


written = moves(_output_bytes)
"""Cost rule: outputs are written, inputs are not read."""


@computes
def sum_of_many(sizes: Sizes) -> float:
    """Cost rule: n - 1 additions per element for n inputs."""
    return max(len(sizes.inputs) - 1, 0) * sizes.elements_out


def pool(windows: int | None) -> CostRule:
    """Return a cost rule with one operation for each position of each window.

    Args:
      windows: index of the input with one value per window; None for the output.
    """

    def flops(sizes: Sizes) -> float:
        window_positions = (
            sizes.outputs[0] if windows is None else dims_at(sizes.inputs, windows, 1)
        )
        window: tuple[int, ...] = sizes.attrs.get("ksize", ())
        return prod(window_positions) * prod(window)

    return computes(flops)


@computes
def pool_argmax(sizes: Sizes) -> float:
    """Cost rule: one operation for each maximum that receives a gradient."""
    return prod(dims_at(sizes.inputs, 1, 1))


def local_response(factor: int) -> CostRule:
    """Cost rule of local response normalization over windows of channels."""

    def flops(sizes: Sizes) -> float:
        window = 2 * int(sizes.attrs.get("depth_radius", 5)) + 1
        return factor * sizes.elements_out * (2 * window + 3)

    return computes(flops)


# --------------------------------------------------------------------------- products


def _arithmetic(sizes: Sizes) -> int:
    """Return the real operations per operation of a type: a complex product needs four."""
    return 4 if any(t.is_complex for t in (*sizes.input_types, *sizes.output_types)) else 1


def product(left_flag: str, right_flag: str) -> CostRule:
    """Return the cost rule of a matrix product over the last two axes.

    Args:
      left, right: names of the attributes that say whether a factor is transposed.
    """

    def flops(sizes: Sizes) -> float:
        a, b = dims_at(sizes.inputs, 0, 2), dims_at(sizes.inputs, 1, 2)
        flip_a, flip_b = sizes.attrs.get(left_flag), sizes.attrs.get(right_flag)
        inner = max(a[-2] if flip_a else a[-1], b[-1] if flip_b else b[-2])
        return 2 * sizes.elements_out * inner * _arithmetic(sizes)

    return computes(flops)


@computes
def sparse_product(sizes: Sizes) -> float:
    """Cost rule: a multiply-add for each stored element and column."""
    columns = dims_at(sizes.outputs, 0, 2)[-1]
    return 2 * prod(dims_at(sizes.inputs, 1, 1)) * columns * _arithmetic(sizes)


def convolution(kernel: int | None, positions: int | None, depthwise: bool = False) -> CostRule:
    """Return the cost rule of a convolution: a multiply-add per position, channel and tap.

    Args:
      kernel: index of the filter among the inputs; None if the output has its shape.
      positions: index of the input with one element per window; None for the output.
      depthwise: True if the second last axis of the filter is not summed over.
    """

    def flops(sizes: Sizes) -> float:
        shape = sizes.outputs[0] if kernel is None else dims_at(sizes.inputs, kernel, 2)
        output_positions = (
            sizes.outputs[0] if positions is None else dims_at(sizes.inputs, positions, 1)
        )
        filter_sizes = shape[:-2] if depthwise else shape[:-1]
        return 2 * prod(output_positions) * prod(filter_sizes) * _arithmetic(sizes)

    return computes(flops)


_COLUMNS = 1 << 21
"""Largest number of bytes that a convolution's kernel processes at a time."""


def columns(kernel: int | None) -> Rule:
    """Return the scratch memory of a convolution for its columns (im2col).

    Args:
      kernel: as in `convolution`.
    """

    def nbytes(sizes: Sizes) -> float:
        filters = sizes.outputs[0] if kernel is None else sizes.inputs[kernel]
        images = max((*sizes.input_bytes, *sizes.output_bytes))
        return min(_COLUMNS, prod(filters[:-2]) * images)

    return nbytes


def factorization(cube: float, columns: float = 0.0, square: bool = True) -> CostRule:
    """Return a cost rule with the leading terms of Golub and Van Loan, Matrix Computations.

    Args:
      cube: factor of n * n * n for a square matrix, or of m * n * min(m, n).
      columns: operations per element of the matrix and right-hand side.
      square: True if matrices are square.
    """
    return decomposition(lambda sizes: cube, columns, square)


def decomposition(cube: Rule, columns: float = 0.0, square: bool = True) -> CostRule:
    """Return a cost rule like `factorization` whose factor depends on attributes."""

    def flops(sizes: Sizes) -> float:
        *batch, m, n = dims_at(sizes.inputs, 0, 2)
        right = dims_at(sizes.inputs, 1, 2)[-1] if len(sizes.inputs) > 1 else 1
        rows, minimum = (n, n) if square else (m, min(m, n))
        per_matrix = cube(sizes) * rows * n * minimum + columns * rows * n * right
        return prod(batch) * per_matrix * _arithmetic(sizes)

    return computes(flops)


# --------------------------------------------------------------------------- movement


@moves
def gather_bytes(sizes: Sizes) -> float:
    """Cost rule: the gathered part of the input is read and written, and the indices are read."""
    return 2 * sum(sizes.output_bytes) + sum(sizes.input_bytes[1:])


def _row_flops(sizes: Sizes) -> float:
    return prod(sizes.inputs[1]) * prod(sizes.inputs[0][1:])


def _row_bytes(sizes: Sizes) -> float:
    rows = _row_flops(sizes) * sizes.input_types[0].size
    return rows + sum(sizes.input_bytes[1:]) + sizes.output_bytes[0]


sums_of_rows = takes(_row_flops, _row_bytes)
"""Cost rule: one addition for each element of each indexed row."""

spreads_of_rows = computes(_row_flops)
"""Cost rule like `sums_of_rows`, with all rows written."""


def _updates(sizes: Sizes) -> float:
    return prod(sizes.inputs[2])


def _scatter_bytes(sizes: Sizes) -> float:
    return sizes.input_bytes[1] + 3 * sizes.input_bytes[2]


scatters = moves(_scatter_bytes)
"""Cost rule: indices and updates are read; as much of the variable is read and written."""

scatter_sums = takes(_updates, _scatter_bytes)
"""The same cost rule plus one operation for each element of the updates."""

value_scatters = moves(lambda sizes: 2 * sizes.output_bytes[0] + _scatter_bytes(sizes))
"""Cost rule: the value is copied, and the updates are scattered into the copy."""

value_scatter_sums = takes(
    _updates, lambda sizes: 2 * sizes.output_bytes[0] + _scatter_bytes(sizes)
)
"""The same cost rule plus one operation for each element of the updates."""


def _second(sizes: Sizes) -> float:
    return prod(sizes.inputs[1])


scatters_into_zeros = takes(
    _second,
    lambda sizes: sizes.input_bytes[0] + 3 * sizes.input_bytes[1] + sizes.output_bytes[0],
)
"""Cost rule: indices and updates are read, and the whole output is written."""

assigns = moves(lambda sizes: 2 * sizes.input_bytes[1])
"""Cost rule: the value is read and written."""

sums_into_state = takes(_second, lambda sizes: 3 * sizes.input_bytes[1])
"""Cost rule: the value and the variable are read, and the sum is written."""


def update(factor: int, states: int, gradient: int, indices: int | None) -> CostRule:
    """Return the cost rule of an optimizer update.

    Args:
      factor: operations per element of the gradient.
      states: number of inputs that are variables, which are read and written.
      gradient, indices: indices of these inputs.
    """

    def nbytes(sizes: Sizes) -> float:
        index_bytes = 0 if indices is None else sizes.input_bytes[indices]
        return sizes.input_bytes[gradient] * (1 + 2 * states) + index_bytes

    return takes(lambda sizes: factor * prod(sizes.inputs[gradient]), nbytes)

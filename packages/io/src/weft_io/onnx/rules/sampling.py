"""Sampling of images between pixels: grids, regions, deformable convolution, boxes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product
from typing import Any, Final

from weft_graph.control_flow.loop import while_loop
from weft_graph.control_flow.tensor_array import TensorArray
from weft_graph.ir.builder import constant
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_graph.ops.arithmetic import abs as absolute, clip_by_value, maximum, minimum, multiply
from weft_graph.ops.array import fill, ones_like
from weft_graph.ops.broadcasting import broadcast_to
from weft_graph.ops.checks import assert_equal
from weft_graph.ops.comparison import greater_equal, less, less_equal, logical_and
from weft_graph.ops.division import floormod
from weft_graph.ops.gather import gather, gather_nd
from weft_graph.ops.identity import identity
from weft_graph.ops.join import concat, split, stack, unstack
from weft_graph.ops.masks import where_v2
from weft_graph.ops.matmul import matmul
from weft_graph.ops.permutation import transpose
from weft_graph.ops.reduction import reduce_max, reduce_prod, reduce_sum
from weft_graph.ops.rounding import ceil, floor, rint
from weft_graph.ops.segments import unsorted_segment_sum
from weft_graph.ops.sequence import range as sequence
from weft_graph.ops.shapes import expand_dims, reshape, shape
from weft_io.onnx.operation import Operation, cast, like
from weft_io.onnx.registry import importer
from weft_io.onnx.rules.array import shape64
from weft_io.ops.image_suppression import non_max_suppression
from weft_tensor import dtypes, errors
from weft_tensor.shape import format_dims


@importer("AffineGrid")
def _affine_grid(operation: Operation) -> Output:
    """Return the grid of an affine map for an image size, with x before y before z."""
    theta, size = operation[0], operation[1]
    operation.require_rank(3)
    num_sizes = None if size.dims is None else size.dims[0]
    count = operation.size(1) if num_sizes is None else num_sizes - 2
    if count not in (2, 3):
        raise errors.InvalidArgumentError(
            "AffineGrid requires theta of shape (N, 2, 3) or (N, 3, 4), and 4 or 5 sizes; got "
            f"theta of shape {format_dims(theta.dims)} and sizes of shape {format_dims(size.dims)}"
        )
    lines = []
    for i in range(count):
        n = cast(size[2 + i], theta.dtype)
        steps = cast(sequence(size[2 + i]), theta.dtype)
        if operation.attribute("align_corners", 0):
            lines.append(-1.0 + steps * (2.0 / maximum(n - 1.0, like(1, n))))
        else:
            lines.append((2.0 * steps + 1.0) / n - 1.0)
    shape_vector = concat([size[2:]], 0)
    axes = []
    for i, line in reversed(list(enumerate(lines))):
        axes.append(
            broadcast_to(reshape(line, [-1 if j == i else 1 for j in range(count)]), shape_vector)
        )
    points = stack([*axes, ones_like(axes[0])], axis=-1)
    rows = reshape(points, [1, -1, count + 1])
    repeated = broadcast_to(rows, concat([size[:1], shape64(rows)[1:]], 0))
    result = matmul(repeated, theta, transpose_b=True)
    return reshape(result, concat([size[:1], shape_vector, [constant(count, dtypes.int64)]], 0))


# ------------------------------------------------------------------------- grid sampling


@importer("GridSample")
def _grid_sample(operation: Operation) -> Output:
    x, grid = operation[0], operation[1]
    count = operation.rank() - 2
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(
        operation.attribute("mode", "linear"), operation.attribute("mode", "linear")
    )
    padding = operation.attribute("padding_mode", "zeros")
    if mode not in ("nearest", "linear", "cubic"):
        raise errors.InvalidArgumentError(
            f"mode of GridSample must be nearest, linear or cubic, got {mode!r}"
        )
    if padding not in ("zeros", "border", "reflection"):
        raise errors.InvalidArgumentError(
            f"padding_mode of GridSample must be zeros, border or reflection, got {padding!r}"
        )
    align = bool(operation.attribute("align_corners", 0))
    last = transpose(x, [0, *range(2, count + 2), 1])
    sizes = [shape64(x)[2 + i] for i in range(count)]
    coordinates = []
    for i, point in enumerate(reversed(unstack(grid, axis=-1, num=count))):
        n = cast(sizes[i], grid.dtype)
        coordinate = (point + 1.0) / 2.0 * (n - 1.0) if align else ((point + 1.0) * n - 1.0) / 2.0
        if mode != "cubic" and padding != "zeros":
            coordinate = _map_into_image(coordinate, n, padding, align)
        coordinates.append(coordinate)
    result = _sample(operation, last, coordinates, sizes, mode, padding, align)
    return transpose(result, [0, count + 1, *range(1, count + 1)])


def _map_into_image(coordinate: Output, n: Output, padding: str, align: bool) -> Output:
    """Map a position into the image according to the padding mode."""
    if padding == "border":
        coordinate = clip_by_value(coordinate, like(0, coordinate), n - 1.0)
        return coordinate
    low, high = (like(0, n), n - 1.0) if align else (like(-0.5, n), n - 0.5)
    span = maximum(high - low, like(1e-20, n))
    turned = absolute(coordinate - low)
    extra = floormod(turned, span)
    even = less(floormod(floor(turned / span), like(2, span)), like(1, span))
    result = where_v2(even, extra + low, span - extra + low)
    clipped: Output = clip_by_value(result, like(0, coordinate), n - 1.0)
    return clipped


def _sample(
    operation: Operation,
    last: Output,
    coordinates: Sequence[Output],
    sizes: Sequence[Output],
    mode: str,
    padding: str,
    align: bool,
) -> Output:
    taps = [_grid_taps(coordinate, mode) for coordinate in coordinates]
    total: Output | None = None
    for corner in product(*taps):
        weight: Any = None
        index, is_inside = [], None
        for (position, w), n in zip(corner, sizes, strict=True):
            wide = cast(n, position.dtype)
            weight = w if weight is None else weight * w
            in_axis = logical_and(greater_equal(position, like(0, position)), less(position, wide))
            is_inside = in_axis if is_inside is None else logical_and(is_inside, in_axis)
            if mode == "cubic" and padding != "zeros":
                position = _map_into_image(position, wide, padding, align)
            index.append(
                cast(clip_by_value(rint(position), like(0, position), wide - 1.0), dtypes.int64)
            )
        values = gather_nd(last, stack(index, axis=-1), batch_dims=1)
        if padding == "zeros":
            weight = where_v2(is_inside, weight, like(0, weight))
        values = values * expand_dims(cast(weight, values.dtype), -1)
        total = values if total is None else total + values
    assert total is not None
    return total


def _grid_taps(coordinate: Output, mode: str) -> list[tuple[Output, Output]]:
    """Return the positions that contribute along an axis, and their weights."""
    if mode == "nearest":
        return [(rint(coordinate), ones_like(coordinate))]
    base = floor(coordinate)
    d = coordinate - base
    if mode == "linear":
        return [(base, 1.0 - d), (base + 1.0, d)]
    a = -0.75

    def inner_cubic(x: Output) -> Output:
        return ((a + 2) * x - (a + 3)) * x * x + 1.0

    def outer_cubic(x: Output) -> Output:
        return ((x - 5.0) * x + 8.0) * x * a - 4.0 * a

    return [
        (base - 1.0, outer_cubic(d + 1.0)),
        (base, inner_cubic(d)),
        (base + 1.0, inner_cubic(1.0 - d)),
        (base + 2.0, outer_cubic(2.0 - d)),
    ]


# ------------------------------------------------------------------------------ regions


_MAX_SAMPLES: Final = 1000
"""Maximum number of samples per axis that are averaged for a cell of a region."""


@importer("RoiAlign")
def _roi_align(operation: Operation) -> Output:
    x, rois, batch = operation[0], operation[1], operation[2]
    half = operation.version >= 16 and (
        operation.attribute("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    )
    scale = operation.attribute("spatial_scale", 1.0)
    edges = rois * like(scale, rois) - like(0.5 if half else 0.0, rois)
    rows = []
    for axis, name in ((1, "output_height"), (0, "output_width")):
        start, end = edges[:, axis], edges[:, 2 + axis]
        size = end - start if half else maximum(end - start, like(1, end))
        rows.append(_samples(operation, start, size, operation.attribute(name, 1)))
    (y, y_there), (z, z_there) = rows
    last = transpose(x, [0, 2, 3, 1])
    counts = shape(y), shape(z)
    yy = reshape(y, stack([counts[0][0], counts[0][1] * counts[0][2], 1]))
    zz = reshape(z, stack([counts[1][0], 1, counts[1][1] * counts[1][2]]))
    shape_vector = stack([counts[0][0], counts[0][1] * counts[0][2], counts[1][1] * counts[1][2]])
    values, weights = _bilinear(
        last, batch, broadcast_to(yy, shape_vector), broadcast_to(zz, shape_vector)
    )
    form = concat([counts[0], counts[1][1:], shape(x)[1:2]], 0)
    is_inside = logical_and(
        reshape(y_there, concat([counts[0], [1, 1, 1]], 0)),
        reshape(z_there, concat([counts[1][:1], [1, 1], counts[1][1:], [1]], 0)),
    )
    mode = operation.attribute("mode", "avg")
    if mode == "max":
        best = reduce(maximum, [reshape(v * w, form) for v, w in zip(values, weights, strict=True)])
        result = reduce_max(where_v2(is_inside, best, like(float("-inf"), best)), [2, 4])
    else:
        total = reshape(
            reduce(lambda a, b: a + b, [v * w for v, w in zip(values, weights, strict=True)]), form
        )
        number = reduce_sum(cast(is_inside, total.dtype), [2, 4])
        result = reduce_sum(where_v2(is_inside, total, like(0, total)), [2, 4]) / number
    return transpose(result, [0, 3, 1, 2])


def _samples(
    operation: Operation, start: Output, size: Output, cells: int
) -> tuple[Output, Output]:
    """Return the sampling positions of cells along an axis, (regions, cells, samples)."""
    cell = size / like(cells, size)
    ratio = operation.attribute("sampling_ratio", 0)
    if not 0 <= ratio <= _MAX_SAMPLES:
        raise errors.InvalidArgumentError(
            f"sampling_ratio of RoiAlign must be 0 to {_MAX_SAMPLES}, got {ratio}"
        )
    number = fill(shape(size), constant(float(ratio))) if ratio else ceil(cell)
    number = maximum(cast(number, size.dtype), like(1, size))
    max_count = cast(reduce_max(number), dtypes.int32)
    steps = cast(sequence(max_count), size.dtype)
    first = reshape(start, [-1, 1, 1]) + reshape(cast(sequence(cells), size.dtype), [1, -1, 1]) * (
        reshape(cell, [-1, 1, 1])
    )
    item = reshape(cell / number, [-1, 1, 1])
    coordinates = first + (reshape(steps, [1, 1, -1]) + 0.5) * item
    is_inside = less(reshape(steps, [1, 1, -1]), reshape(number, [-1, 1, 1]))
    return coordinates, broadcast_to(is_inside, shape(coordinates))


def _bilinear(
    last: Output, batch: Output, y: Output, z: Output
) -> tuple[list[Output], list[Output]]:
    """Return the four neighbors of each point of each region, and their weights; 0 far outside."""
    height, width = cast(shape(last)[1], y.dtype), cast(shape(last)[2], y.dtype)
    is_inside = logical_and(
        logical_and(greater_equal(y, like(-1, y)), less_equal(y, height)),
        logical_and(greater_equal(z, like(-1, z)), less_equal(z, width)),
    )
    y = clip_by_value(y, like(0, y), height - 1.0)
    z = clip_by_value(z, like(0, z), width - 1.0)
    images = broadcast_to(reshape(cast(batch, dtypes.int64), [-1, 1, 1]), shape(y))
    y0, z0 = floor(y), floor(z)
    y1, z1 = minimum(y0 + 1.0, height - 1.0), minimum(z0 + 1.0, width - 1.0)
    dy, dz = y - y0, z - z0
    values, weights = [], []
    for a, wa in ((y0, 1.0 - dy), (y1, dy)):
        for b, wb in ((z0, 1.0 - dz), (z1, dz)):
            index = stack([images, cast(a, dtypes.int64), cast(b, dtypes.int64)], axis=-1)
            values.append(gather_nd(last, index))
            weight = where_v2(is_inside, wa * wb, like(0, wa))
            weights.append(expand_dims(cast(weight, last.dtype), -1))
    return values, weights


@importer("MaxRoiPool")
def _max_roi_pool(operation: Operation) -> Output:
    """Return the maximum of each cell of each region, by masks over rows and columns."""
    x, rois = operation[0], operation[1]
    height, width = operation.required("pooled_shape")
    scale = operation.attribute("spatial_scale", 1.0)
    edges = cast(floor(rois[:, 1:] * like(scale, rois) + 0.5), x.dtype)
    images = gather(x, cast(rois[:, 0], dtypes.int64))
    low = like(float("-inf"), x)
    for axis, cells, position in ((2, height, 1), (3, width, 0)):
        n = cast(shape(x)[axis], x.dtype)
        start, end = edges[:, position], edges[:, position + 2]
        cell = maximum(end - start + 1.0, like(1, end)) / like(cells, end)
        steps = cast(sequence(cells), x.dtype)
        first = clip_by_value(
            floor(expand_dims(cell, 1) * steps) + expand_dims(start, 1), like(0, n), n
        )
        stop = clip_by_value(
            ceil(expand_dims(cell, 1) * (steps + 1.0)) + expand_dims(start, 1), like(0, n), n
        )
        line = cast(sequence(shape(x)[axis]), x.dtype)
        mask = logical_and(
            greater_equal(line, expand_dims(first, 2)), less(line, expand_dims(stop, 2))
        )
        form = [-1, 1, cells, shape(x)[2], 1] if axis == 2 else [-1, 1, 1, cells, shape(x)[3]]
        mask = reshape(mask, _sizes(*form))
        values = expand_dims(images, 2) if axis == 2 else expand_dims(images, 3)
        images = reduce_max(where_v2(mask, values, low), 3 if axis == 2 else 4)
    return where_v2(less_equal(images, low), like(0, x), images)


def _sizes(*item: Any) -> Output:
    """Return a shape from known sizes and int32 tensors."""
    return stack([size if isinstance(size, Output) else constant(size) for size in item])


# --------------------------------------------------------------------- windows and blocks


@importer("DeformConv")
def _deform_conv(operation: Operation) -> Output:
    """Import a deformable convolution, whose sampling positions are shifted by an input."""
    x, w, offset = operation[0], operation[1], operation[2]
    bias, mask = operation.vector(3), operation.get(4)
    if operation.rank() != 4:
        raise errors.UnimplementedError(
            f"DeformConv requires input 0 of rank 4, got {operation.rank()}"
        )
    operation.require_rank(4, 1)
    filters_count, taps = operation.size(0, 1), [operation.size(axis, 1) for axis in (2, 3)]
    groups, group = operation.attribute("offset_group", 1), operation.attribute("group", 1)
    strides = operation.attribute("strides") or [1, 1]
    dilations = operation.attribute("dilations") or [1, 1]
    pads = operation.attribute("pads") or [0, 0, 0, 0]
    sizes = shape(offset)
    count = taps[0] * taps[1]
    moved = reshape(
        offset,
        stack([sizes[0], constant(groups), constant(count), constant(2), sizes[2], sizes[3]]),
    )
    coordinates = []
    for axis in range(2):
        base = cast(sequence(sizes[2 + axis]) * strides[axis] - pads[axis], x.dtype)
        base = reshape(base, [-1, 1] if axis == 0 else [1, -1])
        steps = [
            (i // taps[1] if axis == 0 else i % taps[1]) * dilations[axis] for i in range(count)
        ]
        tap = reshape(cast(constant(steps), x.dtype), [1, 1, -1, 1, 1])
        coordinates.append(moved[:, :, :, axis] + base + tap)
    columns = _sample_columns(x, coordinates, groups, count, sizes)
    if mask is not None:
        columns = columns * reshape(
            mask,
            stack([sizes[0], constant(groups), constant(1), constant(count), sizes[2], sizes[3]]),
        )
    rows = reshape(columns, _sizes(sizes[0], group, -1, sizes[2] * sizes[3]))
    filters = reshape(w, [1, group, filters_count // group, -1])
    result = reshape(
        matmul(filters, rows), stack([sizes[0], constant(filters_count), sizes[2], sizes[3]])
    )
    return result if bias is None else result + reshape(bias, [-1, 1, 1])


def _sample_columns(
    x: Output, coordinates: Sequence[Output], groups: int, count: int, sizes: Output
) -> Output:
    """Return the inputs at all taps: (N, groups, C / groups, taps, H', W')."""
    images = split(x, groups, 1)
    result = []
    for index, image in enumerate(images):
        last = transpose(image, [0, 2, 3, 1])
        n, height, width = shape(last)[0], shape(last)[1], shape(last)[2]
        y, z = (
            reshape(coordinate[:, index], stack([n, constant(-1)])) for coordinate in coordinates
        )
        total: Any = None
        for a, wa in _grid_taps(y, "linear"):
            for b, wb in _grid_taps(z, "linear"):
                tall, wide = cast(height, a.dtype), cast(width, b.dtype)
                is_inside = logical_and(
                    logical_and(greater_equal(a, like(0, a)), less(a, tall)),
                    logical_and(greater_equal(b, like(0, b)), less(b, wide)),
                )
                position = stack(
                    [
                        cast(clip_by_value(a, like(0, a), tall - 1.0), dtypes.int64),
                        cast(clip_by_value(b, like(0, b), wide - 1.0), dtypes.int64),
                    ],
                    axis=-1,
                )
                weight = where_v2(is_inside, wa * wb, like(0, wa))
                value = gather_nd(last, position, batch_dims=1) * expand_dims(weight, -1)
                total = value if total is None else total + value
        depth = shape(last)[3]
        form = stack([n, constant(count), sizes[2], sizes[3], depth])
        result.append(transpose(reshape(total, form), [0, 4, 1, 2, 3]))
    return stack(result, axis=1)


@importer("Col2Im")
def _col2im(operation: Operation) -> Output:
    x, image, block = operation[0], operation[1], operation[2]
    operation.require_rank(1, 1)
    options = operation.attribute("strides") or operation.attribute("dilations")
    count = len(options) if options else operation.size(0, 1)
    strides = operation.attribute("strides") or [1] * count
    dilations = operation.attribute("dilations") or [1] * count
    pads = operation.attribute("pads") or [0] * 2 * count
    shape_vector = [image[i] + pads[i] + pads[count + i] for i in range(count)]
    blocks, windows = shape64(x)[1], shape64(x)[2]
    taps = [block[i] for i in range(count)]
    numbers = [
        (shape_vector[i] - dilations[i] * (taps[i] - 1) - 1) // strides[i] + 1 for i in range(count)
    ]
    # Limited by the size of `x`: vectors of these lengths are built.
    numbers = [minimum(number, windows) for number in numbers]
    numbers = _require_equal(
        reduce(multiply, numbers), windows, "windows of Col2Im's image_shape", numbers
    )
    partial = floormod(blocks, maximum(reduce(multiply, taps), like(1, blocks)))
    taps = [minimum(item, blocks) for item in taps]
    taps = _require_equal(
        partial, like(0, partial), "rows of Col2Im's input over its block_shape", taps
    )
    # The place of each tap of each window in the image laid flat; -1 in the margins.
    flat = constant([[0]], dtypes.int64)
    for i in range(count):
        coordinates = sequence(taps[i]) * dilations[i] - pads[i]
        line = expand_dims(coordinates, 1) + sequence(numbers[i]) * strides[i]
        in_axis = logical_and(greater_equal(line, like(0, line)), less(line, image[i]))
        outer, inner = expand_dims(expand_dims(flat, 1), 3), expand_dims(expand_dims(line, 0), 2)
        is_inside = logical_and(
            greater_equal(outer, like(0, outer)), expand_dims(expand_dims(in_axis, 0), 2)
        )
        joined = where_v2(is_inside, outer * image[i] + inner, like(-1, outer))
        sizes = shape64(joined)
        flat = reshape(joined, stack([sizes[0] * sizes[1], sizes[2] * sizes[3]]))
    sizes = shape64(x)
    taps64, depth = reduce_prod(block), sizes[1] // reduce_prod(block)
    rows = reshape(x, stack([sizes[0] * depth, taps64 * sizes[2]]))
    total = unsorted_segment_sum(transpose(rows), reshape(flat, [-1]), reduce_prod(image))
    return reshape(transpose(total), concat([stack([sizes[0], depth]), image], 0))


def _require_equal(
    actual: Output, expected: Output, label: str, values: list[Output]
) -> list[Output]:
    """Return values after a check, now or at run time, that two numbers are equal."""
    check = assert_equal(actual, expected, message=f"The {label} do not fit its input")
    if check.type == "NoOp":  # values without control inputs can be folded
        return values
    with get_default_graph().control_dependencies([check]):
        return [identity(value) for value in values]


@importer("NonMaxSuppression")
def _non_max_suppression(operation: Operation) -> Output:
    """Return the selected boxes of each image and class: rows of (image, class, box)."""
    boxes, scores = operation[0], operation[1]
    options = [operation.get(index) for index in (2, 3, 4)]
    max_count = constant(0) if options[0] is None else cast(reshape(options[0], []), dtypes.int32)
    overlap = constant(0.0) if options[1] is None else reshape(options[1], [])
    lowest = constant(float("-inf")) if options[2] is None else reshape(options[2], [])
    if operation.attribute("center_point_box", 0):
        x, y, width, height = unstack(boxes, axis=-1, num=4)
        boxes = stack([y - height / 2, x - width / 2, y + height / 2, x + width / 2], axis=-1)
    classes = shape(scores)[1]
    num_rows = shape(scores)[0] * classes
    rows = TensorArray(dtypes.int64, num_rows, infer_shape=False, element_shape=[None, 3])

    def body(index: Output, rows: TensorArray) -> list[Any]:
        image, label = index // classes, index % classes
        chosen = non_max_suppression(boxes[image], scores[image, label], max_count, overlap, lowest)
        unit_column = ones_like(cast(chosen, dtypes.int64))
        clipped = stack(
            [
                unit_column * cast(image, dtypes.int64),
                unit_column * cast(label, dtypes.int64),
                cast(chosen, dtypes.int64),
            ],
            axis=1,
        )
        return [index + 1, rows.write(index, clipped)]

    result: Output = while_loop(lambda index, _: less(index, num_rows), body, [constant(0), rows])[
        1
    ].concat()
    return result

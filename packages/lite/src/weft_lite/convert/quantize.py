"""Full int8 quantization, by ranges from a calibration set or from fake-quant ops.

Activations have one scale and a zero point, weights a scale per channel, biases are int32. Ops
without an int8 kernel stay in float, between a Dequantize and a Quantize. Recurrent cells stay in
float, because gates and states need more than 8 bits, but their products multiply int8 numbers
(`dynamic`).

With int16 activations, which have no zero point, weights are the same, and biases and sums are
int64, because a few hundred products exceed 32 bits.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from weft_lite.convert import agreement
from weft_lite.convert.calibration import Range, Scale
from weft_lite.convert.dynamic import CELLS, Int8Products
from weft_lite.convert.lowered import Array, Lowered, Operation, Value, constant
from weft_lite.convert.packing import panels, panels4, unpack_panels
from weft_lite.convert.prune import CALLED, called_subgraphs, read_inside
from weft_lite.convert.scales import (
    JOINING,
    LOOKUPS,
    SHARING,
    find_operands,
    is_table,
    join_scales,
    take_out_fakes,
    widen_ranges,
)
from weft_lite.convert.shrink import shrink_lookup
from weft_lite.convert.writer import Writer
from weft_lite.schema.enums import DataType, Layout, OpKind, Storage
from weft_tensor import errors

_log = logging.getLogger("weft")

PRODUCTS: Final = {OpKind.Conv2D, OpKind.DepthwiseConv2D, OpKind.FullyConnected}
COMPUTED: Final = {
    OpKind.Add, OpKind.Sub, OpKind.Mul, OpKind.Maximum, OpKind.Minimum, OpKind.SquaredDifference,
    OpKind.Abs, OpKind.Neg, OpKind.Square, OpKind.Tanh, OpKind.Sigmoid, OpKind.Relu, OpKind.Relu6,
    OpKind.LeakyRelu, OpKind.Elu, OpKind.Selu, OpKind.Softplus, OpKind.Softsign, OpKind.HardSwish,
    OpKind.Silu, OpKind.Gelu,
    OpKind.Softmax, OpKind.Mean,
}  # fmt: skip
"""Ops whose result has its own scale, independent of those of the inputs."""

MOVING: Final = SHARING | {OpKind.Pad}
"""Ops like those in SHARING that also use a constant number."""

MOVING_INT8: Final = {OpKind.ResizeBilinear}
"""Ops that share the scale of the first operand, but have no int16 kernel."""


MAX_PRODUCTS: Final = 1 << 15
"""Maximum number of products in one int8 result, so that with a bias up to 2^30 the sum fits int32.
"""

MAX_BIAS: Final = {DataType.INT8: 1 << 30, DataType.INT16: 1 << 46}
"""Maximum bias by type of activations; a channel with smaller weights gets a larger scale."""

BIASES: Final = {DataType.INT8: np.int32, DataType.INT16: np.int64}
"""Type of biases by type of activations."""

ACTIVATIONS: Final = ("int8", "int16")


FIXED: Final = {
    OpKind.Softmax: {DataType.INT8: Scale(1 / 256, -128), DataType.INT16: Scale(1 / 32768, 0)}
}
"""Scales of results that do not depend on the inputs."""


class Noise(NamedTuple):
    """The error of a result in another form: its name, and its signal-to-noise ratio in decibels.

    Attributes:
      form: "int8" or "int16"; "float16", "int8" or "dynamic" for weights; "hybrid" for floats that
        are computed from int8 weights in an int8 graph: recurrent cells, which multiply int8
        numbers, with gates and states in float, and rows of tables whose readers are in float.
    """

    name: str
    decibels: float
    form: str


def noise_of_weights(
    exact: Lowered, small: Lowered, samples: Sequence[Sequence[Array]], form: str
) -> list[Noise]:
    """Measure the error of each result of a graph with smaller weights; worst first."""
    names = {out.name for op in exact.ops for out in op.outputs}
    graphs = [
        Lowered(
            item.inputs,
            [
                out
                for op in item.ops
                for out in op.outputs
                if out.dtype is DataType.FLOAT32 and out.name in names
            ],
            item.ops,
            item.bodies,
        )
        for item in (exact, small)
    ]
    contents = [Writer(graph).content([]) for graph in graphs]
    values = graphs[0].outputs
    signal, error = np.zeros(len(values)), np.zeros(len(values))
    for sample in samples:
        quantized, theirs = (agreement.run(content, sample) for content in contents)
        for i, (a, b) in enumerate(zip(quantized, theirs, strict=True)):
            _add_energies(signal, error, i, a, b)
    return _noises([(value.name, form) for value in values], signal, error)


def _add_energies(signal: Array, error: Array, i: int, exact: Array, close: Array) -> None:
    """Add the energies of a result and of its error, over finite elements."""
    finite = np.isfinite(exact)
    wide = exact[finite].astype(np.float64)
    signal[i] += np.square(wide).sum()
    error[i] += np.square(close[finite] - wide).sum()


def _noises(names: Sequence[tuple[str, str]], signal: Array, error: Array) -> list[Noise]:
    """Return the signal-to-noise ratios in decibels, worst first."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(error == 0, np.inf, 10 * np.log10(signal / error))
    result = [
        Noise(name, float(ratio), form) for (name, form), ratio in zip(names, ratios, strict=True)
    ]
    return sorted(result, key=lambda item: item.decibels)


def require_activations(activations: str, quantized: bool) -> None:
    """Check the type of activations, which requires quantization unless it is the default.

    Raises: InvalidArgumentError: the type is unknown, or has no effect.
    """
    if activations not in ACTIVATIONS:
        raise errors.InvalidArgumentError(
            f"activations must be one of {ACTIVATIONS}, not {activations!r}"
        )
    if activations != ACTIVATIONS[0] and not quantized:
        raise errors.InvalidArgumentError(
            f"activations={activations!r} requires calibration: without it, everything stays in "
            "float"
        )


class Quantizer:
    """Conversion of a float graph to int8 or int16.

    Each value exists in float, quantized, or in both forms, one of which is computed from the other
    on demand.

    Args:
      source: the float graph, which is changed.
      ranges: ranges of values, as `calibration.measure` returns them.
      names: names of inputs and results that stay in float.
      trained: True if fake-quant ops must provide all ranges.
      activations: one of `ACTIVATIONS`.
    """

    def __init__(
        self,
        source: Lowered,
        ranges: Mapping[Value, Range],
        names: Collection[str] = (),
        trained: bool = False,
        activations: str = "int8",
    ) -> None:
        self._dtype = DataType[activations.upper()]
        self._declared_bounds = take_out_fakes(source)
        self._source = source
        self._float_names = frozenset(names)
        self._ranges = widen_ranges(source, ranges)
        points = {
            input_ for input_ in source.inputs if input_ in ranges and ranges[input_].is_point
        }
        kept_inputs = {input_ for input_ in source.inputs if input_.name in self._float_names}
        self._constants = _propagate(source, points)
        self._unsaid_constants = _propagate(source, points | kept_inputs)
        self._trained = trained
        self._without: list[str] = []
        self._constant_names: set[str] = set()
        self._clipped: set[str] = set()
        self._stored: dict[Value | None, Value] = {}
        self._quantized: dict[Value, Value] = {}
        self._computed_twins: dict[Value, Value] = {}
        self._floats: set[Value] = set(source.inputs)
        self._ops: list[Operation] = []
        self._bodies = source.bodies
        self._hybrid: list[Value] = []
        self._joined: dict[Value, Scale] = {}
        self._joined = join_scales(source, self._known_scale, self._declared_bounds)
        self._int8_operands = find_operands(
            source, lambda op: op.kind in PRODUCTS | COMPUTED and not self._is_kept(op)
        )

    def result(self) -> Lowered:
        """Convert the graph; its inputs and outputs keep their types.

        Raises: InvalidArgumentError: results to be quantized have no range; the message lists them.
        """
        for op in self._source.ops:
            if op.kind in PRODUCTS and self._can_quantize(op):
                self._product(op)
            elif op.kind in COMPUTED and self._can_quantize(op):
                self._compute(op)
            elif op.kind in JOINING and self._can_quantize(op):
                self._join(op)
            elif self._shares_scale(op) and self._can_quantize(op):
                self._quantize_shared_scale(op)
            elif (
                op.kind is OpKind.Pad
                and self._can_quantize(op)
                and self._pad_number(op) is not None
            ):
                self._pad(op)
            elif not self._is_stored(op):
                self._copy_float_op(op)
        self._require_ranges()
        outputs = [self._float(value) for value in self._source.outputs]
        self._take_cells()
        return Lowered(self._source.inputs, outputs, self._ops, self._bodies)

    def _take_cells(self) -> None:
        """Convert the products of recurrent cells to int8, also in bodies, unless kept in float."""
        if self._dtype is not DataType.INT8:
            return
        float_cells = [op for op in self._ops if self._is_kept(op)]
        floats = {id(body) for op in float_cells for body in _call_function(op, self._source)}
        small = Int8Products(CELLS, self._float_names)
        self._ops = small.ops(self._ops)
        self._bodies = [
            body if id(body) in floats else self._shrink_body(body, small)
            for body in self._source.bodies
        ]
        for op in self._ops:
            inside = (
                out
                for body in _call_function(op, self._source)
                for op in body.ops
                for out in op.outputs
            )
            if small.changed.intersection([*op.outputs, *inside]):
                self._hybrid += [out for out in op.outputs if out.dtype is DataType.FLOAT32]

    def _shrink_body(self, body: Lowered, small: Int8Products) -> Lowered:
        """Return a body whose cells and lookups read int8 weights."""
        ops = [
            item
            for op in small.ops(body.ops)
            for item in ([op] if self._is_kept(op) else shrink_lookup(op, "int8"))
        ]
        return Lowered(body.inputs, body.outputs, ops)

    def _copy_float_op(self, op: Operation) -> None:
        """Add an op in float, on float values."""
        for value in sorted(read_inside(op, self._source), key=lambda item: item.name):
            self._float(value)
        inputs = [
            self._stored.get(value) or (None if value is None else self._float(value))
            for value in op.inputs
        ]
        float_op = Operation(op.kind, inputs, op.outputs, op.options, op.name)
        ops = [float_op] if self._is_kept(op) else shrink_lookup(float_op, "int8")
        self._hybrid += op.outputs if len(ops) > 1 else []
        self._ops += ops
        self._floats.update(op.outputs)

    def _is_kept(self, op: Operation) -> bool:
        """Return True if an op stays in float by name."""
        return any(out.name in self._float_names for out in op.outputs)

    def _is_stored(self, op: Operation) -> bool:
        """Return True if an op's result also exists in quantized form, as an output may."""
        counterpart = (
            self._quantized.get(op.inputs[0])
            if op.kind is OpKind.Quantize and op.inputs[0]
            else None
        )
        out = op.outputs[0]
        if counterpart is None or (counterpart.scales, counterpart.zero_points) != (
            out.scales,
            out.zero_points,
        ):
            return False
        self._stored[out] = counterpart
        return True

    def _shares_scale(self, op: Operation) -> bool:
        """Return True if the results of an op can share the scale of its first operand.

        A lookup in a constant table needs a reader that computes in int8. A lookup in other values
        needs their quantized form to exist already, because quantizing them takes longer than the
        lookup.
        """
        if is_table(op):
            return op.outputs[0] in self._int8_operands
        if op.kind in LOOKUPS:
            return op.inputs[0] in self._quantized
        return op.kind in SHARING or (op.kind in MOVING_INT8 and self._dtype is DataType.INT8)

    def _can_quantize(self, op: Operation) -> bool:
        """Return True if an op can be quantized: its operands and results have known ranges."""
        first, out = op.inputs[0], op.outputs[0]
        if first is None or first.dtype is not DataType.FLOAT32:
            return False
        if self._is_kept(op):
            return False
        operands = [input_ for input_ in op.inputs if input_ and input_.dtype is DataType.FLOAT32]
        if op.kind is OpKind.Pad:
            operands = operands[:1]  # infinite constants are numbers of int8 there
        if not all(
            operand.array is None or np.isfinite(operand.array).all() for operand in operands
        ):
            return False
        if any(
            operand.name in self._float_names and operand in self._source.inputs
            for operand in operands
        ):
            return False
        if op.kind in PRODUCTS and not self._multiplies(first, operands[1:], out):
            return False
        needed = [
            operand
            for operand in operands
            if operand.array is None and operand not in self._quantized
        ]
        if op.kind not in MOVING | MOVING_INT8 and op.kind not in FIXED:
            needed.append(out)
        return self._all_have_ranges(needed, op)

    def _multiplies(self, x: Value, other_operands: Sequence[Value], out: Value) -> bool:
        """Return True if a product has constant weights and its sums cannot overflow."""
        limit = MAX_PRODUCTS if self._dtype is DataType.INT8 else MAX_BIAS[self._dtype]
        constants = [other.array for other in other_operands]
        return x.array is None and all(
            constant is not None and constant.size <= limit * out.shape[-1]
            for constant in constants
        )

    def _all_have_ranges(self, needed: Sequence[Value], op: Operation) -> bool:
        """Return True if all values have usable ranges; record those that do not."""
        unsaid = [item for item in needed if item not in self._declared_bounds]
        if not all(item in self._ranges for item in unsaid):
            if op.kind not in MOVING | MOVING_INT8:
                self._without.append(op.outputs[0].name)
            return False
        points = {item for item in unsaid if self._ranges[item].is_point}
        unranged = points - self._constants
        self._constant_names |= {
            unsaid_constant.name for unsaid_constant in unranged - self._unsaid_constants
        } - self._float_names
        if not unranged:
            self._clipped |= {point.name for point in points}
        return not unranged

    def _require_ranges(self) -> None:
        """Raise an error for missing or constant ranges; warn about clipped values."""
        if self._trained and self._without:
            raise errors.InvalidArgumentError(
                "no fake-quant op sets the range of these results or of their inputs: "
                f"{sorted(self._without)}; pass calibration samples, or name them in keep_float"
            )
        if self._constant_names:
            raise errors.InvalidArgumentError(
                f"calibration: these values are constant: {sorted(self._constant_names)}; pass "
                "samples for which they vary, or name them in keep_float"
            )
        if self._clipped:
            _log.warning(
                "calibration: these values and their inputs are the same in all samples: %s; "
                "other values are clipped to the range from zero to that value; pass more varied "
                "samples, or name them in keep_float",
                sorted(self._clipped),
            )

    def noise(self, samples: Sequence[Sequence[Array]]) -> list[Noise]:
        """Measure the error of each quantized result, worst first; call `result` first."""
        pairs = [*self._computed_twins.items(), *((value, value) for value in self._hybrid)]
        source = self._source
        exact = _write_with_outputs(
            source.inputs, [value for value, _ in pairs], source.ops, source.bodies
        )
        close = _write_with_outputs(
            source.inputs, [counterpart for _, counterpart in pairs], self._ops, self._bodies
        )
        signal, error = np.zeros(len(pairs)), np.zeros(len(pairs))
        for sample in samples:
            floats, numbers = agreement.run(exact, sample), agreement.run(close, sample)
            for i, (_, counterpart) in enumerate(pairs):
                real = numbers[i].astype(np.float64)
                if counterpart.scales:
                    real = (real - counterpart.zero_points[0]) * counterpart.scales[0]
                _add_energies(signal, error, i, floats[i], real)
        names = [
            (value.name, self._dtype.name.lower() if counterpart.scales else "hybrid")
            for value, counterpart in pairs
        ]
        return _noises(names, signal, error)

    def _add(self, inputs: list[Value | None], outputs: list[Value], op: Operation) -> None:
        """Add an op whose results are the quantized forms of `op`'s results."""
        self._computed_twins.update(zip(op.outputs, outputs, strict=True))
        self._ops.append(Operation(op.kind, inputs, outputs, op.options, op.name))

    def _float(self, value: Value) -> Value:
        """Return the float form of a value, computed from the quantized one if necessary."""
        counterpart = self._quantized.get(value)
        if counterpart is not None and value not in self._floats and value.array is None:
            name = f"{value.name}/dequantize"
            self._ops.append(Operation(OpKind.Dequantize, [counterpart], [value], None, name))
            self._floats.add(value)
        return value

    def _quantized_value(self, value: Value) -> Value:
        """Return the quantized form of a value, computed from the float one if necessary."""
        if value not in self._quantized:
            if value.array is not None:
                scale = self._joined.get(value)
                self._quantized[value] = _quantize(value, self._dtype, scale)
            else:
                result = self._new_quantized_value(value, self._scale(value))
                name = f"{value.name}/quantize"
                self._ops.append(Operation(OpKind.Quantize, [value], [result], None, name))
        return self._quantized[value]

    def _known_scale(self, value: Value) -> Scale | None:
        """Return the scale of a value; None if it stays in float."""
        has_range = value in self._ranges and not self._ranges[value].is_point
        if value.name in self._float_names or not (has_range or value in self._declared_bounds):
            return None
        return self._scale(value)

    def _scale(self, value: Value) -> Scale:
        """Return the scale of a value from its Concat, its fake-quant op, or calibration."""
        if value in self._joined:
            return self._joined[value]
        bounds = self._declared_bounds.get(value)
        if bounds is not None and self._dtype is DataType.INT8:
            return bounds
        return (bounds.range() if bounds is not None else self._ranges[value]).scale(self._dtype)

    def _new_quantized_value(self, value: Value, scale: Scale) -> Value:
        """Create the quantized form of a value."""
        name = f"{value.name}/{self._dtype.name.lower()}"
        counterpart = Value(name, self._dtype, value.shape, value.declared)
        counterpart.scales, counterpart.zero_points = [scale.scale], [scale.zero]
        self._quantized[value] = counterpart
        return counterpart

    def _compute(self, op: Operation) -> None:
        """Quantize an op whose result has its own scale."""
        inputs = [
            self._quantized_value(value)
            if value is not None and value.dtype is DataType.FLOAT32
            else value
            for value in op.inputs
        ]
        (out,) = op.outputs
        scale = FIXED[op.kind][self._dtype] if op.kind in FIXED else self._scale(out)
        self._add(inputs, [self._new_quantized_value(out, scale)], op)

    def _quantize_shared_scale(self, op: Operation) -> None:
        """Quantize an op whose results share the scale of its first operand."""
        first = op.inputs[0]
        assert first is not None
        counterpart = self._quantized_value(first)
        scale = Scale(counterpart.scales[0], counterpart.zero_points[0])
        outputs = [self._new_quantized_value(out, scale) for out in op.outputs]
        self._add([counterpart, *op.inputs[1:]], outputs, op)

    def _join(self, op: Operation) -> None:
        """Quantize a Concat, whose operands get the scale of its result.

        If all operands already have the same scale, the result gets it, too.
        """
        (out,) = op.outputs
        operands = [value for value in op.inputs if value is not None]
        counterparts = [self._quantized_value(value) for value in operands if value.array is None]
        scales = {
            Scale(counterpart.scales[0], counterpart.zero_points[0]) for counterpart in counterparts
        }
        constants = any(value.array is not None for value in operands)
        scale = scales.pop() if len(scales) == 1 and not constants else self._scale(out)
        inputs: list[Value | None] = [self._rescaled(value, scale, op) for value in operands]
        self._add(inputs, [self._new_quantized_value(out, scale)], op)

    def _rescaled(self, value: Value, scale: Scale, op: Operation) -> Value:
        """Return the quantized form of a value with another scale."""
        if value.array is not None:
            return _quantize(value, self._dtype, scale)
        counterpart = self._quantized_value(value)
        if (counterpart.scales, counterpart.zero_points) == ([scale.scale], [scale.zero]):
            return counterpart
        result = Value(f"{op.name}/{value.name}", self._dtype, value.shape, value.declared)
        result.scales, result.zero_points = [scale.scale], [scale.zero]
        self._ops.append(Operation(OpKind.Quantize, [counterpart], [result], None, result.name))
        return result

    def _pad_number(self, op: Operation) -> int | None:
        """Return the int8 number that a Pad adds; None if the operand's scale cannot represent it.

        If only MaxPool reads the result, a number below the range of the operand becomes the
        smallest number of the type, which MaxPool never selects.
        """
        x, value = op.inputs[0], op.inputs[2] if len(op.inputs) > 2 else None
        assert x is not None
        if value is not None and value.array is None:
            return None
        real = 0.0 if value is None or value.array is None else float(value.array.reshape(-1)[0])
        limits = np.iinfo(self._dtype.name.lower())
        counterpart = self._quantized.get(x)
        scale = (
            Scale(counterpart.scales[0], counterpart.zero_points[0])
            if counterpart
            else self._scale(x)
        )
        number = np.rint(real / scale.scale) + scale.zero
        if number < limits.min and self._feeds_max_pool(op.outputs[0]):
            return int(limits.min)
        return int(number) if limits.min <= number <= limits.max else None

    def _feeds_max_pool(self, value: Value) -> bool:
        """Return True if only MaxPool reads a value."""
        readers = self._source.consumers().get(value, [])
        ends = value in self._source.results()
        return not ends and all(reader.kind is OpKind.MaxPool for reader in readers)

    def _pad(self, op: Operation) -> None:
        """Quantize a Pad."""
        number, first, (out,) = self._pad_number(op), op.inputs[0], op.outputs
        assert first is not None
        counterpart = self._quantized_value(first)
        value = constant(f"{op.name}/value", np.array(number, self._dtype.name.lower()))
        value.scales, value.zero_points = counterpart.scales, counterpart.zero_points
        scale = Scale(counterpart.scales[0], counterpart.zero_points[0])
        self._add([counterpart, op.inputs[1], value], [self._new_quantized_value(out, scale)], op)

    def _product(self, op: Operation) -> None:
        """Quantize a product: weights per channel, bias at the product of both scales."""
        x, weights, (out,) = op.inputs[0], op.inputs[1], op.outputs
        assert x is not None
        assert weights is not None
        counterpart = self._quantized_value(x)
        matrix = _matrix(weights, out.shape[-1])
        bias = op.inputs[2].array if len(op.inputs) > 2 and op.inputs[2] is not None else None
        offset = np.zeros(out.shape[-1]) if bias is None else bias.astype(np.float64)
        limit = np.abs(matrix).max(axis=(0, 1), initial=0)
        # A large bias must fit, even if the weights of its channel are tiny.
        scales = np.maximum(
            limit / 127, np.abs(offset) / (counterpart.scales[0] * MAX_BIAS[self._dtype])
        )
        scales = np.where(scales > 1e-30, scales, 1.0).astype(np.float32)
        numbers = np.clip(np.rint(matrix / scales), -127, 127).astype(np.int8)
        quantized_offset = np.rint(
            offset / (counterpart.scales[0] * scales.astype(np.float64))
        ).astype(np.int64)
        stored = quantized_offset - counterpart.zero_points[0] * numbers.astype(np.int64).sum(
            (0, 1)
        )
        if op.kind is OpKind.DepthwiseConv2D:
            packed = constant(weights.name, numbers.reshape(weights.shape))
            packed.axis = 2
        elif self._dtype is DataType.INT16:
            packed = constant(weights.name, panels(numbers), Layout.PANELS)
        else:
            packed = constant(weights.name, panels4(numbers), Layout.PANELS4)
        packed.scales = scales.tolist()
        biases = constant(f"{op.name}/bias", stored.astype(BIASES[self._dtype]))
        result = self._new_quantized_value(out, self._scale(out))
        self._add([counterpart, packed, biases], [result], op)


def _propagate(source: Lowered, inputs: Collection[Value]) -> set[Value]:
    """Return some inputs, and the results that depend only on these and on constants."""
    result = set(inputs)
    for op in source.ops:
        operands = [input_ for input_ in op.inputs if input_ is not None and input_.array is None]
        if operands and op.kind not in CALLED and result.issuperset(operands):
            result.update(op.outputs)
    return result


def _write_with_outputs(
    inputs: list[Value], outputs: list[Value], ops: list[Operation], bodies: list[Lowered]
) -> bytes:
    """Return the content of a file that has some values as outputs."""
    return Writer(Lowered(inputs, outputs, ops, bodies)).content([])


def _call_function(op: Operation, lowered: Lowered) -> list[Lowered]:
    """Return the bodies that an op calls, directly or indirectly."""
    result = called_subgraphs(op, lowered)
    return [
        *result,
        *(inner for body in result for op in body.ops for inner in _call_function(op, lowered)),
    ]


def _matrix(weights: Value, columns: int) -> Array:
    """Return weights as (taps, depth, columns), or for depthwise (height, width, columns)."""
    assert weights.array is not None
    if weights.layout is not Layout.PANELS:
        return weights.array
    return unpack_panels(weights.array, columns)


def _quantize(value: Value, dtype: DataType, scale: Scale | None = None) -> Value:
    """Return a quantized constant, by default with the scale of its range."""
    assert value.array is not None
    low, high = float(value.array.min(initial=0)), float(value.array.max(initial=0))
    scale = scale or Range(low, high).scale(dtype)
    info = np.iinfo(dtype.name.lower())
    numbers = np.clip(np.rint(value.array / scale.scale) + scale.zero, info.min, info.max)
    result = constant(f"{value.name}/{dtype.name.lower()}", numbers.astype(info.dtype))
    result.storage, result.scales, result.zero_points = (
        Storage.CONSTANT,
        [scale.scale],
        [scale.zero],
    )
    return result

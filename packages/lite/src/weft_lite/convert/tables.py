"""Chains of int8 ops on one value as lookups in a table of 256 results.

    tanh(x * 0.5) + 1   →   table[x]

The table contains the exact function, quantized once, and is therefore more precise than the chain.
A chain may contain all functions of one element: unary ops, binary ops with a constant scalar, and
changes of scale.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from weft_lite.convert import agreement
from weft_lite.convert.lowered import Array, Lowered, Operation, Value, constant
from weft_lite.convert.writer import Writer
from weft_lite.schema.enums import DataType, OpKind

BINARY: Final = (
    OpKind.Add, OpKind.Sub, OpKind.Mul, OpKind.Div, OpKind.Maximum, OpKind.Minimum, OpKind.Pow,
    OpKind.SquaredDifference,
)  # fmt: skip


def fuse_tables(lowered: Lowered) -> int:
    """Replace chains by Lookup ops; return the number of ops that were removed."""
    readers, results = lowered.consumers(), lowered.results()
    removed = 0
    for graph in lowered.graphs():
        chains: dict[Value, list[Operation]] = {}
        for op in graph.ops:
            x = _operand(op)
            if x is None:
                continue
            chain = chains.pop(x, []) if len(readers[x]) == 1 and x not in results else []
            chains[op.outputs[0]] = [*chain, op]
        for chain in chains.values():
            if len(chain) > 1 or chain[0].kind in (*BINARY, OpKind.Quantize):
                graph.ops[graph.ops.index(chain[-1])] = _lookup(chain)
                for op in chain[:-1]:
                    graph.ops.remove(op)
                removed += len(chain) - 1
    return removed


def _operand(op: Operation) -> Value | None:
    """Return the operand of an int8 op that is a function of one element; otherwise None."""
    if len(op.outputs) != 1 or op.outputs[0].dtype is not DataType.INT8:
        return None
    if OpKind.Abs <= op.kind <= OpKind.Silu or op.kind is OpKind.Quantize:
        (x,) = op.inputs
        return x if x is not None and _is_quantized(x) else None
    if op.kind not in BINARY or any(value is None for value in op.inputs):
        return None
    operands = [value for value in op.inputs if value is not None]
    values = [value for value in operands if value.array is None]
    if len(values) != 1 or not all(map(_is_quantized, operands)):
        return None
    numbers = [value.array for value in operands if value.array is not None]
    is_scalar = all(number.size == 1 for number in numbers)
    return values[0] if is_scalar and values[0].shape == op.outputs[0].shape else None


def _is_quantized(value: Value) -> bool:
    return value.dtype is DataType.INT8 and len(value.scales) == 1


def _lookup(chain: list[Operation]) -> Operation:
    """Return a Lookup that computes a chain."""
    x, last = _operand(chain[0]), chain[-1]
    assert x is not None
    out = last.outputs[0]
    zero, step = out.zero_points[0] if out.zero_points else 0, np.float32(out.scales[0])
    real = _results(chain, x, _dequantize(np.arange(-128, 128, dtype=np.int8), x))
    numbers = np.rint(real / step) + zero
    numbers = np.where(np.isnan(numbers), -128, np.clip(numbers, -128, 127))
    table = constant(f"{last.name}/table", numbers.astype(np.int8))
    return Operation(OpKind.Lookup, [x, table], [out], None, last.name)


def _dequantize(numbers: Array, value: Value) -> Array:
    """Return the real numbers that int8 numbers of a value represent."""
    zero = value.zero_points[0] if value.zero_points else 0
    return (numbers.astype(np.float32) - np.float32(zero)) * np.float32(value.scales[0])


def _results(chain: list[Operation], x: Value, numbers: Array) -> Array:
    """Compute a chain in float32 with the runtime."""
    shape = numbers.shape
    floats = {x: Value("x", DataType.FLOAT32, shape, shape)}
    ops = []
    for op in chain:
        inputs: list[Value | None] = []
        for value in op.inputs:
            assert value is not None
            if value.array is not None:
                number = _dequantize(value.array.reshape(()), value)
                inputs.append(constant(value.name, number))
            else:
                inputs.append(floats[value])
        result = Value(op.name, DataType.FLOAT32, shape, shape)
        floats[op.outputs[0]] = result
        kind = OpKind.Copy if op.kind is OpKind.Quantize else op.kind
        ops.append(Operation(kind, inputs, [result], op.options, op.name))
    graph = Lowered([floats[x]], [ops[-1].outputs[0]], ops)
    return agreement.run(Writer(graph).content([]), [numbers])[0]

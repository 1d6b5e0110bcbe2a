"""Nodes of any op with random attributes and inputs, made of the op's declaration alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_graph.ir.op_signature import REQUIRED, ArgDef, AttrDef, OpDef
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

Array = np.ndarray[Any, Any]

TYPES = (
    *("float32", "float64", "float16", "bfloat16", "complex64", "complex128", "bool", "string"),
    *("int8", "int32", "int64", "uint8", "uint16", "uint64"),
)
TEXTS = (b"", b"a", b"1", b"-2.5", b"a b", b"\xff", b"\xc3\xa9", b"0", b"(", b"a,b", b"{}")
SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e30, -1e-30)
INTEGERS = (-7, -2, -1, 0, 0, 1, 1, 2, 2, 3, 4, 7, 20)


class Arguments:
    """Attributes and inputs of a node.

    Attributes:
      attrs: those whose value is not left to the default, or to the inputs.
      inputs: an array for each argument, or a list of them.
    """

    def __init__(self, op_def: OpDef, rng: random.Random) -> None:
        self._rng = rng
        self._shape = self._any_shape()
        self.attrs: dict[str, Any] = {}
        for name, attr in op_def.attrs.items():
            if attr.default is REQUIRED or rng.random() < 0.3:
                self.attrs[name] = self._attr(attr)
            else:
                self.attrs[name] = attr.default
        self.inputs = [self._argument(arg) for arg in op_def.inputs]

    # ------------------------------------------------------------------- attributes

    def _attr(self, attr: AttrDef) -> Any:
        kind = attr.type
        if kind.startswith("list("):
            count = self._rng.randint(attr.minimum or 0, (attr.minimum or 0) + 3)
            return [self._value(kind[5:-1], attr) for _ in range(count)]
        return self._value(kind, attr)

    def _value(self, kind: str, attr: AttrDef) -> Any:
        rng = self._rng
        if attr.allowed is not None:
            return rng.choice(sorted(attr.allowed, key=str))
        match kind:
            case "type":
                return dtypes.as_dtype(rng.choice(TYPES))
            case "int":
                least = attr.minimum if attr.minimum is not None and attr.type == "int" else -1
                return rng.randint(least, max(least, 0) + 3)
            case "float":
                return rng.choice([0.0, 0.5, 1.0, -1.0, 2.0])
            case "bool":
                return rng.random() < 0.5
            case "string":
                return rng.choice(["", "a", "SAME", ",", "NHWC"])
            case "shape":
                return rng.choice([None, self._any_shape(), self._shape])
            case "tensor":
                return self._array(dtypes.float32, self._any_shape())
        raise LookupError(f"nobody can guess a {kind}")

    # ----------------------------------------------------------------------- inputs

    def _argument(self, arg: ArgDef) -> Any:
        if arg.list_attr is not None:
            return [self.array(dtype) for dtype in self.attrs[arg.list_attr]]
        dtype = self.attrs[arg.type_attr] if arg.type_attr is not None else arg.dtype
        assert isinstance(dtype, DType)
        if arg.number_attr is not None:
            return [self.array(dtype) for _ in range(self.attrs[arg.number_attr])]
        return self.array(dtype)

    def array(self, dtype: DType) -> Array:
        """Return random values, often of the shape of earlier inputs."""
        shape = self._shape if self._rng.random() < 0.5 else self._any_shape()
        return self._array(dtype, shape)

    def _any_shape(self) -> tuple[int, ...]:
        rank = self._rng.choice([0, 0, 1, 1, 1, 2, 2, 3, 4, 5])
        return tuple(self._rng.choice([0, 1, 1, 2, 2, 3, 4]) for _ in range(rank))

    def _array(self, dtype: DType, shape: tuple[int, ...]) -> Array:
        rng, count = self._rng, int(np.prod(shape, dtype=np.int64))
        if not dtype.is_numpy_compatible:
            raise LookupError("nobody can guess a handle")
        if dtype is dtypes.string:
            result = np.empty(count, object)
            result[:] = [rng.choice(TEXTS) for _ in range(count)]
            return result.reshape(shape)
        if dtype.is_bool:
            return np.array([rng.random() < 0.5 for _ in range(count)], bool).reshape(shape)
        if dtype.is_floating or dtype.is_complex:
            wild = rng.random() < 0.3
            values = [rng.choice(SPECIAL) if wild else rng.gauss(0, 2) for _ in range(count)]
            with np.errstate(all="ignore"):
                return np.array(values, np.float64).astype(dtype.numpy).reshape(shape)
        low = 0 if dtype.is_unsigned else -99
        most = rng.choice([2, 4, 99])
        whole = [max(low, min(most, rng.choice(INTEGERS))) for _ in range(count)]
        return np.array(whole, np.int64).astype(dtype.numpy).reshape(shape)


def changed(rng: random.Random, inputs: list[Any], constant: Sequence[bool]) -> list[Any]:
    """Return the inputs of a case with one size replaced by another, wherever it occurs.

    Args:
      constant: per flat input whether it stays, as an axis does.
    """
    flags = iter(constant)
    marked = [[(a, next(flags)) for a in (x if isinstance(x, list) else [x])] for x in inputs]
    sizes = sorted({size for x in marked for a, fixed in x if not fixed for size in a.shape})
    if not sizes:
        return inputs
    old, new = rng.choice(sizes), rng.choice([0, 1, 2, 3, 5])
    made = [[a if fixed else _resized(a, old, new) for a, fixed in x] for x in marked]
    pairs = zip(inputs, made, strict=True)
    return [x if isinstance(given, list) else x[0] for given, x in pairs]


def _resized(array: Array, old: int, new: int) -> Array:
    for axis, size in enumerate(array.shape):
        if size == old and (size or not new):
            array = array.take(np.arange(new) % max(size, 1), axis)
    return array

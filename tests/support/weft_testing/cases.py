"""Op cases: one row of data per behavior, run by `tests/conformance`.

A family's rows are the list `CASES` of `tests/conformance/cases/<family>.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from weft_graph.ir.op_def import lookup_op, register_op
from weft_graph.ir.op_signature import OpDef
from weft_tensor import dtypes
from weft_tensor.dtypes import DType
from weft_testing.loading import CASES_FOLDER, load_family

Array = np.ndarray[Any, Any]

FLOATS = ("float16", "bfloat16", "float32", "float64")
WIDE_FLOATS = ("float32", "float64")
COMPLEXES = ("complex64", "complex128")
INEXACT = FLOATS + COMPLEXES
WIDE_INEXACT = WIDE_FLOATS + COMPLEXES
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
REALS = FLOATS + INTEGERS
NUMBERS = REALS + COMPLEXES
BOOL = ("bool",)
ANY = NUMBERS + BOOL
STRING = ("string",)
UNTYPED = ("",)
"""The type of ops without the type attribute that the case varies."""

TOLERANCE = {
    "float16": (4e-3, 4e-3),
    "bfloat16": (3e-2, 3e-2),
    "float32": (2e-5, 2e-6),
    "complex64": (2e-5, 2e-6),
    "float64": (1e-12, 1e-13),
    "complex128": (1e-12, 1e-13),
}
"""Relative and absolute tolerance against a float64 reference."""

register_op(
    "TestInput",
    outputs=("output: dtype",),
    attrs={"dtype": "type", "shape": "shape"},
    shape=lambda node: (node.attrs["shape"],),
    doc="A fed value of the tests; declared here so that a family can be tested by itself.",
)


class Raw:
    """An input that keeps its own element type while the case's type varies.

    Args:
      value: what `np.asarray` takes.
      dtype: of the array; that of the value by default, with Python integers as int32.
      constant: fold it into the graph as a constant, so that shape rules see it.
    """

    def __init__(self, value: Any, dtype: str | None = None, constant: bool = True) -> None:
        if dtype == "string":
            array = np.empty(np.shape(value), object)
            array[...] = value
        else:
            array = np.asarray(value, None if dtype is None else dtypes.as_dtype(dtype).numpy)
        if dtype is None and not hasattr(value, "dtype") and array.dtype == np.int64:
            array = array.astype(np.int32)
        self.array = array
        self.constant = constant


class Case:
    """One op on given inputs.

    Args:
      op: op type.
      inputs: per argument an array, cast to each of `dtypes`, or a `Raw`; a list of these for a
        list argument.
      attrs: attributes other than the varied type.
      expected: reference over NumPy arrays, floats widened to float64, that returns one array or a
        tuple; None skips the comparison of values.
      dtypes: element types to run.
      type_attr: the attribute that they are values of.
      grad: flat positions of the inputs to differentiate by; True for all of the varied type, None
        for the same where the op is not declared NotDifferentiable, False for none.
      order: 2 checks the gradient's gradient as well.
      tolerance: element type to (relative, absolute), over the default table.
      grad_tolerance: relative, of gradients against differences.
      label: tells rows of one op apart.
      static: whether fully known input shapes must give fully known output shapes.
      prepare: flat position to a function of outputs, applied before the op; gradients are taken
        through it. For inputs that must be symmetric, say; `expected` gets the prepared values.
      knowledge: how much of the shapes is known: "static", "ranked", "unknown".
    """

    def __init__(
        self,
        op: str,
        inputs: Sequence[Any] = (),
        attrs: Mapping[str, Any] | None = None,
        expected: Callable[..., Any] | None = None,
        *,
        dtypes: Sequence[str] = FLOATS,
        type_attr: str = "T",
        grad: bool | Sequence[int] | None = None,
        order: int = 2,
        tolerance: Mapping[str, tuple[float, float]] | None = None,
        grad_tolerance: float = 1e-6,
        label: str = "",
        static: bool = True,
        prepare: Mapping[int, Callable[[Any], Any]] | None = None,
        knowledge: Sequence[str] = ("static", "ranked", "unknown"),
    ) -> None:
        self.op = op
        self.inputs = tuple(inputs)
        self.attrs = dict(attrs or {})
        self.expected = expected
        self.dtypes = tuple(dtypes)
        self.type_attr = type_attr
        self.grad = grad
        self.order = order
        self.tolerance = TOLERANCE | dict(tolerance or {})
        self.grad_tolerance = grad_tolerance
        self.label = label
        self.static = static
        self.prepare = dict(prepare or {})
        self.knowledge = tuple(knowledge)

    @property
    def name(self) -> str:
        """Return the op with the label."""
        return f"{self.op}-{self.label}" if self.label else self.op

    @property
    def op_def(self) -> OpDef:
        """Return the op's declaration."""
        return lookup_op(self.op)

    def arrays(self, dtype: str) -> list[Any]:
        """Return the inputs for one element type; lists for list arguments."""
        return [
            [_array(each, dtype) for each in item]
            if isinstance(item, list)
            else _array(item, dtype)
            for item in self.inputs
        ]

    def is_constant(self) -> list[bool]:
        """Return for each flat input whether it is folded into the graph."""
        return [isinstance(item, Raw) and item.constant for item in self._flat()]

    def varied(self) -> list[int]:
        """Return the flat positions of the inputs of the varied type."""
        return [i for i, item in enumerate(self._flat()) if not isinstance(item, Raw)]

    def _flat(self) -> list[Any]:
        return [x for item in self.inputs for x in (item if isinstance(item, list) else [item])]

    def __repr__(self) -> str:
        return f"Case({self.name})"


def _array(item: Any, dtype: str) -> Array:
    if isinstance(item, Raw):
        return item.array
    if not dtype:
        return np.asarray(item)
    array = np.asarray(item)
    if dtype == "string":
        result = np.empty(array.shape, object)
        result[...] = array
        return result
    target: DType = dtypes.as_dtype(dtype)
    if target.is_unsigned:
        array = np.abs(array)
    if array.dtype.kind == "c" and not target.is_complex:
        array = array.real
    return array.astype(target.numpy)


def widen(array: Array) -> Array:
    """Convert floats to float64 and complexes to complex128, for references; keep other types."""
    dtype = dtypes.from_numpy(array.dtype) if array.dtype.kind != "O" else dtypes.string
    if dtype.is_floating:
        return array.astype(np.float64)
    return array.astype(np.complex128) if dtype.is_complex else array


def normal(*shape: int, seed: int = 0) -> Array:
    """Return standard normal values."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape)


def complex_normal(*shape: int, seed: int = 0) -> Array:
    """Return standard normal real and imaginary parts; only real parts for real types."""
    return normal(*shape, seed=seed) + 1j * normal(*shape, seed=seed + 1000)


def uniform(low: float, high: float, *shape: int, seed: int = 0) -> Array:
    """Return uniform values in [low, high)."""
    return np.random.default_rng((seed, *shape)).uniform(low, high, shape)


def integers(low: int, high: int, *shape: int, seed: int = 0) -> Array:
    """Return uniform integers in [low, high)."""
    return np.random.default_rng((seed, *shape)).integers(low, high, shape)


def texts(*shape: int) -> Array:
    """Return different strings of various lengths, every second one with a trailing zero byte."""
    count = int(np.prod(shape, dtype=np.int64))
    result = np.empty(count, object)
    result[:] = [b"s%d" % i + b"\0" * (i % 2) for i in range(count)]
    return result.reshape(shape)


def with_strings(
    op: str,
    x: Any,
    rest: Sequence[Any] = (),
    attrs: Mapping[str, Any] | None = None,
    expected: Callable[..., Any] | None = None,
    label: str = "",
    **options: Any,
) -> list[Case]:
    """Return a case with numbers and bools, and one with strings of the same shapes."""
    strings = [texts(*a.shape) for a in x] if isinstance(x, list) else texts(*np.shape(x))
    numbers = Case(op, [x, *rest], attrs, expected, dtypes=ANY, label=label, **options)
    options["grad"] = False
    label = f"{label}strings"
    return [
        numbers,
        Case(op, [strings, *rest], attrs, expected, dtypes=STRING, label=label, **options),
    ]


def analytic(
    op: str,
    function: Callable[[Array], Array],
    domain: Array,
    tolerance: Mapping[str, tuple[float, float]],
    beyond_one: bool = False,
) -> list[Case]:
    """Return cases of an analytic function of one variable, for real and complex numbers.

    Args:
      domain: real; the complex numbers lie above it.
      beyond_one: the function is real for numbers above 1 only, not between 0 and 1.
    """
    # Branch cuts of the complex functions lie on the real axis.
    plane = domain + 0.3j + 0.2j * np.abs(normal(*domain.shape, seed=1000))
    scalar = np.array(0.4) + beyond_one
    large = uniform(0.2, 0.8, 40, 60) + beyond_one
    return [
        Case(op, [domain], expected=function, tolerance=tolerance),
        Case(
            op, [plane], expected=function, dtypes=COMPLEXES, tolerance=tolerance, label="complex"
        ),
        Case(op, [scalar], expected=function, tolerance=tolerance, label="scalar"),
        Case(op, [large], expected=function, tolerance=tolerance, grad=False, label="large"),
    ]


@cache
def load_cases() -> dict[str, list[Case]]:
    """Return the cases of all families, by file stem."""
    families = sorted(path.stem for path in CASES_FOLDER.glob("*.py"))
    return {family: list(load_family(family).CASES) for family in families}

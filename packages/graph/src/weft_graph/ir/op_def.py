"""Declarations of operations: signature, attributes, type and shape rules.

An op is declared once with strings in the notation of TensorFlow's op registry::

    register_op(
        "MatMul",
        inputs=("a: T", "b: T"),
        outputs=("product: T",),
        attrs={"transpose_a": "bool = false", "T": "{float32, float64}"},
        shape=_matmul_shape,
    )

The strings are parsed when the op is first used, to keep importing weft fast.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

import numpy as np

from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_signature import OpDef
from weft_graph.ir.registry import Registry
from weft_graph.ir.traits import PLAIN, Traits
from weft_tensor import errors
from weft_tensor.shape import Dims


class NodeSpec:
    """The view of a node under construction for type and shape rules.

    Attributes:
      inputs: the inputs in order; list arguments are flattened.
      attrs: attribute values; element types as DType, shapes as Dims.
    """

    __slots__ = ("attrs", "inputs")

    def __init__(self, inputs: tuple[Output, ...], attrs: dict[str, Any]) -> None:
        self.inputs = inputs
        self.attrs = attrs


ShapeRule = Callable[[NodeSpec], Sequence[Dims]]


Array = np.ndarray[Any, Any]
Values = list["Array | None"]
Evaluate = Callable[["Node", int, Values], "Array | None"]


class ValueRule:
    """A rule that computes a static value from static values of inputs.

    Attributes: the arguments of `weft_graph.ir.value_rules.value_rule`, which creates it.
    """

    __slots__ = ("evaluate", "needs", "partial", "uses_shape")

    def __init__(
        self, evaluate: Evaluate, needs: tuple[int, ...] | None, partial: bool, uses_shape: bool
    ) -> None:
        self.evaluate = evaluate
        self.needs = needs
        self.partial = partial
        self.uses_shape = uses_shape


_RawOp = tuple[
    str,
    Sequence[str],
    Sequence[str],
    Mapping[str, str],
    "ShapeRule | None",
    "ValueRule | None",
    Traits,
    "str | None",
]

_raw: Registry[_RawOp] = Registry("op", "weft_graph.ops", "weft_graph.ops")
_declared_in: dict[str, str] = {}
parsed_ops: dict[str, OpDef] = {}
"""Cache of parsed declarations by op type, to look up ops without a call."""


def register_op(
    name: str,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    attrs: Mapping[str, str] | None = None,
    shape: ShapeRule | None = None,
    *,
    value: ValueRule | None = None,
    traits: Traits = PLAIN,
    doc: str | None = None,
) -> None:
    """Declare an op type.

    Args:
      name: CamelCase op type.
      inputs: "x: T", "x: float32", "ref: Ref(T)", "values: N * T", "args: Tin".
      outputs: the same notation.
      attrs: name to type: "type", "{float32, int32}", "{'SAME', 'VALID'}", "int >= 1 = 1",
        "list(int) = []", "shape", "tensor", "func"; a default after "=", of a tensor as
        "uint8[255, 0]".
      shape: shape rule, from a NodeSpec to one Dims per output; None if shapes are unknown.
      value: rule for outputs whose value can be known statically, such as shapes.
      traits: static facts about the op. Stateful ops are never folded, merged or pruned.
      doc: documentation of the op.
    Raises: AlreadyExistsError: the op type is declared already.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    _declared_in[name] = frame.f_globals["__name__"] if frame is not None else ""
    _raw.register(name, (name, inputs, outputs, attrs or {}, shape, value, traits, doc))


def declaring_module(name: str) -> str:
    """Return the module that declares an op type, or ""."""
    return _declared_in.get(name, "")


def lookup_op(name: str) -> OpDef:
    """Return the declaration of an op type.

    Raises: NotFoundError: neither weft nor an installed package declares it.
    """
    op_def = parsed_ops.get(name)
    if op_def is None:
        op_def = parsed_ops.setdefault(name, OpDef(*_raw.lookup(name)))
    return op_def


def traits_of(name: str) -> Traits:
    """Return the traits of an op type; default traits if it is undeclared."""
    try:
        return lookup_op(name).traits
    except errors.NotFoundError:
        return PLAIN


def loaded_traits(name: str) -> Traits:
    """Return the traits of an op type like `traits_of`, without loading other packages."""
    raw = _raw.loaded(name)
    return PLAIN if raw is None else raw[6]


def registered_ops() -> list[str]:
    """Return the names of all declared op types, sorted."""
    return _raw.keys()

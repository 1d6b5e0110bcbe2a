"""CPU kernels of elementwise ops, derived from scalar definitions.

A single primitive is one ufunc, called in the cheapest way (`unary`, `binary`). Several primitives
are a chain: of Python's operators on NumPy scalars, of ufuncs with new results on small arrays, and
of in-place ufuncs over as few arrays as possible on large ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import (
    LARGE,
    NARROW,
    Array,
    Function,
    binary,
    exact,
    new_array,
    unary,
)
from weft_exec.kernels.primitives import computation
from weft_exec.kernels.registry import Kernel, KernelFactory, KernelFunction, register_derivation
from weft_graph.ir import scalar
from weft_graph.ir.scalar import Definition, Scalar
from weft_tensor import errors
from weft_tensor.shape import num_elements

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


def derive_kernel(definition: Definition) -> KernelFactory:
    """Return a kernel factory for a scalar definition."""
    factories: dict[tuple[Any, ...], KernelFactory] = {}

    def make(node: Node, device: Device) -> KernelFunction:
        output = node.outputs[0].dtype
        inputs = [value.dtype.base_dtype for value in node.inputs]
        key = (node.type, output, *inputs)
        factory = factories.get(key)
        if factory is None:
            expression = definition.expression(inputs, output)
            factory = factories[key] = _factory(definition, expression, node)
        return factory(node, device)

    return make


def _factory(definition: Definition, expression: Scalar, template: Node) -> KernelFactory:
    """Return a kernel factory for nodes with the same op and element types as `template`."""
    parts, count = scalar.applications(expression), len(template.inputs)
    used = scalar.inputs_of(expression)
    one_shape = definition.one_shape
    if not used or (not parts and count > 1):
        return lambda node, device: spread(node, device, _leaf_or_number(expression, parts, node))
    if not parts:
        function = return_value if may_alias(definition) else copy_value
        return lambda node, device: function
    single = None
    if len(parts) == 1 and len(used) == count and not one_shape:
        single = _single(parts[0], template.type)
    return single or (
        lambda node, device: _Chain(node, device, parts, one_shape=one_shape).function()
    )


def _leaf_or_number(expression: Scalar, parts: list[Scalar], node: Node) -> Function:
    """Return a function for an expression that is an input or a number; None for others."""
    if expression.name == "input":
        return lambda *inputs: inputs[expression.value]
    number = _number_values(parts, node)[1][-1] if parts else leaf(expression, node)
    return lambda *inputs: number


def spread(node: Node, device: Device, function: Function) -> KernelFunction:
    """Return a function whose result has the broadcast shape of all inputs.

    It is for definitions that ignore some inputs, whose shapes still affect the result.
    """
    dtype = node.outputs[0].dtype.numpy
    definition = node.traits.scalar
    one_shape = definition is not None and definition.one_shape

    def run(*inputs: Any) -> Any:
        if one_shape and len({value.shape for value in inputs}) > 1:
            raise shapes_differ(node, inputs)
        shape = np.broadcast_shapes(*[value.shape for value in inputs])
        result = new_array(device, shape, dtype)
        result[...] = function(*inputs)
        return result if shape else result[()]

    return run


def shapes_differ(node: Node, inputs: Sequence[Any]) -> errors.InvalidArgumentError:
    """Return the error of an op whose inputs must have the same shape but do not."""
    shapes = " and ".join(str(list(value.shape)) for value in inputs)
    return errors.InvalidArgumentError(
        f"{node.type} requires inputs of the same shape, got {shapes}"
    )


def return_value(x: Any) -> Any:
    """Return the value itself."""
    return x


def copy_value(x: Any) -> Any:
    """Return a copy of the value."""
    return x.copy()


def may_alias(definition: Definition) -> bool:
    """Return True if a result may be the input itself, or a view of it."""
    return definition.function in (scalar.identity, scalar.real, scalar.imag)


# ------------------------------------------------------------------------ one primitive


def _single(part: Scalar, op: str) -> KernelFactory | None:
    """Return a kernel factory for one primitive of the inputs, or of an input and constants."""
    result = computation(part, op)
    args = [(arg.name, arg.value) for arg in part.args]
    if any(arg.dtype.numpy.kind == "O" for arg in part.args):
        return exact(result.array)
    if part.name in ("real", "imag"):  # views of any size
        return lambda node, device: result.array
    if args == [("input", 0)]:
        return unary(result.array, result.scalar)
    if args == [("input", 0), ("input", 1)]:
        return binary(result.array, result.scalar)
    if len(args) == 2 and args[0] == ("input", 0) and args[1][0] != "input":
        number = part.args[1]
        return lambda node, device: unary(_bound(result.array, leaf(number, node)))(node, device)
    return None


def _bound(function: Function, number: Any) -> Function:
    def run(x: Any, out: Array | None = None) -> Any:
        return function(x, number, out=out)

    return run


def leaf(part: Scalar, node: Node) -> Any:
    """Return the number of a constant or attribute as a NumPy scalar."""
    value = node.attrs[part.value] if part.name == "attribute" else part.value
    return part.dtype.numpy.type(value)


# ------------------------------------------------------------------- several primitives


_Step = tuple[Function, int, int | None, int | None]
"""The application of one primitive: its function and the registers of its operands."""

FEW = 1 << 10
"""Minimum number of elements for which selections and clamps are faster in place."""


class _Chain:
    """The applications of a definition, one after another, over registers.

    The registers are numbered: first the inputs, then the constants, then the computed values.
    """

    def __init__(self, node: Node, device: Device, parts: list[Scalar], *, one_shape: bool) -> None:
        self._node = node
        self._device = device
        self._one_shape = one_shape
        operands, numbers, parts = _number_values(parts, node)
        self._numbers = numbers
        self._arrays = [np.array(number) for number in numbers]
        fixed = len(node.inputs) + len(numbers)
        types = [part.dtype.numpy for part in parts]
        registers, self._types = _assign_registers(operands, types, fixed)
        result = [computation(part, node.type) for part in parts]
        self._in_new = _steps([item.array for item in result], operands)
        # On complex numbers, Python's operators differ from NumPy's functions in the last bit.
        self._scalar_function = self._in_new
        if not any(arg.dtype.is_complex for part in parts for arg in part.args):
            of_scalars = [item.scalar or item.array for item in result]
            self._scalar_function = _steps(of_scalars, operands)
        operand_registers = [[registers[number] for number in numbers] for numbers in operands]
        self._in_place = _steps([item.into for item in result], operand_registers)
        self._results = [registers[fixed + index] for index in range(len(parts))]
        self._first = fixed
        self._small_count = LARGE // types[-1].itemsize
        if any(item.into is not item.array for item in result):
            self._small_count = FEW

    def function(self) -> KernelFunction:
        """Return the function of the node, specialized if all sizes are known."""
        output = self._node.outputs[0]
        small_count, in_new, arrays = self._small_count, self._in_new, self._arrays
        of_scalars, numbers, in_place = self._scalar_function, self._numbers, self._filled
        broadcast = self._broadcast
        count = num_elements(output.dims)
        if count is not None and all(value.dims == output.dims for value in self._node.inputs):
            if output.dims == ():
                return lambda *inputs: _run_steps(of_scalars, [*inputs, *numbers])
            if count <= small_count:
                return lambda *inputs: _run_steps(in_new, [*inputs, *arrays])

        def run(*inputs: Any) -> Any:
            first = inputs[0]
            shape = first.shape
            for operand in inputs[1:]:
                if operand.shape != shape:
                    return broadcast(inputs)
            if not shape:
                return _run_steps(of_scalars, [*inputs, *numbers])
            if first.size <= small_count:
                return _run_steps(in_new, [*inputs, *arrays])
            return in_place(inputs, shape)

        return run

    def _filled(self, inputs: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
        new = [new_array(self._device, shape, dtype) for dtype in self._types]
        values = [*inputs, *self._arrays, *new]
        for (function, a, b, c), result in zip(self._in_place, self._results, strict=True):
            if b is None:
                function(values[a], out=values[result])
            elif c is None:
                function(values[a], values[b], out=values[result])
            else:
                function(values[a], values[b], values[c], out=values[result])
        return new[0]

    def _broadcast(self, inputs: tuple[Any, ...]) -> Any:
        if self._one_shape:
            raise shapes_differ(self._node, inputs)
        shape = np.broadcast_shapes(*[value.shape for value in inputs])
        if prod(shape) <= self._small_count:
            value = _run_steps(self._in_new, [*inputs, *self._arrays])
        else:
            value = self._broadcast_into(inputs, shape)
        return value if value.shape == shape else np.broadcast_to(value, shape).copy()

    def _broadcast_into(self, inputs: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
        """Compute in place if results have the full shape, otherwise in new arrays."""
        values = [*inputs, *self._arrays, *[None] * len(self._types)]
        arrays: dict[int, Array] = {}
        steps = zip(self._in_place, self._in_new, self._results, strict=True)
        for (out, *operands), (function, *_), result in steps:
            args = [values[index] for index in operands if index is not None]
            if np.broadcast_shapes(*[arg.shape for arg in args]) != shape:
                values[result] = function(*args)
                continue
            if result not in arrays:
                dtype = self._types[result - self._first]
                arrays[result] = new_array(self._device, shape, dtype)
            values[result] = arrays[result]
            out(*args, out=values[result])
        return values[self._first]


def _run_steps(steps: list[_Step], values: list[Any]) -> Any:
    """Run the steps; return the last result."""
    value = None
    for function, a, b, c in steps:
        if b is None:
            value = function(values[a])
        elif c is None:
            value = function(values[a], values[b])
        else:
            value = function(values[a], values[b], values[c])
        values.append(value)
    return value


def _number_values(
    parts: list[Scalar], node: Node
) -> tuple[list[list[int]], list[Any], list[Scalar]]:
    """Number all values: the inputs, the constants of the definition, and the parts.

    Parts that depend only on constants become constants. Conversions of bools that are only used as
    factors are removed, because ufuncs convert them implicitly.

    Returns: the operands of each remaining part, the constants, and these parts.
    """
    numbers: list[Any] = []
    number_of: dict[int, int] = {}
    inputs = len(node.inputs)

    def number(part: Scalar, value: Any) -> None:
        number_of[id(part)] = inputs + len(numbers)
        numbers.append(value)

    computed_parts: list[Scalar] = []
    masks = _masks(parts)
    for part in parts:
        for arg in part.args:
            if arg.name == "input":
                number_of[id(arg)] = arg.value
            elif not arg.args and id(arg) not in number_of:
                number(arg, leaf(arg, node))
        constant_indices = [number_of.get(id(arg), -1) - inputs for arg in part.args]
        if min(constant_indices) >= 0:
            number(
                part,
                computation(part, node.type).array(*[numbers[index] for index in constant_indices]),
            )
        elif id(part) not in masks:
            computed_parts.append(part)
    for index, part in enumerate(computed_parts):
        number_of[id(part)] = inputs + len(numbers) + index
    operands = [
        [number_of[id(masks.get(id(arg), arg))] for arg in part.args] for part in computed_parts
    ]
    return operands, numbers, computed_parts


def _masks(parts: list[Scalar]) -> dict[int, Scalar]:
    """Return the bools that are converted only to be factors, by the identity of the conversion."""
    scalars: dict[int, Scalar] = {}
    for part in parts:
        if part.name == "cast" and part.args[0].dtype.is_bool and part.dtype not in NARROW:
            users = [user for user in parts if any(arg is part for arg in user.args)]
            if users and all(user.name == "mul" for user in users):
                scalars[id(part)] = part.args[0]
    return scalars


def _assign_registers(
    operands: list[list[int]], types: list[np.dtype[Any]], fixed: int
) -> tuple[dict[int, int], list[np.dtype[Any]]]:
    """Assign registers to the parts, reusing them so that ufuncs work in place.

    Returns: the register of each value, and the types of the registers from `fixed` on, of which
      the first is for the result.
    """
    last = {number: index for index, numbers in enumerate(operands) for number in numbers}
    registers = dict(enumerate(range(fixed)))
    kinds, free = [types[-1]], {fixed}
    for index, (numbers, expected) in enumerate(zip(operands, types, strict=True)):
        # A selection works in place of its last operand.
        free_registers = [
            registers[n] for n in reversed(numbers) if n >= fixed and last[n] == index
        ]
        free.update(free_registers)
        fitting = [
            item for item in (*free_registers, *sorted(free)) if kinds[item - fixed] == expected
        ]
        selected = fitting[0] if fitting else fixed + len(kinds)
        if index == len(types) - 1:
            selected = fixed
        elif not fitting:
            kinds.append(expected)
        free.discard(selected)
        registers[fixed + index] = selected
    return registers, kinds


def _steps(functions: list[Function], operands: list[list[int]]) -> list[_Step]:
    steps = []
    for function, numbers in zip(functions, operands, strict=True):
        a, b, c = (*numbers, None, None)[:3]
        assert a is not None
        steps.append((function, a, b, c))
    return steps


def _rule(op: str, definition: Definition) -> Kernel:
    return Kernel(op, "CPU", derive_kernel(definition), {}, alias=may_alias(definition))


register_derivation("CPU", _rule)

"""CUDA source of kernels for scalar definitions; each thread computes one element.

Values of float16 are computed in float32 and rounded once at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from weft_exec.gpu.generated import NAMES, Source, source_text
from weft_graph.ir.scalar import Scalar, applications, kind
from weft_tensor.dtypes import DType

_OF_ALL: Final = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "neg": "-{0}",
    "square": "{0} * {0}",
    "minimum": "{0} <= {1} || {0} != {0} ? {0} : {1}",
    "maximum": "{0} >= {1} || {0} != {0} ? {0} : {1}",
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "greater": "{0} > {1}",
    "greater_equal": "{0} >= {1}",
    "equal": "{0} == {1}",
    "not_equal": "{0} != {1}",
    "bit_and": "{0} & {1}",
    "bit_or": "{0} | {1}",
    "where": "{0} ? {1} : {2}",
    "cast": "{0}",
    "abs": "{0} < 0 ? -{0} : {0}",
    "clamp": "{0} != {0} ? {0} : {0} < {1} ? {1} : {0} > {2} ? {2} : {0}",
}
_OF_INTEGERS: Final = {"div": "{0} / {1}", "invert": "~{0}"}
_OF_BOOLS: Final = {"invert": "!{0}"}
_OF_FLOATS: Final = {
    "div": "{0} / {1}",
    "reciprocal": "1 / {0}",
    "pow": "pow({0}, {1})",
    "sign": "{0} != {0} ? {0} : ({0} > 0) - ({0} < 0)",
    "is_nan": "{0} != {0}",
    "abs": "fabs({0})",
    **{
        name: f"{name}({{0}})"
        for name in (
            "floor", "ceil", "trunc", "rint", "sqrt", "exp", "expm1", "log", "log1p", "sin", "cos",
            "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
        )
    },
}  # fmt: skip
_TABLES: Final = {"i": _OF_INTEGERS, "b": _OF_BOOLS, "f": _OF_FLOATS}


def _formula(part: Scalar) -> str | None:
    """Return a CUDA formula with operands `{0}`, `{1}`, ...; None if the primitive has none."""
    if any(kind(arg.dtype) not in _TABLES for arg in (part, *part.args)):
        return None
    return _TABLES[kind(part.args[-1].dtype)].get(part.name) or _OF_ALL.get(part.name)


def can_be_written(expression: Scalar, inputs: Sequence[DType]) -> bool:
    """Return True if a CUDA kernel can be generated for an expression."""
    outer = (*inputs, expression.dtype)
    parts = applications(expression)
    return all(dtype.name in NAMES for dtype in outer) and all(map(_formula, parts))


def _computed_in(dtype: DType) -> str:
    """Return the CUDA type for computing values of an element type."""
    return (
        "bool"
        if dtype.is_bool
        else "float"
        if dtype.size == 2 and dtype.is_floating
        else NAMES[dtype.name]
    )


def _number(value: Any, dtype: DType) -> str:
    shown = repr(float(value)) if dtype.is_floating else repr(int(value))
    return f"({_computed_in(dtype)}){shown}"


class Elements(Source):
    """The kernel of one expression.

    Args:
      name: the name of the kernel.
      expression: the element of the result as a function of one element of each input.
      inputs: the element types of its inputs.
      attrs: the attributes of the node.
    """

    def __init__(
        self, name: str, expression: Scalar, inputs: Sequence[DType], attrs: Mapping[str, Any]
    ) -> None:
        self.name = name
        self._expression = expression
        self._inputs = inputs
        self._attrs = attrs

    def text(self, types: Mapping[str, str], index: str) -> str:
        """Return the source for positions of type `index`.

        Other types follow from the expression.
        """
        result = self._expression.dtype
        lines = [f"typedef {NAMES[index]} I;", f"typedef {_computed_in(result)} W;"]
        if any(dtype.name == "float16" for dtype in (*self._inputs, result)):
            lines.insert(0, "#include <cuda_fp16.h>\n#define WEFT_HALF")
        return "\n".join([*lines, source_text("element.cuh"), *self._kernel()])

    def _kernel(self) -> list[str]:
        arrays = [
            f"const {NAMES[dtype.name]}* x{operand_index}"
            for operand_index, dtype in enumerate(self._inputs)
        ]
        arrays.append(f"{NAMES[self._expression.dtype.name]}* y")
        lines = [
            f'extern "C" __global__ void {self.name}({", ".join(arrays)}, I size)',
            "{",
            "    const I at = element();",
            "    if (at >= size) return;",
        ]
        for operand_index, dtype in enumerate(self._inputs):
            lines.append(
                f"    const {_computed_in(dtype)} a{operand_index} = widened(x{operand_index}[at]);"
            )
        names: dict[int, str] = {}
        for part in applications(self._expression):
            formula = _formula(part)
            assert formula is not None
            value = formula.format(*[self._operand(arg, names) for arg in part.args])
            if part.name == "cast" and part.dtype.is_bool:
                value = f"{value} != 0"
            name = names[id(part)] = f"v{len(names)}"
            computed = _computed_in(part.dtype)
            lines.append(f"    const {computed} {name} = ({computed})({value});")
        lines += [f"    put(y + at, {self._operand(self._expression, names)});", "}"]
        return lines

    def _operand(self, part: Scalar, names: Mapping[int, str]) -> str:
        if part.name == "input":
            return f"a{part.value}"
        if part.name in ("constant", "attribute"):
            value = self._attrs[part.value] if part.name == "attribute" else part.value
            return _number(value, part.dtype)
        return names[id(part)]

"""Identity-like ops and runtime checks such as CheckNumerics."""

from __future__ import annotations

from weft_compiler.ir.expressions import apply
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.values import Requirement, Value, move_elements
from weft_tensor.shape import compatible_dims


def _identity(name: str, x: Value) -> Value:
    return move_elements(name, x, x.shape, lambda *index: index, dense=True)


@lowers("IdentityN")
def _identities(op: Operation) -> list[Value]:
    return [_identity(f"{op.name}_{index}", x) for index, x in enumerate(op.inputs)]


@lowers("EnsureShape")
def _ensure_shape(op: Operation) -> Value:
    x = op.inputs[0]
    require(compatible_dims(x.shape, op.attr("shape")), "its shape differs from the required one")
    return _identity(op.name, x)


@lowers("CheckNumerics")
def _check_numerics(op: Operation) -> Value:
    x = op.inputs[0]
    result = _identity(op.name, x)
    result.requires = (
        Requirement(
            x.shape, lambda *index: apply("is_finite", x.at(*index)), "finite values were required"
        ),
    )
    return result

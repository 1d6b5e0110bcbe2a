"""A small routine of another package: one module, and one row in the registry (`register`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from weft_compiler.codegen.routine import CallWriter, Operands, ParallelSplit, Routine
from weft_compiler.ir.expressions import Expr
from weft_compiler.ir.program import Input, Output, Views
from weft_compiler.ir.registry import register
from weft_compiler.routines.operands import span_error, type_error
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

_FUNCTION = """
define internal void @test.scale(ptr %x, ptr %y, i64 %count, i64 %factor) #0 {
entry:
  %scale = sitofp i64 %factor to float
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %from = getelementptr float, ptr %x, i64 %i
  %to = getelementptr float, ptr %y, i64 %i
  %value = load float, ptr %from
  %scaled = fmul float %value, %scale
  store float %scaled, ptr %to
  %next = add i64 %i, 1
  %ended = icmp eq i64 %next, %count
  br i1 %ended, label %done, label %loop
done:
  ret void
}
"""


@dataclass(frozen=True, slots=True, eq=False)
class Scale(Routine):
    """Stores `factor` times the first elements of x in y."""

    x: Input
    y: Output
    _: KW_ONLY
    count: int
    factor: Expr

    routine: ClassVar[str] = "test_scale"
    dtypes: ClassVar[tuple[DType, ...]] = (dtypes.float32,)

    @property
    def work(self) -> int:
        return self.count

    @property
    def symbolic_sizes(self) -> frozenset[str]:
        return frozenset({"count"})

    def spans(self, size: int) -> Mapping[str, int]:
        return {"x": self.count, "y": self.count}

    def error(self, views: Views) -> str:
        if self.count < 1:
            return "a count of at least 1 was required"
        return type_error(views) or span_error(views, self.spans(4))

    def reference(self, x: Any, y: Any, factor: int) -> None:
        y[: self.count] = x[: self.count] * factor

    def split(self) -> ParallelSplit:
        return ParallelSplit("count", self.count, 1024, {0: 1, 1: 1})

    def emit(self, to: CallWriter, operands: Operands) -> None:
        (x, y), (factor,) = operands.views, operands.numbers
        count = operands.sizes.get("count", str(self.count))
        to.define("test.scale", lambda: _FUNCTION)
        to.w.do(f"call void @test.scale(ptr {x}, ptr {y}, i64 {count}, i64 {factor})")


register(Scale)

"""Random words of Philox4x64-10, equal to those of `numpy.random.Philox`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Final

import numpy as np

from weft_compiler.codegen import philox
from weft_compiler.codegen.routine import CallWriter, Operands, Routine
from weft_compiler.ir.program import Input, Output, Views
from weft_compiler.layouts import STATE
from weft_compiler.routines.operands import span_error
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

_BLOCK_BYTES: Final = 32
_PRODUCTS: Final = 20
"""Number of multiplications for a block."""


@dataclass(frozen=True, slots=True, eq=False)
class Philox(Routine):
    """Stores blocks of 32 random bytes.

    The state is the counter, four words, and the key, two words. As in NumPy, the first block is
    that of the counter plus one.
    """

    words: Output
    state: Input
    _: KW_ONLY
    blocks: int

    routine: ClassVar[str] = "philox"
    dtypes: ClassVar[tuple[DType, ...]] = (dtypes.uint32, dtypes.uint64)

    @property
    def work(self) -> int:
        return _PRODUCTS * self.blocks

    @property
    def symbolic_sizes(self) -> frozenset[str]:
        return frozenset({"blocks"})

    def spans(self, size: int) -> Mapping[str, int]:
        return {"words": self.blocks * _BLOCK_BYTES // size, "state": STATE}

    def error(self, views: Views) -> str:
        (words, _), (state, count) = views["words"], views["state"]
        if words not in self.dtypes or state is not dtypes.uint64:
            return "words of uint32 or uint64 and a state of uint64 were required"
        if self.blocks < 1 or count < STATE:
            return f"at least 1 block and {STATE} numbers of state were required"
        return span_error(views, self.spans(words.size))

    def reference(self, words: Any, state: Any) -> None:
        bits = np.random.Philox(key=state[4:6].copy(), counter=state[:4].copy())
        raw = bits.random_raw(4 * self.blocks).astype("<u8").view(words.dtype.newbyteorder("<"))
        words[: raw.size] = raw

    def emit(self, writer: CallWriter, operands: Operands) -> None:
        low, high = operands.places or ("0", operands.sizes.get("blocks", str(self.blocks)))
        writer.define(philox.NAME, philox.text)
        words, state = operands.views
        writer.w.do(f"call void @{philox.NAME}(ptr {words}, ptr {state}, i64 {low}, i64 {high})")

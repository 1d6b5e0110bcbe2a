"""Lazily loaded names of `weft.sparse`."""

from weft_io.queues.accumulator import SparseConditionalAccumulator as SparseConditionalAccumulator

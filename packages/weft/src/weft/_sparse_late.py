"""Names of `weft.sparse` that load when the first of them is used."""

from weft_io.queues.accumulator import SparseConditionalAccumulator as SparseConditionalAccumulator

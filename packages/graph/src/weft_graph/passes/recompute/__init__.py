"""Rematerialization: recomputing values that only gradients need instead of keeping them."""

from weft_graph.passes.recompute.analysis import HINT, work_of
from weft_graph.passes.recompute.plans import Recompute
from weft_graph.passes.recompute.rewrite import SUFFIX, recompute

__all__ = ["HINT", "SUFFIX", "Recompute", "recompute", "work_of"]

"""`wf.nn`: neural networks."""

from weft_graph.nn import *  # noqa: F403 - the whole module under another name
from weft_graph.ops.pool import avg_pool as avg_pool2d, max_pool as max_pool2d

__all__ = ["avg_pool2d", "max_pool2d"]

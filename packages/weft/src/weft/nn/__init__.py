"""`wf.nn`: neural networks."""

from weft.nn import rnn_cell as rnn_cell
from weft_graph.nn import *  # noqa: F403 - the whole module under another name
from weft_graph.ops.pool import avg_pool as avg_pool2d, max_pool as max_pool2d
from weft_graph.rnn.dynamic import (
    bidirectional_dynamic_rnn as bidirectional_dynamic_rnn,
    dynamic_rnn as dynamic_rnn,
    raw_rnn as raw_rnn,
)
from weft_graph.rnn.static import (
    static_bidirectional_rnn as static_bidirectional_rnn,
    static_rnn as static_rnn,
    static_state_saving_rnn as static_state_saving_rnn,
)

__all__ = ["avg_pool2d", "max_pool2d"]

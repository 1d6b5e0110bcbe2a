"""`wf.nn`: neural networks."""

import typing as _typing

from weft.nn import rnn_cell as rnn_cell
from weft_graph.nn.namespace import *
from weft_graph.nn.safe_embedding import *
from weft_graph.rnn.dynamic import *
from weft_graph.rnn.static import *

if _typing.TYPE_CHECKING:
    from weft._nn import *
    from weft.nn import experimental as experimental
else:
    from weft import _lazy

    __getattr__, __dir__ = _lazy.attach(__name__, "weft._nn")

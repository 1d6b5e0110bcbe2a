"""`wf.graph_util`: edits of graphs as messages."""

from weft import _lazy
from weft_graph.freezing import *
from weft_graph.graph_util import *
from weft_graph.messages.import_graph_def import *

_lazy.hint(__name__)

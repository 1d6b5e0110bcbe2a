"""`wf.graph_util`: graphs as messages."""

from weft_graph.freezing import *
from weft_graph.graph_util import *
from weft_graph.messages.import_graph_def import *

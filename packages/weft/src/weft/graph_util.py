"""`wf.graph_util`: graphs as messages."""

from weft_graph.freezing import convert_variables_to_constants as convert_variables_to_constants
from weft_graph.graph_util import (
    extract_sub_graph as extract_sub_graph,
    remove_training_nodes as remove_training_nodes,
    tensor_shape_from_node_def_name as tensor_shape_from_node_def_name,
)
from weft_graph.messages.import_graph_def import import_graph_def as import_graph_def

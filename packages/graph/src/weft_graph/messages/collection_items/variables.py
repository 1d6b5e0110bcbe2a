"""Conversion of the variable collections to `VariableDef`s."""

from __future__ import annotations

from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.messages.collection_items import convert_each, register_collection
from weft_graph.variables.base import Variable

for _name in (
    GraphKeys.GLOBAL_VARIABLES,
    GraphKeys.LOCAL_VARIABLES,
    GraphKeys.METRIC_VARIABLES,
    GraphKeys.MODEL_VARIABLES,
    GraphKeys.TRAINABLE_VARIABLES,
    GraphKeys.MOVING_AVERAGE_VARIABLES,
    GraphKeys.TRAINABLE_RESOURCE_VARIABLES,
    GraphKeys.GLOBAL_STEP,
    GraphKeys.EVAL_STEP,
):
    register_collection(_name, "VariableDef", convert_each(Variable.from_proto))

"""Serialization of graphs, parts and values: columnar flatbuffers followed by large constants.

`weft_graph/schema/graph.fbs` describes the format.
"""

from __future__ import annotations

from weft_graph.serialize.part import part_from_bytes, part_pieces, part_to_bytes
from weft_graph.serialize.reader import graph_from_bytes, read_graph
from weft_graph.serialize.value import value_from_bytes, value_to_bytes
from weft_graph.serialize.writer import graph_pieces, graph_to_bytes, segment_ends, write_graph

__all__ = [
    "graph_from_bytes",
    "graph_pieces",
    "graph_to_bytes",
    "part_from_bytes",
    "part_pieces",
    "part_to_bytes",
    "read_graph",
    "segment_ends",
    "value_from_bytes",
    "value_to_bytes",
    "write_graph",
]

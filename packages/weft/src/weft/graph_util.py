"""`wf.graph_util`: graphs as messages."""

from __future__ import annotations

from weft_graph.import_graph_def import import_graph_def as import_graph_def

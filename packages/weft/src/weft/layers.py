"""`wf.layers`: layers with variables of their own."""

from weft_graph.layers import *  # noqa: F403 - the whole module under another name

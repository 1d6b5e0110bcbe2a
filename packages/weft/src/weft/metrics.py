"""`wf.metrics`: values accumulated over many runs."""

from weft_graph.metrics import *  # noqa: F403 - the whole module under another name

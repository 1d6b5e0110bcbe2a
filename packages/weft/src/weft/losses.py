"""`wf.losses`: functions to minimise."""

from weft_graph.losses import *  # noqa: F403 - the whole module under another name

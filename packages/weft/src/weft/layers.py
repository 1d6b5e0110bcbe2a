"""`wf.layers`."""

from __future__ import annotations

from weft_graph.layers import *  # noqa: F403 - the whole module under another name

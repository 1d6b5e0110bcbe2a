"""`wf.metrics`."""

from __future__ import annotations

from weft_graph.metrics import *  # noqa: F403 - the whole module under another name

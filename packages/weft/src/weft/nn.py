"""`wf.nn`."""

from __future__ import annotations

from weft_graph.nn import *  # noqa: F403 - the whole module under another name

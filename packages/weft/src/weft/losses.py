"""`wf.losses`."""

from __future__ import annotations

from weft_graph.losses import *  # noqa: F403 - the whole module under another name

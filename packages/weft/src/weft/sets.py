"""`wf.sets`: sets in rows."""

from __future__ import annotations

from weft_graph.ops.array import size as size

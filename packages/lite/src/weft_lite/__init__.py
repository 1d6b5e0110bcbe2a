"""Frozen graphs on small devices: `Interpreter` runs what `weft_lite.convert` wrote."""

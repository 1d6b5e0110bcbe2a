"""Conditionals and loops, built of the primitives in `weft_graph.ops.control_flow`."""

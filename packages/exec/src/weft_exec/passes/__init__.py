"""Passes that need kernels; those that only need the graph are in `weft_graph.passes`."""

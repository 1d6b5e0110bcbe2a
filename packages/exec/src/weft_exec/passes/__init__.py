"""Passes that need kernels; those that need only the graph are in `weft_graph.passes`."""

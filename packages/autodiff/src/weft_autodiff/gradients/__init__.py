"""Gradients of a graph: the walk back through nodes, conditionals and loops."""

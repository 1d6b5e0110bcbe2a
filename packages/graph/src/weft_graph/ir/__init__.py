"""The graph: nodes, op declarations, scopes, and the functions that build and edit them."""

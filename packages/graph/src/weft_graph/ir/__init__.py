"""The graph IR: nodes, op declarations, scopes, and functions that build and edit graphs."""

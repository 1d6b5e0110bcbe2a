"""The graph itself: nodes, declarations of ops, scopes, and what builds and edits them."""

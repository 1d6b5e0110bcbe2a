"""Tasks of a cluster and their addresses."""

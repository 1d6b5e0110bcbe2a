"""MetaGraphs and GraphDefs on files."""

"""The flatbuffers schema of graphs, and access to its columns."""

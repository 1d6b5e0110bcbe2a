"""The runtime of datasets.

A source describes a dataset, a stream is one pass over it (`stream.py`). The other modules contain
one family of datasets each, as plain objects independent of graphs. `calls.py` runs the functions
of a pipeline, `iterator_resource.py` is the iterator resource, and `state.py` encodes its saved
position.
"""

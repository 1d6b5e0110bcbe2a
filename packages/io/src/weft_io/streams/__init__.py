"""What runs of a dataset.

A source describes a dataset, a stream is one pass over it (`stream.py`). The other modules hold one
family of datasets each; they are plain objects, and know of no graph. `calls.py` runs the functions
of a pipeline, `iterator_resource.py` is an iterator as steps see it, and `state.py` is the form in
which its position is saved.
"""

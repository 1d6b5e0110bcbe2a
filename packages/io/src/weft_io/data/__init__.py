"""Input pipelines: datasets as nodes of the graph, iterators as resources that steps read from.

- `dataset.py`, `files_datasets.py`, `iterator.py`, `experimental.py` are the public interface.
- `specs.py` and `functions.py` flatten structures and trace the functions of `map` and others.
`weft_io.streams` has the code that produces elements at run time.
"""

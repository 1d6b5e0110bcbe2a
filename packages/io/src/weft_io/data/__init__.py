"""Input pipelines: datasets as nodes of the graph, iterators as resources that steps read from.

- `dataset.py`, `files_datasets.py`, `iterator.py`, `experimental.py` are what programs use.
- `specs.py` and `functions.py` take structures apart and trace the functions of `map` and others.

What runs when a step asks for an element is in `weft_io.streams`.
"""

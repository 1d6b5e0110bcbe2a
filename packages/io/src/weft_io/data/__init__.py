"""Input pipelines: datasets as nodes of the graph, iterators as resources that steps read from.

- `dataset.py`, `files_datasets.py`, `iterator.py`, `experimental.py` are what programs use.
- `specs.py` and `functions.py` take structures apart and trace the functions of `map` and others.
- `streams.py` says what runs: a source describes a dataset, a stream is one pass over it. The
  modules beside it hold one family each; they are plain objects, and know of no graph.
- `state.py` is the form in which the place of an iterator is saved.
"""

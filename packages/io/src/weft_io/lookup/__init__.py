"""Public lookup tables; their kernels use `weft_io.resources.table`.

- `initializers.py` says where static tables have their content from.
- `tables.py` has the tables, `vocabulary.py` those that give ids to all words.
- `functions.py` has the functions that make tables of files and lists.
- `former.py` has all of it under the names of `tf.contrib.lookup`.
"""

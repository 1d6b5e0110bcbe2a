"""Public lookup tables; their kernels use `weft_io.resources.table`.

- `initializers.py` has the sources of the content of static tables. - `tables.py` has the tables,
`vocabulary.py` the tables that map all words to ids. - `functions.py` has functions that create
tables from files and lists. - `contrib_tables.py` has the names of `tf.contrib.lookup`.
"""

"""Formats of records: TFRecord, lines, records of a fixed length, whole files, CSV, Parquet.

A source reads one file and returns many records per call:

    source = TFRecordSource(path)
    while records := source.read_chunk():
        ...

It keeps only one block of the file in memory, regardless of the file's size. After an error about a
damaged record, it continues after that record if the format allows it. `reader.Reader` reads many
files this way, and its state can be serialized and restored. This package does not depend on graphs
or sessions.
"""

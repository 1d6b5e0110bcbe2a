"""Formats of records: TFRecord, lines, records of a fixed length, whole files, CSV, Parquet.

A source reads one file and returns many records per call:

    source = TFRecordSource(path)
    while records := source.read_chunk():
        ...

It holds one piece of the file at a time, whatever the file's size. After an error that says which
record is damaged it goes on behind that record, where the format lets it find the next one.
`reader.Reader` goes through many files this way, and can be written down and restored; nothing in
here knows of graphs or sessions.
"""

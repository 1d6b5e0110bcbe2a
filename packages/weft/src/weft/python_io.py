"""`wf.python_io`: records in files, outside of the graph."""

from weft_io.records.python_io import (
    TFRecordCompressionType as TFRecordCompressionType,
    TFRecordOptions as TFRecordOptions,
    TFRecordWriter as TFRecordWriter,
    tf_record_batches as tf_record_batches,
    tf_record_iterator as tf_record_iterator,
)

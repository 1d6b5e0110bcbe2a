"""`wf.io`: files, records, what is in them, and bytes in strings."""

from weft.io import gfile as gfile
from weft_graph.ops.strings import (
    decode_base64 as decode_base64,
    decode_raw as decode_raw,
    encode_base64 as encode_base64,
)
from weft_io.graphs.graph_io import (
    write_graph as write_graph,
)
from weft_io.input.parsing import (
    FixedLenFeature as FixedLenFeature,
    FixedLenSequenceFeature as FixedLenSequenceFeature,
    SparseFeature as SparseFeature,
    VarLenFeature as VarLenFeature,
    decode_compressed as decode_compressed,
    decode_csv as decode_csv,
    decode_json_example as decode_json_example,
    parse_example as parse_example,
    parse_sequence_example as parse_sequence_example,
    parse_single_example as parse_single_example,
    parse_single_sequence_example as parse_single_sequence_example,
    parse_tensor as parse_tensor,
    serialize_tensor as serialize_tensor,
)
from weft_io.input.pipeline import (
    match_filenames_once as match_filenames_once,
)
from weft_io.input.readers import ParquetReader as ParquetReader
from weft_io.ops.files import (
    matching_files as matching_files,
    read_file as read_file,
    write_file as write_file,
)
from weft_io.queues.queue_ops import (
    PaddingFIFOQueue as PaddingFIFOQueue,
    PriorityQueue as PriorityQueue,
    QueueBase as QueueBase,
    RandomShuffleQueue as RandomShuffleQueue,
)
from weft_io.records.parquet import parquet_batches as parquet_batches
from weft_io.records.python_io import (
    TFRecordCompressionType as TFRecordCompressionType,
    TFRecordOptions as TFRecordOptions,
    TFRecordWriter as TFRecordWriter,
    tf_record_batches as tf_record_batches,
    tf_record_iterator as tf_record_iterator,
)

"""`wf.io`: files, records, their parsing, and string encodings of bytes."""

from weft import _lazy
from weft.io import gfile as gfile
from weft_graph.ops.string_conversion import (
    decode_base64 as decode_base64,
    decode_raw as decode_raw,
    encode_base64 as encode_base64,
)
from weft_io.image.decoding import decode_image as decode_image
from weft_io.input.parsing import *
from weft_io.input.parsing import parse_sequence_example as parse_sequence_example
from weft_io.input.pipeline import match_filenames_once as match_filenames_once
from weft_io.input.ragged_features import RaggedFeature as RaggedFeature
from weft_io.input.readers import ParquetReader as ParquetReader
from weft_io.meta_graphs.graph_io import *
from weft_io.ops.files import *
from weft_io.ops.image_codecs import *
from weft_io.ops.parsing import *
from weft_io.ops.sparse_serialization import *
from weft_io.queues.queue import *
from weft_io.records.options import *
from weft_io.records.parquet import *
from weft_io.records.python_io import *
from weft_io.records.tfrecord import *

_lazy.hint(__name__)

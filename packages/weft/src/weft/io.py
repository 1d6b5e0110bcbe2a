"""`wf.io`: bytes in strings, and graphs in files."""

from weft_graph.ops.strings import (
    decode_base64 as decode_base64,
    decode_raw as decode_raw,
    encode_base64 as encode_base64,
)
from weft_io.graph_io import write_graph as write_graph

"""`wf.strings`: strings."""

from __future__ import annotations

from weft_graph.ops.strings import as_string as as_string
from weft_graph.ops.strings import format as format
from weft_graph.ops.strings import join as join
from weft_graph.ops.strings import length as length
from weft_graph.ops.strings import lower as lower
from weft_graph.ops.strings import reduce_join as reduce_join
from weft_graph.ops.strings import regex_full_match as regex_full_match
from weft_graph.ops.strings import regex_replace as regex_replace
from weft_graph.ops.strings import split as split
from weft_graph.ops.strings import strip as strip
from weft_graph.ops.strings import substr as substr
from weft_graph.ops.strings import to_hash_bucket as to_hash_bucket
from weft_graph.ops.strings import to_hash_bucket_fast as to_hash_bucket_fast
from weft_graph.ops.strings import to_hash_bucket_strong as to_hash_bucket_strong
from weft_graph.ops.strings import to_number as to_number
from weft_graph.ops.strings import upper as upper

"""`wf.strings`: strings."""

from __future__ import annotations

from weft_graph.ops.join import split as split
from weft_graph.ops.strings import as_string as as_string
from weft_graph.ops.strings import reduce_join as reduce_join
from weft_graph.ops.strings import regex_full_match as regex_full_match
from weft_graph.ops.strings import regex_replace as regex_replace
from weft_graph.ops.strings import substr as substr

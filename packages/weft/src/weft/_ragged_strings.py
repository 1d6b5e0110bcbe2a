"""Lazily loaded names of `weft.strings`, whose results are ragged."""

from weft_graph.ragged.text import *

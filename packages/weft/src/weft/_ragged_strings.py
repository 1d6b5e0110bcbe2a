"""Names of `wf.strings` whose results are ragged; they load when first used."""

from weft_graph.ragged.text import *

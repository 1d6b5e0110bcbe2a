"""`wf.lookup.experimental`: mutable lookup tables."""

from weft import _lazy
from weft_io.lookup.tables import (
    DenseHashTable as DenseHashTable,
    MutableHashTable as MutableHashTable,
)

_lazy.hint(__name__)

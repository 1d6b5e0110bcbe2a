"""`wf.lookup.experimental`: lookup tables that can be changed."""

from weft import _lazy
from weft_io.lookup.tables import (
    DenseHashTable as DenseHashTable,
    MutableHashTable as MutableHashTable,
)

_lazy.hint(__name__)

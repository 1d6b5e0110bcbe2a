"""`wf.lookup`: lookup tables."""

from weft import _lazy
from weft.lookup import experimental as experimental
from weft_io.lookup.initializers import *
from weft_io.lookup.tables import *
from weft_io.lookup.vocabulary import *

_lazy.hint(__name__)

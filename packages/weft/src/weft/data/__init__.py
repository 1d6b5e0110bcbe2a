"""`wf.data`: input pipelines."""

from weft import _lazy
from weft.data import (
    experimental as experimental,
)
from weft_io.data.cardinality import *
from weft_io.data.dataset import *
from weft_io.data.files_datasets import *
from weft_io.data.iterator import *
from weft_io.data.options import *
from weft_io.data.options import ThreadingOptions as ThreadingOptions
from weft_io.streams.prefetching import AUTOTUNE as AUTOTUNE

_lazy.hint(__name__)

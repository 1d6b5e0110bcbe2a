"""`wf.data`: input pipelines."""

from weft import _lazy
from weft.data import (
    experimental as experimental,
)
from weft_io.data.dataset import *
from weft_io.data.files_datasets import *
from weft_io.data.iterator import *

_lazy.hint(__name__)

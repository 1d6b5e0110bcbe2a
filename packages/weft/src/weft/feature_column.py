"""`wf.feature_column`: descriptions of features, and layers that read them."""

from weft import _lazy
from weft_io.feature_column.categorical import *
from weft_io.feature_column.dense import *
from weft_io.feature_column.models import *

_lazy.hint(__name__)

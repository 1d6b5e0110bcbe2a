"""`wf.train.experimental`: loss scales, and Python state in checkpoints of objects."""

from weft import _lazy as _lazy
from weft_autodiff.optimizers.loss_scale import *
from weft_io.tracking.objects import *

_lazy.hint(__name__)

"""`wf.train.experimental`: mixed precision, and Python state in object-based checkpoints."""

from weft import _lazy as _lazy
from weft_autodiff.optimizers.loss_scale import *
from weft_io.tracking.objects import *
from weft_io.training.mixed_precision import *

_lazy.hint(__name__)

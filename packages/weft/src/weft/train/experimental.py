"""`wf.train.experimental`: scales of losses, and what checkpoints of objects keep of Python."""

from weft import _lazy as _lazy
from weft_autodiff.optimizers.loss_scale import *
from weft_io.tracking.objects import *

_lazy.hint(__name__)

"""`wf.flags`: absl's flags under TensorFlow's name."""

from absl.flags import *
from absl.flags import FLAGS as FLAGS

from weft import _lazy

_lazy.hint(__name__)

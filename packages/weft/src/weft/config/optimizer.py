"""`wf.config.optimizer`: the rewrites applied to graphs before they run."""

from weft import _lazy
from weft_exec.settings import (
    get_experimental_options as get_experimental_options,
    get_jit as get_jit,
    set_experimental_options as set_experimental_options,
    set_jit as set_jit,
)

_lazy.hint(__name__)

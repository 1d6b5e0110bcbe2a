"""`wf.config.optimizer`: what is done to graphs before they run."""

from weft import _lazy
from weft_exec.settings import (
    get_experimental_options as get_experimental_options,
    set_experimental_options as set_experimental_options,
)

_lazy.hint(__name__)

"""`wf.config.experimental`: splitting the CPU into several devices."""

from weft import _lazy
from weft_exec.devices.virtual import *

_lazy.hint(__name__)

"""`wf.config.experimental`: splitting the CPU into several devices."""

from weft import _lazy
from weft_exec.devices.virtual import *
from weft_exec.devices.virtual import (
    get_visible_devices as get_visible_devices,
    list_logical_devices as list_logical_devices,
)

_lazy.hint(__name__)

"""`wf.config.experimental`: devices of sessions, and the use of their memory."""

from weft import _lazy
from weft_exec.devices.machine import *
from weft_exec.devices.virtual import *
from weft_exec.devices.virtual import list_logical_devices as list_logical_devices

_lazy.hint(__name__)

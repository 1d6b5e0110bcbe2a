"""`wf.config.experimental`: splitting the CPU into several devices."""

from weft_exec.devices.virtual import *

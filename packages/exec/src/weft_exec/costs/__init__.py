"""Estimates of the cost of steps, used to simulate placement (paper, section 3.2.1).

`CostModel` combines static estimates with measurements. Estimates are computed from static shapes,
the cost rules of ops (`work.py`) and the performance figures of devices. Measurements come from
traced steps
(`measurements.py`) and are saved in a file (`storage.py`).
"""

from weft_exec.costs.cost_graph import *
from weft_exec.costs.model import *
from weft_exec.costs.work import *
from weft_exec.devices.performance import *

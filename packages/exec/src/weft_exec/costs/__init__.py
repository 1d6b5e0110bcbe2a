"""What steps cost: the estimates that placement simulates with (paper, section 3.2.1).

`CostModel` combines what static shapes say by the rules of ops (`work.py`) and devices
tell of themselves with what traced steps took (`measurements.py`), and keeps the latter in a file
(`storage.py`).
"""

from weft_exec.costs.cost_graph import *
from weft_exec.costs.model import *
from weft_exec.costs.work import *
from weft_exec.devices.performance import *

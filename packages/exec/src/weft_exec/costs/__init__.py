"""What steps cost: the estimates that placement simulates with (paper, section 3.2.1).

`CostModel` combines what static shapes say (`work.py` and the tables beside it, `performance.py`)
with what traced steps took (`measurements.py`), and keeps the latter in a file (`storage.py`).
"""

from weft_exec.costs.cost_graph import fill_cost_graph as fill_cost_graph
from weft_exec.costs.model import CostModel as CostModel
from weft_exec.costs.performance import (
    DevicePerformance as DevicePerformance,
    LinkPerformance as LinkPerformance,
)
from weft_exec.costs.work import Work as Work, register_work as register_work

"""Sessions whose steps are edited by a pass that no session option enables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft as wf
from weft_exec.executor.priority import sort_by_priority
from weft_graph.ir.node import Node
from weft_graph.passes import StepGraph

Edit = Callable[[StepGraph], int]


class EditedSession(wf.Session):
    """A session whose steps are edited by a pass.

    Attributes:
      made: for each step that was derived, what the pass returned, and the step.
    """

    def __init__(self, edit: Edit, executor: str = "", devices: int = 1) -> None:
        config = wf.ConfigProto(inter_op_parallelism_threads=1, device_count={"CPU": devices})
        config.experimental.executor_type = executor
        super().__init__(config=config)
        self.made: list[tuple[int, StepGraph]] = []
        planner: Any = self._backend.planner
        prepare = planner._prepare

        def prepare_and_edit(*args: Any) -> StepGraph:
            step: StepGraph = prepare(*args)
            count = edit(step)
            step.graph.check_integrity()
            self.made.append((count, step))
            return step

        planner._prepare = prepare_and_edit

    def places(self, step: StepGraph) -> Callable[[Node], str]:
        """Return the device name of each node of a step."""
        places = self._backend.planner._placer.assign(sort_by_priority(step.live_nodes())).places
        return lambda node: places[node]

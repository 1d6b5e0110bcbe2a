"""Where each node runs: constraints, a simulated run, and a report of both (paper, 3.2.1, 4.3)."""

from weft_exec.placement.placer import Assigned, Placer
from weft_exec.placement.report import NodePlacement, PlacementReport

__all__ = ["Assigned", "NodePlacement", "PlacementReport", "Placer"]

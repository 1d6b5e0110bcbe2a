"""Placement of nodes on devices: constraints, simulation, report (paper, 3.2.1 and 4.3)."""

from weft_exec.placement.placer import Placer, StepPlacement
from weft_exec.placement.report import NodePlacement, PlacementReport

__all__ = ["NodePlacement", "PlacementReport", "Placer", "StepPlacement"]

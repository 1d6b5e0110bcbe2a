"""Reports of all tasks of a cluster, collected by one of them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from weft_distrib.cluster.connections import Connections
from weft_distrib.protocol import messages
from weft_graph.ir.device_spec import DeviceParts

REPORT_SECONDS: Final = 2.0
"""Seconds that a task may take to report."""

_ASKERS = 64


def gather(
    tasks: Sequence[DeviceParts], connections: Connections, report: messages.Report | None = None
) -> messages.Reports:
    """Request the reports of all tasks.

    Args:
      tasks: the tasks of the cluster, in the order of the reports.
      connections: the connections to the tasks.
      report: the own report of the calling task; None if the caller is not a task.
    """

    def ask(task: DeviceParts) -> messages.Report:
        if report is not None and task.to_string() == report.task:
            return report
        return connections.report(task, REPORT_SECONDS)

    with ThreadPoolExecutor(min(len(tasks), _ASKERS), "weft-report") as pool:
        return messages.Reports(list(pool.map(ask, tasks)))

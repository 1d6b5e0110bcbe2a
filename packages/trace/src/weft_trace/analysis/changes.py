"""Changes of a program: ops, nodes, links or waits that would need less time."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

import numpy as np
from numpy.typing import NDArray

from weft_trace.analysis.breakdown import scope_of
from weft_trace.analysis.steps import StepIndex
from weft_trace.errors import TraceError
from weft_trace.schema import Kind, Node

TARGETS: Final = ("op", "node", "scope", "line", "task", "link", "wait", "phase")
_BANDWIDTH: Final = re.compile(r"([0-9.]+(?:e[+-]?[0-9]+)?)\s*([kMGT]?)(bit|B)(?:/s)?", re.ASCII)
_UNITS: Final = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_TASK: Final = re.compile(r"/job:([^/]+)(?:/replica:\d+)?/task:(\d+)")
_KERNELS: Final = (Kind.KERNEL, Kind.REGION, Kind.GENERATED, Kind.COPY)
_KINDS: Final = {"wait": (Kind.WAIT,), "phase": (Kind.PHASE,)}


@dataclass(frozen=True)
class Change:
    """A change of durations.

    Attributes:
      target: one of `TARGETS`.
      pattern: shell pattern of the target's names.
      factor: by which durations are multiplied; None for a bandwidth.
      bandwidth: bandwidth of a link, in bytes per second.
    """

    target: str
    pattern: str
    factor: float | None = None
    bandwidth: float | None = None

    def __str__(self) -> str:
        if self.bandwidth is None:
            return f"--{self.target} {self.pattern}={self.factor:.3g}"
        return f"--{self.target} {self.pattern}={self.bandwidth * 8 / 1e9:.3g}Gbit"


def parse_change(target: str, text: str) -> Change:
    """Return the change of an option such as `--op Conv2D=0.5` or `--link ps0=10Gbit`.

    Raises: ValueError: the text is not PATTERN=FACTOR, or PATTERN=BANDWIDTH for a link.
    """
    pattern, equals, value = text.rpartition("=")
    if not equals or not pattern:
        raise ValueError(f"--{target} expects PATTERN=FACTOR, such as Conv2D=0.5, got {text!r}")
    bandwidth = _BANDWIDTH.fullmatch(value) if target == "link" else None
    try:
        if bandwidth is not None:
            number, prefix, unit = bandwidth.groups()
            rate = float(number) * _UNITS[prefix] / (8 if unit == "bit" else 1)
            if rate > 0:
                return Change(target, pattern, bandwidth=rate)
        factor = float(value)
    except ValueError:
        factor = -1.0
    if not 0 <= factor < float("inf"):
        bandwidth_hint = ", or a bandwidth such as 10Gbit" if target == "link" else ""
        raise ValueError(
            f"--{target} {text}: expected a factor of at least 0{bandwidth_hint}, got {value!r}"
        )
    return Change(target, pattern, factor)


def short_task(name: str) -> str:
    """Return the short name of a task: "ps0" for "/job:ps/task:0"."""
    match = _TASK.search(name)
    return f"{match[1]}{match[2]}" if match else name


def link_names(index: StepIndex, lane: int) -> list[str]:
    """Return the names of a link: of its lane, of its ends, and of both ends as "ps0->worker1"."""
    record = index.trace.lanes[lane]
    sender = short_task(record.name.partition("→")[0])
    receiver = short_task(index.trace.processes[record.process].name)
    return [f"{sender}->{receiver}", sender, receiver, record.name]


def match_events(index: StepIndex, change: Change, events: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return which events a change applies to."""
    kinds = index.kinds[events]
    if change.target == "link":
        names = [link_names(index, lane) for lane in range(len(index.trace.lanes))]
        is_named = _match_names(names, change)[index.lanes[events]]
        is_kind = kinds == Kind.TRANSFER
    elif change.target == "task":
        names = [[short_task(p.name), p.name] for p in index.trace.processes]
        is_named = _match_names(names, change)[index.processes[events]]
        is_kind = ~np.isin(kinds, (Kind.TRANSFER, Kind.RECEIVE, Kind.WAIT))
    else:
        nodes = index.trace.nodes
        names = [_names(nodes, i, change.target) for i in range(len(nodes))]
        is_named = _match_names(names, change)[index.nodes[events]]
        is_kind = np.isin(kinds, _KINDS.get(change.target, _KERNELS))
        if change.target == "wait" and change.pattern == "input":
            is_named = np.ones(len(events), bool)
    matched: NDArray[np.bool_] = is_kind & is_named
    return matched


def check_matches(index: StepIndex, changes: Sequence[Change]) -> None:
    """Raise TraceError if a change applies to no event of the trace; says what is similar."""
    events = np.arange(len(index.kinds))
    for change in changes:
        if match_events(index, change, events).any():
            continue
        names = _all_names(index, change.target)
        similar = difflib.get_close_matches(change.pattern, names, 3, 0.4) or names[:5]
        hint = f"; there are {', '.join(similar)}" if similar else ""
        raise TraceError(f"--{change.target} {change.pattern} matches nothing in the trace{hint}")


def _match_names(names: Sequence[Sequence[str]], change: Change) -> NDArray[np.bool_]:
    """Return, for each sequence of names, whether the pattern matches one of them."""
    match_cache: dict[str, bool] = {}

    def matches(name: str) -> bool:
        if name not in match_cache:
            match_cache[name] = fnmatchcase(name, change.pattern)
        return match_cache[name]

    return np.array([any(map(matches, some)) for some in names] or [False], bool)


def _names(nodes: Sequence[Node], i: int, target: str) -> list[str]:
    """Return the names of a node that a target may match; including the names of members."""
    node = nodes[i]
    if target == "op":
        return [node.op, *[nodes[m].op for m in node.members]]
    if target == "node":
        return [node.name, *node.origins, *[nodes[m].name for m in node.members]]
    if target == "scope":
        scope = scope_of(node)
        return [scope, *[scope[: m.start()] for m in re.finditer("/", scope)]]
    if target == "line":
        return [node.line]
    return [node.name, node.op]  # waits and phases


def _all_names(index: StepIndex, target: str) -> list[str]:
    if target == "link":
        lanes = np.unique(index.lanes[index.kinds == Kind.TRANSFER])
        return list(dict.fromkeys(n for i in lanes for n in link_names(index, int(i))[:3]))
    if target == "task":
        return [short_task(process.name) for process in index.trace.processes]
    nodes = index.trace.nodes
    kinds = _KINDS.get(target, _KERNELS)
    used = np.unique(index.nodes[np.isin(index.kinds, kinds)])
    return list(dict.fromkeys(n for i in used for n in _names(nodes, int(i), target) if n))

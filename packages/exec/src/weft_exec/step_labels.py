"""Labels of executions in step statistics: the node, its inputs and its iteration."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_LABEL: Final = re.compile(
    r"(?P<name>\S+) = (?P<op>\w+)\((?P<inputs>[^)]*)\)"
    r"(?: in iteration (?P<iteration>\d+))?"
    r"(?P<estimated>, estimated)?"
    r"(?:, after a wait of (?P<waited>\d+) ns)?"
    r"(?: (?P<note>.*))?"
)


class NodeLabel(NamedTuple):
    """The `timeline_label` of a NodeExecStats message.

    Attributes:
      name, op: the name and op type of the node.
      inputs: the names of the nodes whose outputs it reads.
      iteration: the tag of the iteration, which includes those of enclosing loops; 0 outside of
        loops, and in the first iteration of an outermost loop.
      estimated: True if the time is an estimated share of the time of a compiled region.
      waited: the nanoseconds from the request of a Receive until its value was sent.
      note: further information, such as the bytes and the link of a transfer.
    """

    name: str
    op: str
    inputs: tuple[str, ...] = ()
    iteration: int = 0
    estimated: bool = False
    waited: int = 0
    note: str = ""

    @classmethod
    def parse(cls, text: str, name: str) -> NodeLabel:
        """Parse a label; if it has another form, only the name of the node is known."""
        match = _LABEL.fullmatch(text)
        if match is None:
            return cls(name, name)
        return cls(
            match["name"],
            match["op"],
            tuple([part for part in match["inputs"].split(", ") if part]),
            int(match["iteration"] or 0),
            match["estimated"] is not None,
            int(match["waited"] or 0),
            match["note"] or "",
        )

    def __str__(self) -> str:
        return "".join(
            (
                f"{self.name} = {self.op}({', '.join(self.inputs)})",
                f" in iteration {self.iteration}" if self.iteration else "",
                ", estimated" if self.estimated else "",
                f", after a wait of {self.waited} ns" if self.waited else "",
                f" {self.note}" if self.note else "",
            )
        )

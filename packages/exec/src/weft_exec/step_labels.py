"""The text by which step statistics name an execution, its inputs and its iteration."""

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
      name, op: of the node.
      inputs: names of the nodes whose outputs it takes.
      iteration: tag of the iteration, with those of the loops around it; 0 outside of loops, and
        in the first iteration of an outermost one.
      estimated: the time is a share of that of a compiled region, and not measured.
      waited: nanoseconds from when a Receive asked for its value until it was sent.
      note: anything more, such as the bytes and the link of a transfer.
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
        """Read a label; of one in another form the node's name is all that is known."""
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

"""Ops that planning adds to the graphs of steps."""

from __future__ import annotations

from typing import Final

from weft_graph.ir.costs import free
from weft_graph.ir.op_def import register_op
from weft_graph.ir.traits import Role, State, Traits

SEND: Final = "_Send"
RECEIVE: Final = "_Recv"
TRUNCATE: Final = "_TruncateMantissa"
EXTEND: Final = "_ExtendMantissa"
FETCH: Final = "_Fetch"
REGION: Final = "_Region"

_TRANSFER = {
    "tensor_name": "string",
    "send_device": "string",
    "recv_device": "string",
}

register_op(
    SEND,
    inputs=("tensor: T",),
    attrs={"T": "type", **_TRANSFER},
    shape=lambda node: [],
    traits=Traits(state=State.WRITES, role=Role.SEND, asynchronous=True, cost=free),
    doc="Sends a value to the device whose Receive has the same name.",
)

register_op(
    RECEIVE,
    outputs=("tensor: tensor_type",),
    attrs={"tensor_type": "type", **_TRANSFER},
    shape=lambda node: [None],
    traits=Traits(state=State.WRITES, role=Role.RECEIVE, asynchronous=True, cost=free),
    doc="The value of the Send of the same name; dead if that was dead.",
)

register_op(
    TRUNCATE,
    inputs=("x: float32",),
    outputs=("y: bfloat16",),
    shape=lambda node: [node.inputs[0].dims],
    doc="The upper halves of float32 values; NaNs stay NaNs.",
)

register_op(
    EXTEND,
    inputs=("x: bfloat16",),
    outputs=("y: float32",),
    shape=lambda node: [node.inputs[0].dims],
    doc="float32 values with the given upper halves and zeros below.",
)

register_op(
    FETCH,
    inputs=("value: T",),
    attrs={"T": "type", "index": "int >= 0"},
    shape=lambda node: [],
    traits=Traits(state=State.WRITES, cost=free),
    doc="In the serialized form of a part: the value returned at an index of the signature.",
)

register_op(
    REGION,
    inputs=("args: Tin",),
    outputs=("results: Tout",),
    attrs={
        "Tin": "list(type) >= 0",
        "Tout": "list(type) >= 0",
        "members": "list(string)",
        "updates": "list(int)",
    },
    shape=lambda node: [None] * len(node.attrs["Tout"]),
    doc="Several nodes of a part, by their names, that one function computes together; `updates` "
    "are the positions of the inputs whose variables it changes.",
)

DEPTH: Final = "_depth"
"""Attribute of a Receive: the number of transfers in sequence up to this one. For an Exit: the
number before it, including those in its loop.
"""

GUARD: Final = "_guard"
"""Attribute of a Receive whose value may be dead: the number of its guard at the sender."""

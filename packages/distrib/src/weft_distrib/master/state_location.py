"""Location of existing state, for nodes that do not request a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from weft_distrib.master.limits import WaitLimit
from weft_distrib.protocol import messages
from weft_distrib.protocol.tables import decode
from weft_distrib.wire.channel import Answer
from weft_distrib.wire.future import Reply
from weft_graph.ir.device_spec import DeviceParts
from weft_graph.ir.node import Node
from weft_tensor import errors


class Finder(Protocol):
    """Interface of a task whose resources can be queried."""

    def find(self, request: messages.Find, answer: Answer) -> None:
        """Query the resources of the task; `answer` receives a `messages.Found`."""
        ...


def locate_state(
    nodes: Sequence[Node],
    device_parts: DeviceParts,
    tasks: Mapping[DeviceParts, Finder],
    limit: WaitLimit,
) -> dict[str, DeviceParts | errors.OpError]:
    """Return the tasks that own the state of some nodes, or errors if that is unknown.

    State that no other task owns is in the master's task. A lost task owns nothing.

    Args:
      nodes: nodes that create state, or look it up by container and name.
      device_parts: the master's task.
      tasks: all tasks.
      limit: the time limit for their answers.
    Returns: a task or an error by node name, for nodes whose state is not in the master's task.
    """
    keys = [_key_of(node) for node in nodes]
    request = messages.Find([key[0] for key in keys], [key[1] for key in keys])
    replies = []
    for task, finder in tasks.items():
        reply = Reply()
        finder.find(request, reply)
        replies.append((task, reply))
    having: list[list[DeviceParts]] = [[] for _ in nodes]
    for task, reply in replies:
        for i, is_local in enumerate(_receive_locations(task, reply, limit, len(nodes))):
            if is_local:
                having[i].append(task)
    result: dict[str, DeviceParts | errors.OpError] = {}
    for node, holders in zip(nodes, having, strict=True):
        if holders and device_parts not in holders:
            result[node.name] = holders[0] if len(holders) == 1 else _ambiguous_error(node, holders)
    return result


def _key_of(node: Node) -> tuple[str, str]:
    attrs = node.attrs
    return attrs.get("container") or "", attrs.get("shared_name") or node.name


def _receive_locations(
    task: DeviceParts, reply: Reply, limit: WaitLimit, count: int
) -> Sequence[int]:
    while not reply.wait(limit.next_wait(f"{task.to_string()} did not report its state")):
        pass
    try:
        _, meta = reply.result()
    except errors.UnavailableError:
        return [0] * count
    is_local = decode(messages.Found, meta).here
    if len(is_local) != count:
        raise errors.DataLossError(
            f"{task.to_string()} must report on {count} resources, got {len(is_local)}"
        )
    return is_local


def _ambiguous_error(node: Node, holders: Sequence[DeviceParts]) -> errors.OpError:
    names = " and ".join(sorted(task.to_string() for task in holders))
    return errors.InvalidArgumentError(
        f"{names} each have a resource named {_key_of(node)[1]!r}: request a device to select one",
        op=node.type,
        node=node.name,
        line=node.line or None,
    )

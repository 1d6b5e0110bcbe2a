"""Formation of groups: a plain object driven by members that join and leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from weft_graph.ir.device_spec import parse
from weft_tensor import errors


class Member(NamedTuple):
    """One device of a group.

    Attributes:
      device: its full name.
      number: identifies its rendezvous; it is new each time that the device joins.
    """

    device: str
    number: int


Outcome = tuple[Member, ...] | errors.OpError
"""The members of a group in order, or the error if it was not formed."""

Answer = Callable[[Outcome], None]
GroupAnswers = list[tuple[Answer, Outcome]]
"""Receivers of answers, with the outcomes to send to them."""


@dataclass
class _FormingGroup:
    size: int
    members: dict[str, Member] = field(default_factory=dict)
    answers: dict[int, Answer] = field(default_factory=dict)


class Groups:
    """The groups that are waiting for members.

    A group is formed when all of its devices have joined, and is then removed here. After a group
    is lost, all members must join again to form a new one.
    """

    def __init__(self) -> None:
        self._forming: dict[int, _FormingGroup] = {}

    def join(self, key: int, size: int, member: Member, answer: Answer) -> GroupAnswers:
        """Add a device to a group."""
        group = self._forming.setdefault(key, _FormingGroup(size))
        if group.size != size:
            return [(answer, _sizes_differ(key, group, size, member))]
        answers: GroupAnswers = []
        former = group.members.get(member.device)
        if former is not None:
            error = errors.AbortedError(
                f"{member.device} cannot join group {key} from another session"
            )
            answers.append((group.answers.pop(former.number), error))
        group.members[member.device] = member
        group.answers[member.number] = answer
        if len(group.members) == size:
            del self._forming[key]
            values = tuple(sorted(group.members.values(), key=lambda item: _order(item.device)))
            answers += [(group.answers[item.number], values) for item in values]
        return answers

    def leave(self, key: int, number: int) -> None:
        """Remove a waiting device; does nothing if the group has been formed."""
        self._take(key, number)

    def expire(self, key: int, number: int, seconds: float) -> GroupAnswers:
        """Let the wait of a device time out; does nothing if the group has been formed."""
        group = self._forming.get(key)
        members = [] if group is None else sorted(group.members, key=_order)
        answer = self._take(key, number)
        if group is None or answer is None:
            return []
        return [
            (
                answer,
                errors.DeadlineExceededError(
                    f"group {key} has {len(members)} of {group.size} members after {seconds:g} s: "
                    f"only {', '.join(members)} joined"
                ),
            )
        ]

    def _take(self, key: int, number: int) -> Answer | None:
        group = self._forming.get(key)
        answer = None if group is None else group.answers.pop(number, None)
        if group is None or answer is None:
            return None
        group.members = {d: m for d, m in group.members.items() if m.number != number}
        if not group.members:
            del self._forming[key]
        return answer

    @property
    def waiting(self) -> int:
        """The number of waiting devices."""
        return sum(len(group.answers) for group in self._forming.values())


def _order(device: str) -> tuple[str, int, int, str, int]:
    job, replica, task, kind, index = parse(device)[:5]
    return job or "", replica or 0, task or 0, kind or "", index or 0


def _sizes_differ(key: int, group: _FormingGroup, size: int, member: Member) -> errors.OpError:
    other_members = ", ".join(sorted(group.members, key=_order))
    return errors.InvalidArgumentError(
        f"group {key} has {group.size} members for {other_members} and "
        f"{size} for {member.device}: all members must have the same group_size"
    )

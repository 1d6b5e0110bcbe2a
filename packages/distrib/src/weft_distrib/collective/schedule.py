"""Communication schedules: pure functions of a member's rank in its group.

A buffer of elements is exchanged in pieces. A schedule is the sequence of actions of one member.
Sends never wait, so a piece is forwarded as soon as it was received and merged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

SEND: Final = "send"
GIVE: Final = "give"
"""Send a copy, because the piece may change before the other member receives it."""
MERGE: Final = "merge"
"""Receive a piece and merge it with one's own."""
FOLD: Final = "fold"
"""Receive a piece from all other members, and merge all in the order of the members."""
STORE: Final = "store"
"""Receive a piece that replaces one's own."""
FINISH: Final = "finish"
"""Apply the final operation to a completely merged piece."""


class Action(NamedTuple):
    """One action of a schedule.

    Attributes:
      kind: one of the kinds above.
      peer: the rank of the other member; the own rank if all members or none take part.
      start, stop: the elements of the piece.
      phase: distinguishes pieces that a member sends twice to the same member.
    """

    kind: str
    peer: int
    start: int
    stop: int
    phase: str


Range = tuple[int, int]
Schedule = Iterator[Action]


def segments(count: int, size: int) -> list[Range]:
    """Split `count` elements into one segment per member; sizes differ by at most one."""
    return [(count * i // size, count * (i + 1) // size) for i in range(size)]


def pieces(segment: Range, piece: int) -> list[Range]:
    """Split a segment into pieces of at most `piece` elements."""
    start, stop = segment
    return [(index, min(index + piece, stop)) for index in range(start, stop, piece)]


def ring(rank: int, size: int, count: int, piece: int) -> Schedule:
    """Reduce by a ring: segments circulate once while they are merged, then once more.

    For any size, each member sends 2 (size - 1) / size of the buffer.
    """
    parts = [pieces(segment, piece) for segment in segments(count, size)]
    left, right = (rank - 1) % size, (rank + 1) % size
    for start, stop in parts[rank]:
        yield Action(SEND, right, start, stop, "merge")
    for i in range(1, size):
        last = i == size - 1
        for start, stop in parts[(rank - i) % size]:
            yield Action(MERGE, left, start, stop, "merge")
            if last:
                yield Action(FINISH, rank, start, stop, "")
            yield Action(SEND, right, start, stop, "store" if last else "merge")
    for iteration in range(size - 1):
        for start, stop in parts[(rank - iteration) % size]:
            yield Action(STORE, left, start, stop, "store")
            if iteration < size - 2:
                yield Action(SEND, right, start, stop, "store")


def tree(rank: int, size: int, count: int, piece: int) -> Schedule:
    """Reduce by a binomial tree: up to the first member and down again, in log(size) rounds."""
    parent, children = family(rank, size)
    for start, stop in pieces((0, count), piece):
        for child in reversed(children):
            yield Action(MERGE, child, start, stop, "merge")
        if rank:
            yield Action(SEND, parent, start, stop, "merge")
        else:
            yield Action(FINISH, rank, start, stop, "")
            for child in children:
                yield Action(SEND, child, start, stop, "store")
    if rank:
        yield from _broadcast_steps(parent, children, count, piece)


def broadcast(rank: int, size: int, count: int, piece: int, source: int) -> Schedule:
    """Broadcast the buffer of one member by a binomial tree."""
    parent, children = family(rank, size, source)
    if rank != source:
        yield from _broadcast_steps(parent, children, count, piece)
        return
    for start, stop in pieces((0, count), piece):
        for child in children:
            yield Action(SEND, child, start, stop, "store")


def family(rank: int, size: int, root: int = 0) -> tuple[int, list[int]]:
    """Return the parent and the children of a member in a binomial tree, larger subtrees first.

    The root is its own parent.
    """
    position = (rank - root) % size
    children, step = [], 1
    while not position & step and position + step < size:
        children.append((position + step + root) % size)
        step *= 2
    return ((position & (position - 1)) + root) % size, children[::-1]


def _broadcast_steps(parent: int, children: list[int], count: int, piece: int) -> Schedule:
    for start, stop in pieces((0, count), piece):
        yield Action(STORE, parent, start, stop, "store")
        for child in children:
            yield Action(SEND, child, start, stop, "store")


def direct(rank: int, size: int, count: int, piece: int) -> Schedule:
    """Send all to all and merge in the order of the members, in a single round."""
    parts = pieces((0, count), piece)
    for start, stop in parts:
        for peer in _other_ranks(rank, size):
            yield Action(GIVE, peer, start, stop, "merge")
    for start, stop in parts:
        yield Action(FOLD, rank, start, stop, "merge")
        yield Action(FINISH, rank, start, stop, "")


def ordered_schedule(rank: int, size: int, count: int, piece: int) -> Schedule:
    """Have each member merge one segment in member order and send it to all.

    Each member sends the same number of bytes as in a ring, but to all others.
    """
    parts = [pieces(segment, piece) for segment in segments(count, size)]
    peers = _other_ranks(rank, size)
    for peer in peers:
        for start, stop in parts[peer]:
            yield Action(SEND, peer, start, stop, "merge")
    for start, stop in parts[rank]:
        yield Action(FOLD, rank, start, stop, "merge")
        yield Action(FINISH, rank, start, stop, "")
        for peer in peers:
            yield Action(SEND, peer, start, stop, "store")
    for peer in reversed(peers):
        for start, stop in parts[peer]:
            yield Action(STORE, peer, start, stop, "store")


def gather(rank: int, size: int, count: int, piece: int) -> Schedule:
    """Gather by a ring: each member's segment circulates once."""
    parts = [pieces(segment, piece) for segment in segments(count, size)]
    left, right = (rank - 1) % size, (rank + 1) % size
    if size > 1:
        for start, stop in parts[rank]:
            yield Action(SEND, right, start, stop, "store")
    for i in range(1, size):
        for start, stop in parts[(rank - i) % size]:
            yield Action(STORE, left, start, stop, "store")
            if i < size - 1:
                yield Action(SEND, right, start, stop, "store")


def _other_ranks(rank: int, size: int) -> list[int]:
    """Return the ranks of the other members, starting with the next one, to spread the load."""
    return [(rank + i) % size for i in range(1, size)]

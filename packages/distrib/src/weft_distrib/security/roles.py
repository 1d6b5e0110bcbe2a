"""Roles of callers: a client of sessions, or a task of the cluster."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from weft_tensor import errors


class Role(IntEnum):
    """The role of a caller; a peer may do everything that a client may.

    CLIENT: opens sessions and runs steps.
    PEER: another task of the cluster; it may run partitions, pull values and drop state.
    """

    CLIENT = 1
    PEER = 2

    @property
    def uri(self) -> str:
        """The URI that represents the role among the alternative names of a certificate."""
        return f"weft:{self.name.lower()}"


def role_of(uris: Iterable[str]) -> Role:
    """Return the role that a certificate grants: CLIENT unless it names another role."""
    return Role.PEER if Role.PEER.uri in uris else Role.CLIENT


def require(role: Role, expected: Role, label: str, caller: str) -> None:
    """Raise if the role of a caller does not permit a call.

    Raises: PermissionDeniedError: the message names the required role and says how to get it.
    """
    if role < expected:
        raise errors.PermissionDeniedError(
            f"{label} is only permitted for tasks of the cluster, but {caller} is a client: its "
            "certificate lacks "
            f"URI:{Role.PEER.uri}, or its token is a client token"
        )

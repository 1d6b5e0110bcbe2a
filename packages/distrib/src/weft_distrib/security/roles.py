"""What a caller may do: as a client of sessions, or as a task among tasks."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from weft_tensor import errors


class Role(IntEnum):
    """What a caller is; whoever may do what a peer does may do what a client does.

    CLIENT: opens sessions and runs steps.
    PEER: another task of the cluster, which runs parts, pulls values and drops state.
    """

    CLIENT = 1
    PEER = 2

    @property
    def uri(self) -> str:
        """How a certificate names the role, among its alternative names."""
        return f"weft:{self.name.lower()}"


def role_of(uris: Iterable[str]) -> Role:
    """The role that a certificate gives: that of a client unless it names another one."""
    return Role.PEER if Role.PEER.uri in uris else Role.CLIENT


def require(role: Role, wanted: Role, what: str, who: str) -> None:
    """Refuse what a role may not do.

    Raises: PermissionDeniedError: says what was wanted, and how to get it.
    """
    if role < wanted:
        raise errors.PermissionDeniedError(
            f"{what} is for tasks of the cluster, and {who} is a client: its certificate lacks "
            f"URI:{Role.PEER.uri}, or its token is that of clients"
        )

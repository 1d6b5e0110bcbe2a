"""Scopes of shared state: private, named and per-target containers (paper, section 4.7)."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable

from weft_exec.resources.resources import R, ResourceManager

_named = ResourceManager()
_targets: dict[str, ResourceManager] = {}
_lock = threading.Lock()
_sessions = itertools.count()


class SessionResources(ResourceManager):
    """The resources of a local session: private ones, and the named containers of the process."""

    def __init__(self) -> None:
        super().__init__(f"session_{next(_sessions)}")

    @property
    def epoch(self) -> int:
        """A number that grows when a resource is deleted in the session or in a named container."""
        return self._epoch + _named.epoch

    def _owner(self, container: str) -> ResourceManager:
        private = not container or container == self.default_container
        return super() if private else _named  # type: ignore[return-value]

    def lookup_or_create(
        self, container: str, name: str, cls: type[R], factory: Callable[[], R]
    ) -> R:
        """See the base class; the manager of the container is used."""
        return self._owner(container).lookup_or_create(container, name, cls, factory)

    def lookup(self, container: str, name: str, cls: type[R]) -> R:
        """See the base class; the manager of the container is used."""
        return self._owner(container).lookup(container, name, cls)

    def delete(self, container: str, name: str) -> None:
        """See the base class; the manager of the container is used."""
        self._owner(container).delete(container, name)

    def clear(self, containers: Iterable[str] | None = None) -> None:
        """Clear the given containers.

        Without an argument, only the private resources of the session.
        """
        if containers is None:
            super().clear()
        else:
            for container in containers:
                self._owner(container).clear([container])

    def resources(self, cls: type[R], container: str | None = None) -> list[R]:
        """See the base class.

        Without a container, returns private resources and those of all named containers.
        """
        if container is None:
            return [*super().resources(cls), *_named.resources(cls)]
        return self._owner(container).resources(cls, container)


class SharedResources(ResourceManager):
    """The resources of a session that shares its state with others.

    Args:
      shared: the shared state. Private state of the session is in `own`.
    """

    def __init__(self, shared: ResourceManager) -> None:
        super().__init__(shared.default_container)
        self._shared = shared
        self._private = ResourceManager(shared.default_container)

    @property
    def own(self) -> ResourceManager:
        """See the base class; the creator of this object clears it when the session ends."""
        return self._private

    @property
    def shared(self) -> ResourceManager:
        """See the base class."""
        return self._shared

    @property
    def epoch(self) -> int:
        """A number that grows when a resource is deleted that the session can see."""
        return self._shared.epoch + self._private.epoch

    def _owner(self, container: str, name: str) -> ResourceManager:
        return self._private if self._private.has(container, name) else self._shared

    def lookup_or_create(
        self, container: str, name: str, cls: type[R], factory: Callable[[], R]
    ) -> R:
        """See the base class; resources are created in the shared state."""
        return self._shared.lookup_or_create(container, name, cls, factory)

    def lookup(self, container: str, name: str, cls: type[R]) -> R:
        """See the base class; private state of the session comes first."""
        return self._owner(container, name).lookup(container, name, cls)

    def has(self, container: str, name: str) -> bool:
        """See the base class."""
        return self._owner(container, name).has(container, name)

    def delete(self, container: str, name: str) -> None:
        """See the base class; private state of the session comes first."""
        self._owner(container, name).delete(container, name)

    def advance_epoch(self) -> None:
        """See the base class; only this session is affected."""
        self._private.advance_epoch()

    def clear(self, containers: Iterable[str] | None = None) -> None:
        """See the base class; shared state is cleared too."""
        self._private.clear(containers)
        self._shared.clear(containers)

    def resources(self, cls: type[R], container: str | None = None) -> list[R]:
        """See the base class; returns private and shared resources."""
        return [*self._private.resources(cls, container), *self._shared.resources(cls, container)]


def shared_resources(target: str) -> ResourceManager:
    """Return the manager shared by all sessions on `target`."""
    with _lock:
        return _targets.setdefault(target, ResourceManager())


def clear_named(containers: Iterable[str] | None) -> None:
    """Clear some or all named containers of this process."""
    _named.clear(containers)


def clear_shared(target: str, containers: Iterable[str] | None) -> None:
    """Clear some or all containers shared by the sessions on `target`."""
    with _lock:
        manager = _targets.get(target)
    if manager is not None:
        manager.clear(containers)

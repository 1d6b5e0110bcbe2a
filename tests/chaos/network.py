"""Processes in separate network namespaces, joined by a bridge, that can be cut off."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

NET = "10.83.7"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class Network:
    """Namespaces with one link each; without the privilege there are none.

    Args:
      name: which all names begin with; at most 6 letters.
      names: of the processes.
      unwanted: why there shall be none; "" where they are wanted.
    Attributes:
      why_not: why nothing can be cut off; "" where it can.
    """

    def __init__(self, name: str, names: Sequence[str], unwanted: str = "") -> None:
        self._hub = f"{name}-hub"
        self._numbers = {each: i + 1 for i, each in enumerate(names)}
        self._spaces = {each: f"{name}-{i + 1}" for i, each in enumerate(names)}
        self.why_not = unwanted
        if unwanted:
            return
        try:
            self._make()
        except (OSError, subprocess.CalledProcessError) as error:
            self.why_not = (
                f"no network namespaces: {getattr(error, 'stderr', None) or error}".strip()
            )
            self.close()

    def _make(self) -> None:
        _ip("netns", "add", self._hub)
        _ip("-n", self._hub, "link", "add", "hub", "type", "bridge")
        _ip("-n", self._hub, "link", "set", "hub", "up")
        for each, space in self._spaces.items():
            number = self._numbers[each]
            _ip("netns", "add", space)
            _ip("-n", space, "link", "set", "lo", "up")
            pair = f"eth0 type veth peer name v{number} netns {self._hub}"
            _ip("-n", space, "link", "add", *pair.split())
            _ip(*f"-n {space} addr add {NET}.{number}/24 dev eth0".split())
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip(*f"-n {self._hub} link set v{number} master hub up".split())

    def host(self, name: str) -> str:
        """Return the address of a process."""
        return "localhost" if self.why_not else f"{NET}.{self._numbers[name]}"

    def within(self, name: str) -> list[str]:
        """Return the command prefix that runs a process in its namespace."""
        return [] if self.why_not else ["ip", "netns", "exec", self._spaces[name]]

    def cut(self, name: str) -> None:
        """Drop all packets from and to a process."""
        _ip(*f"-n {self._hub} link set v{self._numbers[name]} down".split())

    def mend(self, name: str) -> None:
        """Let packets through again."""
        _ip(*f"-n {self._hub} link set v{self._numbers[name]} up".split())

    def close(self) -> None:
        """Remove the namespaces."""
        for space in [*self._spaces.values(), self._hub]:
            if os.path.exists(f"/var/run/netns/{space}"):
                subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)

    @property
    def left(self) -> list[str]:
        """Return the remaining namespaces."""
        spaces = [*self._spaces.values(), self._hub]
        return [space for space in spaces if os.path.exists(f"/var/run/netns/{space}")]

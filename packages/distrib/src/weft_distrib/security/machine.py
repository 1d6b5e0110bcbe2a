"""The identity of this machine, and whether processes can share memory."""

from __future__ import annotations

import hashlib
import os
import sys
from functools import cache
from pathlib import Path


def has_shared_memory() -> bool:
    """Return True if processes of this system can pass shared memory to each other."""
    return sys.platform == "linux" and hasattr(os, "memfd_create")


@cache
def machine() -> str:
    """Return a text that is equal in processes that can share memory; "" if unknown.

    It is a hash of the boot id, the network namespace and the user. It is not a secret, so it does
    not authenticate anyone.
    """
    if not has_shared_memory():
        return ""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        network = os.stat("/proc/self/ns/net").st_ino
    except OSError:
        return ""
    identity = b"%s %d %d" % (boot, network, os.geteuid())
    return hashlib.blake2b(identity, digest_size=8).hexdigest()

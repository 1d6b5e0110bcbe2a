"""What of a step may run side by side."""

from __future__ import annotations

from enum import Enum


class Overlap(Enum):
    """What of a step is scheduled so that it may run side by side."""

    NOTHING = "asynchronous kernels only"
    HEAVY = "kernels that are worth a thread, too"
    EVERYTHING = "every node"

    @classmethod
    def of(cls, executor_type: str, threads: int) -> Overlap:
        """What an executor type of `ConfigProto` asks for, with that many threads."""
        if executor_type == "READY_QUEUE":
            return cls.EVERYTHING
        return cls.HEAVY if threads > 1 else cls.NOTHING

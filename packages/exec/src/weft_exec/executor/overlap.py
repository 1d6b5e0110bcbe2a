"""The degree of parallelism within a step."""

from __future__ import annotations

from enum import Enum


class Overlap(Enum):
    """The nodes of a step that may run in parallel."""

    NOTHING = "asynchronous kernels only"
    HEAVY = "also kernels long enough to repay a thread"
    EVERYTHING = "every node"

    @classmethod
    def of(cls, executor_type: str, threads: int) -> Overlap:
        """Return the overlap for an executor type of `ConfigProto` and a number of threads."""
        if executor_type == "READY_QUEUE":
            return cls.EVERYTHING
        return cls.HEAVY if threads > 1 else cls.NOTHING

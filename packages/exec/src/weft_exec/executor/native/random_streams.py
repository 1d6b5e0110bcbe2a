"""Executions of streams that a call of compiled code begins.

An op that does not run begins none. Which ops run in branches and in iterations of loops is only
known after the call, so executions that were not drawn from are given back then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft_exec.kernels.philox import RandomStream


class Executions:
    """The executions of some streams, which begin with the call.

    Attributes:
      states: counter and key of each; see `RandomStream.next_state`.
    """

    def __init__(self, streams: Sequence[RandomStream]) -> None:
        self._streams = streams
        self._begun = [stream.is_begun() for stream in streams]
        self.states = [stream.next_state() for stream in streams]

    def return_unused(self, drew: Iterable[bool] = ()) -> None:
        """Return the unused executions, unless this step had begun them before.

        Args:
          drew: per stream whether its op has run; empty if none has.
        """
        used_flags = list(drew) or [False] * len(self._streams)
        for stream, state, state_before, has_drawn in zip(
            self._streams, self.states, self._begun, used_flags, strict=True
        ):
            if not (state_before or has_drawn):
                stream.return_unused(state[2])

"""A stand-in for `cupy.cuda.nccl`: communicators between the GPUs of this process.

As in NCCL, an operation begins on a device's stream when all participants have enqueued it, in the
order of each participant. Here the enqueuing thread waits for that. Calls that would hang NCCL or
give wrong results raise an error.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import Any

import numpy as np

from cupy_standin import arrays, cuda

LIMIT = 30.0
"""Seconds after which a wait for the other ranks fails."""

_TYPES = {
    "INT8": 0, "UINT8": 1, "INT32": 2, "UINT32": 3, "INT64": 4, "UINT64": 5, "FLOAT16": 6,
    "FLOAT32": 7, "FLOAT64": 8,
}  # fmt: skip
_OPS = {"SUM": 0, "PROD": 1, "MAX": 2, "MIN": 3}
_MERGES = {0: np.add, 1: np.multiply, 2: np.maximum, 3: np.minimum}
_DTYPES = {number: np.dtype(name.lower()) for name, number in _TYPES.items()}

_serial = itertools.count(1)
_cliques: dict[bytes, _Clique] = {}
_lock = threading.Lock()
open_ends: weakref.WeakSet[NcclCommunicator] = weakref.WeakSet()
"""Communicators that are neither destroyed, aborted nor garbage-collected."""


class NcclError(RuntimeError):
    """CuPy's NcclError."""


class _Clique:
    """All communicators with the same unique id."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.changed = threading.Condition()
        self.devices: dict[int, int] = {}
        self.calls: dict[int, dict[int, _Call]] = {}

    def wait(self, until: Any, what: str) -> None:
        if not self.changed.wait_for(until, LIMIT):
            raise AssertionError(f"NCCL would hang: {what}")


class _Call:
    def __init__(self, what: tuple[Any, ...], send: Any, receive: Any) -> None:
        self.what, self.send, self.receive = what, send, receive
        self.over = False
        self.error: NcclError | None = None


class NcclCommunicator:
    """Like `cupy.cuda.nccl.NcclCommunicator`."""

    def __init__(self, ndev: int, commId: bytes, rank: int) -> None:
        if not isinstance(commId, bytes) or len(commId) != 128:
            raise ValueError(f"commId must be 128 bytes, got {commId!r}")
        with _lock:
            clique = self._clique = _cliques.setdefault(commId, _Clique(ndev))
        self._rank, self._device = rank, cuda.current_device()
        self._count, self._ended = 0, False
        with clique.changed:
            if clique.size != ndev or rank in clique.devices or not 0 <= rank < ndev:
                raise NcclError("NCCL_ERROR_INVALID_ARGUMENT: invalid argument")
            clique.devices[rank] = self._device
            clique.changed.notify_all()
            clique.wait(lambda: len(clique.devices) == ndev, f"rank {rank} waits for the others")
            if len(set(clique.devices.values())) < ndev:
                raise NcclError("NCCL_ERROR_INVALID_USAGE: Duplicate GPU detected")
        open_ends.add(self)

    def allReduce(  # noqa: N802
        self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int
    ) -> None:
        self._call(("allReduce", count, datatype, op), sendbuf, recvbuf, count, count, stream)

    def allGather(  # noqa: N802
        self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int
    ) -> None:
        what = "allGather", count, datatype
        self._call(what, sendbuf, recvbuf, count, count * self._clique.size, stream)

    def broadcast(
        self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, stream: int
    ) -> None:
        self._call(("broadcast", count, datatype, root), sendbuff, recvbuff, count, count, stream)

    def _call(
        self, what: tuple[Any, ...], send: int, receive: int, given: int, got: int, stream: int
    ) -> None:
        assert not self._ended, "a communicator that has ended"
        clique, dtype = self._clique, _DTYPES[what[2]]
        call = _Call(what, _flat(send, given, dtype), _flat(receive, got, dtype))
        self._enqueue(cuda.streams[stream], send, receive, what[0])
        with clique.changed:
            number, self._count = self._count, self._count + 1
            calls = clique.calls.setdefault(number, {})
            calls[self._rank] = call
            if len(calls) == clique.size:
                _execute([clique.calls[number][rank] for rank in range(clique.size)])
                del clique.calls[number]
            clique.changed.notify_all()
            clique.wait(lambda: call.over or self._ended, f"nobody else came to {what}")
        if call.error is not None:
            raise call.error

    def _enqueue(self, stream: Any, send: int, receive: int, what: str) -> None:
        if cuda.current_device() != self._device or stream.device != self._device:
            raise NcclError("NCCL_ERROR_INVALID_USAGE: another device's stream")
        seq = stream.begin(what)
        arrays.at[send]._buffer.read(stream, seq)
        arrays.at[receive]._buffer.write(stream, seq)

    def check_async_error(self) -> None:
        assert not self._ended, "a communicator that has ended"

    def abort(self) -> None:
        with self._clique.changed:
            self._ended = True
            open_ends.discard(self)
            self._clique.changed.notify_all()

    def destroy(self) -> None:
        self.abort()


def _flat(pointer: int, count: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return the array at an address, which must be alive."""
    array = arrays.at[pointer]._a
    assert array.flags.c_contiguous, "NCCL takes a pointer"
    found: np.ndarray[Any, Any] = array.reshape(-1).view(dtype)
    assert count <= found.size, "NCCL would read or write past the end"
    return found[:count]


def _execute(calls: list[_Call]) -> None:
    kinds = {call.what for call in calls}
    for call in calls:
        call.over = True
        if len(kinds) > 1:
            call.error = NcclError(f"NCCL would hang, or worse: members call {sorted(kinds)}")
    if len(kinds) > 1:
        return
    (what,) = kinds
    sent = [call.send for call in calls]
    if what[0] == "allReduce":
        with np.errstate(all="ignore"):
            value = _MERGES[what[3]].reduce(sent)  # type: ignore[attr-defined] # a ufunc
    else:
        value = np.concatenate(sent) if what[0] == "allGather" else sent[what[3]].copy()
    for call in calls:
        call.receive[...] = value


def get_unique_id() -> bytes:
    """Return a unique id: 128 bytes."""
    return next(_serial).to_bytes(128, "little")


def content(available: bool) -> dict[str, Any]:
    """Return the contents of `cupy.cuda.nccl`; empty if the library is not available."""
    if not available:
        return {"available": False}
    return {
        "available": True,
        "NcclCommunicator": NcclCommunicator,
        "NcclError": NcclError,
        "get_unique_id": get_unique_id,
        **{f"NCCL_{name}": number for name, number in (_TYPES | _OPS).items()},
    }

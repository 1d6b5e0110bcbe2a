"""gRPC's health service, by which cluster managers ask whether a task takes work.

Its messages have one field each, so they are read and written here.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from enum import IntEnum
from typing import Any, Final

import grpc

NAME: Final = "grpc.health.v1.Health"

_SERVICE_FIELD = 0x0A  # field 1, a string
_STATUS_FIELD = 0x08  # field 1, a number
_MAX_WATCHING = 64


class Serving(IntEnum):
    """Of grpc.health.v1.HealthCheckResponse."""

    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


class Health:
    """Answers whether a server takes work.

    Args:
      services: that it knows; "" is the server as a whole.
    """

    def __init__(self, services: Collection[str]) -> None:
        self._services = frozenset(services)
        self._serving = True
        self._changed = threading.Condition()
        self._watching = 0

    def stop(self) -> None:
        """Say from now on that it takes no more work."""
        with self._changed:
            self._serving = False
            self._changed.notify_all()

    def handler(self) -> Any:
        """What gRPC calls."""
        return grpc.method_handlers_generic_handler(
            NAME,
            {
                "Check": grpc.unary_unary_rpc_method_handler(self._check),
                "Watch": grpc.unary_stream_rpc_method_handler(self._watch),
            },
        )

    def _status(self, service: str | None) -> Serving:
        if service not in self._services:
            return Serving.SERVICE_UNKNOWN
        return Serving.SERVING if self._serving else Serving.NOT_SERVING

    def _check(self, request: bytes, context: Any) -> bytes:
        status = self._status(_service(request))
        if status is Serving.SERVICE_UNKNOWN:
            context.abort(grpc.StatusCode.NOT_FOUND, f"there are {sorted(self._services)}")
        return _response(status)

    def _watch(self, request: bytes, context: Any) -> Iterator[bytes]:
        with self._changed:
            if self._watching >= _MAX_WATCHING:
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many watch already")
            self._watching += 1
        context.add_callback(self._wake)
        service, told = _service(request), None
        try:
            while context.is_active():
                status = self._status(service)
                if status is not told:
                    told = status
                    yield _response(status)
                with self._changed:
                    if self._status(service) is told and context.is_active():
                        self._changed.wait()
        finally:
            with self._changed:
                self._watching -= 1

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


def _response(status: Serving) -> bytes:
    return bytes((_STATUS_FIELD, status))


def _service(request: bytes) -> str | None:
    """The service that a request names; None where it is malformed."""
    if not request:
        return ""
    if len(request) < 2 or request[0] != _SERVICE_FIELD or request[1] != len(request) - 2:
        return None
    return request[2:].decode(errors="replace")

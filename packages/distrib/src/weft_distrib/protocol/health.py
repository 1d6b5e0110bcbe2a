"""The gRPC health service, which tells cluster managers whether a task accepts work.

Its messages have one field each, so this module encodes and decodes them itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum
from typing import Any, Final

import grpc

from weft_exec.resources.cancellation import call_at

NAME: Final = "grpc.health.v1.Health"

_SERVICE_FIELD = 0x0A  # field 1, a string
_STATUS_FIELD = 0x08  # field 1, a number
_MAX_WATCHING = 8
_CHECKING_THREADS: Final = 4
_MAX_PENDING: Final = 64
_REQUEST_SECONDS: Final = 5.0
"""Time limit for receiving a request in seconds, because a thread waits for it and any caller may
connect.
"""


class Serving(IntEnum):
    """Values of grpc.health.v1.HealthCheckResponse.ServingStatus."""

    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


class Health:
    """Health service that reports whether a server accepts work.

    Args:
      services: the names of the services that it knows; "" is the complete server.
    """

    def __init__(self, services: Collection[str]) -> None:
        self._services = frozenset(services)
        self._serving = True
        self._changed = threading.Condition()
        self._watching = 0
        self._pending = 0
        self._pool = ThreadPoolExecutor(_MAX_WATCHING + _CHECKING_THREADS, "weft-health")
        self._refusing = ThreadPoolExecutor(1, "weft-health-refuse")

    def stop(self) -> None:
        """Report from now on that the server does not accept work."""
        with self._changed:
            self._serving = False
            self._changed.notify_all()

    def handler(self) -> Any:
        """Return the gRPC handler, which limits calls and threads because any caller may use it."""

        def check(requests: Iterator[bytes], context: Any) -> bytes:
            return self._check(self._request_of(requests, context), context)

        def watch(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
            return self._watch(self._request_of(requests, context), context)

        def refuse(requests: Iterator[bytes], context: Any) -> bytes:
            context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"{_MAX_PENDING} calls are already waiting"
            )
            return b""

        behavior: Any
        for behavior, pool in (check, self._pool), (watch, self._pool), (refuse, self._refusing):
            behavior.experimental_thread_pool = pool
        methods = {
            f"/{NAME}/Check": grpc.stream_unary_rpc_method_handler(check),
            f"/{NAME}/Watch": grpc.stream_stream_rpc_method_handler(watch),
        }
        return _Handlers(methods, grpc.stream_unary_rpc_method_handler(refuse), self._begin)

    def _begin(self) -> bool:
        """Count a call whose request has not arrived; return False if there are too many."""
        with self._changed:
            if self._pending >= _MAX_PENDING:
                return False
            self._pending += 1
            return True

    def _request_of(self, requests: Iterator[bytes], context: Any) -> bytes:
        """Return the single request of a call; end the call if it does not arrive in time."""
        timer = call_at(time.monotonic() + _REQUEST_SECONDS, context.cancel)
        try:
            request = next(requests, None)
        finally:
            timer.cancel()
            with self._changed:
                self._pending -= 1
        if request is None:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no request")
        return request or b""

    def _status(self, service: str | None) -> Serving:
        if service not in self._services:
            return Serving.SERVICE_UNKNOWN
        return Serving.SERVING if self._serving else Serving.NOT_SERVING

    def _check(self, request: bytes, context: Any) -> bytes:
        status = self._status(_service(request))
        if status is Serving.SERVICE_UNKNOWN:
            context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"unknown service; the services are {sorted(self._services)}",
            )
        return _response(status)

    def _watch(self, request: bytes, context: Any) -> Iterator[bytes]:
        with self._changed:
            if self._watching >= _MAX_WATCHING:
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many watchers")
            self._watching += 1
        context.add_callback(self._wake)
        service, last_status = _service(request), None
        try:
            while context.is_active():
                status = self._status(service)
                if status is not last_status:
                    last_status = status
                    yield _response(status)
                with self._changed:
                    if self._status(service) is last_status and context.is_active():
                        self._changed.wait()
        finally:
            with self._changed:
                self._watching -= 1

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """gRPC handlers by method path; `otherwise` replaces them while `begin` returns False."""

    def __init__(
        self, methods: Mapping[str, Any], otherwise: Any, begin: Callable[[], bool]
    ) -> None:
        self._methods, self._otherwise, self._begin = methods, otherwise, begin

    def service(self, handler_call_details: Any) -> Any:
        """See gRPC, which calls this before it receives the request."""
        handler = self._methods.get(handler_call_details.method)
        return handler if handler is None or self._begin() else self._otherwise


def _response(status: Serving) -> bytes:
    return bytes((_STATUS_FIELD, status))


def _service(request: bytes) -> str | None:
    """Return the service that a request names; None if it is malformed."""
    if not request:
        return ""
    if len(request) < 2 or request[0] != _SERVICE_FIELD or request[1] != len(request) - 2:
        return None
    return request[2:].decode(errors="replace")

"""Control calls over gRPC: requests and replies are flatbuffers, and errors are in the body."""

from __future__ import annotations

import json
import logging
import resource
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import grpc

from weft_distrib.protocol import messages
from weft_distrib.protocol.authentication import (
    certified_role,
    channel_to,
    metadata,
    parse_role,
    server_credentials,
)
from weft_distrib.protocol.health import Health
from weft_distrib.protocol.tables import decode, encode
from weft_distrib.security.credentials import Credentials, Files
from weft_distrib.security.refusals import probe
from weft_distrib.security.roles import Role, require
from weft_distrib.wire.address import address_of
from weft_distrib.wire.handshake import ConnectionOptions
from weft_tensor import errors

_log = logging.getLogger("weft")

SERVICE: Final = "weft.Task"
_THREADS = 1024
"""Maximum number of threads, which are started on demand. A call may wait for other tasks, which
may ask this task for its status at the same time; with few threads tasks would wait for each other.
"""

_REFUSING_THREADS: Final = 1

_PROBE_SECONDS = 2.0

MAX_CALL_BYTES: Final = 1 << 14
"""Maximum size of the request of a control call, and of its metadata, in bytes."""

_MAX_REPLY_BYTES: Final = 1 << 28
_MAX_CONNECTIONS: Final = 4096
_CONNECTION_OPTIONS: Final = [("grpc.max_metadata_size", 1 << 13)]

_SERVER_OPTIONS: Final = [
    *_CONNECTION_OPTIONS,
    ("grpc.so_reuseport", 0),
    ("grpc.max_send_message_length", _MAX_REPLY_BYTES),
    # What a caller can make a server keep before it is known.
    ("grpc.max_receive_message_length", MAX_CALL_BYTES),
    ("grpc.absolute_max_metadata_size", MAX_CALL_BYTES),
    ("grpc.max_concurrent_streams", 64),  # of a connection
    ("grpc.http2.lookahead_bytes", MAX_CALL_BYTES),  # of a stream
    ("grpc.http2.bdp_probe", 0),  # would widen the window of a connection
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 60_000),  # without a call; clients connect again
]

_CLIENT_OPTIONS: Final = [
    *_CONNECTION_OPTIONS,
    ("grpc.max_receive_message_length", _MAX_REPLY_BYTES),
    ("grpc.dns_min_time_between_resolutions_ms", 500),  # tasks come back at other addresses
    # A task that starts a little later than its callers must not be found a minute later.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # No pause, whatever its name says, but how long a connection may take. A busy machine or a
    # far one needs seconds; a shorter time would end each attempt, and never let one succeed.
    ("grpc.min_reconnect_backoff_ms", 20_000),
]


class Method(NamedTuple):
    """One control call.

    Attributes:
      role: the role that the caller must have.
    """

    name: str
    request: type
    reply: type
    role: Role = Role.CLIENT


STATUS: Final = Method("Status", messages.Empty, messages.Status)
KERNELS: Final = Method("Kernels", messages.KernelsOf, messages.KernelsOf, Role.PEER)
RESET: Final = Method("Reset", messages.Reset, messages.Empty)
CLEAR: Final = Method("Clear", messages.Reset, messages.Empty, Role.PEER)
REPORT: Final = Method("Report", messages.Empty, messages.Report)
REPORTS: Final = Method("Reports", messages.Empty, messages.Reports)

Handler = Callable[..., Any]


class ControlServer:
    """Answers control calls.

    Args:
      address: "host:port" to listen on; port 0 for a free one.
      handlers: functions that execute the calls; they may raise any OpError.
      opening: the handshake options, which decide who is admitted.
    Attributes:
      port: the port on which it listens.
      health: the health service of the server.
    Raises: UnavailableError: the port is in use, or the address does not belong to this machine.
    """

    def __init__(
        self,
        address: str,
        handlers: Mapping[Method, Handler],
        opening: ConnectionOptions | None = None,
    ) -> None:
        opening = opening or ConnectionOptions(messages.VERSION)
        self.health = Health(("", SERVICE))
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        limit = ("grpc.max_allowed_incoming_connections", min(_MAX_CONNECTIONS, files))
        self._server = grpc.server(
            ThreadPoolExecutor(_THREADS, "weft-control"),
            options=[*_SERVER_OPTIONS, limit],
            maximum_concurrent_rpcs=_THREADS,
        )
        credentials = opening.credentials
        self._server.add_generic_rpc_handlers(
            (_AuthenticatingHandler(handlers, opening), self.health.handler())
        )
        try:
            if credentials.secure:
                self.port = self._server.add_secure_port(address, server_credentials(credentials))
            else:
                self.port = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise errors.UnavailableError(
                f"cannot listen on {address}: the port may be in use ({error})"
            ) from error

    def start(self) -> None:
        """Start to answer calls."""
        self._server.start()

    def stop(self, grace: float | None = None) -> None:
        """Stop answering; running calls have `grace` seconds to end."""
        self._server.stop(grace)


class _AuthenticatingHandler(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Finds the handler of a call after checking its caller, before the request is received.

    gRPC looks up the handler when it has the metadata of a call. It receives the request after
    that, on a thread that waits for it. The handler of a rejected call does not receive the
    request.
    """

    def __init__(self, handlers: Mapping[Method, Handler], opening: ConnectionOptions) -> None:
        self._opening = opening
        self._handlers = {
            f"/{SERVICE}/{method.name}": (method, handler) for method, handler in handlers.items()
        }
        self._pool = ThreadPoolExecutor(_REFUSING_THREADS, "weft-refuse")

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a call; None if there is no such method."""
        result = self._handlers.get(handler_call_details.method)
        if result is None:
            return None
        method, handler = result
        invocation_metadata = handler_call_details.invocation_metadata or ()
        try:
            role = parse_role(invocation_metadata, self._opening, checked=method is not STATUS)
        except errors.OpError as error:
            return self._refusal(error)
        credentials = self._opening.credentials
        return grpc.unary_unary_rpc_method_handler(
            _make_handler(method, handler, role, credentials)
        )

    def _refusal(self, error: errors.OpError) -> Any:
        reply = _error_reply(error)

        def refuse(requests: Any, context: Any) -> bytes:
            return reply

        refuse.experimental_thread_pool = self._pool  # type: ignore[attr-defined]
        return grpc.stream_unary_rpc_method_handler(refuse)


def _make_handler(
    method: Method, handler: Handler, claimed: Role, credentials: Credentials
) -> Callable[[bytes, Any], bytes]:
    def answer(request: bytes, context: Any) -> bytes:
        try:
            role = min(claimed, certified_role(context, credentials))
            require(role, method.role, method.name, context.peer())
            message: Any = decode(method.request, request)
            reply = handler(message)
        except errors.OpError as error:
            return _error_reply(error)
        except Exception as error:  # because a bug must reach the caller by name
            _log.exception("the call %s failed", method.name)
            return _error_reply(errors.InternalError(f"{method.name}: {error!r}"))
        return encode(messages.Reply(body=encode(reply)))

    return answer


def _error_reply(error: errors.OpError) -> bytes:
    return encode(messages.Reply(error=json.dumps(error.to_dict(), default=str)))


class ControlClient:
    """Client for the control calls of one server.

    Args:
      address: "host:port".
      peer: the name of the other end, for messages.
      opening: the handshake options of this process.
    """

    def __init__(self, address: str, peer: str, opening: ConnectionOptions | None = None) -> None:
        self._peer = peer
        self._address = address
        self._host_and_port = address_of(address)
        self._opening = opening or ConnectionOptions(messages.VERSION)
        self._files: Files | None = None
        self._lock = threading.Lock()
        self._reached = False
        self._connect(self._opening.credentials.files)

    def _connect(self, files: Files) -> None:
        """Open the connection, or replace it by one with the current credential files."""
        with self._lock:
            if files == self._files:
                return
            self._files = files
            secure = self._opening.credentials.secure
            self._channel = channel_to(self._address, files if secure else None, _CLIENT_OPTIONS)
            self._calls: dict[str, Any] = {}

    def call(self, method: Method, request: Any, timeout: float, wait: bool = False) -> Any:
        """Make a call and return the reply.

        Args:
          timeout: the time limit in seconds.
          wait: True to wait, up to the time limit, for a server that has not started.
        Raises:
          UnavailableError: no server answers at the address.
          DeadlineExceededError: the reply did not arrive in time.
          UnauthenticatedError: one end rejects the credentials of the other.
          OpError: the error that the server raised.
        """
        while True:
            token = self._opening.token_for(*self._host_and_port)
            try:
                return self._call(method, request, timeout, wait, token)
            except errors.UnauthenticatedError:
                # A call that has waited for the server shows a token from before it was there.
                if token == self._opening.token_for(*self._host_and_port):
                    raise

    def _call(self, method: Method, request: Any, timeout: float, wait: bool, token: bytes) -> Any:
        self._connect(self._opening.credentials.files)
        if not self._reached:
            self._probe(timeout)
        call = self._calls.get(method.name)
        if call is None:
            call = self._calls[method.name] = self._channel.unary_unary(f"/{SERVICE}/{method.name}")
        call_metadata = metadata(self._opening, token)
        try:
            data = call(
                encode(request), timeout=timeout, wait_for_ready=wait, metadata=call_metadata
            )
        except ValueError as error:  # what gRPC says where another thread has closed the channel
            raise errors.CancelledError(f"the connection to {self._peer} was closed") from error
        except grpc.RpcError as error:
            self._reached = False
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                self._probe(timeout)
            raise self._translate_error(error, method, timeout) from error
        self._reached = True
        reply = decode(messages.Reply, data)
        if reply.error:
            raise errors.OpError.from_dict(json.loads(reply.error))
        return decode(method.reply, reply.body)

    def _probe(self, timeout: float) -> None:
        """Raise if one of the two ends rejects the credentials of the other."""
        host, port = self._host_and_port
        peer_label, limit = f"{self._peer} at {self._address}", min(timeout, _PROBE_SECONDS)
        probe(host, port, peer_label, self._opening.credentials, limit)

    def _translate_error(self, error: Any, method: Method, timeout: float) -> errors.OpError:
        code, peer_label = error.code(), f"{self._peer} at {self._address}"
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return errors.DeadlineExceededError(
                f"{peer_label} did not answer {method.name} within {timeout:g} s"
            )
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return errors.UnimplementedError(
                f"{peer_label} is not a weft server or has another version: it has no {method.name}"
            )
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            return errors.ResourceExhaustedError(
                f"{peer_label} rejected {method.name}: {error.details()}"
            )
        return errors.UnavailableError(f"{peer_label} cannot be reached: {error.details()}")

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

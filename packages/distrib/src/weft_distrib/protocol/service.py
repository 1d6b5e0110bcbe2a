"""Control calls over gRPC: flatbuffers in, flatbuffers out, errors whole in the body."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import grpc

from weft_distrib.protocol import messages
from weft_distrib.protocol.authentication import caller, channel_to, metadata, server_credentials
from weft_distrib.protocol.health import Health
from weft_distrib.protocol.tables import decode, encode
from weft_distrib.security.credentials import Files
from weft_distrib.security.refusals import probe
from weft_distrib.security.roles import Role, require
from weft_distrib.wire.address import address_of
from weft_distrib.wire.hello import Opening
from weft_tensor import errors

_log = logging.getLogger("weft")

SERVICE: Final = "weft.Task"
_THREADS = 1024
"""At the most; they start as calls need them. A call may wait for other tasks, which ask this one
for its status meanwhile, so with few threads tasks would wait for each other."""

_PROBE_SECONDS = 2.0

_OPTIONS = [
    ("grpc.max_receive_message_length", 1 << 28),
    ("grpc.max_send_message_length", 1 << 28),
    ("grpc.so_reuseport", 0),
    ("grpc.dns_min_time_between_resolutions_ms", 500),  # tasks come back at other addresses
    ("grpc.max_metadata_size", 1 << 13),
    # A task that starts a little later than who asks for it must not be found a minute later.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # No pause, whatever its name says, but how long a connection may take. A busy machine or a
    # far one needs seconds; a shorter time would end each attempt, and never let one succeed.
    ("grpc.min_reconnect_backoff_ms", 20_000),
]


class Method(NamedTuple):
    """One control call.

    Attributes:
      role: who may make it.
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
      handlers: what carries out each call; it may raise any OpError.
      opening: whom it lets in.
    Attributes:
      port: the one it listens on.
      health: tells whether it takes work.
    Raises: UnavailableError: the port is taken, or the address is not this machine's.
    """

    def __init__(
        self, address: str, handlers: Mapping[Method, Handler], opening: Opening | None = None
    ) -> None:
        opening = opening or Opening(messages.VERSION)
        self.health = Health(("", SERVICE))
        self._server = grpc.server(
            ThreadPoolExecutor(_THREADS, "weft-control"),
            options=_OPTIONS,
            maximum_concurrent_rpcs=_THREADS,
        )
        credentials = opening.credentials
        table = {
            method.name: grpc.unary_unary_rpc_method_handler(_answering(method, handler, opening))
            for method, handler in handlers.items()
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, table), self.health.handler())
        )
        try:
            if credentials.secure:
                self.port = self._server.add_secure_port(address, server_credentials(credentials))
            else:
                self.port = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise errors.UnavailableError(
                f"cannot listen on {address}: is the port in use? ({error})"
            ) from error

    def start(self) -> None:
        """Begin to answer."""
        self._server.start()

    def stop(self, grace: float | None = None) -> None:
        """Answer no more; calls that run have `grace` seconds to end."""
        self._server.stop(grace)


def _answering(method: Method, handler: Handler, opening: Opening) -> Callable[[bytes, Any], bytes]:
    def answer(request: bytes, context: Any) -> bytes:
        try:
            role, who = caller(context, opening, checked=method is not STATUS)
            require(role, method.role, method.name, who)
            told: Any = decode(method.request, request)
            reply = handler(told)
        except errors.OpError as error:
            return encode(messages.Reply(error=json.dumps(error.to_dict(), default=str)))
        except Exception as error:  # because a bug must reach the caller by name
            _log.exception("the call %s failed", method.name)
            failure = errors.InternalError(f"{method.name}: {error!r}")
            return encode(messages.Reply(error=json.dumps(failure.to_dict())))
        return encode(messages.Reply(body=encode(reply)))

    return answer


class ControlClient:
    """Makes control calls of one server.

    Args:
      address: "host:port".
      peer: what is there, for messages.
      opening: who this process is to it.
    """

    def __init__(self, address: str, peer: str, opening: Opening | None = None) -> None:
        self._peer = peer
        self._address = address
        self._opening = opening or Opening(messages.VERSION)
        self._files: Files | None = None
        self._lock = threading.Lock()
        self._reached = False
        self._connect(self._opening.credentials.files)

    def _connect(self, files: Files) -> None:
        """Make the connection, or another one with what the files of credentials hold now."""
        with self._lock:
            if files == self._files:
                return
            self._files = files
            secure = self._opening.credentials.secure
            self._channel = channel_to(self._address, files if secure else None, _OPTIONS)
            self._calls: dict[str, Any] = {}

    def call(self, method: Method, request: Any, timeout: float, wait: bool = False) -> Any:
        """Call, and return the reply.

        Args:
          timeout: seconds.
          wait: wait as long for a server that is not there yet.
        Raises:
          UnavailableError: nobody answers there.
          DeadlineExceededError: the reply did not come in time.
          UnauthenticatedError: one of the two ends does not believe the other.
          OpError: what the server raised.
        """
        self._connect(self._opening.credentials.files)
        if not self._reached:
            self._probe(timeout)
        call = self._calls.get(method.name)
        if call is None:
            call = self._calls[method.name] = self._channel.unary_unary(f"/{SERVICE}/{method.name}")
        shown = metadata(self._opening)
        try:
            data = call(encode(request), timeout=timeout, wait_for_ready=wait, metadata=shown)
        except ValueError as error:  # what gRPC says where another thread has closed the channel
            raise errors.CancelledError(f"the connection to {self._peer} was closed") from error
        except grpc.RpcError as error:
            self._reached = False
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                self._probe(timeout)
            raise self._translated(error, method, timeout) from error
        self._reached = True
        reply = decode(messages.Reply, data)
        if reply.error:
            raise errors.OpError.from_dict(json.loads(reply.error))
        return decode(method.reply, reply.body)

    def _probe(self, timeout: float) -> None:
        """Raise if the server does not believe this process, or this process not the server."""
        host, port = address_of(self._address)
        where, limit = f"{self._peer} at {self._address}", min(timeout, _PROBE_SECONDS)
        probe(host, port, where, self._opening.credentials, limit)

    def _translated(self, error: Any, method: Method, timeout: float) -> errors.OpError:
        code, where = error.code(), f"{self._peer} at {self._address}"
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return errors.DeadlineExceededError(
                f"{where} did not answer {method.name} within {timeout:g} s"
            )
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return errors.UnimplementedError(
                f"{where} is no server of weft, or of another version: it has no {method.name}"
            )
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            return errors.ResourceExhaustedError(
                f"{where} does not take {method.name}: {error.details()}"
            )
        return errors.UnavailableError(f"{where} cannot be reached: {error.details()}")

    def close(self) -> None:
        """Let go of the connection."""
        self._channel.close()

"""Control calls: servers answer some while others wait, and are reached though they are slow."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack, suppress

from weft_testing.waiting import in_threads, rounds

from weft_distrib.protocol import messages, service


def test_the_status_is_told_while_many_calls_wait_for_other_tasks() -> None:
    go_on = threading.Event()

    def wait(request: messages.Empty) -> messages.Empty:
        go_on.wait(60)
        return messages.Empty()

    waits = service.Method("Waits", messages.Empty, messages.Empty)
    tells = service.Method("Tells", messages.Empty, messages.Empty)
    server = service.ControlServer(
        "127.0.0.1:0", {waits: wait, tells: lambda request: messages.Empty()}
    )
    server.start()
    client = service.ControlClient(f"127.0.0.1:{server.port}", "a task")
    with ExitStack() as stack:
        stack.callback(server.stop)
        stack.callback(client.close)
        calls = [lambda: client.call(waits, messages.Empty(), 60) for _ in range(40)]
        stack.enter_context(in_threads(*calls))
        stack.callback(go_on.set)
        for _ in range(20):
            client.call(tells, messages.Empty(), 10)


_SLOW_SECONDS = 1.5  # more than a connection to an idle task of this machine ever takes


class _SlowDoor:
    """A proxy of a port that delays the first response on each connection."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # it is closed
            for _ in rounds():
                outer = self._listener.accept()[0]
                inner = socket.create_connection(("127.0.0.1", self._to))
                for ends, pause in (((outer, inner), 0.0), ((inner, outer), _SLOW_SECONDS)):
                    args = (*ends, pause)
                    threading.Thread(target=self._carry, args=args, daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, pause: float) -> None:
        with suppress(OSError), source, sink:  # the other direction has ended
            while data := source.recv(1 << 16):
                self._closed.wait(pause)
                pause = 0.0
                sink.sendall(data)

    def close(self) -> None:
        self._closed.set()
        self._listener.close()


def test_a_server_is_reached_that_takes_long_to_greet() -> None:
    tells = service.Method("Tells", messages.Empty, messages.Empty)
    server = service.ControlServer("127.0.0.1:0", {tells: lambda request: messages.Empty()})
    server.start()
    with ExitStack() as stack:
        stack.callback(server.stop)
        door = _SlowDoor(server.port)
        stack.callback(door.close)
        client = service.ControlClient(f"127.0.0.1:{door.port}", "a task")
        stack.callback(client.close)
        client.call(tells, messages.Empty(), 10, wait=True)

"""Control calls: servers answer some while others wait."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from weft_testing.waiting import in_threads

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

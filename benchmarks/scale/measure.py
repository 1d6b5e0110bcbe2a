"""Service times of the real runtime, and its speed with 1 to 8 workers, on this machine."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).parent))

from simulator import Costs
from weft_testing.tasks import jobs

import weft as wf

_TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def machine_seconds() -> float:
    """Return the processor time that all processes of this machine have used."""
    user, nice, system, _, _, irq, soft = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + soft) / _TICKS


@contextmanager
def tasks(cluster: Any, *wanted: tuple[str, int]) -> Iterator[list[subprocess.Popen[str]]]:
    """Some tasks of a cluster, as processes."""
    with ExitStack() as stack:
        made = []
        for job, number in wanted:
            program = (
                "import sys, json\nfrom weft_distrib import Server\n"
                "server = Server(json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]))\n"
                "print('up', flush=True)\nserver.join()\n"
            )
            process = subprocess.Popen(
                [sys.executable, "-c", program, json.dumps(cluster), job, str(number)],
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            made.append(process)
        for process in made:
            assert process.stdout is not None
            process.stdout.readline()
        yield made


class Rates:
    """The cost of a step: the median time, and the processor time of two processes.

    The mean of the times would hold those in which others had the machine's processors, and all
    tasks of a simulated cluster would have that delay with each message.
    """

    def __init__(self, seconds: float, own: float, server: float) -> None:
        self.seconds, self.own, self.server = seconds, own, server


def pulling(ps: int, size: int, seconds: float) -> Rates:
    """Measure a worker in this process that pulls `size` bytes per step from each server."""
    cluster = jobs(ps=ps, worker=1)
    with (
        wf.Graph().as_default(),
        tasks(cluster, *[("ps", i) for i in range(ps)]) as servers,
    ):
        server = wf.train.Server(cluster, "worker", 0)
        kept = []
        for i in range(ps):
            with wf.device(f"/job:ps/task:{i}"):
                kept.append(wf.Variable(wf.zeros([max(size // 4, 1)])))
        with wf.device("/job:worker/task:0"):
            total = wf.add_n([each[0] * 1.0 + 0.0 * wf.identity(each)[-1] for each in kept])
        with wf.Session(server.target) as session:
            session.run(wf.global_variables_initializer())
            step = session.make_callable(total)
            for _ in range(20):
                step()
            found = _timed(step, servers[0].pid, seconds)
        server.close()
    return found


def _timed(step: Any, server: int, seconds: float) -> Rates:
    times: list[float] = []
    own, other = time.process_time(), processor_seconds(server)
    now = time.perf_counter()
    end = now + seconds
    while now < end:
        began = now
        step()
        now = time.perf_counter()
        times.append(now - began)
    own, other = time.process_time() - own, processor_seconds(server) - other
    return Rates(statistics.median(times), own / len(times), other / len(times))


def driving(workers: int, seconds: float) -> Rates:
    """Measure one master, in this process, that runs a trivial step on each of some workers."""
    cluster = jobs(chief=1, worker=workers)
    with (
        wf.Graph().as_default(),
        tasks(cluster, *[("worker", i) for i in range(workers)]) as others,
    ):
        server = wf.train.Server(cluster, "chief", 0)
        made = []
        for i in range(workers):
            with wf.device(f"/job:worker/task:{i}"):
                made.append(wf.random_uniform([]).op)
        with wf.Session(server.target) as session:
            step = session.make_callable(made)
            for _ in range(20):
                step()
            found = _timed(step, others[0].pid, seconds)
        server.close()
    return found


_REPLICA = """
import json, sys, time
import weft as wf
cluster, number, size, ps = json.loads(sys.argv[1]), *map(int, sys.argv[2:5])
server = wf.train.Server(cluster, "worker", number)
kept = []
for i in range(ps):
    with wf.device(f"/job:ps/task:{i}"):
        kept.append(wf.get_variable(f"v{i}", initializer=wf.zeros([max(size // 4, 1)])))
with wf.device(f"/job:worker/task:{number}"):
    total = wf.add_n([each[0] * 1.0 + 0.0 * wf.identity(each)[-1] for each in kept])
config = wf.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{number}"])
with wf.Session(server.target, config=config) as session:
    session.run(wf.global_variables_initializer())
    step = session.make_callable(total)
    for _ in range(10):
        step()
    print("up", flush=True)
    sys.stdin.readline()
    count, end = 0, time.monotonic() + float(sys.argv[5])
    while time.monotonic() < end:
        step()
        count += 1
    print(count, flush=True)
    sys.stdin.readline()
"""


class Together(NamedTuple):
    """The combined result of some workers.

    Attributes:
      rate: steps per second.
      worker, server: processor seconds of a step, at a worker and at each server.
      cores: processors that others on this machine left to them.
    """

    rate: float
    worker: float
    server: float
    cores: float


def together(workers: int, ps: int, size: int, seconds: float) -> Together:
    """Measure some workers, as processes, that pull from each server in every step."""
    cluster = jobs(ps=ps, worker=workers)
    with ExitStack() as stack:
        servers = stack.enter_context(tasks(cluster, *[("ps", i) for i in range(ps)]))
        made = []
        for i in range(workers):
            process = subprocess.Popen(
                [sys.executable, "-c", _REPLICA, json.dumps(cluster)]
                + [str(each) for each in (i, size, ps, seconds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            made.append(process)
        for process in made:
            process.stdout.readline()
        before = [processor_seconds(process.pid) for process in [*made, *servers]]
        busy = machine_seconds()
        for process in made:
            process.stdin.write("go\n")
            process.stdin.flush()
        count = sum(int(process.stdout.readline()) for process in made)
        after = [processor_seconds(process.pid) for process in [*made, *servers]]
        took = [b - a for a, b in zip(before, after, strict=True)]
        others = (machine_seconds() - busy - sum(took)) / seconds
    worker, server = sum(took[:workers]), sum(took[workers:]) / ps
    cores = max((os.cpu_count() or 1) - others, 0.1)
    return Together(count / seconds, worker / count, server / count, cores)


def answering(seconds: float) -> tuple[float, float]:
    """Return the processor seconds of a heartbeat, at the sender and at the receiver."""
    from weft_distrib.liveness.heartbeat_server import Heartbeat
    from weft_distrib.liveness.peer_monitor import Watch

    peers = 400
    heart, watch = Heartbeat("127.0.0.1"), Watch()
    watched = [
        watch.add(("127.0.0.1", heart.port), "a task", lambda _: None, 60.0) for _ in range(peers)
    ]
    while not all(each.heard for each in watched):
        time.sleep(0.1)
    heard, own = sum(each.heard for each in watched), time.process_time()
    other = processor_seconds(heart._process.pid)
    time.sleep(seconds)
    count = sum(each.heard for each in watched) - heard
    own, other = time.process_time() - own, processor_seconds(heart._process.pid) - other
    for each in watched:
        each.stop()
    heart.close()
    return own / count, other / count


def costs(seconds: float, bandwidth: float) -> Costs:
    """Measure the service times of the runtime on this machine.

    Args:
      seconds: for each measurement.
      bandwidth: of the network cards that are to be simulated, in bytes a second.
    """
    one, four = pulling(1, 4, seconds), pulling(4, 4, seconds)
    large = pulling(1, 8 << 20, seconds)
    drive = [driving(n, seconds) for n in (1, 8)]
    ask, answer = answering(seconds)
    client_task = max((four.own - one.own) / 3, 1e-6)
    return Costs(
        client=max(one.own - client_task, 1e-6),
        client_task=client_task,
        client_byte=max(large.own - one.own, 0.0) / (8 << 20),
        server=one.server,
        server_byte=max(large.server - one.server, 0.0) / (8 << 20),
        master_task=max((drive[1].own - drive[0].own) / 7, 1e-6),
        answer=ask,
        answerer=answer,
        delay=max(one.seconds - one.own - one.server, 1e-5) / 2,
        bandwidth=bandwidth,
    )


def medians(values: Sequence[Costs]) -> Costs:
    """Return the median of each cost."""
    return Costs(*[statistics.median(column) for column in zip(*values, strict=True)])

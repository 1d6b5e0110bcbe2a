"""Training of a real model while processes are killed, frozen and cut off.

hatch run chaos
hatch run chaos --minutes 2 --seed 7

Every fault is accounted for: when, whom, what each client saw and how soon, and how long until all
of them trained on. It fails if an error was late, training was, the model did not reach its target,
or anything is left behind.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from network import Network
from program import CHIEF, CLIENT, PS, WORKER

PORT = 2222
KILL, FREEZE, PARTITION = "kill", "freeze", "partition"
ERROR_SECONDS = {KILL: 1.0, FREEZE: 5.0, PARTITION: 5.0}
GO_ON_SECONDS = 10.0
TARGET = 0.97

LONG_SECONDS = 7.0
"""Duration of a freeze or partition that must be detected."""
SHORT_SECONDS = 1.5
"""Duration of a freeze or partition that must not be detected."""
_GIVE_UP_SECONDS = 60.0
_BEGIN_SECONDS = 300.0
"""Timeout of the start, when many interpreters start at once."""
_SETTLE_SECONDS = 1.0
_MARK = "WEFT_CHAOS"

Event = dict[str, Any]


class Process:
    """One process of the training, which may be restarted."""

    def __init__(self, role: str, number: int, folder: Path, within: Sequence[str]) -> None:
        self.role, self.number, self.name = role, number, f"{role}-{number}"
        program = str(Path(__file__).with_name("program.py"))
        self._command = [*within, sys.executable, program, role, str(number), str(folder)]
        self._folder = folder
        self._path = folder / "events" / f"{self.name}.jsonl"
        self._process: subprocess.Popen[bytes] | None = None
        self._read = 0
        self.events: list[Event] = []

    def start(self) -> None:
        environment = {
            **os.environ,
            _MARK: str(self._folder),
            "TMPDIR": str(self._folder / "tmp"),
            "WEFT_FILE_ROOTS": str(self._folder),  # where checkpoints are
        }
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
            environment[name] = "1"
        log = (self._folder / "logs" / f"{self.name}.txt").open("ab")
        with log:
            self._process = subprocess.Popen(
                self._command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def send(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        if number == signal.SIGKILL:
            self._process.wait()

    def ended(self, seconds: float) -> int | None:
        """Return the exit code if the process ends in time."""
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def look(self) -> list[Event]:
        """Read the new events."""
        if not self._path.exists():
            return []
        with self._path.open() as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind("\n") + 1]
        self._read += len(whole.encode())
        new = [json.loads(line) for line in whole.splitlines()]
        self.events += new
        return new

    def first(self, what: str, after: float) -> Event | None:
        """Return the first event of a kind after a time."""
        self.look()
        return next((e for e in self.events if e["what"] == what and e["t"] > after), None)

    def last(self, what: str) -> float:
        """Return the time of the last event of a kind, or 0."""
        self.look()
        return max((e["t"] for e in self.events if e["what"] == what), default=0.0)


@dataclass
class Fault:
    """A fault and its consequences; times are in seconds after it."""

    at: float
    kind: str
    victim: str
    lasts: float
    errors: dict[str, tuple[float, str]] = field(default_factory=dict)
    answered: float = 0.0
    went_on: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def line(self, began: float) -> str:
        """Return the log line of the fault."""
        saw = ", ".join(f"{n} {t:.2f} s {m}" for n, (t, m) in sorted(self.errors.items()))
        last = max(self.went_on.values(), default=float("nan"))
        name = f"{self.kind} {self.victim}" + (f" for {self.lasts:g} s" if self.lasts else "")
        verdict = "; ".join(self.wrong) or "as it should"
        return (
            f"{self.at - began:7.1f} s  {name:28} saw: {saw or 'nothing'}; answered after "
            f"{self.answered:.2f} s, all trained on {last - self.answered:.2f} s later: {verdict}"
        )


class Chaos:
    """A training with faults.

    Args:
      folder: for all that it writes.
      ps, workers: how many; beside these there are a chief's server, and its client.
      seed: of the faults.
      small: a model of few operations.
      partitions: whether processes can be cut off, which takes network namespaces.
    """

    def __init__(
        self,
        folder: Path,
        ps: int,
        workers: int,
        seed: int = 0,
        small: bool = False,
        partitions: bool = True,
    ) -> None:
        self._folder = folder
        self.random = random.Random(seed)
        self._before = set(os.listdir("/dev/shm"))
        counts = {PS: ps, CHIEF: 1, WORKER: workers, CLIENT: 1}
        names = [f"{role}-{i}" for role, count in counts.items() for i in range(count)]
        unwanted = "" if partitions else "they are not wanted"
        self.network = Network(f"wx{os.getpid() % 1000}", names, unwanted)
        for sub in ("events", "logs", "tmp", "model"):
            (folder / sub).mkdir(parents=True)
        cluster = {
            role: [self._address(f"{role}-{i}") for i in range(count)]
            for role, count in counts.items()
            if role != CLIENT
        }
        self.ports = [int(a.rpartition(":")[2]) for tasks in cluster.values() for a in tasks]
        plan = {"cluster": cluster, "small": small, "pause": 0.002}
        (folder / "plan.json").write_text(json.dumps(plan))
        self.processes = {
            f"{role}-{i}": Process(role, i, folder, self.network.within(f"{role}-{i}"))
            for role, count in counts.items()
            for i in range(count)
        }
        self.faults: list[Fault] = []

    def _address(self, name: str) -> str:
        if not self.network.why_not:
            return f"{self.network.host(name)}:{PORT}"
        with socket.create_server(("localhost", 0)) as sock:
            return f"localhost:{sock.getsockname()[1]}"

    @property
    def clients(self) -> list[Process]:
        """Return the processes that train."""
        return [p for p in self.processes.values() if p.role in (CLIENT, WORKER)]

    def begin(self) -> None:
        """Start all processes, and wait until all train."""
        for process in self.processes.values():
            process.start()
        absent = {p.name for p in self.clients} - set(
            self._all_step(time.monotonic(), _BEGIN_SECONDS)
        )
        if absent:
            raise RuntimeError(f"{', '.join(absent)} did not begin to train; see the logs")

    def _all_step(self, after: float, seconds: float) -> dict[str, float]:
        """Return when each client continued training after a time, without those that did not.

        Clients may see an error after their first step, so all of them are observed
        for some time more.
        """
        end = time.monotonic() + seconds
        while True:
            steps = {p.name: p.first("step", max(after, p.last("error"))) for p in self.clients}
            settled = time.monotonic() > after + _SETTLE_SECONDS
            if (all(steps.values()) and settled) or time.monotonic() > end:
                return {name: event["t"] for name, event in steps.items() if event}
            time.sleep(0.02)

    # --------------------------------------------------------------------------- faults

    def plans(self) -> Iterator[tuple[str, str, float]]:
        """Yield kinds, victims and durations of faults, each pair once before any repeats."""
        kinds = [KILL, FREEZE] + ([] if self.network.why_not else [PARTITION])
        while True:
            pairs = [(kind, name) for kind in kinds for name in self.processes]
            self.random.shuffle(pairs)
            for kind, name in pairs:
                short = kind != KILL and self.random.random() < 0.25
                yield kind, name, 0.0 if kind == KILL else SHORT_SECONDS if short else LONG_SECONDS

    def strike(self, kind: str, name: str, lasts: float) -> Fault:
        """Inject one fault, and wait until training has resumed."""
        victim = self.processes[name]
        fault = Fault(time.monotonic(), kind, name, lasts)
        self.faults.append(fault)
        if kind == KILL:
            victim.send(signal.SIGKILL)
        elif kind == FREEZE:
            victim.send(signal.SIGSTOP)
        else:
            self.network.cut(name)
        witnesses = self._witnesses(fault)
        if kind == KILL:
            self._wait_for_errors(fault, witnesses, ERROR_SECONDS[KILL])
            victim.start()
            went = self._answered(victim)
        else:
            time.sleep(max(0, fault.at + lasts - time.monotonic()))
            if kind == FREEZE:
                victim.send(signal.SIGCONT)
            else:
                self.network.mend(name)
            went = time.monotonic()
        fault.answered = went - fault.at
        self._see_on(fault, witnesses, went)
        return fault

    def _witnesses(self, fault: Fault) -> list[Process]:
        """Return the clients that must notice the fault."""
        role = self.processes[fault.victim].role
        if fault.kind != KILL and fault.lasts < LONG_SECONDS:
            return []
        if role == PS:
            return self.clients
        if role == CHIEF:
            return [p for p in self.clients if p.role == CLIENT]
        cut = fault.kind == PARTITION
        return [p for p in self.clients if cut and p.name == fault.victim]

    def _wait_for_errors(self, fault: Fault, witnesses: Sequence[Process], seconds: float) -> None:
        while time.monotonic() < fault.at + seconds:
            if all(p.first("error", fault.at) for p in witnesses):
                return
            time.sleep(0.02)

    def _answered(self, victim: Process) -> float:
        """Return when a restarted process answers; a client does so immediately."""
        began = time.monotonic()
        what = "start" if victim.role == CLIENT else "up"
        while (event := victim.first(what, began)) is None:
            if time.monotonic() > began + _GIVE_UP_SECONDS:
                return began
            time.sleep(0.02)
        return float(event["t"])

    def _see_on(self, fault: Fault, witnesses: Sequence[Process], went: float) -> None:
        """Wait until all clients train again, and check the times."""
        steps = self._all_step(went, _GIVE_UP_SECONDS)
        for client in self.clients:
            error = client.first("error", fault.at)
            if error is not None:
                kind = str(error["kind"]).removesuffix("Error")
                fault.errors[client.name] = (error["t"] - fault.at, kind)
            if client.name in steps:
                fault.went_on[client.name] = steps[client.name] - fault.at
        limit = ERROR_SECONDS[fault.kind]
        for client in witnesses:
            late = fault.errors.get(client.name, (float("inf"), ""))[0]
            if late > limit:
                fault.wrong.append(f"{client.name} saw an error after {late:.2f} s, not {limit:g}")
        for client in self.clients:
            later = fault.went_on.get(client.name, float("inf")) - fault.answered
            if later > GO_ON_SECONDS:
                fault.wrong.append(f"{client.name} went on {later:.2f} s later")

    # ------------------------------------------------------------------------------ end

    def end(self) -> list[str]:
        """Stop the clients; return those that did not end."""
        (self._folder / "stop").touch()
        wrong = []
        for process in self.clients:
            status = process.ended(_GIVE_UP_SECONDS)
            if status != 0:
                wrong.append(f"{process.name} ended with {status}")
        return wrong

    def close(self) -> None:
        """End all processes, and remove the network."""
        for process in self.processes.values():
            if process.runs:
                with suppress(ProcessLookupError):
                    process.send(signal.SIGKILL)
        self.network.close()

    def left(self) -> list[str]:
        """Return leftover processes, files and namespaces."""
        end = time.monotonic() + 10
        while (found := self._left()) and time.monotonic() < end:
            time.sleep(0.05)  # what watches a process ends after it
        return found

    def _left(self) -> list[str]:
        found = [f"process {pid}" for pid in marked(str(self._folder))]
        found += [f"namespace {space}" for space in self.network.left]
        found += [f"port {port}" for port in self.ports if self.network.why_not and listens(port)]
        found += [f"/dev/shm/{name}" for name in set(os.listdir("/dev/shm")) - self._before]
        return found + [f"tmp/{path.name}" for path in (self._folder / "tmp").iterdir()]


def marked(mark: str) -> list[int]:
    """Return the processes with the mark in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{_MARK}={mark}\0".encode() in (path / "environ").read_bytes():
                found.append(int(path.name))
    return found


def listens(port: int) -> bool:
    """Return True if a process listens on a local port."""
    lines = [*Path("/proc/net/tcp").read_text().splitlines()[1:]]
    lines += [*Path("/proc/net/tcp6").read_text().splitlines()[1:]]
    fields = [line.split() for line in lines]
    return any(f[3] == "0A" and int(f[1].rpartition(":")[2], 16) == port for f in fields)


def accuracy(folder: Path) -> tuple[float, int]:
    """The share of the held-out images that the last checkpoint recognizes, and its step."""
    import digits
    from program import build

    import weft as wf

    plan = json.loads((folder / "plan.json").read_text())
    _, held_out = digits.load()
    with wf.Graph().as_default(), wf.Session() as session:
        images, labels, _, right = build(plan["small"])
        saver = wf.train.Saver()
        saver.restore(session, wf.train.latest_checkpoint(str(folder / "model")))
        found = session.run(
            [right, wf.train.get_global_step()],
            {images: held_out.images, labels: held_out.labels},
        )
    return float(found[0]), int(found[1])


def main(arguments: Sequence[str] | None = None) -> int:
    """Train with faults; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ps", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="keep logs and checkpoints in this new folder")
    options = parser.parse_args(arguments)
    folder = options.keep or Path(tempfile.mkdtemp(prefix="weft-chaos-"))
    wrong: list[str] = []
    with ExitStack() as stack:
        chaos = Chaos(folder, options.ps, options.workers, options.seed)
        stack.callback(chaos.close)
        if chaos.network.why_not:
            print(f"partitions are skipped: {chaos.network.why_not}", flush=True)
        chaos.begin()
        began = time.monotonic()
        print(f"seed {options.seed}: {', '.join(chaos.processes)}; all train", flush=True)
        for plan in chaos.plans():
            if time.monotonic() > began + 60 * options.minutes:
                break
            fault = chaos.strike(*plan)
            print(fault.line(began), flush=True)
            time.sleep(chaos.random.uniform(1, 4))
        wrong += chaos.end()
    wrong += [f"left behind: {what}" for what in chaos.left()]
    share, step = accuracy(folder)
    if share < TARGET:
        wrong.append(f"the accuracy is below {TARGET:.0%}")
    bad = [fault for fault in chaos.faults if fault.wrong]
    print(f"{len(chaos.faults)} faults, {len(bad)} not as they should")
    print(f"step {step}, accuracy {share:.2%}")
    for line in wrong:
        print(line)
    if options.keep is None:
        shutil.rmtree(folder)
    return 1 if wrong or bad else 0


if __name__ == "__main__":
    sys.exit(main())

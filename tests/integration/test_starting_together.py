"""First steps that start at the same time load modules without waiting for each other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from weft_testing.tasks import Process, jobs
from weft_testing.workspace import ROOT

SECONDS = 100

HEAD = f"""
import faulthandler, os, sys, threading
faulthandler.dump_traceback_later({SECONDS - 20}, exit=True)
import weft as wf
from weft_testing.locked_imports import LockedImports
imports = LockedImports()
sys.meta_path.insert(0, imports)

def fail(failure):
    sys.excepthook(*failure[:3])
    os._exit(4)

threading.excepthook = fail

def together(*works):
    barrier = threading.Barrier(len(works))
    threads = [threading.Thread(target=work, args=(barrier,)) for work in works]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""

TAIL = """
# A session plans one step at a time, and no module that is imported meanwhile has that session.
planning = ("session/base.py", "master/sessions.py")
for line, names in imports.noted.items():
    names = [name for name in names if name.startswith("weft")]
    if names and not line.rpartition(":")[0].endswith(planning):
        print(line, "holds a lock while it imports", *names)
"""

SESSIONS = """
def work(make):
    def run(barrier):
        with wf.Graph().as_default():
            wf.get_variable("v", [4], initializer=wf.zeros_initializer(), use_resource=True)
            out = make()
            with wf.Session() as session:
                barrier.wait()
                session.run(out)
    return run

together(work(wf.report_uninitialized_variables), work(wf.global_variables_initializer))
"""

QUEUE = """
server = wf.train.Server.create_local_server()

def work(make):
    def run(barrier):
        with wf.Graph().as_default():
            queue = wf.FIFOQueue(1, wf.float32, shapes=[()], shared_name="shared")
            total = make(queue)
            with wf.Session(server.target) as session:
                barrier.wait()
                for _ in range(3):
                    session.run(total, options=wf.RunOptions(timeout_in_ms=60_000))
    return run

together(work(lambda queue: queue.enqueue(2.0)), work(lambda queue: wf.square(queue.dequeue())))
"""

WORKER = """
cluster, task = eval(sys.argv[1], {}), int(sys.argv[2])
server = wf.train.Server(cluster, "worker", task)
with wf.device(wf.train.replica_device_setter(cluster=cluster)):
    v = wf.get_variable("v", [4], initializer=wf.zeros_initializer(), use_resource=True)
    train = wf.train.AdamOptimizer(0.1).minimize(wf.reduce_sum(wf.square(v - 1.0)))
first = wf.report_uninitialized_variables() if task else wf.global_variables_initializer()
with wf.Session(server.target) as session:
    for step in (first, train):
        print("ready", flush=True)
        sys.stdin.readline()
        session.run(step, options=wf.RunOptions(timeout_in_ms=60_000))
print("done", flush=True)
sys.stdin.readline()  # the other worker reaches variables through this one's master until then
"""


def environment(jit: str) -> dict[str, str]:
    """Set the mode of a program; "" leaves WEFT_JIT unset, the default."""
    support = str(ROOT / "tests" / "support")
    values = {key: value for key, value in os.environ.items() if key != "WEFT_JIT"}
    path = os.pathsep.join([support, *filter(None, [values.get("PYTHONPATH")])])
    return values | {"PYTHONPATH": path} | ({"WEFT_JIT": jit} if jit else {})


def run(*arguments: str, jit: str = "", seconds: float = SECONDS) -> str:
    """Return the output of a program that ends normally."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment(jit),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ------------------------------------------------------------------- registries


def registry_pairs(drawn: int, seconds: float) -> str:
    program = Path(ROOT, "tests", "support", "weft_testing", "registry_pairs.py")
    return run(str(program), str(drawn), seconds=seconds)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each pair is loaded in a forked process")
def test_registries_that_share_modules_and_some_others_load_in_pairs() -> None:
    assert registry_pairs(6, 200) == "5 6\n"


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="each pair is loaded in a forked process")
def test_all_pairs_of_registries_load_together() -> None:
    close, others = map(int, registry_pairs(0, 1800).split())
    assert close + others == 21 * 20 // 2


# ------------------------------------------------------------------- programs


@pytest.mark.parametrize("jit", ["", "now"])
def test_two_sessions_over_resource_variables_start_together(jit: str) -> None:
    assert run("-c", HEAD + SESSIONS + TAIL, jit=jit) == ""


def test_a_queue_is_shared_by_two_sessions_that_start_together() -> None:
    assert run("-c", HEAD + QUEUE + TAIL) == ""


def test_a_parameter_server_and_two_workers_start_together() -> None:
    cluster = jobs(ps=1, worker=2)
    pipe = subprocess.PIPE
    with Process(cluster, "ps", 0):
        workers = [
            subprocess.Popen(
                [sys.executable, "-c", HEAD + WORKER, repr(cluster), str(task)],
                env=environment(""),
                stdin=pipe,
                stdout=pipe,
                text=True,
            )
            for task in range(2)
        ]
        try:
            for line in ("ready\n", "ready\n", "done\n"):
                for worker in workers:
                    assert worker.stdout is not None and worker.stdout.readline() == line
                for worker in workers:
                    assert worker.stdin is not None
                    worker.stdin.write("\n")
                    worker.stdin.flush()
            assert [worker.wait(SECONDS) for worker in workers] == [0, 0]
        finally:
            for worker in workers:
                worker.kill()
                worker.communicate()

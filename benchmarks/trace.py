"""Measure what recording a trace costs, and how long large traces take to open.

    python benchmarks/trace.py [--tensorflow PYTHON] [--torch PYTHON] [--viztracer PYTHON]
    python benchmarks/trace.py --open FOLDER [--events 1 10 100]

Each row of the first table is a program in a process of its own, which runs blocks of steps without
and with a trace in turn; the figures are medians of the blocks. "rest" is what ending the recording
takes, per step: rows are made and written on another thread, and ending waits for it. TensorFlow's
FULL_TRACE keeps its records in memory; PyTorch's profiler (Kineto) and viztracer write a file.

`--open` writes synthetic traces of some million events to a folder unless they are there, and opens
each in headless Chromium, which draws in software: as one page, and by `weft trace open`. Times are
those of the page since the navigation, processor times those of all processes of the browser and
of the server, and memory the peak of the largest process. It needs selenium and chromedriver.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from report import machine, markdown_table
from subjects import environment

PROGRAMS = Path(__file__).parent / "programs"
SUPPORT = Path(__file__).parents[1] / "tests" / "support"
_MOST_PAGE_EVENTS = 100_000_000  # whose page would have more than a gigabyte


class Subject(NamedTuple):
    """A way to record, and the programs that it runs."""

    title: str
    command: Sequence[str]
    jit: str = ""
    programs: Sequence[str] = ("chain", "convnet")


def measured(subject: Subject, program: str, rounds: int) -> dict[str, float]:
    """Run one program, and return what it prints."""
    variables = environment(1) | ({"WEFT_JIT": subject.jit} if subject.jit else {})
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "PYTHONDONTWRITEBYTECODE"):
        variables.pop(name, None)
    done = subprocess.run(
        [*subject.command, program, str(rounds)],
        env=variables, capture_output=True, text=True, check=True, timeout=900,
    )  # fmt: skip
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def list_subjects(arguments: argparse.Namespace) -> Iterator[Subject]:
    """Yield weft, and the peers whose interpreters are given."""
    program = str(PROGRAMS / "trace_v1.py")
    yield Subject("weft, kernels", [sys.executable, program, "weft"], "off")
    yield Subject("weft, compiled", [sys.executable, program, "weft"], "now")
    if arguments.tensorflow:
        command = [arguments.tensorflow, program, "tensorflow"]
        yield Subject("TensorFlow FULL_TRACE", command)
    if arguments.torch:
        yield Subject("PyTorch profiler", [arguments.torch, str(PROGRAMS / "trace_torch.py")])
    if arguments.viztracer:
        command = [arguments.viztracer, str(PROGRAMS / "trace_viztracer.py")]
        yield Subject("viztracer", command, programs=("chain",))


def print_costs(arguments: argparse.Namespace) -> None:
    """Print the table of recording."""
    head = ["Program", "System", "plain, ms", "traced, ms", "more", "rest, ms", "events"]
    body = []
    for program in ("chain", "convnet"):
        for subject in list_subjects(arguments):
            if program not in subject.programs:
                continue
            result = measured(subject, program, arguments.rounds)
            more = 100 * (result["traced"] / result["plain"] - 1)
            size = result["bytes"] / result["events"] if result["events"] else 0
            body.append([
                program, subject.title, f"{result['plain']:.3f}", f"{result['traced']:.3f}",
                f"{more:.1f} %", f"{result['rest']:.3f}", f"{result['events']:.0f}",
                f"{size:.1f}" if size else "–",
            ])  # fmt: skip
            print(f"{program}, {subject.title}: {more:.1f} %", file=sys.stderr, flush=True)
    print(markdown_table([*head, "bytes per event"], body))


def print_open_times(folder: Path, millions: Sequence[int]) -> None:
    """Print the table of opening."""
    sys.path.insert(0, str(SUPPORT))
    from weft_testing.synthetic_trace import Cluster, Settings, write_cluster

    body = []
    for million in millions:
        path = folder / f"{million}m.weft-trace"
        if not path.exists():
            settings = Settings(servers=1, workers=2, nodes=24, iterations=3)
            write_cluster(path, Cluster(settings, 3), steps=24, events=million * 10**6)
        for way in ("page", "server"):
            if way == "page" and million * 10**6 >= _MOST_PAGE_EVENTS:
                continue
            result = open_trace(path, way)
            body.append([
                f"{million} million", way, f"{path.stat().st_size / million / 1e6:.1f}",
                f"{result['overview']:.1f}", f"{result['step']:.1f}", f"{result['browser']:.1f}",
                f"{result['server']:.1f}", f"{result['browser MB']:.0f}",
                f"{result['server MB']:.0f}", f"{result['frame']:.1f}",
            ])  # fmt: skip
            print(f"{million} million events, {way}", file=sys.stderr, flush=True)
    head = [
        "Events", "Opened as", "bytes per event", "overview, s", "step, s", "browser, CPU s",
        "server, CPU s", "browser, MB", "server, MB", "CPU ms per frame",
    ]  # fmt: skip
    print(markdown_table(head, body))


def open_trace(path: Path, way: str) -> dict[str, float]:
    """Open a trace in Chromium, pan over it, and return what that took."""
    from weft_testing.browser import chrome

    from weft_trace.page import write_page

    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        server = None
        if way == "page":
            page = Path(scratch) / "page.html"
            write_page(page, [path])
            url = page.as_uri()
        else:
            command = [sys.executable, "-m", "weft", "trace", "open", str(path), "--no-browser"]
            server = stack.enter_context(
                subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            )
            stack.callback(server.terminate)
            assert server.stdout is not None
            url = server.stdout.readline().split()[0]
        browser = stack.enter_context(chrome(Path(scratch)))
        driver = browser.service.process.pid
        before = sum_processor_time(driver)
        browser.set_script_timeout(600)
        browser.get(url)
        marks = browser.execute_async_script(_WAIT)
        opened = sum_processor_time(driver)
        browser.execute_async_script(_PAN)
        panned = sum_processor_time(driver)
        return {
            "overview": marks[0] / 1e3, "step": marks[1] / 1e3,
            "browser": opened - before,
            "browser MB": max(map(peak_megabytes, descendants(driver))),
            "server": sum_processor_time(server.pid) if server else 0.0,
            "server MB": peak_megabytes(server.pid) if server else 0.0,
            "frame": (panned - opened) / _FRAMES * 1e3,
        }  # fmt: skip


_FRAMES = 120
_WAIT = """
const done = arguments[0];
function look() {
  const times = ['overview', 'step'].map(name => performance.getEntriesByName(name)[0]?.startTime);
  const canvas = document.querySelector('.timeline canvas');
  if (times.every(Boolean)) done(times);
  else if (Number(canvas?.dataset.end) > 0 && document.getElementById('progress').hidden
           && document.querySelectorAll('.path .row').length) {
    done([performance.now(), performance.now()]);  // a small trace, which is read as a whole
  } else setTimeout(look, 20);
}
look();
"""
_PAN = f"""
const done = arguments[0];
const press = (kind) => document.dispatchEvent(new KeyboardEvent(kind, {{key: 'd'}}));
document.activeElement.blur();
press('keydown');
let frames = 0;
requestAnimationFrame(function count() {{
  if (++frames < {_FRAMES}) return requestAnimationFrame(count);
  press('keyup');
  done();
}});
"""


def descendants(pid: int) -> list[int]:
    """Return a process and all that it started (Linux)."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = [pid]
    for parent in found:
        found += children.get(parent, [])
    return found


def sum_processor_time(pid: int) -> float:
    """Return the processor seconds of a process and all that it started."""
    total = 0
    for process in descendants(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / 100


def peak_megabytes(pid: int) -> float:
    """Return the largest resident size that a process had."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1000
    return 0.0


def main() -> Any:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tensorflow", help="an interpreter that has TensorFlow")
    parser.add_argument("--torch", help="an interpreter that has PyTorch")
    parser.add_argument("--viztracer", help="an interpreter that has viztracer")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--open", type=Path, metavar="FOLDER", help="measure opening instead")
    parser.add_argument("--events", type=int, nargs="+", default=[1, 10, 100], help="in millions")
    arguments = parser.parse_args()
    print(machine())
    if arguments.open:
        print_open_times(arguments.open, arguments.events)
    else:
        print_costs(arguments)


if __name__ == "__main__":
    main()

"""`weft cache`: list, create and remove compiled code and measurements on disk."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from weft_compiler.native import cache
from weft_graph.ir import script_record

_KINDS: Final = {
    ".o": "pieces of code",
    ".nodes": "programs",
    ".constant": "large constants",
    ".profile": "measurements",
    ".script": "scripts",
}
_SHOW_SECONDS: Final = 0.5
_WARMED_SECONDS: Final = 10.0
"""Run time with kernels, in seconds, that is recorded for regions of a warmed script: its runs then
look for compiled code immediately.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """List the compiled code on the disk, compile a script ahead of time, or remove all."""
    actions = parser.add_subparsers(dest="action", required=True)
    listing = actions.add_parser("list", help="list compiled code and measurements")
    listing.set_defaults(run=list_entries)
    warm = actions.add_parser("warm", help="fill the cache by running a script")
    warm.add_argument("script", type=Path, help="a Python program")
    warm.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's arguments")
    warm.set_defaults(run=warm_script)
    clear = actions.add_parser("clear", help="remove all entries")
    clear.set_defaults(run=clear_entries)


def list_entries(arguments: argparse.Namespace) -> int:
    """Print the number and size of the entries by kind, and the measured regions."""
    directory = _directory()
    if directory is None:
        return 1
    sys.stdout.write(f"{directory}\n")
    sizes: dict[str, list[int]] = {}
    for path in cache.entries(directory):
        sizes.setdefault(path.suffix, []).append(path.stat().st_size)
    for suffix, kind in _KINDS.items():
        result = sizes.get(suffix, [])
        sys.stdout.write(f"{len(result):8,} {kind:16} {sum(result):14,} bytes\n")
    histories = [_history(path) for path in cache.entries(directory) if path.suffix == ".profile"]
    measured = [history for history in histories if history is not None]
    if measured:
        sys.stdout.write(
            "\nregion, nodes, runs with kernels, seconds of them, seconds to compile\n"
        )
    for history in sorted(measured, key=lambda h: -h["kernel_seconds"]):
        price = history["compile_seconds"]
        columns = [
            _escape_unprintable(history["name"]),
            f"{history['members']}",
            f"{history['runs']}",
            f"{history['kernel_seconds']:.2f}",
            "" if price is None else f"{price:.2f}",
            "slower compiled" if history["is_slower"] else "",
        ]
        sys.stdout.write("\t".join(columns) + "\n")
    return 0


def warm_script(arguments: argparse.Namespace) -> int:
    """Run a script with `WEFT_JIT=now`; on a terminal, show how much code it has added."""
    directory = _directory()
    if directory is None:
        return 1
    if not arguments.script.is_file():
        sys.stderr.write(f"there is no script {arguments.script}\n")
        return 2
    num_before, started = len(list(cache.entries(directory))), time.monotonic()
    command = [sys.executable, str(arguments.script), *arguments.arguments]
    process = subprocess.Popen(command, env={**os.environ, "WEFT_JIT": "now"})
    while True:
        try:
            code = process.wait(_SHOW_SECONDS)
            break
        except subprocess.TimeoutExpired:
            _show(directory, num_before, started, "\r" if sys.stderr.isatty() else "")
        except KeyboardInterrupt:  # the script received it too; its compiled code stays
            code = process.wait()
            break
    _show(directory, num_before, started, "\n")
    run = script_record.ScriptRecord(_WARMED_SECONDS, has_code=True)
    script_record.record(arguments.script, run)
    return code if code >= 0 else 128 - code  # as shells report signals


def clear_entries(arguments: argparse.Namespace) -> int:
    """Remove all entries."""
    directory = _directory()
    if directory is None:
        return 1
    entries = list(cache.entries(directory))
    size = sum(path.stat().st_size for path in entries)
    for path in entries:
        path.unlink(missing_ok=True)
    with contextlib.suppress(
        OSError
    ):  # another process added an entry, or the folder does not exist
        (directory / cache.SHARED).rmdir()
    sys.stdout.write(f"removed {len(entries):,} entries, {size:,} bytes, of {directory}\n")
    return 0


def _directory() -> Path | None:
    directory = cache.directory()
    if directory is None:
        name = os.environ.get("WEFT_CACHE") or "~/.cache/weft/objects"
        why = (
            "WEFT_CACHE=off switches it off"
            if name == "off"
            else f"the directory {name} cannot be created, or other users may write to it"
        )
        sys.stderr.write(f"there is no cache: {why}\n")
    return directory


def _show(directory: Path, num_before: int, started: float, end: str) -> None:
    """Write the number of added entries to a line that the next update overwrites."""
    if end:
        added = len(list(cache.entries(directory))) - num_before
        seconds = time.monotonic() - started
        sys.stderr.write(f"weft cache warm: {added:,} entries added in {seconds:.1f} s{end}")
        sys.stderr.flush()


def _history(path: Path) -> dict[str, Any] | None:
    """Read the measurements in a file.

    Return None if there are none or the file was removed meanwhile.
    """
    content = cache.read(path.name)
    try:
        history = json.loads(content or b"null")
        return {
            "name": str(history["name"]),
            "members": int(history["members"]),
            "runs": int(history["runs"]),
            "kernel_seconds": float(history["kernel_seconds"]),
            "compile_seconds": history["compile_seconds"] and float(history["compile_seconds"]),
            "is_slower": bool(history["is_slower"]),
        }
    except (ValueError, LookupError, TypeError):
        return None


def _escape_unprintable(text: str) -> str:
    """Escape the unprintable characters of a text, because it may contain terminal commands."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()

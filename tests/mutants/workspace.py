"""A copy of the tree in which mutants are run; the working tree is never changed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from selection import Mutant, mirrored_tests

_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?)(?: - .*)?$", re.MULTILINE)
_NO_TESTS = 5
"""What pytest returns when a selection is empty."""

_SECONDS_PER_TEST = 60


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant.

    Attributes:
      is_killed: True if a test noticed it.
      note: the test that did, or why none did.
      seconds: how long its tests ran.
    """

    is_killed: bool
    note: str
    seconds: float

    @property
    def verdict(self) -> str:
        """The word for it in the report."""
        return "killed" if self.is_killed else "survived"


class Workspace:
    """A folder with a copy of the repository, and the processes that test it.

    Args:
      folder: the copy.
      source: the repository.
    """

    def __init__(self, folder: Path, source: Path) -> None:
        self._folder = folder
        self._source = source
        self._deselected: set[str] = set()

    @classmethod
    @contextmanager
    def copy_of(cls, root: Path) -> Iterator[Workspace]:
        """Copy a repository for as long as the context lasts.

        Raises: SystemExit: the packages would be imported from somewhere else than the copy.
        """
        with TemporaryDirectory(prefix="weft-mutants-") as name:
            folder = Path(name) / "tree"
            ignored = shutil.ignore_patterns(
                ".git", ".hatch", "__pycache__", "node_modules", "site"
            )
            shutil.copytree(root, folder, symlinks=True, ignore=ignored)
            workspace = cls(folder, root)
            workspace._check_imports()
            yield workspace

    def run(self, mutant: Mutant, seconds: float) -> Outcome:
        """Test one mutant.

        Args:
          seconds: after which its tests are stopped; it has survived then.
        Raises: SystemExit: the file is not what the mutant was made of.
        """
        target = self._folder / mutant.path
        source = target.read_text(encoding="utf-8")
        start = time.monotonic()
        target.write_text(mutant.mutation.apply(source), encoding="utf-8")
        try:
            for arguments in mirrored_tests(self._source, mutant.path):
                note = self._noticed_by(arguments, target, source, start + seconds)
                if note is not None:
                    return Outcome(True, note, time.monotonic() - start)
                if time.monotonic() > start + seconds:
                    note = f"within {seconds:.0f} s"
                    return Outcome(False, note, time.monotonic() - start)
        finally:
            target.write_text(source, encoding="utf-8")
        return Outcome(False, "no mirrored test failed", time.monotonic() - start)

    def _noticed_by(
        self, arguments: Sequence[str], target: Path, source: str, deadline: float
    ) -> str | None:
        """Return the test that fails with the mutant and passes without, None if there is none."""
        mutated = target.read_text(encoding="utf-8")
        while True:
            status, output = self._pytest(arguments, deadline)
            if status in (0, _NO_TESTS, None):
                return None
            failed = _FAILED.search(output)
            if failed is None:
                return f"the process ended with {status}"
            target.write_text(source, encoding="utf-8")
            passes, _ = self._pytest([failed[1]], deadline + _SECONDS_PER_TEST)
            target.write_text(mutated, encoding="utf-8")
            if passes in (0, _NO_TESTS):
                return failed[1]
            self._deselected.add(failed[1])  # it fails without the mutant, too

    def _pytest(self, arguments: Sequence[str], deadline: float) -> tuple[int | None, str]:
        """Run tests up to the first failure; returns pytest's status, None if time was over."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "--no-header", "--tb=no"]
        command += ["-p", "no:cacheprovider", f"--timeout={_SECONDS_PER_TEST}"]
        command += [f"--deselect={test}" for test in sorted(self._deselected)]
        with TemporaryDirectory(prefix="weft-mutants-cache-") as cache:
            return self._call([*command, *arguments], cache, deadline)

    def _call(self, command: Sequence[str], cache: str, deadline: float) -> tuple[int | None, str]:
        """Run a command with the copy's packages, and end all of its processes by a deadline."""
        process = subprocess.Popen(
            command,
            cwd=self._folder,
            env=self._environment(cache),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            _end_session(process)
        return process.returncode, output

    def _environment(self, cache: str) -> dict[str, str]:
        """The environment of a child: the packages of the copy, and a cache of its own."""
        sources = sorted(map(str, self._folder.glob("packages/*/src")))
        sources += sorted(map(str, self._folder.glob("tests/*/src")))
        return os.environ | {
            "HYPOTHESIS_PROFILE": "suite",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join(sources),
            "WEFT_CACHE": cache,
        }

    def _check_imports(self) -> None:
        module = next(self._folder.glob("packages/*/src/*/__init__.py")).parent.name
        command = [sys.executable, "-c", f"import {module}; print({module}.__file__)"]
        _, output = self._call(command, str(self._folder), time.monotonic() + 60)
        if not output.strip().startswith(str(self._folder)):
            raise SystemExit(f"{module} is imported from {output.strip()}, not {self._folder}")


def _end_session(process: subprocess.Popen[str]) -> None:
    """End a process and all that it started, such as servers of tests."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout:
        process.stdout.close()

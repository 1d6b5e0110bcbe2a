"""A copy of the tree in which mutants are run; the working tree is never changed."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

import child
from selection import Mutant, mirrored_tests


class Verdict(StrEnum):
    """The outcome of a mutant; all except the last count as killed."""

    KILLED = "killed"
    """A test failed."""

    HUNG = "hung"
    """A test did not end."""

    CRASHED = "crashed"
    """A signal ended the tests, or they could not be loaded."""

    SURVIVED = "survived"


@dataclass(frozen=True)
class Limits:
    """Times after which tests are stopped.

    Attributes:
      selection: processor seconds of one selection of tests.
      test: elapsed seconds of one test; ten times what it takes without the mutant if that is more.
    """

    selection: float = 300
    test: float = 60


@dataclass(frozen=True)
class Outcome:
    """The result of testing a mutant.

    Attributes:
      verdict: one word for it.
      note: the test that noticed it, or why none did.
      seconds: how long its tests ran.
    """

    verdict: Verdict
    note: str
    seconds: float = 0

    @property
    def is_killed(self) -> bool:
        """True if a test noticed it."""
        return self.verdict is not Verdict.SURVIVED


class Workspace:
    """A folder with a copy of the repository, and the processes that test it.

    Args:
      folder: the copy.
      source: the repository.
      limits: of the tests.
    """

    def __init__(self, folder: Path, source: Path, limits: Limits) -> None:
        self._folder = folder
        self._source = source
        self._limits = limits
        self._deselected: set[str] = set()

    @classmethod
    @contextmanager
    def copy_of(cls, root: Path, limits: Limits) -> Iterator[Workspace]:
        """Copy a repository for as long as the context lasts.

        Raises: SystemExit: the packages would be imported from somewhere else than the copy.
        """
        with TemporaryDirectory(prefix="weft-mutants-") as name:
            folder = Path(name) / "tree"
            ignored = shutil.ignore_patterns(
                ".git", ".hatch", "__pycache__", "node_modules", "site"
            )
            shutil.copytree(root, folder, symlinks=True, ignore=ignored)
            workspace = cls(folder, root, limits)
            workspace._check_imports()
            yield workspace

    def run(self, mutant: Mutant) -> Outcome:
        """Test one mutant.

        Raises: SystemExit: pytest cannot run its tests without the mutant, either.
        """
        start = time.monotonic()
        outcome = Outcome(Verdict.SURVIVED, "no mirrored test failed")
        for arguments in mirrored_tests(self._source, mutant.path):
            noticed = self._test(arguments, mutant)
            if noticed is not None:
                outcome = noticed
                break
        return replace(outcome, seconds=time.monotonic() - start)

    def _test(self, arguments: Sequence[str], mutant: Mutant) -> Outcome | None:
        """Run tests with a mutant; None if they all pass, except those that fail without it."""
        while True:
            result = self._pytest(arguments, mutant)
            if result.is_clean:
                return None
            if result.status is None:
                note = f"within {self._limits.selection:.0f} s of processor time"
                return Outcome(Verdict.SURVIVED, note)
            culprit = result.failed or result.running
            if culprit is None:
                return self._confirm_unloaded(result, arguments)
            outcome = self._confirm(result, culprit, mutant)
            if outcome is not None:
                return outcome
            self._deselected.add(culprit)

    def _confirm(self, result: child.Result, culprit: str, mutant: Mutant) -> Outcome | None:
        """Return the verdict if a test that failed passes without the mutant, None otherwise."""
        original = self._pytest([culprit, "--durations=0", "--durations-min=0"])
        if not original.is_clean:
            return None
        if result.failed is None:
            note = f"{culprit}: the process ended with {result.status}"
            return Outcome(Verdict.CRASHED, note)
        if not result.has_timed_out:
            return Outcome(Verdict.KILLED, culprit)
        limit = max(self._limits.test, 10 * original.seconds)
        again = self._pytest([culprit], mutant, limit)
        if again.is_clean:
            return None
        return Outcome(Verdict.HUNG if again.has_timed_out else Verdict.KILLED, culprit)

    def _confirm_unloaded(self, result: child.Result, arguments: Sequence[str]) -> Outcome:
        """Return the verdict of tests that could not be loaded.

        Raises: SystemExit: they cannot without the mutant, either.
        """
        original = self._pytest([*arguments, "--collect-only"])
        if not original.is_clean:
            raise SystemExit(
                f"pytest {' '.join(arguments)} ends with {original.status} without a mutant, too:\n"
                f"{original.output}"
            )
        return Outcome(Verdict.CRASHED, f"{arguments[0]}: pytest ended with {result.status}")

    def _pytest(
        self, arguments: Sequence[str], mutant: Mutant | None = None, test: float | None = None
    ) -> child.Result:
        """Run tests up to the first failure.

        Args:
          mutant: what to change while they run; nothing by default.
          test: elapsed seconds after which a test fails; the usual limit by default.
        """
        command = [sys.executable, "-m", "pytest", "-x", "-v", "-rfE", "--no-header", "--tb=no"]
        command += ["-p", "no:cacheprovider", f"--timeout={test or self._limits.test}"]
        command += [f"--deselect={name}" for name in sorted(self._deselected)]
        with TemporaryDirectory(prefix="weft-mutants-cache-") as cache, self._changed(mutant):
            return self._call([*command, *arguments], cache)

    @contextmanager
    def _changed(self, mutant: Mutant | None) -> Iterator[None]:
        """Have a mutant in the copy for as long as the context lasts."""
        if mutant is None:
            yield
            return
        target = self._folder / mutant.path
        source = target.read_text(encoding="utf-8")
        target.write_text(mutant.mutation.apply(source), encoding="utf-8")
        try:
            yield
        finally:
            target.write_text(source, encoding="utf-8")

    def _call(self, command: Sequence[str], cache: str) -> child.Result:
        return child.run(command, self._folder, self._environment(cache), self._limits.selection)

    def _environment(self, cache: str) -> dict[str, str]:
        """Return the environment of a child: the packages of the copy, and a separate cache."""
        sources = sorted(map(str, self._folder.glob("packages/*/src")))
        sources += sorted(map(str, self._folder.glob("tests/*/src")))
        inherited = {key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"}
        return inherited | {
            "HYPOTHESIS_PROFILE": "suite",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join(sources),
            "WEFT_CACHE": cache,
        }

    def _check_imports(self) -> None:
        module = next(self._folder.glob("packages/*/src/*/__init__.py")).parent.name
        command = [sys.executable, "-c", f"import {module}; print({module}.__file__)"]
        output = self._call(command, str(self._folder)).output
        if not output.strip().startswith(str(self._folder)):
            raise SystemExit(f"{module} is imported from {output.strip()}, not {self._folder}")

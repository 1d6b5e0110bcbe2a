"""Passes: their interface, their remarks, and the pipelines that run them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from weft_compiler.ir.program import Program
from weft_compiler.ir.verifier import verify
from weft_compiler.passes.dump import ProgramDump
from weft_tensor import errors

_log: Final = logging.getLogger("weft")


@dataclass(frozen=True, slots=True)
class Remark:
    """A remark of a pass about a rewrite, or about the reason why it did not rewrite something.

    Attributes:
      pass_name: the pass.
      subject: the name of the loop, buffer or check that the remark is about.
      applied: True if the pass rewrote the subject.
      template: the message, with `%` placeholders.
      arguments: the values of the placeholders.
    """

    pass_name: str
    subject: str
    applied: bool
    template: str
    arguments: tuple[object, ...] = ()

    @property
    def message(self) -> str:
        """The remark as a clause."""
        return self.template % self.arguments

    def __str__(self) -> str:
        prefix = "" if self.applied else "not applied, "
        return f"{self.pass_name}: {self.subject}: {prefix}{self.message}"


class Context:
    """The environment of a pass: its target, and the collector of its remarks.

    Args:
      pass_name: the pass.
      vector_bytes: size of a vector register of the processor; 0 if unknown.

    Attributes:
      remarks: the remarks of the pass so far.
    """

    def __init__(self, pass_name: str = "", vector_bytes: int = 0) -> None:
        self._pass_name = pass_name
        self.vector_bytes = vector_bytes
        self.remarks: list[Remark] = []

    def record_applied(self, subject: str, message: str, *arguments: object) -> None:
        """Record a rewrite; the message is formatted when it is shown."""
        self.remarks.append(Remark(self._pass_name, subject, True, message, arguments))

    def record_missed(self, subject: str, reason: str, *arguments: object) -> None:
        """Record that something was not rewritten, and why."""
        self.remarks.append(Remark(self._pass_name, subject, False, reason, arguments))


@dataclass(frozen=True, slots=True)
class PassResult:
    """The result of one pass or of a pipeline.

    Attributes:
      program: the rewritten program; the input program if nothing changed.
      modified: True if the program changed.
      remarks: the remarks of the passes.
    """

    program: Program
    modified: bool
    remarks: tuple[Remark, ...]


@dataclass(frozen=True, slots=True)
class Pass:
    """A rewrite of programs that preserves their meaning.

    Attributes:
      name: its name in remarks, dumps and on the command line.
      summary: a description in one line.
      run: rewrites a program; returns the same object if nothing changes.
      requires: the names of passes that must precede it in a pipeline.
    """

    name: str
    summary: str
    run: Callable[[Program, Context], Program]
    requires: tuple[str, ...] = ()

    def __call__(self, program: Program, vector_bytes: int = 0) -> PassResult:
        """Run the pass alone.

        Args:
          vector_bytes: as in `Context`.
        """
        context = Context(self.name, vector_bytes)
        rewritten = self.run(program, context)
        return PassResult(rewritten, rewritten is not program, tuple(context.remarks))


class Pipeline:
    """A sequence of passes.

    Raises: InternalError: a pass comes before one that it requires.
    """

    def __init__(self, *passes: Pass) -> None:
        self._passes = passes
        earlier: set[str] = set()
        for item in passes:
            missing = sorted(set(item.requires) - earlier)
            if missing:
                raise errors.InternalError(f"the pass {item.name} must come after {missing}")
            earlier.add(item.name)

    def __iter__(self) -> Iterator[Pass]:
        return iter(self._passes)

    def run(self, program: Program, vector_bytes: int = 0, check: bool = False) -> PassResult:
        """Run the passes in order.

        With `WEFT_JIT_DUMP=DIR` the program is written to DIR before the first pass and after each
        pass that changed it. Remarks are logged at the level DEBUG.

        Args:
          vector_bytes: as in `Context`.
          check: verify the program after each pass.
        Raises:
          InternalError: a pass broke a rule of the IR; only with `check`.
          SettingError: the directory of `WEFT_JIT_DUMP` cannot be used.
        """
        original, remarks = program, list[Remark]()
        dump = ProgramDump.begin(program)
        for number, item in enumerate(self._passes, 1):
            result = item(program, vector_bytes)
            program = result.program
            remarks += result.remarks
            if check:
                verify(program)
            if dump is not None and result.modified:
                dump.write(number, item.name, program)
        _log_remarks(program.name, remarks)
        return PassResult(program, program is not original, tuple(remarks))


def _log_remarks(name: str, remarks: Sequence[Remark]) -> None:
    if _log.isEnabledFor(logging.DEBUG):
        for remark in remarks:
            _log.debug("%s: %s", name, remark)

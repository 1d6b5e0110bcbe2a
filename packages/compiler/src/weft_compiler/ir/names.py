"""Names that a program does not have yet."""

from __future__ import annotations

import itertools

from weft_compiler.ir.program import Allocate, For, Let, Program, Var, walk


class Names:
    """Finds names for what a pass adds to a program."""

    def __init__(self, program: Program) -> None:
        self._used = {b.name for b in (*program.inputs, *program.outputs)}
        for each in walk(program.body):
            if isinstance(each, For):
                self._used.add(each.variable)
            elif isinstance(each, Let | Var):
                self._used.add(each.name)
            elif isinstance(each, Allocate):
                self._used.add(each.buffer.name)

    def new(self, given: str) -> str:
        """A name that nothing has, such as `given_2`."""
        tried = (f"{given}_{number}" for number in itertools.count(2))
        name = next(each for each in tried if each not in self._used)
        self._used.add(name)
        return name

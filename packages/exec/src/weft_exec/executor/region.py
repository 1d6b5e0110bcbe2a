"""Regions: several nodes that one function computes, and that traces and errors still name."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from traceback import clear_frames
from typing import Any, NoReturn

import numpy as np

from weft_exec.devices.device import Device
from weft_exec.executor.derivation import Placement
from weft_exec.executor.kernel_errors import describe, located, raise_located
from weft_exec.executor.linear import (
    Check,
    Compound,
    Instruction,
    Segment,
    Slots,
    Trace,
    gather,
    slot_range,
)
from weft_exec.executor.priority import changed_by
from weft_graph.ir.node import Node, Output
from weft_tensor import errors
from weft_tensor.shape import Dims


class Region:
    """Nodes that are computed together.

    Attributes:
      node: what stands for them in the graph.
      members: sources before users; they stay in the graph, where nothing takes their outputs but
        each other.
      outputs: what others take of them, in the order of the function's results.
      compiler: the name of what computes them.
    """

    def __init__(
        self,
        node: Node,
        members: Sequence[Node],
        outputs: Sequence[Output],
        compiler: str,
    ) -> None:
        self.node = node
        self.members = tuple(members)
        self.outputs = tuple(outputs)
        self.compiler = compiler

    @property
    def updated(self) -> list[Output]:
        """Those of the inputs whose variables the members change: references and handles."""
        return [self.node.inputs[at] for at in self.node.attrs["updates"]]

    @property
    def inputs(self) -> tuple[Output, ...]:
        """The outputs of other nodes that they take, in the order of the function's arguments."""
        return self.node.inputs


class ByKernels:
    """What a function gives to have the members run one by one, and be told how long that took."""

    __slots__ = ()

    def took(self, seconds: float) -> None:
        """Note how long the members took."""
        raise NotImplementedError


class RegionCall(Compound):
    """The function of a region's node.

    Args:
      place: gives the kernels of the members, for steps that look at each of them.
      function: computes them all, or returns NotImplemented or a `ByKernels` where the members are
        to run one by one; None if they always are. If it has a method `stop`, that is called when
        the session is closed, to end calls that run.
    """

    def __init__(
        self, region: Region, device: Device, place: Placement, function: Callable[..., Any] | None
    ) -> None:
        self._region = region
        self._device = device
        self._function = function
        self._expected = tuple(map(_expected, region.outputs))
        self._slots: dict[Output, int] = {out: i + 1 for i, out in enumerate(region.inputs)}
        self._size = 1 + len(region.inputs)
        self._updated = set(region.updated)
        self._reads: dict[Output, int] = {}
        work: list[tuple[Node, Instruction, Sequence[int]]] = []
        for member in region.members:
            work += self._work(member, *place(member))
        nodes = [node for node, _, _ in work]
        self._members = Segment(self._forgetting(work), nodes, [device.name] * len(work))
        self._given = gather([self._slots[output] for output in region.outputs])

    def __call__(self, *inputs: Any) -> Any:
        """The results, by the function; where it fails, the member that does is found."""
        if self._function is None:
            return self._by_kernels(inputs)
        try:
            values = self._function(*inputs)
            timed = isinstance(values, ByKernels)
            if not timed and values is not NotImplemented:
                self._check(values)
                return values
        except Exception as error:  # because a compiler's function may raise anything
            failed = error
        else:
            return self._timed(values, inputs) if timed else self._by_kernels(inputs)
        try:
            self._explain(failed, inputs)
        finally:
            del failed  # its traceback holds this frame

    def call_checked(self, check: Check, trace: Trace | None, *inputs: Any) -> Any:
        """The results, by the kernels of the members one after the other."""
        slots = self._filled(inputs)
        self._members.run_checked(slots, check, trace)
        return self._results(slots)

    def stop(self) -> None:
        """Tell the function that the session is closed, if it wants to know."""
        stop = getattr(self._function, "stop", None)
        if stop is not None:
            stop()

    @property
    def segments(self) -> Sequence[Segment]:
        """The members."""
        return (self._members,)

    def _timed(self, asked: ByKernels, inputs: Sequence[Any]) -> Any:
        started = time.thread_time()
        values = self._by_kernels(inputs)
        asked.took(time.thread_time() - started)
        return values

    def _by_kernels(self, inputs: Sequence[Any]) -> Any:
        slots = self._filled(inputs)
        self._members.run(slots)
        return self._results(slots)

    def _filled(self, inputs: Sequence[Any]) -> Slots:
        return [None, *inputs, *[None] * (self._size - 1 - len(inputs))]

    def _results(self, slots: Slots) -> Any:
        values = self._given(slots)
        return values[0] if len(values) == 1 else values

    def _check(self, values: Any) -> None:
        """Raise InternalError unless the results are what others take of the members."""
        expected = self._expected
        if len(expected) == 1:
            values = (values,)
        elif expected and (type(values) not in (tuple, list) or len(values) != len(expected)):
            raise errors.InternalError(
                f"a tuple of {len(expected)} results was required, got {describe(values)}"
                + (f" of {len(values)}" if type(values) in (tuple, list) else "")
            )
        for i, (dtype, dims) in enumerate(expected):
            value = values[i]
            if dtype is not None and getattr(value, "dtype", None) != dtype:
                raise self._wrong(i, dtype.name, describe(value))
            if dims is not None and value.shape != dims and not _fits(value.shape, dims):
                raise self._wrong(i, f"shape {list(dims)}", describe(value))

    def _wrong(self, position: int, required: str, got: str) -> errors.InternalError:
        output = self._region.outputs[position]
        node = output.node
        return errors.InternalError(
            f"for {output.name!r} {required} was required, got {got}",
            op=node.type,
            node=node.name,
            line=node.line or None,
        )

    def _explain(self, error: Exception, inputs: Sequence[Any]) -> NoReturn:
        """Raise what the member raises that fails, or that none does."""
        _clear_tracebacks(error)
        self._members.run(self._filled(inputs))
        given = ", ".join(map(describe, inputs))
        said = f"failed on {given}, and no kernel of these does"
        raise_located(compiler_error(self._region, self._device, said, error))

    def _work(
        self, node: Node, device: Device, kernel: Any
    ) -> list[tuple[Node, Instruction, Sequence[int]]]:
        """A member's instruction, after reads of what it takes of variables that others change.

        With each is its node, and the slots that it uses.
        """
        found: list[tuple[Node, Instruction, Sequence[int]]] = []
        taken: list[int] = []
        changed = set(changed_by(node))
        for source in node.inputs:
            slot = self._slots[source]
            if source in self._updated and source.dtype.is_ref and source not in changed:
                if source not in self._reads:
                    self._reads[source] = self._size
                    read = (_read, gather([slot]), self._size, ())
                    found.append((source.node, read, [slot]))
                    self._size += 1
                slot = self._reads[source]
            taken.append(slot)
        instruction = self._instruction(node, device, kernel, taken)
        return [*found, (node, instruction, taken)]

    def _instruction(
        self, node: Node, device: Device, kernel: Any, taken: Sequence[int]
    ) -> Instruction:
        try:
            function = kernel.make(node, device)
        except Exception as error:  # because a factory may raise anything; it is located
            raise_located(located(error, node, device.name, ()))
        first = self._size
        for output in node.outputs:
            self._slots[output] = self._size
            self._size += 1
        target: int | slice = first if node.outputs else 0
        if len(node.outputs) > 1:
            target = slice(first, self._size)
        return function, gather(taken), target, ()

    def _forgetting(
        self, work: Sequence[tuple[Node, Instruction, Sequence[int]]]
    ) -> list[Instruction]:
        """The instructions, each of which forgets what only those before it and it need."""
        last: dict[int, int] = {}
        for i, (_, (_, _, target, _), taken) in enumerate(work):
            last.update(dict.fromkeys(slot_range(target), i))
            last.update(dict.fromkeys(taken, i))
        kept = {self._slots[output] for output in self._region.outputs}
        dead: list[list[int]] = [[] for _ in work]
        for slot, i in last.items():
            if slot not in kept:
                dead[i].append(slot)
        return [
            (function, take, target, tuple(slots))
            for (_, (function, take, target, _), _), slots in zip(work, dead, strict=True)
        ]


def _read(state: Any) -> Any:
    return state.read()


def compiler_error(region: Region, device: Device, said: str, error: Exception) -> errors.OpError:
    """An error of a compiler, where no kernel fails: at the last member, if it names none.

    Args:
      said: what became of what it made of the members.
      error: what it, or its function, raised.
    """
    names = ", ".join([member.name for member in region.members[:5]])
    more = ", ..." if len(region.members) > 5 else ""
    out_of_memory = isinstance(error, MemoryError | errors.ResourceExhaustedError)
    found = (errors.ResourceExhaustedError if out_of_memory else errors.InternalError)(
        f"what the compiler {region.compiler!r} made of {names}{more} {said}: {error!r}"
    )
    found.__cause__ = error
    named = getattr(error, "node", None)
    node = next((m for m in region.members if m.name == named), region.members[-1])
    return located(found, node, device.name, ())


def _expected(output: Output) -> tuple[np.dtype[Any] | None, Dims]:
    """The element type and the shape of a result; None for what is not looked at."""
    dtype = output.dtype.numpy
    return (None, None) if dtype.hasobject else (dtype, output.dims)


def _fits(shape: tuple[int, ...], dims: tuple[int | None, ...]) -> bool:
    return len(shape) == len(dims) and all(
        [known is None or size == known for size, known in zip(shape, dims, strict=True)]
    )


def _clear_tracebacks(error: BaseException) -> None:
    """Clear the local variables that an error's tracebacks hold: they may be all of the memory.

    So are those of the errors that led to it.
    """
    found: list[BaseException | None] = [error]
    seen = {id(sys.exception())}  # what was handled when the step began is the program's
    while found:
        raised = found.pop()
        if raised is not None and id(raised) not in seen:
            seen.add(id(raised))
            clear_frames(raised.__traceback__)
            found += raised.__cause__, raised.__context__

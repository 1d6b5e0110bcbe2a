"""Regions: nodes computed by one function, but named individually in traces and errors."""

from __future__ import annotations

import sys
import time
from array import array
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from traceback import clear_frames
from typing import Any

import numpy as np

from weft_exec.devices.device import Device, StreamMarks
from weft_exec.executor.derivation import Placement
from weft_exec.executor.kernel_errors import describe, raise_located, to_op_error
from weft_exec.executor.kernel_fallback import KernelFallback
from weft_exec.executor.layout import Layout, Located
from weft_exec.executor.linear import (
    Check,
    Compound,
    Instruction,
    Segment,
    Slots,
    gather,
    slot_range,
)
from weft_exec.executor.priority import changed_variables, takes_reference, variable_of
from weft_exec.executor.step_check import raise_if_ended
from weft_exec.tracing.programs import SharedProgram, region_event, take_readings
from weft_exec.tracing.step_trace import ThreadLog, clock
from weft_graph.ir.code_generators import NO_BRANCHES, Branches, Path, SettingError
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role
from weft_graph.passes.functional_form import block_of
from weft_tensor import errors
from weft_tensor.shape import Dims


class Region:
    """Nodes that are computed together.

    Attributes:
      node: the node that replaces them in the graph.
      members: in topological order; they stay in the graph, where only members use their outputs.
      outputs: the outputs used outside, in the order of the function's results.
      compiler: the name of the compiler that claimed them.
      branches: the members that run in one side of a branch only.
    """

    def __init__(
        self,
        node: Node,
        members: Sequence[Node],
        outputs: Sequence[Output],
        compiler: str,
        branches: Branches = NO_BRANCHES,
    ) -> None:
        self.branches = branches
        self.node = node
        self.members = tuple(members)
        self._member_set = frozenset(members)
        self.outputs = tuple(outputs)
        self.compiler = compiler

    @property
    def updated(self) -> list[Output]:
        """The inputs whose variables the members change: references and handles."""
        return [self.node.inputs[index] for index in self.node.attrs["updates"]]

    @property
    def inputs(self) -> tuple[Output, ...]:
        """The outputs of other nodes that the members read, in argument order."""
        return self.node.inputs

    def predicate(self, switch: Node) -> Output:
        """Return the predicate of a Switch, traced to its producer outside the region.

        Forwarded or copied predicates are known only in the branch of the member that forwards or
        copies them.
        """
        output = switch.inputs[1]
        while output.node in self._member_set and not output.node.inputs[0].dtype.is_ref:
            if output.node.role is not Role.SWITCH and not output.node.traits.identity:
                break
            output = output.node.inputs[0]
        return output


class RegionCall(Compound):
    """The function of a region's node.

    Args:
      placement: returns the kernels of the members, for steps that are checked or traced.
      function: computes all members. It returns NotImplemented or a `KernelFallback` to run them as
        kernels; None to always do so. Its optional method `stop` is called when the session is
        closed, to end running calls.
    """

    def __init__(
        self,
        region: Region,
        device: Device,
        placement: Placement,
        function: Callable[..., Any] | None,
    ) -> None:
        self._region = region
        self._device = device
        self._function = function
        self._expected = tuple(map(_expected_result, region.outputs))
        self._single_expected = self._expected[0] if len(self._expected) == 1 else None
        self._changed = set(map(variable_of, region.updated))
        self._kernels = [self._kernel(member, placement) for member in region.members]
        self._work: list[tuple[Node, Instruction, Sequence[int]]] = []
        self._slots: dict[Output, int] = {}
        self._local_slots: set[int] = set()
        self._take = gather([])
        self._results: Sequence[int] = ()
        self._inputs: Sequence[int] = ()
        self._members = Segment([], [], [])
        self._program: SharedProgram | None = None
        self._traced_call: RegionCall | None = None
        self._skips = 0

    def lay(self, inputs: Sequence[int], results: Sequence[int], new: Callable[[], int]) -> bool:
        """Let members read inputs and write results in the slots of the step."""
        region = self._region
        self._take, self._results = gather(inputs), results
        self._inputs = tuple(inputs)
        slots = self._slots = dict(zip(region.inputs, inputs, strict=True))
        expected = dict(zip(region.outputs, results, strict=True))
        reads: dict[tuple[Node | None, Path], int] = {}
        for member, kernel in zip(region.members, self._kernels, strict=True):
            arguments = [
                self._argument(member, index, slots, reads, new)
                for index in range(len(member.inputs))
            ]
            target: int | slice = 0
            if member.role is Role.SWITCH:
                slots.update(dict.fromkeys(member.outputs, arguments[0]))
                continue
            if member.role is Role.MERGE:
                arguments = [slots[region.predicate(region.branches.sides[member][0])], *arguments]
            if len(member.outputs) == 1 and member.outputs[0] in expected:
                target = expected[member.outputs[0]]
            elif member.outputs:
                new_value = [new() for _ in member.outputs]
                self._local_slots.update(new_value)
                target = (
                    new_value[0] if len(new_value) == 1 else slice(new_value[0], new_value[-1] + 1)
                )
            slots.update(zip(member.outputs, slot_range(target), strict=bool(target)))
            for changed in changed_variables(member):  # later members read it again
                for key in [key for key in reads if key[0] is variable_of(changed)]:
                    del reads[key]
            self._work.append((member, (kernel, gather(arguments), target, ()), arguments))
        for output, result in zip(region.outputs, results, strict=True):
            if slots[output] != result:  # one of several outputs of its node
                move: Instruction = (_identity, gather([slots[output]]), result, ())
                self._work.append((output.node, move, [slots[output]]))
        return True

    def forgets(self, slots: Sequence[int]) -> None:
        """Clear these slots, and those of inner values, after the last member that uses them.

        With branches, the step clears these slots after the call.
        """
        if self._region.branches.paths:
            self._members = self._build_branches()
            return
        last: dict[int, int] = {}
        for i, (_, (_, _, target, _), arguments) in enumerate(self._work):
            last.update(dict.fromkeys(slot_range(target), i))
            last.update(dict.fromkeys(arguments, i))
        dead: list[list[int]] = [[] for _ in self._work]
        for slot in self._local_slots.union(slots).difference(self._results).intersection(last):
            dead[last[slot]].append(slot)
        self._members = Segment(
            [
                (function, take, target, tuple(forgotten))
                for (_, (function, take, target, _), _), forgotten in zip(
                    self._work, dead, strict=True
                )
            ],
            [node for node, _, _ in self._work],
            [self._device.name] * len(self._work),
        )

    def _build_branches(self) -> Segment:
        """Return the members as a segment, with a `ConditionalSegment` for each branch."""
        region, name = self._region, self._device.name
        work: dict[Node, list[Located]] = {}
        for node, (function, take, target, _), arguments in self._work:
            result = slot_range(target)
            work.setdefault(node, []).append(
                ((function, take, target, arguments, result, node), name)
            )
        paths = region.branches.paths
        steps = [
            (tuple([(region.predicate(s), int(side)) for s, side in paths.get(node, ())]), node)
            for node in work
        ]
        return Layout(work, self._slots.__getitem__, {}, self._results).segment(block_of(steps))

    def __call__(self, slots: Slots, run: Callable[[Slots], Any] | None = None) -> bool:
        """Compute the results by the function; if it fails, find the failing member.

        Args:
          run: runs the members as kernels if they are checked or traced.
        Returns: True if the function computed them.
        """
        run = run or self._members.run
        if self._function is None:
            run(slots)
            return False
        if self._skips > 0:
            self._skips -= 1
            run(slots)
            return False
        try:
            values = self._function(*self._take(slots))
            timed = isinstance(values, KernelFallback)
            if not timed and values is not NotImplemented:
                self._check(values)
                self._store_results(slots, values)
                return True
        except SettingError:
            raise
        except Exception as error:  # because a compiler's function may raise anything
            raise_if_ended()
            failed = error
        else:
            if timed:
                self._run_timed(values, slots, run)
            else:
                run(slots)
            return False
        try:
            self._explain(failed, slots, run)
        finally:
            del failed  # its traceback refers to this frame
        return False

    @property
    def is_compiled(self) -> bool:
        """True if the region has a function."""
        return self._function is not None

    @property
    def deciding(self) -> frozenset[int]:
        """The slots whose values, not only shapes, the function depends on."""
        positions: Sequence[int] = getattr(self._function, "deciding", range(len(self._inputs)))
        return frozenset([self._inputs[index] for index in positions])

    def run_function(self, slots: Slots) -> bool:
        """Compute the results by the function alone; return True if it did.

        Raises: whatever the function raises.
        """
        if self._function is None:
            return False
        values = self._function(*self._take(slots))
        if values is NotImplemented or isinstance(values, KernelFallback):
            return False
        self._check(values)
        self._store_results(slots, values)
        return True

    def call_checked(self, check: Check, *inputs: Any) -> None:
        """Run with `check` around each kernel."""
        self(inputs[0], lambda slots: self._members.run_checked(slots, check))

    def call_traced(self, log: ThreadLog, check: Check | None, *inputs: Any) -> None:
        """Run and record each kernel; members of a function share its time."""
        (slots,) = inputs
        marks = self._device.stream_marks()
        call = self._traced_call or self._prepare_call()
        if marks is not None:
            marks.add()
        started = clock()
        if call(slots, lambda slots: self._members.run_traced(slots, log, check)):
            ended = clock()
            kernels = take_readings()
            if kernels is not None:
                generated, readings = kernels
                readings[0], readings[-1] = started, ended
                log.runs.append((generated, log.iteration, 0, readings, ()))
                return
            program = self._program or self._prepare("" if marks is None else self._device.name)
            times = array("q", (started, ended))
            log.runs.append((program, log.iteration, 0, times, ()))
            if marks is not None:
                marks.add()
                log.deferred.append(lambda: _take_times(times, marks))

    def _prepare_call(self) -> RegionCall:
        """Return the same call of a function that records the times of its kernels, if it can."""
        call = copy(self)
        traced = getattr(self._function, "traced", None)
        if traced is not None:
            call._function = traced()
        self._traced_call = call
        return call

    def _prepare(self, lane: str) -> SharedProgram:
        from weft_exec.costs.time_attribution import time_fractions

        region = self._region
        event = region_event(region.node, region.members, self._device.name, lane)
        program = SharedProgram(event, time_fractions(region.members).values(), region.outputs)
        self._program = program
        return program

    def stop(self) -> None:
        """Notify the function that the session is closed, if it has a method `stop`."""
        stop = getattr(self._function, "stop", None)
        if stop is not None:
            stop()

    @property
    def segments(self) -> Sequence[Segment]:
        """The members."""
        return (self._members,)

    def _run_timed(
        self, by_kernels: KernelFallback, slots: Slots, run: Callable[[Slots], Any]
    ) -> None:
        started = time.thread_time()
        run(slots)
        by_kernels.record_time(time.thread_time() - started)
        self._skips = by_kernels.skips

    def _store_results(self, slots: Slots, values: Any) -> None:
        if len(self._results) == 1:
            slots[self._results[0]] = values
        else:
            for slot, value in zip(self._results, values, strict=True):
                slots[slot] = value

    def _check(self, values: Any) -> None:
        """Raise InternalError unless the results match the types and shapes of the outputs."""
        if self._single_expected is not None and type(values) is np.ndarray:  # the common case
            dtype, dims = self._single_expected
            if values.dtype is dtype and values.shape == dims:
                return
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
                raise self._result_error(i, dtype.name, describe(value))
            if dims is not None and value.shape != dims and not _fits(value.shape, dims):
                raise self._result_error(i, f"shape {list(dims)}", describe(value))

    def _result_error(self, position: int, required: str, actual: str) -> errors.InternalError:
        output = self._region.outputs[position]
        node = output.node
        return errors.InternalError(
            f"for {output.name!r} {required} was required, got {actual}",
            op=node.type,
            node=node.name,
            line=node.line or None,
        )

    def _explain(self, error: Exception, slots: Slots, run: Callable[[Slots], Any]) -> None:
        """Raise the error of the failing member, or of the compiler if no member fails.

        A function raises UnimplementedError for values that only kernels support. If the results of
        kernels contradict the graph too, as after a wrong `set_shape`, these results are used.
        """
        _clear_tracebacks(error)
        arguments = ", ".join(map(describe, self._take(slots)))
        run(slots)
        if isinstance(error, errors.UnimplementedError):
            return
        result = [slots[result] for result in self._results]
        try:
            self._check(result[0] if len(result) == 1 else result)
        except errors.InternalError:
            return
        message = f"failed on {arguments}, but the kernels of its nodes did not"
        raise_located(compiler_error(self._region, self._device, message, error))

    def _kernel(self, node: Node, placement: Placement) -> Callable[..., Any]:
        if node.role is Role.SWITCH:
            return _identity
        if node.role is Role.MERGE:
            return partial(_join_branches, self._region.branches.sides[node][1])
        return self._make_member(node, *placement(node))

    def _make_member(self, node: Node, device: Device, kernel: Any) -> Callable[..., Any]:
        try:
            function: Callable[..., Any] = kernel.make(node, device)
        except Exception as error:  # because a factory may raise anything; the location is added
            raise_located(to_op_error(error, node, device.name, ()))
        return function

    def _argument(
        self,
        node: Node,
        position: int,
        slots: dict[Output, int],
        reads: dict[tuple[Node | None, Path], int],
        new: Callable[[], int],
    ) -> int:
        """Return the slot of a member's input; variables that members change are read on demand."""
        source = node.inputs[position]
        slot = slots[source]
        if not source.dtype.is_ref or takes_reference(node, position):
            return slot
        variable = variable_of(source)
        if variable not in self._changed:
            return slot  # read before the region
        path = self._region.branches.paths.get(node, ())
        for end in range(len(path), -1, -1):  # also if it was read before the branch
            if (variable, path[:end]) in reads:
                return reads[variable, path[:end]]
        result = reads[variable, path] = new()
        self._local_slots.add(result)
        read: Instruction = (_read, gather([slot]), result, ())
        in_order = bool(self._region.branches.paths)
        self._work.append((node if in_order else source.node, read, [slot]))
        return result


def _identity(value: Any) -> Any:
    return value


def _join_branches(side: bool, predicate: Any, *values: Any) -> tuple[Any, np.int32]:
    """Return the outputs of a Merge, which selects input 1 if the predicate is `side`."""
    index = int(bool(predicate) == side)
    return values[index], np.int32(index)


def _take_times(times: Any, marks: StreamMarks) -> None:
    """Replace the clock readings around a call by the device's readings, which begin later."""
    start, end = marks.times()
    times[0] = max(times[0], start)
    times[1] = max(times[0], end)


def _read(state: Any) -> Any:
    return state.read()


def compiler_error(
    region: Region, device: Device, message: str, error: Exception
) -> errors.OpError:
    """Return the error of a compiler whose members do not fail: at the last member by default.

    Args:
      message: the result of the compiled code.
      error: the exception of the compiler or its function.
    """
    names = ", ".join([member.name for member in region.members[:5]])
    ellipsis = ", ..." if len(region.members) > 5 else ""
    out_of_memory = isinstance(error, MemoryError | errors.ResourceExhaustedError)
    result = (errors.ResourceExhaustedError if out_of_memory else errors.InternalError)(
        f"the code of the compiler {region.compiler!r} for {names}{ellipsis} {message}: {error!r}"
    )
    result.__cause__ = error
    named = getattr(error, "node", None)
    node = next((m for m in region.members if m.name == named), region.members[-1])
    return to_op_error(result, node, device.name, ())


def _expected_result(output: Output) -> tuple[np.dtype[Any] | None, Dims]:
    """Return the element type and shape of a result; None for unchecked ones."""
    dtype = output.dtype.numpy
    return (None, None) if dtype.hasobject else (dtype, output.dims)


def _fits(shape: tuple[int, ...], dims: tuple[int | None, ...]) -> bool:
    return len(shape) == len(dims) and all(
        [dim is None or size == dim for size, dim in zip(shape, dims, strict=True)]
    )


def _clear_tracebacks(error: BaseException) -> None:
    """Clear local variables in the tracebacks of an error: they may hold most of the memory.

    The same is done for its causes.
    """
    base_exceptions: list[BaseException | None] = [error]
    visited = {id(sys.exception())}  # the program's own
    while base_exceptions:
        raised = base_exceptions.pop()
        if raised is not None and id(raised) not in visited:
            visited.add(id(raised))
            clear_frames(raised.__traceback__)
            base_exceptions += raised.__cause__, raised.__context__

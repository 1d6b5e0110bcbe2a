"""Comparison of compiled functions with kernels, for `jit_check`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from weft_exec.devices.device import Device
from weft_exec.executor.priority import changed_variables, takes_reference, variable_of
from weft_exec.executor.region import Region
from weft_exec.kernels.registry import require_kernel
from weft_exec.resources.resources import ResourceHandle, VariableState, state_of
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role, State
from weft_tensor import errors

TOLERANCE: Final = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-4, "float64": 1e-9}
"""Tolerances by dtype, relative to the largest number of both tensors."""

ROUNDING: Final = 16
"""Factor by which a value may exceed the rounding errors of nodes that are each correct."""

Compute = Callable[[Sequence[Any]], Any]
"""Function from inputs to a value, or to a tuple of several."""


class KernelCheck:
    """Computation of the members of a region with kernels, to compare the compiled results with."""

    def __init__(self, region: Region, device: Device) -> None:
        self._region = region
        self._host = device.to_host
        self._kernels = {
            member: require_kernel(member, device.type).make(member, device)
            for member in region.members
            if not member.traits.routes
        }

    def __call__(
        self,
        inputs: Sequence[Any],
        results: Any,
        updates: Sequence[int],
        old_values: Sequence[Any],
        arrays: Sequence[Any],
        compile_function: Callable[[], Compute],
    ) -> Any:
        """Compute the results with kernels and compare the compiled ones with them.

        Args:
          inputs, results: inputs and results of the compiled function.
          updates: the positions of the inputs whose variables it changes.
          before, arrays: old values of the variables that it changes, and new ones.
          compile_function: compiles a function that returns the results of all members.
        Returns: the results of the kernels.
        Raises: InternalError: the result of a node differs; the message names the first such node.
        """
        region = self._region
        computed = results if isinstance(results, tuple) else (results,)
        by_kernels = self._run_kernels(inputs)
        expected = tuple([by_kernels[output] for output in region.outputs])
        differences_seen: list[tuple[Node, Output | None, Any, Any]] = [
            (output.node, output, value, want)
            for output, value, want in zip(region.outputs, computed, expected, strict=True)
        ]
        for input_index, array in zip(updates, arrays, strict=True):
            node = self._last_updater(region.inputs[input_index], by_kernels)
            differences_seen.append((node, None, array, state_of(inputs[input_index]).read()))
        wrong = [entry for entry in differences_seen if self._is_different(*entry[2:])]
        # The difference may be rounding of an earlier node. All intermediate values are needed to
        # find the first node that is wrong for the inputs it received.
        if wrong:
            outputs = compile_function()(inputs, *[array.copy() for array in old_values])
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            values = dict(zip(region.inputs, inputs, strict=True))
            values |= dict(zip(results_of(region.members), outputs, strict=True))
            self._raise_first(values, by_kernels)
            if self._took_other_branch(values, by_kernels):
                wrong = []  # the predicates only differ by rounding
            for node, output, value, want in wrong:
                if not self._is_rounding_difference(output, value, want, values):
                    raise _error(node, self._host(value), self._host(want))
        return expected[0] if len(expected) == 1 else expected

    def _is_different(self, value: Any, want: Any) -> bool:
        return is_different(self._host(value), self._host(want))

    def _last_updater(self, source: Output, by_kernels: Mapping[Output, Any]) -> Node:
        """Return the last member that changed a variable, or may have."""
        variable = variable_of(source)
        changing = [
            member
            for member in self._region.members
            if variable in map(variable_of, changed_variables(member))
        ]
        return ([node for node in changing if self._is_executed(node, by_kernels)] or changing)[-1]

    def _is_executed(self, member: Node, values: Mapping[Output, Any]) -> bool:
        """Return True if all branches that a member is in are taken."""
        path = self._region.branches.paths.get(member, ())
        return all(bool(values[self._region.predicate(switch)]) == side for switch, side in path)

    def _run_kernels(self, inputs: Sequence[Any]) -> dict[Output, Any]:
        values = dict(zip(self._region.inputs, inputs, strict=True))
        for member in self._region.members:
            if self._is_executed(member, values):
                values.update(
                    zip(member.outputs, self._kernel_results(member, values), strict=False)
                )
        return values

    def _kernel_results(self, member: Node, values: Mapping[Output, Any]) -> Sequence[Any]:
        """Return the results of a member, by its kernel if it has one."""
        if member.role is Role.MERGE:
            switch, side = self._region.branches.sides[member]
            branch = int(bool(values[self._region.predicate(switch)]) == side)
            return values[member.inputs[branch]], np.int32(branch)
        branch_inputs = [
            values[source].read()
            if source.dtype.is_ref
            and not takes_reference(member, branch)
            and isinstance(values[source], VariableState)
            else values[source]
            for branch, source in enumerate(member.inputs)
        ]
        if member.role is Role.SWITCH:
            return branch_inputs[0], branch_inputs[0]
        if member.traits.state is State.READS and not isinstance(branch_inputs[0], ResourceHandle):
            return branch_inputs  # read when the region began
        return _as_sequence(self._kernels[member](*branch_inputs))

    def _raise_first(self, values: dict[Output, Any], by_kernels: dict[Output, Any]) -> None:
        """Raise the error of the first node whose kernel has different results for the same inputs.

        Rounding errors left by terms that cancel are then not blamed on the nodes that read them.
        """
        for member in self._region.members:
            if member.role is Role.SWITCH:
                values.update(dict.fromkeys(member.outputs, values[member.inputs[0]]))
                continue
            if not self._is_executed(member, values):
                continue
            results = results_of([member])
            expected: Sequence[Any] = [by_kernels.get(output) for output in results]
            scales: Sequence[Any] = ()
            if not (member.traits.stateful or any(source.dtype.is_ref for source in member.inputs)):
                expected = self._kernel_results(member, values)
                if member.traits.adds:
                    inputs = [values[source] for source in member.inputs]
                    magnitudes = _magnitudes(inputs, member.traits.adds)
                    scales = _as_sequence(self._kernels[member](*magnitudes))
            for output_index, (output, want) in enumerate(zip(results, expected, strict=False)):
                if want is None:
                    continue  # not run with kernels
                value, want = self._host(values[output]), self._host(want)
                scale = max_magnitude(self._host(scales[output_index])) if scales else 0.0
                if is_different(value, want, scale):
                    raise _error(member, value, want)

    def _took_other_branch(
        self, values: Mapping[Output, Any], by_kernels: Mapping[Output, Any]
    ) -> bool:
        """Return True if compiled code took another side of a branch than kernels did."""
        return any(
            bool(values[predicate]) != bool(by_kernels[predicate])
            for member in self._region.members
            if member.role is Role.SWITCH and self._is_executed(member, by_kernels)
            for predicate in [self._region.predicate(member)]
        )

    def _is_rounding_difference(
        self,
        output: Output | None,
        value: Any,
        want: Any,
        values: dict[Output, Any],
    ) -> bool:
        """Return True if nodes that are each correct differ from kernels about as much."""
        if output is None:
            return False
        want, exact = self._host(want), self._host(values[output])
        if want.dtype.name not in TOLERANCE:
            return False
        rounding = max_magnitude(exact.astype(np.float64) - want.astype(np.float64))
        return not is_different(
            self._host(value), want, ROUNDING * rounding / TOLERANCE[want.dtype.name]
        )


def _as_sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, tuple | list) else (value,)


def _magnitudes(inputs: Sequence[Any], signs: Sequence[int]) -> list[Any]:
    """Return inputs that prevent cancellation of terms: see `Traits.adds`."""
    return [
        abs(value) * value.dtype.type(signs[min(input_index, len(signs) - 1)])
        if value.dtype.name in TOLERANCE
        else value
        for input_index, value in enumerate(inputs)
    ]


def _error(node: Node, value: Any, want: Any) -> errors.InternalError:
    return errors.InternalError(
        f"jit_check: {node.type} returns {describe_difference(value, want)}",
        op=node.type,
        node=node.name,
        line=node.line or None,
    )


def results_of(members: Sequence[Node]) -> list[Output]:
    """Return all values that some nodes compute.

    A node that changes variables has no value, and a Switch has no new value.
    """
    return [
        output
        for member in members
        if member.role is not Role.SWITCH
        for output in member.outputs
        if not output.dtype.is_ref
    ]


def is_different(value: Any, want: Any, scale: float = 0.0) -> bool:
    """Return True if a compiled value differs from the kernels' value.

    Args:
      scale: the largest sum of magnitudes that was rounded, where terms may have cancelled.
    """
    value, want = np.asarray(value), np.asarray(want)
    if value.dtype != want.dtype or value.shape != want.shape:
        return True
    return bool(_mismatch_mask(value, want, scale).any())


def _mismatch_mask(value: Any, want: Any, scale: float = 0.0) -> Any:
    """Return a mask of the elements that differ by more than rounding explains."""
    if want.dtype.name not in TOLERANCE:
        return value != want
    x, y = value.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    is_same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore"):
        magnitude = max(scale, max_magnitude(y[finite]))
        is_close = finite & (np.abs(x - y) <= TOLERANCE[want.dtype.name] * magnitude)
    return ~(is_same | is_close)


def max_magnitude(value: Any) -> float:
    """Return the largest magnitude among finite numbers."""
    x = np.asarray(value).astype(np.float64)
    return float(np.abs(x[np.isfinite(x)]).max(initial=0.0))


def describe_difference(value: Any, want: Any) -> str:
    """Describe how a compiled value differs from the kernels' value."""
    value, want = np.asarray(value), np.asarray(want)
    if value.dtype != want.dtype or value.shape != want.shape:
        return (
            f"{value.dtype} of shape {list(value.shape)} compiled, and {want.dtype} of shape "
            f"{list(want.shape)} by its kernel"
        )
    index = tuple(np.argwhere(_mismatch_mask(value, want))[0].tolist())
    return f"{value[index]} at {list(index)} compiled, and {want[index]} by its kernel"

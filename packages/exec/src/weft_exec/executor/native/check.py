"""Comparison of the results of compiled functions with those of kernels, for `jit_check`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from weft_exec.devices.device import Device
from weft_exec.executor.priority import changed_by, takes_reference, variable_of
from weft_exec.executor.region import Region
from weft_exec.kernels.registry import require_kernel
from weft_exec.resources.resources import ResourceHandle, VariableState, state_of
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role, State
from weft_tensor import errors

TOLERANCE: Final = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-4, "float64": 1e-9}
"""Tolerances by dtype, relative to the largest number of both tensors."""

ROUNDING: Final = 16
"""Factor by which a value may exceed the rounding errors of nodes that are right by themselves."""

Compute = Callable[[Sequence[Any]], Any]
"""Function from inputs to a value, or to a tuple of several."""


class Checked:
    """Computation of the members of a region by kernels, to compare the compiled results with."""

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
        before: Sequence[Any],
        arrays: Sequence[Any],
        every: Callable[[], Compute],
    ) -> Any:
        """Compute the results by kernels and compare the compiled ones with them.

        Args:
          inputs, results: those of the compiled function.
          updates: the positions of the inputs whose variables it changes.
          before, arrays: old values of the variables that it changes, and new ones.
          every: compiles a function that returns the results of all members.
        Returns: the results of the kernels.
        Raises: InternalError: a node differs; names the first of all that do.
        """
        region = self._region
        found = results if isinstance(results, tuple) else (results,)
        by_kernels = self._by_kernels(inputs)
        wanted = tuple([by_kernels[output] for output in region.outputs])
        seen: list[tuple[Node, Output | None, Any, Any]] = [
            (output.node, output, value, want)
            for output, value, want in zip(region.outputs, found, wanted, strict=True)
        ]
        for at, array in zip(updates, arrays, strict=True):
            node = self._last_to_change(region.inputs[at], by_kernels)
            seen.append((node, None, array, state_of(inputs[at]).read()))
        wrong = [each for each in seen if self._differs(*each[2:])]
        # The difference may be rounding of an earlier node. All intermediate values are needed to
        # find the first node that is wrong for the inputs it received.
        if wrong:
            made = every()(inputs, *[array.copy() for array in before])
            made = made if isinstance(made, tuple) else (made,)
            values = dict(zip(region.inputs, inputs, strict=True))
            values |= dict(zip(results_of(region.members), made, strict=True))
            self._raise_first(values, by_kernels)
            if self._went_elsewhere(values, by_kernels):
                wrong = []  # the predicates only differ by rounding
            for node, output, value, want in wrong:
                if not self._explained(output, value, want, values):
                    raise _error(node, self._host(value), self._host(want))
        return wanted[0] if len(wanted) == 1 else wanted

    def _differs(self, value: Any, want: Any) -> bool:
        return differs(self._host(value), self._host(want))

    def _last_to_change(self, source: Output, by_kernels: Mapping[Output, Any]) -> Node:
        """Return the last member that changed a variable, or may have."""
        variable = variable_of(source)
        changing = [
            member
            for member in self._region.members
            if variable in map(variable_of, changed_by(member))
        ]
        return ([each for each in changing if self._runs(each, by_kernels)] or changing)[-1]

    def _runs(self, member: Node, values: Mapping[Output, Any]) -> bool:
        """Return True if all branches that a member is in are taken."""
        path = self._region.branches.paths.get(member, ())
        return all(bool(values[self._region.predicate(switch)]) == side for switch, side in path)

    def _by_kernels(self, inputs: Sequence[Any]) -> dict[Output, Any]:
        values = dict(zip(self._region.inputs, inputs, strict=True))
        for member in self._region.members:
            if self._runs(member, values):
                values.update(zip(member.outputs, self._given(member, values), strict=False))
        return values

    def _given(self, member: Node, values: Mapping[Output, Any]) -> Sequence[Any]:
        """Return the results of a member, by its kernel if it has one."""
        if member.role is Role.MERGE:
            switch, side = self._region.branches.sides[member]
            at = int(bool(values[self._region.predicate(switch)]) == side)
            return values[member.inputs[at]], np.int32(at)
        taken = [
            values[source].read()
            if source.dtype.is_ref
            and not takes_reference(member, at)
            and isinstance(values[source], VariableState)
            else values[source]
            for at, source in enumerate(member.inputs)
        ]
        if member.role is Role.SWITCH:
            return taken[0], taken[0]
        if member.traits.state is State.READS and not isinstance(taken[0], ResourceHandle):
            return taken  # read when the region began
        return _several(self._kernels[member](*taken))

    def _raise_first(self, values: dict[Output, Any], by_kernels: dict[Output, Any]) -> None:
        """Raise the error of the first node whose kernel has other results for the same inputs.

        Rounding errors left by terms that cancel are then not blamed on the nodes that read them.
        """
        for member in self._region.members:
            if member.role is Role.SWITCH:
                values.update(dict.fromkeys(member.outputs, values[member.inputs[0]]))
                continue
            if not self._runs(member, values):
                continue
            results = results_of([member])
            wanted: Sequence[Any] = [by_kernels.get(output) for output in results]
            scales: Sequence[Any] = ()
            if not (member.traits.stateful or any(source.dtype.is_ref for source in member.inputs)):
                wanted = self._given(member, values)
                if member.traits.adds:
                    taken = [values[source] for source in member.inputs]
                    magnitudes = _magnitudes(taken, member.traits.adds)
                    scales = _several(self._kernels[member](*magnitudes))
            for at, (output, want) in enumerate(zip(results, wanted, strict=False)):
                if want is None:
                    continue  # not run by kernels
                value, want = self._host(values[output]), self._host(want)
                scale = largest(self._host(scales[at])) if scales else 0.0
                if differs(value, want, scale):
                    raise _error(member, value, want)

    def _went_elsewhere(
        self, values: Mapping[Output, Any], by_kernels: Mapping[Output, Any]
    ) -> bool:
        """Return True if compiled code took another side of a branch than kernels did."""
        return any(
            bool(values[decided]) != bool(by_kernels[decided])
            for member in self._region.members
            if member.role is Role.SWITCH and self._runs(member, by_kernels)
            for decided in [self._region.predicate(member)]
        )

    def _explained(
        self,
        output: Output | None,
        value: Any,
        want: Any,
        values: dict[Output, Any],
    ) -> bool:
        """Return True if nodes that are right by themselves differ from kernels about as much."""
        if output is None:
            return False
        want, other = self._host(want), self._host(values[output])
        if want.dtype.name not in TOLERANCE:
            return False
        rounding = largest(other.astype(np.float64) - want.astype(np.float64))
        return not differs(
            self._host(value), want, ROUNDING * rounding / TOLERANCE[want.dtype.name]
        )


def _several(given: Any) -> Sequence[Any]:
    return given if isinstance(given, tuple | list) else (given,)


def _magnitudes(inputs: Sequence[Any], signs: Sequence[int]) -> list[Any]:
    """Return inputs for which no terms cancel: see `Traits.adds`."""
    return [
        abs(value) * value.dtype.type(signs[min(at, len(signs) - 1)])
        if value.dtype.name in TOLERANCE
        else value
        for at, value in enumerate(inputs)
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

    A node that changes variables has no value, and a Switch no new one.
    """
    return [
        output
        for member in members
        if member.role is not Role.SWITCH
        for output in member.outputs
        if not output.dtype.is_ref
    ]


def differs(value: Any, want: Any, scale: float = 0.0) -> bool:
    """Return True if a compiled value differs from that of kernels.

    Args:
      scale: the largest sum of magnitudes that was rounded, where terms may have cancelled.
    """
    value, want = np.asarray(value), np.asarray(want)
    if value.dtype != want.dtype or value.shape != want.shape:
        return True
    return bool(_far(value, want, scale).any())


def _far(value: Any, want: Any, scale: float = 0.0) -> Any:
    """Return a mask of the elements that differ by more than rounding explains."""
    if want.dtype.name not in TOLERANCE:
        return value != want
    x, y = value.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore"):
        most = max(scale, largest(y[finite]))
        near = finite & (np.abs(x - y) <= TOLERANCE[want.dtype.name] * most)
    return ~(same | near)


def largest(value: Any) -> float:
    """Return the largest magnitude among finite numbers."""
    x = np.asarray(value).astype(np.float64)
    return float(np.abs(x[np.isfinite(x)]).max(initial=0.0))


def describe_difference(value: Any, want: Any) -> str:
    """Describe how a compiled value differs from that of kernels."""
    value, want = np.asarray(value), np.asarray(want)
    if value.dtype != want.dtype or value.shape != want.shape:
        return (
            f"{value.dtype} of shape {list(value.shape)} compiled, and {want.dtype} of shape "
            f"{list(want.shape)} by its kernel"
        )
    place = tuple(np.argwhere(_far(value, want))[0].tolist())
    return f"{value[place]} at {list(place)} compiled, and {want[place]} by its kernel"

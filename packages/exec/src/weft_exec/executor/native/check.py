"""Comparing what compiled functions compute with what kernels do, for `jit_check`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from weft_exec.devices.device import Device
from weft_exec.executor.priority import changed_by, takes_reference, variable_of
from weft_exec.executor.region import Region
from weft_exec.kernels.registry import require_kernel
from weft_exec.resources.resources import VariableState, state_of
from weft_graph.ir.node import Node, Output
from weft_tensor import errors

TOLERANCE: Final = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-4, "float64": 1e-9}
"""How far compiled values may be from those of kernels, of the largest number of both tensors."""

Compute = Callable[[Sequence[Any]], Any]
"""From inputs to a value, or a tuple of several."""


class Checked:
    """Computes the members of a region by kernels, and compares what was compiled of them."""

    def __init__(self, region: Region, device: Device) -> None:
        self._region = region
        self._host = device.to_host
        self._kernels = [
            (member, require_kernel(member, device.type).make(member, device))
            for member in region.members
        ]

    def __call__(
        self,
        inputs: Sequence[Any],
        results: Any,
        updates: Sequence[int],
        before: Sequence[Any],
        arrays: Sequence[Any],
        every: Callable[[], Compute],
    ) -> Any:
        """What kernels compute, which the compiled results have to be like.

        Args:
          inputs, results: of the compiled function.
          updates: the positions of the inputs whose variables it changes.
          before, arrays: what variables had that it changes, and what it made of that.
          every: makes a compiled function that gives the results of all members.
        Raises: InternalError: a node differs, the first of all that do.
        """
        region = self._region
        found = results if isinstance(results, tuple) else (results,)
        by_kernels = self._by_kernels(inputs)
        wanted = tuple([by_kernels[output] for output in region.outputs])
        seen = [
            (output.node, value, want)
            for output, value, want in zip(region.outputs, found, wanted, strict=True)
        ]
        for at, array in zip(updates, arrays, strict=True):
            node = self._last_to_change(region.inputs[at])
            seen.append((node, array, state_of(inputs[at]).read()))
        wrong = [each for each in seen if self._differs(*each[1:])]
        if wrong:
            copies = [array.copy() for array in before]
            self._raise(wrong[0], every()(inputs, *copies), by_kernels)
        return wanted[0] if len(wanted) == 1 else wanted

    def _differs(self, value: Any, want: Any) -> bool:
        return differs(self._host(value), self._host(want))

    def _last_to_change(self, source: Output) -> Node:
        variable = variable_of(source)
        return next(
            member
            for member in reversed(self._region.members)
            if variable in map(variable_of, changed_by(member))
        )

    def _by_kernels(self, inputs: Sequence[Any]) -> dict[Output, Any]:
        values = dict(zip(self._region.inputs, inputs, strict=True))
        for member, kernel in self._kernels:
            taken = [
                values[source].read()
                if source.dtype.is_ref
                and not takes_reference(member, at)
                and isinstance(values[source], VariableState)
                else values[source]
                for at, source in enumerate(member.inputs)
            ]
            given = kernel(*taken)
            given = given if isinstance(given, tuple | list) else (given,)
            values.update(zip(member.outputs, given, strict=False))
        return values

    def _raise(
        self, seen: tuple[Node, Any, Any], every: Any, by_kernels: dict[Output, Any]
    ) -> None:
        """Name the first node that differs: that of a result, if all are right by themselves."""
        every = every if isinstance(every, tuple) else (every,)
        outputs = results_of(self._region.members)
        wrong = [
            (output.node, value, by_kernels[output])
            for output, value in zip(outputs, every, strict=True)
            if self._differs(value, by_kernels[output])
        ]
        node, value, want = wrong[0] if wrong else seen
        raise errors.InternalError(
            f"jit_check: {node.type} gives {shown(self._host(value), self._host(want))}",
            op=node.type,
            node=node.name,
            line=node.line or None,
        )


def results_of(members: Sequence[Node]) -> list[Output]:
    """All values that some nodes give; what changes variables gives none."""
    return [output for member in members for output in member.outputs if not output.dtype.is_ref]


def differs(value: Any, want: Any) -> bool:
    """Whether a compiled value is another than that of kernels."""
    value, want = np.asarray(value), np.asarray(want)
    return value.dtype != want.dtype or value.shape != want.shape or bool(_far(value, want).any())


def _far(value: Any, want: Any) -> Any:
    """Where two arrays differ by more than rounding explains."""
    if want.dtype.name not in TOLERANCE:
        return value != want
    x, y = value.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore"):
        largest = np.abs(y[finite]).max(initial=0.0)
        near = finite & (np.abs(x - y) <= TOLERANCE[want.dtype.name] * largest)
    return ~(same | near)


def shown(value: Any, want: Any) -> str:
    """How a compiled value differs from that of kernels."""
    value, want = np.asarray(value), np.asarray(want)
    if value.dtype != want.dtype or value.shape != want.shape:
        return (
            f"{value.dtype} of shape {list(value.shape)} compiled, and {want.dtype} of shape "
            f"{list(want.shape)} by its kernel"
        )
    place = tuple(np.argwhere(_far(value, want))[0].tolist())
    return f"{value[place]} at {list(place)} compiled, and {want[place]} by its kernel"

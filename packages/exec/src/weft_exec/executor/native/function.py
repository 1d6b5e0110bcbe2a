"""Function of a region: keys of its calls, and the binding of their inputs to compiled code.

If members change variables, the code gets their arrays from `VariableState.update_all`, under their
locks, and changes them in place unless a snapshot is held. Other reads of variables are done when
the region begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np

from weft_exec.devices.device import Device
from weft_exec.executor.linear import gather
from weft_exec.executor.native.clustering import static_inputs
from weft_exec.executor.native.random_streams import Executions
from weft_exec.executor.native.region_profile import Function
from weft_exec.executor.native.result_check import KernelCheck, results_of
from weft_exec.executor.native.specialization_cache import Mode, SpecializationCache
from weft_exec.executor.native.traced_function import TracedFunctions, make_traced_lookup
from weft_exec.executor.region import Region
from weft_exec.kernels.random import stream_of
from weft_exec.resources.resources import ResourceHandle, VariableState, state_of
from weft_exec.tracing.programs import region_event
from weft_graph.ir.code_generators import (
    CodeGenerator,
    Generated,
    RegionRequest,
    Shape,
)
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role
from weft_tensor import dtypes, errors

Key = tuple[tuple[Shape, ...], tuple[bytes, ...]]
"""Shapes of inputs without static shapes, and input values that affect the compiled code."""

_ONE_KEY: Final[Key] = ((), ())


class InputSpecialization(NamedTuple):
    """Choice of shapes and values that a function is compiled for.

    Attributes:
      shapes: the shapes of all inputs.
      values: the input values that affect the compiled code.
    """

    shapes: tuple[Shape, ...]
    values: Mapping[int, Any]


class CompiledRegion:
    """Function that computes the members of a region, or lets their kernels do so.

    Args:
      generator: compiles functions of the members.
      device: allocates the memory of results.
      mode: when functions are compiled.
      checked: True if kernels compute the same, for comparison.
    """

    def __init__(
        self,
        generator: CodeGenerator,
        region: Region,
        device: Device,
        mode: Mode,
        checked: bool = False,
    ) -> None:
        self._generator = generator
        self._region = region
        self._device = device
        self._host = device.to_host
        self._mode = mode
        self._deciding = find_static_inputs(generator, region)
        self._varying = tuple(
            [input_index for input_index, source in enumerate(region.inputs) if _is_dynamic(source)]
        )
        kinds = [region.inputs[input_index].dtype for input_index in self._varying]
        variables = any(kind.is_ref or kind is dtypes.resource for kind in kinds)
        self._shape: Callable[[Any], Shape] = _shape_of if variables else attrgetter("shape")
        self._take_varying: Callable[[Any], Sequence[Any]] = gather(self._varying)
        self._updates: Sequence[int] = region.node.attrs["updates"]
        self._reads = [
            input_index
            for input_index, source in enumerate(region.inputs)
            if source.dtype is dtypes.resource and input_index not in self._updates
        ]
        self._checked = KernelCheck(region, device) if checked else None
        event = region_event(region.node, region.members, device.name)
        self._traced = TracedFunctions(generator, event, self._make_call)
        self.cache = SpecializationCache[Key, InputSpecialization](
            self, generator, device, mode, checked
        )
        self._lookup = self.cache.lookup
        self._memo: dict[str, Any] = {}
        self.stop: Callable[[], None] = self.cache.stop

    def __call__(self, *inputs: Any) -> Any:
        """Return the results; NotImplemented or a record if the members' kernels should run."""
        varying, deciding = self._varying, self._deciding
        key = _ONE_KEY
        if self._reads:
            states = {input_index: state_of(inputs[input_index]) for input_index in self._reads}
            if not all([state.is_initialized for state in states.values()]):
                return NotImplemented  # a branch that does not run may read it
            inputs = tuple(
                [
                    states[input_index].read() if input_index in states else v
                    for input_index, v in enumerate(inputs)
                ]
            )
        if varying or deciding:
            if self._updates and not self._can_update(inputs):
                return NotImplemented
            shapes = tuple(map(self._shape, self._take_varying(inputs)))
            key = (
                shapes,
                tuple([self._host(inputs[input_index]).tobytes() for input_index in deciding]),
            )
        function = self._lookup(key, NotImplemented)
        if function is NotImplemented:
            if self._updates and not self._can_update(inputs):
                return NotImplemented
            if self.cache.mode is not Mode.ON:
                function = self.cache.compile_now(key, inputs)
            elif (function := self.cache.instance(key, inputs)) is None:
                return self.cache.profile(key, inputs)
        if function is None:
            return NotImplemented
        try:
            return function(inputs)
        except errors.OpError:
            if self._fits(inputs):
                raise
            return NotImplemented

    def traced(self) -> CompiledRegion:
        """Return the same function, which records the times of the generated kernels."""
        traced = copy(self)
        traced._lookup = make_traced_lookup(self.cache.lookup, self._traced)
        return traced

    @property
    def deciding(self) -> Sequence[int]:
        """Positions of the inputs whose values affect the compiled code."""
        return self._deciding

    def _can_update(self, inputs: Sequence[Any]) -> bool:
        """Return True if all variables to change are initialized and distinct."""
        states = [state_of(inputs[input_index]) for input_index in self._updates]
        distinct = len(set(map(id, states))) == len(states)
        return distinct and all([state.is_initialized for state in states])

    def _fits(self, inputs: Sequence[Any]) -> bool:
        """Return True if inputs have their static shapes; variables may have got others."""
        sources = self._region.inputs
        return self._can_update(inputs) and all(
            [
                input_index in self._varying or _shape_of(value) == known_shape(source)
                for input_index, (source, value) in enumerate(zip(sources, inputs, strict=True))
            ]
        )

    # ---------------------------------------------------------------------- see `Binding`

    @property
    def name(self) -> str:
        """Name of the last member."""
        return self._region.members[-1].name

    @property
    def nodes(self) -> Sequence[Node]:
        """Members of the region."""
        return self._region.members

    def choice(self, key: Key, inputs: Sequence[Any]) -> InputSpecialization:
        """Return the shapes of all inputs, and the input values that affect the compiled code."""
        values = {
            input_index: np.array(self._host(inputs[input_index])) for input_index in self._deciding
        }
        return InputSpecialization(tuple(map(_shape_of, inputs)), values)

    def request(self, choice: InputSpecialization) -> RegionRequest:
        """Return the request for the members and a choice."""
        return self._request_for(self._region.outputs, choice)._replace(memo=self._memo)

    def bind(self, generated: Generated, choice: InputSpecialization) -> Function:
        """Return a function that runs code, and compares its results if it is to be checked."""
        if self._checked is not None:
            return self._make_checking_call(self._checked, generated, choice)
        request = self.request(choice)
        function = self._make_call(generated, request)
        self._traced.note(function, generated, request)
        return function

    def _request_for(self, outputs: Sequence[Output], choice: InputSpecialization) -> RegionRequest:
        region = self._region
        return RegionRequest(region.members, region.inputs, outputs, *choice, region.branches)

    def _make_checking_call(
        self, checked: KernelCheck, generated: Generated, choice: InputSpecialization
    ) -> Function:
        """Return a function that runs on copies of variables and compares its results."""
        run = self._make_filling_call(generated)

        def compute_alone() -> Function:
            outputs = results_of(self._region.members)
            function = self._generator.generate(self._request_for(outputs, choice))
            function.threads = self._device.config.compiled_threads
            return self._make_filling_call(function)

        def call(inputs: Sequence[Any]) -> Any:
            old_values = [
                _copy_value(state_of(inputs[input_index]).read())
                for input_index in generated.updates
            ]
            arrays = [array.copy() for array in old_values]
            results = run(inputs, *arrays)
            return checked(inputs, results, generated.updates, old_values, arrays, compute_alone)

        return call

    def _make_call(self, generated: Generated, request: RegionRequest) -> Function:
        """Return a function that allocates results and calls compiled code."""
        run, updates = self._make_filling_call(generated), tuple(generated.updates)
        if not updates:
            return run
        update_shapes = [request.shapes[input_index] for input_index in updates]

        def call(inputs: Sequence[Any]) -> Any:
            results: Any = NotImplemented

            def change(*arrays: Any) -> None:
                nonlocal results
                if [array.shape for array in arrays] == update_shapes:  # else assigned since
                    results = run(inputs, *arrays)

            VariableState.update_all(
                tuple([state_of(inputs[input_index]) for input_index in updates]), change
            )
            return results

        return call

    def _make_filling_call(self, generated: Generated) -> Function:
        """Return a function that calls code with inputs, new result arrays and variables."""
        take = gather(generated.input_positions)
        run: Callable[..., None] = generated
        if generated.is_long_running:
            run = self.cache.make_stoppable(generated, bounded=generated.is_bounded)
        enter = run if generated.is_long_running else generated.enter
        streams = [stream_of(node, self._device.resources) for node in generated.rng_nodes]
        results = [self._device.array_factory(shape, d.numpy) for d, shape in generated.results]

        def call(inputs: Any, *arrays: Any) -> Any:
            out = [new() for new in results]
            if enter(*take(inputs), *out, *arrays) is not None:
                run(*take(inputs), *out, *arrays)
            return out[0] if len(out) == 1 else tuple(out)

        def call_drawing(inputs: Any, *arrays: Any) -> Any:
            executions = Executions(streams)
            out = [new() for new in results]
            try:
                run(*take(inputs), np.array(executions.states, np.uint64), *out, *arrays)
            except BaseException:  # because nothing was drawn, whatever the error
                executions.return_unused()
                raise
            if generated.reports_rng_use:
                executions.return_unused(out.pop().tolist())
            return out[0] if len(out) == 1 else tuple(out)

        if streams:
            return call_drawing
        if len(results) != 1:
            return call
        (new,) = results

        def call_for_one(inputs: Any, *arrays: Any) -> Any:
            out = new()
            if enter(*take(inputs), out, *arrays) is not None:
                run(*take(inputs), out, *arrays)
            return out

        return call_for_one


def find_static_inputs(generator: CodeGenerator, region: Region) -> tuple[int, ...]:
    """Return the positions of a region's inputs whose values affect the compiled code."""
    position = {source: input_index for input_index, source in enumerate(region.inputs)}
    positions = {
        position[member.inputs[input_index]]
        for member in region.members
        for input_index in static_inputs(generator, member)
        if member.inputs[input_index] in position
        and member.inputs[input_index].node.role is not Role.CONSTANT
    }
    return tuple(sorted(positions))


def known_shape(output: Output) -> Shape | None:
    """Return the static shape of an input, or of the variable that is changed; else None."""
    node = output.node
    dims = node.attrs["shape"] if node.role is Role.VARIABLE else output.dims
    if dims is None or None in dims:
        return None
    return tuple([size for size in dims if size is not None])


def _is_dynamic(output: Output) -> bool:
    return known_shape(output) is None


def _shape_of(value: Any) -> Shape:
    """Return the shape of an input, or of the variable that it refers to."""
    array = state_of(value).read() if isinstance(value, VariableState | ResourceHandle) else value
    shape: Shape = array.shape
    return shape


def _copy_value(value: Any) -> Any:
    """Return a copy of a variable's value, on its device."""
    return np.array(value) if isinstance(value, np.ndarray | np.generic) else value.copy()

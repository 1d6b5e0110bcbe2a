"""The code generators for CPUs and GPUs: lowering, passes and machine code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import numpy as np

from weft_compiler.codegen.options import Options, options_of_regions
from weft_compiler.fingerprint import constants_of, fingerprint, polymorphic_fingerprint
from weft_compiler.ir.program import Program
from weft_compiler.lower.complex_numbers import is_complex
from weft_compiler.lower.folded_values import FoldedValues
from weft_compiler.lower.region import (
    is_computable,
    lower,
    reads_state,
    rng_nodes,
    unsupported_reason,
    updated_variables,
)
from weft_compiler.lower.registry import (
    Unsupported,
    is_worth_compiling,
    kernel_preference_reason,
    known_operands,
    rule_of,
    update_of,
)
from weft_compiler.lower.request_numbers import numbers_of
from weft_compiler.native import cache as disk
from weft_compiler.native.code_index import (
    remember,
    remember_polymorphic,
    restore,
    restore_polymorphic,
)
from weft_compiler.passes.dump import is_dumping
from weft_graph.ir.code_generators import (
    ClockReader,
    NotGenerated,
    ProfileStore,
    RegionRequest,
    Request,
    Shape,
    Subgraph,
    device_generators,
    generators,
)
from weft_graph.ir.compiled_function import CompiledFunction, Roofline
from weft_graph.ir.gc_pause import pause_gc
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role
from weft_graph.passes.whole_loops import LoopRequest, WholeLoop
from weft_tensor import errors
from weft_tensor.dtypes import DType

if TYPE_CHECKING:
    from weft_compiler.gpu.code import PtxCode
    from weft_compiler.ir.program import Program
    from weft_compiler.native.polymorphic_code import PolymorphicCode
    from weft_compiler.native.program import NativeProgram
    from weft_compiler.sharing import CompiledArtifact

R = TypeVar("R", RegionRequest, LoopRequest)

_LONG: Final = 200_000
"""Minimum number of statements for which a program is long-running: it may take milliseconds."""
_WORTH_HELPERS: Final = 1 << 20
"""Minimum number of statements for which helper threads pay off. For programs that take up to 0.1
ms, waking them and moving cache lines between cores costs as much as they save.
"""


class Compiled:
    """A native program that computes some nodes.

    Attributes:
      input_positions, rng_nodes, reports_rng_use, results, updates, is_long_running, is_bounded,
        is_shape_polymorphic, enter, enter_briefly: as in
        `weft_graph.ir.code_generators.Generated`.
      program: the compiled program.
      origin: returns `made`.
      made: the program that it was compiled from, and the programs that share its code.
      polymorphic: its code, if it is for many sizes and known for them.
    """

    def __init__(
        self,
        program: NativeProgram,
        input_positions: Sequence[int],
        artifact: Callable[[], CompiledArtifact],
        updates: Sequence[int] = (),
        rng_nodes: Sequence[Node] = (),
        size: int | None = None,
        reports_rng_use: bool = False,
        polymorphic: PolymorphicCode | None = None,
    ) -> None:
        self.program = program
        self.polymorphic = polymorphic
        self.reports_rng_use = reports_rng_use
        self.origin = artifact
        self._size = size
        # A polymorphic program receives its size as input.
        self._first = () if size is None else (np.array(size, np.int64),)
        self.input_positions: Sequence[int] = tuple(input_positions)
        self.rng_nodes: Sequence[Node] = tuple(rng_nodes)
        self.updates: Sequence[int] = tuple(updates)
        outputs = program.program.outputs
        outputs = outputs[: len(outputs) - len(self.updates)]
        self.results: Sequence[tuple[DType, Shape]] = [b.array_type for b in outputs]
        self.is_long_running = program.work.statements >= _LONG and not updates
        self.is_bounded = program.work.is_bounded
        self.is_shape_polymorphic = size is not None
        self._receive: Callable[[Any], None] | None = None
        self.enter: Callable[..., Any] = self._sized_function(program.enter)
        input_buffers = len(program.program.inputs) - len(program.program.constants)
        self._count = input_buffers - len(self._first)

    @property
    def made(self) -> CompiledArtifact:
        """The program that this one was compiled from, and the programs that share its code.

        If the code was read from disk, the nodes are lowered again to compute this.
        """
        return self.origin()

    def __call__(self, *arrays: Any) -> None:
        """Run the program; see `Generated`."""
        result = self.enter(*arrays)
        if result is not None:
            self._run_otherwise(result, arrays)

    def _to_contiguous(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Return the arrays with contiguous inputs, which are converted or copied if necessary."""
        inputs = [np.asarray(array, order="C") for array in arrays[: self._count]]
        return (*inputs, *arrays[self._count :])

    def _run_otherwise(self, result: Any, arrays: Sequence[Any]) -> None:
        """Handle a failure of `enter`: run the program another way, or raise the error."""
        from weft_compiler.native.entry import BUSY

        if result is NotImplemented:
            result = self.enter(*self._to_contiguous(arrays))
        if result is NotImplemented or result == BUSY:
            self.program(*self._first, *arrays[: self._count], out=arrays[self._count :])
        elif result is not None:
            raise self.program.failure(result)

    @property
    def enter_briefly(self) -> Callable[..., Any]:
        """Like `enter`, up to the first poll; see `Generated`."""
        return self._sized_function(self.program.enter_briefly)

    def _sized_function(self, enter: Callable[..., Any]) -> Callable[..., Any]:
        return partial(enter, *self._first) if self._first else enter

    @property
    def threads(self) -> int:
        """The maximal number of threads of a call; see `Generated`."""
        return self.program.threads

    @threads.setter
    def threads(self, count: int) -> None:
        self.program.threads = count if self.program.work.statements >= _WORTH_HELPERS else 1
        self._set_enter()

    def interrupt(self) -> None:
        """Interrupt running calls; see `Generated`."""
        if not self.updates:
            self.program.interrupt()

    def resume(self) -> None:
        """Permit calls again after `interrupt`; see `Generated`."""
        self.program.resume()

    def copy(self) -> Compiled:
        """Return the same program with a separate interrupt flag; see `Generated`."""
        copy = Compiled(
            self.program.copy(),
            self.input_positions,
            self.origin,
            self.updates,
            self.rng_nodes,
            self._size,
            self.reports_rng_use,
            self.polymorphic,
        )
        copy._receive = self._receive
        copy._set_enter()
        return copy

    def traced(self, receive: Callable[[Any], None]) -> Compiled | None:
        """Return the same function with readings of the clock; see `Generated`."""
        if self.program.traced(receive) is None:
            return None
        traced = self.copy()
        traced._receive = receive
        traced._set_enter()
        return traced

    def _set_enter(self) -> None:
        """Set `enter` for the current program, number of threads and receiver of readings."""
        traced = None if self._receive is None else self.program.traced(self._receive)
        self.enter = self._sized_function(traced or self.program.enter)


class _Lowering:
    """Tests of which nodes can be lowered; see `CompileSupport`."""

    def unsupported_reason(self, subject: Node | Subgraph) -> str:
        """Return why a node or a loop should run with kernels, or ""; see `CompileSupport`."""
        if isinstance(subject, Node):
            return unsupported_reason(subject) or kernel_preference_reason(subject)
        return "only single nodes are compiled, not whole loops"

    def changes(self, node: Node) -> int:
        """Return the number of variables that a node changes, which are its first inputs.

        See `CodeGenerator`.
        """
        update = update_of(node.type)
        return 0 if update is None else update.states

    def changes_places(self, node: Node) -> bool:
        """Return True if a node changes only parts of variables; see `CodeGenerator`."""
        update = update_of(node.type)
        return update is not None and update.rows is not None

    def reads(self, node: Node) -> bool:
        """Return True if a node returns the value of its input, a variable; see `CodeGenerator`."""
        return reads_state(node)

    def uses_rng(self, node: Node) -> bool:
        """Return True if a node uses a random stream that it receives as an input.

        See `CodeGenerator`.
        """
        return node.op_def.traits.random and rule_of(node.type) is not None

    def value_dependent_inputs(self, node: Node) -> Sequence[int]:
        """Return the positions of the inputs whose values the code depends on, such as axes."""
        return known_operands(node)

    def repays(self, node: Node) -> bool:
        """Return True if compiling a node alone pays off; see `CompileSupport`."""
        return is_worth_compiling(node)


class _Profiles:
    """Store of measurements beside the code on disk; see `ProfileStore`."""

    def read(self, key: str) -> bytes | None:
        """Return the content stored under a fingerprint, or None."""
        return disk.read(f"{key}.profile")

    def write(self, key: str, content: bytes) -> None:
        """Store content under a fingerprint; does nothing if no cache directory is available."""
        disk.keep(f"{key}.profile", content)


Found = tuple["NativeProgram", int | None, "PolymorphicCode | None"]
"""A program, its size if its code is polymorphic, and this code if it is known for other sizes."""


def _instance(
    codes: Iterable[PolymorphicCode], request: RegionRequest | LoopRequest
) -> Found | None:
    """Return a program for the sizes of a request from one of several codes, or None."""
    numbers, folded = numbers_of(request), FoldedValues(request)
    for code in codes:
        size = code.size_of(numbers, folded)
        if size is not None:
            return code.instance(size), size, code
    return None


class _RequestCompiler(Generic[R]):
    """Base of the compilers of requests of one kind: looks for code, and compiles."""

    def lower(self, request: R) -> Program:
        """Return the program of a request."""
        raise NotImplementedError

    def constants(self, request: R) -> Sequence[Output]:
        """Return the constants that a program may use, in an order fixed by its fingerprint."""
        raise NotImplementedError

    def called(
        self, request: R, match: Found, artifact: Callable[[], CompiledArtifact]
    ) -> Compiled:
        """Return a program with its callers' interface, without constants and updates.

        Args:
          artifact: its origin.
        """
        raise NotImplementedError

    def find(self, request: R) -> Compiled | None:
        """Return the function that `generate` would return, if its code is on the disk.

        See `CodeGenerator`.
        """
        key = _key(request)
        entry = None if key is None else restore(key, self.constants(request))
        result: Found
        if entry is not None:
            result, varying = (entry.program, entry.size, None), entry.varying
        else:
            key = _polymorphic_key(request)
            codes = [] if key is None else restore_polymorphic(key, self.constants(request))
            served = _instance(codes, request)
            if served is None:
                return None
            result, varying = served, None

        @cache
        def made() -> CompiledArtifact:
            from weft_compiler.sharing import restore_artifact

            program, size, _ = result
            lowered = self.lower(request)
            return restore_artifact(program, lowered, numbers_of(request), size, varying)

        return self.called(request, result, made)

    def instance(self, request: R, like: Iterable[Any]) -> Compiled | None:
        """Return code for other sizes that also supports a request; see `CodeGenerator`."""
        origins = {
            origin.polymorphic: origin.origin
            for origin in like
            if isinstance(origin, Compiled) and origin.polymorphic is not None
        }
        result = _instance(origins, request)
        if result is None or result[2] is None:
            return None
        return self.called(request, result, origins[result[2]])

    def generate(
        self, request: R, like: Iterable[Any] = (), other_choices: Iterable[R] = ()
    ) -> Compiled:
        """Return a function that computes a request; see `CodeGenerator`."""
        like = list(like)
        known_value = self.instance(request, like) or self.find(request)
        if known_value is not None:
            return known_value
        # Imported here: importing passes and LLVM takes 0.1 s, which most steps need not pay.
        from weft_compiler.sharing import make

        def lower(choice: Any) -> Program:
            return self.lower(choice)

        try:
            artifact = make(request, lower, _origins(like), other_choices)
        except (Unsupported, errors.UnimplementedError) as why:
            raise NotGenerated(str(why)) from why
        assert artifact.program is not None
        code = None if artifact.shared is None else artifact.shared.code
        is_stored = False
        if artifact.shared is not None and FoldedValues(request).are_evaluated:
            if not artifact.shared.code.is_dense:
                self._store_polymorphic(
                    request, artifact.shared.code
                )  # the program may end meanwhile
                artifact.shared.verify_range(request, lower)
            is_stored = artifact.shared.code.is_dense
            if is_stored:
                self._store_polymorphic(request, artifact.shared.code)
        if not is_stored and (key := _key(request)) is not None:
            remember(
                key, artifact.program, self.constants(request), artifact.size, artifact.varying
            )
        return self.called(request, (artifact.program, artifact.size, code), lambda: artifact)

    def _store_polymorphic(self, request: R, code: PolymorphicCode) -> None:
        key = _polymorphic_key(request)
        if key is not None:
            remember_polymorphic(key, code, self.constants(request))


class RegionCompiler(_RequestCompiler[RegionRequest]):
    """Compiler of regions by LLVM; see `CodeGenerator`."""

    def lower(self, request: RegionRequest) -> Program:
        """Return the program of a region."""
        with pause_gc():
            return lower(request)

    def constants(self, request: RegionRequest) -> Sequence[Output]:
        """Return the inputs, some of which are constants."""
        return request.inputs

    def called(
        self, request: RegionRequest, match: Found, artifact: Callable[[], CompiledArtifact]
    ) -> Compiled:
        """Return a program with its callers' interface."""
        program, size, code = match
        draws = rng_nodes(request.members)
        reports_rng_use = any(member in request.branches.paths for member in draws)
        updates = _updated_inputs(request)
        return Compiled(
            program, _passed_inputs(request), artifact, updates, draws, size, reports_rng_use, code
        )

    def explain(self, request: RegionRequest, arguments: Sequence[Any]) -> CompiledFunction:
        """Explain the code of a region; see `CodeGenerator`."""
        from weft_compiler.explain import explain

        states, takes = _updated_inputs(request), _passed_inputs(request)

        def arrays(program: Program) -> list[Any]:
            computed = program.outputs[: len(program.outputs) - len(states)]
            types = [buffer.array_type for buffer in computed]
            results = [np.empty(shape, dtype.numpy) for dtype, shape in types]
            call_arguments = [np.require(arguments[index], None, "C") for index in takes]
            if rng_nodes(request.members):
                streams = program.inputs[len(takes)]
                call_arguments.append(np.zeros(streams.shape, streams.dtype.numpy))
            return [
                *call_arguments,
                *results,
                *[np.array(arguments[index], order="C") for index in states],
            ]

        try:
            return explain(request, arrays, options_of_regions())
        except (Unsupported, errors.UnimplementedError) as why:
            raise NotGenerated(str(why)) from why


class LoopCompiler(_RequestCompiler[LoopRequest]):
    """Compiler of whole loops by LLVM; see `CodeGenerator`."""

    def lower(self, request: LoopRequest) -> Program:
        """Return the program of a loop."""
        from weft_compiler.lower.whole_loop import lower_loop

        return lower_loop(request.name, *request)

    def constants(self, request: LoopRequest) -> Sequence[Output]:
        """Return the constants that the loop reads or contains."""
        return constants_of(request.whole)

    def called(
        self, request: LoopRequest, match: Found, artifact: Callable[[], CompiledArtifact]
    ) -> Compiled:
        """Return a program with its callers' interface."""
        program, size, code = match
        loop, is_resumable = request.whole, request.is_resumable
        variables = len(loop.variables)
        takes = [
            index
            for index, enter in enumerate(loop.enters)
            if (
                enter.inputs[0].node.role is not Role.CONSTANT
                or (is_resumable and index < variables)
            )
            and (
                index in loop.reads
                or index in loop.updates
                or (is_computable(enter.outputs[0].dtype) and not enter.outputs[0].dtype.is_ref)
            )
        ]
        return Compiled(
            program, takes, artifact, rng_nodes=loop.rng_nodes, size=size, polymorphic=code
        )


class LlvmGenerator(_Lowering):
    """Code generator by LLVM, for the processor that it runs on.

    Attributes:
      profiles: as in `CodeGenerator`.
    """

    profiles: ProfileStore = _Profiles()

    def __init__(self) -> None:
        self._regions = RegionCompiler()
        self._loops = LoopCompiler()

    def unsupported_reason(self, subject: Node | Subgraph) -> str:
        """Return why a node or a loop should run with kernels, or ""; see `CompileSupport`."""
        if isinstance(subject, WholeLoop):
            from weft_compiler.lower.loop_support import unsupported_loop_reason

            return unsupported_loop_reason(subject)
        return super().unsupported_reason(subject)

    def fingerprint(self, request: Request) -> str | None:
        """Return a name for a request; see `CodeGenerator`."""
        return _key(request if isinstance(request, LoopRequest) else _region(request))

    def find(self, request: Request) -> Compiled | None:
        """Return the function that `generate` would return, if its code is on the disk.

        See `CodeGenerator`.
        """
        if isinstance(request, LoopRequest):
            return self._loops.find(request)
        return self._regions.find(_region(request))

    def polymorphic_fingerprint(self, request: Request) -> str | None:
        """Return a name for a request and those for other sizes; see `CodeGenerator`."""
        return _polymorphic_key(request if isinstance(request, LoopRequest) else _region(request))

    def instance(self, request: Request, like: Iterable[Any]) -> Compiled | None:
        """Return code for other sizes that also supports a request; see `CodeGenerator`."""
        if isinstance(request, LoopRequest):
            return self._loops.instance(request, like)
        return self._regions.instance(_region(request), like)

    def generate(
        self, request: Request, like: Iterable[Any] = (), other_choices: Iterable[Any] = ()
    ) -> Compiled:
        """Return a function that computes a request; see `CodeGenerator`."""
        if isinstance(request, LoopRequest):
            return self._loops.generate(request, like, other_choices)
        return self._regions.generate(_region(request), like, other_choices)

    def kernels(self, request: Request) -> Sequence[Sequence[Node]]:
        """Return the members that each kernel of a function computes; see `CodeGenerator`."""
        from weft_compiler.explain import kernel_nodes

        return kernel_nodes(_region(request), options_of_regions())

    def explain(self, request: Request, arrays: Sequence[Any]) -> CompiledFunction:
        """Explain the code of a region; see `CodeGenerator`."""
        return self._regions.explain(_region(request), arrays)

    def roofline(self) -> Roofline:
        """Return the measured limits of this machine; see `CodeGenerator`."""
        from weft_compiler.native.roofline import roofline

        return roofline()

    def clock_reader(self) -> ClockReader | None:
        """Return functions of the runtime that read the clock; see `CodeGenerator`."""
        from weft_compiler.native.trace_clock import clock_reader

        return clock_reader()


def _region(request: Request) -> RegionRequest:
    """Return the request if it is for a region.

    Raises: NotGenerated: the request is for a loop.
    """
    if isinstance(request, RegionRequest):
        return request
    raise NotGenerated(f"{type(request).__name__} is not supported, only regions are")


def _key(request: RegionRequest | LoopRequest) -> str | None:
    """Return the name under which the code for a request is cached; None if it is not cached."""
    return fingerprint(request) if _caches_code() else None


def _polymorphic_key(request: RegionRequest | LoopRequest) -> str | None:
    """Return the name of code for many sizes of a request; None if it is not kept."""
    return polymorphic_fingerprint(request) if _caches_code() else None


def _caches_code() -> bool:
    """Return True if code is cached; it is not in debugging modes, which need the passes to run."""
    return options_of_regions() == Options() and not is_dumping()


def _origins(like: Iterable[Any]) -> list[CompiledArtifact]:
    """Return the origins of compiled functions whose code may be reused."""
    return [origin.made for origin in like if isinstance(origin, Compiled)]


def _updated_inputs(request: RegionRequest) -> list[int]:
    """Return the positions of the inputs whose variables a program changes, in its order."""
    position = {source: index for index, source in enumerate(request.inputs)}
    return [position[state] for state in updated_variables(request.members)]


def _passed_inputs(request: RegionRequest) -> list[int]:
    """Return the positions of the inputs that are passed to a program."""
    known_values = set(_updated_inputs(request)).union(request.values)
    return [
        index
        for index, value in enumerate(request.inputs)
        if value.node.role is not Role.CONSTANT and index not in known_values
    ]


_LIBRARIES: Final = tuple(
    [
        f"{__package__}.lower.rules.{family}"
        for family in ("block_lstm", "block_rnn", "conv", "conv3d", "depthwise", "matmul")
    ]
)
"""Modules with the rules of ops that NVIDIA's libraries implement."""


class PtxGenerator(_Lowering):
    """Code generator by LLVM for NVIDIA GPUs."""

    def unsupported_reason(self, subject: Node | Subgraph) -> str:
        """Return why a node should run by its kernel, or ""; whole loops are never compiled."""
        rule = rule_of(subject.type) if isinstance(subject, Node) else None
        if rule is not None and rule.__module__ in _LIBRARIES:
            return "a GPU library computes it"
        if isinstance(subject, Node) and is_complex(subject):
            return "it has complex values"
        return super().unsupported_reason(subject)

    def generate(
        self, request: RegionRequest, capability: tuple[int, int], deterministic: bool
    ) -> PtxCode:
        """Compile some nodes to kernels; see `DeviceCodeGenerator`."""
        from weft_compiler.gpu.code import ptx_code

        try:
            code = ptx_code(lower(request), capability, deterministic)
        except (Unsupported, errors.UnimplementedError) as why:
            raise NotGenerated(str(why)) from why
        return _adapt_to_callers(code, request)

    def explain(
        self, request: RegionRequest, capability: tuple[int, int], deterministic: bool
    ) -> tuple[PtxCode, CompiledFunction]:
        """Compile some nodes and describe the kernels; see `DeviceCodeGenerator`."""
        from weft_compiler.explain import explain_for_gpu

        try:
            code, result = explain_for_gpu(request, capability, deterministic)
        except (Unsupported, errors.UnimplementedError) as why:
            raise NotGenerated(str(why)) from why
        return _adapt_to_callers(code, request), result


def _adapt_to_callers(code: PtxCode, request: RegionRequest) -> PtxCode:
    """Adapt kernels to callers, which do not pass constants and old values of updates."""
    updates = _updated_inputs(request)
    return code._replace(
        input_positions=_passed_inputs(request),
        rng_nodes=rng_nodes(request.members),
        updates=updates,
        results=code.results[: len(code.results) - len(updates)],
    )


generators.register("llvm", LlvmGenerator())
device_generators.register("GPU", PtxGenerator())

"""The code generators for CPUs and GPUs: lowering, passes and machine code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_compiler.codegen.options import Options, options_of_regions
from weft_compiler.fingerprint import constants_of, fingerprint
from weft_compiler.ir.program import Program
from weft_compiler.lower.complex_numbers import is_complex
from weft_compiler.lower.region import (
    changed,
    computes_with,
    lower,
    reads_state,
    rng_nodes,
    unsupported_reason,
)
from weft_compiler.lower.registry import (
    Unsupported,
    known_operands,
    repays,
    rule_of,
    update_of,
    wants_kernel,
)
from weft_compiler.native import cache as disk
from weft_compiler.native.code_index import remember, restore
from weft_compiler.passes.dump import is_dumping
from weft_graph.ir.code_generators import (
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
from weft_graph.ir.node import Node
from weft_graph.ir.traits import Role
from weft_graph.passes.whole_loops import LoopRequest, WholeLoop
from weft_tensor import errors
from weft_tensor.dtypes import DType

if TYPE_CHECKING:
    from weft_compiler.gpu.code import PtxCode
    from weft_compiler.ir.program import Program
    from weft_compiler.native.program import NativeProgram
    from weft_compiler.sharing import CompiledArtifact


_LONG: Final = 200_000
"""Number of statements from which a program is long-running: it may take milliseconds."""
_WORTH_HELPERS: Final = 1 << 20
"""Number of statements from which helper threads pay. For programs that take up to 0.1 ms, waking
them and moving cache lines between cores costs as much as they save.
"""


class Compiled:
    """A native program that computes some nodes.

    Attributes:
      takes, draws, tells, results, updates, long, bounded, shares, enter, enter_briefly: as in
        `weft_graph.ir.code_generators.Generated`.
      program: the compiled program.
      made: the program that it was compiled from, and the programs that share its code.
    """

    def __init__(
        self,
        program: NativeProgram,
        takes: Sequence[int],
        made: Callable[[], CompiledArtifact],
        updates: Sequence[int] = (),
        draws: Sequence[Node] = (),
        size: int | None = None,
        tells: bool = False,
    ) -> None:
        self.program = program
        self.tells = tells
        self._made = made
        self._size = size
        # A polymorphic program receives its size as input.
        self._first = () if size is None else (np.array(size, np.int64),)
        self.takes: Sequence[int] = tuple(takes)
        self.draws: Sequence[Node] = tuple(draws)
        self.updates: Sequence[int] = tuple(updates)
        outputs = program.program.outputs
        outputs = outputs[: len(outputs) - len(self.updates)]
        self.results: Sequence[tuple[DType, Shape]] = [b.array_type for b in outputs]
        self.long = program.work.statements >= _LONG and not updates
        self.bounded = program.work.bounded
        self.shares = size is not None
        self.enter: Callable[..., Any] = self._sized(program.enter)
        given = len(program.program.inputs) - len(program.program.constants)
        self._count = given - len(self._first)

    @property
    def made(self) -> CompiledArtifact:
        """The program that this one was compiled from, and the programs that share its code.

        If the code was read from disk, the nodes are lowered again to compute this.
        """
        return self._made()

    def __call__(self, *arrays: Any) -> None:
        """Run the program; see `Generated`."""
        found = self.enter(*arrays)
        if found is not None:
            self._otherwise(found, arrays)

    def _dense(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Return the arrays with contiguous inputs, which are converted or copied if necessary."""
        inputs = [np.asarray(array, order="C") for array in arrays[: self._count]]
        return (*inputs, *arrays[self._count :])

    def _otherwise(self, found: Any, arrays: Sequence[Any]) -> None:
        """Handle a failure of `enter`: run the program another way, or raise the error."""
        from weft_compiler.native.entry import BUSY

        if found is NotImplemented:
            found = self.enter(*self._dense(arrays))
        if found is NotImplemented or found == BUSY:
            self.program(*self._first, *arrays[: self._count], out=arrays[self._count :])
        elif found is not None:
            raise self.program.failure(found)

    @property
    def enter_briefly(self) -> Callable[..., Any]:
        """Like `enter`, up to the first poll; see `Generated`."""
        return self._sized(self.program.enter_briefly)

    def _sized(self, enter: Callable[..., Any]) -> Callable[..., Any]:
        return partial(enter, *self._first) if self._first else enter

    @property
    def threads(self) -> int:
        """The maximal number of threads of a call; see `Generated`."""
        return self.program.threads

    @threads.setter
    def threads(self, count: int) -> None:
        self.program.threads = count if self.program.work.statements >= _WORTH_HELPERS else 1
        self.enter = self._sized(self.program.enter)

    def interrupt(self) -> None:
        """Interrupt running calls; see `Generated`."""
        if not self.updates:
            self.program.interrupt()

    def resume(self) -> None:
        """Permit calls again after `interrupt`; see `Generated`."""
        self.program.resume()

    def copy(self) -> Compiled:
        """Return the same program with a separate interrupt flag; see `Generated`."""
        program, size = self.program.copy(), self._size
        return Compiled(program, self.takes, self._made, self.updates, self.draws, size, self.tells)


class _Lowering:
    """Tests of which nodes can be lowered; see `Choosing`."""

    def unsupported_reason(self, subject: Node | Subgraph) -> str:
        """Return why a node or a loop should run by kernels, or ""; see `Choosing`."""
        if isinstance(subject, Node):
            return unsupported_reason(subject) or wants_kernel(subject)
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

    def draws(self, node: Node) -> bool:
        """Return True if a node uses a random stream that it receives as an input.

        See `CodeGenerator`.
        """
        return node.op_def.traits.random and rule_of(node.type) is not None

    def needs_value(self, node: Node) -> Sequence[int]:
        """Return the positions of the inputs whose values the code depends on, such as axes."""
        return known_operands(node)

    def repays(self, node: Node) -> bool:
        """Return True if compiling a node on its own pays; see `Choosing`."""
        return repays(node)


class _Profiles:
    """Store of measurements beside the code on disk; see `ProfileStore`."""

    def read(self, key: str) -> bytes | None:
        """Return the content stored under a fingerprint, or None."""
        return disk.read(f"{key}.profile")

    def write(self, key: str, content: bytes) -> None:
        """Store content under a fingerprint; does nothing if no cache directory is available."""
        disk.keep(f"{key}.profile", content)


class RegionCompiler:
    """Compiler of regions by LLVM; see `CodeGenerator`."""

    def find(self, request: RegionRequest) -> Compiled | None:
        """Return the function that `generate` would return, if its code is on the disk.

        See `CodeGenerator`.
        """
        key = _key(request)
        found = None if key is None else restore(key, request.inputs)
        if found is None:
            return None

        @cache
        def made() -> CompiledArtifact:
            from weft_compiler.sharing import made_again

            return made_again(found.program, lower(request), found.size, found.varying)

        return _called(found.program, found.size, request, made)

    def generate(self, request: RegionRequest, like: Iterable[Any] = ()) -> Compiled:
        """Return a function that computes a region; see `CodeGenerator`."""
        found = self.find(request)
        if found is not None:
            return found
        # Imported here: importing passes and LLVM takes 0.1 s, which most steps need not pay.
        from weft_compiler.sharing import make

        try:
            made = make(lower(request), _origins(like))
        except (Unsupported, errors.UnimplementedError) as why:
            raise NotGenerated(str(why)) from why
        key = _key(request)
        if key is not None:
            remember(key, made.program, request.inputs, made.size, made.varying)
        return _called(made.program, made.size, request, lambda: made)

    def explain(self, request: RegionRequest, given: Sequence[Any]) -> CompiledFunction:
        """Explain the code of a region; see `CodeGenerator`."""
        from weft_compiler.explain import explain

        states, takes = _updates(request), _takes(request)

        def arrays(program: Program) -> list[Any]:
            made = program.outputs[: len(program.outputs) - len(states)]
            types = [buffer.array_type for buffer in made]
            results = [np.empty(shape, dtype.numpy) for dtype, shape in types]
            taken = [np.require(given[at], None, "C") for at in takes]
            if rng_nodes(request.members):
                streams = program.inputs[len(takes)]
                taken.append(np.zeros(streams.shape, streams.dtype.numpy))
            return [*taken, *results, *[np.array(given[at], order="C") for at in states]]

        try:
            return explain(request, arrays, options_of_regions())
        except (Unsupported, errors.UnimplementedError) as why:
            raise NotGenerated(str(why)) from why


class LoopCompiler:
    """Compiler of whole loops by LLVM; see `CodeGenerator`."""

    def find(self, request: LoopRequest) -> Compiled | None:
        """Return the function that `generate` would return, if its code is on the disk."""
        key = _key(request)
        found = None if key is None else restore(key, constants_of(request.whole))
        if found is None:
            return None

        @cache
        def made() -> CompiledArtifact:
            from weft_compiler.lower.whole_loop import lower_loop
            from weft_compiler.sharing import made_again

            lowered = lower_loop(request.name, *request)
            return made_again(found.program, lowered, found.size, found.varying)

        return self._called(found.program, found.size, request, made)

    def generate(self, request: LoopRequest, like: Iterable[Any] = ()) -> Compiled:
        """Return a function that runs a loop."""
        found = self.find(request)
        if found is not None:
            return found
        from weft_compiler.lower.whole_loop import lower_loop
        from weft_compiler.sharing import make

        try:
            made = make(lower_loop(request.name, *request), _origins(like))
        except (Unsupported, errors.UnimplementedError) as why:
            raise NotGenerated(str(why)) from why
        key = _key(request)
        if key is not None:
            constants = constants_of(request.whole)
            remember(key, made.program, constants, made.size, made.varying)
        return self._called(made.program, made.size, request, lambda: made)

    def _called(
        self,
        compiled: NativeProgram,
        size: int | None,
        request: LoopRequest,
        made: Callable[[], CompiledArtifact],
    ) -> Compiled:
        whole, is_resumable = request.whole, request.is_resumable
        variables = len(whole.variables)
        takes = [
            at
            for at, enter in enumerate(whole.enters)
            if (enter.inputs[0].node.role is not Role.CONSTANT or (is_resumable and at < variables))
            and (
                at in whole.reads
                or at in whole.updates
                or (computes_with(enter.outputs[0].dtype) and not enter.outputs[0].dtype.is_ref)
            )
        ]
        return Compiled(compiled, takes, made, draws=whole.draws, size=size)


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
        """Return why a node or a loop should run by kernels, or ""; see `Choosing`."""
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

    def generate(self, request: Request, like: Iterable[Any] = ()) -> Compiled:
        """Return a function that computes a request; see `CodeGenerator`."""
        if isinstance(request, LoopRequest):
            return self._loops.generate(request, like)
        return self._regions.generate(_region(request), like)

    def explain(self, request: Request, given: Sequence[Any]) -> CompiledFunction:
        """Explain the code of a region; see `CodeGenerator`."""
        return self._regions.explain(_region(request), given)

    def roofline(self) -> Roofline:
        """Return the measured limits of this machine; see `CodeGenerator`."""
        from weft_compiler.native.roofline import roofline

        return roofline()


def _region(request: Request) -> RegionRequest:
    """Return the request if it is for a region.

    Raises: NotGenerated: the request is for a loop.
    """
    if isinstance(request, RegionRequest):
        return request
    raise NotGenerated(f"{type(request).__name__} is not supported, only regions are")


def _key(request: RegionRequest | LoopRequest) -> str | None:
    """Return the name under which the code for a request is cached; None if it is not cached."""
    return fingerprint(request) if _keeps_code() else None


def _keeps_code() -> bool:
    """Return True if code is cached; it is not in debugging modes, which need the passes to run."""
    return options_of_regions() == Options() and not is_dumping()


def _origins(like: Iterable[Any]) -> list[CompiledArtifact]:
    """Return the origins of compiled functions whose code may be reused."""
    return [each.made for each in like if isinstance(each, Compiled)]


def _called(
    program: NativeProgram,
    size: int | None,
    request: RegionRequest,
    made: Callable[[], CompiledArtifact],
) -> Compiled:
    """Adapt a program to callers, who pass neither constants nor old values of updates.

    Args:
      size: the size that the program receives, if it is shape-polymorphic.
      made: returns the origin of the program.
    """
    draws = rng_nodes(request.members)
    tells = any(member in request.branches.paths for member in draws)
    return Compiled(program, _takes(request), made, _updates(request), draws, size, tells)


def _updates(request: RegionRequest) -> list[int]:
    """Return the positions of the inputs whose variables a program changes, in its order."""
    position = {source: at for at, source in enumerate(request.inputs)}
    return [position[state] for state in changed(request.members)]


def _takes(request: RegionRequest) -> list[int]:
    """Return the positions of the inputs that are passed to a program."""
    known = set(_updates(request)).union(request.values)
    return [
        at
        for at, given in enumerate(request.inputs)
        if given.node.role is not Role.CONSTANT and at not in known
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
            made = ptx_code(lower(request), capability, deterministic)
        except (Unsupported, errors.UnimplementedError) as why:
            raise NotGenerated(str(why)) from why
        return _known_to_callers(made, request)

    def explain(
        self, request: RegionRequest, capability: tuple[int, int], deterministic: bool
    ) -> tuple[PtxCode, CompiledFunction]:
        """Compile some nodes and describe the kernels; see `DeviceCodeGenerator`."""
        from weft_compiler.explain import explain_for_gpu

        try:
            made, found = explain_for_gpu(request, capability, deterministic)
        except (Unsupported, errors.UnimplementedError) as why:
            raise NotGenerated(str(why)) from why
        return _known_to_callers(made, request), found


def _known_to_callers(made: PtxCode, request: RegionRequest) -> PtxCode:
    """Adapt kernels to callers, who pass neither constants nor old values of updates."""
    updates = _updates(request)
    return made._replace(
        takes=_takes(request),
        draws=rng_nodes(request.members),
        updates=updates,
        results=made.results[: len(made.results) - len(updates)],
    )


generators.register("llvm", LlvmGenerator())
device_generators.register("GPU", PtxGenerator())

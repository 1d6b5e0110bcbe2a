"""Interface to compilers that take over nodes of a partition before its executable is derived.

A compiler is offered the nodes of each partition and may claim sets of them. Each claimed set
becomes one `_Region` node that names its members and has one function. Placement, memory and costs
are planned before that, over the members. If the device has a memory limit, claims whose function
would exceed it are rejected, and their members run with kernels as planned.

If a region fails, its members are run by their kernels to find the failing one. Traces,
measurements and errors refer to members, which share the time of their function.

Compilers are registered by `register_compiler`, or by modules named by the entry-point group
`weft_exec.compilers`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from weft_exec.devices.device import Device
from weft_exec.executor.derivation import Placement
from weft_exec.executor.kernel_errors import raise_located
from weft_exec.executor.memory_budget import MemoryBudget, StepMemory
from weft_exec.executor.overlap import Overlap
from weft_exec.executor.priority import is_update, variable_of
from weft_exec.executor.region import Region, RegionCall, compiler_error
from weft_exec.executor.variable_order import access_order, variable_accesses
from weft_exec.kernels.random_counters import needs_counters
from weft_exec.kernels.registry import ANY_DEVICE, Kernel
from weft_graph.functions.state import uses_rng
from weft_graph.ir.code_generators import NO_BRANCHES, Branches
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.registry import Registry
from weft_graph.ir.step_graph import StepGraph
from weft_graph.ir.traits import Role, State
from weft_graph.ops.step import REGION
from weft_graph.passes.flow import Flow, has_control_flow, only_waits, predicate, sort_topologically
from weft_graph.passes.memory import BytesOf
from weft_graph.passes.whole_loops import WholeLoop
from weft_tensor import dtypes, errors


class RegionClaim(NamedTuple):
    """Nodes to be computed by one function.

    Attributes:
      members: synchronous, stateless nodes with the same frame, guard and device. No path between
        two of them may contain other nodes, not even nodes of other claims. They may read
        references of variables; variables that no member changes are read when the region begins.
      make: creates the function of a region on a device, once for each executable. The function
        maps the region's inputs to a value or a tuple of values. It returns NotImplemented or a
        `KernelFallback` if the members should run with kernels this time. If `make` returns None,
        they always run with kernels.
      peak_bytes: maps sizes of values to the function's peak memory, including its results but not
        its inputs. By default the results of all members are assumed to be live together.
      updates: the members that change variables, with the number of leading inputs that are
        references or handles, which the function receives. A member reads a variable as earlier
        members have left it. The output reference of such a member equals the reference of its
        first input; users outside the region use the variable itself.
      rng_nodes: the members that draw random numbers; the function counts their executions.
      is_multithreaded: True if the function itself uses several threads, so that it needs none of
        the step's pool.
      branches: the members that run only on one side of a branch, with all Switches and Merges of
        these branches. All nodes of these branches must be members.
      fresh: True if all results of the function are new arrays without other owners, so that
        fetching them needs no copies.
    """

    members: Sequence[Node]
    make: Callable[[Region, Device], Callable[..., Any] | None]
    peak_bytes: Callable[[BytesOf], int] | None = None
    updates: Mapping[Node, int] = MappingProxyType({})
    rng_nodes: Collection[Node] = ()
    is_multithreaded: bool = False
    branches: Branches = NO_BRANCHES
    fresh: bool = False

    def where(self, member: Node, context_of: Callable[[Node], object]) -> object:
        """Return the frame and guard of a member; they are the same for all members.

        Args:
          context_of: as in `CompileOffer`.
        """
        result = context_of(member)
        path = self.branches.paths.get(member)
        if not path or not isinstance(result, tuple):
            return result
        frame, guard = result
        return frame, guard - {(predicate(switch), int(side)) for switch, side in path}


class CompileOffer(NamedTuple):
    """The nodes that a compiler may choose from.

    Attributes:
      step: the graph, which must not be edited.
      nodes: the unclaimed nodes in execution order.
      place: returns the device and kernel of a node; raises if it has none.
      where: returns a key that is equal for nodes with the same frame and guard.
      every: all nodes in execution order, including claimed ones.
      flow: the frames and guards of all nodes; None without control flow.
    """

    step: StepGraph
    nodes: Sequence[Node]
    place: Placement
    where: Callable[[Node], object]
    every: Sequence[Node]
    flow: Flow | None = None


def offer_of(step: StepGraph, nodes: Sequence[Node], placement: Placement) -> CompileOffer:
    """Return the first offer to compilers, before any nodes are claimed."""
    flow = Flow(nodes) if has_control_flow(nodes) else None

    def context_of(node: Node) -> object:
        return None if flow is None else (flow.frame[node], flow.guard(node))

    return CompileOffer(step, nodes, placement, context_of, nodes, flow)


class LoopClaim(NamedTuple):
    """A loop to be computed by one function.

    Attributes:
      whole: the loop, of synchronous nodes on one device.
      make: creates the function, once for each executable. The function maps the values of the
        loop's `enters` to the final values of its variables, with None for unused ones. It returns
        NotImplemented or a `KernelFallback` if the loop should run with kernels this time.
    """

    whole: WholeLoop
    make: Callable[[], Callable[..., Any]]


class Compiler(Protocol):
    """A compiler that may take over nodes.

    It may also have a method `claim_loops`, which receives an offer and returns a `LoopClaim` for
    each claimed loop. The nodes of claimed loops are not offered again.
    """

    def claim(self, offer: CompileOffer) -> Iterable[RegionClaim]:
        """Return disjoint sets of nodes to compile."""
        ...


_compilers: Registry[Compiler] = Registry(
    "compiler", "weft_exec.executor.native", "weft_exec.compilers"
)


def register_compiler(name: str, compiler: Compiler) -> None:
    """Register a compiler; compilers choose in the order of their names.

    The built-in compiler, "native", claims everything that it can compile, so it chooses last.

    Raises: AlreadyExistsError: the name is already registered.
    """
    _compilers.register(name, compiler)


def _names() -> list[str]:
    """Return the names of all compilers, in the order in which they choose."""
    return sorted(_compilers.keys(), key=lambda name: (name == "native", name))


def compile_loops(
    step: StepGraph, nodes: Sequence[Node], placement: Placement, overlap: Overlap
) -> dict[Node, LoopClaim]:
    """Let compilers claim loops of a partition.

    Returns: the claims, by the node that computes the loop's predicate.
    """
    if overlap is Overlap.EVERYTHING or not has_control_flow(nodes):
        return {}
    loop_claims: dict[Node, LoopClaim] = {}
    for name in _names():
        claim_loops = getattr(_compilers.lookup(name), "claim_loops", None)
        claims = () if claim_loops is None else claim_loops(offer_of(step, nodes, placement))
        for claim in claims:
            loop_claims.setdefault(claim.whole.loop.frame.cond, claim)
    return loop_claims


def compile_regions(
    step: StepGraph,
    nodes: Sequence[Node],
    placement: Placement,
    overlap: Overlap,
    budget: MemoryBudget | None = None,
    loops: Mapping[Node, LoopClaim] = MappingProxyType({}),
) -> tuple[Sequence[Node], Placement]:
    """Let compilers claim nodes of a partition.

    Args:
      loops: claimed loops, whose nodes are not offered.
      overlap: the degree of parallelism; if every node is scheduled separately, nothing is claimed.
      budget: the bytes that the nodes may use on a device with a memory limit; the estimate assumes
        that they run in order.
    Returns: the nodes and their placement, with regions in place of their members.
    Raises: InternalError: a claim is not a valid region.
    """
    names = [] if overlap is Overlap.EVERYTHING else _names()
    if not names:
        return nodes, placement
    placement = cache(placement)  # it is called repeatedly
    offer = offer_of(step, nodes, placement)
    context_of = offer.where
    loop_nodes = {node for loop in loops.values() for node in loop.whole.nodes}
    owners: dict[Node, str] = {}
    claims: list[tuple[str, RegionClaim]] = []
    for name in names:
        remaining = [node for node in nodes if node not in owners and node not in loop_nodes]
        offered = set(remaining)
        for claim in _collect_claims(name, offer._replace(nodes=remaining)):
            for member in claim.members:
                if member in owners or member not in offered:
                    raise _claim_error(name, member, "it is not one of the offered nodes")
                owners[member] = name
            claims.append((name, claim))
    if not claims:
        return nodes, placement
    order = _order_of(nodes, claims, context_of)
    for name, claim in claims:
        _check(name, claim, placement, context_of)
    if budget is not None:
        claims = _claims_within_memory(StepMemory(step, nodes, budget), claims)
    return _replace_by_regions(step, nodes, placement, claims, order)


def _order_of(
    nodes: Sequence[Node],
    claims: Sequence[tuple[str, RegionClaim]],
    context_of: Callable[[Node], object],
) -> list[tuple[Node, Node]]:
    """Return pairs of nodes that access one variable, earlier first, if some of them are claimed.

    Raises: InternalError: the accesses are in different loops or branches.
    """
    claimed = {member: name for name, claim in claims for member in claim.members}
    conditions = {
        member: claim.where(member, context_of) for _, claim in claims for member in claim.members
    }
    pairs: list[tuple[Node, Node]] = []
    for variable, order in variable_accesses(nodes).items():
        first = next((touch.node for touch in order if touch.node in claimed), None)
        if first is None:
            continue
        if len({conditions.get(touch.node) or context_of(touch.node) for touch in order}) > 1:
            raise _claim_error(claimed[first], first, f"loops or branches access {variable.name!r}")
        pairs += access_order(order)
    return pairs


def _collect_claims(name: str, offer: CompileOffer) -> list[RegionClaim]:
    """Return the claims that a compiler makes.

    Raises: InternalError: the compiler failed. Errors about a node are raised unchanged.
    """
    try:
        return list(_compilers.lookup(name).claim(offer))
    except errors.OpError:
        raise
    except Exception as error:  # because a compiler may raise anything
        raise errors.InternalError(
            f"the compiler {name!r} failed to select from {len(offer.nodes)} nodes: {error!r}"
        ) from error


def _claims_within_memory(
    memory: StepMemory, claims: Sequence[tuple[str, RegionClaim]]
) -> list[tuple[str, RegionClaim]]:
    """Return the claims that fit into the device's memory together with earlier ones."""
    return [
        (name, claim)
        for name, claim in claims
        if memory.take_together(claim.members, claim.peak_bytes)
    ]


def _check(
    name: str, claim: RegionClaim, placement: Placement, context_of: Callable[[Node], object]
) -> None:
    """Raise InternalError if a claim is not a valid region."""
    if not claim.members:
        raise errors.InternalError(f"the compiler {name!r} has a claim without nodes")
    first, leads = _first_kernel_node(claim.members), _make_path_predicate(claim.branches)
    changed = {
        variable_of(source)
        for node, count in claim.updates.items()
        for source in node.inputs[:count]
    }
    for node in claim.members:
        traits = node.traits
        changes = claim.updates.get(node, 0)
        routed = traits.routes and not leads(node)
        if routed or not node.inputs or not (node.outputs or changes):
            raise _claim_error(name, node, "it has no kernel to replace")
        if claim.where(node, context_of) != claim.where(first, context_of):
            raise _claim_error(name, node, f"it is in another loop or branch than {first.name!r}")
        if leads(node):
            continue
        if changes:
            _check_update(name, node, changes)
        elif node in claim.rng_nodes:
            if not uses_rng(node):
                raise _claim_error(name, node, "it does not use random numbers")
        elif not _is_read(node, changed) and (
            traits.stateful or not all(map(_is_value, (*node.inputs, *node.outputs)))
        ):
            raise _claim_error(name, node, "it has state")
        counts = needs_counters(node) and node not in claim.rng_nodes
        if placement(node)[1].asynchronous or counts:
            raise _claim_error(name, node, "it is asynchronous or may use random numbers")
        if placement(node)[0] is not placement(first)[0]:
            raise _claim_error(name, node, f"it is not on the device of {first.name!r}")


def _first_kernel_node(members: Iterable[Node]) -> Node:
    """Return the first node that does not route values."""
    return next(member for member in members if not member.traits.routes)


def _make_path_predicate(branches: Branches) -> Callable[[Node], bool]:
    """Return a predicate that is true for nodes that lead into or out of a claimed branch."""
    path_groups = [*branches.paths.values(), branches.sides.values()]
    predicates = {predicate(switch) for path_group in path_groups for switch, _ in path_group}
    return lambda node: (
        predicate(node) in predicates if node.role is Role.SWITCH else node in branches.sides
    )


def _check_update(name: str, node: Node, changes: int) -> None:
    """Raise InternalError if a node changes variables in a way that is not possible in a region."""
    states = node.inputs[:changes]
    if None in map(variable_of, states):
        raise _claim_error(name, node, "the variable it changes is not in the step")
    if not is_update(node) or not all(map(_is_value, node.inputs[changes:])):
        raise _claim_error(name, node, "it has state besides the variables that it changes")


def _is_read(node: Node, changed: Collection[Node | None]) -> bool:
    """Return True if a node reads a variable that its region changes, or reads it in a branch."""
    return node.traits.state is State.READS and all(
        variable_of(source) in changed or source.node.role is Role.SWITCH for source in node.inputs
    )


def _is_value(output: Output) -> bool:
    """Return True if an output is a value, or a reference of a variable, which can be read."""
    if output.dtype.is_ref:
        return variable_of(output) is not None
    return output.dtype is not dtypes.resource


def _replace_by_regions(
    step: StepGraph,
    nodes: Sequence[Node],
    placement: Placement,
    claims: Sequence[tuple[str, RegionClaim]],
    pairs: Sequence[tuple[Node, Node]],
) -> tuple[Sequence[Node], Placement]:
    position: dict[Node, int] = {node: i for i, node in enumerate(nodes)}
    result: dict[Node, tuple[Device, Kernel]] = {}
    region_of: dict[Node, Node] = {}
    for name, claim in claims:
        members = sorted(claim.members, key=position.__getitem__)
        region = _replace(step, members, name, claim.updates, claim.branches)
        region_of.update(dict.fromkeys(members, region.node))
        device = placement(_first_kernel_node(members))[0]
        heavy = not claim.is_multithreaded and any(
            [placement(m)[1].heavy for m in members if not m.traits.routes]
        )
        result[region.node] = device, _kernel(region, claim, placement, heavy)
        position[region.node] = position[members[-1]]
        for member in members:
            del position[member]
    controls: dict[Node, list[Node]] = {}
    for first, second in pairs:
        first_region, second_region = region_of.get(first, first), region_of.get(second, second)
        if first_region is not second_region and (
            first_region in result or second_region in result
        ):
            controls.setdefault(second_region, []).append(first_region)
    for second_region, matches in controls.items():
        step.graph.set_control_inputs(
            second_region, [*second_region.controls, *matches], reason="region"
        )
    order = sort_topologically(list(position), position.__getitem__)
    if len(order) < len(position):
        stuck = [node.name for node in result if node not in order]
        raise errors.InternalError(
            f"the claims of the compilers {sorted({name for name, _ in claims})} form a cycle "
            f"through {', '.join(stuck[:5])}"
        )

    def place_all(node: Node) -> tuple[Device, Kernel]:
        return result[node] if node in result else placement(node)

    return order, place_all


def _kernel(region: Region, claim: RegionClaim, placement: Placement, heavy: bool) -> Kernel:
    def make(node: Node, device: Device) -> RegionCall:
        try:
            function = claim.make(region, device)
        except Exception as error:  # because a compiler may raise anything
            raise_located(compiler_error(region, device, "could not be compiled", error))
        return RegionCall(region, device, placement, function)

    fresh = [
        index
        for index, o in enumerate(region.outputs)
        if claim.fresh and _is_fresh(o.node, placement)
    ]
    return Kernel(REGION, ANY_DEVICE, make, {}, heavy=heavy, alias=True, fresh=frozenset(fresh))


def _is_fresh(member: Node, placement: Placement) -> bool:
    """Return True if a member's kernel always allocates its results."""
    return not member.traits.routes and not placement(member)[1].may_share(member)


def _replace(
    step: StepGraph,
    members: Sequence[Node],
    compiler: str,
    updating: Mapping[Node, int],
    branches: Branches,
) -> Region:
    """Insert a `_Region` node for its members, which stay in the graph with no users outside."""
    member_set = set(members)
    dependents = _find_dependents(member_set)
    for member in members:
        _take_variables(step, member, member_set)
        for source in member.inputs:
            if source.node.role is Role.CONSTANT and not dependents.isdisjoint(
                source.node.controls
            ):
                _free(step, source.node)
    inputs = [s for node in members for s in node.inputs if s.node not in member_set]
    inputs = list(dict.fromkeys(inputs))
    fetched = set(step.fetches)
    outputs = [
        o
        for node in members
        for o in node.outputs
        if node not in updating and _is_used_outside(o, member_set, fetched)
    ]
    for member in updating:
        for output in member.outputs:
            _rewire_reference(step, output, member_set)
    changed = {s for node, count in updating.items() for s in node.inputs[:count]}
    node = step.graph.add_derived(
        members[0],
        lookup_op(REGION),
        step.graph.unique_name(f"{members[-1].name}/region"),
        tuple(inputs),
        {
            "Tin": tuple([source.dtype for source in inputs]),
            "Tout": tuple([output.dtype for output in outputs]),
            "members": tuple([member.name for member in members]),
            "updates": tuple([index for index, source in enumerate(inputs) if source in changed]),
        },
        [output.dtype for output in outputs],
        [output.dims for output in outputs],
    )
    node.device = members[0].device
    region = Region(node, members, outputs, compiler, branches)
    _rewire(step, region, member_set, dependents)
    return region


def _find_dependents(members: Collection[Node]) -> set[Node]:
    """Return the members and the nodes after them that wait only for members."""
    result = set(members)
    waiting = list(members)
    while waiting:
        users = [
            user for user in waiting.pop().consumers if only_waits(user) and user not in result
        ]
        result.update(users)
        waiting += users
    return result


def _external_controls(members: Sequence[Node], dependents: Collection[Node]) -> list[Node]:
    """Return the control dependencies of the members on other nodes.

    Args:
      dependents: the members and the nodes that wait only for members; dependencies of the latter
        are returned in their place.
    """
    member_set = set(members)
    result: dict[Node, None] = {}
    visited: set[Node] = set()
    waiting = [control for member in members for control in member.controls]
    while waiting:
        node = waiting.pop()
        if node in visited or node in member_set:
            continue
        visited.add(node)
        if node in dependents:
            waiting += node.controls
        else:
            result.setdefault(node)
    return list(result)


def _free(step: StepGraph, constant: Node) -> None:
    """Move a constant's control inputs to its users, which may be members."""
    waits = constant.controls
    step.graph.set_control_inputs(constant, [], reason="region")
    for user in constant.consumers:
        controls = list(dict.fromkeys([*user.controls, *waits]))
        step.graph.set_control_inputs(user, controls, reason="region")


def _take_variables(step: StepGraph, member: Node, members: Collection[Node]) -> None:
    """Rewire a member from forwarded references to the variables themselves.

    Control edges order the accesses to a variable. In a loop, the variable enters through an Enter.
    """
    for index, source in enumerate(member.inputs):
        switched = source.node.role is Role.SWITCH and source.node in members
        variable = variable_of(source) if source.dtype.is_ref or switched else None
        is_outside = switched or source.node not in members
        if variable is not None and is_outside:
            origin = _trace_reference(source)
            if origin is not source:
                step.graph.replace_input(member, index, origin, reason="region")


def _trace_reference(source: Output) -> Output:
    """Return the origin of a forwarded reference or handle, in the same frame."""
    while source.node.role not in (Role.VARIABLE, Role.ENTER):
        inputs = source.node.inputs
        source = next(i for i in inputs if i.dtype.is_ref or i.dtype is dtypes.resource)
    return source


def _rewire_reference(step: StepGraph, output: Output, members: Collection[Node]) -> None:
    """Rewire outside users of a member's output reference to the variable itself."""
    variable = variable_of(output)
    assert variable is not None
    step.forward(output, variable.outputs[0])
    for user in output.consumers():
        for index, source in enumerate(user.inputs):
            if source is output and user not in members:
                step.graph.replace_input(user, index, variable.outputs[0], reason="region")


def _is_used_outside(output: Output, members: set[Node], fetched: set[Output]) -> bool:
    return output in fetched or any(user not in members for user in output.consumers())


def _rewire(
    step: StepGraph, region: Region, members: set[Node], dependents: Collection[Node]
) -> None:
    """Rewire users outside the region to its outputs, and control edges to its node.

    Args:
      dependents: the members and the nodes that wait only for members.
    """
    graph, node = step.graph, region.node
    replacements = dict(zip(region.outputs, node.outputs, strict=True))
    step.replace_all(replacements, reason="region", keep=set(region.members))
    waits = _external_controls(region.members, dependents)
    users = dict.fromkeys(user for member in region.members for user in member.consumers)
    for user in users:  # each once; one may wait for all members
        if user not in members and not members.isdisjoint(user.controls):
            controls = [node if c in members else c for c in user.controls]
            graph.set_control_inputs(user, controls, reason="region")
    if waits:
        graph.set_control_inputs(node, waits, reason="region")
    step.targets = [node if target in members else target for target in step.targets]


def _claim_error(compiler: str, node: Node, reason: str) -> errors.InternalError:
    return errors.InternalError(
        f"the compiler {compiler!r} cannot claim {node.name!r} ({node.type}): {reason}",
        op=node.type,
        node=node.name,
        line=node.line or None,
    )

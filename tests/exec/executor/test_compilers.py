"""Regions: a compiler takes over chains of elementwise nodes, and all is still told of each."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from weft_testing.loading import load
from weft_testing.workspace import ROOT

import weft as wf
from weft import errors
from weft_exec.devices.device import Device
from weft_exec.executor import compilers
from weft_exec.executor.compilers import CompileOffer, RegionClaim, register_compiler
from weft_exec.executor.memory_budget import MemoryBudget, StepMemory
from weft_exec.executor.priority import sort_by_priority
from weft_exec.executor.region import Region
from weft_graph.ir.node import Node
from weft_graph.ir.registry import Registry
from weft_graph.passes import prune
from weft_graph.passes.memory import static_bytes

RECORDER = load(ROOT / "tests" / "integration" / "control_flow" / "record.py")
PACKAGE = RECORDER.load()
ROWS = {name: row for name, row in PACKAGE.TABLE.items() if not row.refused}


class Chains:
    """Claims chains of elementwise nodes, and runs them by their kernels.

    Attributes:
      regions: those that were made.
      calls: how often one of them ran.
      in_place: whether its claims say that one value is there at a time.
      keeps_all: whether all values are kept until the end even so.
    """

    def __init__(self) -> None:
        self.regions: list[Region] = []
        self.calls = 0
        self.in_place = self.keeps_all = False
        self.wrong: Callable[[tuple[Any, ...]], Any] | None = None

    def claim(self, offer: CompileOffer) -> Iterable[RegionClaim]:
        taken: set[Node] = set()
        fetched = set(offer.step.fetches)
        for node in offer.nodes:
            chain = []
            last: Node | None = node
            while last is not None and self._fits(last, node, offer) and last not in taken:
                chain.append(last)
                users = last.consumers
                alone = len(users) == 1 and last.outputs[0] not in fetched
                last = next(iter(users)) if alone else None
            if len(chain) > 1:
                taken.update(chain)
                last_output = chain[-1].outputs[0]
                yield RegionClaim(
                    chain,
                    lambda region, device: self._make(region, device, offer),
                    (lambda nbytes, out=last_output: 2 * nbytes(out)) if self.in_place else None,
                )

    def _fits(self, node: Node, first: Node, offer: CompileOffer) -> bool:
        if not node.traits.elementwise or node not in offer.nodes:
            return False
        return not node.control_inputs and offer.where(node) == offer.where(first)

    def _make(self, region: Region, device: Device, offer: CompileOffer) -> Callable[..., Any]:
        self.regions.append(region)
        functions = [
            (node, list(node.inputs), offer.place(node)[1].make(node, device))
            for node in region.members
        ]

        def run(*inputs: Any) -> Any:
            self.calls += 1
            if self.wrong is not None:
                return self.wrong(inputs)
            values = dict(zip(region.inputs, inputs, strict=True))
            for node, sources, function in functions:
                arguments = [values[source] for source in sources]
                if self.in_place and not self.keeps_all:
                    values = dict(zip(region.inputs, inputs, strict=True))
                values[node.outputs[0]] = function(*arguments)
            (output,) = region.outputs
            return values[output]

        return run


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(compilers, "_compilers", Registry("compiler"))
    with wf.Graph().as_default():
        yield


@pytest.fixture
def chains(registry: None) -> Chains:
    made = Chains()
    register_compiler("chains", made)
    return made


@pytest.mark.parametrize("shares", [False, True])
def test_functions_that_threads_share_run_where_the_step_is_driven(
    registry: None, shares: bool
) -> None:
    ran: set[int] = set()

    def product(region: Region, device: Device) -> Callable[..., Any]:
        def run(a: Any) -> Any:
            ran.add(threading.get_ident())
            return a @ a

        return run

    class Products:
        def claim(self, offer: CompileOffer) -> Iterable[RegionClaim]:
            products = [node for node in offer.nodes if node.type == "MatMul"]
            return [RegionClaim([node], product, is_multithreaded=shares) for node in products]

    register_compiler("products", Products())
    x, y = (wf.placeholder(wf.float32, [4, 4]) for _ in range(2))
    array = np.arange(16, dtype=np.float32).reshape(4, 4)
    with wf.Session(config=wf.ConfigProto(inter_op_parallelism_threads=2)) as session:
        for found in session.run([wf.matmul(x, x), wf.matmul(y, y)], {x: array, y: array}):
            np.testing.assert_array_equal(found, array @ array)
    assert (ran == {threading.get_ident()}) is shares


def chain(x: Any) -> Any:
    return wf.tanh(wf.exp(-x, name="power") * 2.0, name="end")


# ------------------------------------------------------------------------------ values


@pytest.mark.parametrize("executor", ["", "SINGLE_THREADED_EXECUTOR"])
def test_a_chain_is_one_region(chains: Chains, executor: str) -> None:
    x = wf.placeholder(wf.float32, [None])
    y = wf.reduce_sum(chain(x))
    config = wf.ConfigProto()
    config.experimental.executor_type = executor
    with wf.Session(config=config) as session:
        found = session.run(y, {x: [0.5, 1.0]})
    np.testing.assert_allclose(found, np.tanh(2 * np.exp([-0.5, -1.0])).sum(), rtol=1e-6)
    assert chains.calls == 1
    (region,) = chains.regions
    assert [node.type for node in region.members] == ["Neg", "Exp", "Mul", "Tanh"]
    assert region.node.attrs["members"][-1] == "end" == region.members[-1].name


def test_what_schedules_node_by_node_has_no_regions(chains: Chains) -> None:
    config = wf.ConfigProto()
    config.experimental.executor_type = "READY_QUEUE"
    x = wf.placeholder(wf.float32, [])
    with wf.Session(config=config) as session:
        session.run(chain(x), {x: 1.0})
    assert not chains.regions


def test_a_fetch_and_a_wait_in_the_middle(chains: Chains) -> None:
    x = wf.placeholder(wf.float32, [2])
    middle = wf.exp(-x)
    v = wf.Variable(0.0, use_resource=True)
    with wf.control_dependencies([middle]):
        counted = v.assign_add(1.0)
    end = wf.sin(wf.cos(wf.sqrt(middle)))
    with wf.Session() as session:
        session.run(v.initializer)
        got = session.run([middle, end, counted], {x: [0.0, 1.0]})
    np.testing.assert_allclose(got[0], np.exp([0.0, -1.0]), rtol=1e-6)
    np.testing.assert_allclose(got[1], np.sin(np.cos(np.exp([0.0, -0.5]))), rtol=1e-6)
    assert got[2] == 1.0 and chains.calls >= 2


@pytest.mark.parametrize("name", list(ROWS)[1::9])
def test_programs_give_the_same(name: str, chains: Chains) -> None:
    row = ROWS[name]
    order = min(row.order, 1)
    found = PACKAGE.run(wf, row, PACKAGE.build(wf, row, order), None)
    compilers._compilers = Registry("compiler")  # the fixture puts back what was there
    agree(found, PACKAGE.run(wf, row, PACKAGE.build(wf, row, order), None), name)


def agree(got: Any, wanted: Any, where: str) -> None:
    if isinstance(wanted, dict):
        for key, value in wanted.items():
            agree(got[key], value, f"{where}, {key}")
    elif isinstance(wanted, list | tuple):
        for i, value in enumerate(wanted):
            agree(got[i], value, f"{where}, {i}")
    elif np.asarray(wanted).dtype.kind in "fc":
        np.testing.assert_allclose(got, wanted, rtol=1e-6, err_msg=where)
    else:
        np.testing.assert_array_equal(got, wanted, err_msg=where)


def test_loops_have_regions_in_their_bodies(chains: Chains) -> None:
    x = wf.placeholder(wf.float32, [3])
    y = wf.while_loop(lambda i, _: i < 4, lambda i, a: (i + 1, chain(a)), [0, x])[1]
    g = wf.gradients(y, x)[0]
    with wf.Session() as session:
        found = session.run([y, g], {x: [0.1, 0.2, 0.3]})
    assert chains.calls > 4
    compilers._compilers = Registry("compiler")
    with wf.Session() as session:
        wanted = session.run([y, g], {x: [0.1, 0.2, 0.3]})
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


# ------------------------------------------------------------------ told of each member


def test_an_error_names_the_member_and_its_line(chains: Chains) -> None:
    x = wf.placeholder(wf.float32, [None])
    y = wf.placeholder(wf.float32, [None])
    z = wf.exp(wf.add(-x, y, name="both"))
    with wf.Session() as session:
        for options in (None, wf.RunOptions(timeout_in_ms=60_000)):
            with pytest.raises(errors.InvalidArgumentError) as caught:
                session.run(z, {x: [1.0, 2.0], y: [1.0, 2.0, 3.0]}, options)
            error = caught.value
            assert (error.node, error.op_type) == ("both", z.op.inputs[0].op.type)
            assert "test_compilers.py" in str(error.line)
            assert list(error.inputs) == ["float32[2]", "float32[3]"]
    assert chains.calls == 2


def test_a_function_that_fails_where_no_member_does(chains: Chains) -> None:
    x = wf.placeholder(wf.float32, [2])
    y = chain(x)

    def fail(_: Any) -> Any:
        raise ZeroDivisionError("of the compiler's own")

    chains.wrong = fail
    with (
        wf.Session() as session,
        pytest.raises(errors.InternalError, match=r"compiler 'chains' for .*power") as caught,
    ):
        session.run(y, {x: [1.0, 2.0]})
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_traces_and_costs_are_of_members(chains: Chains) -> None:
    x = wf.placeholder(wf.float32, [1000])
    y = chain(x)
    metadata = wf.RunMetadata()
    with wf.Session(config=wf.ConfigProto(graph_options=wf.GraphOptions(build_cost_model=1))) as s:
        s.run(y, {x: np.ones(1000)}, wf.RunOptions(trace_level=3), metadata)
        (device,) = s._backend._devices
        (region,) = chains.regions
        assert all(s.cost_model.is_measured(node, device.describe()) for node in region.members)
    stats = [node for dev in metadata.step_stats.dev_stats for node in dev.node_stats]
    names = {node.node_name for node in stats}
    assert {node.name for node in region.members} <= names
    assert not any("region" in name for name in names)
    assert chains.calls == 1  # and its time is theirs, one after the other
    members = {node.name for node in region.members}
    times = [
        (node.all_start_nanos, node.all_start_nanos + node.all_end_rel_nanos)
        for node in stats
        if node.node_name in members
    ]
    assert all(before[1] == after[0] for before, after in itertools.pairwise(times))
    assert all(start < end for start, end in times)
    assert {"power", "end"} <= {node.name for node in metadata.cost_graph.node}


@pytest.fixture
def five_megabytes() -> Iterator[None]:
    from weft_exec.devices.machine import list_physical_devices
    from weft_exec.devices.virtual import (
        VirtualDeviceConfiguration,
        set_virtual_device_configuration,
    )

    (cpu,) = list_physical_devices("CPU")
    set_virtual_device_configuration(cpu, [VirtualDeviceConfiguration(5)])
    yield
    set_virtual_device_configuration(cpu, None)


def long_chain(x: Any) -> Any:
    """Each of its values takes 0.8 MB: one after the other they fit anywhere, and never all."""
    for _ in range(12):
        x = wf.sin(x)
    return wf.reduce_sum(x, 1)


def test_a_function_that_holds_all_at_once_is_not_used_under_a_limit(
    chains: Chains, five_megabytes: None
) -> None:
    x = wf.placeholder(wf.float64, [1000, 100])
    y, value = long_chain(x), np.full([1000, 100], 0.5)
    with wf.Session() as session:
        first = session.run(y, {x: value})
        assert not chains.regions and not chains.calls
        np.testing.assert_allclose(session.run(y, {x: value}), first)


def test_a_function_is_used_where_it_says_that_it_fits(
    chains: Chains, five_megabytes: None
) -> None:
    chains.in_place = True
    x = wf.placeholder(wf.float64, [1000, 100])
    y = long_chain(x)
    with wf.Session() as session:
        got = session.run(y, {x: np.full([1000, 100], 0.5)})
    assert chains.calls == 1 and len(chains.regions[0].members) == 12
    wanted = 0.5
    for _ in range(12):
        wanted = np.sin(wanted)
    np.testing.assert_allclose(got, np.full(1000, 100 * wanted))


def test_what_a_function_says_wrongly_is_told_of_the_member(
    chains: Chains, five_megabytes: None
) -> None:
    """The compiler promises less memory than it needs; the out-of-memory error names a node."""
    chains.in_place, chains.keeps_all = True, True
    x = wf.placeholder(wf.float64, [1000, 100])
    y = long_chain(x)
    with wf.Session() as session, pytest.raises(errors.OpError) as caught:
        session.run(y, {x: np.full([1000, 100], 0.5)})
    assert "test_compilers.py" in str(caught.value.line)


@pytest.mark.parametrize("in_place", [False, True])
def test_bodies_of_calls_that_stay_have_the_same_limit(
    chains: Chains, five_megabytes: None, in_place: bool
) -> None:
    chains.in_place = in_place
    x = wf.placeholder(wf.float64, [None, 100])
    y = wf.Defun(wf.float64, noinline=True)(long_chain)(x)
    with wf.Session() as session:
        got = session.run(y, {x: np.full([1000, 100], 0.5)})
    assert chains.calls == in_place
    np.testing.assert_allclose(got, np.full(1000, got[0]))


@pytest.mark.parametrize(("limit", "fits"), [(1600, False), (2400, True)])
def test_members_fit_one_by_one_beside_what_they_read(
    registry: None, limit: int, fits: bool
) -> None:
    """Alone, Cos needs two values of 800 bytes; in a region, the input exists too."""
    x = wf.placeholder(wf.float64, [100])
    step = prune([x], [wf.cos(wf.sin(wf.exp(x)))], [])
    nodes = [node for node in sort_by_priority(step.live_nodes()) if node.traits.elementwise]
    memory = StepMemory(step, nodes, MemoryBudget(limit, static_bytes))
    before = memory.live.copy()
    assert memory.take_together(nodes[1:], lambda bytes_of: 800) is fits
    assert memory.live == ([800, 800, 2400] if fits else before)


@pytest.mark.parametrize("seed", range(5))
def test_what_lives_is_known_after_each_set_that_is_taken(registry: None, seed: int) -> None:
    random = np.random.default_rng(seed)
    values = [wf.placeholder(wf.float64, [10])]
    for _ in range(40):
        a, b = random.choice(len(values), 2)
        values.append(wf.sin(values[a]) + values[b])
    step = prune(values[:1], values[-2:], [])
    nodes = sort_by_priority(step.live_nodes())
    memory = StepMemory(step, nodes, MemoryBudget(1000, static_bytes))
    free, taken = [node for node in nodes if node.inputs], []
    while free:
        members = [free.pop(random.integers(len(free))) for _ in range(min(3, len(free)))]
        told = int(random.choice([0, 80, 1000]))
        taken.append(memory.take_together(members, lambda bytes_of, told=told: told))
        live = np.zeros(len(nodes), int)
        for value, (begin, end) in memory.spans.items():
            live[begin:end] += memory._sizes[value]
        assert memory.live == live.tolist()
    assert {True, False} <= set(taken)


@pytest.mark.parametrize("chained", [False, True])
def test_what_a_failed_function_holds_is_given_back_before_its_members_run(
    chains: Chains, five_megabytes: None, chained: bool
) -> None:
    chains.in_place = True
    x = wf.placeholder(wf.float64, [1000, 100])
    y = long_chain(x)

    def hold(inputs: tuple[Any, ...]) -> Any:
        (device,) = session._backend._devices
        held = device.empty((4_000_000,), np.dtype("uint8"))
        raise KeyError("held", held.nbytes)

    def hold_behind(inputs: tuple[Any, ...]) -> Any:
        try:
            hold(inputs)
        except KeyError:
            raise LookupError("held") from None

    chains.wrong = hold_behind if chained else hold
    with (
        wf.Session() as session,
        pytest.raises(errors.InternalError, match="the kernels of its nodes did not"),
    ):
        session.run(y, {x: np.full([1000, 100], 0.5)})


def test_what_the_program_handles_keeps_its_frames(chains: Chains) -> None:
    x = wf.placeholder(wf.float32, [2])
    y = chain(x)

    def fail(_: Any) -> Any:
        raise ZeroDivisionError

    def raise_own() -> None:
        mine = "still there"
        raise ValueError(len(mine))

    chains.wrong = fail
    with wf.Session() as session:
        try:
            raise_own()
        except ValueError as error:
            with pytest.raises(errors.InternalError):
                session.run(y, {x: [1.0, 2.0]})
            assert error.__traceback__ is not None and error.__traceback__.tb_next is not None
            assert error.__traceback__.tb_next.tb_frame.f_locals["mine"] == "still there"


def test_running_out_of_memory_is_no_fault_of_the_compiler(chains: Chains) -> None:
    x = wf.placeholder(wf.float32, [2])
    y = chain(x)

    def fail(_: Any) -> Any:
        raise MemoryError("too large")

    chains.wrong = fail
    with wf.Session() as session, pytest.raises(errors.ResourceExhaustedError) as caught:
        session.run(y, {x: [1.0, 2.0]})
    assert caught.value.node == "end" and "too large" in str(caught.value)
    assert "test_compilers.py" in str(caught.value.line)


def test_programs_under_a_limit_run_with_and_without_regions(
    registry: None, five_megabytes: None
) -> None:
    x = wf.placeholder(wf.float32, [1000, 100])
    y = x
    for _ in range(12):
        y = wf.tanh(wf.matmul(chain(y), wf.ones([100, 100]) * 0.01))
    g = wf.gradients(wf.reduce_sum(y), x)[0]
    feed = {x: np.random.default_rng(0).normal(size=(1000, 100))}
    with wf.Session() as session:
        plain = session.explain(g, [x]).changes
        wanted = session.run(g, feed).copy()  # what a session returns is in the device's memory
    assert any("again" in reason or "recompute" in reason for reason in plain), plain
    made = Chains()
    register_compiler("chains", made)
    with wf.Session() as session:
        assert session.explain(g, [x]).changes == plain
        np.testing.assert_allclose(session.run(g, feed), wanted, rtol=1e-5)
    assert made.calls


def test_closing_a_session_and_cancelling(chains: Chains) -> None:
    x = wf.placeholder(wf.float32, [])
    y = chain(x)
    session = wf.Session()
    session.run(y, {x: 1.0})
    session.close()
    with pytest.raises(errors.FailedPreconditionError):
        session.run(y, {x: 1.0})


# ------------------------------------------------------------------------------ claims


class Picks:
    def __init__(self, *names: str) -> None:
        self._names = names

    def claim(self, offer: CompileOffer) -> Iterable[RegionClaim]:
        by_name = {node.name: node for node in offer.step.graph.nodes}
        members = [by_name[name] for name in self._names]
        return [RegionClaim(members, lambda region, device: lambda *inputs: None)]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ((), "has a claim without nodes"),
        (("a", "c"), "form a cycle through"),
        (("a", "a"), "not one of the offered nodes"),
        (("r", "a"), "it has state"),
        (("a", "w"), r"it has no kernel to replace|it has state"),
        (("d", "a"), r"asynchronous|it has state"),
        (("a", "inside"), "another loop or branch"),
    ],
)
def test_claims_that_are_no_regions(registry: None, names: tuple[str, ...], said: str) -> None:
    x = wf.placeholder(wf.float32, [2], name="x")
    a = wf.exp(x, name="a")
    b = wf.reduce_sum(a, name="b")
    c = wf.add(a, b, name="c")
    noise = wf.random_uniform(wf.shape(x), name="r")
    w = wf.get_variable("w", [2], use_resource=True)
    queue = wf.FIFOQueue(1, [wf.float32], [[]])
    taken = queue.dequeue(name="d")
    branch = wf.cond(b > 0.0, lambda: wf.sin(a, name="inside"), lambda: a)
    given = [c, noise + 0.0, w.read_value(), taken, branch]
    kinds = {"RandomUniform": "r", "Sin": "inside"}
    made = wf.get_default_graph().nodes
    renamed = {kinds[n.type]: n.name for n in made if n.type in kinds and n.name[:2] != "w/"}
    register_compiler("picks", Picks(*[renamed.get(name, name) for name in names]))
    config = wf.ConfigProto(graph_options=no_optimizer())
    with (
        wf.Session(config=config) as session,
        pytest.raises(errors.InternalError, match=said),
    ):
        session.make_callable(given, [x])


def no_optimizer() -> Any:
    return wf.GraphOptions(optimizer_options=wf.OptimizerOptions(opt_level=-1))


def test_the_group_of_entry_points() -> None:
    assert compilers._compilers._group == "weft_exec.compilers"

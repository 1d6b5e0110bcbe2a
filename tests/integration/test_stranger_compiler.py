"""A compiler outside of weft: found by its entry point, and visible only in the time."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import pytest
import weft_stranger
from weft_stranger.compiler import COMPILER, HypotCompiler

import weft as wf
from weft import errors
from weft_exec.executor import compilers
from weft_exec.executor.compilers import CompileOffer, RegionClaim, register_compiler
from weft_exec.executor.region import Region
from weft_graph.ir.registry import Registry

Array = np.ndarray[Any, Any]
hypot = weft_stranger.hypot


@pytest.fixture(autouse=True)
def graph(monkeypatch: pytest.MonkeyPatch) -> Iterator[wf.Graph]:
    monkeypatch.setattr(compilers, "_compilers", Registry("compiler"))
    with wf.Graph().as_default() as made:
        yield made


@pytest.fixture
def compiler(graph: wf.Graph) -> HypotCompiler:
    """A new one, in the place of the one that is installed."""
    made = HypotCompiler()
    register_compiler("stranger", made)
    return made


def without_compilers(run: Callable[[], Any]) -> Any:
    """Return the results of a run with kernels."""
    compilers._compilers = Registry("compiler")  # the fixture puts back what was there
    return run()


def same_by_kernels(run: Callable[[], Any], compiler: HypotCompiler) -> Any:
    """Return the results of a run, which are equal by kernels and by the compiler."""
    found = run()
    assert compiler.calls, "no region ran"
    wanted = without_compilers(run)
    for got, value in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-6)
        assert got.dtype == value.dtype and got.shape == value.shape
    return found


def program(x: Any, y: Any) -> Any:
    return wf.sin(hypot(wf.exp(x, name="e"), y * 2.0, name="h"), name="end")


def feeds(dtype: Any = wf.float32) -> tuple[Any, Any]:
    return wf.placeholder(dtype, None, name="x"), wf.placeholder(dtype, None, name="y")


# ------------------------------------------------------------------------ how it is found


def test_its_entry_point_is_found_at_the_first_run() -> None:
    found = {entry.value for entry in entry_points(group="weft_exec.compilers")}
    assert "weft_stranger.compiler" in found, "install tests/stranger again"
    code = """
        import sys, numpy as np, weft as wf, weft_stranger
        x = wf.placeholder(wf.float32, [2])
        y = wf.sin(weft_stranger.hypot(x, x))
        assert "weft_stranger.compiler" not in sys.modules
        with wf.Session() as session:
            print(session.run(y, {x: [3.0, 4.0]}))
        compiler = sys.modules["weft_stranger.compiler"].COMPILER
        assert compiler.calls == 1 and len(compiler.members) == 2, compiler.members
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_it_takes_nothing_of_programs_without_its_op(compiler: HypotCompiler) -> None:
    x = wf.placeholder(wf.float32, [3])
    y = wf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, wf.sin(a * 2.0)), [0, x])[1]
    with wf.Session() as session:
        session.run([y, wf.exp(-x) + 1.0], {x: [1, 2, 3]})
    assert not compiler.members and not compiler.calls
    assert COMPILER is not compiler


# --------------------------------------------------------------------------------- values


@pytest.mark.parametrize("dtype", [wf.float32, wf.float64])
@pytest.mark.parametrize("shapes", [[(), ()], [(5,), ()], [(3, 1), (4,)], [(9000,), (9000,)]])
def test_values_are_those_of_the_kernels(
    compiler: HypotCompiler, dtype: Any, shapes: list[tuple[int, ...]]
) -> None:
    x, y = feeds(dtype)
    z = program(x, y)
    a, b = [np.random.default_rng(len(s)).normal(size=s).astype(dtype.numpy) for s in shapes]

    def run() -> Any:
        with wf.Session() as session:
            return [session.run(z, {x: a, y: b})]

    same_by_kernels(run, compiler)
    assert set(compiler.members) >= {"e", "h", "end"}


def test_each_shape_has_its_specialisation(compiler: HypotCompiler) -> None:
    x, y = feeds()
    z = program(x, y)
    with wf.Session() as session:
        for size in (2, 3, 2, 5000, 3):
            a = np.linspace(0, 1, size, dtype=np.float32)
            got = session.run(z, {x: a, y: a})
            np.testing.assert_allclose(got, np.sin(np.hypot(np.exp(a), 2 * a)), atol=1e-6)
    assert (compiler.calls, compiler.specialised) == (5, 3)


def test_threads_share_a_region(compiler: HypotCompiler) -> None:
    x, y = feeds()
    z = program(x, y)
    wrong: list[int] = []

    def go(session: Any, size: int) -> None:
        a = np.linspace(0, 1, size, dtype=np.float32)
        wanted = np.sin(np.hypot(np.exp(a), 2 * a))
        for _ in range(20):
            if not np.allclose(session.run(z, {x: a, y: a}), wanted, atol=1e-6):
                wrong.append(size)

    with wf.Session() as session:
        threads = [threading.Thread(target=go, args=(session, 1000 * i)) for i in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert not wrong and compiler.calls == 160


def test_members_are_fetched_and_fed(compiler: HypotCompiler) -> None:
    x, y = feeds()
    z = program(x, y)
    graph = wf.get_default_graph()
    e, h = graph.get_tensor_by_name("e:0"), graph.get_tensor_by_name("h:0")
    given = {x: np.float32([0.0, 1.0]), y: np.float32([1.0, 2.0])}

    def run() -> Any:
        with wf.Session() as session:
            inner = session.run(h, {e: np.float32([3.0, 5.0]), y: np.float32([2.0, 6.0])})
            return [*session.run([z, e, h], given), inner]

    found = same_by_kernels(run, compiler)
    np.testing.assert_allclose(found[-1], [5.0, 13.0])
    assert all(value.flags.writeable and value.base is None for value in found)


def test_a_member_that_only_runs_has_no_results(compiler: HypotCompiler) -> None:
    x, y = feeds()
    z = program(x, y)
    with wf.Session() as session:
        assert session.run(z.op, {x: np.float32([1.0]), y: np.float32([1.0])}) is None
    assert compiler.calls == 1


# ------------------------------------------------------------------------ what is around


def test_loops_branches_and_their_gradients(compiler: HypotCompiler) -> None:
    x = wf.placeholder(wf.float32, [3])

    def body(i: Any, a: Any) -> Any:
        branch = wf.cond(a[0] > 1.0, lambda: program(a, a), lambda: wf.cos(hypot(a, 0.5)))
        return i + 1, branch + program(a, x)

    y = wf.while_loop(lambda i, _: i < 4, body, [0, x])[1]
    g = wf.gradients(y, x)[0]

    def run() -> Any:
        with wf.Session() as session:
            return session.run([y, g], {x: [0.1, 0.2, 1.3]})

    same_by_kernels(run, compiler)
    assert compiler.calls >= 8


@pytest.mark.parametrize("noinline", [False, True])
def test_bodies_of_functions(compiler: HypotCompiler, noinline: bool) -> None:
    @wf.Defun(wf.float32, wf.float32, noinline=noinline)
    def called(a: Any, b: Any) -> Any:
        return program(a, b)

    x = wf.placeholder(wf.float32, [3])
    y = called(x, x) + called(x, 2.0 * x)

    def run() -> Any:
        with wf.Session() as session:
            return [session.run(y, {x: [0.1, 0.2, 0.3]})]

    same_by_kernels(run, compiler)
    assert compiler.calls == (2 if noinline else 1)  # bodies in place are one region


@pytest.mark.parametrize("use_resource", [False, True])
def test_control_inputs_and_neighbors_with_state(
    compiler: HypotCompiler, use_resource: bool
) -> None:
    x = wf.placeholder(wf.float32, [2])
    v = wf.Variable([1.0, 2.0], use_resource=use_resource)
    first = weft_stranger.tally_add("order", np.int64(1))
    with wf.control_dependencies([first]):
        z = program(x, x * v)
    with wf.control_dependencies([z]):
        after = weft_stranger.tally_get("order") + 0
        updated = v.assign(z)
    noise = wf.random_uniform([2], seed=3) * 0.0

    def run() -> Any:
        with wf.Session() as session:
            session.run(v.initializer)
            found = []
            for _ in range(3):
                found += session.run([z, after, updated, z + noise], {x: [0.5, 1.5]})
            return [*found, session.run(v)]

    found = same_by_kernels(run, compiler)
    assert [int(n) for n in found[1::4]] == [1, 2, 3]
    np.testing.assert_array_equal(found[-1], found[-3])


def test_a_greedy_compiler_gets_what_those_before_it_leave(compiler: HypotCompiler) -> None:
    seen: list[str] = []

    class Late:
        def claim(self, offer: CompileOffer) -> list[RegionClaim]:
            seen.extend([node.name for node in offer.nodes])
            return []

    register_compiler("zealous", Late())
    x, y = feeds()
    z = wf.reduce_sum(program(x, y), name="sum")
    with wf.Session() as session:
        session.run(z, {x: np.float32([1.0]), y: np.float32([1.0])})
    assert "sum" in seen and not {"e", "h", "end"} & set(seen)


# ---------------------------------------------------------------------------- told of each


def test_traces_and_costs_name_members(compiler: HypotCompiler) -> None:
    x = wf.placeholder(wf.float32, [1000])
    z = program(x, x)
    metadata = wf.RunMetadata()
    options = wf.GraphOptions(build_cost_model=1)
    with wf.Session(config=wf.ConfigProto(graph_options=options)) as session:
        session.run(z, {x: np.ones(1000)}, wf.RunOptions(trace_level=3), metadata)
        model = session.cost_model
        graph = wf.get_default_graph()
        (device,) = session._backend._devices
        nodes = [graph.get_tensor_by_name(f"{name}:0").op for name in ("e", "h", "end")]
        assert all(model.is_measured(node, device.describe()) for node in nodes)
    names = [stats.node_name for dev in metadata.step_stats.dev_stats for stats in dev.node_stats]
    assert {"e", "h", "end"} <= set(names) and not any("region" in name for name in names)
    assert {"e", "h", "end"} <= {node.name for node in metadata.cost_graph.node}


@pytest.mark.parametrize("timeout", [0, 60_000])
@pytest.mark.parametrize("where", ["main", "loop", "branch", "body"])
def test_an_error_names_the_member_and_the_line(
    compiler: HypotCompiler, where: str, timeout: int
) -> None:
    x, y = wf.placeholder(wf.float32, [None]), wf.placeholder(wf.float32, [None])

    def wrong(a: Any) -> Any:
        return wf.sin(hypot(wf.exp(a), y, name="broken"))

    if where == "main":
        z = wrong(x)
    elif where == "loop":
        z = wf.while_loop(
            lambda i, _: i < 2,
            lambda i, a: (i + 1, wrong(a)),
            [0, x],
            shape_invariants=[wf.TensorShape([]), wf.TensorShape([None])],
        )[1]
    elif where == "branch":
        z = wf.cond(wf.reduce_sum(x) > 0.0, lambda: wrong(x), lambda: x)
    else:
        inner = wf.Defun(wf.float32, wf.float32, noinline=True)(
            lambda a, b: wf.sin(hypot(wf.exp(a), b, name="broken"))
        )
        z = inner(x, y)
    options = wf.RunOptions(timeout_in_ms=timeout) if timeout else None
    with wf.Session() as session, pytest.raises(errors.InvalidArgumentError) as caught:
        session.run(z, {x: [1.0, 2.0], y: [1.0, 2.0, 3.0]}, options)
    assert str(caught.value.node).endswith("broken") and caught.value.op_type == "StrangerHypot"
    assert "in hypot" in str(caught.value.line)
    assert list(caught.value.inputs) == ["float32[2]", "float32[3]"]


# ------------------------------------------------------------------- compilers that fail


def run_with(make: Callable[[Region, Any], Any], compiler: HypotCompiler) -> Any:
    """Run a program whose region is computed by the result of `make`."""
    compiler.compile = make  # type: ignore[method-assign]  # as a faulty compiler would
    x = wf.placeholder(wf.float32, [2])
    z = program(x, x)
    with wf.Session() as session:
        return session.run([z, wf.get_default_graph().get_tensor_by_name("h:0")], {x: [0.0, 1.0]})


def always(result: Any) -> Callable[[Region, Any], Any]:
    return lambda region, device: lambda *inputs: result


def fails(error: Exception) -> Callable[[Region, Any], Any]:
    def run(*inputs: Any) -> Any:
        raise error

    return lambda region, device: run


def refuses(region: Region, device: Any) -> Any:
    raise NotImplementedError("no such instruction")


RIGHT = np.float32([1.0, 2.0])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (refuses, r"'stranger' for .*h, end could not be compiled: NotImpl.*no such instr"),
        (fails(KeyError("of its own")), r"'stranger' for .* failed on float32\[2\].*own"),
        (fails(errors.UnavailableError("gone")), "gone"),
        (always(None), "a tuple of 2 results was required, got NoneType"),
        (always(RIGHT), r"a tuple of 2 results was required, got float32\[2\]"),
        (always((RIGHT,)), "a tuple of 2 results was required, got tuple of 1"),
        (always((RIGHT, RIGHT, RIGHT)), "a tuple of 2 results was required, got tuple of 3"),
        (always((RIGHT, np.float64([1, 2]))), r"float32 was required, got float64\[2\]"),
        (always((RIGHT, 1.0)), "float32 was required, got float"),
        (always((RIGHT[:1], RIGHT)), r"'h:0' shape \[2\] was required, got float32\[1\]"),
        (always((RIGHT, RIGHT.reshape(2, 1))), r"shape \[2\] was required, got float32\[2,1\]"),
    ],
)
def test_what_a_compiler_does_wrong_is_told(
    compiler: HypotCompiler, make: Callable[[Region, Any], Any], said: str
) -> None:
    with pytest.raises(errors.InternalError, match=said) as caught:
        run_with(make, compiler)
    line = {"h": "in hypot", "end": "test_stranger_compiler.py"}[str(caught.value.node)]
    assert line in str(caught.value.line)


def test_a_wrong_result_names_its_member(compiler: HypotCompiler) -> None:
    with pytest.raises(errors.InternalError, match="'h:0'") as caught:
        run_with(always((RIGHT.astype(np.int32), RIGHT)), compiler)
    assert (caught.value.node, caught.value.op_type) == ("h", "StrangerHypot")


@pytest.mark.parametrize(
    "error", [MemoryError("of the function"), errors.ResourceExhaustedError("of the function")]
)
def test_running_out_of_memory_is_told_as_that(compiler: HypotCompiler, error: Exception) -> None:
    with pytest.raises(errors.ResourceExhaustedError, match="of the function") as caught:
        run_with(fails(error), compiler)
    assert caught.value.node == "end"
    assert "test_stranger_compiler.py" in str(caught.value.line)


def test_a_compiler_may_decline_late(compiler: HypotCompiler) -> None:
    z, h = run_with(lambda region, device: None, compiler)
    np.testing.assert_allclose(h, np.hypot(np.exp([0.0, 1.0]), [0.0, 2.0]), rtol=1e-6)
    np.testing.assert_allclose(z, np.sin(h), rtol=1e-6)


def test_a_compiler_that_fails_to_choose(compiler: HypotCompiler) -> None:
    class Broken:
        def claim(self, offer: CompileOffer) -> list[RegionClaim]:
            raise LookupError("lost")

    register_compiler("broken", Broken())
    x = wf.placeholder(wf.float32, [2])
    with wf.Session() as session, pytest.raises(errors.InternalError, match=r"'broken'.*lost"):
        session.run(wf.exp(x), {x: [1.0, 2.0]})

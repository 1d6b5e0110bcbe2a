"""Nodes that are compiled: which, when, and that results stay."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.both_ways import by_both
from weft_testing.compiled_calls import around_calls
from weft_testing.waiting import least_growth, wait_until

import weft as wf
from weft import errors
from weft_compiler.generator import Compiled, RegionCompiler
from weft_compiler.lower import region
from weft_compiler.lower.values import compute_value
from weft_compiler.native import cache
from weft_exec.executor import compilers, executable
from weft_exec.executor.compilers import RegionClaim
from weft_exec.executor.native import clustering, region_profile, regions, specialization_cache
from weft_exec.executor.native.background_compilation import Compilation
from weft_exec.executor.native.function import CompiledRegion
from weft_exec.executor.native.tiering import TierUpPolicy
from weft_graph.ir.code_generators import RegionRequest, generators
from weft_graph.ir.op_def import traits_of
from weft_graph.ir.registry import Registry


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[list[str], Any]]]:
    """The ops and shapes of compiled regions, in the order of compilation."""
    found: list[tuple[list[str], Any]] = []
    generate = RegionCompiler.generate

    def note(self: Any, request: RegionRequest, *like: Any) -> Any:
        made = generate(self, request, *like)
        found.append(([node.type for node in request.members], request.shapes))
        return made

    monkeypatch.setattr(RegionCompiler, "generate", note)
    monkeypatch.setattr("weft_compiler.generator._caches_code", lambda: False)  # nothing was kept
    monkeypatch.setenv("WEFT_JIT", "now")
    with wf.Graph().as_default():
        yield found


def test_nodes_become_one_call_for_each_choice_of_shapes(generated: list[Any]) -> None:
    x = wf.placeholder(wf.float32, [None])
    y = wf.reduce_sum(wf.tanh(x * 2.0 + 1.0))
    with wf.Session() as session:
        for size in (3, 5, 3, 0):
            array = np.linspace(0, 1, size, dtype=np.float32)
            want = np.tanh(array * 2 + 1).sum()
            np.testing.assert_allclose(session.run(y, {x: array}), want, rtol=1e-5)
        strided = np.linspace(0, 1, 6, dtype=np.float32)[::2]
        want = np.tanh(strided * 2 + 1).sum()
        np.testing.assert_allclose(session.run(y, {x: strided}), want, rtol=1e-5)
    assert [ops for ops, _ in generated] == [["Mul", "AddV2", "Tanh", "Sum"]] * 3


def test_results_are_fetched_without_copies(
    generated: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[Any] = []
    monkeypatch.setattr(
        executable, "copy_array", lambda value: copied.append(value) or value.copy()
    )
    x = wf.placeholder(wf.float32, [100, 300])
    with wf.Session() as session:
        results = [session.run(wf.tanh(x) + 1.0, {x: np.ones([100, 300])}) for _ in range(2)]
    assert generated and not copied
    assert results[0].flags.writeable and not np.shares_memory(*results)


@pytest.mark.parametrize(("size", "threads"), [(1000, 1), (1 << 21, 2)])
def test_short_functions_have_one_thread(
    size: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []

    def note(function: Compiled, call: Callable[[], Any]) -> Any:
        ran.append(function.threads)
        return call()

    around_calls(monkeypatch, note)
    monkeypatch.setenv("WEFT_JIT", "now")
    config = wf.ConfigProto(intra_op_parallelism_threads=2)
    with wf.Graph().as_default(), wf.Session(config=config) as session:
        x = wf.placeholder(wf.float32, [size])
        session.run(wf.tanh(x * 2.0), {x: np.ones(size, np.float32)})
    assert ran == [threads]


def test_a_shape_that_was_said_and_does_not_hold_is_no_failure(generated: list[Any]) -> None:
    x = wf.placeholder(wf.float32)
    y = x * 2.0
    y.set_shape([None, None])
    z = wf.reduce_sum(y, -1) + 1.0
    value = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    with wf.Session() as session:
        np.testing.assert_array_equal(session.run(z, {x: value}), (2 * value).sum(-1) + 1)
    assert generated


def test_a_region_is_compiled_for_so_many_shapes_only(generated: list[Any]) -> None:
    x = wf.placeholder(wf.float32, [None, None])
    y = wf.exp(-x)
    shapes = [(1 + i, 1 + (7 * i) % 23) for i in range(1, 40)]  # few of them share code
    with wf.Session() as session:
        for shape in shapes:
            assert session.run(y, {x: np.zeros(shape, np.float32)}).sum() == np.prod(shape)
    assert len(generated) < len(shapes)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty directory for code."""
    place = tmp_path / "objects"
    monkeypatch.setenv("WEFT_CACHE", str(place))
    cache.directory.cache_clear()
    with wf.Graph().as_default():
        yield place
    cache.directory.cache_clear()


def _tiering(monkeypatch: pytest.MonkeyPatch, overhead: float | None = None) -> Compilation:
    """Compile in the background, with a separate budget.

    Args:
      overhead: of a policy without an idle core, where kernels are all that takes time; None for a
        policy with an idle core.
    """
    monkeypatch.setenv("WEFT_JIT", "on")
    policy = TierUpPolicy(overhead or 0.0)
    made = Compilation(policy, lambda: overhead is None, lambda: made.seen)
    monkeypatch.setattr(specialization_cache, "compilation", lambda: made)
    return made


def _until(run: Callable[[], Any], condition: Callable[[], Any]) -> None:
    """Run steps until a condition holds."""

    def holds() -> Any:
        run()
        return condition()

    wait_until(holds)


def test_what_repays_it_is_compiled_in_the_background(
    generated: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _tiering(monkeypatch)
    x = wf.placeholder(wf.float32, [None])
    y = wf.reduce_sum(wf.exp(-x) + 1.0)
    large, small = np.zeros(100_000, np.float32), np.zeros(10, np.float32)
    with wf.Session() as session:
        assert session.run(y, {x: large}) == 200_000
        for _ in range(20):  # microseconds: less than compiling takes
            assert session.run(y, {x: small}) == 20
        assert not generated
        _until(lambda: session.run(y, {x: large}), lambda: generated)
        assert session.run(y, {x: large}) == 200_000
    assert [shapes[0] for _, shapes in generated] == [(100_000,)]


def test_compiling_takes_no_more_than_its_overhead(
    generated: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    account = _tiering(monkeypatch, overhead=0.25)
    x = wf.placeholder(wf.float32, [400_000])
    y = wf.reduce_sum(wf.exp(-x) + 1.0)
    with wf.Session() as session:
        feeds = {x: np.zeros(400_000, np.float32)}
        _until(lambda: session.run(y, feeds), lambda: account.seen > 0.06)
        assert not generated  # a quarter of it is less than what compiling is known to take
        _until(lambda: session.run(y, feeds), lambda: generated)
    assert account.seen > 0.08


def test_code_on_the_disk_is_found_without_compiling(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compilation costs milliseconds, which even an exhausted budget allows."""
    x = wf.placeholder(wf.float32, [None, 1000])
    c = np.linspace(0, 1, 1000, dtype=np.float32)
    y = wf.reduce_sum(wf.exp(-x) + c, 1)
    feeds = {x: np.zeros((100, 1000), np.float32)}
    monkeypatch.setenv("WEFT_JIT", "now")
    with wf.Session() as session:
        want = session.run(y, feeds)
    assert len(list(kept.glob("*.nodes"))) == 1
    found: list[Any] = []
    find = RegionCompiler.find

    def note(self: Any, *what: Any) -> Any:
        found.append(find(self, *what))
        return found[-1]

    _tiering(monkeypatch, overhead=0.0)
    monkeypatch.setattr(RegionCompiler, "find", note)
    monkeypatch.setattr(RegionCompiler, "generate", None)
    calls: list[int] = []
    around_calls(monkeypatch, lambda function, call: calls.append(1) or call())
    with wf.Session() as session:
        _until(lambda: session.run(y, feeds), lambda: calls)
        assert (session.run(y, feeds) == want).all()
    assert len(found) == 1 and found[0] is not None


def test_what_is_slower_than_its_kernels_is_given_up(
    generated: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _tiering(monkeypatch)

    def slow(function: Compiled, call: Callable[[], Any]) -> Any:
        calls.append(1)
        return [call() for _ in range(200)][-1]

    calls: list[int] = []
    around_calls(monkeypatch, slow)
    x = wf.placeholder(wf.float32, [100_000])
    y = wf.reduce_sum(x * 2.0 + 1.0)
    feeds = {x: np.zeros(100_000, np.float32)}
    with wf.Session() as session:
        _until(lambda: session.run(y, feeds), lambda: len(calls) == 20)
        for _ in range(5):
            session.run(y, feeds)
    assert len(calls) == 20 and len(generated) == 1


@pytest.mark.long
def test_memory_does_not_grow_over_100_000_compiled_steps(generated: list[Any]) -> None:
    x = wf.placeholder(wf.float32, [None, 16])
    w = wf.Variable(np.ones((16, 16), np.float32))
    loss = wf.reduce_sum(wf.tanh(wf.matmul(x, w)) ** 2)
    step = wf.train.AdamOptimizer(1e-3).minimize(loss)
    feeds = [{x: np.ones((rows, 16), np.float32)} for rows in (4, 8)]
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())

        def steps() -> None:
            for at in range(20_000):
                session.run([step, loss], feeds[at % 2])

        assert least_growth(steps) < 20_000  # a byte a step
    assert generated


@pytest.mark.long
def test_memory_does_not_grow_over_1_000_compilations(
    generated: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "directory", lambda: None)
    count = itertools.count(1)

    def compile_some() -> None:
        for at in itertools.islice(count, 200):
            with wf.Graph().as_default(), wf.Session() as session:
                x = wf.placeholder(wf.float32, [None])
                y = wf.reduce_sum(wf.exp(x) * float(at) + 1.0)
                assert session.run(y, {x: np.zeros(2, np.float32)}) == 2 * at + 2

    # A program's code takes some pages while it is loaded.
    assert least_growth(compile_some) < 200 * 20_000
    assert len(generated) == 1000


def test_shapes_that_are_used_stay_compiled(
    generated: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is used all the time is never compiled again, however many others there are."""
    _tiering(monkeypatch)
    monkeypatch.setattr(region_profile, "_REGION_SECONDS", 0.0)
    monkeypatch.setattr(specialization_cache, "MAX_SPECIALIZATIONS", 3)
    monkeypatch.setattr("weft_compiler.sharing.generalize", lambda *_: None)  # no code is shared
    monkeypatch.setattr("weft_compiler.sharing._TOGETHER", 0)
    x = wf.placeholder(wf.float32, [None])
    y = wf.reduce_sum(wf.exp(-x) + 1.0)

    def run(session: wf.Session, *sizes: int) -> None:
        for size in sizes:
            session.run(y, {x: np.zeros(size, np.float32)})

    def enough(count: int) -> bool:
        return len(generated) == count

    with wf.Session() as session:
        for rows in range(8):
            _until(partial(run, session, 99_999, 100_000 + rows), partial(enough, rows + 2))
    assert len(generated) == 9


def test_loops_are_not_closed_over_by_what_is_before_and_after_them(
    generated: list[Any],
) -> None:
    """The body reads earlier values; one region with the nodes after the loop would deadlock."""
    x = wf.placeholder(wf.float64, [])
    before = wf.exp(x) * 0.5 + 1.0
    _, total = wf.while_loop(
        lambda i, _: i < 3,
        lambda i, t: (i + 1, t * before + 1.0),
        (0, wf.constant(0.0, wf.float64)),
    )
    after = wf.tanh(total * 0.1 + before) - before
    (gradient,) = wf.gradients(after, x)
    feed = {x: 0.25}
    with wf.Session() as session:
        compiled = session.run([after, gradient], feed)
    assert generated
    with pytest.MonkeyPatch.context() as patch, wf.Session() as session:
        patch.setenv("WEFT_JIT", "off")
        np.testing.assert_allclose(compiled, session.run([after, gradient], feed), rtol=1e-12)


def test_what_kernels_refuse_is_refused_with_its_node(generated: list[Any]) -> None:
    x = wf.placeholder(wf.int32, [20])
    y = wf.floordiv(x + 1, x * 2, name="quotient") - 1
    with wf.Session() as session:
        assert session.run(y, {x: [1, -1] * 10}).tolist() == [0, -1] * 10
        with pytest.raises(errors.InvalidArgumentError, match="by zero\n\n  node 'quotient'"):
            session.run(y, {x: [1, 0] * 10})
    assert generated == [(["AddV2", "Mul", "FloorDiv", "Sub"], ((20,), (), ()))]


def test_axes_that_are_fed_decide_what_is_compiled(generated: list[Any]) -> None:
    x, axes = wf.placeholder(wf.float32, [2, 3]), wf.placeholder(wf.int32, [None])
    y = wf.reduce_sum(wf.exp(x), axes) * 2.0
    array = np.zeros((2, 3), np.float32)
    with wf.Session() as session:
        for value, want in (([0], [4, 4, 4]), ([1], [6, 6]), ([0, 1], 12), ([0], [4, 4, 4])):
            assert session.run(y, {x: array, axes: value}).tolist() == want
        with pytest.raises(errors.InvalidArgumentError, match="Sum"):
            session.run(y, {x: array, axes: [2]})
    assert [ops for ops, _ in generated] == [["Exp", "Sum", "Mul"]] * 3


def test_sizes_that_follow_from_shapes_are_known_where_shapes_are(generated: list[Any]) -> None:
    """Axes of gradients too: none is computed in a step, and changing sizes are all right."""
    x, b = wf.placeholder(wf.float64, [None, None]), wf.placeholder(wf.float64, [None])
    y = wf.reshape(wf.tanh(x * b), wf.shape(x)[::-1]) * 2.0
    fetches = [y, *wf.gradients(y, [x, b])]
    with wf.Session() as session:
        for rows, columns in ((2, 3), (5, 1), (2, 3), (0, 4), (3, 0), (1, 1)):
            array = np.linspace(-1, 1, rows * columns).reshape(rows, columns)
            feeds = {x: array, b: np.linspace(1, 2, columns)}
            tanh = np.tanh(array * feeds[b])
            found, dx, db = session.run(fetches, feeds)
            np.testing.assert_allclose(found, 2 * tanh.reshape(columns, rows), rtol=1e-12)
            np.testing.assert_allclose(dx, 2 * (1 - tanh**2) * feeds[b], rtol=1e-12)
            np.testing.assert_allclose(db, (2 * (1 - tanh**2) * array).sum(0), atol=1e-12)
        report = session.explain(fetches, [x, b])
    assert len(report.compiled) == 1 and not report.left
    assert {"Shape", "StridedSlice", "BroadcastGradientArgs"} <= set(generated[0][0])
    assert len(generated) == 5


def products() -> tuple[Any, list[Any], dict[Any, Any]]:
    """A layer and its gradients, and attention's products of broadcast batches."""
    random = np.random.default_rng(2)
    x = wf.placeholder(wf.float32, [5, 4])
    w = wf.get_variable("w", initializer=random.normal(size=(4, 6)).astype(np.float32))
    u = wf.constant(random.normal(size=(2, 1, 3, 6)), wf.float64)
    layer = wf.nn.relu(wf.matmul(x, w) + 1.0)
    scores = wf.matmul(u, wf.constant(random.normal(size=(3, 7, 6))), transpose_b=True)
    fetches = [layer, *wf.gradients(layer, [x, w]), wf.identity(scores * 1.0)]
    return fetches, [x], {x: random.normal(size=(5, 4))}


def test_products_are_compiled_with_what_follows_and_have_the_bits_of_kernels(
    generated: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fetches, inputs, feeds = products()
    found = []
    for said in ("now", "off"):
        monkeypatch.setenv("WEFT_JIT", said)
        with wf.Session() as session:
            session.run(wf.global_variables_initializer())
            found.append(session.run(fetches, feeds))
            left = session.explain(fetches, inputs).left
            assert not [op for op, _ in left if "MatMul" in op]
    assert sum(ops.count("MatMul") for ops, _ in generated) == 3
    for compiled, by_kernels in zip(*found, strict=True):
        np.testing.assert_array_equal(compiled, by_kernels)


def test_products_stay_with_kernels_where_no_blas_can_be_called(
    generated: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft_compiler.lower.rules.matmul.addresses", dict)
    fetches, inputs, feeds = products()
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        session.run(fetches, feeds)
        left = session.explain(fetches, inputs).left
    assert left["MatMul", "NumPy brings no BLAS that compiled code can call"] == 3


def test_sizes_of_one_region_are_known_to_others_and_to_kernels(generated: list[Any]) -> None:
    x = wf.placeholder(wf.float32, [None, None])
    y = wf.exp(x * 2.0)
    size = wf.shape(y) * 2
    with wf.xla.experimental.jit_scope(compile_ops=False):
        largest = wf.nn.top_k(y, 3).values  # by its kernel
    z = wf.fill(size, 1.0) * wf.reduce_sum(wf.tanh(largest - 1.0) + 1.0)
    with wf.Session() as session:
        for rows in (2, 4, 2):
            found, sizes = session.run([z, size], {x: np.zeros((rows, 3))})
            assert sizes.tolist() == [rows * 2, 6] and sizes.dtype == np.int32
            np.testing.assert_array_equal(found, np.full(sizes, rows * 3, np.float32))
    assert len(generated) == 4 and "Shape" in generated[0][0]


def test_numbers_that_follow_from_no_shape_decide_nothing(generated: list[Any]) -> None:
    """Small integers may be counters, which have another value in each step."""
    x, n = wf.placeholder(wf.float32, [None]), wf.placeholder(wf.int32, [2])
    y = wf.exp(x) * wf.cast(wf.reduce_sum(n * 2 + wf.size(x)), wf.float32)
    with wf.Session() as session:
        for count in range(4):
            assert session.run(y, {x: [0.0], n: [count, 0]}) == [2 * count + 2]
    assert len(generated) == 1


def test_shapes_that_do_not_fit_are_refused_with_their_node(generated: list[Any]) -> None:
    x, y = wf.placeholder(wf.float32), wf.placeholder(wf.float32)
    z = wf.exp(wf.add(x, y, name="sum")) * 2.0
    with wf.Session() as session:
        with pytest.raises(errors.InvalidArgumentError, match="sum"):
            session.run(z, {x: np.zeros(2), y: np.zeros(3)})
        assert session.run(z, {x: np.zeros(3), y: np.zeros(1)}).tolist() == [2.0] * 3


def test_a_setting_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_JIT", "always")
    with wf.Session() as session, pytest.raises(errors.OpError, match="WEFT_JIT must be on, now"):
        session.run(wf.exp(wf.constant([1.0]) + wf.placeholder_with_default(1.0, [])))


def test_indices_out_of_range_are_refused_with_their_node(generated: list[Any]) -> None:
    x, rows = wf.placeholder(wf.float32, [4, 3]), wf.placeholder(wf.int32, [None])
    y = wf.exp(wf.gather(x, rows, name="rows")) + 1.0
    array = np.zeros((4, 3), np.float32)
    with wf.Session() as session:
        assert session.run(y, {x: array, rows: [3, 0]}).tolist() == [[2.0] * 3] * 2
        for wrong in (4, -1):
            with pytest.raises(errors.InvalidArgumentError, match="rows"):
                session.run(y, {x: array, rows: [0, wrong]})
    assert [ops for ops, _ in generated] == [["GatherV2", "Exp", "AddV2"]]


def test_shapes_that_never_come_again_are_not_kept(
    generated: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_JIT", "on")
    made: list[CompiledRegion] = []
    begin = CompiledRegion.__init__

    def note(self: CompiledRegion, *args: Any) -> None:
        begin(self, *args)
        made.append(self)

    monkeypatch.setattr(CompiledRegion, "__init__", note)
    x = wf.placeholder(wf.float32, [None])
    y = wf.exp(-x)
    with wf.Session() as session:
        for size in range(600):
            assert session.run(y, {x: np.zeros(size, np.float32)}).size == size
        (region,) = made
        num_waiting = len(region.cache.waiting())
    assert 0 < num_waiting <= 256
    assert region.cache.num_compiled() == (0, 0) and not generated


def test_without_a_compiler_it_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_JIT", "on")
    monkeypatch.setattr(generators, "keys", list)
    regions._log_missing_compiler.cache_clear()
    x = wf.placeholder(wf.float32, [])
    with wf.Session() as session:
        with pytest.warns(RuntimeWarning, match="pip install weftml-compiler"):
            assert session.run(wf.exp(x) + 1.0, {x: 0.0}) == 2.0
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert session.run(wf.exp(x) + 2.0, {x: 0.0}) == 3.0


def test_without_a_compiler_nothing_is_said_where_nobody_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("WEFT_JIT", raising=False)
    monkeypatch.setattr(generators, "keys", list)
    regions._log_missing_compiler.cache_clear()
    x = wf.placeholder(wf.float32, [])
    with wf.Session() as session, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert session.run(wf.exp(x) + 1.0, {x: 0.0}) == 2.0
    with wf.xla.experimental.jit_scope():
        y = wf.exp(x) + 3.0
    with wf.Session() as session, pytest.warns(RuntimeWarning, match="weftml-compiler"):
        assert session.run(y, {x: 0.0}) == 4.0


def _ops(generated: list[Any]) -> list[list[str]]:
    return [ops for ops, _ in generated]


def _feed(x: Any) -> dict[Any, Any]:
    return {x: np.linspace(-1, 1, 6, dtype=np.float32)}


def test_scopes_say_which_nodes_are_compiled(
    generated: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WEFT_JIT")
    x = wf.placeholder(wf.float32, [6])
    with wf.xla.experimental.jit_scope():
        y = wf.tanh(x) * 2.0
        with wf.xla.experimental.jit_scope(compile_ops=False):
            z = wf.exp(y) + 1.0
        y = wf.sin(z) * 3.0
    total = wf.cos(y) * 0.5
    config = wf.ConfigProto()
    config.experimental.deterministic = True  # compiled when they are first met
    with wf.Session(config=config) as session:
        value = session.run(total, _feed(x))
    assert _ops(generated) == [["Tanh", "Mul"], ["Sin", "Mul"]]
    monkeypatch.setenv("WEFT_JIT", "off")
    with wf.Session(config=config) as session:
        np.testing.assert_allclose(value, session.run(total, _feed(x)), rtol=1e-5)
    assert len(generated) == 2


def test_a_scope_may_ask_of_each_node(generated: list[Any]) -> None:
    x = wf.placeholder(wf.float32, [6])
    jit = wf.contrib.compiler.jit.experimental_jit_scope
    with jit(compile_ops=lambda node: node.op != "Exp"):
        y = wf.exp(wf.tanh(x) * 2.0)
    with wf.Session() as session:
        session.run(y, _feed(x))
    assert _ops(generated) == [["Tanh", "Mul"]]
    assert not y.op.get_attr("_XlaCompile") and y.op.inputs[0].op.get_attr("_XlaCompile")
    with pytest.raises(TypeError, match="compile_ops must be a bool"), jit("yes"):
        pass


def test_gradients_are_compiled_as_what_they_are_of(generated: list[Any]) -> None:
    x = wf.placeholder(wf.float32, [6])
    with wf.xla.experimental.jit_scope(compile_ops=False):
        y = wf.tanh(x) * 2.0
    (gradient,) = wf.gradients(y * y, x)
    gradient_of_y = wf.convert_to_tensor(wf.gradients(y, x)[0])
    assert gradient_of_y.op.get_attr("_XlaCompile") is False
    with wf.Session() as session:
        session.run(gradient, _feed(x))
    assert not any({"TanhGrad", "Tanh"} & set(ops) for ops in _ops(generated))


@pytest.mark.parametrize("unsaid", ["", None])
def test_where_nobody_says_anything_what_repays_it_is_compiled(
    unsaid: str | None, generated: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _tiering(monkeypatch)
    if unsaid is None:
        monkeypatch.delenv("WEFT_JIT")
    else:
        monkeypatch.setenv("WEFT_JIT", unsaid)
    x = wf.placeholder(wf.float32, [100_000])
    y = wf.reduce_sum(wf.exp(-x) + 1.0)
    with wf.xla.experimental.jit_scope(compile_ops=False):
        z = wf.reduce_sum(wf.tanh(x) - 1.0)
    feeds = {x: np.zeros(100_000, np.float32)}
    with wf.Session() as session:
        _until(lambda: session.run([y, z], feeds), lambda: generated)
        assert session.run([y, z], feeds) == [200_000, -100_000]
    assert _ops(generated) == [["Neg", "Exp", "AddV2", "Sum"]]


def test_where_nobody_says_anything_a_deterministic_session_compiles_nothing(
    generated: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WEFT_JIT")
    x = wf.placeholder(wf.float32, [6])
    config = wf.ConfigProto()
    config.experimental.deterministic = True
    with wf.Session(config=config) as session:
        session.run(wf.tanh(x) * 2.0, _feed(x))
    assert not generated
    monkeypatch.setenv("WEFT_JIT", "on")
    with wf.Session(config=config) as session:
        session.run(wf.tanh(x) * 2.0, _feed(x))
    assert _ops(generated) == [["Tanh", "Mul"]]


@pytest.mark.parametrize(
    ("level", "cpu", "said", "compiles"),
    [
        (0, False, "", False),
        (1, False, "", False),  # for GPUs only
        (1, True, "", True),
        (2, True, "", True),
        (2, True, "off", False),
        (0, True, "now", True),
        (-1, True, "now", False),
        (0, True, "asked", False),
        (1, True, "asked", True),
    ],
)
def test_levels_of_sessions_mean_what_they_say(
    level: int,
    cpu: bool,
    said: str,
    compiles: bool,
    generated: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WEFT_JIT", said)
    config = wf.ConfigProto()
    config.experimental.deterministic = True
    config.graph_options.optimizer_options.global_jit_level = level
    config.graph_options.optimizer_options.cpu_global_jit = cpu
    x = wf.placeholder(wf.float32, [6])
    with wf.Session(config=config) as session:
        session.run(wf.tanh(x) * 2.0, _feed(x))
    assert bool(generated) is compiles


def test_the_process_says_it_for_sessions_that_do_not(
    generated: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_JIT", "")
    x = wf.placeholder(wf.float32, [6])
    y = wf.tanh(x) * 2.0
    config = wf.ConfigProto()
    config.experimental.deterministic = True
    wf.config.optimizer.set_jit("autoclustering")
    try:
        with wf.Session(config=config) as session:
            session.run(y, _feed(x))
        assert _ops(generated) == [["Tanh", "Mul"]]
        monkeypatch.setenv("WEFT_JIT", "now")
        wf.config.optimizer.set_jit(False)
        with wf.Session(config=config) as session:
            session.run(y, _feed(x))
        assert len(generated) == 1
        wf.config.optimizer.set_jit(None)
        with wf.Session(config=config) as session:
            session.run(y, _feed(x))
        assert len(generated) == 2
    finally:
        wf.config.optimizer.set_jit(None)
    with pytest.raises(errors.InvalidArgumentError, match="autoclustering"):
        wf.config.optimizer.set_jit("always")


def test_jit_check_names_the_first_node_that_differs(
    generated: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_JIT", "")
    config = wf.ConfigProto()
    config.experimental.jit_check = True
    x = wf.placeholder(wf.float32, [6])
    y = wf.exp(wf.tanh(wf.sin(x, name="first"), name="second") * 2.0, name="last")
    with wf.Session(config=config) as session:
        right = session.run(y, _feed(x))
    assert _ops(generated) == [["Sin", "Tanh", "Mul", "Exp"]]
    elementwise = region._elementwise

    def wrong(op: Any) -> Any:
        if op.node.type != "Tanh":
            return elementwise(op)
        return compute_value(op.name, op.dtype(), op.shape(), lambda *at: op.inputs[0].at(*at))

    monkeypatch.setattr(region, "_elementwise", wrong)
    with (
        wf.Session(config=config) as session,
        pytest.raises(errors.InternalError, match=r"(?s)jit_check: Tanh returns .*node 'second'"),
    ):
        session.run(y, _feed(x))
    assert right.shape == (6,)


def test_jit_check_knows_sums_that_cancel_and_what_is_computed_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WEFT_JIT", "now")
    config = wf.ConfigProto()
    config.experimental.jit_check = True
    x = wf.placeholder(wf.float64, [3, 4])
    (slope,) = wf.gradients(wf.reduce_sum(wf.nn.softmax(wf.tanh(x))), [x])
    with wf.Session(config=config) as session:
        for seed in range(20):
            value = np.random.default_rng(seed).normal(size=(3, 4))
            assert np.abs(session.run(slope, {x: value})).max() < 1e-15


def test_a_cross_entropy_with_infinities_is_as_by_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A class that is impossible and has no weight makes it NaN, as in TensorFlow."""
    logits = np.array([[-np.inf, 0, 1], [-np.inf, 0, 1], [np.inf, 0, 0], [1, 2, 3]], np.float32)
    labels = np.array([[0, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], np.float32)

    def build(x: Any, y: Any) -> list[Any]:
        loss = wf.nn.softmax_cross_entropy_with_logits(labels=y, logits=x)
        return [loss, *wf.gradients(loss, x)]

    kernels, compiled = by_both(monkeypatch, build, logits, labels)
    for got, want in zip(compiled, kernels, strict=True):
        np.testing.assert_allclose(got, want, 1e-6)
    assert np.isnan(kernels[0]).tolist() == [True, False, True, False]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_jit_check_measures_sums_by_their_terms(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the terms of rows cancel, another order of addition changes the rounding."""
    monkeypatch.setenv("WEFT_JIT", "now")
    config = wf.ConfigProto()
    config.experimental.jit_check = True
    x = wf.placeholder(dtype, [4, 4000])
    each = wf.tanh(x)
    ones = wf.ones([4000, 1], dtype)
    sums = [wf.reduce_sum(each, 1), wf.reduce_mean(each, 1), wf.matmul(each, ones)]
    rng = np.random.default_rng(0)
    half = rng.normal(size=(4, 2000))
    value = rng.permuted(np.concatenate([half, -half], 1), axis=1)
    with wf.Session(config=config) as session:
        for one in session.run(sums, {x: value}):
            assert np.abs(one).max() < 4000 * np.finfo(dtype).eps


def test_jit_check_names_what_is_wrong_where_terms_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_JIT", "now")
    config = wf.ConfigProto()
    config.experimental.jit_check = True
    x = wf.placeholder(wf.float64, [6])
    y = wf.tanh(wf.subtract(x * 1.0, x, name="difference"))
    elementwise = region._elementwise

    def wrong(op: Any) -> Any:
        if op.node.type != "Sub":
            return elementwise(op)
        return compute_value(op.name, op.dtype(), op.shape(), lambda *at: op.inputs[0].at(*at))

    monkeypatch.setattr(region, "_elementwise", wrong)
    with (
        wf.Session(config=config) as session,
        pytest.raises(errors.InternalError, match=r"(?s)jit_check: Sub returns .*'difference'"),
    ):
        session.run(y, {x: np.arange(1.0, 7.0)})


@pytest.mark.parametrize("op", ["Add", "AddN", "AddV2", "BiasAdd", "MatMul", "Mean", "Sub", "Sum"])
def test_what_adds_up_terms_says_so(op: str) -> None:
    assert traits_of(op).adds


def _sine(region: Any, device: Any) -> Any:
    return np.sin


class _TestSines:
    """A compiler that claims each Sin separately."""

    def claim(self, offer: Any) -> Any:
        return [RegionClaim([node], _sine) for node in offer.nodes if node.type == "Sin"]


@pytest.mark.parametrize("name", ["another", "stranger"])
def test_what_others_compile_is_left_to_them_and_not_closed_over(
    name: str, generated: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our compiler takes the remaining nodes, independent of the names of the others."""
    made: Registry[Any] = Registry("compiler")
    made.register("native", regions.NativeRegions())
    made.register(name, _TestSines())
    monkeypatch.setattr(compilers, "_compilers", made)
    x = wf.placeholder(wf.float32, [6])
    a = wf.exp(x * 2.0) + 1.0
    y = wf.cos(wf.sin(a) * 2.0 + a)
    with wf.Session() as session:
        value = session.run(y, _feed(x))
    assert _ops(generated) == [["Mul", "Exp", "AddV2"], ["Mul", "AddV2", "Cos"]]
    want = np.exp(_feed(x)[x] * 2.0) + 1.0
    np.testing.assert_allclose(value, np.cos(np.sin(want) * 2.0 + want), rtol=1e-4)


def test_explain_tells_what_is_compiled_and_why_the_rest_is_not(
    generated: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = wf.placeholder(wf.float32, [6, 6])
    y = wf.linalg.cholesky(wf.tanh(x) * 2.0)
    with wf.xla.experimental.jit_scope(compile_ops=False):
        z = wf.exp(y, name="last") + 1.0
    with wf.Session() as session:
        report = session.explain(z, [x])
        assert [[op for _, op in region] for region in report.compiled] == [["Tanh", "Mul"]]
        text = str(report)
        assert "to be compiled: 2 nodes in 1 region\n  mul: Tanh, Mul\n" in text
        assert "with kernels: Cholesky 1: there is no lowering rule for Cholesky" in text
        assert "with kernels: Exp 1: no scope or option asks for it" in text
        monkeypatch.setenv("WEFT_JIT", "off")
        assert "compiled" not in str(session.explain(z, [x]))
    assert not generated


def test_long_chains_are_compiled_in_pieces(
    generated: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clustering, "MOST", 4)
    x = wf.placeholder(wf.float64, [3])
    y = x
    for _ in range(3):
        y = wf.sin(y) * 1.5 + x
    feed = {x: [0.1, -0.2, 0.3]}
    with wf.Session() as session:
        found = session.run(y, feed)
    assert [len(ops) for ops in _ops(generated)] == [3, 3, 3]
    with pytest.MonkeyPatch.context() as patch, wf.Session() as session:
        patch.setenv("WEFT_JIT", "off")
        np.testing.assert_allclose(found, session.run(y, feed), rtol=1e-9)


def test_measurements_do_not_compile_again(generated: list[Any]) -> None:
    """Measured steps use the same code; members of a region share its time."""
    x = wf.placeholder(wf.float32, [1000])
    y = wf.reduce_sum(wf.exp(x * 2.0 + 1.0))
    config = wf.ConfigProto()
    config.graph_options.build_cost_model = 2  # every second step
    options = wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE)
    metadata = wf.RunMetadata()
    with wf.Session(config=config) as session:
        for step in range(40):
            feed = {x: np.full(1000, step / 40, np.float32)}
            want = 1000 * np.exp(step / 20 + 1.0)
            np.testing.assert_allclose(session.run(y, feed), want, rtol=1e-4)
        session.run(y, feed, options=options, run_metadata=metadata)
    assert len(generated) == 1
    (device,) = metadata.step_stats.dev_stats
    timed = {stats.node_name: stats.op_end_rel_micros for stats in device.node_stats}
    assert {"mul", "add", "Exp", "Sum"} <= set(timed) and not any(
        "region" in name for name in timed
    )


@pytest.mark.parametrize(
    ("shape", "dtype", "compiled"),
    [
        ([100, 8, 8], "float32", True),
        ([9, 7], "bfloat16", True),
        ([2, 8, 8], "float32", False),
        ([8, 90, 90], "float32", False),
        ([None, 8, 8], "float32", False),
    ],
)
def test_products_by_themselves_that_repay_it_are_compiled(
    shape: list[int | None], dtype: str, compiled: bool, generated: list[Any]
) -> None:
    x = wf.placeholder(wf.as_dtype(dtype), shape)
    y = wf.matmul(x, x, transpose_b=True)
    array = np.ones([size or 5 for size in shape], wf.as_dtype(dtype).as_numpy_dtype)
    with wf.Session() as session:
        assert (session.run(y, {x: array}) == array.shape[-1]).all()
    assert bool(generated) == compiled

"""Test helpers other than `TestCase`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weft as wf


def test_what_was_replaced_is_put_back() -> None:
    class Owner:
        @staticmethod
        def plain() -> int:
            return 1

    one = SimpleNamespace(x=1)
    stubs = wf.test.StubOutForTesting()
    for value in (2, 3):
        stubs.Set(one, "x", value)
    stubs.SmartSet(Owner, "plain", staticmethod(lambda: 9))
    assert (one.x, Owner.plain()) == (3, 9)
    stubs.CleanUp()
    assert (one.x, Owner.plain(), Owner().plain()) == (1, 1, 1)
    with pytest.raises(AttributeError):
        stubs.Set(one, "nothing", 0)


@pytest.mark.parametrize("left_out", [False, True])
def test_a_condition_is_asked_when_a_test_runs(left_out: bool) -> None:
    asked: list[bool] = []

    class Some(wf.test.TestCase):
        @wf.test.disable_with_predicate(lambda: left_out, "why")
        def test_it(self) -> None:
            asked.append(True)

    result: Any = Some("test_it").run()
    assert len(asked) == (not left_out) and len(result.skipped) == left_out


def test_a_benchmark_reports(capsys: pytest.CaptureFixture[str]) -> None:
    class Sines(wf.test.Benchmark):
        pass

    with wf.Graph().as_default(), wf.Session(config=wf.test.benchmark_config()) as session:
        x = wf.placeholder(wf.float32, [4])
        y = wf.sin(x)
        told = Sines().run_op_benchmark(
            session, y, {x: np.zeros(4)}, min_iters=3, store_trace=True, mbs=1.0, extras={"n": 4}
        )
        assert Sines().evaluate(wf.constant(2)) == 2
    assert told["iters"] == 3 and told["extras"]["n"] == 4
    assert told["throughput"] == pytest.approx(1 / told["wall_time"])
    assert "Sin" in told["extras"]["full_trace_chrome_format"]
    assert capsys.readouterr().out.startswith("name: Sines, iters: 3, wall_time: ")
    assert Sines().evaluate(wf.constant(2)) == 2


def test_functions_may_be_built_in_place() -> None:
    @wf.function
    def double(x: Any) -> Any:
        return x + x

    with wf.Graph().as_default() as graph, wf.Session() as session:
        x = wf.constant(2.0)
        wf.config.run_functions_eagerly(True)
        try:
            y = double(x)
        finally:
            wf.config.run_functions_eagerly(False)
        z = double(x)
        assert session.run([y, z]) == [4.0, 4.0]
        assert y.op.type == "AddV2" and z.op.type != "AddV2" and y.graph is graph


def test_what_gpus_lack() -> None:
    with wf.Graph().as_default():
        ask = wf.graph_util.must_run_on_cpu
        v = wf.Variable(1)
        cast = wf.cast(wf.constant([1]), wf.float32).op
        assert [ask(v.op), ask(v.op, True), ask(cast), ask(cast.node_def)] == [
            False,
            True,
            True,
            True,
        ]
        assert not ask(wf.cast(wf.constant([1.0]), wf.int32).op) and not ask(wf.zeros([2]).op)


def test_the_build_names_its_accelerators() -> None:
    info = wf.sysconfig.get_build_info()
    assert set(info) == {"is_cuda_build", "is_rocm_build", "is_tensorrt_build"}
    assert info["is_cuda_build"] is wf.test.is_built_with_cuda()

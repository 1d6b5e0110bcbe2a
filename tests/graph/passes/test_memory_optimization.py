"""The options that ask for less memory, by TensorFlow's names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from edited_session import EditedSession

import weft as wf
from weft_exec.executor.priority import sort_by_priority
from weft_graph.passes import prune
from weft_graph.passes.memory import estimate_memory, static_bytes
from weft_graph.passes.memory_optimization import MODES, MemoryOptions, optimize_memory
from weft_graph.proto import RewriterConfig
from weft_tensor import errors

HOST, DEVICE = "/device:CPU:0", "/device:CPU:1"


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with wf.Graph().as_default():
        yield


def network() -> tuple[Any, list[Any]]:
    x = wf.placeholder(wf.float32, [64, 64], name="x")
    v = wf.Variable(np.eye(64, dtype=np.float32))
    h = x
    for _ in range(24):
        h = wf.sin(wf.cos(wf.matmul(h, v)) * 2.0)
    return x, [wf.reduce_sum(h), *wf.gradients(h, [v])]


def test_modes_are_those_of_the_config() -> None:
    kind = RewriterConfig.DESCRIPTOR.enum_types_by_name["MemOptType"]
    assert set(kind.values_by_name) == MODES


def changes(
    mode: str = "DEFAULT_MEM_OPT", limit: int | None = None, **options: Any
) -> dict[str, int]:
    x, fetches = network()
    step = prune([x], fetches, [])

    def device_of(node: Any) -> str:
        return HOST if node.type == "_Arg" else DEVICE

    limits = {} if limit is None else {DEVICE: limit}
    options = MemoryOptions(mode, limits=limits, host=HOST, device_of=device_of, **options)
    count = optimize_memory(step, options)
    found = {k: n for k, n in step.changes.items() if k in ("recompute", "swap", "order")}
    assert count == sum(found.values())
    return found


def test_what_each_mode_does() -> None:
    assert changes() == {}
    assert changes(mode="NO_MEM_OPT", limit=0) == {}
    assert changes(mode="MANUAL", limit=0) == {}
    assert set(changes(mode="RECOMPUTATION_HEURISTICS")) == {"recompute"}
    assert changes(mode="SWAPPING_HEURISTICS", limit=0) == {}  # that follows placement
    assert "recompute" in changes(mode="HEURISTICS", limit=0)
    assert changes(mode="DEFAULT_MEM_OPT", limit=1 << 40).get("recompute") is None
    assert "recompute" in changes(limit=1 << 18)


def test_measured_sizes_count() -> None:
    def big(output: Any) -> int:
        return 1 << 30 if output.node.type == "Cos" else static_bytes(output)

    assert "recompute" in changes(limit=1 << 28, bytes_of=big)
    assert changes(limit=1 << 28) == {} or "recompute" not in changes(limit=1 << 28)


def test_an_order_is_applied() -> None:
    x = wf.placeholder(wf.float32, [256])
    larges = [wf.exp(x + float(i)) for i in range(16)]
    step = prune([x], [wf.add_n([wf.reduce_sum(large) for large in larges])], [])
    before = estimate_memory(step.live_nodes(), step.fetches).largest
    assert optimize_memory(step, MemoryOptions(mode="SCHEDULING_HEURISTICS")) == 1
    step.graph.check_integrity()
    assert estimate_memory(step.live_nodes(), step.fetches).largest < before // 4


@pytest.mark.kernels
@pytest.mark.parametrize("mode", sorted(MODES))
@pytest.mark.parametrize("limit", [None, 0])
def test_numbers_are_the_same(mode: str, limit: int | None) -> None:
    x, fetches = network()
    value = np.random.default_rng(1).normal(size=(64, 64)).astype(np.float32)
    limits = {} if limit is None else {"": limit}
    results = []
    for each in ("NO_MEM_OPT", mode):
        options = MemoryOptions(each, limits=limits, run_order=sort_by_priority)
        with EditedSession(lambda step, o=options: optimize_memory(step, o)) as session:
            session.run(wf.global_variables_initializer())
            results.append(session.run(fetches, {x: value}))
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="'LESS'"):
        MemoryOptions(mode="LESS")
    with pytest.raises(errors.InvalidArgumentError, match="-1"):
        MemoryOptions(limits={HOST: -1})

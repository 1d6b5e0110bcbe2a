"""The simulated step protocol, in cases with a known result."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SCALE = Path(__file__).parents[2] / "benchmarks" / "scale"


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(SCALE)
    import simulator

    yield simulator
    sys.modules.pop("simulator")


@pytest.fixture
def costs(simulator: Any) -> Any:
    return simulator.Costs(
        client=1e-3,
        client_task=1e-3,
        client_byte=0.0,
        server=1e-3,
        server_byte=0.0,
        master_task=1e-3,
        answer=0.0,
        answerer=0.0,
        delay=1e-3,
        bandwidth=1e9,
    )


def test_one_worker_takes_the_sum_of_all_parts(simulator: Any, costs: Any) -> None:
    cluster = simulator.Cluster(costs, 1, 1, simulator.Load(pulled=1e6))
    cluster.asynchronous(4)
    assert cluster.medians() == pytest.approx(2e-3 + 1e-3 + 1e-3 + 1e-3 + 2e-3)


def test_many_workers_take_what_the_server_can_give(simulator: Any, costs: Any) -> None:
    rate = simulator.Cluster(costs, 1, 50, simulator.Load()).asynchronous(20)
    assert rate == pytest.approx(1 / costs.server, rel=0.1)
    twice = simulator.Cluster(costs, 2, 50, simulator.Load()).asynchronous(20)
    assert twice == pytest.approx(rate, rel=0.1)  # each step touches both


def test_large_values_fill_the_network(simulator: Any, costs: Any) -> None:
    cluster = simulator.Cluster(costs, 1, 20, simulator.Load(pulled=1e8))
    assert cluster.asynchronous(10) * 1e8 == pytest.approx(costs.bandwidth, rel=0.1)
    assert "servers' network" in cluster.saturated(cluster.clock.now)


def test_backup_workers_hide_one_that_is_slow(simulator: Any, costs: Any) -> None:
    def seconds(backups: int) -> float:
        cluster = simulator.Cluster(costs, 1, 4 + backups, load)
        return statistics.mean(cluster.synchronous(20, 4))

    load = simulator.Load(compute=lambda generator: 5.0 if generator.random() < 0.1 else 0.5)
    assert seconds(2) < 0.6 * seconds(0)


def test_processors_that_all_share_are_shared(simulator: Any, costs: Any) -> None:
    rate = simulator.Cluster(costs, 1, 8, simulator.Load(), cores=2).asynchronous(50)
    assert rate == pytest.approx(2 / (costs.client + costs.client_task + costs.server), rel=0.1)

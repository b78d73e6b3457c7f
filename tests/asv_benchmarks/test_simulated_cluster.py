"""The simulation of a cluster agrees with what the theory of queues says of its simplest cases."""

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from conftest import ROOT

N = 40_000


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(ROOT / "asv_benchmarks"), *sys.path])
    from topics import shards

    return shards


def waits(simulation: ModuleType, cluster: tuple[Any, ...], busy: float, kind: str) -> float:
    """Return the mean time in the queue, in units of the service time, at a server of this utilisation."""
    draws = np.random.default_rng(3)
    services = draws.exponential(1.0, (N, 1)) if kind == "exponential" else np.ones((N, 1))
    of_cluster = simulation.Cluster(*cluster)
    n_servers = of_cluster.n_shards * of_cluster.n_copies / of_cluster.n_asked
    times = np.cumsum(draws.exponential(1.0 / (busy * n_servers), N))
    seconds = simulation.answer_seconds(of_cluster, times, simulation.Costs(0, 0, 0, 0), draws, services)
    return float(np.mean(seconds - services[:, 0]))


def test_one_server_follows_the_pollaczek_khinchine_formula(simulation: ModuleType):
    one, busy = (1, 1, 1, 1), 0.6
    assert waits(simulation, one, busy, "exponential") == pytest.approx(busy / (1 - busy), rel=0.05)  # M/M/1
    assert waits(simulation, one, busy, "constant") == pytest.approx(busy / (2 * (1 - busy)), rel=0.05)  # M/D/1


def test_least_loaded_copies_follow_the_erlang_formula(simulation: ModuleType):
    """Two servers with one line (M/M/2) wait ``busy**2 / (1 - busy**2)``; two with a line each as one server."""
    assert waits(simulation, (1, 2, 1, 1), 0.6, "exponential") == pytest.approx(0.36 / 0.64, rel=0.05)
    assert waits(simulation, (1, 2, 1, 1, False), 0.6, "exponential") == pytest.approx(1.5, rel=0.08)


def test_the_last_of_many_shards_decides(simulation: ModuleType):
    """The longest of ``n`` exponential times is the harmonic number of ``n`` on average."""
    draws, cluster = np.random.default_rng(0), simulation.Cluster(10, 1, 10, 1)
    services, costs = draws.exponential(1.0, (5000, 10)), simulation.Costs(0, 0, 0.5, 7.0)
    times = 1e4 * np.arange(5000)
    seconds = simulation.answer_seconds(cluster, times, costs, draws, services)
    assert np.mean(seconds) == pytest.approx(10 * 0.5 + 7.0 + np.sum(1 / np.arange(1, 11)), rel=0.02)


def test_a_cluster_keeps_up_below_its_capacity_and_not_above(simulation: ModuleType):
    costs = simulation.Costs(1e-3, 1e-4, 1e-4, 0.0, stragglers=0.01)
    for n_asked, n_clients in ((20, 20), (2, 20), (20, 1)):
        cluster = simulation.Cluster(20, 1, n_asked, n_clients)
        rate = simulation.batches_a_second(cluster, costs, 10)
        below, above = (simulation.simulated(cluster, costs, 10, share * rate, 6000) for share in (0.7, 1.3))
        assert np.mean(below[-1000:]) < 5 * np.mean(below[:1000])
        assert np.mean(above[-1000:]) > 2 * np.mean(above[:1000])


def test_simulated_costs_match_the_measurements(simulation: ModuleType):
    measured = {batch: (3000 + 40 * batch) / batch for batch in (1, 100, 10_000)}
    call, query, send = simulation.fitted(measured, measured[1] + 500, 1e4, 1e8)
    assert (call, query, send) == (pytest.approx(3e-3), pytest.approx(80e-6), pytest.approx(5e-4))

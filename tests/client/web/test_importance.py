"""The importance of hyper-parameters for a metric."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.parameter_search import Serve, write_search

from rla_client.web.importance import ranks, uncertainty, weigh


def test_ranks_share_the_mean_where_values_are_equal() -> None:
    assert ranks(np.array([10.0, 30.0, 20.0, 20.0])).tolist() == [1.0, 4.0, 2.5, 2.5]


def test_spearman_sees_order_alone() -> None:
    ys = np.arange(10.0)
    assert list(weigh([2.0**n for n in range(10)], ys)) == pytest.approx([1.0, 1.0])
    assert list(weigh([-(n**3) for n in range(10)], ys)) == pytest.approx([-1.0, 1.0])
    assert weigh([1.0, 2.0, 3.0], np.array([5.0, 5.0, 5.0])) == (0.0, 0.0)
    scipy = pytest.importorskip("scipy.stats", reason="scipy is not installed")
    random = np.random.default_rng(3)
    xs, ys = random.integers(0, 30, 80).astype(float), random.normal(size=80).round(1)
    assert weigh(xs.tolist(), ys)[0] == pytest.approx(scipy.spearmanr(xs, ys).statistic)


def test_importance_sees_what_goes_up_and_down_and_what_has_no_order() -> None:
    values = [0.1, 0.2, 0.3] * 5
    ys = np.array([0.0, 10.0, 0.5] * 5) + np.arange(15) * 0.01
    rho, importance = weigh(values, ys)
    assert abs(rho or 0) < 0.5
    assert importance > 0.9
    none, same = weigh(["b", "a", "c"] * 5, ys)
    assert none is None
    assert same == pytest.approx(importance)
    chance = [
        weigh(values, np.random.default_rng(n).permutation(15.0 + np.arange(15)))[1] for n in range(200)
    ]
    assert np.mean(chance) < 0.35, "chance is taken off"
    assert weigh([f"own{n}" for n in range(15)], ys) == (None, 0.0)


def test_an_importance_has_an_interval_and_chance_is_told() -> None:
    random = np.random.default_rng(1)
    values = [0.1, 0.2, 0.3, 0.4] * 10
    clear = np.array(values) + random.normal(0, 0.02, 40)
    (low, high), chance = uncertainty(values, clear)
    assert chance < low <= weigh(values, clear)[1] <= high <= 1
    assert chance < 0.5
    noise = [weigh(values, ys)[1] <= uncertainty(values, ys)[1] for ys in random.normal(size=(100, 40))]
    assert 0.85 <= np.mean(noise) <= 1.0, "of noise one in twenty is above"
    few = uncertainty(values[:8], clear[:8])
    assert few[0][1] - few[0][0] > high - low


def test_the_most_important_comes_first(page_server: Serve, root: Path) -> None:
    write_search(root)
    server = page_server(root)
    server.ask("runs")  # gives the numbers
    found = server.ask("importance", {"runs": list(range(24)), "metric": "score"})
    assert found["names"][0]["name"] == "lr"
    assert {one["name"] for one in found["names"]} == {"lr", "net", "seed"}, "env is the same in all"
    rho = {one["name"]: one["rho"] for one in found["names"]}
    assert rho["lr"] > 0.9
    assert rho["net"] is None
    assert found["runs"] == 24
    assert "at least 3" in server.ask("importance", {"runs": [0, 1], "metric": "score"})["problem"]
    for body in ({"runs": "x", "metric": "a"}, {"runs": [1]}, {"runs": [0], "metric": 3}):
        assert server.refused("importance", body)
    assert server.refused("parallel", {"runs": [0], "metric": "score", "parameters": [3]})

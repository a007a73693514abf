"""Which choices are tried next."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from support.sweep_lab import make_spec

from rla_client.sweep.journal import SweepError
from rla_client.sweep.samplers import Sampler, make_sampler
from rla_client.sweep.spec import Spec

SEARCH = {
    "lr": {"log_uniform": [1e-5, 1]},
    "layers": {"int": [1, 4]},
    "optimizer": ["adam", "sgd"],
    "momentum": {"uniform": [0, 1], "when": {"optimizer": "sgd"}},
}


def spec_of(method: str = "grid", **content: Any) -> Spec:
    return make_spec({"command": "p {args}", "method": method, **content}, "s")


def search(trials: int = 12, **content: Any) -> Spec:
    content = {"parameters": SEARCH, "metric": "score", **content}
    return spec_of("optuna", trials=trials, **content)


def everything(sampler: Sampler) -> list[dict[str, Any]]:
    return list(iter(sampler.next, None))


def test_grid() -> None:
    found = everything(make_sampler(spec_of(parameters={"a": [1, 2], "b": "x"})))
    assert found == [{"a": 1, "b": "x"}, {"a": 2, "b": "x"}]
    assert everything(make_sampler(spec_of())) == [{}]


def test_list_with_a_grid() -> None:
    found = everything(
        make_sampler(spec_of("list", list=[{"a": 1}, {"a": 2, "c": 3}], parameters={"b": [4, 5]}))
    )
    assert found == [{"b": 4, "a": 1}, {"b": 5, "a": 1}, {"b": 4, "a": 2, "c": 3}, {"b": 5, "a": 2, "c": 3}]


def test_more_random_trials_change_no_earlier_one() -> None:
    few = everything(make_sampler(spec_of("random", trials=5, parameters=SEARCH)))
    many = everything(make_sampler(spec_of("random", trials=9, parameters=SEARCH)))
    other = everything(make_sampler(spec_of("random", trials=5, parameters=SEARCH, random_seed=1)))
    assert many[:5] == few
    assert other != few


def test_more_than_can_be_meant() -> None:
    with pytest.raises(SweepError, match="the grid has more than 100000 trials\nhint: try `method: random`"):
        make_sampler(spec_of(parameters={f"p{n}": list(range(10)) for n in range(6)}))
    for content in ({"method": "random", "trials": 1000}, {"parameters": {"x": list(range(1000))}}):
        with pytest.raises(SweepError, match="10000000 runs are more than a sweep can have"):
            make_sampler(spec_of(**content, seeds=10_000))


def test_without_optuna(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(
        SweepError, match=r"method optuna needs optuna\nhint: pip install 'rla-agent\[optuna\]'"
    ):
        make_sampler(search())


@pytest.fixture
def optuna() -> Any:
    return pytest.importorskip("optuna", reason="needs optuna")


def judge(parameters: dict[str, Any]) -> float:
    return float(-abs(parameters["lr"] - 0.1) - parameters["layers"])


@pytest.mark.usefixtures("optuna")
def test_optuna_fits_and_ends() -> None:
    sampler = make_sampler(search())
    for trial in range(1, 13):
        chosen = sampler.next()
        assert chosen is not None
        assert 1e-5 <= chosen["lr"] <= 1
        assert chosen["layers"] in {1, 2, 3, 4}
        assert ("momentum" in chosen) == (chosen["optimizer"] == "sgd")
        sampler.tell(trial, None if trial == 3 else judge(chosen))
    assert sampler.next() is None


@pytest.mark.usefixtures("optuna")
def test_optuna_learns() -> None:
    sampler = make_sampler(search(60, metric={"name": "score", "goal": "maximize"}))
    layers = []
    for trial in range(1, 61):
        chosen = sampler.next()
        assert chosen is not None
        layers.append(chosen["layers"])
        sampler.tell(trial, judge(chosen))
    assert layers[-20:].count(1) > 10


@pytest.mark.usefixtures("optuna")
def test_optuna_after_a_restart_gives_no_choice_again() -> None:
    before = make_sampler(search())
    given = [before.next() for _ in range(5)]
    for trial, chosen in enumerate(given, 1):
        assert chosen is not None
        before.tell(trial, judge(chosen))
    expected = everything(before)
    after = make_sampler(search())
    for trial, chosen in enumerate(given, 1):
        assert chosen is not None
        after.known(trial, chosen)
        after.tell(trial, judge(chosen))
    rest = everything(after)
    assert len(rest) == 7
    assert not [one for one in rest if one in given]
    assert rest == expected, "as if there had been no restart"


@pytest.mark.usefixtures("optuna")
def test_optuna_with_gaps_in_what_is_known() -> None:
    sampler = make_sampler(search(9))
    sampler.known(2, {"lr": 0.1, "layers": 1, "optimizer": "adam"})
    sampler.known(7, {"lr": 0.1, "layers": 2, "optimizer": "adam"})
    sampler.tell(7, 1.0)
    assert sampler.next() is not None
    sampler.tell(8, 2.0)
    assert sampler.next() is not None
    assert sampler.next() is None


@pytest.mark.usefixtures("optuna")
def test_optuna_passes_over_trials_of_another_file() -> None:
    sampler = make_sampler(search())
    sampler.known(1, {"lr": 100.0, "layers": 1, "optimizer": "rmsprop"})
    sampler.known(2, {"old": 3})
    for trial in (1, 2):
        sampler.tell(trial, 1.0)
    assert sampler.next() is not None

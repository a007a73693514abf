from __future__ import annotations

import pytest

from rla_client.contract.errors import ArgumentError, UnknownNameError
from rla_client.contract.text.spelling import ends_in, full_name, hint, listed, near

METRICS = [
    "charts/episodic_return",
    "losses/value_loss",
    "losses/policy_loss",
    "time-step",
    "Rollout/ep_rew_mean",
]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("charts/episodic_retrun", "charts/episodic_return"),
        ("episodic_retrun", "charts/episodic_return"),
        ("Charts/Episodic_Return", "charts/episodic_return"),
        ("return", "charts/episodic_return"),  # a word of it
        ("timestep", "time-step"),
        ("rollout/ep_rew_maen", "Rollout/ep_rew_mean"),
    ],
)
def test_the_nearest_name_comes_first(name: str, meant: str) -> None:
    assert near(name, METRICS)[0] == meant


def test_what_looks_like_nothing_gets_the_list() -> None:
    assert near("xyz", METRICS) == []
    assert hint("xyz", ["a", "b"]) == "there are: a, b"
    assert hint("xyz", []) == ""
    assert listed(f"n{number}" for number in range(23)).endswith("n19, … and 3 more")
    assert near("", METRICS) == []


def test_the_last_parts_of_a_name_are_enough() -> None:
    assert full_name("episodic_return", METRICS, "none") == "charts/episodic_return"
    assert full_name("time-step", METRICS, "none") == "time-step"
    assert full_name("lr", ["agent.opt.lr", "net.lrs"], "none") == "agent.opt.lr"
    assert full_name("opt.lr", ["agent.opt.lr", "critic.lr"], "none") == "agent.opt.lr"
    assert full_name("lr", ["agent.lr", "lr"], "none") == "lr"  # a whole name means itself
    assert ends_in("return", ["episodic_return"]) == []  # a part, not a piece of one
    assert ends_in("", METRICS) == []


def test_several_are_listed_and_none_is_an_error_with_a_hint() -> None:
    with pytest.raises(UnknownNameError, match=r"^'r' fits 2 names\nhint: give more of one: a/r, b/r$"):
        full_name("r", ["a/r", "b/r", "c"], "none")
    with pytest.raises(ArgumentError, match=r"^no metric\nhint: did you mean 'losses/value_loss'\?$"):
        full_name("valu_loss", METRICS[:2], "no metric")
    with pytest.raises(UnknownNameError, match=r"^no metric$"):
        full_name("x", [], "no metric")

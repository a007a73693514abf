"""Which hyper-parameters tell runs apart, by their names and the command line."""

from __future__ import annotations

import pytest

from rla_client.run.parameters.telling_names import MOST, overrides, telling_names


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("--seed 1 --env-id Ant-v4", {"seed": 1, "env_id": "Ant-v4"}),
        (
            "--learning-rate=3e-4 --cuda --no-anneal-lr",
            {"learning_rate": 3e-4, "cuda": True, "no_anneal_lr": True},
        ),
        ("--ent-coef -0.01 run", {"ent_coef": -0.01}),
        ("optim.lr=0.1 +model=mlp ++a=", {"optim.lr": 0.1, "model": "mlp", "a": ""}),
        ("-n 4 file.py x", {}),
        ("--api-key sk-123456 --password=x token=abcdef", {}),
        ("--list [1,2] --text 'a", {"list": "[1,2]", "text": "'a"}),
        ("--path " + "x" * 100, {}),
        ("--", {}),
    ],
)
def test_what_a_command_line_sets(line: str, found: dict[str, object]) -> None:
    assert overrides(line.split()) == found


def test_seed_and_learning_rate_come_first_then_overrides() -> None:
    parameters = {"env_id": "Ant", "gamma": 0.99, "learning_rate": 1e-3, "cuda": True, "seed": 1, "net": [64]}
    assert telling_names(parameters, []) == ["seed", "learning_rate"]
    line = ["--gamma", "0.9", "--no-cuda", "--env-id", "Ant", "--net", "[64]", "--unknown", "3"]
    assert telling_names(parameters, line) == ["seed", "learning_rate", "gamma", "cuda", "env_id"]


def test_nested_names_go_by_their_last_part_where_it_is_the_only_one() -> None:
    assert telling_names({"optim.lr": 0.1, "env.seed": 1}, []) == ["env.seed", "optim.lr"]
    assert telling_names({"actor.lr": 0.1, "critic.lr": 0.2, "seed": 1}, ["critic.lr=0.2"]) == [
        "seed",
        "critic.lr",
    ]


def test_not_too_many_and_no_secret() -> None:
    parameters = {f"p{number}": number for number in range(20)} | {"api_key": "secret", "seed": 3}
    line = [f"--p{number}={number}" for number in range(20)] + ["--api-key=secret"]
    assert telling_names(parameters, line) == ["seed", "p0", "p1", "p2", "p3", "p4"]
    assert len(telling_names(parameters, line)) == MOST

"""Optuna's studies with our callback."""

from __future__ import annotations

import pytest
from support.user_scripts import Scripts

pytest.importorskip("optuna", reason="optuna is not installed")
pytestmark = pytest.mark.slow

STUDY = """
import optuna, rla_client
from rla_client.integrations.optuna import RLACallback

OPEN
def objective(trial):
    lr = trial.suggest_float("lr", 0.1, 0.9)
    layers = trial.suggest_int("layers", 1, 3)
    BEGIN
    for step in range(3):
        trial.report(lr * step, step)
    if trial.number == 1:
        raise optuna.TrialPruned
    if trial.number == 2:
        raise ValueError("bad")
    return lr + layers

sampler = optuna.samplers.RandomSampler(seed=1)
study = optuna.create_study(study_name="search", sampler=sampler)
study.optimize(objective, n_trials=4, catch=(ValueError,), callbacks=[RLACallback()])
"""


def test_each_trial_is_a_run(scripts: Scripts) -> None:
    scripts.run(STUDY.replace("OPEN", "").replace("BEGIN", ""))
    runs = scripts.runs(4)
    assert [run.parameters["optuna"] for run in runs] == [{"study": "search", "trial": n} for n in range(4)]
    assert {run.table for run in runs} == {"search"}
    for run in runs:
        lr, layers = run.parameters["lr"], run.parameters["layers"]
        assert f"&lr={lr}&layers={layers}" in run.log.name
        rows = run.rows()
        assert [float(row["reported"]) for row in rows if "reported" in row] == [0.0, lr, lr * 2]
        assert rows[-1]["trial"] == str(run.parameters["optuna"]["trial"])
    values = [run.rows()[-1].get("value") for run in runs]
    assert float(str(values[0])) == runs[0].parameters["lr"] + runs[0].parameters["layers"]
    states = [(run.state["state"], run.rows()[-1]["state"]) for run in runs]
    assert states == [
        ("finished", "COMPLETE"), ("finished", "PRUNED"), ("failed", "FAIL"), ("finished", "COMPLETE"),
    ]  # fmt: skip
    assert runs[2].state["reason"] == "trial 2 failed"


def test_a_run_of_the_objective_gets_the_trial(scripts: Scripts) -> None:
    begin = 'rla_client.init("mine", config={"own": 1}); rla_client.log({"loss": 1.0}, step=5)'
    scripts.run(STUDY.replace("OPEN", "").replace("BEGIN", begin))
    first = scripts.runs(4)[0]
    assert first.table == "mine"
    assert first.parameters.keys() == {"own", "lr", "layers", "optuna"}
    assert [row.get("loss") for row in first.rows() if row["time-step"] == "5"] == ["1.0"]
    assert first.rows()[-1]["trial"] == "0"


def test_a_run_around_the_study_has_a_row_for_each_trial(scripts: Scripts) -> None:
    scripts.run(STUDY.replace("OPEN", 'rla_client.init("around")').replace("BEGIN", ""))
    (run,) = scripts.runs()
    rows = run.rows()
    assert [row["trial"] for row in rows] == [row["time-step"] for row in rows] == ["0", "1", "2", "3"]
    assert "params/lr" in rows[0]
    assert float(rows[0]["value"]) == float(rows[0]["params/lr"]) + float(rows[0]["params/layers"])


@pytest.mark.parametrize("closes", ["", "run.close()"])
def test_trials_in_threads_do_not_mix(scripts: Scripts, closes: str) -> None:
    done = scripts.run(f"""
import optuna, rla_client
from rla_client import exp_manager
from rla_client.integrations.optuna import RLACallback

def objective(trial):
    lr = trial.suggest_float("lr", 0, 1)
    run = rla_client.init("t", config={{"number": trial.number}}, track=["number"])
    for step in range(1, 8):
        trial.report(trial.number * 100 + step, step)
        rla_client.log({{"loss": trial.number * 100 + step}}, step=step)
    {closes}
    return lr

study = optuna.create_study()
study.optimize(objective, n_trials=12, n_jobs=4, callbacks=[] if "{closes}" else [RLACallback()])
""")
    runs = scripts.runs(12)
    assert sorted(run.parameters["number"] for run in runs) == list(range(12))
    for run in runs:
        number = run.parameters["number"]
        losses = [(row["time-step"], row["loss"]) for row in run.rows() if "loss" in row]
        assert losses == [(str(step), str(number * 100 + step)) for step in range(1, 8)]
        if not closes:
            assert run.parameters["optuna"]["trial"] == number
            assert run.rows()[-1]["trial"] == str(number)
    assert "spool is full" not in done.stdout + done.stderr
    assert "has opened no run" not in done.stdout + done.stderr, "each opens its own"

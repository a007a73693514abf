"""Ray Tune itself: trials are runs, results are rows, whatever becomes of the trials."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.user_scripts import RunFolder, Scripts

pytest.importorskip("ray.tune", reason="needs Ray Tune")
pytestmark = pytest.mark.scale

HEAD = """
import json, os, signal, subprocess, sys, tempfile, time
from pathlib import Path
import ray
from ray import tune
from rla_client import logger, exp_manager
from rla_client.integrations.tune import RLACallback, setup_rla

def start():
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False)

def config_of_run(name, **further):
    return tune.RunConfig(name=name, storage_path=os.path.abspath("results"), verbose=0, **further)

def restored():
    checkpoint = tune.get_checkpoint()
    return 0 if checkpoint is None else int(Path(checkpoint.path, "at").read_text())

def report(metrics, at, kept=True):
    if not kept:
        return tune.report(metrics)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "at").write_text(str(at))
        tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(folder))
"""
ON_THE_DRIVER = (
    HEAD
    + """
def train(config):
    for i in range(restored() + 1, 8):
        report({"loss": config["net"]["lr"] / i, "eval": {"steps": 10 * i, "name": "a"}}, i, kept=i in (3, 6))
        if i == 5 and config["kind"] == "once" and not os.path.exists(config["note"]):
            Path(config["note"]).touch()
            raise ValueError("for the first time")
        if i == 4 and config["kind"] == "always":
            raise ValueError("again and again")

class Timed(RLACallback):
    spent = []
    def on_trial_result(self, *args, **info):
        began = time.perf_counter()
        super().on_trial_result(*args, **info)
        self.spent.append(time.perf_counter() - began)

start()
tuner = tune.Tuner(
    train,
    param_space={
        "kind": tune.grid_search(["good", "once", "always"]),
        "net": {"lr": tune.grid_search([0.5])},
        "note": os.path.abspath("note"),
    },
    run_config=config_of_run(
        "exp", callbacks=[Timed()], failure_config=tune.FailureConfig(max_failures=1)
    ),
)
found = tuner.fit()
Path("theirs.json").write_text(json.dumps({
    each.config["kind"]: [
        {"training_iteration": row["training_iteration"], "loss": row["loss"], "steps": row["eval/steps"]}
        for _, row in each.metrics_dataframe.iterrows()
    ]
    for each in found
}))
print("RLA_RUN" in os.environ, logger.get_dir(), sorted(Timed.spent)[len(Timed.spent) // 2] * 1e6)
"""
)


def by_parameter(runs: list[RunFolder], name: str) -> dict[str, RunFolder]:
    return {run.parameters[name]: run for run in runs}


def steps(run: RunFolder) -> list[int]:
    return [int(row["time-step"]) for row in run.rows()]


@pytest.mark.slow
@pytest.mark.brief
@pytest.mark.further
def test_trials_of_an_unchanged_script_are_runs(scripts: Scripts) -> None:
    done = scripts.run(ON_THE_DRIVER)
    assert done.stdout.startswith("False None ") or "\nFalse None " in done.stdout, done.stdout
    runs = by_parameter(scripts.runs(3), "kind")
    theirs = json.loads((scripts.folder / "theirs.json").read_text())
    for kind, run in runs.items():
        assert run.table == "exp"
        assert run.parameters["net"] == {"lr": 0.5}
        assert f"&kind={kind}&net.lr=0.5" in run.log.name
        last = 4 if kind == "always" else 7
        assert steps(run) == list(range(1, last + 1))
        ours = [(float(row["loss"]), float(row["eval/steps"]), row["eval/name"]) for row in run.rows()]
        assert ours == [(0.5 / i, 10 * i, "a") for i in range(1, last + 1)]
        assert {"tune/time_total_s", "tune/time_this_iter_s"} <= run.rows()[0].keys()
        assert not {"pid", "hostname", "date", "config/kind", "done"} & run.rows()[0].keys()
        assert [step for step, _ in run.scalars()["loss"]] == steps(run)
        assert "[CHECKPOINT] 3 : /" in (run.log / "log.txt").read_text()
        if kind != "always":  # of a trial that is started again, Tune itself may lose the rows before
            own = {int(row["time-step"]): float(row["loss"]) for row in run.rows()}
            reported = {row["training_iteration"]: row["loss"] for row in theirs[kind]}
            assert reported.items() <= own.items()
            assert reported.keys() >= {4, 5, 6, 7}
    assert runs["good"].state["state"] == runs["once"].state["state"] == "finished"
    assert runs["always"].state["state"] == "failed"
    assert runs["always"].state["reason"] == "ValueError: again and again"
    assert "raise ValueError" in (runs["always"].log / "log.txt").read_text()
    assert "starts it again: ValueError: for the first time" in (runs["once"].log / "warn.txt").read_text()
    abandoned = (runs["once"].log / "abandoned-1" / "progress.csv").read_text().splitlines()
    assert len(abandoned) == 3, "4 and 5, which came again"


IN_THE_TRAINABLE = (
    HEAD
    + """
def train(config):
    rla = setup_rla(config, data_root="data", track=["kind"])
    assert rla is exp_manager and rla.config is not None
    for i in range(restored() + 1, 8):
        exp_manager.set_timestep(i)
        logger.logkv("loss", config["net"]["lr"] / i)
        logger.dumpkvs()
        report({"loss": config["net"]["lr"] / i}, i, kept=i in (3, 6))
        if i == 5 and config["kind"] == "once" and not os.path.exists(config["note"]):
            Path(config["note"]).touch()
            raise ValueError("for the first time")
        if i == 4 and config["kind"] == "always":
            raise ValueError("again and again")

class Counts(tune.Trainable):
    def setup(self, config):
        setup_rla(config, data_root="data", task_table_name="class", trainable=self)

    def step(self):
        if self.iteration == 2 and self.config["kind"] == "bad":
            raise RuntimeError("two is enough")
        exp_manager.set_timestep(self.iteration)
        logger.logkv("iteration", self.iteration)
        logger.dumpkvs()
        return {"done": self.iteration == 3}

    def stop(self):
        super().stop()
        if self.config["kind"] == "shot":  # as Ray does where an actor ends slowly
            os.kill(os.getpid(), signal.SIGKILL)

start()
again = tune.FailureConfig(max_failures=1)
kinds = tune.grid_search(["good", "once", "always", "stopped"])
space = {"kind": kinds, "net": {"lr": 0.5}, "note": os.path.abspath("note")}
stop = lambda trial_id, result: result["training_iteration"] >= 2 and result["config"]["kind"] == "stopped"
reuse = tune.TuneConfig(reuse_actors=len(sys.argv) > 1)
tune.Tuner(
    train,
    param_space=space,
    tune_config=reuse,
    run_config=config_of_run("exp", failure_config=again, stop=stop),
).fit()
tune.Tuner(
    Counts, param_space={"kind": tune.grid_search(["good", "bad", "shot"])}, run_config=config_of_run("other")
).fit()
"""
)


@pytest.mark.slow
@pytest.mark.parametrize("reuse", [False, True])
def test_trials_that_log_for_themselves(scripts: Scripts, *, reuse: bool) -> None:
    scripts.run(IN_THE_TRAINABLE, *(["reuse"] if reuse else []))
    found = scripts.runs(7)
    runs = by_parameter([run for run in found if run.table == "exp"], "kind")
    assert {kind: steps(run) for kind, run in runs.items()} == {
        "good": [1, 2, 3, 4, 5, 6, 7],
        "once": [1, 2, 3, 4, 5, 6, 7],
        "always": [1, 2, 3, 4],
        "stopped": [1, 2],
    }
    assert {kind: run.state["state"] for kind, run in runs.items()} == {
        "good": "finished",
        "once": "finished",
        "always": "failed",
        "stopped": "finished",
    }
    assert runs["always"].state["reason"] == "ValueError: again and again"
    assert "&kind=once" in runs["once"].log.name
    assert [float(row["loss"]) for row in runs["once"].rows()] == [0.5 / i for i in range(1, 8)]
    classes = by_parameter([run for run in found if run.table == "class"], "kind")
    assert steps(classes["good"]) == [0, 1, 2, 3]
    assert steps(classes["bad"]) == [0, 1]
    assert steps(classes["shot"]) == [0, 1, 2, 3]
    assert classes["good"].state["state"] == classes["shot"].state["state"] == "finished"
    assert (classes["bad"].state["state"], classes["bad"].state["reason"]) == (
        "failed",
        "RuntimeError: two is enough",
    )


RESTORED = (
    HEAD
    + """
def train(config):
    for i in range(restored() + 1, 9):
        report({"loss": 1 / i, "frames": 100 * i}, i, kept=i == 3)
        if i == 6 and not os.path.exists(config["note"]):
            Path(config["killed"]).touch()
            time.sleep(600)

if sys.argv[1] == "all":
    start()
    address = ray.get_runtime_context().gcs_address
    first = subprocess.Popen([sys.executable, __file__, "first", address])
    while not Path("killed").exists():
        assert first.poll() is None
        time.sleep(0.05)
    time.sleep(float(sys.argv[2]))
    first.send_signal(signal.SIGKILL)
    first.wait()
    Path("note").touch()
    subprocess.run([sys.executable, __file__, "second", address], check=True)
else:
    os.environ["TUNE_GLOBAL_CHECKPOINT_S"] = "0.2"
    ray.init(address=sys.argv[2], log_to_driver=False)
    outputs = {"LOG_USED": ["csv", "json", "log", "tensorboard"]}
    callback = RLACallback("table", time_step="frames", track=[], rla_config=outputs)
    if sys.argv[1] == "first":
        space = {"note": os.path.abspath("note"), "killed": os.path.abspath("killed")}
        tuner = tune.Tuner(train, param_space=space, run_config=config_of_run("exp", callbacks=[callback]))
    else:
        tuner = tune.Tuner.restore(os.path.abspath("results/exp"), train, restart_errored=False)
    tuner.fit()
"""
)


@pytest.mark.slow
def test_a_restored_experiment_goes_on_in_its_runs(scripts: Scripts) -> None:
    scripts.run(RESTORED, "all", "1")
    (run,) = scripts.runs()
    assert run.table == "table"
    assert steps(run) == [100 * i for i in range(1, 9)]
    assert [int(row["tune/training_iteration"]) for row in run.rows()] == list(range(1, 9))
    assert [step for step, _ in run.scalars()["loss"]] == steps(run)
    lines = (run.log / "progress.json").read_text().splitlines()
    assert [json.loads(line)["time-step"] for line in lines] == steps(run)
    assert run.state["state"] == "finished"
    assert len((run.log / "abandoned-1" / "progress.csv").read_text().splitlines()) == 4, "4 to 6"


NOTHING = (
    HEAD
    + """
def train(config):
    rla = setup_rla(config, data_root="data")
    logger.logkv("a", 1)
    assert logger.dumpkvs()["a"] == 1
    rla.save_checkpoint({"a": 1})
    assert rla.load_checkpoint()[1] == {"a": 1}
    tune.report({"a": 1})

start()
found = tune.Tuner(train, run_config=config_of_run("exp", callbacks=[RLACallback(data_root="data")])).fit()
assert not found.errors
assert not os.path.exists("data")
"""
)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [{"RLA_MODE": "disabled"}, {"RANK": "1"}])
def test_where_nothing_is_stored_all_goes_on(scripts: Scripts, mode: dict[str, Any]) -> None:
    scripts.run(NOTHING, **mode)


REFUSED = (
    HEAD
    + """
def train(config):
    setup_rla(config)
    logger.logkv("a", 1)
    logger.dumpkvs()
    tune.report({"a": 1})

from rla_client.contract.errors import ConfigError
for wrong, error in (({"rla_config": {"LOG_USED": ["nowhere"]}}, ConfigError), ({"data": 1}, TypeError)):
    try:
        RLACallback(**wrong)
    except error as told:
        print(told)
    else:
        raise SystemExit("not refused")
Path("data").touch()
start()
found = tune.Tuner(
    train,
    param_space={"x": tune.grid_search([1, 2])},
    run_config=config_of_run("exp", callbacks=[RLACallback()]),
).fit()
assert not found.errors and len(found) == 2
"""
)


@pytest.mark.slow
def test_what_cannot_be_recorded_ends_no_trial(scripts: Scripts) -> None:
    done = scripts.run(REFUSED)
    assert (done.stdout + done.stderr).count("Ray Tune continues, but its trials are not fully recorded") == 1
    assert "cannot make the run's folders" in done.stdout + done.stderr


PBT = (
    HEAD
    + """
from ray.tune.schedulers import PopulationBasedTraining

here = Path.cwd()

def train(config):
    if "SETUP":
        setup_rla(config, data_root="data")
    (here / f"begun-{config['kind']}").touch()
    while len(list(here.glob("begun-*"))) < 2:  # a trial that ends before the other begins exploits nothing
        time.sleep(0.1)
    for i in range(restored() + 1, 7):
        if "SETUP":
            logger.record_tabular("lr", config["lr"])
            logger.dump_tabular(step=i)
        time.sleep(0.2)
        report({"loss": float(config["kind"]), "lr_now": config["lr"]}, i)

start()
scheduler = PopulationBasedTraining(
    time_attr="training_iteration", metric="loss", mode="min", perturbation_interval=2, quantile_fraction=0.5,
    hyperparam_mutations={"lr": [1.0]}, custom_explore_fn=lambda config: {**config, "lr": config["lr"] + 1},
)
tune.Tuner(
    train,
    param_space={"kind": tune.grid_search([0, 1]), "lr": 1.0},
    tune_config=tune.TuneConfig(scheduler=scheduler, reuse_actors=False),
    run_config=config_of_run("exp", callbacks=[] if "SETUP" else [RLACallback(data_root="data")]),
).fit()
"""
)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["", "in the trainable"], ids=["on the driver", "in the trainable"])
def test_an_exploit_of_pbt_is_noted(scripts: Scripts, where: str) -> None:
    scripts.run(PBT.replace("SETUP", where))
    runs = scripts.runs(2)
    exploited = [run for run in runs if list(run.log.glob("parameter.resumed-*.json"))]
    assert exploited
    column = "lr" if where else "lr_now"
    for run in exploited:  # Tune may have both trials take over from each other
        told = [json.loads(path.read_text()) for path in sorted(run.log.glob("parameter.resumed-*.json"))]
        former, new = told[0]["changed"]["lr"]
        assert (former, new >= 2.0) == (1.0, True)
        rows = {float(row["time-step"]): float(row[column]) for row in run.rows()}
        for change in told:  # of the first row that was made with it, or of the one that was resumed at
            step, (former, new) = change["time_step"] + (1 if where else 0), change["changed"]["lr"]
            assert (rows[step - 1], rows[step]) == (former, new)
        assert "[PARAMETERS]" in (run.log / "log.txt").read_text()

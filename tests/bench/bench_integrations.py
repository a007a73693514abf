"""What each adapter costs a real training of its library, beside the library's own logger.

    python tests/bench/bench_integrations.py [--only sb3]

The same training runs twice, in processes of their own: with our adapter and a real agent beside it, and with
the library's own logger. Every public method of either is timed on the training's thread. *Inside ours* is
all of it, beside the whole run (goal: at most 1 %). First calls open things and import modules, once a run;
the ratio is of all further calls (goal: above 1). What ours takes is durable; no other logger syncs. Where
two trainings differ by more than the two loggers, a third one gives its scalars to both in turns, and the
ratio is that one's. What is not installed is left out with a line; `make test-integrations` installs most.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import os
import re
import runpy
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stage import REPOSITORY, Stage

CONFIG = "LOG_USED: [csv, tensorboard]\nAGENT: {autostart: false}\n"
GOAL = 1.0  # per cent
IN_TURNS = {"tensorboard"}  # whose two are compared in one training
STEPS, EPOCHS = 1500, 24  # of the loops that are ours


class Clock:
    """Seconds inside of watched methods, on this thread, without what they spend in excluded ones.

    After each 16th call a method that does nothing is timed in the same way: what the clock itself takes, not
    less than warm, is subtracted from each call.
    """

    def __init__(self) -> None:
        # seconds, of these in the first call, calls, the longest call
        self.methods: dict[str, list[float]] = {}
        self._open: list[float] | None = None
        self._excluded = 0.0
        self._calls = 0
        self._thread = threading.get_ident()
        self._inside = _nothing  # which is excluded where anything is
        self._nothing = self._timed(self._inner)

    def _inner(self) -> None:
        self._inside()

    def watch(self, *targets: Any, names: Sequence[str] = ()) -> None:
        """Time the methods `names` of classes or functions of modules; all public ones by default."""
        for target in targets:
            of = vars(target)
            for name in names or (*(n for n in of if not n.startswith("_")), "__init__", "__call__"):
                if isinstance(of.get(name), types.FunctionType):
                    setattr(target, name, self._timed(of[name]))

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        figures = self.methods.setdefault(
            f"{function.__module__}.{function.__qualname__}", [0.0, 0.0, 0, 0.0]
        )
        clock = time.perf_counter

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._open is not None or threading.get_ident() != self._thread:
                return function(*args, **kwargs)
            self._open, excluded = figures, self._excluded
            began = clock()
            try:
                return function(*args, **kwargs)
            finally:
                took = clock() - began - (self._excluded - excluded)
                self._open = None
                if not figures[2]:
                    figures[1] = took
                figures[0] += took
                figures[2] += 1
                figures[3] = max(figures[3], took)
                self._calls += 1
                if self._calls % 16 == 0:
                    self._nothing()

        return timed

    def exclude(self, target: Any, *names: str) -> None:
        """Leave out what methods of a class take."""
        clock = time.perf_counter

        def without(function: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(function)
            def timed(*args: Any, **kwargs: Any) -> Any:
                began = clock()
                try:
                    return function(*args, **kwargs)
                finally:
                    self._excluded += clock() - began

            return timed

        for name in names:
            setattr(target, name, without(getattr(target, name)))
        self._inside = without(_nothing)

    def total(self) -> dict[str, float]:
        """Of all methods: seconds in first calls, in other calls, and the longest call."""
        nothing = self.methods.pop(f"{__name__}.Clock._inner")
        own = nothing[0] / nothing[2] if nothing[2] else 0.0
        found = [figures for figures in self.methods.values() if figures[2]]
        first = sum(one[1] for one in found)
        others = sum(one[0] - own * one[2] for one in found) - first
        return {"first": first, "others": others, "longest": max(one[3] for one in found)}


def _nothing() -> None:
    pass


clock = Clock()


def small_training(step_done: Callable[[int, dict[str, float]], None], steps: int = STEPS) -> None:
    """A loop in plain PyTorch: updates of a small network, ten scalars each."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    inputs = torch.randn(256, 64)
    wanted = inputs.sum(1, keepdim=True)
    for step in range(steps):
        for _ in range(EPOCHS):
            loss = (model(inputs) - wanted).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        value = loss.item()
        step_done(step, {f"loss/{name}": value + place for place, name in enumerate("abcdefghij")})


class InTurns:
    """Two writers: the scalars of one step go to the first, those of the next to the second, and so on."""

    def __init__(self, ours: Callable[[str], Any], theirs: Callable[[str], Any], folder: str) -> None:
        self._writers = [ours(folder), theirs(f"{folder}-theirs")]
        self._step: object = None

    def add_scalar(self, tag: str, value: object, step: object) -> None:
        if step != self._step:
            self._step = step
            self._writers.reverse()
        self._writers[0].add_scalar(tag, value, step)

    def add_text(self, tag: str, text: str) -> None:
        for writer in self._writers:
            writer.add_text(tag, text)

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


def tensorboard(who: str) -> str:
    """CleanRL's script."""
    from torch.utils.tensorboard import SummaryWriter as Theirs

    from rla_client.integrations import tensorboard as ours

    clock.watch(*ours.SummaryWriter.__mro__[:-1] if who != "own" else (), *(Theirs,) if who != "ours" else ())
    if who != "ours":
        written_by = Theirs if who == "own" else functools.partial(InTurns, ours.SummaryWriter, Theirs)
        setattr(ours, "SummaryWriter", written_by)  # noqa: B010 - what the script imports
    sys.argv = ["cleanrl_ppo.py", "--total-timesteps", "100000"]
    runpy.run_path(str(REPOSITORY / "examples" / "cleanrl_ppo.py"), run_name="__main__")
    return "torch's SummaryWriter"


def wandb(who: str) -> str:
    """wandb's calls, to its own module offline or to ours."""
    module: Any
    if who == "ours":
        import rla_client.integrations.wandb as module
        from rla_client.integrations.wandb.run_object import Run

        clock.watch(Run, names=("log", "finish"))
    else:
        module = importlib.import_module("wandb")
        clock.watch(module.Run, names=("log", "finish"))
    clock.watch(module, names=("init",))
    run = module.init(project="bench", mode="online" if who == "ours" else "offline", config={"lr": 1e-3})
    small_training(lambda step, row: run.log(row, step=step))
    run.finish()
    return "wandb, offline"


def sb3(who: str) -> str:
    """PPO on CartPole with a checkpoint each 10,000 steps."""
    from stable_baselines3 import PPO
    from stable_baselines3.common import logger as theirs
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback

    from rla_client.integrations import sb3 as ours

    model = PPO("MlpPolicy", "CartPole-v1", seed=1, device="cpu")
    callback: BaseCallback
    # what both do at each step of the environment, which is nothing, would be lost in the clock's own time
    if who == "ours":
        inside = ("_init_callback", "_on_training_start", "_on_rollout_start", "_on_training_end")
        clock.watch(ours.RLACallback, names=inside)
        clock.watch(ours.RLAOutputFormat)
        callback = ours.RLACallback(10_000)
    else:
        clock.watch(theirs.CSVOutputFormat, theirs.TensorBoardOutputFormat)
        clock.watch(CheckpointCallback, names=("_init_callback",))
        clock.watch(BaseAlgorithm, names=("save",))
        model.set_logger(theirs.configure("theirs", ["csv", "tensorboard"]))
        callback = CheckpointCallback(10_000, "theirs")
    model.learn(60_000, callback=callback)
    return "CSV and TensorBoard outputs, CheckpointCallback"


def gymnasium(who: str) -> str:
    """REINFORCE on CartPole, each 100th episode filmed."""
    import gymnasium as gym
    import torch
    from gymnasium.wrappers import RecordEpisodeStatistics, RecordVideo

    from rla_client.integrations.gymnasium import EpisodeRecorder

    importlib.import_module("moviepy")  # RecordVideo needs it
    torch.manual_seed(0)
    policy = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    made = gym.make("CartPole-v1", render_mode="rgb_array")
    clock.exclude(type(made), "reset", "step", "render")
    env: Any
    if who == "ours":
        clock.watch(EpisodeRecorder)
        env = EpisodeRecorder(made, video_every=100)
    else:
        clock.watch(RecordVideo, names=("__init__", "reset", "step", "close"))
        statistics = RecordEpisodeStatistics(made)
        env = RecordVideo(statistics, "theirs", episode_trigger=lambda n: n % 100 == 0)
    for episode in range(300):
        seen, _ = env.reset(seed=episode)
        chances, ended = [], False
        while not ended:
            choice = torch.distributions.Categorical(logits=policy(torch.from_numpy(seen)))
            action = choice.sample()
            chances.append(choice.log_prob(action))
            seen, _, terminated, truncated, _ = env.step(int(action))
            ended = terminated or truncated
        worth = torch.arange(len(chances), 0, -1.0)
        loss = -(torch.stack(chances) * (worth - worth.mean()) / (worth.std() + 1e-6)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    env.close()
    return "RecordVideo and RecordEpisodeStatistics, which write no rows"


def rsl_rl(who: str) -> str:
    """Its own runner on a small vectorised environment."""
    sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY / "tests" / "client" / "integrations")]
    training = importlib.import_module("test_rsl_rl").TRAINING
    for old, now in (
        ('"num_steps_per_env": 8', '"num_steps_per_env": 64'),
        ('"num_learning_epochs": 1', '"num_learning_epochs": 5'),
        ('"save_interval": 2', '"save_interval": 100'),
        (".learn(4)", ".learn(300)"),
    ):
        assert old in training
        training = training.replace(old, now)
    scope: dict[str, Any] = {"__name__": "training"}
    exec(compile(training, "training", "exec"), scope)  # of our own test
    if who == "ours":
        from rla_client.integrations.rsl_rl import RLALogWriter

        clock.watch(RLALogWriter)
        scope["train"]({"class_name": RLALogWriter}, "logs/walk/1")
    else:
        from torch.utils.tensorboard import SummaryWriter

        clock.watch(SummaryWriter)
        scope["train"]("tensorboard", "logs/walk/1")
    return "TensorBoard, its default"


def torchrl(who: str) -> str:
    """Its loggers, in a loop of ours."""
    from torchrl.record.loggers import CSVLogger, TensorboardLogger

    from rla_client.integrations.torchrl import RLALogger

    loggers: list[Any]
    if who == "ours":
        clock.watch(RLALogger)
        loggers = [RLALogger("bench", config={"lr": 1e-3})]
    else:
        clock.watch(CSVLogger, TensorboardLogger)
        loggers = [CSVLogger("theirs", "csv"), TensorboardLogger("theirs", "tb")]

    def log(step: int, row: dict[str, float]) -> None:
        for logger in loggers:
            for key, value in row.items():
                logger.log_scalar(key, value, step=step)

    small_training(log)
    (loggers[0].close if who == "ours" else loggers[1].experiment.close)()
    return "CSVLogger and TensorboardLogger"


def accelerate(who: str) -> str:
    """An Accelerator's trackers."""
    from accelerate import Accelerator
    from accelerate.tracking import TensorBoardTracker

    from rla_client.integrations.accelerate import RLATracker

    clock.watch(RLATracker if who == "ours" else TensorBoardTracker)
    tracker = RLATracker("bench") if who == "ours" else "tensorboard"
    accelerator = Accelerator(log_with=tracker, project_dir="theirs", cpu=True)
    accelerator.init_trackers("x", config={"lr": 1e-3})
    small_training(lambda step, row: accelerator.log(row, step=step))
    accelerator.end_training()
    return "TensorBoardTracker"


def transformers(who: str) -> str:
    """Hugging Face's Trainer on a small BERT, a row each five steps."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
    from transformers.integrations import TensorBoardCallback

    from rla_client.integrations.transformers import RLACallback

    torch.manual_seed(0)
    shape = {"vocab_size": 50, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = BertForSequenceClassification(BertConfig(**shape, intermediate_size=256))
    data = [{"input_ids": torch.tensor([1, 2, n % 50]), "labels": torch.tensor(n % 2)} for n in range(512)]
    arguments = TrainingArguments(
        "out", max_steps=1500, logging_steps=5, save_steps=500, per_device_train_batch_size=16,
        report_to="none", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    clock.watch(RLACallback if who == "ours" else TensorBoardCallback)
    callback = RLACallback("bench") if who == "ours" else TensorBoardCallback()
    Trainer(model, arguments, train_dataset=data, callbacks=[callback]).train()
    return "TensorBoardCallback"


def lightning(who: str) -> str:
    """Lightning's Trainer, a row each five steps."""
    import lightning as library
    import torch
    from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

    from rla_client.integrations.lightning import RLALogger

    class Module(library.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 1))

        def training_step(self, batch: Any, index: int) -> Any:
            del index
            loss = (self.net(batch) - batch.sum(1, keepdim=True)).pow(2).mean()
            self.log("train/loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    loggers: list[Any]
    if who == "ours":
        clock.watch(RLALogger)
        clock.watch(RLALogger, names=("_open",))
        loggers = [RLALogger("bench")]
    else:  # lightning.fabric's loggers do the work
        clock.watch(CSVLogger, TensorBoardLogger, CSVLogger.__mro__[2], TensorBoardLogger.__mro__[2])
        loggers = [CSVLogger("theirs"), TensorBoardLogger("theirs")]
    data = torch.utils.data.DataLoader(torch.randn(40960, 64), batch_size=128)
    library.Trainer(
        logger=loggers, max_epochs=10, log_every_n_steps=5, accelerator="cpu", enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False,
    ).fit(Module(), data)  # fmt: skip
    return "CSVLogger and TensorBoardLogger"


def optuna(who: str) -> str:
    """A study; each trial trains and reports."""
    import optuna as library
    from optuna_integration import WeightsAndBiasesCallback

    from rla_client.integrations.optuna import RLACallback

    library.logging.set_verbosity(library.logging.WARNING)

    def objective(trial: Any) -> float:
        trial.suggest_float("lr", 1e-4, 1e-1, log=True)
        reported = [0.0]
        small_training(lambda _, row: reported.append(row["loss/a"]), steps=200)
        for step, value in enumerate(reported):
            trial.report(value, step)
        return reported[-1]

    clock.watch(RLACallback if who == "ours" else WeightsAndBiasesCallback)
    wandb_options = {"mode": "offline", "project": "bench"}
    callback = (
        RLACallback("bench")
        if who == "ours"
        else WeightsAndBiasesCallback("loss", wandb_options, as_multirun=True)
    )
    study = library.create_study(sampler=library.samplers.RandomSampler(0))
    study.optimize(objective, n_trials=6, callbacks=[callback])
    return "WeightsAndBiasesCallback, offline"


def dowel(who: str) -> str:
    """garage's logger package."""
    import dowel as library
    from dowel import CsvOutput, TensorBoardOutput

    from rla_client.integrations.dowel import RLAOutput

    if who == "ours":
        clock.watch(RLAOutput)
        library.logger.add_output(RLAOutput("bench"))
    else:
        clock.watch(CsvOutput, CsvOutput.__mro__[1], TensorBoardOutput)
        library.logger.add_output(CsvOutput("theirs.csv"))
        library.logger.add_output(TensorBoardOutput("theirs"))

    def log(step: int, row: dict[str, float]) -> None:
        for key, value in row.items():
            library.tabular.record(key, value)
        library.logger.log(library.tabular)
        library.logger.dump_all(step)
        library.tabular.clear()

    small_training(log)
    library.logger.remove_all()
    return "CsvOutput and TensorBoardOutput"


def tune(who: str) -> str:
    """Ray Tune's driver with four trials of 250 results."""
    import ray
    from ray import tune as library
    from ray.tune.logger import CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback

    from rla_client.integrations.tune import RLACallback

    def train(config: dict[str, float]) -> None:
        for step in range(250):
            time.sleep(0.02)
            library.report({"loss": config["lr"] / (step + 1), "step": step})

    callbacks: list[Any] = []
    if who == "ours":
        os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
        clock.watch(RLACallback)
        callbacks = [RLACallback()]
    else:  # which Tune adds by itself
        clock.watch(CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback)
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False)
    library.Tuner(
        train,
        param_space={"lr": library.grid_search([0.1, 0.2, 0.3, 0.4])},
        run_config=library.RunConfig(
            name="bench", storage_path=os.path.abspath("results"), verbose=0, callbacks=callbacks
        ),
    ).fit()
    ray.shutdown()
    return "its CSV, JSON and TensorBoard callbacks"


LIBRARIES = {
    case.__name__: case
    for case in (
        tensorboard, wandb, sb3, gymnasium, rsl_rl, torchrl, accelerate, transformers, lightning, optuna,
        dowel, tune,
    )
}  # fmt: skip


def client(name: str, who: str) -> None:
    """One training; its figures go to `figures.json`."""
    began = time.perf_counter()
    title = LIBRARIES[name](who)
    seconds = time.perf_counter() - began
    methods = {method: figures for method, figures in clock.methods.items() if figures[2]}
    figures = {"seconds": seconds, "title": title, "methods": methods, **clock.total()}
    Path("figures.json").write_text(json.dumps(figures))


def run(name: str, who: str) -> dict[str, Any] | str:
    """The figures of one training in a process and folder of its own, or what is missing for it."""
    with Stage(CONFIG) as stage:
        if who != "own":
            stage.agent()
        folder = stage.folder / "work"
        folder.mkdir()
        (folder / "rla_config.yaml").write_text(CONFIG)
        command = [sys.executable, str(Path(__file__).resolve()), "--client", name, "--who", who]
        environment = stage.environment | {"RLA_DATA_ROOT": str(stage.data), "WANDB_SILENT": "true"}
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if missing := re.search(r"(?:No module named|needs) '?([\w.]+)", done.stderr):
            return missing[1]
        if done.returncode:
            raise RuntimeError(f"{name}:\n{done.stderr[-3000:]}")
        found: dict[str, Any] = json.loads((folder / "figures.json").read_text())
        return found


def in_turns(name: str) -> float:
    """What the library's own takes beside ours, in one training that gives to both."""
    figures = run(name, "turns")
    assert not isinstance(figures, str), figures
    seconds = {True: 0.0, False: 0.0}
    for method, (all_calls, first, _calls, _longest) in figures["methods"].items():
        if method.endswith("SummaryWriter.add_scalar"):
            seconds[method.startswith("rla_client.")] += all_calls - first
    return seconds[False] / seconds[True]


def report(name: str, *, detail: bool) -> None:
    """Measure one library and print its row."""
    ours, own = run(name, "ours"), run(name, "own")
    if isinstance(ours, str) or isinstance(own, str):
        print(f"| {name} | left out: needs {ours if isinstance(ours, str) else own} |", flush=True)
        return
    share = 100 * (ours["first"] + ours["others"]) / ours["seconds"]
    beside = in_turns(name) if name in IN_TURNS else own["others"] / ours["others"]
    print(
        f"| {name} | {ours['seconds']:.1f} | {share:.2f} % | {ours['first'] * 1e3:.0f} + "
        f"{ours['others'] * 1e3:.0f} | {ours['longest'] * 1e3:.0f} | {own['first'] * 1e3:.0f} + "
        f"{own['others'] * 1e3:.0f} | {beside:.1f} x | {own['title']} |"
        f"{'' if share <= GOAL and beside > 1 else '  <- beyond the goal'}",
        flush=True,
    )
    if detail:
        for who, figures in (("ours", ours), ("own", own)):
            for method, (seconds, first, calls, most) in figures["methods"].items():
                print(
                    f"    {who}: {method}: {calls:.0f} calls, {seconds * 1e3:.1f} ms, "
                    f"the first {first * 1e3:.2f} ms, the longest {most * 1e3:.2f} ms"
                )


def main() -> None:
    """Measure all, or those named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="libraries, with commas between")
    parser.add_argument("--detail", action="store_true", help="each method")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--who", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.client:
        client(chosen.client, chosen.who)
        return
    columns = (
        *("library", "run, s", "inside ours", "ours, ms: first calls + others", "longest call, ms"),
        *("its own, ms", "its others beside ours", "its own"),
    )
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|", flush=True)
    for name in chosen.only.split(",") if chosen.only else LIBRARIES:
        report(name, detail=chosen.detail)


if __name__ == "__main__":
    main()

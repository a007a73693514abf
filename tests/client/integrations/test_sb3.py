"""stable-baselines3 itself, logging through us: its own keys and values, runs that go on exactly."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest
from support.user_scripts import COUNTER_ENV, Scripts, read_scalars

pytest.importorskip("stable_baselines3", reason="needs stable-baselines3")

further = pytest.mark.further
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "sb3_ppo.py"
OWN_LOGGER = """
from stable_baselines3.common.logger import CSVOutputFormat
from stable_baselines3.common.callbacks import BaseCallback
class Beside(BaseCallback):
    def _on_training_start(self):
        self.logger.output_formats.append(CSVOutputFormat("theirs.csv"))
        self.logger.record("some/text", 'with "quotes", and more')
        self.logger.record("hidden/there", 3, exclude="csv")
    def _on_step(self):
        return True
"""
TRAIN = """
import sys
import numpy as np
import torch
from stable_baselines3 import PPO, SAC, DQN, HerReplayBuffer
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecMonitor, VecNormalize
from stable_baselines3.common.callbacks import BaseCallback
from rla_client.integrations.sb3 import RLACallback

kind, total, kill_at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

class Kill(BaseCallback):
    def _on_step(self):
        if self.num_timesteps >= kill_at:
            import os, signal
            os.kill(os.getpid(), signal.SIGKILL)
        return True

torch.set_num_threads(1)
name = "Pendulum-v1" if kind in ("sac", "gsde") else "CartPole-v1"
if kind == "her":
    name = lambda: BitFlippingEnv(4, continuous=False)
envs = VecMonitor(make_vec_env(name, n_envs=1 if kind in ("dqn", "her") else 2, seed=5), "log")
if kind not in ("dqn", "her"):
    envs = VecNormalize(envs)
if kind == "ppo":
    model = PPO(
        "MlpPolicy", envs, seed=5, n_steps=64, batch_size=32, n_epochs=2, device="cpu",
        clip_range=lambda left: 0.1 + left / 10,
    )
elif kind == "gsde":
    model = PPO(
        "MlpPolicy", envs, seed=5, n_steps=64, batch_size=32, n_epochs=2, device="cpu",
        use_sde=True, sde_sample_freq=4,
    )
elif kind == "recurrent":
    from sb3_contrib import RecurrentPPO
    model = RecurrentPPO("MlpLstmPolicy", envs, seed=5, n_steps=64, batch_size=32, n_epochs=2, device="cpu")
elif kind == "sac":
    model = SAC("MlpPolicy", envs, seed=5, learning_starts=100, batch_size=16, buffer_size=300, device="cpu")
elif kind == "her":
    model = DQN(
        "MultiInputPolicy", envs, seed=5, learning_starts=100, batch_size=16, buffer_size=1000, device="cpu",
        replay_buffer_class=HerReplayBuffer,
    )
else:
    model = DQN(
        "MlpPolicy", envs, seed=5, learning_starts=100, batch_size=16, buffer_size=1000, device="cpu",
        target_update_interval=64, optimize_memory_usage=True,
        replay_buffer_kwargs={"handle_timeout_termination": False},
    )
callbacks = [RLACallback(save_freq=150)] + ([Kill()] if kill_at else [])
model.learn(total, callback=callbacks, log_interval=1)
torch.save([model.get_parameters(), dict(vars(getattr(envs, "obs_rms", model.action_space)))], "end.pt")
"""
KILL = """
import os, signal
from stable_baselines3.common.callbacks import BaseCallback
class Kill(BaseCallback):
    "After so many steps, whatever is counted anew."
    steps = 0
    def __init__(self, at=0):
        super().__init__()
        self._at = int(os.environ.get("KILL_AT", at))
    def _on_step(self):
        Kill.steps += self.training_env.num_envs
        if Kill.steps >= self._at > 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return True
"""
BESIDE = f"""
import sys
import gymnasium
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import (
    CallbackList, CheckpointCallback, EvalCallback, EveryNTimesteps, StopTrainingOnMaxEpisodes,
    StopTrainingOnNoModelImprovement,
)
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize
from rla_client.integrations.sb3 import RLACallback
{KILL}
torch.set_num_threads(1)
doubled = lambda env: gymnasium.wrappers.TransformReward(env, lambda reward: 2 * reward)
envs = VecNormalize(make_vec_env("CartPole-v1", 2, seed=5, monitor_dir="monitors", wrapper_class=doubled))
judge = VecNormalize(make_vec_env("CartPole-v1", 1, seed=9), training=False, norm_reward=False)
patience = StopTrainingOnNoModelImprovement(50, min_evals=2)
judging = EvalCallback(
    judge, callback_after_eval=patience, eval_freq=40, n_eval_episodes=2, verbose=0, log_path="best",
    best_model_save_path="best",
)
counting = StopTrainingOnMaxEpisodes(1000)
nested = CallbackList([counting, EveryNTimesteps(100, CheckpointCallback(1, "every"))])
model = PPO("MlpPolicy", envs, seed=5, n_steps=64, batch_size=32, n_epochs=2, device="cpu")
model.learn(1100, callback=[judging, nested, RLACallback(150), Kill(int(sys.argv[1]))], log_interval=3)
found = [judging.best_mean_reward, judging.last_mean_reward, judging.n_calls, counting.n_episodes]
found += [judging.evaluations_results, patience.no_improvement_evals, patience.last_best_mean_reward]
torch.save([model.get_parameters(), vars(envs.obs_rms), found], "end.pt")
"""
LEARNS = f"""
import copy
import sys
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from rla_client.integrations.sb3 import RLACallback
{KILL}
torch.set_num_threads(1)
resets = sys.argv[1] == "stages"
model = PPO(
    "MlpPolicy", make_vec_env("CartPole-v1", 2, seed=5), seed=5, n_steps=64, batch_size=32, n_epochs=2,
    device="cpu",
)
found = []
for _ in range(3):
    callback = [RLACallback(150), Kill(int(sys.argv[2]))]
    model.learn(256, callback=callback, log_interval=1, reset_num_timesteps=resets)
    found += [model.num_timesteps, model._n_updates, copy.deepcopy(model.get_parameters())]
torch.save(found, "end.pt")
"""
CLOCKS = {"time/fps", "time/time_elapsed", "timestamp"}


@pytest.mark.slow
def test_the_rows_are_those_of_sb3s_own_csv(scripts: Scripts) -> None:
    source = EXAMPLE.read_text()
    call = re.search(r"callback=(RLACallback\(.*\))\)", source)
    assert call is not None
    done = scripts.run(
        OWN_LOGGER
        + source.replace(call[1], f"[{call[1]}, Beside()]").replace("from __future__ import annotations", ""),
        *("--timesteps", "6000", "--seed", "3"),
    )
    assert "rollout/" in done.stdout
    (run,) = scripts.runs()
    with (scripts.folder / "theirs.csv").open(newline="") as file:
        theirs = [{key: cell for key, cell in row.items() if cell} for row in csv.DictReader(file)]
    ours = run.rows()
    assert len(theirs) == 3
    assert [
        {key: cell for key, cell in row.items() if key not in {"time-step", "timestamp"}} for row in ours
    ] == theirs
    assert [row["time-step"] for row in ours] == [row["time/total_timesteps"] for row in theirs]
    assert run.table == "CartPole-v1-PPO"
    assert "&seed=3" in run.log.name
    scalars = run.scalars()
    assert scalars["hidden/there"] == [(2048, 3.0)]
    assert [step for step, _ in scalars["train/loss"]] == [4096, 6144]
    assert {"env_id": "CartPole-v1", "learning_rate": 0.0003, "clip_range": 0.2, "n_steps": 2048}.items() <= (
        run.parameters.items()
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "kill_at"),
    [
        ("ppo", 490),
        *(pytest.param(kind, 490, marks=further) for kind in ("gsde", "recurrent", "sac", "dqn", "her")),
        pytest.param("ppo", 140, marks=further),  # there is no checkpoint at 140
    ],
)
def test_a_killed_run_goes_on_exactly(scripts: Scripts, kind: str, kill_at: int) -> None:
    if kind == "recurrent":
        pytest.importorskip("sb3_contrib", reason="needs sb3-contrib")
    goes_on_exactly(scripts, TRAIN, [kind, "640", "0"], [kind, "640", str(kill_at)])


@further
@pytest.mark.slow
def test_callbacks_go_on_with_monitor_files_and_lambdas_around_the_environments(scripts: Scripts) -> None:
    goes_on_exactly(scripts, BESIDE, ["0"], ["500"], ["350"])


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "kill_at"), [pytest.param("stages", "400", marks=further), ("loop", "700")])
def test_a_script_that_learns_several_times_goes_on_in_the_right_one(
    scripts: Scripts, kind: str, kill_at: str
) -> None:
    output = goes_on_exactly(scripts, LEARNS, [kind, "0"], [kind, kill_at])
    assert output.count("it trains nothing now") == (1 if kind == "stages" else 2)


def goes_on_exactly(scripts: Scripts, source: str, whole: list[str], *killed: list[str]) -> str:
    """A script that is killed and started again ends as it does at once; what its last start printed."""
    import torch

    scripts.run(source, *whole)
    expected = torch.load(scripts.folder / "end.pt", weights_only=False)
    (scripts.folder / "end.pt").unlink()
    again: dict[str, Any] = {"RLA_RUN_ID": "one", "RLA_RESUME": "allow"}
    for arguments in killed:
        assert scripts.run(source, *arguments, fails=True, **again).returncode == -9
    done = scripts.run(source, *whole, **again)
    found = torch.load(scripts.folder / "end.pt", weights_only=False)
    assert flat(found) == flat(expected)
    first, second = (
        [{key: cell for key, cell in row.items() if key not in CLOCKS} for row in run.rows()]
        for run in scripts.runs(2)
    )
    assert first == second
    assert len(first) > 1
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.further
def test_statistics_stay_where_environments_are_in_other_processes(scripts: Scripts) -> None:
    source = f"""
import sys
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv, VecNormalize
from rla_client.integrations.sb3 import RLACallback
{KILL}
if __name__ == "__main__":
    envs = VecNormalize(make_vec_env("CartPole-v1", 2, seed=5, vec_env_cls=SubprocVecEnv))
    model = PPO("MlpPolicy", envs, seed=5, n_steps=64, batch_size=32, n_epochs=1, device="cpu")
    model.learn(640, callback=[RLACallback(128), Kill(int(sys.argv[1]))])
    print("counted", round(envs.obs_rms.count), envs.returns.shape)
"""
    again: dict[str, Any] = {"RLA_RUN_ID": "one", "RLA_RESUME": "allow"}
    assert scripts.run(source, "500", fails=True, **again).returncode == -9
    done = scripts.run(source, "0", **again)
    assert "counted 644 (2,)" in done.stdout  # 640 and two beginnings
    assert "they begin a new episode" in done.stdout
    scripts.runs()


def flat(value: object) -> object:
    if hasattr(value, "detach"):
        return value.detach().numpy().tobytes()
    if isinstance(value, dict):
        return {key: flat(entry) for key, entry in value.items() if key != "_np_random"}
    if isinstance(value, (list, tuple)):
        return [flat(entry) for entry in value]
    return repr(value)


@pytest.mark.slow
def test_media_text_and_parameters_of_sb3s_logger(scripts: Scripts) -> None:
    scripts.run("""
import numpy as np, torch
from matplotlib.figure import Figure as MplFigure
from stable_baselines3 import A2C
from stable_baselines3.common.logger import CSVOutputFormat, Figure, HParam, Image, Video
import rla_client
from rla_client.integrations.sb3 import configure_sb3
rla_client.init("mine", config={"lr": 1})
model = A2C("MlpPolicy", "CartPole-v1", device="cpu")
assert configure_sb3(model).run is rla_client.exp_manager.run
log = model.logger
log.record("a/number", np.float32(0.1))
log.record("a/one", torch.tensor([2.5]))
log.record("a/text", "words", exclude="csv")
for key, value in {
    "array": np.arange(5.0), "list": [1, 2], "words": np.array(["x", "y"]), "none": None, "dict": {"b": 1},
    "gaps": torch.tensor([1.0, float("nan")]), "half": torch.ones(3, dtype=torch.bfloat16),
    "empty": np.zeros(0),
}.items():
    log.record(f"a/{key}", value)
    CSVOutputFormat(f"{key}.theirs").write({key: value}, {key: None})
log.record("film", Video(torch.zeros(1, 3, 3, 8, 8, dtype=torch.uint8), fps=4), exclude="csv")
log.record("figure", Figure(MplFigure(), close=True))
log.record("image", Image(np.zeros((4, 4, 3), dtype=np.uint8), "HWC"))
log.record("hparams", HParam({"gamma": 0.5}, {"a/number": 0.0}))  # names a metric, and is no value of it
log.dump(70)
""")
    (run,) = scripts.runs()
    (row,) = run.rows()
    assert (row["a/number"], row["a/one"], row["time-step"]) == ("0.1", "2.5", "70")
    assert "a/text" not in row
    with (run.log / "progress.csv").open(newline="") as file:
        (cells,) = csv.DictReader(file)
    theirs = {path.stem: path.read_text().split("\n")[1] for path in scripts.folder.glob("*.theirs")}
    assert {key: cells[f"a/{key}"] for key in theirs} == theirs
    assert run.parameters["gamma"] == 0.5
    assert run.parameters["algo"] == "A2C"
    import numpy as np
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.log / "tb" / "events")).Reload()
    tags = events.Tags()
    assert {"film", "figure", "image"} <= set(tags["images"])
    assert set(tags["histograms"]) == {"a/array", "a/gaps", "a/half"}
    assert events.SummaryMetadata("_hparams_/experiment").plugin_data.plugin_name == "hparams"
    assert [event.value for event in events.Scalars("a/number")] == [float(np.float32(0.1))]
    assert "a/text/text_summary" in tags["tensors"]


@further
@pytest.mark.slow
def test_films_and_environments_that_cannot_be_kept(scripts: Scripts) -> None:
    import torch

    source = f"""{COUNTER_ENV}
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv
from rla_client.integrations.sb3 import RLACallback
if __name__ == "__main__":
    envs = make_vec_env(Counter, 2, vec_env_cls=SubprocVecEnv)
    model = PPO("MlpPolicy", envs, n_steps=32, batch_size=32, n_epochs=1, device="cpu")
    filmed = Counter()
    callback = RLACallback(64, video_freq=64, video_env=filmed, video_length=5)
    model.learn(192, callback=callback)
    assert filmed.episode == 2
    model.learn(64, callback=callback)  # its steps begin anew
    assert filmed.episode == 3
"""
    scripts.run(source, RLA_RUN_ID="one", RLA_RESUME="allow")
    (run,) = scripts.runs()
    films = sorted(path.name for path in run.folder("results").rglob("*episode*"))
    assert films == ["0-episode.mp4", "128-episode.mp4", "64-episode.mp4"]
    assert run.table == "environment-PPO"
    checkpoint = torch.load(run.folder("checkpoint") / "checkpoint_192.pt", weights_only=False)
    assert checkpoint["environments"] == [None]


@pytest.mark.further
@pytest.mark.slow
def test_environments_that_cannot_be_kept_do_not_stop_the_training(scripts: Scripts) -> None:
    import torch

    done = scripts.run(f"""{COUNTER_ENV}
from stable_baselines3 import A2C
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor
from rla_client.integrations.sb3 import RLACallback
class Endless(Counter):
    def __init__(self):
        self.numbers = (number for number in range(10))
envs = DummyVecEnv([Endless])
envs = VecMonitor(envs)
envs.trigger = lambda step: False  # as VecVideoRecorder has it
A2C("MlpPolicy", envs, device="cpu").learn(20, callback=RLACallback(10))
""")
    assert "the environments cannot be part of checkpoints" in done.stdout
    (run,) = scripts.runs()
    kept = torch.load(run.folder("checkpoint") / "checkpoint_20.pt", weights_only=False)["environments"]
    assert kept[1] is None
    assert "episode_count" in kept[0]
    assert "trigger" not in kept[0]


def test_a_video_env_that_does_not_render_is_refused() -> None:
    from rla_client.contract.errors import ArgumentError
    from rla_client.integrations.sb3 import RLACallback

    with pytest.raises(ArgumentError, match="render_mode='rgb_array'"):
        RLACallback(video_freq=10)


@pytest.mark.further
@pytest.mark.slow
def test_a_second_model_and_a_logger_of_the_users_own(scripts: Scripts) -> None:
    scripts.run("""
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.logger import configure
from rla_client.integrations.sb3 import RLACallback
first = PPO("MlpPolicy", "CartPole-v1", n_steps=64, device="cpu", seed=1)
first.set_logger(configure("mine", ["csv"]))
first.learn(128, callback=RLACallback())
second = A2C("MlpPolicy", "CartPole-v1", device="cpu", seed=2)
second.learn(500, callback=RLACallback(), log_interval=50)
""")
    first, second = scripts.runs(2)
    assert (first.table, second.table) == ("CartPole-v1-PPO", "CartPole-v1-A2C")
    assert (first.parameters["seed"], second.parameters["seed"]) == (1, 2)
    with (scripts.folder / "mine" / "progress.csv").open(newline="") as file:
        theirs = list(csv.DictReader(file))
    assert [row["time/total_timesteps"] for row in theirs] == ["64", "128"]
    assert [row["time-step"] for row in first.rows()] == ["64", "128"]
    assert len(second.rows()) == 2


@further
@pytest.mark.slow
def test_loggers_that_learn_makes_and_a_format_of_ones_own(scripts: Scripts) -> None:
    scripts.run("""
from stable_baselines3 import A2C
from stable_baselines3.common.logger import Logger
from rla_client.integrations.sb3 import RLAOutputFormat, configure_sb3
model = A2C("MlpPolicy", "CartPole-v1", device="cpu", tensorboard_log="tb")
configure_sb3(model)
model.learn(50, log_interval=10)
later = A2C("MlpPolicy", "CartPole-v1", device="cpu")
later.learn(50)
configure_sb3(later)
later.learn(50, log_interval=10, reset_num_timesteps=False)
for one in (later, model):
    configure_sb3(one).close()
alone = A2C("MlpPolicy", "CartPole-v1", device="cpu")
alone.set_logger(Logger(None, [RLAOutputFormat()]))
alone.learn(50, log_interval=10)
""")
    first, later, alone = scripts.runs(3)
    steps = [[row["time-step"] for row in run.rows()] for run in (first, later, alone)]
    assert steps == [["50"], ["100"], ["50"]]
    assert [step for step, _ in read_scalars(scripts.folder / "tb" / "A2C_1")["time/fps"]] == [50]
    assert alone.table == "script"


@pytest.mark.further
@pytest.mark.slow
@pytest.mark.parametrize(
    "ends", ["exp_manager.close()", pytest.param("configure_sb3(later).close()", marks=further)]
)
def test_formats_of_ones_own_do_not_join_the_run_of_another_model(scripts: Scripts, ends: str) -> None:
    done = scripts.run(f"""
from stable_baselines3 import A2C
from stable_baselines3.common.logger import Logger
from rla_client import exp_manager
from rla_client.integrations.sb3 import RLACallback, RLAOutputFormat, configure_sb3
def made(seed):
    return A2C("MlpPolicy", "CartPole-v1", device="cpu", seed=seed)
model, later = made(0), made(1)
for one in (model, later):
    configure_sb3(one)
    one.learn(50, log_interval=10)
{ends}
alone, another = made(2), made(3)
for one in (alone, another):
    one.set_logger(Logger(None, [RLAOutputFormat()]))
for _ in range(2):
    alone.learn(50, log_interval=10, reset_num_timesteps=False)
    another.learn(100, log_interval=10)
model.set_logger(Logger(None, [RLAOutputFormat()]))  # of the model, and so of its run
model.learn(50, log_interval=10, reset_num_timesteps=False)
later.learn(50, callback=RLACallback(10), log_interval=10)
rows = configure_sb3(later).run.logger.last_row
configure_sb3(later).close()
later.learn(50, log_interval=10)  # its run has ended, and those of others are none of its business
""")
    runs = scripts.runs(5)
    assert [run.table for run in runs] == ["CartPole-v1-A2C"] * 2 + ["script"] * 2 + ["CartPole-v1-A2C"]
    steps = [[row["time-step"] for row in run.rows()] for run in runs]
    assert steps == [["50", "100"], ["50"], ["50", "100"], ["50", "100"] * 2, ["50"]]
    assert (done.stdout + done.stderr).count("has ended, and the one that is open is another") == 1


@pytest.mark.further
@pytest.mark.slow
def test_a_run_that_is_closed_within_a_training_does_not_end_it(scripts: Scripts) -> None:
    done = scripts.run("""
from stable_baselines3 import A2C
from stable_baselines3.common.callbacks import BaseCallback
from rla_client import exp_manager
from rla_client.integrations.sb3 import RLACallback
class Closes(BaseCallback):
    def _on_step(self):
        if self.n_calls == 30:
            exp_manager.close()
        return True
model = A2C("MlpPolicy", "CartPole-v1", device="cpu")
model.learn(100, callback=[RLACallback(10), Closes()], log_interval=5)
print("steps", model.num_timesteps)
""")
    assert "steps 100" in done.stdout
    assert (done.stdout + done.stderr).count("there is no checkpoint of 30") == 1
    (run,) = scripts.runs(1)
    assert [row["time-step"] for row in run.rows()] == ["25"]


ZOO = """
import sys
if "--track" in sys.argv:
    import rla_client.integrations.wandb
    sys.modules["wandb"] = rla_client.integrations.wandb
from rl_zoo3.train import train
train()
"""
ZOO_CONFIG = """
CartPole-v1:
  n_envs: 2
  n_timesteps: 1024
  policy: MlpPolicy
  n_steps: 64
  batch_size: 32
  n_epochs: 2
  normalize: true
"""
ZOO_CALLBACKS = """
  callback:
    - rla_client.integrations.sb3.RLACallback:
        save_freq: 200
    - killing.Kill
"""
ZOO_ARGUMENTS = [
    *("--algo", "ppo", "--env", "CartPole-v1", "-f", "logs", "--seed", "5", "--num-threads", "1"),
    *("--device", "cpu", "-conf", "zoo.yml", "--eval-freq", "300", "--eval-episodes", "2"),
    *("--save-freq", "500"),
]


@pytest.fixture
def zoo(scripts: Scripts) -> Scripts:
    """RL Zoo's files beside the script."""
    pytest.importorskip("rl_zoo3", reason="needs rl_zoo3")
    (scripts.folder / "zoo.yml").write_text(ZOO_CONFIG.rstrip() + ZOO_CALLBACKS)
    (scripts.folder / "killing.py").write_text(KILL)
    return scripts


@pytest.mark.slow
def test_rl_zoo_goes_on_exactly(zoo: Scripts) -> None:
    """Its own environments write monitor files, and its EvalCallback finds the best model."""
    import numpy as np
    from stable_baselines3 import PPO

    again: dict[str, Any] = {"RLA_RUN_ID": "one", "RLA_RESUME": "allow"}
    zoo.run(ZOO, *ZOO_ARGUMENTS)
    assert zoo.run(ZOO, *ZOO_ARGUMENTS, fails=True, KILL_AT="500", **again).returncode == -9
    zoo.run(ZOO, *ZOO_ARGUMENTS, **again)
    whole, resumed = zoo.runs(2)
    assert whole.table == "CartPole-v1-PPO"
    rows = [
        [{key: cell for key, cell in row.items() if key not in CLOCKS} for row in run.rows()]
        for run in (whole, resumed)
    ]
    assert rows[0] == rows[1]
    assert [row["time-step"] for row in rows[0] if "eval/mean_reward" in row] == ["300", "600", "900"]
    logs = zoo.folder / "logs" / "ppo"
    found = [np.load(logs / f"CartPole-v1_{number}" / "evaluations.npz") for number in (1, 3)]
    assert found[0]["results"].tolist() == found[1]["results"].tolist()
    models = [PPO.load(logs / f"CartPole-v1_{number}" / "CartPole-v1.zip", device="cpu") for number in (1, 3)]
    assert flat(models[0].get_parameters()) == flat(models[1].get_parameters())


@pytest.mark.slow
def test_rl_zoo_tracks_into_a_run(zoo: Scripts) -> None:
    (zoo.folder / "zoo.yml").write_text(ZOO_CONFIG)
    zoo.run(ZOO, *ZOO_ARGUMENTS, "--track", "-n", "300", "--wandb-tags", "mine")
    (run,) = zoo.runs()
    assert run.table == "sb3"
    assert {"algo": "ppo", "seed": 5}.items() <= run.parameters.items()
    assert run.parameters["saved_hyperparams"]["n_steps"] == 64
    steps = [int(float(row["time-step"])) for row in run.rows() if "rollout/ep_rew_mean" in row]
    assert steps == [128, 256, 384]
    assert [step for step, _ in run.scalars()["eval/mean_reward"]] == [300]


@pytest.mark.slow
def test_trials_of_rl_zoo_in_two_threads_have_a_run_each(zoo: Scripts) -> None:
    plain = "\nCartPole-v1: {n_envs: 2, n_timesteps: 300, policy: MlpPolicy, callback: CALLBACK}\n"
    (zoo.folder / "zoo.yml").write_text(plain.replace("CALLBACK", "rla_client.integrations.sb3.RLACallback"))
    options = "--algo a2c --optimize --n-trials 4 --n-jobs 2 --n-evaluations 1 --sampler random --pruner none"
    zoo.run(ZOO, *ZOO_ARGUMENTS, *options.split(), "--no-optim-plots")
    runs = zoo.runs(4)
    assert len({str(sorted(run.parameters.items())) for run in runs}) == 4
    for run in runs:
        rollout = int(run.parameters["n_steps"]) * int(run.parameters["n_envs"])
        steps = [int(row["time-step"]) for row in run.rows() if "eval/mean_reward" in row]
        assert steps == list(range(300, max(rollout, -(-300 // rollout) * rollout) + 1, 300))


TWO_MODELS = """
import threading
from stable_baselines3 import PPO
from rla_client.integrations.sb3 import RLACallback

models = [PPO("MlpPolicy", "CartPole-v1", n_steps=64, device="cpu", seed=seed) for seed in range(2)]

def learn(number, times):
    for time in range(times):
        models[number].learn(
            128 + 64 * number, callback=RLACallback(save_freq=64), log_interval=1,
            reset_num_timesteps=not models[number].num_timesteps,
        )
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        pytest.param("for number in (0, 1, 0, 1): learn(number, 1)", marks=further),
        """threads = [threading.Thread(target=learn, args=(n, 2)) for n in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()""",
    ],
    ids=["in alternation", "in threads"],
)
def test_two_models_have_runs_of_their_own(scripts: Scripts, how: str) -> None:
    scripts.run(TWO_MODELS + how)
    runs = sorted(scripts.runs(2), key=lambda run: int(run.parameters["seed"]))
    for number, run in enumerate(runs):
        steps = [64 * n for n in range(1, 5 + 2 * number)]
        assert run.parameters["seed"] == number
        assert [int(row["time-step"]) for row in run.rows()] == steps
        saved = {path.name for path in run.folder("checkpoint").glob("*.pt")}
        assert saved == {f"checkpoint_{step}.pt" for step in steps} - {"checkpoint_64.pt"} | (
            saved & {"checkpoint_64.pt"}
        )


@pytest.mark.further
@pytest.mark.slow
def test_other_callbacks_save_at_the_models_step(scripts: Scripts) -> None:
    scripts.run("""
import numpy as np
import rla_client
from rla_client import ImgRecorder
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from rla_client.integrations.sb3 import RLACallback

class Films(BaseCallback):
    def _on_step(self):
        if self.n_calls % 50 == 0:
            ImgRecorder.save("img", np.zeros((4, 4, 3), np.uint8))
        return True

rla_client.init("t")
model = PPO("MlpPolicy", "CartPole-v1", n_steps=128, device="cpu", seed=1)
model.learn(256, callback=[RLACallback(), Films()])
""")
    (run,) = scripts.runs(1)
    names = {path.name for path in run.folder("results").glob("*.png")}
    assert names == {f"{step}-img.png" for step in range(50, 256, 50)}


@pytest.mark.further
@pytest.mark.slow
def test_a_model_after_one_that_is_gone_has_a_run_of_its_own(scripts: Scripts) -> None:
    scripts.run("""
import gc
from stable_baselines3 import PPO
from rla_client.integrations.sb3 import RLACallback
for seed in range(3):
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, device="cpu", seed=seed)
    model.learn(128, callback=RLACallback(track=["seed"]))
    del model
    gc.collect()
""")
    for seed, run in enumerate(scripts.runs(3)):
        assert run.parameters["seed"] == seed
        assert [row["time-step"] for row in run.rows()] == ["64", "128"]

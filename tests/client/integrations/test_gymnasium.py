"""Environments of gymnasium whose episodes become rows, and some of them films."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.user_scripts import COUNTER_ENV, Scripts

gymnasium = pytest.importorskip("gymnasium")

EPISODES = """
from rla_client.integrations.gymnasium import record_episodes
def films(env, steps, actions):
    env.reset(5) if hasattr(env, "num_envs") else env.reset()
    for _ in range(steps):
        found = env.step(actions)
        assert "rla_episode" not in found[4], found
        if not hasattr(env, "num_envs") and (found[2] or found[3]):
            env.reset()
    env.close()
"""


def frames_of(path: Any) -> list[int]:
    """The shade of each frame."""
    import imageio_ffmpeg
    import numpy as np

    reader = imageio_ffmpeg.read_frames(str(path), pix_fmt="gray", bits_per_pixel=8)
    next(reader)
    return [round(float(np.frombuffer(frame, np.uint8).mean())) for frame in reader]


def episodes(run: Any) -> list[tuple[float, ...]]:
    """Time-step, return and length of each row."""
    names = ("time-step", "episode/return", "episode/length")
    return [tuple(float(row[name]) for name in names) for row in run.rows() if "episode/length" in row]


@pytest.mark.slow
def test_a_single_environment(scripts: Scripts) -> None:
    scripts.run(
        COUNTER_ENV
        + EPISODES
        + """
env = record_episodes(gymnasium.wrappers.RecordEpisodeStatistics(Counter()), video_every=2)
films(env, 14, 0)
"""
    )
    (run,) = scripts.runs()
    assert run.table == "gymnasium"
    assert episodes(run) == [(3, 6, 3), (7, 10, 4), (12, 15, 5)]
    assert all(float(row["episode/seconds"]) >= 0 for row in run.rows())
    found = sorted(run.folder("results").glob("*.mp4"))
    assert [path.name for path in found] == ["0-episode-0.mp4", "7-episode-2.mp4"]
    shades = [frames_of(path) for path in found]
    assert [len(frames) for frames in shades] == [4, 6]
    assert all(abs(one - other) <= 3 for one, other in zip(shades[1], range(40, 46), strict=True))


@pytest.mark.slow
def test_episodes_are_counted_as_gymnasium_counts_them(scripts: Scripts) -> None:
    scripts.run(
        COUNTER_ENV
        + EPISODES
        + """
inner = gymnasium.wrappers.RecordEpisodeStatistics(Counter())
env = record_episodes(inner)
seen = []
for steps in (2, 4, 7, 1):  # some episodes are cut, some go on behind their end
    env.reset()
    for _ in range(steps):
        *_, info = env.step(0)
        assert "rla_episode" not in info
        if "episode" in info:
            seen.append((info["episode"]["r"], info["episode"]["l"]))
for one in (env, inner):
    assert seen == list(zip(one.return_queue, one.length_queue))
assert env.episode_count == inner.episode_count == len(seen)
assert env.episode_lengths == inner.episode_lengths == 1
env.close()
import json
json.dump(seen, open("seen.json", "w"))
"""
    )
    (run,) = scripts.runs()
    seen = json.loads((scripts.folder / "seen.json").read_text())
    assert [[total, length] for _, total, length in episodes(run)] == seen
    assert len(seen) >= 2
    assert episodes(run)[0][0] == 2 + seen[0][1]  # the steps of the episode that was cut count, too


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP"])
def test_a_vector_of_environments(scripts: Scripts, mode: str) -> None:
    scripts.run(
        COUNTER_ENV
        + EPISODES
        + f"""
import rla_client
from gymnasium.vector import AutoresetMode, SyncVectorEnv
rla_client.init("vector")
rla_client.logger.record_tabular("mine", 1.0)
envs = SyncVectorEnv([Counter, lambda: Counter(7)], autoreset_mode=AutoresetMode.{mode})
films(record_episodes(envs, video_every=2, name="episode"), 14, np.zeros(2, dtype=int))
rla_client.time_step_holder.set_time(99)
rla_client.logger.dump_tabular()
"""
    )
    (run,) = scripts.runs()
    found = episodes(run)
    if mode == "SAME_STEP":
        assert found == [(6, 6, 3), (14, 10, 4), (20, 55, 10), (24, 15, 5)]
    else:
        assert found == [(6, 6, 3), (16, 10, 4), (20, 55, 10), (28, 15, 5)]
    assert run.rows()[-1]["mine"] == "1.0"  # what the script records is its own row's
    films = sorted(run.folder("results").glob("*.mp4"))
    shades = [frames_of(path) for path in films]
    assert [path.name.split("-")[1:] for path in films] == [["episode", "0.mp4"], ["episode", "2.mp4"]]
    assert [len(frames) for frames in shades] == ([3, 5] if mode == "SAME_STEP" else [4, 6])
    assert all(abs(one - other) <= 3 for one, other in zip(shades[1], range(40, 46), strict=False))


@pytest.mark.slow
def test_a_vector_that_is_reset_by_hand(scripts: Scripts) -> None:
    scripts.run(
        COUNTER_ENV
        + EPISODES
        + """
from gymnasium.vector import AutoresetMode, SyncVectorEnv
envs = record_episodes(SyncVectorEnv([Counter, lambda: Counter(7)], autoreset_mode=AutoresetMode.DISABLED))
envs.reset()
for _ in range(12):
    *_, terminated, truncated, _ = envs.step(np.zeros(2, dtype=int))
    if terminated.any():
        envs.reset(options={"reset_mask": terminated | truncated})
envs.close()
"""
    )
    (run,) = scripts.runs()
    assert episodes(run) == [(6, 6, 3), (14, 10, 4), (20, 55, 10), (24, 15, 5)]


@pytest.mark.slow
def test_workers_of_a_vector_have_no_runs_of_their_own(scripts: Scripts) -> None:
    done = scripts.run(
        COUNTER_ENV
        + EPISODES
        + """
from gymnasium.vector import AsyncVectorEnv
if __name__ == "__main__":
    envs = AsyncVectorEnv([lambda: record_episodes(Counter())], context="spawn")
    envs.reset()
""",
        fails=True,
    )
    assert "open one before the workers start" in done.stderr
    assert not list((scripts.folder / "data").rglob("run.json"))


def test_what_cannot_be_filmed_is_refused() -> None:
    from rla_client.contract.errors import ArgumentError
    from rla_client.integrations.gymnasium import record_episodes

    with pytest.raises(ArgumentError, match="render_mode='rgb_array', not None"):
        record_episodes(gymnasium.make("CartPole-v1"), video_every=3)


def test_an_environment_can_be_made_again_from_its_spec() -> None:
    from rla_client.integrations.gymnasium import EpisodeRecorder, record_episodes

    env = record_episodes(gymnasium.make("CartPole-v1"), name="eval")
    assert env.spec is not None
    assert env.spec.additional_wrappers[-1].kwargs == {"video_every": 0, "name": "eval"}
    assert isinstance(gymnasium.make(env.spec), EpisodeRecorder)


@pytest.mark.slow
@pytest.mark.parametrize("vector", [pytest.param(False, marks=pytest.mark.further), True])
def test_the_clock_follows_the_steps(scripts: Scripts, *, vector: bool) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    make = "gymnasium.vector.SyncVectorEnv([Counter] * 2)" if vector else "Counter()"
    script = (
        COUNTER_ENV
        + f"""
import os, sys
import rla_client
from rla_client import exp_manager, logger
from rla_client.integrations.gymnasium import record_episodes
rla_client.init("t", run_id="one", resume="allow")
env = record_episodes({make})
env.reset()
for step in range(1, 41):
    ended = env.step(np.zeros(2, int) if {vector} else 0)[2]
    if not {vector} and ended:
        env.reset()
    if step % 20 == 0:
        exp_manager.save_checkpoint({{"step": step}})
logger.flush(60)
if sys.argv[1:]:
    os.kill(os.getpid(), 9)
"""
    )
    scripts.run(script, "killed", fails=True)
    scripts.run(script)
    (run,) = scripts.runs(1)
    each = 2 if vector else 1
    saved = {path.name for path in run.folder("checkpoint").glob("*.pt")}
    assert saved == {f"checkpoint_{step * each}.pt" for step in (20, 40, 60, 80)}
    steps = [int(row["time-step"]) for row in run.rows()]
    assert steps == sorted(steps)
    assert steps[-1] > 40 * each, "a resumed run counts on"


@pytest.mark.slow
def test_the_first_environment_of_a_run_leads_its_clock(scripts: Scripts) -> None:
    scripts.run(
        COUNTER_ENV
        + EPISODES
        + """
from rla_client import time_step_holder
train, evaluation = record_episodes(Counter()), record_episodes(Counter(), name="eval")
train.reset()
train.step(0)
films(evaluation, 14, 0)
assert time_step_holder.get_time() == 1, time_step_holder.get_time()
train.close()
later = record_episodes(Counter())
films(later, 5, 0)
assert time_step_holder.get_time() == 6, time_step_holder.get_time()
"""
    )
    (run,) = scripts.runs(1)
    assert [float(row["time-step"]) for row in run.rows()][-1] == 4, "its episode of 3 steps, counted on"

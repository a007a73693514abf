"""The trainer is killed at random instants, with the agent up, stopped and absent."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from crash.conftest import BareAgent
from crash.zygote import Zygote
from support.oracle import Trainer, check_folder

MOST_ROWS = 2000
KNOWN_WITHIN_S = 2.0
AGENT_STATES = ("up", "stopped", "absent")


def state_of(folder: Path) -> str:
    """What run.json says."""
    try:
        return str(json.loads((folder / "run.json").read_text())["state"])
    except FileNotFoundError:
        return ""


def kill_trainers(
    agent: BareAgent,
    train: Callable[..., Trainer],
    chance: random.Random,
    wait_until: Callable[..., object],
    kills: int,
    zygote: Zygote | None = None,
) -> float:
    """Kill `kills` trainers in each state of the agent; then compare all folders.

    Returns:
        Seconds until half of the ends under a serving agent were known.
    """
    killed: list[Trainer] = []
    known_s: list[float] = []
    for state in AGENT_STATES:
        if state == "up":
            agent.spawn()
            wait_until(agent.serves)
        elif state == "stopped":
            agent.signal(signal.SIGSTOP)
        else:
            agent.signal(signal.SIGCONT)
            agent.kill()
        for number in range(kills):
            trainer = train(
                f"{state}-{number}", "--segment-bytes", str(128 << 10), zygote=zygote if number % 10 else None
            )
            instant = chance.randrange(1, MOST_ROWS)
            wait_until(lambda trainer=trainer, instant=instant: trainer.told >= instant)
            trainer.kill()
            killed.append(trainer)
            if state == "up":
                began = time.monotonic()
                wait_until(lambda trainer=trainer: state_of(trainer.folder) == "killed")
                known_s.append(time.monotonic() - began)
    agent.spawn()
    agent.drain(wait_until, 600)
    rows = sum(check_folder(trainer) for trainer in killed)
    assert all(state_of(trainer.folder) == "killed" for trainer in killed)
    known_s.sort()
    print(
        f"{len(killed)} kills, {rows} rows; killed known after {known_s[len(known_s) // 2]:.2f} s, at most {known_s[-1]:.2f} s"  # noqa: E501
    )
    return known_s[len(known_s) // 2]


@pytest.mark.slow
def test_nothing_that_returned_is_lost(
    bare_agent: BareAgent,
    trainer: Callable[..., Trainer],
    chance: random.Random,
    wait_until: Callable[..., object],
) -> None:
    kill_trainers(bare_agent, trainer, chance, wait_until, kills=5)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_nothing_that_returned_is_lost_in_a_thousand_kills(
    bare_agent: BareAgent,
    trainer: Callable[..., Trainer],
    chance: random.Random,
    wait_until: Callable[..., object],
    zygote: Zygote,
) -> None:
    known_s = kill_trainers(bare_agent, trainer, chance, wait_until, kills=334, zygote=zygote)
    assert known_s <= KNOWN_WITHIN_S

"""Agent and trainer are killed under a run with samples: each chunk that was handed over is there, once."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from crash.conftest import BareAgent
from crash.test_agent_kill import forget_database
from crash.zygote import Zygote
from support.oracle import Trainer, check_folder, check_samples

ROWS = 16  # of a chunk
PACE = ("--burst", "100", "--pause", "0.1", "--samples", str(ROWS), "--segment-bytes", str(256 << 10))


def kill_both(  # noqa: PLR0913 - fixtures and counts
    agent: BareAgent,
    train: Callable[..., Trainer],
    chance: random.Random,
    wait_until: Callable[..., object],
    zygote: Zygote,
    *,
    trainers: int,
    kills: int,
) -> int:
    """Kill the agent `kills` times under each of some trainers, which are then killed too; returns chunks."""
    chunks = 0
    for number in range(trainers):
        trainer = train(f"run-{number}", "--worker", *PACE)
        for kill in range(kills):
            agent.spawn(zygote=zygote)
            ahead = trainer.told + chance.randrange(800)
            wait_until(lambda trainer=trainer, ahead=ahead: trainer.told >= ahead)
            agent.kill()
            if kill % 4 == 3:
                forget_database(agent.places)
        trainer.kill()
        agent.spawn(zygote=zygote)
        agent.drain(wait_until, 300)
        agent.kill()
        chunks += check_samples(trainer, ROWS)
        check_folder(trainer)
        assert min(trainer.samples) > 0
    print(f"{trainers} trainers, {trainers * kills} kills of the agent, {chunks} chunks")
    return chunks


@pytest.mark.slow
def test_no_sample_is_lost_or_doubled(
    bare_agent: BareAgent,
    trainer: Callable[..., Trainer],
    chance: random.Random,
    wait_until: Callable[..., object],
    zygote: Zygote,
) -> None:
    kill_both(bare_agent, trainer, chance, wait_until, zygote, trainers=2, kills=6)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_no_sample_is_lost_or_doubled_in_two_hundred_kills(
    bare_agent: BareAgent,
    trainer: Callable[..., Trainer],
    chance: random.Random,
    wait_until: Callable[..., object],
    zygote: Zygote,
) -> None:
    kill_both(bare_agent, trainer, chance, wait_until, zygote, trainers=20, kills=10)

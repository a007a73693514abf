"""The agent is killed at random instants: nothing that returned is lost, nothing is there twice."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable

import pytest
from crash.conftest import BareAgent
from crash.zygote import Zygote
from support.oracle import Trainer, check_folder, uncommitted

from rla_client.contract.agent.places import Places

MOST_ROWS_AHEAD = 1000  # a kill comes after up to so many more rows, wherever the agent is then


def forget_database(places: Places) -> None:
    """Delete agent.db and all that belongs to it."""
    for ending in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{places.database}{ending}")


def kill_often(  # noqa: PLR0913 - fixtures and counts
    agent: BareAgent,
    train: Callable[..., Trainer],
    chance: random.Random,
    wait_until: Callable[..., object],
    *,
    kills: int,
    pace: tuple[str, ...],
    name: str = "run",
    most_rows_ahead: int = MOST_ROWS_AHEAD,
    zygote: Zygote | None = None,
    cold_every: int = 5,
    with_uncommitted_least: float = 0.0,
) -> int:
    """Kill the agent `kills` times under two streams, also with agent.db deleted; then compare.

    Each `cold_every`-th agent is a new interpreter whose start is timed; the others are forked, for while an
    interpreter starts the trainer writes more than an agent takes in. So many of the kills, a fraction, must
    have met rows that were not committed.

    Returns:
        Rows that the trainer told of.
    """
    trainer = train(name, "--worker", "--segment-bytes", str(256 << 10), *pace)
    with_uncommitted, slowest_s, began = 0, 0.0, time.monotonic()
    for number in range(kills):
        agent.spawn(zygote=zygote if number % cold_every else None)
        ahead = trainer.told + chance.randrange(most_rows_ahead)
        if number % cold_every == 0:
            wait_until(agent.serves, what=lambda: f"a serving agent; {agent.tail()}")
            slowest_s = max(slowest_s, time.monotonic() - agent.started)
        wait_until(lambda ahead=ahead: trainer.told >= ahead)
        agent.kill()
        with_uncommitted += uncommitted(agent.places)
        if number % 4 == 3:
            forget_database(agent.places)
    rate = trainer.told / (time.monotonic() - began)
    trainer.stop()
    agent.spawn()
    agent.drain(wait_until, 900)
    rows = check_folder(trainer)
    print(
        f"{kills} kills, {with_uncommitted} with uncommitted rows, {rows} rows at {rate:,.0f} rows/s, slowest start {slowest_s:.2f} s"  # noqa: E501
    )
    assert with_uncommitted >= max(1, with_uncommitted_least * kills)
    return rows


@pytest.mark.slow
def test_nothing_is_lost_or_doubled(
    bare_agent: BareAgent,
    trainer: Callable[..., Trainer],
    chance: random.Random,
    wait_until: Callable[..., object],
) -> None:
    kill_often(bare_agent, trainer, chance, wait_until, kills=30, pace=("--burst", "100", "--pause", "0.1"))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_nothing_is_lost_or_doubled_in_a_thousand_kills(
    bare_agent: BareAgent,
    trainer: Callable[..., Trainer],
    chance: random.Random,
    wait_until: Callable[..., object],
    zygote: Zygote,
) -> None:
    rows = 0
    for number in range(20):
        rows += kill_often(
            bare_agent, trainer, chance, wait_until, kills=50, pace=("--burst", "2000", "--pause", "0.02"),
            name=str(number), most_rows_ahead=8_000, zygote=zygote, cold_every=25, with_uncommitted_least=0.3,
        )  # fmt: skip
        bare_agent.kill()
    print(f"1,000 kills, {rows} rows")

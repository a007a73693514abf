"""When a target is tried again."""

from __future__ import annotations

import random

from rla_agent.replicate.worker.retry_backoff import LOGIN_REST_S, MAX_BACKOFF_S, Health, backoff_s


def test_backoff_has_full_jitter_up_to_five_minutes() -> None:
    assert backoff_s(0, 0.5) == 0.5
    assert backoff_s(3, 0.5) == 4.0
    assert backoff_s(1000, 0.999) < MAX_BACKOFF_S
    assert backoff_s(1000, 0.0) == 0.0


def test_three_refused_logins_block() -> None:
    health = Health()
    for _ in range(3):
        assert health.may_try(1e9)
        health = health.refused(0.0, 0.5, "refused", "fix")
    assert health.blocked
    assert health.reason == "refused"
    assert not health.may_try(LOGIN_REST_S)
    assert health.may_try(2 * LOGIN_REST_S)


def test_what_blocks_is_looked_at_again_and_hides_nothing() -> None:
    health, now, looks = Health(), 0.0, 0
    while now < 3600:
        now = max(now + 1.0, health.not_before)
        health = health.stopped(now, 0.5, "a foreign key", "ask")
        assert health.blocked
        assert not health.may_try(health.not_before - 0.1)
        looks += 1
    assert 3600 / MAX_BACKOFF_S < looks < 60
    later = health.failed(now, 0.5, "it is down", "")
    assert (later.blocked, later.reason, later.fix) == (False, "it is down", "")


def test_seventy_two_hours_down_is_few_tries() -> None:
    chance = random.Random(1)
    health, now, tries = Health(), 0.0, 0
    while now < 72 * 3600:
        now = max(now + 0.25, health.not_before)
        health = health.failed(now, chance.random(), "down", "")
        tries += 1
    assert 72 * 3600 / MAX_BACKOFF_S < tries < 4 * 72 * 3600 / MAX_BACKOFF_S

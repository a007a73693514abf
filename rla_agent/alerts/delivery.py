"""Delivery schedule of alerts.

A failed attempt is repeated after RETRY_FIRST_S, twice that, … up to RETRY_MOST_S, for GIVE_UP_S; its time is
stored, so a restart neither loses a message nor sends it earlier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

RETRY_FIRST_S = 2.0
RETRY_MOST_S = 900.0
GIVE_UP_S = 86400.0
MERGE_FROM = 5  # more than so many alerts that wait for one channel go in one message
MOST_MERGED = 100


def batches(deliveries: list[Delivery]) -> list[list[Delivery]]:
    """Batches of one alert; where many wait, one batch of all, so that a mass kill causes no flood."""
    if len(deliveries) <= MERGE_FROM:
        return [[delivery] for delivery in deliveries]
    return [deliveries[at : at + MOST_MERGED] for at in range(0, len(deliveries), MOST_MERGED)]


def retry_delay(tries: int, asked_s: float | None, chance: float) -> float:
    """Seconds until the next try.

    Args:
        tries: failed so far, one at least.
        asked_s: the server's request, used where it is longer than ours: some always ask for 0.
        chance: from 0 to 1; spreads agents that all lost the same server.
    """
    own_s = float(min(RETRY_MOST_S, RETRY_FIRST_S * 2 ** min(tries - 1, 20))) * (0.5 + 0.5 * chance)
    return own_s if asked_s is None else min(max(asked_s, own_s), RETRY_MOST_S)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One alert by one channel."""

    number: int
    config: str
    channel: str
    alert: dict[str, Any]
    tries: int
    made: float

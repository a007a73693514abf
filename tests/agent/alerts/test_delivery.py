"""When a delivery is tried again, and what goes in one message."""

from __future__ import annotations

from rla_agent.alerts.delivery import GIVE_UP_S, RETRY_FIRST_S, RETRY_MOST_S, Delivery, batches, retry_delay


def test_delays_grow_and_are_spread() -> None:
    assert [retry_delay(n, None, 1.0) for n in (1, 2, 3)] == [
        RETRY_FIRST_S,
        2 * RETRY_FIRST_S,
        4 * RETRY_FIRST_S,
    ]
    assert retry_delay(1, None, 0.0) == RETRY_FIRST_S / 2
    assert retry_delay(10_000, None, 1.0) == RETRY_MOST_S < GIVE_UP_S
    assert (retry_delay(1, 40.0, 1.0), retry_delay(1, 1e9, 1.0)) == (40.0, RETRY_MOST_S)
    always_0 = [retry_delay(n, 0.0, 1.0) for n in (1, 3)]
    assert always_0 == [RETRY_FIRST_S, 4 * RETRY_FIRST_S], "no end of requests"


def test_batches() -> None:
    def some(count: int) -> list[Delivery]:
        return [Delivery(n, "c", "x", {}, 0, 0.0) for n in range(count)]

    assert [len(part) for part in batches(some(5))] == [1] * 5
    assert [len(part) for part in batches(some(6))] == [6]
    assert [len(part) for part in batches(some(250))] == [100, 100, 50]

from __future__ import annotations

from rla_client.database.filter.since import parse_since


def test_ages_and_dates() -> None:
    assert parse_since("36h", 1_000_000.0) == 1_000_000.0 - 36 * 3600
    assert parse_since(5, 0.0) == 5
    assert parse_since("2026/11/21", 0.0) == parse_since("2026-11-21", 0.0)

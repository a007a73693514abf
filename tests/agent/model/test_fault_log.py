"""What lasts is told when it begins and when it is over."""

from __future__ import annotations

import logging

from rla_agent.model.fault_log import OVER_S, REPEAT_S, FaultLog, Repeats

FULL = "No space left on device: /data/log/{}/progress.csv"


def test_a_reason_is_told_once_and_when_it_is_over() -> None:
    log = FaultLog()
    assert log.look(0.0, [FULL.format(1), FULL.format(2), "Permission denied: /b"]) == [
        (logging.WARNING, f"{FULL.format(1)} (and 1 more)"),
        (logging.WARNING, "Permission denied: /b"),
    ]
    assert log.look(1.0, [FULL.format(2)]) == []
    assert log.look(2.0, []) == [], "between two tries"
    assert log.look(3.0, [FULL.format(3)]) == []
    assert log.look(5.0 + OVER_S, [FULL.format(3)]) == [(logging.INFO, "over after 0.0s: Permission denied")]
    assert log.look(6.0 + 2 * OVER_S, []) == [(logging.INFO, "over after 15.0s: No space left on device")]
    assert log.look(7.0 + 2 * OVER_S, [FULL.format(1)]) == [(logging.WARNING, FULL.format(1))]


def record(text: str, at: float, level: int = logging.WARNING) -> logging.LogRecord:
    made = logging.LogRecord("a", level, "f", 1, "%s", (text,), None)
    made.created = at
    return made


def test_a_repeated_line_is_counted() -> None:
    repeats = Repeats()
    assert repeats.filter(record("x", 0.0))
    assert not any(repeats.filter(record("x", at)) for at in (1.0, 2.0, 3.0))
    assert repeats.filter(record("y", 3.0))
    assert repeats.filter(record("x", 3.0, logging.INFO)), "only warnings come again and again"
    last = record("x", REPEAT_S)
    assert repeats.filter(last)
    assert last.getMessage() == "x (3 more times since)"
    assert not repeats.filter(record("x", REPEAT_S + 1))
    assert repeats.filter(record("x", -1.0)), "a clock that was set back"

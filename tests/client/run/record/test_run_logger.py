"""The logger object: its edges. The API as users call it is in test_logger_rows.py and _outputs."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from rla_client.contract.errors import ArgumentError
from rla_client.run.record.excluded_sinks import sink_names, without
from rla_client.run.record.rank_mean import mean_over_ranks
from rla_client.run.record.run_logger import Logger
from rla_client.stream.clock import time_step_holder


def test_sink_names_are_checked() -> None:
    assert sink_names(None) == ()
    assert sink_names("csv") == ("csv",)
    assert sink_names(["csv", "log"]) == ("csv", "log")
    with pytest.raises(ArgumentError):
        sink_names(["csv", "nope"])


def test_a_row_as_one_sink_gets_it() -> None:
    row = {"a": 1, "b": 2}
    assert without(row, {}, "csv") is row
    assert without(row, {"a": ("csv",)}, "csv") == {"b": 2}
    assert without(row, {"a": ("csv",)}, "log") == row


class OneRank:
    """A communicator of one rank; counts are of `logkv_mean`."""

    def __init__(self, *others: list[tuple[str, Any, int]]) -> None:
        self.others = others

    def gather(self, value: Any, root: int) -> list[Any]:
        assert root == 0
        return [value, *self.others]


def test_means_weigh_by_counts_and_text_is_of_the_first_rank() -> None:
    comm = OneRank([("a", 4.0, 3), ("t", "second", 1)], [("b", 1, 1)])
    assert mean_over_ranks(comm, {"a": 0.0, "t": "first"}, {}) == {"a": 3.0, "t": "first", "b": 1.0}


def test_a_signal_handler_may_log(capsys: pytest.CaptureFixture[str]) -> None:
    logger = Logger(None, ("stdout",))

    def handler(_number: int, _frame: object) -> None:
        logger.record("from/handler", 1)
        logger.log("in handler")

    former = signal.signal(signal.SIGUSR1, handler)
    try:
        with logger.lock:
            signal.raise_signal(signal.SIGUSR1)
        logger.record("a", 1)
        assert set(logger.dump()) == {"from/handler", "a", "time-step", "timestamp"}
    finally:
        signal.signal(signal.SIGUSR1, former)
    assert "in handler" in capsys.readouterr().out


def test_a_freq_beyond_a_smaller_clock() -> None:
    logger = Logger(None, ())
    for step, shown in ((100, True), (101, False), (0, False), (110, True)):
        time_step_holder.set_time(step)
        logger.record("k", 1, None, 10)
        assert ("k" in logger.pending) is shown
        logger.pending.clear()
    time_step_holder.set_time(0)


def test_mean_after_none_counts_nothing() -> None:
    logger = Logger(None, ())
    logger.record_mean("m", None)
    assert logger.pending == {"m": None}
    logger.record_mean("m", 4)
    logger.record_mean("m", 6)
    assert logger.pending == {"m": 5.0}


def test_callbacks_get_a_copy() -> None:
    def spoil(row: dict[str, Any]) -> None:
        row.clear()

    logger = Logger(None, (), callback=spoil)
    logger.record("a", 1)
    assert logger.dump()["a"] == 1

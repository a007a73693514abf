from __future__ import annotations

import os
import time
from pathlib import Path

from rla_agent.pipeline.spool_watch import LISTING_S, SpoolWatch

FIRST, SECOND = "0000000000000001-1-0123abcd", "0000000000000002-1-0123abcd"


def made(spool: Path, name: str) -> None:
    (spool / name).mkdir()


def age(spool: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(spool, (then, then))


def test_a_spool_in_which_nothing_happened_is_not_listed(tmp_path: Path) -> None:
    made(tmp_path, FIRST)
    age(tmp_path, 10)
    watch = SpoolWatch(tmp_path)
    assert watch.names(100.0) == [FIRST]
    assert watch.names(100.25) == []
    made(tmp_path, SECOND)
    assert watch.names(100.5) == [FIRST, SECOND]


def test_a_change_within_one_tick_of_the_clock_is_seen(tmp_path: Path) -> None:
    made(tmp_path, FIRST)
    watch = SpoolWatch(tmp_path)
    found = os.stat(tmp_path).st_mtime_ns
    assert watch.names(100.0) == [FIRST]
    made(tmp_path, SECOND)
    os.utime(tmp_path, ns=(found, found))
    assert watch.names(100.25) == [FIRST, SECOND]


def test_it_is_listed_again_when_asked_and_now_and_then(tmp_path: Path) -> None:
    made(tmp_path, FIRST)
    age(tmp_path, 10)
    watch = SpoolWatch(tmp_path)
    watch.names(100.0)
    watch.look_again()
    assert watch.names(100.25) == [FIRST]
    assert watch.names(100.5) == []
    assert watch.names(100.25 + LISTING_S) == [FIRST]


def test_a_spool_that_is_gone_has_no_streams(tmp_path: Path) -> None:
    assert SpoolWatch(tmp_path / "gone").names(1.0) == []

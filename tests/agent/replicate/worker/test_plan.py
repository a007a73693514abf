from __future__ import annotations

import itertools
import random
import struct
from dataclasses import replace

import pytest
from hypothesis import given, strategies

from rla_agent.outputs.csv_encoder import CsvEncoder
from rla_agent.outputs.file_content import line_ends
from rla_agent.outputs.tensorboard import EventEncoder
from rla_agent.replicate.worker import plan
from rla_agent.replicate.worker.plan import (
    LOGIN_REST_S,
    MAX_BACKOFF_S,
    OVERDUE_S,
    REST_S,
    Action,
    Append,
    Appends,
    Health,
    Local,
    Nothing,
    Owned,
    Record,
    Wait,
    Whole,
    backoff_s,
    decide,
    is_growing,
    priority,
)

HERE = Local(ino=7, size=100, mtime_ns=10, ctime_ns=10)
SENT = Record(HERE, 0, 100, 1, 2, 3, b"s", 5)


def look(
    local: Local = HERE,
    owned: Owned | None = None,
    record: Record | None = None,
    *,
    growing: bool = False,
    rest_s: float = 100.0,
    waited_s: float = 0.0,
) -> Action:
    return decide(local, owned, record, growing=growing, rest_s=rest_s, waited_s=waited_s)


def sent(**changes: object) -> Record:
    from dataclasses import replace

    return replace(SENT, **changes)  # type: ignore[arg-type]


def test_whole_files() -> None:
    assert look() == Whole(100)
    assert look(record=SENT) == Nothing()
    assert look(Local(8, 100, 11, 11), record=SENT) == Whole(100)
    assert look(Local(7, 100, 10, 99), record=SENT) == Whole(100, compare=True)  # chmod, link


def test_a_file_that_is_being_written_rests_first_but_not_for_ever() -> None:
    assert look(rest_s=0.25) == Wait(REST_S - 0.25)
    assert look(rest_s=0.25, waited_s=OVERDUE_S) == Whole(100)


def test_owned_outputs_go_up_to_what_is_committed() -> None:
    assert look(owned=Owned(0, 60, False)) == Whole(60, 0, grows=True)
    known = sent(acked=60)
    assert look(owned=Owned(0, 60, False), record=known) == Nothing()
    assert look(owned=Owned(0, 90, False), record=known) == Append(60, 90, owned=True)
    assert look(owned=Owned(0, 900, False), record=known) == Append(
        60, 100, owned=True
    )  # never past the file's end


def test_a_new_generation_is_sent_whole() -> None:
    assert look(owned=Owned(1, 90, False), record=sent(acked=60)) == Whole(90, 1, grows=True)
    assert look(owned=Owned(0, 40, False), record=sent(acked=60)) == Whole(40, 0, grows=True)


def test_one_that_was_found_to_differ_is_sent_whole_once() -> None:
    wrong = replace(SENT, generation=-1)
    owned = Owned(3, 100, final=False)
    action = look(owned=owned, record=wrong, growing=True)
    assert action == Whole(100, 3, grows=True)
    assert isinstance(action, Whole)
    assert look(owned=owned, record=replace(SENT, generation=action.generation), growing=True) == Nothing()


def test_a_large_backlog_on_little_is_sent_whole() -> None:
    large = Local(7, 50 << 20, 11, 11)
    assert look(large, Owned(0, 50 << 20, False), sent(acked=100)) == Whole(50 << 20, grows=True)
    assert look(large, Owned(0, 50 << 20, False), sent(acked=45 << 20)) == Append(
        45 << 20, 50 << 20, owned=True
    )


def test_growing_logs_without_the_agents_word() -> None:
    assert look(growing=True, rest_s=0) == Whole(100, cut=True, grows=True)
    assert look(Local(7, 150, 11, 11), record=SENT, growing=True, rest_s=0) == Append(100, 150, cut=True)
    assert look(Local(7, 150, 11, 11), record=SENT, growing=True) == Append(
        100, 150
    )  # what rests is all there is
    assert look(record=SENT, growing=True) == Nothing()
    assert look(Local(7, 100, 11, 11), record=SENT, growing=True) == Whole(100, compare=True, grows=True)
    assert look(Local(8, 150, 11, 11), record=SENT, growing=True) == Whole(150, compare=True, grows=True)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (b"progress.csv", True),
        (b"progress.label.csv", True),
        (b"log.txt", True),
        (b"warn.txt", True),
        (b"system.csv", True),
        (b"events.out.tfevents.1.h.2.u", True),
        (b"run.json", False),
        (b"catalog.txt", False),
        (b"x.csv", False),
    ],
)
def test_names_that_grow(name: bytes, expected: bool) -> None:
    assert is_growing("log", name) is expected
    assert not is_growing("results", name)


def test_small_and_live_first_checkpoints_behind() -> None:
    order = [
        priority("log", 10),
        priority("results", 10),
        priority("log", 1 << 20),
        priority("checkpoint", 10),
    ]
    assert order == sorted(order)
    assert len(set(order)) == 4


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


@given(strategies.lists(strategies.text("ab\n\"', ", max_size=40), max_size=30), strategies.integers(1, 60))
def test_csv_pieces_are_whole_rows(cells: list[str], limit: int) -> None:
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for cell in cells:
        writer.writerow([cell, "x"])
    data = out.getvalue().encode()
    parts = plan.pieces(data + b"torn,", CsvEncoder.ends, limit, cut=True)
    assert b"".join(parts) == data
    rows: list[list[str]] = []
    for part in parts:
        rows += list(csv.reader(io.StringIO(part.decode(), newline="")))
    assert [row[0] for row in rows] == cells
    assert b"".join(plan.pieces(data + b"torn,", CsvEncoder.ends, limit, cut=False)) == data + b"torn,"


def test_pieces_keep_to_the_limit_and_to_pages() -> None:
    data = b"".join(b"%04d %s\n" % (n, b"x" * (n % 50)) for n in range(2000))
    parts = plan.pieces(data, line_ends, 32 << 10, cut=True)
    assert max(len(part) for part in parts) <= 32 << 10
    paged = plan.pieces(data, line_ends, 32 << 10, cut=True, page_of=1000)
    assert b"".join(paged) == data
    at = 1000
    for part in paged:
        assert part.count(b"\n") == 1 or at // 4096 == (at + len(part) - 1) // 4096
        at += len(part)


def test_event_records() -> None:
    record = struct.pack("<QI", 5, 0) + b"hello" + struct.pack("<I", 0)
    data = record * 3
    assert EventEncoder.ends(data + record[:-1]) == [21, 42, 63]
    assert plan.pieces(data + record[:9], EventEncoder.ends, 50, cut=True) == [record * 2, record]
    assert EventEncoder.ends(b"\xff" * 40) == []


def test_a_large_file_that_grows_is_read_for_a_twentieth_of_the_time() -> None:
    assert plan.pace_s(0.0) == plan.PACE_S
    assert plan.pace_s(10.0) == 200.0


def test_appends_of_a_steady_run_are_less_than_one_each_period_and_none_waits_longer() -> None:
    """Rows each half second into two files: with 4.6 s there are ten in each append."""
    appends, every = Appends(), 4.6
    waiting: list[float] = []
    made: list[float] = []
    longest = 0.0
    for tick in range(1_000):
        now = tick * 0.1
        if tick % 5 == 0:
            waiting.append(now)
        if waiting and appends.next(b"run", waiting[0], now, every) <= now:
            assert appends.next(b"run", waiting[-1], now, every) == now, "the other file goes with it"
            longest = max(longest, now - waiting[0])
            made.append(now)
            waiting.clear()
    assert longest == pytest.approx(every, abs=0.11)
    assert len(made) <= 100 / 5 + 1
    assert {round(after - before, 1) for before, after in itertools.pairwise(made)} <= {5.0, 5.1}


def test_appends_after_a_pause_or_a_step_of_the_clock_are_at_once() -> None:
    appends = Appends()
    assert appends.next(b"run", 100.0, 100.0, 4.6) == 100.0
    assert appends.next(b"other", 100.1, 100.1, 4.6) == 100.1
    assert appends.next(b"run", 101.0, 101.0, 4.6) == 105.6
    assert appends.next(b"run", 101.0, 103.0, 4.6) == 105.6
    assert appends.next(b"run", 101.0, 105.7, 4.6) == 105.7
    assert appends.next(b"run", 120.0, 120.0, 4.6) == 120.0
    assert appends.next(b"run", 121.0, 121.0, 4.6) == 125.6
    assert appends.next(b"run", 5.0, 5.0, 4.6) == 5.0, "another clock"
    assert appends.next(b"run", 6.0, 6.0, 0.0) == 6.0

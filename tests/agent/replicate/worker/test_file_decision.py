from __future__ import annotations

from dataclasses import replace

import pytest

from rla_agent.replicate.file_state import Local, Owned, SentRecord
from rla_agent.replicate.worker.file_decision import (
    OVERDUE_S,
    REST_S,
    Action,
    Append,
    ReplaceFile,
    UpToDate,
    Wait,
    decide,
    is_growing,
    priority,
)

HERE = Local(ino=7, size=100, mtime_ns=10, ctime_ns=10)
SENT = SentRecord(HERE, 0, 100, 1, 2, 3, b"s", 5)


def look(
    local: Local = HERE,
    owned: Owned | None = None,
    record: SentRecord | None = None,
    *,
    growing: bool = False,
    rest_s: float = 100.0,
    waited_s: float = 0.0,
) -> Action:
    return decide(local, owned, record, growing=growing, rest_s=rest_s, waited_s=waited_s)


def sent(**changes: object) -> SentRecord:
    from dataclasses import replace

    return replace(SENT, **changes)  # type: ignore[arg-type]


def test_whole_files() -> None:
    assert look() == ReplaceFile(100)
    assert look(record=SENT) == UpToDate()
    assert look(Local(8, 100, 11, 11), record=SENT) == ReplaceFile(100)
    assert look(Local(7, 100, 10, 99), record=SENT) == ReplaceFile(100, compare=True)  # chmod, link


def test_a_file_that_is_being_written_rests_first_but_not_for_ever() -> None:
    assert look(rest_s=0.25) == Wait(REST_S - 0.25)
    assert look(rest_s=0.25, waited_s=OVERDUE_S) == ReplaceFile(100)


def test_owned_outputs_go_up_to_what_is_committed() -> None:
    assert look(owned=Owned(0, 60, False)) == ReplaceFile(60, 0, grows=True)
    known = sent(acked=60)
    assert look(owned=Owned(0, 60, False), record=known) == UpToDate()
    assert look(owned=Owned(0, 90, False), record=known) == Append(60, 90, owned=True)
    assert look(owned=Owned(0, 900, False), record=known) == Append(
        60, 100, owned=True
    )  # never past the file's end


def test_a_new_generation_is_sent_whole() -> None:
    assert look(owned=Owned(1, 90, False), record=sent(acked=60)) == ReplaceFile(90, 1, grows=True)
    assert look(owned=Owned(0, 40, False), record=sent(acked=60)) == ReplaceFile(40, 0, grows=True)


def test_one_that_was_found_to_differ_is_sent_whole_once() -> None:
    wrong = replace(SENT, generation=-1)
    owned = Owned(3, 100, final=False)
    action = look(owned=owned, record=wrong, growing=True)
    assert action == ReplaceFile(100, 3, grows=True)
    assert isinstance(action, ReplaceFile)
    assert look(owned=owned, record=replace(SENT, generation=action.generation), growing=True) == UpToDate()


def test_a_large_backlog_on_little_is_sent_whole() -> None:
    large = Local(7, 50 << 20, 11, 11)
    assert look(large, Owned(0, 50 << 20, False), sent(acked=100)) == ReplaceFile(50 << 20, grows=True)
    assert look(large, Owned(0, 50 << 20, False), sent(acked=45 << 20)) == Append(
        45 << 20, 50 << 20, owned=True
    )


def test_growing_logs_without_the_agents_word() -> None:
    assert look(growing=True, rest_s=0) == ReplaceFile(100, cut=True, grows=True)
    assert look(Local(7, 150, 11, 11), record=SENT, growing=True, rest_s=0) == Append(100, 150, cut=True)
    assert look(Local(7, 150, 11, 11), record=SENT, growing=True) == Append(
        100, 150
    )  # what rests is all there is
    assert look(record=SENT, growing=True) == UpToDate()
    assert look(Local(7, 100, 11, 11), record=SENT, growing=True) == ReplaceFile(
        100, compare=True, grows=True
    )
    assert look(Local(8, 150, 11, 11), record=SENT, growing=True) == ReplaceFile(
        150, compare=True, grows=True
    )


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

from __future__ import annotations

from pathlib import Path

import pytest
from support.stamped import stamped

from rla_agent.replicate.file_state import Local, SentRecord
from rla_agent.replicate.ledger_rows import Key
from rla_agent.replicate.prune import prune_plan
from rla_agent.replicate.prune.prune_plan import PruneCandidate, PruneRules, choose, newest, unfit
from rla_client.contract.layout import DEFAULT_LOG_TYPES

NOW = 1_000_000.0


def candidate(name: str, size: int, age_s: float, kind: str = "checkpoint") -> PruneCandidate:
    local = Local(1, size, int((NOW - age_s) * 1e9), 0)
    record = SentRecord(local, 0, size, 0, 0, 0, b"", 0)
    item = f"{kind}/t/i".encode()
    return PruneCandidate(Key(1, name.encode()), item + b"/" + name.encode(), kind, item, record)


def names(chosen: list[PruneCandidate]) -> list[str]:
    return [one.key.name.decode() for one in chosen]


def test_only_what_can_be_asked_for_again_goes() -> None:
    going = [kind for kind in DEFAULT_LOG_TYPES if not unfit(kind, "checkpoint_7.pt", 1 << 20)]
    assert going == ["checkpoint", "results", "tmp_data", "samples"]
    assert unfit("checkpoint", "replay_buffer.npz", 1 << 30)
    assert unfit("checkpoint", "checkpoint_7.pt", 100)
    assert not unfit("results", "7-figure.png", 1 << 20)


def test_of_files_without_a_stamp_the_newest_by_number_of_each_name_stay(tmp_path: Path) -> None:
    found = ["checkpoint_9.pt", "checkpoint_10.pt", "actor_3.pt", "actor-20.pt", "notes.txt"]
    assert newest(tmp_path, found, 1) == {"checkpoint_10.pt", "actor-20.pt"}
    both = {"checkpoint_9.pt", "checkpoint_10.pt", "actor_3.pt", "actor-20.pt"}
    assert newest(tmp_path, found, 2) == both
    assert newest(tmp_path, found, 0) == newest(tmp_path, found, 1)  # never none


def test_what_was_saved_last_stays_though_its_time_step_is_lower(tmp_path: Path) -> None:
    for order, step in enumerate((20, 30, 40, 10), start=1):
        stamped(tmp_path, step, order)
    found = [path.name for path in tmp_path.iterdir()]
    assert newest(tmp_path, found, 1) == {"checkpoint_10.pt"}
    assert newest(tmp_path, found, 2) == {"checkpoint_40.pt", "checkpoint_10.pt"}


def test_by_age() -> None:
    found = [candidate("a_1.pt", 10, 50), candidate("a_2.pt", 10, 150), candidate("a_3.pt", 10, 500)]
    rules = PruneRules(older_than_s=100)
    assert names(choose(found, rules, now=NOW, used_bytes=30, free_bytes=0)) == ["a_3.pt", "a_2.pt"]


def test_by_size_and_by_free_space_oldest_first_and_no_more_than_needed() -> None:
    found = [candidate("a_1.pt", 40, 300), candidate("a_2.pt", 40, 200), candidate("a_3.pt", 40, 100)]
    by_size = choose(found, PruneRules(max_bytes=100), now=NOW, used_bytes=170, free_bytes=0)
    assert names(by_size) == ["a_1.pt", "a_2.pt"]
    by_space = choose(found, PruneRules(free_bytes=130), now=NOW, used_bytes=170, free_bytes=100)
    assert names(by_space) == ["a_1.pt"]
    assert choose(found, PruneRules(free_bytes=100), now=NOW, used_bytes=170, free_bytes=100) == []


def test_kinds_go_in_the_order_given() -> None:
    found = [candidate("1-f.png", 10, 900, "results"), candidate("a_1.pt", 10, 100)]
    rules = PruneRules(kinds=("checkpoint", "results"), free_bytes=15)
    assert names(choose(found, rules, now=NOW, used_bytes=20, free_bytes=0)) == ["a_1.pt", "1-f.png"]


def test_without_a_limit_nothing_goes() -> None:
    found = [candidate("a_1.pt", 10, 900)]
    assert PruneRules().empty
    assert choose(found, PruneRules(), now=NOW, used_bytes=10, free_bytes=0) == []


def test_one_pass_takes_the_oldest_and_no_more_than_it_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune_plan, "MAX_AT_ONCE", 2)
    found = (candidate(f"a_{age}.pt", 10, age) for age in (150, 300, 200, 400))
    assert names(choose(found, PruneRules(older_than_s=100), now=NOW, used_bytes=40, free_bytes=0)) == [
        "a_400.pt",
        "a_300.pt",
    ]

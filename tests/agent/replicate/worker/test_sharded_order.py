"""No file of a sharded checkpoint reaches the master before what must be there first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.ledger_rows import CLEAN, DIRTY, PRUNED, Drop, Key
from rla_agent.replicate.worker.sharded_order import (
    in_order,
    is_of_another_save,
    sort_of,
    split,
    waits_for_others,
)
from rla_agent.replicate.worker.source_file import local_state

FOLDER = b"checkpoint/t/2026/11/21/09-30-01-123456_10.0.0.5_&/checkpoint_4.dcp"
IN_ORDER = ["__0_0.distcp", ".rla/shard-0.json", ".metadata", ".rla/whole.json"]


class Ledger:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.known: dict[bytes, dict[bytes, tuple[int, ...]]] = {}

    def set(self, below: str, state: int) -> None:
        path = FOLDER + b"/" + below.encode()
        local = local_state(os.lstat(os.path.join(os.fsencode(self.root), path)))
        folder, _, name = path.rpartition(b"/")
        self.known.setdefault(folder, {})[name] = (state, *local.version, local.size, 0o644)

    def states(self, folder: bytes) -> dict[bytes, tuple[int, ...]]:
        return self.known.get(folder, {})

    def waits(self, below: str) -> bool:
        return waits_for_others(os.fsencode(self.root), FOLDER, below.encode(), self.states)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    here = tmp_path / os.fsdecode(FOLDER)
    (here / ".rla").mkdir(parents=True)
    for name in (*IN_ORDER, "__1_0.distcp", "rank-0.pt", ".rla/plan-0.json"):
        (here / name).write_text(name)
    return Ledger(tmp_path)


def test_each_sort_waits_for_those_before_it(ledger: Ledger) -> None:
    assert [ledger.waits(name) for name in IN_ORDER] == [False, True, True, True]
    for name in ("__0_0.distcp", "__1_0.distcp", "rank-0.pt"):
        ledger.set(name, CLEAN)
    assert ledger.waits(".rla/shard-0.json")  # the note in its own folder is data, too
    ledger.set(".rla/plan-0.json", CLEAN)
    assert [ledger.waits(name) for name in IN_ORDER] == [False, False, True, True]
    ledger.set(".rla/shard-0.json", CLEAN)
    assert [ledger.waits(name) for name in IN_ORDER] == [False, False, False, True]
    ledger.set(".metadata", CLEAN)
    assert not any(ledger.waits(name) for name in IN_ORDER)


def test_a_file_that_changed_since_counts_as_not_there(ledger: Ledger) -> None:
    for name in ("__0_0.distcp", "__1_0.distcp", "rank-0.pt", ".rla/plan-0.json"):
        ledger.set(name, CLEAN)
    assert not ledger.waits(".rla/shard-0.json")
    ledger.set("__1_0.distcp", DIRTY)
    assert ledger.waits(".rla/shard-0.json")
    ledger.set("__1_0.distcp", CLEAN)
    (ledger.root / os.fsdecode(FOLDER) / "__1_0.distcp").write_text("longer than before")
    assert ledger.waits(".rla/shard-0.json")


def test_files_are_told_apart() -> None:
    assert split("checkpoint", FOLDER + b"/.metadata") == (FOLDER, b".metadata")
    assert split("checkpoint", FOLDER + b"/.rla/whole.json") == (FOLDER, b".rla/whole.json")
    assert split("log", FOLDER + b"/.metadata") is None
    assert split("checkpoint", FOLDER.rpartition(b"/")[0] + b"/checkpoint_4.pt") is None
    assert split("checkpoint", FOLDER) is None
    assert [sort_of(name.encode()) for name in IN_ORDER] == [0, 1, 2, 3]
    assert sort_of(b"whole.json") == 0


def test_nothing_goes_from_the_master_before_what_calls_it_whole(ledger: Ledger) -> None:
    drops = [Drop(Key(1, b""), FOLDER + b"/" + name.encode(), RemoteStat(1, 1)) for name in IN_ORDER]
    other = Drop(Key(2, b""), FOLDER[:-4] + b".pt", RemoteStat(1, 1))
    ledger.set(".rla/whole.json", CLEAN)
    assert in_order([*drops, other], ledger.states) == [drops[-1], other]
    ledger.known.clear()  # it is gone there
    assert in_order([*drops[:-1], other], ledger.states) == [*drops[:-1], other]


def test_whether_the_master_speaks_of_another_save(ledger: Ledger) -> None:
    root = os.fsencode(ledger.root)
    whole = ledger.root / os.fsdecode(FOLDER) / ".rla/whole.json"
    assert not is_of_another_save(root, FOLDER, ledger.states)  # nothing was ever sent
    ledger.set(".rla/whole.json", CLEAN)
    assert not is_of_another_save(root, FOLDER, ledger.states)
    ledger.set(".rla/whole.json", PRUNED)
    whole.rename(whole.with_name("elsewhere"))
    assert not is_of_another_save(root, FOLDER, ledger.states)  # the only copy is there
    whole.with_name("elsewhere").rename(whole)
    assert not is_of_another_save(root, FOLDER, ledger.states)  # fetched back
    whole.write_text("of another save")
    assert is_of_another_save(root, FOLDER, ledger.states)

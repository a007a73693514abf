"""The checkpoint that is held while it is sent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.sharded_folders import identity, write_part
from support.stamped import stamped

from rla_agent.replicate.ledger_rows import DIRTY, Due, Key
from rla_agent.replicate.worker.file_decision import ReplaceFile
from rla_agent.replicate.worker.hold_while_sent import IDLE_S, CheckpointHold
from rla_agent.replicate.worker.send_job import SendJob
from rla_client.contract.checkpoint.checkpoint_removal import remove_superseded
from rla_client.contract.checkpoint.checkpoint_retention import Retention
from rla_client.contract.checkpoint.sending_hold import is_held
from rla_client.contract.layout import CHECKPOINT, LOG
from rla_client.contract.sharded_checkpoint.files import WHOLE_FILE, shard_name
from rla_client.contract.sharded_checkpoint.publish import publish_all

FOLDER = "checkpoint/t/run"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    made = tmp_path / FOLDER
    made.mkdir(parents=True)
    return made


def job(path: str, kind: str = CHECKPOINT) -> SendJob:
    key = Key(1, os.fsencode(path.rpartition("/")[2]))
    due = Due(key, os.fsencode(path), kind, b"checkpoint/t/run", True, 4, 0, 0, 0.0, (), None)
    return SendJob(due, ReplaceFile(4), b"temp")


def test_one_at_a_time_until_nothing_of_it_is_on_its_way(here: Path, tmp_path: Path) -> None:
    due: dict[bytes, dict[bytes, tuple[int, ...]]] = {}
    made = CheckpointHold(os.fsencode(tmp_path), lambda folder: due.get(folder, {}))
    first, second = stamped(here, 1, 1), stamped(here, 2, 2)
    jobs = [job("log/t/run/progress.csv", LOG), job(f"{FOLDER}/{first.name}"), job(f"{FOLDER}/{second.name}")]
    made.given(jobs, 0.0)
    assert (is_held(first), is_held(second)) == (True, False)
    made.look(jobs[1:2], 100.0)
    due[FOLDER.encode()] = {first.name.encode(): (DIRTY,)}
    made.look([], 100.0 + IDLE_S)
    assert is_held(first), "it is tried again"
    made.look([], 100.1 + IDLE_S)
    assert not is_held(first)
    made.given(jobs[1:2], 150.0)
    due.clear()
    made.look([], 150.0)
    assert not is_held(first), "nothing of it is to be sent"
    made.given(jobs[2:], 200.0)
    made.sent(jobs[1])
    assert is_held(second)
    made.sent(jobs[2])
    assert not is_held(second)
    made.close()


def test_what_retention_dropped_meanwhile_goes_in_the_end(here: Path, tmp_path: Path) -> None:
    due: dict[bytes, dict[bytes, tuple[int, ...]]] = {}
    made = CheckpointHold(os.fsencode(tmp_path), lambda folder: due.get(folder, {}))
    stamped(here, 1, 1)
    made.given([job(f"{FOLDER}/checkpoint_1.pt")], 0.0)
    stamped(here, 2, 2)
    assert remove_superseded(here, "checkpoint", "r", Retention(max_to_keep=1)) == []
    made.close()
    assert sorted(one.name for one in here.glob("*.pt")) == ["checkpoint_2.pt"]


def test_a_folder_is_held_until_the_file_that_calls_it_whole_is_there(here: Path, tmp_path: Path) -> None:
    write_part(here, identity(1, world=1), 0, 1)
    publish_all(here)
    due: dict[bytes, dict[bytes, tuple[int, ...]]] = {}
    made = CheckpointHold(os.fsencode(tmp_path), lambda folder: due.get(folder, {}))
    folder = f"{FOLDER}/checkpoint_1.dcp"
    shard, whole = job(f"{folder}/{shard_name(0)}"), job(f"{folder}/{WHOLE_FILE}")
    made.given([shard], 0.0)
    made.sent(shard)
    due[f"{folder}/.rla".encode()] = {b"whole.json": (DIRTY,)}
    made.look([], 60.0)
    assert is_held(here / "checkpoint_1.dcp" / WHOLE_FILE)
    assert made.keeps_back(f"{FOLDER}/checkpoint_2.dcp".encode())
    assert not made.keeps_back(folder.encode())
    made.sent(whole)
    assert not made.keeps_back(f"{FOLDER}/checkpoint_2.dcp".encode())
    assert not is_held(here / "checkpoint_1.dcp" / WHOLE_FILE)


def test_of_a_mirror_the_one_that_arrived_stays_until_the_next_one_has(here: Path, tmp_path: Path) -> None:
    made = CheckpointHold(os.fsencode(tmp_path), lambda _: {}, mirror=True)
    first, second = stamped(here, 1, 1), stamped(here, 2, 2)
    for path in (first, second):
        made.given([job(f"{FOLDER}/.resume/{path.stem}.state"), job(f"{FOLDER}/{path.name}")], 0.0)
        assert is_held(path)
        made.sent(job(f"{FOLDER}/{path.name}"))
        if path == first:
            assert is_held(first)
    assert (is_held(first), is_held(second)) == (False, True)
    made.close()
    assert not is_held(second)


def test_of_a_mirror_an_older_one_that_arrives_later_is_let_go(here: Path, tmp_path: Path) -> None:
    made = CheckpointHold(os.fsencode(tmp_path), lambda _: {}, mirror=True)
    first, second = stamped(here, 1, 1), stamped(here, 2, 2)
    os.utime(first, (1.0, 1.0))
    for path in (second, first):
        made.given([job(f"{FOLDER}/{path.name}")], 0.0)
        made.sent(job(f"{FOLDER}/{path.name}"))
    assert (is_held(first), is_held(second)) == (False, True)
    made.close()


def test_what_is_gone_already_holds_nothing_up(here: Path, tmp_path: Path) -> None:
    due: dict[bytes, dict[bytes, tuple[int, ...]]] = {}
    made = CheckpointHold(os.fsencode(tmp_path), lambda folder: due.get(folder, {}))
    made.given([job(f"{FOLDER}/checkpoint_1.pt")], 0.0)
    made.given([job(f"{FOLDER}/{stamped(here, 2, 2).name}")], 0.0)
    assert is_held(here / "checkpoint_2.pt")
    made.close()

"""Which run of the master is gone on with, and what of it is brought here."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from support.sharded_folders import check_whole, identity, write_part

from rla_agent.replicate.backend.errors import TransientError
from rla_agent.replicate.backend.folder import FolderSession
from rla_agent.replicate.transfer.fetch_run import Question, _fetch
from rla_client.contract.errors import FetchError, StillWrittenError
from rla_client.contract.layout import FETCHED_MARK, FOREIGN_MARK
from rla_client.contract.sharded_checkpoint.folder import read_whole
from rla_client.contract.sharded_checkpoint.publish import publish_all

TABLE = "deep/table"
OLDER, NEWER = "2026/11/20/09-30-01-000001_10.0.0.5_&", "2026/11/21/09-30-01-000002_10.0.0.6_&lr=0.1"


def write(master: Path, index: str, state: str, steps: tuple[int, ...] = (), **more: Any) -> None:
    log, folder = (master / kind / TABLE / index for kind in ("log", "checkpoint"))
    for path in (log, folder / ".resume"):
        path.mkdir(parents=True)
    run = {"run_key": "key", "state": state, "run_id": "r", "host": "a", "updated": time.time(), **more}
    (log / "run.json").write_text(json.dumps(run))
    (log / "progress.csv").write_text("time-step\n1\n")
    for step in steps:
        (folder / f"checkpoint_{step}.pt").write_bytes(b"%d" % step)
        (folder / ".resume" / f"checkpoint_{step}.state").write_bytes(b"state")
        (folder / ".resume" / f"checkpoint_{step}.{step * 7}.arrays").write_bytes(b"arrays")


@pytest.fixture
def master(tmp_path: Path) -> Path:
    found = tmp_path / "master"
    found.mkdir()
    return found


def ask(master: Path, root: Path, **more: str) -> dict[str, Any]:
    fields = {"config": "", "root": str(root), "table": TABLE, "run_key": "key", "series": "checkpoint"}
    return _fetch(FolderSession(str(master)), Question(**{"known": "", **fields, **more}))


def test_the_newest_and_of_it_what_is_needed(master: Path, tmp_path: Path) -> None:
    root = tmp_path / "data"
    write(master, OLDER, "killed", (5,))
    write(master, NEWER, "killed", (9, 10, 20))
    (master / "log" / TABLE / "2026/11/21/stray").mkdir()
    answer = ask(master, root)
    assert answer == {"index": NEWER, "time_step": 20, "run_id": "r", "host": "a"}
    found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert found == {
        f"log/{TABLE}/{NEWER}/run.json",
        f"log/{TABLE}/{NEWER}/progress.csv",
        f"log/{TABLE}/{NEWER}/{FETCHED_MARK}",
        f"checkpoint/{TABLE}/{NEWER}/checkpoint_20.pt",
        f"checkpoint/{TABLE}/{NEWER}/{FOREIGN_MARK}",
        f"checkpoint/{TABLE}/{NEWER}/.resume/checkpoint_20.state",
        f"checkpoint/{TABLE}/{NEWER}/.resume/checkpoint_20.140.arrays",
    }
    assert ask(master, root, known=NEWER) == {"index": None}
    assert ask(master, root, run_key="other") == {"index": None}
    assert ask(master, root, series="best") == {"index": None, "over": None}


def test_none_without_a_checkpoint(master: Path, tmp_path: Path) -> None:
    write(master, OLDER, "killed")
    assert ask(master, tmp_path / "data") == {"index": None, "over": None}
    assert not (tmp_path / "data").exists()
    write(master, NEWER, "finished")
    assert ask(master, tmp_path / "data") == {"index": None, "over": NEWER}


def test_one_that_has_finished_continues_at_its_checkpoint(master: Path, tmp_path: Path) -> None:
    write(master, NEWER, "finished", (10,))
    found = ask(master, tmp_path / "data")
    assert (found["index"], found["time_step"]) == (NEWER, 10)


def test_one_that_lives_is_refused_and_one_that_is_silent_is_not(master: Path, tmp_path: Path) -> None:
    write(master, NEWER, "running", (10,))
    with pytest.raises(StillWrittenError, match="still being written on a"):
        ask(master, tmp_path / "data")
    assert not (tmp_path / "data").exists()
    write(master, NEWER.replace("/21/", "/22/"), "running", (10,), updated=time.time() - 1000)
    assert ask(master, tmp_path / "data")["time_step"] == 10


def test_a_checkpoint_that_is_not_what_the_sums_say(master: Path, tmp_path: Path) -> None:
    write(master, NEWER, "killed", (10,))
    path = f"checkpoint/{TABLE}/{NEWER}/checkpoint_10.pt"
    sums = master / "log" / TABLE / NEWER / "SHA256SUMS"
    relative = os.path.relpath(master / path, sums.parent)
    sums.write_text(f"{hashlib.sha256(b'other').hexdigest()}  {relative}\n")
    with pytest.raises(FetchError, match="SHA256SUMS"):
        ask(master, tmp_path / "data")
    assert not (tmp_path / "data" / path).exists()
    sums.write_text(f"{hashlib.sha256(b'10').hexdigest()}  {relative}\n")
    os.utime(sums, (2e9, 2e9))  # later; a copy is known by size and second
    assert ask(master, tmp_path / "data")["time_step"] == 10


def test_names_that_the_master_makes_up_stay_there(master: Path, tmp_path: Path) -> None:
    write(master, NEWER, "killed", (10,))
    (master / "log" / TABLE / NEWER / "a\nb").write_text("x")
    (master / "log" / TABLE / NEWER / "link").symlink_to("/etc/passwd")
    ask(master, tmp_path / "data")
    here = tmp_path / "data" / "log" / TABLE / NEWER
    assert sorted(os.listdir(here)) == [FETCHED_MARK, "progress.csv", "run.json"]


def test_what_was_written_into_the_copy_here_stays(master: Path, tmp_path: Path) -> None:
    write(master, NEWER, "killed", (10,))
    (master / "log" / TABLE / NEWER / "note.json").write_text("old")
    os.utime(master / "log" / TABLE / NEWER / "note.json", (1e9, 1e9))
    ask(master, tmp_path / "data")
    here = tmp_path / "data" / "log" / TABLE / NEWER / "note.json"
    here.write_text("written here")
    assert ask(master, tmp_path / "data")["time_step"] == 10
    assert here.read_text() == "written here"


def test_a_sharded_checkpoint_comes_if_it_is_the_newest_that_is_whole(master: Path, tmp_path: Path) -> None:
    write(master, NEWER, "killed", (9,))
    folder = master / "checkpoint" / TABLE / NEWER
    later = time.time_ns() + 10**12
    for step in (10, 30):
        for rank in range(2):
            write_part(folder, identity(step), rank, order=later + step)
    publish_all(folder)
    (folder / "checkpoint_30.dcp" / ".rla" / "whole.json").unlink()  # not all of it is there yet
    (folder / ".resume" / "checkpoint_10.state").write_bytes(b"state")
    assert ask(master, tmp_path / "data")["time_step"] == 10
    here = tmp_path / "data" / "checkpoint" / TABLE / NEWER
    check_whole(here / "checkpoint_10.dcp")
    names = [FOREIGN_MARK, ".resume", "checkpoint_10.dcp"]
    assert sorted(os.listdir(here)) == sorted(names)
    shard = folder / "checkpoint_10.dcp" / "__1_0.distcp"
    shard.write_bytes(b"x" * shard.stat().st_size)
    with pytest.raises(TransientError, match="is not what was saved"):
        ask(master, tmp_path / "other")
    assert read_whole(tmp_path / "other" / here.relative_to(tmp_path / "data") / "checkpoint_10.dcp") is None

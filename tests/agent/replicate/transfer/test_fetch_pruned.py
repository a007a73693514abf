"""Bringing one pruned file back: it goes on where it stopped, once, and only as what was sent."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from support.replication_lab import ITEM, random_bytes
from support.sharded_folders import check_whole, identity, write_part
from support.stamped import stamped

from rla_agent.replicate import registry
from rla_agent.replicate.backend.errors import TransientError
from rla_agent.replicate.backend.folder import FolderSession
from rla_agent.replicate.transfer.fetch_file import READ_BYTES
from rla_agent.replicate.transfer.fetch_process import answer
from rla_agent.replicate.transfer.fetch_pruned import fetch_back, fetch_noted
from rla_client.contract.errors import FetchError
from rla_client.contract.item.prune_notes import (
    PrunedFile,
    pruned_below,
    pruned_files,
    read_note,
    write_note,
)
from rla_client.contract.sharded_checkpoint.publish import publish_all

NAME = "checkpoint_10.pt"
SIZE = 3 * READ_BYTES + 1000


@pytest.fixture
def master(tmp_path: Path) -> Path:
    folder = tmp_path / "master" / "checkpoint" / ITEM
    folder.mkdir(parents=True)
    (folder / NAME).write_bytes(random_bytes(SIZE))
    return tmp_path / "master"


@pytest.fixture
def folder(tmp_path: Path, master: Path) -> Path:
    """The item's folder here, with a note."""
    made = tmp_path / "data" / "checkpoint" / ITEM
    made.mkdir(parents=True)
    sha = hashlib.sha256((master / "checkpoint" / ITEM / NAME).read_bytes()).hexdigest()
    write_note(
        made, PrunedFile(f"checkpoint/{ITEM}/{NAME}", SIZE, sha, 10**18, f"folder:{master}", time.time())
    )
    return made


class Breaking(FolderSession):
    """The link breaks at the third read, once."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.offsets: list[int] = []

    def read(self, path: bytes, offset: int, count: int) -> bytes:
        self.offsets.append(offset)
        if len(self.offsets) == 3:
            raise TransientError("read", path, "cut")
        return super().read(path, offset, count)


@pytest.mark.parametrize(("asked", "may_come"), [(6, True), (4, False)])
def test_a_save_is_to_come_only_where_the_master_has_none_or_an_older_one(
    tmp_path: Path, asked: int, *, may_come: bool
) -> None:
    """Else a job that is resumed would wait for what is never sent."""
    master, data = tmp_path / "master", tmp_path / "data"
    there, here = master / "checkpoint" / ITEM, data / "checkpoint" / ITEM / "checkpoint_1.dcp"
    here.parent.mkdir(parents=True)
    question = {
        "state": str(tmp_path), "sharded": str(here), "root": str(data), "order": asked,
        "config": str(config(tmp_path / "rla_config.yaml", master)),
    }  # fmt: skip
    there.mkdir(parents=True)
    assert answer(question).get("not_there")
    for rank in range(2):
        write_part(there, identity(), rank, order=5)
    publish_all(there)
    found = answer(question)
    assert "another save" in found["error"]
    assert found.get("not_there", False) is may_come
    assert answer({**question, "order": 5})["bytes"] > 0
    assert check_whole(here) == 5


def test_of_an_unfinished_run_on_the_master_the_checkpoint_that_was_saved_last_comes(tmp_path: Path) -> None:
    """Neither the highest time-step, nor the file that reached the master last."""
    master, index = tmp_path / "master", ITEM.partition("/")[2]
    table = ITEM.partition("/")[0]
    saved = master / "checkpoint" / ITEM
    saved.mkdir(parents=True)
    for order, step in ((4, 20), (1, 10), (3, 40), (2, 30)):
        stamped(saved, step, order, sizes=[4] * 200)
    log = master / "log" / ITEM
    log.mkdir(parents=True)
    told = {"run_key": "job", "run_id": "r", "state": "killed", "host": "other", "updated": 1.0}
    (log / "run.json").write_text(json.dumps(told))
    named = config(tmp_path / "rla_config.yaml", master)
    question = {"config": str(named), "root": str(tmp_path / "data"), "table": table, "run_key": "job"}
    found = answer({"state": str(tmp_path), "resume": {**question, "series": "checkpoint", "known": ""}})
    assert found == {"index": index, "time_step": 20, "run_id": "r", "host": "other"}
    here = sorted(path.name for path in (tmp_path / "data" / "checkpoint" / ITEM).glob("*.pt"))
    assert here == ["checkpoint_20.pt"]


def test_it_goes_on_where_it_stopped(master: Path, folder: Path) -> None:
    session = Breaking(master)
    (note,) = pruned_files(folder)
    assert pruned_below(folder) == (SIZE, 1)
    with pytest.raises(TransientError):
        fetch_noted(session, str(folder), note)
    assert not (folder / NAME).exists()
    assert fetch_noted(session, str(folder), note) == SIZE
    assert session.offsets == [0, READ_BYTES, 2 * READ_BYTES, 2 * READ_BYTES, 3 * READ_BYTES]
    assert (folder / NAME).read_bytes() == random_bytes(SIZE)
    assert (folder / NAME).stat().st_mtime_ns == 10**18
    assert pruned_files(folder) == []
    assert sorted(os.listdir(folder)) == [NAME]


def test_two_at_once_bring_it_once(master: Path, folder: Path) -> None:
    (note,) = pruned_files(folder)
    sizes: list[int] = []

    def bring() -> None:
        sizes.append(fetch_noted(FolderSession(str(master)), str(folder), note))

    threads = [threading.Thread(target=bring) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(sizes) == [0, 0, 0, SIZE]
    assert (folder / NAME).read_bytes() == random_bytes(SIZE)
    assert sorted(os.listdir(folder)) == [NAME]


def config(path: Path, root: Path) -> Path:
    remote = {"file_transfer_protocol": "folder", "remote_data_root": str(root)}
    path.write_text(yaml.safe_dump({"SEND_LOG_FILE": True, "REMOTE_SETTING": remote}))
    return path


def test_a_master_that_has_another_name_now(tmp_path: Path, master: Path, folder: Path) -> None:
    moved = master.rename(tmp_path / "moved")
    state = tmp_path / "state"
    state.mkdir()
    with pytest.raises(FetchError, match="names that master"):
        fetch_back(state, str(folder), NAME, None)
    elsewhere = tmp_path / "other"
    elsewhere.mkdir()
    registry.add(state, elsewhere, config(tmp_path / "other.yaml", tmp_path / "nowhere"))
    with pytest.raises(FetchError, match="names that master"):
        fetch_back(state, str(folder), NAME, None)  # of another database
    registry.add(state, tmp_path / "data", config(tmp_path / "rla_config.yaml", moved))
    assert fetch_back(state, str(folder), NAME, None) == SIZE
    assert fetch_back(state, str(folder), NAME, None) == 0


def test_a_note_or_question_that_leads_elsewhere_is_refused(
    tmp_path: Path, master: Path, folder: Path
) -> None:
    (tmp_path / "secret").write_text("x")
    for path in (f"../secret/{NAME}", f"/etc/{NAME}", f"checkpoint/../../{NAME}"):
        write_note(folder, PrunedFile(path, 1, "0" * 64, 0, f"folder:{master}", 0.0))
        found = answer({"state": str(tmp_path), "folder": str(folder), "name": NAME})
        assert "error" in found
    assert "error" in answer({"state": str(tmp_path), "folder": str(folder), "name": "../checkpoint_10.pt"})
    assert not (folder / NAME).exists()


def test_a_note_beside_a_file_says_nothing(folder: Path) -> None:
    assert read_note(folder, NAME) is not None
    (folder / NAME).write_bytes(b"new")
    assert read_note(folder, NAME) is None
    assert pruned_files(folder) == []
    (folder / NAME).unlink()
    (folder / ".rla-pruned" / f"{NAME}.json").write_text("{broken")
    assert read_note(folder, NAME) is None


class WrittenMeanwhile(FolderSession):
    """While it is fetched, a run writes a checkpoint of that name."""

    here: Path

    def read(self, path: bytes, offset: int, count: int) -> bytes:
        self.here.write_bytes(b"new")
        return super().read(path, offset, count)


def test_a_file_written_meanwhile_is_not_replaced(master: Path, folder: Path) -> None:
    session = WrittenMeanwhile(str(master))
    session.here = folder / NAME
    (note,) = pruned_files(folder)
    assert fetch_noted(session, str(folder), note) == 0
    assert (folder / NAME).read_bytes() == b"new"
    assert [name for name in os.listdir(folder) if name.startswith(".rla-tmp")] == []


@pytest.mark.parametrize(
    ("noted", "there", "place", "wanted"),
    [
        (0o600, 0o644, 0o755, 0o600),
        (0o664, 0o664, 0o775, 0o664),
        (None, 0o640, 0o755, 0o640),
        (0o644, 0o600, 0o755, 0o600),
        (0o644, 0o644, 0o700, 0o600),
        (None, 0o644, 0o750, 0o640),
        (0o4755, 0o755, 0o755, 0o755),
    ],
)
def test_it_is_no_more_open_than_it_was_anywhere(
    master: Path, folder: Path, noted: int | None, there: int, place: int, wanted: int
) -> None:
    """The agent's fetches have umask 0: the folder decides."""
    (note,) = pruned_files(folder)
    write_note(folder, replace(note, mode=noted))
    (note,) = pruned_files(folder)
    (master / "checkpoint" / ITEM / NAME).chmod(there)
    folder.chmod(place)
    before = os.umask(0)
    try:
        fetch_noted(FolderSession(str(master)), str(folder), note)
    finally:
        os.umask(before)
    assert (folder / NAME).stat().st_mode & 0o7777 == wanted

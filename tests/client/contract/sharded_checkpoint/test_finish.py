"""The name of a save that is whole on the master."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.killed_child import killed_at
from support.sharded_folders import RUN, check_whole, identity, parts_path, write_part

from rla_client.contract.checkpoint.checkpoint_retention import Retention
from rla_client.contract.checkpoint.dropped_note import dropped
from rla_client.contract.item.prune_notes import pruned_files
from rla_client.contract.layout import PARTS_FOLDER
from rla_client.contract.sharded_checkpoint.fence import raise_fence
from rla_client.contract.sharded_checkpoint.files import METADATA, PART_FILE, WHOLE_FILE, plan_note_name
from rla_client.contract.sharded_checkpoint.finish import finish_on_master
from rla_client.contract.sharded_checkpoint.folder import finals_of, parts_of, read_whole, waiting_parts
from rla_client.contract.sharded_checkpoint.pruned import note_of_whole, pruned_parts
from rla_client.contract.sharded_checkpoint.publish import came_whole, publish_all
from rla_client.contract.sharded_checkpoint.records import MachinePart, PlanNote, SaveIdentity
from rla_client.contract.sharded_checkpoint.retention import remove_overtaken, remove_superseded_sharded
from rla_client.contract.sharded_checkpoint.status import sharded_status, whole_status

SAVE = identity()


BELOW = "checkpoint/t/2026/i"


@pytest.fixture
def machines(tmp_path: Path) -> list[Path]:
    """Checkpoint folders of two machines, and of the master."""
    folders = [tmp_path / name for name in ("a", "b", "master")]
    for folder in folders:
        folder.mkdir()
    return folders


def write_apart(machines: list[Path], save: SaveIdentity, order: int = 1) -> bytes:
    """Both machines write, and the master has both parts, and publishes; its `whole.json`."""
    master = machines[2]
    for rank, folder in enumerate(machines[:2]):
        write_part(folder, save, rank, order, beside=(rank,))
        publish_all(folder)
        shutil.copytree(parts_path(folder, save), parts_path(master, save), dirs_exist_ok=True)
    publish_all(master)
    final = master / f"checkpoint_{save.step}.dcp"
    check_whole(final)
    return (final / WHOLE_FILE).read_bytes()


def fetch(folder: Path, master: Path) -> None:
    """As the agent does: what notes speak of, `whole.json` last."""
    for where, note in pruned_parts(folder):
        data = (master / note.path.removeprefix(f"{BELOW}/")).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (note.size, note.sha256)
        (where / note.name).write_bytes(data)


def test_what_a_machine_has_written_is_marked_and_waits_for_the_master(machines: list[Path]) -> None:
    here = machines[1]
    write_part(here, SAVE, 1, beside=(1,))
    parts = parts_path(here, SAVE)
    assert not came_whole(here, parts.name)
    assert MachinePart.decode((parts / PART_FILE).read_bytes()) == MachinePart(SAVE, (1,))
    before = sorted(os.walk(parts))
    assert publish_all(here) == []
    assert not came_whole(here, parts.name)
    assert sorted(os.walk(parts)) == before
    (told,) = sharded_status(here)
    assert str(told) == "checkpoint_1: 1 of 2 shards, which wait for the others on the master"
    note = PlanNote(identity(attempt=1).token, 1, 2, 2, "0" * 32, "b", {})
    (parts / plan_note_name(1)).write_bytes(replace(note, token=SAVE.token, number=1).encode())
    remove_overtaken(here, note)  # it is not one that nobody completes
    assert parts.is_dir()
    raise_fence(here, RUN, SAVE.epoch + 1)
    assert not parts.exists()


def test_a_save_that_is_whole_on_the_master_is_a_pruned_one_here(machines: list[Path]) -> None:
    master = machines[2]
    content = write_apart(machines, SAVE)
    for rank, folder in enumerate(machines[:2]):
        parts = parts_path(folder, SAVE).name
        for _ in range(2):  # again: nothing to do
            assert finish_on_master(folder, content, BELOW, "sftp://master") == "checkpoint_1.dcp"
        assert came_whole(folder, parts)
        final = folder / "checkpoint_1.dcp"
        mark = note_of_whole(final)
        assert mark is not None
        assert (mark.order, mark.path, mark.target) == (
            1,
            f"{BELOW}/checkpoint_1.dcp/{WHOLE_FILE}",
            "sftp://master",
        )
        elsewhere = {"__1_0.distcp"} if rank == 0 else {METADATA, "__0_0.distcp"}
        assert {note.name for note in pruned_files(final)} == elsewhere
        assert parts_of(folder) == []
        assert sorted(os.listdir(final / ".rla")) == [".rla-pruned", f"shard-{rank}.json"]
        (told,) = sharded_status(folder)
        assert (told.whole, told.pruned, told.order) == (True, True, 1)
        assert str(told) == "checkpoint_1: whole, on the master; 1 of 2 shards are here, too"
        fetch(final, master)
        check_whole(final)


def test_a_machine_that_has_nothing_of_a_save_gets_its_notes(machines: list[Path], tmp_path: Path) -> None:
    content, new = write_apart(machines, SAVE), tmp_path / "new"
    new.mkdir()
    assert finish_on_master(new, content, BELOW, "m") is None
    raise_fence(new, RUN, SAVE.epoch + 1)  # it resumes the run, and loads what was saved before
    for _ in range(2):
        assert finish_on_master(new, content, BELOW, "m", create=True) == "checkpoint_1.dcp"
    fetch(new / "checkpoint_1.dcp", machines[2])
    check_whole(new / "checkpoint_1.dcp")
    assert parts_of(new) == []


def test_the_later_save_of_a_step_has_the_name_on_each_machine(machines: list[Path]) -> None:
    first, second = identity(attempt=0), identity(attempt=1)
    contents = [write_apart(machines, first, 1), write_apart(machines, second, 2)]
    for content, folder in ((contents[0], machines[0]), (contents[1], machines[1])):
        finish_on_master(folder, content, BELOW, "m")
    assert finish_on_master(machines[0], contents[1], BELOW, "m") == "checkpoint_1.dcp"
    assert finish_on_master(machines[1], contents[0], BELOW, "m") is None
    for folder, master in ((machines[0], machines[2]), (machines[1], machines[2])):
        assert parts_of(folder) == []
        assert came_whole(folder, parts_path(folder, second).name)
        assert not came_whole(folder, parts_path(folder, first).name)
        fetch(folder / "checkpoint_1.dcp", master)
        assert check_whole(folder / "checkpoint_1.dcp") == 2


def test_retention_counts_what_is_whole_on_the_master_on_each_machine(machines: list[Path]) -> None:
    for step in (1, 2, 3):
        for rank, folder in enumerate(machines[:2]):
            write_part(folder, identity(step), rank, step, beside=(rank,), metrics={"r": float(-step)})
            publish_all(folder)
    keep = Retention(max_to_keep=1, keep_best=("r", "max", 1))
    for folder in machines[:2]:
        assert remove_superseded_sharded(folder, "checkpoint", RUN, keep) == []
        assert len(parts_of(folder)) == 3
    for step in (1, 3):
        save = identity(step)
        for rank in (0, 1):
            shutil.copytree(
                parts_path(machines[rank], save), parts_path(machines[2], save), dirs_exist_ok=True
            )
        (whole,) = publish_all(machines[2])
        for folder in machines[:2]:
            finish_on_master(folder, whole.encode(), BELOW, "m")
    for folder in machines[:2]:
        assert remove_superseded_sharded(folder, "checkpoint", RUN, keep) == []
        assert parts_of(folder) == []  # the one of step 2 is older than one that is whole
        assert remove_superseded_sharded(folder, "checkpoint", RUN, Retention(1)) == ["checkpoint_1.dcp"]
        assert finals_of(folder) == ["checkpoint_3.dcp"]
        assert dropped(folder) == {"checkpoint_1.dcp": 1}


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        (Retention(), [1, 2]),
        (Retention(5), [1, 2]),
        (Retention(1, keep_every=2), [2]),
        (Retention(1, keep_best=("r", "max", 1)), [1, 2]),  # of the whole ones none is better
        (Retention(1), []),
    ],
    ids=["all", "five", "every second", "best", "one"],
)
def test_older_saves_that_wait_for_the_master_stay_as_if_they_were_whole(
    machines: list[Path], keep: Retention, kept: list[int]
) -> None:
    """They may become whole after a newer one: their machines look at them less often."""
    newest = write_apart(machines, identity(3), 3)
    for folder in machines[:2]:
        finish_on_master(folder, newest, BELOW, "m")
    contents = {}
    for step in (1, 2):
        for rank, folder in enumerate(machines[:2]):
            told = {"beside": (rank,), "metrics": {"r": 9.0 - step}}
            write_part(folder, identity(step), rank, step, **told)
            write_part(machines[2], identity(step), rank, step, **told)
            publish_all(folder)
        contents[step] = publish_all(machines[2])[0].encode()
    for folder in machines[:2]:
        remove_superseded_sharded(folder, "checkpoint", RUN, keep)
        assert [name.partition(".")[0] for name in parts_of(folder)] == [f"checkpoint_{n}" for n in kept]
        for step in kept:
            finish_on_master(folder, contents[step], BELOW, "m")
        assert finals_of(folder) == [f"checkpoint_{n}.dcp" for n in [*kept, 3]]


def test_abandoned_saves_stay_until_this_opening_has_a_whole_one(machines: list[Path]) -> None:
    """A whole one of an earlier opening is no reason: the run may have gone on far behind it."""
    finish_on_master(machines[0], write_apart(machines, identity(1), 1), BELOW, "m")
    write_part(machines[0], identity(2), 0, 2, beside=(0,))
    raise_fence(machines[0], RUN, 2)
    aside = machines[0] / PARTS_FOLDER / "abandoned-1" / parts_path(machines[0], identity(2)).name
    remove_superseded_sharded(machines[0], "checkpoint", RUN, Retention(1))
    assert aside.is_dir()
    finish_on_master(machines[0], write_apart(machines, identity(1, epoch=2), 3), BELOW, "m")
    remove_superseded_sharded(machines[0], "checkpoint", RUN, Retention(1))
    assert not aside.exists()


@pytest.mark.slow
@pytest.mark.parametrize("older", [False, pytest.param(True, marks=pytest.mark.further)])
def test_a_kill_at_each_call_heals(tmp_path: Path, older: bool) -> None:
    calls, killed = 0, True
    while killed:
        machines = [tmp_path / str(calls) / name for name in ("a", "b", "master")]
        for folder in machines:
            folder.mkdir(parents=True)
        content = b""
        for attempt in range(0 if older else 1, 2):
            content = write_apart(machines, identity(attempt=attempt), 1 + attempt)
            if attempt == 0:
                finish_on_master(machines[0], content, BELOW, "m")

        def work(folder: Path = machines[0], content: bytes = content) -> None:
            finish_on_master(folder, content, BELOW, "m")

        killed = killed_at(calls, work)
        has_name = any(one.order == 2 for one in whole_status(machines[0]))
        assert has_name or waiting_parts(machines[0]), "who settles, and the agent, still see it"
        publish_all(machines[0])  # a rank that looks meanwhile
        for one in sharded_status(machines[0]):
            assert not (one.whole and read_whole(one.path)), "only the master has all of it"
        assert finish_on_master(machines[0], content, BELOW, "m") == "checkpoint_1.dcp"
        assert parts_of(machines[0]) == []
        assert not (machines[0] / "checkpoint_1.dcp" / PART_FILE).exists()
        fetch(machines[0] / "checkpoint_1.dcp", machines[2])
        assert check_whole(machines[0] / "checkpoint_1.dcp") == 2
        calls += 1
    assert calls > 20

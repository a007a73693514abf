"""Files that are on the master alone, and who finds them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from rla_client.checkpoint.listing import find_checkpoint, list_checkpoints
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import FetchError, NoCheckpointError
from rla_client.contract.item.prune_notes import (
    PrunedFile,
    drop_note,
    note_path,
    pruned_below,
    pruned_files,
    read_note,
    write_note,
)
from rla_client.contract.run_index import RunIndex
from rla_client.contract.spool.opening import Continuation
from rla_client.run.item import ItemFolders
from rla_client.run.resume.abandoned_files import abandon_later
from rla_client.run.resume.resume_point import ResumePoint

INDEX = "2026/11/21/09-30-01-000001_10.0.0.5_&"


def note(step: int) -> PrunedFile:
    return PrunedFile(f"checkpoint/t/{INDEX}/checkpoint_{step}.pt", 100, "ab" * 32, 7, "sftp://a@b/c", 1.5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "checkpoint" / "t" / INDEX
    made.mkdir(parents=True)
    return made


def test_notes_are_read_as_they_were_written_and_taken_away(folder: Path) -> None:
    for step in (10, 20):
        write_note(folder, note(step))
    assert pruned_files(folder) == [note(10), note(20)]
    assert pruned_below(folder.parent) == (200, 2)
    assert read_note(folder, "checkpoint_10.pt") == note(10)
    drop_note(folder, "checkpoint_10.pt")
    drop_note(folder, "checkpoint_10.pt")
    assert pruned_files(folder) == [note(20)]
    drop_note(folder, "checkpoint_20.pt")
    assert not note_path(folder, "x").parent.exists()
    assert pruned_files(folder / "not there") == []


@pytest.mark.parametrize("pruned", [False, True], ids=["there", "pruned"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_checkpoint_that_goes_or_comes_back_while_we_look_is_listed(
    folder: Path, moment: str, pruned: bool
) -> None:
    path = folder / "checkpoint_10.pt"

    def prune() -> None:
        write_note(folder, note(10))
        path.unlink()

    def fetch() -> None:
        path.write_bytes(b"x")
        drop_note(folder, path.name)

    class Meddled(type(folder)):  # type: ignore[misc]
        def iterdir(self) -> Iterator[Path]:
            if moment == "before":
                (fetch if pruned else prune)()
            entries = list(super().iterdir())
            if moment == "after":
                (fetch if pruned else prune)()
            return iter(entries)

    path.write_bytes(b"x")
    if pruned:
        prune()
    assert list_checkpoints(Meddled(folder), pruned=True) == [(10, path)]
    assert path.exists() == pruned, "it was meddled with"


@pytest.mark.usefixtures("places")
def test_a_pruned_checkpoint_is_found_and_asked_for(folder: Path, places: Places) -> None:
    places.state.mkdir(parents=True, exist_ok=True)
    places.stopped_marker.touch()  # nobody starts an agent
    write_note(folder, note(10))
    (folder / "checkpoint_20.pt").write_bytes(b"x")
    assert [step for step, _ in list_checkpoints(folder)] == [20]
    assert [step for step, _ in list_checkpoints(folder, pruned=True)] == [10, 20]
    assert find_checkpoint(folder, autostart=False) == (20, folder / "checkpoint_20.pt")
    with pytest.raises(FetchError, match="no agent is running here"):
        find_checkpoint(folder, index=10, autostart=False)
    with pytest.raises(NoCheckpointError, match="time-steps there: 10, 20"):
        find_checkpoint(folder, index=15, autostart=False)


def test_resume_at_an_older_step_leaves_later_notes_behind(folder: Path, tmp_path: Path) -> None:
    """Else the newest checkpoint of the run would be one of the abandoned future."""
    for step in (10, 20):
        write_note(folder, note(step))
    (folder / "checkpoint_30.pt").write_bytes(b"x")
    index = RunIndex.parse(INDEX)
    assert index is not None
    item = ItemFolders(str(tmp_path), "t", index, datetime(2026, 11, 21))  # noqa: DTZ001
    abandon_later(
        ResumePoint(item, "r", 1, 10, None, 0, "checkpoint", {}, Continuation(abandoned="abandoned-1"))
    )
    assert [one.name for one in pruned_files(folder)] == ["checkpoint_10.pt"]
    assert [one.name for one in pruned_files(folder / "abandoned-1")] == ["checkpoint_20.pt"]
    assert (folder / "abandoned-1" / "checkpoint_30.pt").exists()

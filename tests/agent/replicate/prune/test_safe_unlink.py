"""Deleting the file that was meant, whatever takes its name meanwhile."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rla_agent.replicate.file_state import Local
from rla_agent.replicate.prune import safe_unlink
from rla_agent.replicate.prune.safe_unlink import MAX_NAME_BYTES, finish_prune, take_away
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.item.prune_notes import PrunedFile, read_note, write_note

NAME = b"checkpoint_10.pt"
ASIDE = b".rla-tmp-prune-0123abcd-" + NAME


def _settle(folder: Path) -> None:
    with held_folder(folder, ".") as held:
        finish_prune(int(held.name))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def looked_at(path: Path) -> Local:
    found = path.stat()
    return Local(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def written(tmp_path: Path, content: bytes = b"old") -> Path:
    """As checkpoints are written: whole, by a rename."""
    temp, path = tmp_path / ".rla-tmp-new", tmp_path / os.fsdecode(NAME)
    temp.write_bytes(content)
    temp.replace(path)
    return path


def note_of(path: Path) -> PrunedFile:
    found = path.stat()
    return PrunedFile(path.name, found.st_size, "00", found.st_mtime_ns, "sftp://m/root", 1.0)


def test_the_file_that_is_meant_goes(folder: int, tmp_path: Path) -> None:
    assert take_away(folder, NAME, looked_at(written(tmp_path)))
    assert os.listdir(tmp_path) == []
    with pytest.raises(FileNotFoundError):
        take_away(folder, NAME, Local(1, 1, 1, 1))


def test_a_new_file_of_the_name_stays(folder: int, tmp_path: Path) -> None:
    local = looked_at(written(tmp_path))
    path = written(tmp_path, b"new")
    assert not take_away(folder, NAME, local)
    assert path.read_bytes() == b"new"
    local = looked_at(path)
    path.write_bytes(b"NEW")  # in place, of the same size
    os.utime(path, ns=(1, 1))
    assert not take_away(folder, NAME, local)
    assert [entry.read_bytes() for entry in tmp_path.iterdir()] == [b"NEW"]


def test_without_links(folder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_names: object, **_more: object) -> None:
        raise OSError(errno.EPERM, "as on FAT")

    local = looked_at(written(tmp_path))
    written(tmp_path, b"new")
    monkeypatch.setattr(os, "link", link)
    assert not take_away(folder, NAME, local)
    assert [entry.name for entry in tmp_path.iterdir()] == [os.fsdecode(NAME)]
    (tmp_path / os.fsdecode(ASIDE)).write_bytes(b"older")
    safe_unlink._give_back(folder, ASIDE, NAME)
    assert [entry.read_bytes() for entry in tmp_path.iterdir()] == [b"new"]


def test_a_folder_that_took_the_name_stays(folder: int, tmp_path: Path) -> None:
    local = looked_at(written(tmp_path))
    (tmp_path / os.fsdecode(NAME)).unlink()
    (tmp_path / os.fsdecode(NAME) / "inside").mkdir(parents=True)
    assert not take_away(folder, NAME, local)
    assert (tmp_path / os.fsdecode(NAME) / "inside").is_dir()


def test_no_new_file_is_ever_lost(folder: int, tmp_path: Path) -> None:
    """A writer replaces the file all the time; the newest it wrote is there, or was the one looked at."""
    last = [0]
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            last[0] += 1
            written(tmp_path, b"%d" % last[0])

    taken: list[bytes] = []
    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(3000):
            try:
                path = tmp_path / os.fsdecode(NAME)
                local, content = looked_at(path), path.read_bytes()
                if local == looked_at(path) and take_away(folder, NAME, local):
                    taken.append(content)
            except FileNotFoundError:
                continue
    finally:
        stop.set()
        thread.join()
    left = [entry.read_bytes() for entry in tmp_path.iterdir()]
    assert left == [b"%d" % last[0]] or (left == [] and taken[-1] == b"%d" % last[0])


def test_the_one_that_was_pruned_goes(tmp_path: Path) -> None:
    path = written(tmp_path)
    write_note(tmp_path, note_of(path))
    path.rename(tmp_path / os.fsdecode(ASIDE))
    _settle(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == [".rla-pruned"]
    assert read_note(tmp_path, path.name) is not None


def test_another_one_gets_its_name_back(tmp_path: Path) -> None:
    path = written(tmp_path)
    write_note(tmp_path, note_of(path))
    written(tmp_path, b"newer").rename(tmp_path / os.fsdecode(ASIDE))
    _settle(tmp_path)
    assert path.read_bytes() == b"newer"
    path.with_name(os.fsdecode(ASIDE)).write_bytes(b"superseded")
    _settle(tmp_path)
    assert path.read_bytes() == b"newer"
    assert not path.with_name(os.fsdecode(ASIDE)).exists()


def test_names_of_others_are_left_alone(tmp_path: Path) -> None:
    names = {".rla-tmp-prune-", ".rla-tmp-prune-x-a", ".rla-tmp-0123abcd-a", "prune-0123abcd-a"}
    for name in names:
        (tmp_path / name).write_bytes(b"")
    _settle(tmp_path)
    assert set(os.listdir(tmp_path)) == names


def test_the_longest_name(folder: int, tmp_path: Path) -> None:
    path = tmp_path / ("x" * MAX_NAME_BYTES)
    path.write_bytes(b"")
    assert take_away(folder, os.fsencode(path.name), looked_at(path))

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rla_client.code.backup_plan import BackupPlan, BackupReport
from rla_client.code.file_selection import select_files
from rla_client.code.written_files import MAX_NOTES, NOTES_FILE, note_written, read_written


def chosen(project: Path, data: Path, **plan: object) -> list[str]:
    found = select_files(BackupPlan(project, data_roots=(data,), **plan), BackupReport())  # type: ignore[arg-type]
    return sorted(name for name, _ in found)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A program with a picture and a table that it needs, and a database beside it."""
    folder = tmp_path / "project"
    (folder / "data" / "log").mkdir(parents=True)
    for name in ("train.py", "floor.png", "scores.csv"):
        (folder / name).write_text(name)
    return folder


def test_what_rla_wrote_is_left_out_until_somebody_changes_it(project: Path) -> None:
    data = project / "data"
    (project / "plot.png").write_bytes(b"picture")
    assert "plot.png" in chosen(project, data)
    note_written(data, project / "plot.png")
    assert chosen(project, data) == ["floor.png", "scores.csv", "train.py"]
    assert "plot.png" in chosen(project, data, code_dirs=("train.py", "plot.png"))  # as the plan wants it
    (project / "plot.png").write_bytes(b"another")
    os.utime(project / "plot.png", ns=(1, 1))
    assert "plot.png" in chosen(project, data)


def test_event_files_are_no_code(project: Path) -> None:
    (project / "runs").mkdir()
    (project / "runs" / "events.out.tfevents.1.box").write_bytes(b"")
    (project / "runs" / "make_tfevents.py").write_text("")
    names = ["floor.png", "runs/make_tfevents.py", "scores.csv", "train.py"]
    assert chosen(project, project / "data") == names


def test_the_trash_of_a_project_that_is_its_own_data_root_is_no_code(project: Path) -> None:
    (project / "log").mkdir()
    (project / ".rla" / "trash" / "1-a").mkdir(parents=True)
    (project / ".rla" / "trash" / "1-a" / "old.py").write_text("")
    assert not any(name.startswith(".rla") for name in chosen(project, project))


def test_notes_are_bounded_and_broken_ones_passed_over(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = project / "data"
    note_written(data, project / "floor.png")
    with (data / NOTES_FILE).open("ab") as file:
        file.write(b'{"path": 3\n[]\n"x"\n{"path": "/gone", "size": 1, "mtime_ns": 1}\n\xff\n')
    assert set(read_written([data, project / "nowhere"])) == {str(project / "floor.png"), "/gone"}
    full = (data / NOTES_FILE).stat().st_size
    monkeypatch.setattr("rla_client.code.written_files.MAX_NOTES_BYTES", full)
    note_written(data, project / "scores.csv")
    lines = [json.loads(line) for line in (data / NOTES_FILE).read_text().splitlines()]
    assert [Path(line["path"]).name for line in lines] == ["floor.png", "scores.csv"]
    assert len(lines) < MAX_NOTES


def test_a_database_that_cannot_be_written_is_no_error(project: Path) -> None:
    (project / "data" / ".rla").write_text("a file where the folder should be")
    note_written(project / "data", project / "floor.png")
    assert read_written([project / "data"]) == {}

from __future__ import annotations

from pathlib import Path

import pytest

from rla_client.contract.capture import notes


def test_the_first_reason_that_holds() -> None:
    assert notes.why_nothing("") == notes.NOT_LOADED
    assert "not installed for /x/python" in notes.why_nothing("absent /x/python\n")
    assert "imported no library" in notes.why_nothing("loaded /x/python\nabsent /y\n")
    assert notes.why_nothing("loaded /x\nlibrary wandb\nlibrary wandb\n") == "wandb logged no metric"
    assert "(5 values)" in notes.why_nothing("loaded /x\nlibrary tensorboard\ndropped 2\ndropped 3\n")
    assert notes.why_nothing("loaded /x\nlibrary a\nrefused the disk is full\n") == "the disk is full"
    assert not notes.why_nothing("loaded /x\nrun /data/log/a\nrefused the second\n")


def test_notes_are_lines_in_a_file_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "notes"
    monkeypatch.setenv(notes.NOTES_VARIABLE, str(path))
    notes.add_note("loaded", "x")  # nobody asks for it
    assert not path.exists()
    path.touch()
    notes.add_note("refused", "two\nlines " + "y" * 1000)
    notes.add_note("run", "\udcff")
    first, second = path.read_text().splitlines()
    assert first.startswith("refused two lines yyy")
    assert len(first) == notes.MAX_TEXT
    assert second == "run \\udcff"


def test_where_the_runs_are() -> None:
    """A captured program says nothing of it, and neither did we."""
    assert notes.outcome("loaded /x\nlibrary wandb\n") == ("", "nothing was captured: wandb logged no metric")
    assert notes.outcome("loaded /x\nrun /data/a b\nrun /data/a b\n") == ("recorded in /data/a b", "")
    assert notes.outcome("run /data/log/a\nrun /data/log/b\n") == ("recorded in /data/log/a, and 1 more", "")
